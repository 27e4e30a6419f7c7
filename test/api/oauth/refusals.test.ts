/** Everything that OAuth has to refuse, at each of its endpoints. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type App, type Caller, openApp } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { type Person, person } from "../../support/members.ts";
import { consent, exchange, honest, pkce, REDIRECT, register } from "../../support/oauth.ts";

let app: App;
let caller: Caller;
let member: Person;
let clientId: string;
let secretive: { id: string; secret: string };

beforeAll(async () => {
  app = await openApp({ trustedProxies: ["127.0.0.0/8"] });
  caller = await app.caller(10);
  member = await person(app, caller.org, "developer");
  clientId = (await register(app, caller.key)).body.client_id;
  const { body } = await register(app, caller.key, { token_endpoint_auth_method: "client_secret_basic" });
  secretive = { id: body.client_id, secret: body.client_secret };
});
afterAll(() => app.close());

/** A fresh code of a client, with its verifier. */
async function fresh(client = clientId, more: object = {}, key = member.key) {
  const { verifier, challenge } = pkce();
  const { status, text, body } = await consent(app, key, client, challenge, more);
  if (status !== 200) throw new Error(text);
  return { verifier, code: body.code as string };
}

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
    ["endless parameters", (f) => ({ ...f, code: "x".repeat(100_000) }), 400, "invalid_request"],
  ];

  for (const [name, bend, status, error] of BENT) {
    it(`${name}, in OAuth's words, and the code stays good`, async () => {
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

  it("a client with a secret that sends none or a wrong one, with a challenge for Basic", async () => {
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

  it("a code that was used, and revokes the key that it gave", async () => {
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

  it("a code whose member was removed meanwhile, or whose consenting key was", async () => {
    const gone = await person(app, caller.org, "developer");
    const { code, verifier } = await fresh(clientId, {}, gone.key);
    await app.call(`/v1/orgs/${caller.org}/members/${gone.userId}`, undefined, { key: caller.key, method: "DELETE" });
    expect((await exchange(app, honest(clientId, code, verifier))).body.error).toBe("invalid_grant");
  });

  it("bodies that are neither forms nor JSON, and parameters that come twice", async () => {
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

  it("exchanges 600 times a minute at most, 300 at once, and is told when to come again in OAuth's words", async () => {
    const answers = await Promise.all(Array.from({ length: 400 }, () => guess("198.51.100.7")));
    const late = answers.filter(({ status }) => status === 429);
    expect(late.length).toBeGreaterThanOrEqual(50);
    expect(answers.filter(({ body }) => body.error === "invalid_grant").length).toBe(400 - late.length);
    for (const { headers, body } of late) {
      expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
      expect(body).toEqual({ error: "temporarily_unavailable", error_description: expect.any(String) });
    }
    expect((await guess("198.51.100.8")).status).toBe(400);
  });

  it("is not another by what it writes itself, nor by another address of its network", async () => {
    const one = await openApp({ database: app.database });
    const spoofed = Array.from({ length: 400 }, (_, i) =>
      exchange(one, honest(clientId, "lmb_code_guess", pkce().verifier), from(`192.0.2.${i % 256}`)),
    );
    expect((await Promise.all(spoofed)).filter(({ status }) => status === 429).length).toBeGreaterThanOrEqual(50);
    await one.close();
    const neighbours = Array.from({ length: 400 }, (_, i) => guess(`198.51.100.9, 2001:db8:1:2::${i.toString(16)}`));
    expect((await Promise.all(neighbours)).filter(({ status }) => status === 429).length).toBeGreaterThanOrEqual(50);
  });

  it("tries invites 600 times a minute at most, and other calls with secrets in them too", async () => {
    const accept = () => app.call("/v1/members/accept", { invite: "lmb_inv_guess" }, from("198.51.100.20"));
    const answers = await Promise.all(Array.from({ length: 400 }, accept));
    const late = answers.filter(({ status }) => status === 429);
    expect(late.length).toBeGreaterThanOrEqual(50);
    for (const { body, headers } of late) {
      expect(body.error.code).toBe("rate_limit_exceeded");
      expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
    }
    const revoke = () => app.call("/v1/oauth/revoke", { token: "x", client_id: clientId }, from("198.51.100.21"));
    const revoked = await Promise.all(Array.from({ length: 400 }, revoke));
    expect(revoked.filter(({ status }) => status === 429).length).toBeGreaterThanOrEqual(50);
  });
});

describe("POST /v1/oauth/token takes", () => {
  it("JSON as well as forms, and passes over parameters that it does not know", async () => {
    const { code, verifier } = await fresh();
    const body = { ...honest(clientId, code, verifier), resource: "https://x.example", audience: ["y"] };
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

  it("keeps neither code nor secret: only hashes are stored", async () => {
    const { code } = await fresh();
    const rows = await app.sql`select row_to_json(oauth_code)::text as text from oauth_code`;
    const clients = await app.sql`select row_to_json(oauth_client)::text as text from oauth_client`;
    const all = [...rows, ...clients].map(({ text }) => text).join();
    expect(all).not.toContain(code);
    expect(all).not.toContain(secretive.secret);
  });
});

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
    for (const client_id of ["oac_nobody", "null", "\u0001"]) {
      const { status, body } = await asked({ client_id });
      expect([status, body.error.code]).toEqual([404, "not_found"]);
    }
  });

  it("answers another organisation's client as an unknown one", async () => {
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

  it("lets scopes only narrow: beyond the client's, beyond the key's, and nothing are all refused", async () => {
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

  it("never gives more than the consenting key has: models, budget, end, rate, hardware", async () => {
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

  it("gives a key that holds no permission beyond its scopes, and that cannot consent itself", async () => {
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
  it("are made by owners and admins, with a secret shown once where they can keep one", async () => {
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

  it("take codes at https, at loopback, or at a scheme of their own, and nowhere else", async () => {
    for (const uri of [
      "https://a.example/cb?x=1",
      "http://127.0.0.1:8123/",
      "http://[::1]/cb",
      "http://localhost:1/cb",
      "com.example.app:/cb",
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
      "app:/cb",
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

  it("are deleted with their codes, and every key that they got is refused", async () => {
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

  it("is content with tokens that it does not know, and refuses those of other clients", async () => {
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
