/** Signing in by OpenID Connect: against a real provider, and an issuer that lies. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type Answer, type App, type Caller } from "../../support/app.ts";
import { Browser, OWN_PAGE } from "../../support/browser.ts";
import { eventually } from "../../support/eventually.ts";
import {
  EMAIL,
  type IdentityProvider,
  type Lie,
  type LyingIssuer,
  startIdentityProvider,
  startLyingIssuer,
  through,
} from "../../support/identity-provider.ts";
import { person } from "../../support/members.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
let provider: IdentityProvider;
let liar: LyingIssuer;
let caller: Caller;

beforeAll(async () => {
  app = await ownGateway();
  [provider, liar] = await Promise.all([startIdentityProvider(), startLyingIssuer()]);
}, 60_000);
afterAll(async () => {
  await provider.close();
  await liar.close();
});

let born = 0;

/** A domain of an organisation that the provider signs in. */
async function organisation(more: object = {}): Promise<{ org: string; key: string; domain: string }> {
  const { org, key } = await app.caller(0);
  const domain = `d${++born}.example`;
  await app.admin(`/v1/orgs/${org}/domains`, { domain });
  const facts = { issuer: provider.issuer, client_id: "x", domains: [domain], ...more };
  const put = (body: object) => app.call(`/v1/orgs/${org}/issuers/sso`, body, { key, method: "PUT" });
  const { redirect_uri } = (await put(facts)).body;
  const client = await provider.register(redirect_uri);
  const { status } = await put({ ...facts, client_id: client.client_id, client_secret: client.client_secret });
  expect(status).toBe(200);
  return { org, key, domain };
}

const navigate = (browser: Browser, path: string, headers: Record<string, string> = {}): Promise<Response> =>
  fetch(app.url + path, {
    redirect: "manual",
    headers: { "sec-fetch-site": "none", cookie: browser.cookie, ...headers },
  }).then((answer) => {
    browser.take(answer.headers);
    return answer;
  });
const placeOf = (answer: Response): string => answer.headers.get("location") ?? "";

/** Goes to the provider and back; answers where the gateway sends the browser on to. */
async function signIn(browser: Browser, email: string, more = ""): Promise<string> {
  const begun = await navigate(browser, `/sign-in?email=${encodeURIComponent(email)}${more}`);
  expect(begun.status).toBe(303);
  if (!placeOf(begun).startsWith(provider.issuer)) return placeOf(begun);
  const back = await through(placeOf(begun));
  expect(back.startsWith(app.url)).toBe(true);
  return placeOf(await navigate(browser, back.slice(app.url.length), { "sec-fetch-site": "cross-site" }));
}

const who = async (browser: Browser): Promise<Answer["body"]> => (await browser.call("/v1/session")).body;

describe("a person is signed in by a real provider", () => {
  it("as the member with the verified e-mail address, and returns to the requested page", async () => {
    const { org, domain } = await organisation();
    const email = `ada@${domain}`;
    const { user_id } = await app.admin(`/v1/orgs/${org}/members`, { email, role: "operator" });
    provider.is({ sub: `ada ${domain}`, email, email_verified: true });
    const browser = new Browser(app.url);
    expect(await signIn(browser, email, "&return_to=%2Fcalls%3Fmodel%3Da%252Fb")).toBe("/calls?model=a%2Fb");
    expect(await who(browser)).toMatchObject({ org_id: org, user_id, email, role: "operator", method: "oidc" });
    const { body } = await app.call(`/v1/orgs/${org}/members/${user_id}`, undefined, {
      admin: ADMIN_TOKEN,
    });
    expect([body.status, body.invite_expires_at]).toEqual(["active", undefined]);
  });

  it("as the member with that SCIM externalId, whatever the e-mail address", async () => {
    const { key, domain } = await organisation();
    const user = { userName: `grace@${domain}`, externalId: `grace-${domain}`, active: true };
    const { body } = await app.call("/v1/scim/v2/Users", user, { key });
    provider.is({ sub: `grace-${domain}`, email: "other@example.com", email_verified: false });
    const browser = new Browser(app.url);
    expect(await signIn(browser, `grace@${domain}`)).toBe("/");
    expect((await who(browser)).user_id).toBe(body.id);
  });

  it("as a new member only with `join_role`", async () => {
    const open = await organisation({ join_role: "viewer" });
    provider.is({ sub: `new ${open.domain}`, email: `new@${open.domain}`, email_verified: true });
    const browser = new Browser(app.url);
    expect(await signIn(browser, `new@${open.domain}`)).toBe("/");
    expect(await who(browser)).toMatchObject({ org_id: open.org, role: "viewer" });
    const shut = await organisation();
    provider.is({ sub: `new ${shut.domain}`, email: `new@${shut.domain}`, email_verified: true });
    expect(await signIn(new Browser(app.url), `new@${shut.domain}`)).toMatch(/^\/sign-in#error=sign_in_refused&/);
  });

  it("not with an unverified address, a foreign domain, or a member of another organization", async () => {
    const { domain } = await organisation({ join_role: "viewer" });
    const other = await app.caller(0);
    const foreign = await person(app, other.org, "owner");
    const people = [
      { sub: `a ${domain}`, email: `x@${domain}`, email_verified: false },
      { sub: `b ${domain}`, email: `x@${domain}` },
      { sub: `c ${domain}`, email: `x@sub.${domain}`, email_verified: true },
      { sub: `d ${domain}`, email: foreign.email, email_verified: true },
      { sub: `e ${domain}`, email: `x@${domain}@evil.example`, email_verified: true },
      { sub: `g ${domain}`, email: `boss@victim.example@${domain}`, email_verified: true },
      { sub: `h ${domain}`, email: `"boss@victim.example" <x@${domain}>`, email_verified: true },
      { sub: `f ${domain}` },
    ];
    for (const each of people) {
      provider.is(each);
      const browser = new Browser(app.url);
      expect(await signIn(browser, `x@${domain}`)).toMatch(/^\/sign-in#error=sign_in_refused&request_id=req_/);
      expect((await who(browser)).error.code).toBe("missing_api_key");
    }
  });

  it("not after the member was deactivated", async () => {
    const { org, domain } = await organisation();
    const email = `gone@${domain}`;
    const { user_id } = await app.admin(`/v1/orgs/${org}/members`, { email, role: "viewer" });
    provider.is({ sub: `gone ${domain}`, email, email_verified: true });
    expect(await signIn(new Browser(app.url), email)).toBe("/");
    await app.sql`update member set status = 'deactivated' where id = ${user_id}`;
    expect(await signIn(new Browser(app.url), email)).toMatch(/sign_in_refused/);
  });

  it("not as a member whose e-mail address was reassigned", async () => {
    const { org, domain } = await organisation();
    const email = `desk@${domain}`;
    await app.admin(`/v1/orgs/${org}/members`, { email, role: "owner" });
    provider.is({ sub: `first ${domain}`, email, email_verified: true });
    expect(await signIn(new Browser(app.url), email)).toBe("/");
    provider.is({ sub: `second ${domain}`, email, email_verified: true });
    expect(await signIn(new Browser(app.url), email)).toMatch(/sign_in_refused/);
  });

  it("only until the issuer or domain is deleted", async () => {
    for (const path of ["issuers/sso", "domains/"]) {
      const { org, domain } = await organisation({ join_role: "viewer" });
      const email = `all@${domain}`;
      provider.is({ sub: `all ${domain}`, email, email_verified: true });
      const browser = new Browser(app.url);
      await signIn(browser, email);
      expect((await who(browser)).org_id).toBe(org);
      const whole = `/v1/orgs/${org}/${path}${path.endsWith("/") ? domain : ""}`;
      const gone = await app.call(whole, undefined, { admin: ADMIN_TOKEN, method: "DELETE" });
      expect(gone.status).toBe(200);
      await eventually(async () => expect((await who(browser)).error?.code).toBe("session_ended"));
      expect(await signIn(new Browser(app.url), email)).toMatch(/no_issuer/);
    }
  });
});

describe("a sign-in", () => {
  it("redirects only to the gateway's own pages", async () => {
    const { domain } = await organisation();
    for (const to of [
      "https://evil.example/",
      "//evil.example",
      "/\\evil.example",
      "/\t/evil.example",
      "javascript:alert(1)",
      "evil",
      "",
      "/a b",
      "/%0d%0a\n",
    ]) {
      const begun = await navigate(
        new Browser(app.url),
        `/sign-in?email=x@${domain}&return_to=${encodeURIComponent(to)}`,
      );
      expect([to, placeOf(begun).split("&")[0]]).toEqual([to, "/sign-in#error=validation_failed"]);
    }
  });

  it("cannot be started by another site's page", async () => {
    const { domain } = await organisation();
    const path = `/sign-in?email=x@${domain}`;
    const begun = await navigate(new Browser(app.url), path, { "sec-fetch-site": "cross-site" });
    expect([begun.status, placeOf(begun), begun.headers.getSetCookie()]).toEqual([303, "/sign-in", []]);
    const headers = { origin: "https://evil.example" };
    expect((await app.call("/v1/session/begin", { email: `x@${domain}` }, { headers })).status).toBe(403);
  });

  it("cannot end in another browser, with another state or issuer, or with forged cookies", async () => {
    const { domain, org, key } = await organisation({ join_role: "viewer" });
    provider.is({ sub: `mix ${domain}`, email: `mix@${domain}`, email_verified: true });
    const second = { issuer: provider.issuer, client_id: "x", domains: [] };
    const { redirect_uri } = (await app.call(`/v1/orgs/${org}/issuers/other`, second, { key, method: "PUT" })).body;
    const begin = async (): Promise<[Browser, URL]> => {
      const browser = new Browser(app.url);
      const begun = await navigate(browser, `/sign-in?email=mix@${domain}`);
      return [browser, new URL(await through(placeOf(begun)))];
    };
    const end = async (browser: Browser, to: URL): Promise<string> =>
      placeOf(await navigate(browser, to.href.slice(app.url.length), { "sec-fetch-site": "cross-site" }));
    const cases: [string, (browser: Browser, to: URL) => Promise<string>][] = [
      ["sign_in_interrupted", (_, to) => end(new Browser(app.url), to)],
      [
        "issuer_failed",
        (browser, to) => {
          to.searchParams.set("state", "another");
          return end(browser, to);
        },
      ],
      ["sign_in_interrupted", (browser, to) => end(browser, new URL(redirect_uri + to.search))],
      [
        "sign_in_interrupted",
        (_, to) => {
          const forger = new Browser(app.url);
          forger.take(new Headers([["set-cookie", `limber_sign_in=${Buffer.alloc(300, 7).toString("base64url")}`]]));
          return end(forger, to);
        },
      ],
      [
        "issuer_failed",
        (browser, to) => {
          to.searchParams.set("iss", "https://evil.example");
          return end(browser, to);
        },
      ],
      [
        "issuer_failed",
        (browser, to) =>
          end(browser, new URL(`${to.origin}${to.pathname}?error=access_denied&state=${to.searchParams.get("state")}`)),
      ],
    ];
    for (const [code, run] of cases) {
      const [browser, to] = await begin();
      expect(await run(browser, to)).toMatch(new RegExp(`^/sign-in#error=${code}&`));
      expect(browser.cookie).not.toContain("limber_session");
    }
    const [browser, to] = await begin();
    expect(await end(browser, to)).toBe("/");
    // The code is used, and the state is gone.
    expect(await end(browser, to)).toMatch(/sign_in_interrupted/);
  });

  it("creates a new secret, so that a planted one is useless", async () => {
    const { domain } = await organisation({ join_role: "viewer" });
    provider.is({ sub: `fix ${domain}`, email: `fix@${domain}`, email_verified: true });
    const browser = new Browser(app.url);
    const planted = `lmb_ses_${"A".repeat(43)}`;
    browser.take(new Headers([["set-cookie", `limber_session=${planted}`]]));
    await signIn(browser, `fix@${domain}`);
    expect(browser.cookie).not.toContain(planted);
  });
});

describe("an issuer that lies", () => {
  let domain: string;

  beforeAll(async () => {
    caller = await app.caller(0);
    domain = EMAIL.split("@")[1] ?? "";
    await app.admin(`/v1/orgs/${caller.org}/domains`, { domain });
    await app.admin(`/v1/orgs/${caller.org}/members`, { email: EMAIL, role: "owner" });
    const facts = { issuer: liar.issuer, client_id: "limber", client_secret: "s", domains: [domain] };
    const { status } = await app.call(`/v1/orgs/${caller.org}/issuers/liar`, facts, { key: caller.key, method: "PUT" });
    expect(status).toBe(200);
  });

  /** Signs in while the issuer lies; answers the word of the refusal, or where the browser goes. */
  async function lied(lie?: Lie): Promise<string> {
    const browser = new Browser(app.url);
    const begun = new URL(placeOf(await navigate(browser, `/sign-in?email=${EMAIL}`)));
    const { searchParams: asked } = begun;
    expect([asked.get("code_challenge_method"), asked.get("response_type")]).toEqual(["S256", "code"]);
    liar.says({ nonce: asked.get("nonce") ?? "", client: "limber" }, lie);
    const back = new URL(asked.get("redirect_uri") ?? "");
    const answer = await navigate(browser, `${back.pathname}?code=c&state=${asked.get("state")}`);
    const place = placeOf(answer);
    expect(browser.cookie.includes("limber_session")).toBe(place === "/");
    return /error=(\w+)/.exec(place)?.[1] ?? place;
  }

  it("signs in with true claims and sends proof of this gateway", async () => {
    expect(await lied()).toBe("/");
    expect(liar.heard.at(-1)).toMatch(/code_verifier=[\w-]{43}/);
  });

  const at = Math.floor(Date.now() / 1000);
  const LIES: readonly [string, Lie][] = [
    ["the nonce of another sign-in", { claims: { nonce: "another" } }],
    ["no nonce", { claims: { nonce: undefined } }],
    ["another audience", { claims: { aud: "another-client" } }],
    ["several audiences for another party", { claims: { aud: ["limber", "other"], azp: "other" } }],
    ["another issuer", { claims: { iss: "https://accounts.example" } }],
    ["a signature by a key that it does not publish", { otherKey: true }],
    ["no signature", { alg: "none" }],
    ["a signature by a shared secret", { alg: "HS256" }],
    ["a token that is over", { claims: { iat: at - 7200, exp: at - 3600 } }],
    ["a token without an end", { claims: { exp: undefined } }],
    ["a token from the future", { claims: { iat: at + 3600, exp: at + 7200 } }],
    ["a token that is not yet good", { claims: { nbf: at + 3600 } }],
    ["nobody", { claims: { sub: undefined } }],
    ["a subject without end", { claims: { sub: "x".repeat(300) } }],
    ["no token", { answer: () => ({ body: JSON.stringify({ access_token: "a", token_type: "Bearer" }) }) }],
    ["what is no JSON", { answer: () => ({ body: "<html>" }) }],
    ["an error", { answer: () => ({ status: 500, body: "{}" }) }],
    ["another address", { answer: () => ({ status: 307, headers: { location: "http://127.0.0.1:1/" }, body: "" }) }],
    ["two megabytes", { answer: (token) => ({ body: JSON.stringify({ id_token: token, x: "x".repeat(2 << 20) }) }) }],
  ];

  it.each(LIES)("is refused with %s", async (_, lie) => {
    expect(await lied(lie)).toBe("issuer_failed");
  });

  it("cannot be added if its metadata names another issuer or unsafe pages", async () => {
    const put = () =>
      app.call(
        `/v1/orgs/${caller.org}/issuers/new`,
        { issuer: liar.issuer, client_id: "limber", domains: [] },
        { key: caller.key, method: "PUT" },
      );
    const cases: [object, string][] = [
      [{ issuer: "https://accounts.example" }, "issuer_failed"],
      [{ authorization_endpoint: "javascript:alert(1)" }, "address_refused"],
      [{ authorization_endpoint: "http://accounts.example/auth" }, "address_refused"],
      [{ token_endpoint: "http://169.254.169.254/token" }, "address_refused"],
      [{ jwks_uri: undefined }, "issuer_failed"],
    ];
    for (const [metadata, code] of cases) {
      liar.metadata = { ...metadata };
      const { status, body } = await put();
      expect([metadata, status, body.error?.code]).toEqual([metadata, 422, code]);
    }
    liar.metadata = {};
  });
});

describe("an issuer", () => {
  afterEach(() => {
    liar.metadata = {};
  });

  it("can be added only by owners, for domains that the operator verified for them", async () => {
    const { org, key, domain } = await organisation();
    const facts = { issuer: liar.issuer, client_id: "c", domains: [] as string[] };
    const put = (name: string, body: object, as = key) =>
      app.call(`/v1/orgs/${org}/issuers/${name}`, body, { key: as, method: "PUT" });
    const admin = await person(app, org, "admin");
    expect((await put("mine", facts, admin.key)).status).toBe(403);
    for (const [name, domains] of [
      ["mine", ["unverified.example"]],
      ["mine", [EMAIL.split("@")[1]]],
      ["mine", [domain]],
    ] as const) {
      const { status, body } = await put(name, { ...facts, domains });
      expect([domains, status, body.error?.code]).toEqual([domains, 409, "domain_not_verified"]);
    }
    const stranger = await app.caller(0);
    expect((await put("mine", facts, stranger.key)).status).toBe(404);
    const { body } = await app.call(`/v1/orgs/${org}/issuers`, undefined, { key });
    expect(body.data.map((each: { name: string }) => each.name)).toEqual(["sso"]);
    const taken = await app.call(`/v1/orgs/${org}/domains`, { domain: EMAIL.split("@")[1] }, { admin: ADMIN_TOKEN });
    expect(taken.body.error.code).toBe("domain_not_verified");
    expect((await app.call(`/v1/orgs/${org}/domains`, { domain: "x.example" }, { key })).status).toBe(401);
  });

  it("is called over HTTPS or on loopback, and only where the address guard allows", async () => {
    const { org, key } = await app.caller(0);
    const put = (issuer: string, to = app) =>
      to.call(`/v1/orgs/${org}/issuers/x`, { issuer, client_id: "c", domains: [] }, { key, method: "PUT" });
    for (const issuer of [
      "http://accounts.example",
      "http://10.0.0.1",
      "ftp://127.0.0.1",
      "http://169.254.169.254",
      "x",
      "https://a:b@c.example",
    ])
      expect([issuer, (await put(issuer)).body.error.code]).toEqual([issuer, "address_refused"]);
    const strict = await ownGateway({ database: app.database, allowPrivateAddresses: false });
    try {
      for (const issuer of [liar.issuer, "https://127.0.0.1:8443", "https://10.0.0.1"])
        expect([issuer, (await put(issuer, strict)).body.error.code]).toEqual([issuer, "address_refused"]);
    } finally {
      await strict.close();
    }
  });

  it("has a secret that is never shown, is kept if omitted, and is bound to issuer and client", async () => {
    const { org, key } = await app.caller(0);
    const put = async (more: object) =>
      (
        await app.call(
          `/v1/orgs/${org}/issuers/x`,
          { issuer: liar.issuer, client_id: "c", ...more },
          { key, method: "PUT" },
        )
      ).text;
    const secret = "a-secret-of-the-issuer";
    expect(await put({ client_secret: secret })).not.toContain(secret);
    expect(JSON.parse(await put({})).has_secret).toBe(true);
    expect(JSON.parse(await put({ client_id: "d" })).has_secret).toBe(false);
    await put({ client_secret: secret });
    expect(JSON.parse(await put({ issuer: provider.issuer })).has_secret).toBe(false);
    const [row] = await app.sql`select sealed from issuer where org_id = ${org}`;
    expect(row?.sealed).toBeNull();
    expect((await put({ client_secret: secret })).includes(secret)).toBe(false);
    const [kept] = await app.sql<{ sealed: Buffer }[]>`select sealed from issuer where org_id = ${org}`;
    expect(kept?.sealed.includes(secret)).toBe(false);
  });

  it("is found by the e-mail domain, whatever the local part", async () => {
    const { domain } = await organisation();
    const begin = (email: string) => app.call("/v1/session/begin", { email }, { headers: OWN_PAGE });
    expect((await begin(`x@${domain.toUpperCase()}`)).status).toBe(200);
    expect((await begin("x@nobody.example")).body.error.code).toBe("no_issuer");
    expect((await begin("no address")).status).toBe(422);
  });

  it("is tested without being stored, and the step that failed is named without text of the issuer", async () => {
    const { org, key } = await organisation();
    const test = (body: object, from = key) => app.call(`/v1/orgs/${org}/issuers/sso/test`, body, { key: from });
    const facts = { issuer: provider.issuer, client_id: "x" };
    const { client_id, client_secret } = await provider.register(`${app.url}/sign-in/callback/test`);
    const registered = { client_id, client_secret };
    const { status, body, text } = await test({ ...facts, ...registered });
    expect([status, body], text).toEqual([200, { ok: true, issuer: provider.issuer }]);
    const stored = (await app.call(`/v1/orgs/${org}/issuers`, undefined, { key })).body.data[0];
    // The stored secret goes only to the issuer and the client that it was stored for.
    expect((await test({ ...facts, client_id: stored.client_id })).body.ok).toBe(true);
    const seen = liar.heard.length;
    liar.says({ nonce: "", client: "" }, { answer: () => ({ status: 500, body: "a secret text of the issuer" }) });
    const broken = await test({ issuer: liar.issuer, client_id: stored.client_id });
    expect(broken.body).toMatchObject({ ok: false, failed: "client", issuer: liar.issuer });
    expect(broken.text).not.toContain("secret text");
    expect(liar.heard.slice(seen).join()).not.toContain("client_secret");

    const wrong = await test({ ...facts, ...registered, client_secret: "wrong" });
    expect(wrong.body).toMatchObject({ ok: false, failed: "client" });
    expect(wrong.body.reason).toContain("does not accept `client_id` and `client_secret`");
    liar.metadata = { issuer: "https://other.example" };
    expect((await test({ ...facts, issuer: liar.issuer })).body).toMatchObject({ ok: false, failed: "discovery" });
    liar.metadata = {};
    expect((await test({ ...facts, issuer: "http://10.0.0.1" })).body).toMatchObject({ ok: false, failed: "address" });

    const { user_id } = await app.admin(`/v1/orgs/${org}/members`, { email: `a@${born}.example`, role: "admin" });
    const { key: admins } = await app.admin(`/v1/orgs/${org}/keys`, { role: "admin" });
    expect([user_id !== "", (await test(facts, admins)).body.error.code]).toEqual([true, "permission_denied"]);
  });
});
