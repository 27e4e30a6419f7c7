/** What OAuth refuses and takes where a code is exchanged for a key. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { person } from "../../support/members.ts";
import { exchange, honest, pkce, REDIRECT, register } from "../../support/oauth.ts";
import { inWaves } from "../../support/waves.ts";
import { ownGateway } from "../../support/world.ts";
import { app, begin, caller, clientId, end, fresh, member } from "./client.ts";

let secretive: { id: string; secret: string };
beforeAll(async () => {
  await begin();
  const { body } = await register(app, caller.key, { token_endpoint_auth_method: "client_secret_basic" });
  secretive = { id: body.client_id, secret: body.client_secret };
});
afterAll(end);

const keysOf = async (): Promise<number> =>
  Number((await app.sql`select count(*) from key where client_id is not null`)[0]?.count);

describe("POST /v1/oauth/token refuses", () => {
  /** How an honest exchange is bent, and what is said to it. */
  const BENT: readonly (readonly [
    name: string,
    bend: (fields: Record<string, string>) => Record<string, string>,
    status: number,
    error: string,
  ])[] = [
    ["another verifier", (f) => ({ ...f, code_verifier: pkce().verifier }), 400, "invalid_grant"],
    ["the challenge as verifier", (f) => ({ ...f, code_verifier: pkce().challenge }), 400, "invalid_grant"],
    ["a verifier that is too short", (f) => ({ ...f, code_verifier: "a".repeat(42) }), 400, "invalid_grant"],
    ["a verifier that is too long", (f) => ({ ...f, code_verifier: "a".repeat(129) }), 400, "invalid_grant"],
    ["a verifier of wrong letters", (f) => ({ ...f, code_verifier: "é".repeat(50) }), 400, "invalid_grant"],
    ["no verifier", ({ code_verifier: _, ...f }) => f, 400, "invalid_request"],
    ["an empty verifier", (f) => ({ ...f, code_verifier: "" }), 400, "invalid_request"],
    ["no code", ({ code: _, ...f }) => f, 400, "invalid_request"],
    ["a code that nobody gave", (f) => ({ ...f, code: "lmb_code_x" }), 400, "invalid_grant"],
    ["a code in other letters", (f) => ({ ...f, code: f.code?.toUpperCase() ?? "" }), 400, "invalid_grant"],
    ["an API key as code", (f) => ({ ...f, code: member.key }), 400, "invalid_grant"],
    ["no redirect_uri", ({ redirect_uri: _, ...f }) => f, 400, "invalid_request"],
    ["another redirect_uri", (f) => ({ ...f, redirect_uri: `${REDIRECT}/` }), 400, "invalid_grant"],
    ["a redirect_uri with a query", (f) => ({ ...f, redirect_uri: `${REDIRECT}?a=b` }), 400, "invalid_grant"],
    ["a redirect_uri in other letters", (f) => ({ ...f, redirect_uri: REDIRECT.toUpperCase() }), 400, "invalid_grant"],
    ["another host's redirect_uri", (f) => ({ ...f, redirect_uri: "https://evil.example/" }), 400, "invalid_grant"],
    ["no client", ({ client_id: _, ...f }) => f, 401, "invalid_client"],
    ["an unknown client", (f) => ({ ...f, client_id: "oac_nobody" }), 401, "invalid_client"],
    ["a secret of a client that has none", (f) => ({ ...f, client_secret: "x" }), 401, "invalid_client"],
    ["another client", (f) => ({ ...f, client_id: secretive.id }), 401, "invalid_client"],
    [
      "another client that proves itself",
      (f) => ({ ...f, client_id: secretive.id, client_secret: secretive.secret }),
      400,
      "invalid_grant",
    ],
    ["no grant type", ({ grant_type: _, ...f }) => f, 400, "invalid_request"],
    ["passwords", (f) => ({ ...f, grant_type: "password" }), 400, "unsupported_grant_type"],
    ["client credentials", (f) => ({ ...f, grant_type: "client_credentials" }), 400, "unsupported_grant_type"],
    ["refresh tokens", (f) => ({ ...f, grant_type: "refresh_token" }), 400, "unsupported_grant_type"],
    [
      "a grant type in other letters",
      (f) => ({ ...f, grant_type: "Authorization_Code" }),
      400,
      "unsupported_grant_type",
    ],
    ["another server's address", (f) => ({ ...f, resource: "https://x.example/mcp" }), 400, "invalid_target"],
    ["a part of an own address", (f) => ({ ...f, resource: `${app.url}/mcp#here` }), 400, "invalid_target"],
    ["an address that is none", (f) => ({ ...f, resource: "mcp" }), 400, "invalid_target"],
    ["long parameters", (f) => ({ ...f, code: "x".repeat(50_000) }), 400, "invalid_request"],
    ["endless parameters", (f) => ({ ...f, code: "x".repeat(100_000) }), 413, "invalid_request"],
  ];

  for (const [name, bend, status, error] of BENT) {
    it(`${name}, in OAuth's error format, and the code stays valid`, async () => {
      const { code, verifier } = await fresh();
      const before = await keysOf();
      const answer = await exchange(app, bend(honest(clientId, code, verifier)));
      expect([answer.status, answer.body.error]).toEqual([status, error]);
      expect(Object.keys(answer.body)).toEqual(["error", "error_description"]);
      expect(answer.headers.get("cache-control")).toBe("no-store");
      expect(answer.text).not.toContain(code);
      expect(await keysOf()).toBe(before);
      expect((await exchange(app, honest(clientId, code, verifier))).status).toBe(200);
    });
  }

  it("a confidential client with a missing or wrong secret, with a Basic challenge", async () => {
    const { code, verifier } = await fresh(secretive.id);
    const fields = honest(secretive.id, code, verifier);
    const { client_id: _, ...anonymous } = fields;
    const basic = (id: string, secret: string) => ({
      headers: { authorization: `Basic ${Buffer.from(`${id}:${secret}`).toString("base64")}` },
    });
    for (const answer of [
      await exchange(app, fields),
      await exchange(app, { ...fields, client_secret: `${secretive.secret}x` }),
      await exchange(app, { ...fields, client_secret: "" }),
      await exchange(app, anonymous, basic(secretive.id, "wrong")),
      await exchange(app, anonymous, basic("oac_nobody", secretive.secret)),
      await exchange(app, anonymous, basic("%zz", "x")),
      await exchange(app, anonymous, { headers: { authorization: "Basic Og==" } }),
    ]) {
      expect([answer.status, answer.body.error]).toEqual([401, "invalid_client"]);
      expect(answer.headers.get("www-authenticate")).toMatch(/^Basic /);
    }
    const twice = await exchange(
      app,
      { ...fields, client_secret: secretive.secret },
      basic(secretive.id, secretive.secret),
    );
    expect([twice.status, twice.body.error]).toEqual([400, "invalid_request"]);
    expect((await exchange(app, anonymous, basic(secretive.id, secretive.secret))).status).toBe(200);
  });

  it("a code after ten minutes", async () => {
    const { code, verifier } = await fresh();
    await app.sql`update oauth_code set ends = now() - interval '1 millisecond' where client_id = ${clientId}`;
    const answer = await exchange(app, honest(clientId, code, verifier));
    expect([answer.status, answer.body.error]).toEqual([400, "invalid_grant"]);
  });

  it("a used code, and revokes the key that it gave", async () => {
    const { code, verifier } = await fresh();
    const { body } = await exchange(app, honest(clientId, code, verifier));
    expect((await app.call("/v1/key", undefined, { key: body.access_token })).status).toBe(200);
    // Not even the verifier is needed for that: the code itself has leaked.
    const again = await exchange(app, { ...honest(clientId, code, verifier), code_verifier: pkce().verifier });
    expect([again.status, again.body.error]).toEqual([400, "invalid_grant"]);
    await eventually(async () => {
      const { status, body: said } = await app.call("/v1/key", undefined, { key: body.access_token });
      expect([status, said.error?.code]).toEqual([401, "key_disabled"]);
    });
    const acts = await app.sql`select from audit where action = 'key.revoked' and subject = ${body.key_id}`;
    expect(acts).toHaveLength(1);
  });

  it("all but one of a thousand exchanges of one code at once", async () => {
    const { code, verifier } = await fresh();
    const before = await keysOf();
    const answers = [];
    for (let lot = 0; lot < 10; lot++) {
      const from = { headers: { "x-forwarded-for": `203.0.113.${lot}` } };
      const some = Array.from({ length: 100 }, () => exchange(app, honest(clientId, code, verifier), from));
      answers.push(...(await Promise.all(some)));
    }
    const good = answers.filter(({ status }) => status === 200);
    expect(good).toHaveLength(1);
    expect(answers.filter(({ body }) => body.error === "invalid_grant")).toHaveLength(999);
    expect(await keysOf()).toBe(before + 1);
  }, 60_000);

  it("a code whose member was removed or whose consenting key was revoked", async () => {
    const gone = await person(app, caller.org, "developer");
    const { code, verifier } = await fresh(clientId, {}, gone.key);
    await app.call(`/v1/orgs/${caller.org}/members/${gone.userId}`, undefined, { key: caller.key, method: "DELETE" });
    expect((await exchange(app, honest(clientId, code, verifier))).body.error).toBe("invalid_grant");
  });

  it("bodies that are neither forms nor JSON, and duplicate parameters", async () => {
    const raw = (body: string, type: string) =>
      app.call("/v1/oauth/token", body, { headers: { "content-type": type } });
    expect((await raw("a=b&a=c", "application/x-www-form-urlencoded")).body.error).toBe("invalid_request");
    expect((await raw("<a/>", "text/xml")).body.error).toBe("invalid_request");
    expect((await raw("{", "application/json")).body.error).toBe("invalid_request");
    expect((await raw("[]", "application/json")).body.error).toBe("invalid_request");
    expect((await raw('{"code":7}', "application/json")).body.error).toBe("invalid_request");
    expect((await raw("%00=%ff&code=%00", "application/x-www-form-urlencoded")).body.error).toBe("invalid_request");
    const many = new URLSearchParams(
      Array.from({ length: 5000 }, (_, i): [string, string] => [`p${i}`, "x"]),
    ).toString();
    expect((await raw(many, "application/x-www-form-urlencoded")).body.error).toBe("invalid_request");
    const { status, body } = await app.call("/v1/oauth/token");
    expect([status, body.error]).toEqual([405, "invalid_request"]);
  });
});

describe("one address", () => {
  const from = (address: string) => ({ headers: { "x-forwarded-for": address } });
  const guess = (address: string) => exchange(app, honest(clientId, "lmb_code_guess", pkce().verifier), from(address));

  it("can exchange 600 codes a minute, 300 at once, then gets OAuth's retry error", async () => {
    const answers = await inWaves(600, () => guess("198.51.100.7"));
    const late = answers.filter(({ status }) => status === 429);
    expect(late.length).toBeGreaterThanOrEqual(50);
    expect(answers.filter(({ body }) => body.error === "invalid_grant").length).toBe(600 - late.length);
    for (const { headers, body } of late) {
      expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
      expect(body).toEqual({ error: "temporarily_unavailable", error_description: expect.any(String) });
    }
    expect((await guess("198.51.100.8")).status).toBe(400);
  });

  it("cannot be disguised by headers or by another address of its network", async () => {
    const one = await ownGateway({ database: app.database });
    const spoofed = await inWaves(600, (i) =>
      exchange(one, honest(clientId, "lmb_code_guess", pkce().verifier), from(`192.0.2.${i % 256}`)),
    );
    expect(spoofed.filter(({ status }) => status === 429).length).toBeGreaterThanOrEqual(50);
    await one.close();
    const neighbours = await inWaves(600, (i) => guess(`198.51.100.9, 2001:db8:1:2::${i.toString(16)}`));
    expect(neighbours.filter(({ status }) => status === 429).length).toBeGreaterThanOrEqual(50);
  });

  it("can try invites 600 times a minute, as other calls with secrets", async () => {
    const accept = () => app.call("/v1/members/accept", { invite: "lmb_inv_guess" }, from("198.51.100.20"));
    const answers = await inWaves(600, accept);
    const late = answers.filter(({ status }) => status === 429);
    expect(late.length).toBeGreaterThanOrEqual(50);
    for (const { body, headers } of late) {
      expect(body.error.code).toBe("rate_limit_exceeded");
      expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
    }
    const revoke = () => app.call("/v1/oauth/revoke", { token: "x", client_id: clientId }, from("198.51.100.21"));
    const revoked = await inWaves(600, revoke);
    expect(revoked.filter(({ status }) => status === 429).length).toBeGreaterThanOrEqual(50);
  });
});

describe("POST /v1/oauth/token takes", () => {
  it("JSON as well as forms, and ignores unknown parameters", async () => {
    const { code, verifier } = await fresh();
    const body = { ...honest(clientId, code, verifier), requested_token_type: "x", audience: ["y"] };
    const { status, body: token } = await app.call("/v1/oauth/token", body);
    expect(status).toBe(200);
    expect(token).toEqual({
      access_token: expect.stringMatching(/^lmb_sk_/),
      token_type: "bearer",
      key_id: expect.stringMatching(/^key_/),
      user_id: member.userId,
      scope: "act predict ground evaluate",
      expires_at: null,
    });
  });

  it("an address of the gateway as resource", async () => {
    for (const resource of [app.url, `${app.url}/mcp`]) {
      const { code, verifier } = await fresh();
      expect((await exchange(app, { ...honest(clientId, code, verifier), resource })).status).toBe(200);
    }
  });

  it("stores only hashes of codes and secrets", async () => {
    const { code } = await fresh();
    const rows = await app.sql`select row_to_json(oauth_code)::text as text from oauth_code`;
    const clients = await app.sql`select row_to_json(oauth_client)::text as text from oauth_client`;
    const all = [...rows, ...clients].map(({ text }) => text).join();
    expect(all).not.toContain(code);
    expect(all).not.toContain(secretive.secret);
  });
});
