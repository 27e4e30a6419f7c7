/** What other sites' pages and odd addresses get from sign-in, invitations and SCIM. */
import { beforeAll, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
let caller: Caller;

beforeAll(async () => {
  app = await ownGateway();
  caller = await app.caller(0);
});

const ODD = ["boss@victim.example@own.example", "Boss <boss@own.example>", '"boss@x"@own.example', "a b@own.example"];

it("refuses to end a sign-in for another site's page, and asks the gateway's own page for its cookie", async () => {
  const body = { issuer_id: "iss_1", query: "code=c&state=s" };
  const finish = (headers: Record<string, string>) => app.call("/v1/session/finish", body, { headers });
  for (const headers of [{ origin: "https://evil.example" }, { "sec-fetch-site": "cross-site" }]) {
    const { status, body: refused, text } = await finish(headers);
    expect([status, refused.error.code], text).toEqual([403, "cross_origin"]);
  }
  const own = await finish({ origin: app.url, "sec-fetch-site": "same-origin" });
  expect(own.body.error.code, own.text).not.toBe("cross_origin");
});

it("refuses malformed e-mail addresses at sign-in, in invites and over SCIM", async () => {
  for (const email of ODD) {
    const begun = await app.call("/v1/session/begin", { email }, { headers: { origin: app.url } });
    expect([begun.status, begun.body.error.param], begun.text).toEqual([422, "email"]);
    const invited = await app.call(`/v1/orgs/${caller.org}/members`, { email, role: "viewer" }, { key: caller.key });
    expect([invited.status, invited.body.error.param], invited.text).toEqual([422, "email"]);
    for (const user of [{ userName: email }, { userName: "plain", emails: [{ value: email, primary: true }] }]) {
      const made = await app.call("/v1/scim/v2/Users", user, { key: caller.key });
      expect(made.status, made.text).toBe(400);
    }
  }
  const plain = await app.call(
    "/v1/scim/v2/Users",
    { userName: "no address", emails: [{ value: "a.b+c#EXT#@own.example" }] },
    { key: caller.key },
  );
  expect(plain.status, plain.text).toBe(201);
});

it("refuses names with line breaks over REST and SCIM", async () => {
  const named = await app.call(`/v1/orgs/${caller.org}/keys`, { name: "a\r\nX-Evil: 1" }, { key: caller.key });
  expect([named.status, named.body.error.param], named.text).toEqual([422, "name"]);
  const group = await app.call("/v1/scim/v2/Groups", { displayName: "a\nb" }, { key: caller.key });
  expect(group.status, group.text).toBe(400);
});
