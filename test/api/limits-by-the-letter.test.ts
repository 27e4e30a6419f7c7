/** Rows of the specification about limits, lists and addresses, and RFC 7396, over one gateway. */
import { beforeAll, describe, expect, it } from "vitest";
import type { App, Caller } from "../support/app.ts";
import { ownGateway } from "../support/world.ts";

let app: App;
let caller: Caller;
beforeAll(async () => {
  app = await ownGateway({ publicUrl: "https://api.example.com/base", directUrl: "https://direct.example.com" });
  caller = await app.caller(1);
});

const call = (path: string, body?: object, method?: string, key = caller.key) =>
  app.call(path, body, { key, ...(method && { method }) });
const keysPath = () => `/v1/orgs/${caller.org}/keys`;
const makeKey = async (facts: object) => {
  const made = await call(keysPath(), facts);
  expect(made.status, made.text).toBe(201);
  return made.body;
};
const change = (id: string, body: object, key = caller.key) => call(`${keysPath()}/${id}`, body, "PATCH", key);

describe("a limit of a key", () => {
  it.each(["models", "scopes"])(
    "refuses an empty list of %s on create and update, and keeps the old one",
    async (field) => {
      const limits = { models: ["acme/base"], scopes: ["act"] };
      const key = await makeKey(limits);
      for (const refused of [await call(keysPath(), { [field]: [] }), await change(key.id, { [field]: [] })])
        expect([refused.status, refused.body.error?.param], refused.text).toEqual([422, field]);
      expect((await call(`${keysPath()}/${key.id}`)).body).toMatchObject(limits);
    },
  );

  it.each([
    ["null", (field: string) => ({ [field]: null })],
    ["clear", (field: string) => ({ clear: [field] })],
  ])("is removed by %s, and only by a key that does not have it", async (_, removal) => {
    const limits = { models: ["acme/base"], scopes: ["act"], budget: { limit_usd: 1 }, robot_id: "arm-7" };
    const narrow = await makeKey({ role: "admin", models: ["acme/base"] });
    const key = await makeKey({ role: "viewer", ...limits });
    const refused = await change(key.id, removal("models"), narrow.key);
    expect(refused.status, refused.text).toBe(403);
    for (const field of Object.keys(limits)) {
      const changed = await change(key.id, removal(field));
      const none = field === "scopes" ? ["act", "predict", "ground", "evaluate"] : null;
      expect([changed.status, changed.body[field]], changed.text).toEqual([200, none]);
    }
  });

  it("cannot be removed with null where removal is not allowed", async () => {
    const refused = await change((await makeKey({})).id, { disabled: null });
    expect([refused.status, refused.body.error?.param], refused.text).toEqual([422, "disabled"]);
  });
});

describe("null in a change", () => {
  it("resets an organization's setting to its default", async () => {
    const path = `/v1/orgs/${caller.org}/settings`;
    await call("/v1/presets/usual", { horizon: 8 }, "PUT");
    const set = await call(path, { default_preset: "usual", max_hedge_ratio: 1, retention_days: 7 }, "PATCH");
    expect(set.body, set.text).toMatchObject({ default_preset: "usual", max_hedge_ratio: 1, retention_days: 7 });
    const unset = await call(path, { default_preset: null, max_hedge_ratio: null }, "PATCH");
    expect(unset.body, unset.text).toMatchObject({ default_preset: null, max_hedge_ratio: 0.05, retention_days: 7 });
  });

  it("removes a workspace's budget", async () => {
    const made = await call(`/v1/orgs/${caller.org}/workspaces`, { name: "lab", budget: { limit_usd: 3 } });
    expect(made.body.budget, made.text).toMatchObject({ limit_usd: 3 });
    const changed = await call(`/v1/orgs/${caller.org}/workspaces/${made.body.id}`, { budget: null }, "PATCH");
    expect([changed.status, changed.body.budget ?? null], changed.text).toEqual([200, null]);
  });
});

it("a developer key without a member can read only itself", async () => {
  const made = await app.admin(keysPath(), { role: "developer" });
  const listed = await call(keysPath(), undefined, undefined, made.key);
  expect(
    listed.body.data?.map(({ id }: { id: string }) => id),
    listed.text,
  ).toEqual([made.id]);
  const read = async (id: string) => (await call(`${keysPath()}/${id}`, undefined, undefined, made.key)).status;
  expect([await read(made.id), await read((await makeKey({})).id)]).toEqual([200, 404]);
});

it("paged lists accept a limit", async () => {
  for (const n of [1, 2]) await call("/v1/webhooks", { url: `https://hooks.example/${n}`, events: ["*"] });
  const first = await call("/v1/webhooks?limit=1");
  expect([first.status, first.body.data?.length, first.body.has_more], first.text).toEqual([200, 1, true]);
  const second = await call(`/v1/webhooks?limit=1&cursor=${first.body.next_cursor}`);
  expect([second.body.data?.length, second.body.has_more], second.text).toEqual([1, false]);
  expect(second.body.data[0].id).not.toBe(first.body.data[0].id);
  for (const path of ["/v1/broadcast", `/v1/orgs/${caller.org}/issuers`, `/v1/orgs/${caller.org}/domains`]) {
    const { status, text } = await call(`${path}?limit=1`);
    expect(status, text).toBe(200);
  }
});

it("the OpenAPI document names the public and the direct address", async () => {
  const { body } = await app.call("/openapi.json");
  const urls = body.servers.map(({ url }: { url: string }) => url);
  expect(urls).toEqual(["https://api.example.com/base", "https://direct.example.com"]);
});

it("a commitment from mid-month reports `prorated` and the amount due", async () => {
  const { org, key } = await app.caller(1);
  const next = new Date(Date.UTC(new Date().getUTCFullYear(), new Date().getUTCMonth() + 1, 16));
  const path = `/v1/orgs/${org}/commitment`;
  const half = await app.admin(path, { min_monthly_usd: 31, starts_on: next.toISOString().slice(0, 10) });
  expect(half).toMatchObject({ min_monthly_usd: 31, prorated: true });
  expect(half.due_usd).toBeGreaterThan(0);
  expect(half.due_usd).toBeLessThan(31);
  next.setUTCDate(1);
  const whole = await app.admin(path, { min_monthly_usd: 31, starts_on: next.toISOString().slice(0, 10) });
  expect(whole).toMatchObject({ due_usd: 31, prorated: false });
  const { body } = await call("/v1/billing/balance", undefined, undefined, key);
  expect(body.commitment).toMatchObject({ due_usd: 31, prorated: false });
});
