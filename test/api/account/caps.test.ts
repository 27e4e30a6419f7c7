/** What an organization may have at most: exactly so many, however many ask at once, and a refusal that says what to do. */
import { beforeAll, expect, it } from "vitest";
import type { Answer, App } from "../../support/app.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
beforeAll(async () => {
  app = await ownGateway({ orgCaps: { keys: 4, members: 3, providers: 2, queued_items: 5, suites: 2 } });
});

/** Makes ten at once in an organization of its own; answers what was made and how the others were refused. */
async function flood(make: (org: string, key: string, i: number) => Promise<Answer>) {
  const { org, key } = await app.caller(0);
  const answers = await Promise.all(Array.from({ length: 10 }, (_, i) => make(org, key, i)));
  const made = answers.filter(({ status }) => status < 300).length;
  const refused = answers.filter(({ status }) => status >= 300);
  for (const { status, body, text } of refused) expect([status, body.error?.code], text).toEqual([409, "too_many"]);
  return { org, key, made, message: refused[0]?.body.error.message };
}

it("caps the keys of an organization, and lets another one in when one is revoked", async () => {
  const create = (org: string, key: string) => app.call(`/v1/orgs/${org}/keys`, { name: "one" }, { key });
  const { org, key, made, message } = await flood((org, key) => create(org, key));
  // The first one is the caller's own.
  expect([made, message]).toEqual([
    3,
    "an organization may have 4 keys at most; remove some, or have the operator raise the limit",
  ]);
  const { body } = await app.call(`/v1/orgs/${org}/keys`, undefined, { key });
  const other = body.data.find(({ name }: { name: string }) => name === "one");
  const revoked = await app.call(`/v1/orgs/${org}/keys/${other.id}`, undefined, { key, method: "DELETE" });
  expect(revoked.status, revoked.text).toBe(200);
  expect((await create(org, key)).status).toBe(201);
});

it("caps the members of an organization, whether they are invited or provisioned by SCIM", async () => {
  const { org, key, made } = await flood((org, key, i) =>
    app.call(`/v1/orgs/${org}/members`, { email: `m${i}@own.example`, role: "viewer" }, { key }),
  );
  expect(made).toBe(3);
  const user = await app.call("/v1/scim/v2/Users", { userName: `scim@own.example` }, { key });
  expect(user.status, `${org}: ${user.text}`).toBe(409);
});

it("caps the providers of an organization, and the items of jobs that have not ended", async () => {
  const providers = await flood((_org, key, i) =>
    app.call("/v1/supply/providers", { name: `capped-${i}`, data_collection: "deny" }, { key }),
  );
  expect(providers.made).toBe(2);
  const request = { model: "service/auto", observations: [{ proprio: [0] }] };
  const batches = await flood((_org, key) =>
    app.call("/v1/batch", { contract: "act", requests: [request, request] }, { key }),
  );
  expect([batches.made, batches.message]).toEqual([2, expect.stringContaining("5 queued items at most")]);
});

it("caps the suites of an organization, and lets another one in when one is archived", async () => {
  const suite = { title: "capped", tasks: [{ scenario: "base-nav", episodes: 1 }] };
  const { key, made, message } = await flood((_org, key) => app.call("/v1/suites", suite, { key }));
  expect([made, message]).toEqual([2, expect.stringContaining("2 suites at most")]);
  const { body } = await app.call("/v1/suites", undefined, { key });
  const archived = await app.call(`/v1/suites/${body.data[0].id}`, undefined, { key, method: "DELETE" });
  expect(archived.status, archived.text).toBe(200);
  expect((await app.call("/v1/suites", suite, { key })).status).toBe(201);
});
