/** Identity providers as they are, each test by the public project that met one. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type App } from "../support/app.ts";
import { Browser } from "../support/browser.ts";
import {
  type IdentityProvider,
  type Lie,
  type LyingIssuer,
  startIdentityProvider,
  startLyingIssuer,
  through,
} from "../support/identity-provider.ts";
import { ownGateway } from "../support/world.ts";

let app: App;
let provider: IdentityProvider;
let issuer: LyingIssuer;

beforeAll(async () => {
  app = await ownGateway();
  [provider, issuer] = await Promise.all([startIdentityProvider({ conforms: true }), startLyingIssuer()]);
  issuer.metadata = { userinfo_endpoint: `${issuer.issuer}/userinfo` };
});
afterAll(async () => {
  await app.close();
  await provider.close();
  await issuer.close();
});

let born = 0;

/** An organization of one member whose people an issuer signs in. */
async function organization(more: object = {}, admin?: string) {
  const { org, key } = await app.caller(0);
  const domain = `w${++born}.example`;
  const email = `ada@${domain}`;
  await app.admin(`/v1/orgs/${org}/domains`, { domain });
  await app.admin(`/v1/orgs/${org}/members`, { email, role: "developer" });
  const put = (body: object) =>
    app.call(
      `/v1/orgs/${org}/issuers/sso`,
      { issuer: issuer.issuer, client_id: "limber", client_secret: "s", domains: [domain], ...more, ...body },
      { method: "PUT", ...(admin === undefined ? { key } : { admin }) },
    );
  const { status, text, body } = await put({});
  expect([status, text]).toEqual([200, text]);
  return { org, key, domain, email, put, redirect: body.redirect_uri as string };
}

async function navigate(browser: Browser, path: string): Promise<string> {
  const answer = await fetch(app.url + path, {
    redirect: "manual",
    headers: { "sec-fetch-site": "none", cookie: browser.cookie },
  });
  browser.take(answer.headers);
  return answer.headers.get("location") ?? "";
}

/** Signs in with these claims of the ID token. Returns the reason of the refusal, or `/`. */
async function signIn(
  email: string,
  claims: Lie["claims"],
  userinfo?: object | string,
  lie: Lie = {},
): Promise<string> {
  const browser = new Browser(app.url);
  const { searchParams: asked } = new URL(await navigate(browser, `/sign-in?email=${email}`));
  issuer.userinfo = userinfo;
  issuer.says(
    { nonce: asked.get("nonce") ?? "", client: "limber" },
    { ...lie, claims: { email, sub: email, ...claims } },
  );
  const back = new URL(asked.get("redirect_uri") ?? "");
  const place = await navigate(browser, `${back.pathname}?code=c&state=${asked.get("state")}`);
  expect(browser.cookie.includes("limber_session")).toBe(place === "/");
  return /why=(\w+)/.exec(place)?.[1] ?? /error=(\w+)/.exec(place)?.[1] ?? place;
}

describe("an ID token", () => {
  it("verifies its address by a boolean, a text, or Entra's own claim (coder)", async () => {
    const { email } = await organization();
    for (const claims of [
      { email_verified: true },
      { email_verified: "true" },
      { email_verified: "True" },
      { email_verified: undefined, xms_edov: true, oid: "o", tid: "t" },
      { email_verified: undefined, xms_edov: "1" },
    ])
      expect([claims, await signIn(email, claims)]).toEqual([claims, "/"]);
  });

  it("with any other value for its address signs in no member by it", async () => {
    const { email } = await organization();
    for (const said of [false, "false", 0, 1, "yes", "1", [true], {}])
      expect([said, await signIn(email, { email_verified: said, xms_edov: true })]).toEqual([said, "email_unverified"]);
    for (const claims of [
      {},
      { xms_edov: false },
      { xms_edov: "0" },
      { oid: "o", tid: "t", preferred_username: email },
    ])
      expect([claims, await signIn(email, { email_verified: undefined, ...claims })]).toEqual([
        claims,
        "email_unverified",
      ]);
    expect(await signIn(email, { email: undefined, preferred_username: email })).toBe("email_missing");
  });

  it("can hold its address in a list of one, in any letter case (Keycloak, ADFS, PingFederate)", async () => {
    const bare = { email: undefined, email_verified: undefined };
    for (const write of [(at: string) => [at], (at: string) => at.toUpperCase(), (at: string) => ` ${at} `]) {
      const { email } = await organization();
      expect([write(email), await signIn(email, { email: write(email), email_verified: true })]).toEqual([
        write(email),
        "/",
      ]);
    }
    const { email } = await organization();
    expect(await signIn(email, bare, { sub: email, email: [email], email_verified: true })).toBe("/");
    for (const given of [[email, "other@example.com"], [], [[email]], { value: email }])
      expect([given, await signIn(email, { email: given, email_verified: true, sub: `s${++born}` })]).toEqual([
        given,
        "email_missing",
      ]);
  });

  it("of an issuer that the operator marked needs no claim, and false remains false (outline, mcp-context-forge)", async () => {
    const { email, domain } = await organization({ emails_verified: true }, ADMIN_TOKEN);
    expect(await signIn(email, { email_verified: undefined, oid: "o", tid: "t" })).toBe("/");
    const unnamed = { email: undefined, email_verified: undefined, oid: "o", tid: "t", preferred_username: email };
    expect(await signIn(email, unnamed)).toBe("/");
    expect(await signIn(email, { email: undefined, emails: [email], email_verified: undefined })).toBe("/");
    expect(await signIn(email, { email_verified: false })).toBe("/"); // The subject is known by now.
    expect(await signIn(`bob@${domain}`, { email_verified: false })).toBe("email_unverified");
    expect(await signIn(`bob@${domain}`, { email_verified: undefined })).toBe("not_a_member");
    expect(await signIn(`bob@${domain}`, { email_verified: undefined, email: "bob@elsewhere.example" })).toBe(
      "email_domain",
    );
    const nameOnly = { email: undefined, email_verified: undefined, preferred_username: email, sub: "other" };
    expect(await signIn(`bob@${domain}`, nameOnly)).toBe("email_missing");
  });

  it("is trusted without a claim only if the operator configures it, and from one tenant (nOAuth)", async () => {
    const { put, org } = await organization();
    const { status, body } = await put({ emails_verified: true });
    expect([status, body.error.code, body.error.param]).toEqual([403, "permission_denied", "emails_verified"]);
    const mark = (more: object) =>
      app.call(
        `/v1/orgs/${org}/issuers/sso`,
        { issuer: issuer.issuer, client_id: "limber", ...more },
        { admin: ADMIN_TOKEN, method: "PUT" },
      );
    expect((await mark({ emails_verified: true })).body.emails_verified).toBe(true);
    // An owner who changes something else keeps the mark, which another issuer doesn't inherit.
    expect((await put({})).body.emails_verified).toBe(true);
    expect((await put({ issuer: provider.issuer })).body.emails_verified).toBe(false);
  });
});

describe("userinfo", () => {
  it("provides the claims that a conforming issuer's ID token lacks (dex, xen-orchestra, OIDCWarden)", async () => {
    const { email, put, redirect } = await organization({ issuer: provider.issuer });
    const { client_id, client_secret } = await provider.register(redirect);
    await put({ client_id, client_secret });
    provider.is({ sub: email, email, email_verified: true });
    const browser = new Browser(app.url);
    const back = await through(await navigate(browser, `/sign-in?email=${email}`));
    expect(await navigate(browser, back.slice(app.url.length))).toBe("/");
  });

  it("counts only for the ID token's user, and for the address that it verifies", async () => {
    const { email, domain } = await organization();
    const bare = { email: undefined, email_verified: undefined };
    expect(await signIn(email, bare, { sub: "another", email, email_verified: true })).toBe("issuer_failed");
    expect(await signIn(email, bare, { email, email_verified: true })).toBe("email_missing");
    expect(await signIn(email, bare, { sub: email, email })).toBe("email_unverified");
    expect(await signIn(email, bare)).toBe("email_missing");
    const other = { sub: email, email: `x@${domain}`, email_verified: true };
    expect(await signIn(email, { email_verified: undefined }, other)).toBe("not_a_member");
    const mixed = { sub: email, email: `x@${domain}` };
    expect(await signIn(email, { email: undefined, email_verified: false }, { ...mixed, email_verified: true })).toBe(
      "email_unverified",
    );
    expect(await signIn(email, { email_verified: undefined }, { sub: email, email_verified: "true" })).toBe("/");
    // A member whom the issuer knows needs no address any more.
    expect(await signIn(email, bare)).toBe("/");
  });

  it("can be a signed token, whose signature and issuer are checked (Ping, Keycloak)", async () => {
    const { email } = await organization();
    const bare = { email: undefined, email_verified: undefined };
    const claims = { iss: issuer.issuer, aud: "limber", sub: email, email, email_verified: true };
    for (const algorithms of [undefined, ["RS256"]]) {
      issuer.metadata = {
        userinfo_endpoint: `${issuer.issuer}/userinfo`,
        ...(algorithms && { userinfo_signing_alg_values_supported: algorithms }),
      };
      const fresh = await organization();
      const own = { ...claims, sub: fresh.email, email: fresh.email };
      for (const bad of [
        `${issuer.signs(own).slice(0, -8)}AAAAAAAA`,
        issuer.signs({ ...own, iss: "https://evil.example" }),
        issuer.signs({ ...own, aud: "another" }),
      ])
        expect(await signIn(fresh.email, bare, bad)).not.toBe("/");
      expect([algorithms, await signIn(fresh.email, bare, issuer.signs(own))]).toEqual([algorithms, "/"]);
    }
    expect(await signIn(email, bare, issuer.signs({ ...claims, sub: "another" }))).toBe("issuer_failed");
    issuer.metadata = { userinfo_endpoint: `${issuer.issuer}/userinfo` };
  });

  it("at a forbidden address is refused when the issuer is set up", async () => {
    const { put } = await organization();
    issuer.metadata = { userinfo_endpoint: "http://169.254.169.254/userinfo" };
    const { status, body } = await put({});
    expect([status, body.error.code]).toEqual([422, "address_refused"]);
    issuer.metadata = { userinfo_endpoint: `${issuer.issuer}/userinfo` };
  });
});

describe("an issuer's responses", () => {
  const tokens = (more: object): Lie => ({
    answer: (token) => ({
      body: JSON.stringify({ access_token: "a", token_type: "Bearer", id_token: token, ...more }),
    }),
  });

  it.each([
    ["null for what is absent (Salesforce, Zoho)", { refresh_token: null, scope: null, expires_in: null }],
    ["no access token (Azure AD B2C)", { access_token: undefined }],
    ["no type of the token", { token_type: undefined }],
    ["the type in capitals, and times as text", { token_type: "BEARER", expires_in: "3600" }],
  ])("can contain %s", async (_, more) => {
    const { email } = await organization();
    expect(await signIn(email, { email_verified: true }, undefined, tokens(more))).toBe("/");
    if ("access_token" in more)
      expect(await signIn(email, { email: undefined, sub: "x" }, { sub: "x", email }, tokens(more))).toBe(
        "email_missing",
      );
  });

  it("without an ID token sign nobody in", async () => {
    const { email } = await organization();
    expect(await signIn(email, { email_verified: true }, undefined, tokens({ id_token: null }))).toBe("issuer_failed");
  });

  it("can contain null and empty addresses in the metadata, and say if they are another issuer's", async () => {
    for (const metadata of [{ userinfo_endpoint: null, claims_supported: null }, { userinfo_endpoint: "" }]) {
      issuer.metadata = metadata;
      const { email } = await organization();
      expect([metadata, await signIn(email, { email_verified: true })]).toEqual([metadata, "/"]);
    }
    const { put } = await organization();
    issuer.metadata = { issuer: "https://login.microsoftonline.com/{tenantid}/v2.0" };
    const { status, body } = await put({});
    expect([status, body.error.code, body.error.message]).toEqual([
      422,
      "issuer_failed",
      "the identity provider failed: its metadata names another `issuer`; configure that one, with the tenant's id if it has one",
    ]);
    issuer.metadata = { userinfo_endpoint: `${issuer.issuer}/userinfo` };
  });
});

describe("an issuer's address", () => {
  it("can be that of its metadata, with or without a slash at its end (Auth0, Authentik, Keycloak)", async () => {
    const { put } = await organization();
    for (const more of ["/", "/.well-known/openid-configuration", "/.well-known/openid-configuration/"]) {
      const { status, text } = await put({ issuer: issuer.issuer + more });
      expect([more, status, text]).toEqual([more, 200, text]);
    }
  });

  it("whose token endpoint lists only HTTP Basic receives the secret by it (OneLogin, Okta)", async () => {
    issuer.metadata = { token_endpoint_auth_methods_supported: ["client_secret_basic"] };
    const { email } = await organization();
    expect(await signIn(email, { email_verified: true })).toBe("/");
    expect(issuer.heard.at(-1)).not.toContain("client_secret");
    issuer.metadata = { token_endpoint_auth_methods_supported: ["client_secret_basic", "client_secret_post"] };
    const second = await organization();
    expect(await signIn(second.email, { email_verified: true })).toBe("/");
    expect(issuer.heard.at(-1)).toContain("client_secret=s");
    issuer.metadata = { userinfo_endpoint: `${issuer.issuer}/userinfo` };
  });
});

describe("SCIM", () => {
  const USER = "urn:ietf:params:scim:schemas:core:2.0:User";
  const ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";
  let key: string;
  beforeAll(async () => {
    ({ key } = await app.caller(0));
  });

  const scim = async (method: string, path: string, body?: unknown, wanted = 200) => {
    const headers = { "content-type": "application/scim+json" };
    const answer = await app.call(`/v1/scim/v2${path}`, body, { key, method, ...(body !== undefined && { headers }) });
    expect([method, path, answer.status, answer.text]).toEqual([method, path, wanted, answer.text]);
    return answer.body;
  };
  const made = (more: object = {}) =>
    scim("POST", "/Users", { schemas: [USER], userName: `scim-${++born}@example.com`, ...more }, 201);
  const patch = (id: string, ...Operations: object[]) =>
    scim("PATCH", `/Users/${id}`, { schemas: ["urn:ietf:params:scim:api:messages:2.0:PatchOp"], Operations });

  it("accepts users as Entra, Okta and OneLogin write them: booleans as text, single values, nulls, numbers", async () => {
    const user = await made({
      active: "True",
      externalId: 701984,
      emails: { value: "a@example.com", type: "work", primary: "true" },
      roles: ["driver", { value: "admin", primary: "False" }],
      groups: [],
      name: null,
      phoneNumbers: null,
      password: "secret",
      [ENTERPRISE]: { manager: "26118915", employeeNumber: 17 },
    });
    expect(user).toMatchObject({
      active: true,
      externalId: "701984",
      emails: [{ value: "a@example.com", type: "work", primary: true }],
      roles: [{ value: "driver" }, { value: "admin", primary: false }],
      [ENTERPRISE]: { manager: { value: "26118915" }, employeeNumber: "17" },
    });
    expect((await scim("PUT", `/Users/${user.id}`, { userName: user.userName, active: "false" })).active).toBe(false);
  });

  it("applies the paths of Entra's mappings: primary as text, values that no filter finds yet, complete paths as names", async () => {
    const { id } = await made();
    const first = await patch(
      id,
      { op: "Add", path: 'roles[primary eq "True"].value', value: "admin" },
      { op: "Add", path: 'EMAILS[Type EQ "Work" ].Value', value: "w@example.com" },
      {
        op: "Replace",
        value: { 'emails[type eq "work"].value': "v@example.com", "NAME.familyName": "F", active: "False" },
      },
      { op: "Add", path: `${ENTERPRISE}:manager`, value: "7" },
      { op: "add", path: `${USER}:title`, value: [{ value: "T" }] },
    );
    expect(first).toMatchObject({
      active: false,
      title: "T",
      name: { familyName: "F" },
      roles: [{ value: "admin", primary: true }],
    });
    expect(first.emails).toContainEqual({ type: "Work", value: "v@example.com" });
    expect(first[ENTERPRISE].manager).toEqual({ value: "7" });
    const second = await patch(
      id,
      { op: "Remove", path: 'roles[primary eq "True"]' },
      { op: "REPLACE", path: "Active", value: "TRUE" },
    );
    expect([second.roles, second.active]).toEqual([undefined, true]);
  });

  it("accepts groups as Okta, Keycloak and OneLogin push them: members by filter, by value, as text", async () => {
    const [a, b, c] = [(await made()).id, (await made()).id, (await made()).id];
    const { id } = await scim("POST", "/Groups", { displayName: `g${++born}`, members: { value: a } }, 201);
    const members = async (...Operations: object[]) =>
      ((await scim("PATCH", `/Groups/${id}`, { Operations })).members ?? [])
        .map(({ value }: { value: string }) => value)
        .sort();
    expect(await members({ op: "add", path: "members", value: b })).toEqual([a, b].sort());
    expect(await members({ op: "ADD", value: { members: [{ value: c, display: "c" }] } })).toEqual([a, b, c].sort());
    expect(await members({ op: "remove", path: `members[value eq "${a}" or value eq "${b}"]` })).toEqual([c]);
    expect(await members({ op: "replace", path: "members", value: [a, { value: b }] })).toEqual([a, b].sort());
    expect(await members({ op: "Remove", path: "members", value: [{ value: a }] })).toEqual([b]);
    expect(await members({ op: "remove", path: "members" })).toEqual([]);
    const one = await scim("PATCH", `/Groups/${id}`, {
      operations: { op: "replace", path: "displayname", value: `h${born}` },
    });
    expect(one.displayName).toBe(`h${born}`);
  });

  it("finds users by each provider's filters, and at paths with a slash at the end", async () => {
    const { id, userName } = await made({ externalId: "x-9", emails: [{ value: "find@example.com", type: "work" }] });
    for (const filter of [
      `userName eq "${userName}"`,
      `USERNAME Eq "${userName.toUpperCase()}"`,
      `${USER}:userName eq "${userName}"`,
      'externalId eq "x-9" and active eq true',
      'emails[type eq "work" and value eq "find@example.com"]',
      'emails.value eq "FIND@example.com"',
      'emails eq "find@example.com"',
      `(userName eq "${userName}") or (id eq "nobody")`,
      `id eq "${id}"`,
    ]) {
      const { totalResults, Resources } = await scim("GET", `/Users/?filter=${encodeURIComponent(filter)}`);
      expect([filter, totalResults, Resources[0]?.id]).toEqual([filter, 1, id]);
    }
  });

  it("finds users by the literals and the value paths that clients write (Microsoft Entra ID, scimmy)", async () => {
    const userName = `scim-${++born}@example.com`;
    const email = `w${born}@example.com`;
    const { id, meta } = await made({
      userName,
      externalId: 90_001,
      active: "True",
      emails: [{ value: email, type: "work" }],
      [ENTERPRISE]: { employeeNumber: 4711 },
    });
    const created = meta.created.replace("Z", " 00:00");
    for (const filter of [
      `emails[type eq "work"].value eq "${email}"`,
      `userName eq '${userName}'`,
      `userName eq "${userName}" and active eq True`,
      `userName eq "${userName}" and active eq "true"`,
      "externalId eq 90001",
      `${ENTERPRISE}:employeeNumber eq 4711`,
      `meta.created ge "${created}" and id eq "${id}"`,
      `externalId eq "90001" and title eq NULL`,
    ]) {
      const { totalResults, Resources } = await scim("GET", `/Users?filter=${encodeURIComponent(filter)}`);
      expect([filter, totalResults, Resources[0]?.id]).toEqual([filter, 1, id]);
    }
    const none = await scim("GET", `/Users?filter=${encodeURIComponent(`emails[type eq "home"].value eq "${email}"`)}`);
    expect(none.totalResults).toBe(0);
    const { detail } = await scim(
      "GET",
      `/Users?filter=${encodeURIComponent(`userName eq ${userName}`)}`,
      undefined,
      400,
    );
    expect(detail).toContain("text must be in double quotes");
  });

  it("never ignores a filter for the case of its parameter's name, and ignores parameters without a value", async () => {
    const { id, userName } = await made();
    const own = encodeURIComponent(`userName eq "${userName}"`);
    for (const query of [
      `Filter=${own}`,
      `FILTER=${own}&StartIndex=1&COUNT=5`,
      `filter=${own}&count=&startIndex=&sortBy=`,
    ]) {
      const { totalResults, Resources } = await scim("GET", `/Users?${query}`);
      expect([query, totalResults, Resources[0]?.id]).toEqual([query, 1, id]);
    }
    const parts = await scim("GET", `/Users?filter=${own}&attributes=userName&attributes=active`);
    expect(Object.keys(parts.Resources[0]).sort()).toEqual(["active", "id", "schemas", "userName"]);
    await scim("GET", `/Users?filter=${own}&sortBy=userName&sortOrder=Descending`);
    const { detail } = await scim("GET", "/Users?sortBy=userName&sortOrder=down", undefined, 400);
    expect(detail).toBe("`sortOrder` must be one of ascending, descending");
    await scim("GET", "/Users?filter=", undefined, 400);
  });

  it("accepts numbers for text, nulls in lists, and values without a value (Rippling, OneLogin, HR systems)", async () => {
    const user = await made({
      title: 5,
      roles: [null, { value: "r" }],
      phoneNumbers: [{ value: 41_791_234_567, type: "work" }],
      emails: [{ value: "", type: "work", primary: true }, { value: `n${born}@example.com` }],
      [ENTERPRISE]: { department: 12, costCenter: 700 },
    });
    expect(user).toMatchObject({ title: "5", roles: [{ value: "r" }], phoneNumbers: [{ value: "41791234567" }] });
    expect(user[ENTERPRISE]).toMatchObject({ department: "12", costCenter: "700" });
    await scim("PUT", `/Users/${user.id}`, { userName: user.userName, title: 1.5 }, 400);
    await scim("PUT", `/Users/${user.id}`, { userName: user.userName, title: 2 ** 60 }, 400);
  });

  it("removes what is replaced by null, and values whose value is removed (Okta, Microsoft Entra ID)", async () => {
    const { id } = await made({ title: "T", emails: [{ value: `n${born}@example.com`, type: "work", primary: true }] });
    await patch(
      id,
      { op: "Replace", path: "title", value: null },
      { op: "Remove", path: 'emails[type eq "work"].value' },
    );
    const after = await patch(
      id,
      { op: "Add", path: 'emails[type eq "work"].value', value: "back@example.com" },
      { op: "Replace", path: `${ENTERPRISE}.department`, value: "D" },
    );
    expect(after.title).toBeUndefined();
    expect(after.emails).toContainEqual({ type: "work", value: "back@example.com" });
    expect(after[ENTERPRISE]).toEqual({ department: "D" });
  });

  it("removes no member for an empty list of members", async () => {
    const user = (await made()).id;
    const { id } = await scim("POST", "/Groups", { displayName: `e${++born}`, members: [{ value: user }] }, 201);
    const members = async (...Operations: object[]) =>
      ((await scim("PATCH", `/Groups/${id}`, { Operations })).members ?? []).map(
        (each: { value: string }) => each.value,
      );
    expect(await members({ op: "Remove", path: "members", value: [] })).toEqual([user]);
    expect(
      await members({ op: "add", path: "members", value: null }, { op: "add", path: "externalId", value: "x" }).catch(
        () => "refused",
      ),
    ).toBe("refused");
    expect(await members({ op: "remove", path: `members[value eq "${user}"].value` })).toEqual([]);
  });

  it("recognizes a version with and without its mark of weakness (RFC 9110)", async () => {
    const { id, meta } = await made();
    for (const tag of [meta.version, meta.version.replace("W/", ""), `"x", ${meta.version}`]) {
      const { status } = await app.call(`/v1/scim/v2/Users/${id}`, undefined, {
        key,
        headers: { "if-none-match": tag },
      });
      expect([tag, status]).toEqual([tag, 304]);
    }
  });
});
