/** What OAuth refuses where consent is given, applications are made, and keys are revoked. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { person } from "../../support/members.ts";
import { consent, exchange, honest, pkce, REDIRECT, register } from "../../support/oauth.ts";
import { app, begin, caller, clientId, end, fresh, member } from "./client.ts";

beforeAll(begin);
afterAll(end);

describe("POST /v1/oauth/authorize", () => {
  const asked = (more: object, key = member.key) => consent(app, key, clientId, pkce().challenge, more);

  it("refuses plain challenges, open redirects and codes for others", async () => {
    for (const more of [
      { code_challenge_method: "plain" },
      { code_challenge_method: "s256" },
      { code_challenge_method: "" },
      { code_challenge: "short" },
      { code_challenge: "x".repeat(44) },
      { code_challenge: "" },
      { redirect_uri: "https://evil.example/callback" },
      { redirect_uri: `${REDIRECT}/../evil` },
      { redirect_uri: `${REDIRECT}#x` },
      { redirect_uri: `${REDIRECT}@evil.example` },
      { redirect_uri: "" },
      { response_type: "token" },
      { expires_in: 1 },
      { budget_usd: -1 },
      { budget_usd: 0.0000001 },
      { nobody: 1 },
    ])
      expect((await asked(more)).status, JSON.stringify(more)).toBe(422);
    for (const client_id of ["oac_nobody", "null"]) {
      const { status, body } = await asked({ client_id });
      expect([status, body.error.code]).toEqual([404, "not_found"]);
    }
  });

  it("returns 404 for another organization's client", async () => {
    const stranger = await app.caller(0);
    const [theirs, unknown] = await Promise.all([
      asked({}, stranger.key),
      asked({ client_id: "oac_nobody" }, stranger.key),
    ]);
    const { request_id: _, ...one } = theirs.body.error;
    const { request_id: __, ...two } = unknown.body.error;
    expect([theirs.status, one]).toEqual([unknown.status, two]);
    expect(theirs.status).toBe(404);
  });

  it("only narrows scopes: more than the client's or the key's, and none, are refused", async () => {
    for (const scope of ["usage.read", "act keys.write", "everything", "ACT", "  "]) {
      const { status, body } = await asked({ scope });
      expect([status, body.error.code], scope).toEqual([400, "invalid_scope"]);
    }
    const narrow = await app.key(caller.org, { scopes: ["ground"], role: "developer" });
    expect((await asked({ scope: "act" }, narrow)).body.error.code).toBe("invalid_scope");
    expect((await asked({}, narrow)).body.scope).toBe("ground");
    const viewer = await person(app, caller.org, "viewer");
    expect((await asked({}, viewer.key)).body.error.code).toBe("invalid_scope");
    expect((await asked({ scope: "act act" })).body.scope).toBe("act");
  });

  it("never grants more than the consenting key has: models, budget, expiry, rate, hardware", async () => {
    const ends = Math.floor(Date.now() / 1000) + 7200;
    const limits = {
      role: "developer",
      models: ["acme/*"],
      environment: "hardware",
      budget: { limit_usd: 2, interval: "daily" },
      expires_at: ends,
      rate_limit: { requests: 5, window_s: 60, burst: 5, concurrency: 2 },
    };
    const key = await app.key(caller.org, limits);
    const granted = async (more: object) => {
      const { code, verifier } = await fresh(clientId, more, key);
      const { body } = await exchange(app, honest(clientId, code, verifier));
      return (await app.call("/v1/key", undefined, { key: body.access_token })).body;
    };
    const { role: _, ...inherited } = limits;
    expect(await granted({ budget_usd: 50, expires_in: 86_400 })).toMatchObject(inherited);
    const narrow = await granted({ budget_usd: 1, expires_in: 60 });
    expect(narrow.budget).toMatchObject({ limit_usd: 1, interval: "daily" });
    expect(narrow.expires_at).toBeLessThan(ends);
  });

  it("grants a key without permissions beyond its scopes, which cannot consent itself", async () => {
    const owner = await person(app, caller.org, "owner");
    const { code, verifier } = await fresh(clientId, { scope: "act" }, owner.key);
    const { body } = await exchange(app, honest(clientId, code, verifier));
    const key = body.access_token;
    for (const path of ["/v1/usage", "/v1/billing/balance", "/v1/oauth/clients", `/v1/orgs/${caller.org}/members`])
      expect((await app.call(path, undefined, { key })).status, path).toBe(403);
    expect((await app.call(`/v1/orgs/${caller.org}/keys`, {}, { key })).status).toBe(403);
    expect((await asked({}, key)).body.error.code).toBe("permission_denied");
    expect((await app.call("/v1/predict", { model: "a/b", observations: [{}] }, { key })).body.error.code).toBe(
      "scope_denied",
    );
  });
});

describe("OAuth clients", () => {
  it("are created by owners and admins, with a secret shown once if they can keep one", async () => {
    const made = await register(app, caller.key, { token_endpoint_auth_method: "client_secret_post", scopes: ["act"] });
    expect(made.status).toBe(201);
    expect(made.body).toMatchObject({ client_secret: expect.stringMatching(/^lmb_cs_/), scopes: ["act"] });
    const { body } = await app.call("/v1/oauth/clients?limit=1000", undefined, { key: caller.key });
    expect(body.data.map(({ client_id }: { client_id: string }) => client_id)).toContain(made.body.client_id);
    expect(JSON.stringify(body)).not.toContain('client_secret"');
    expect((await register(app, member.key)).status).toBe(403);
    const stranger = await app.caller(0);
    const theirs = await app.call("/v1/oauth/clients", undefined, { key: stranger.key });
    expect(theirs.body.data).toEqual([]);
  });

  it("receive codes only at https, loopback or their own scheme", async () => {
    for (const uri of [
      "https://a.example/cb?x=1",
      "http://127.0.0.1:8123/",
      "http://[::1]/cb",
      "http://localhost:1/cb",
      "com.example.app:/cb",
      "app:/cb",
    ])
      expect((await register(app, caller.key, { redirect_uris: [uri] })).status, uri).toBe(201);
    for (const uri of [
      "http://a.example/cb",
      "http://127.0.0.1.evil.example/",
      "https://a.example/#x",
      "https://user:pass@a.example/",
      "https://*.example/",
      "https:/a.example",
      "https:a.example",
      "https://a.example\\@evil.example/",
      "javascript:alert(1)",
      "data:text/html,x",
      "//a.example/cb",
      "/cb",
      "https://a.example/ cb",
      "https://a.example/\n",
      "",
    ])
      expect((await register(app, caller.key, { redirect_uris: [uri] })).status, uri).toBe(422);
    expect((await register(app, caller.key, { redirect_uris: [] })).status).toBe(422);
    expect((await register(app, caller.key, { redirect_uris: Array(11).fill(REDIRECT) })).status).toBe(422);
    for (const scopes of [["keys.write"], ["members.write"], ["scim.write"], ["act", "act"], ["*"]])
      expect((await register(app, caller.key, { scopes })).status).toBe(422);
  });

  it("are deleted with their codes, and their keys are refused", async () => {
    const id = (await register(app, caller.key)).body.client_id;
    const used = await fresh(id);
    const { body } = await exchange(app, honest(id, used.code, used.verifier));
    const open = await fresh(id);
    const remove = (key: string) => app.call(`/v1/oauth/clients/${id}`, undefined, { key, method: "DELETE" });
    const stranger = await app.caller(0);
    expect((await remove(stranger.key)).status).toBe(404);
    expect((await remove(caller.key)).body).toEqual({ client_id: id, deleted: true });
    expect((await remove(caller.key)).status).toBe(404);
    expect((await exchange(app, honest(id, open.code, open.verifier))).body.error).toBe("invalid_client");
    await eventually(async () =>
      expect((await app.call("/v1/key", undefined, { key: body.access_token })).status).toBe(401),
    );
  });
});

describe("POST /v1/oauth/revoke", () => {
  const revoke = (fields: Record<string, string>) =>
    app.call("/v1/oauth/revoke", new URLSearchParams(fields).toString(), {
      headers: { "content-type": "application/x-www-form-urlencoded" },
    });

  it("accepts unknown tokens and refuses those of other clients", async () => {
    expect((await revoke({ token: "nobody", client_id: clientId })).status).toBe(200);
    const { code, verifier } = await fresh();
    const { body } = await exchange(app, honest(clientId, code, verifier));
    const other = (await register(app, caller.key)).body.client_id;
    const theirs = await revoke({ token: body.access_token, client_id: other });
    expect([theirs.status, theirs.body.error]).toEqual([400, "invalid_grant"]);
    expect((await revoke({ token: body.access_token, client_id: "oac_nobody" })).status).toBe(401);
    expect((await revoke({ client_id: clientId })).status).toBe(400);
    // A key that no application got is nothing that an application can revoke.
    expect((await revoke({ token: member.key, client_id: clientId })).status).toBe(200);
    expect((await app.call("/v1/key", undefined, { key: member.key })).status).toBe(200);
    expect((await app.call("/v1/key", undefined, { key: body.access_token })).status).toBe(200);
  });
});
