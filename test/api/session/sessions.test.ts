/** People who are signed in: what a session may, what it counts for, and what ends it. */
import { createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { SessionService } from "../../../gen/limber/v1/session_service_pb.ts";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { Browser, OWN_PAGE, signedIn } from "../../support/browser.ts";
import { refusalIn } from "../../support/clients.ts";
import { eventually } from "../../support/eventually.ts";
import { type Person, person } from "../../support/members.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
let two: App;
let caller: Caller;
let owner: Person;

beforeAll(async () => {
  app = await ownGateway();
  two = await ownGateway({ database: app.database });
  caller = await app.caller(10);
  owner = await person(app, caller.org, "owner");
}, 60_000);

const linkFor = async (userId: string, org = caller.org): Promise<string> =>
  (await app.admin(`/v1/orgs/${org}/members/${userId}/sign-in-link`, {})).token;
const memberPath = (userId: string): string => `/v1/orgs/${caller.org}/members/${userId}`;

describe("a one-time link", () => {
  it("signs its member in with a cookie that scripts and other sites cannot read", async () => {
    const answer = await app.call("/v1/session", { token: await linkFor(owner.userId) }, { headers: OWN_PAGE });
    expect(answer.status).toBe(201);
    const [cookie = ""] = answer.headers.getSetCookie();
    expect(cookie).toMatch(/^limber_session=lmb_ses_[\w-]{43}; Path=\/; Max-Age=604800; HttpOnly; SameSite=Lax$/);
    expect(answer.text).not.toContain("lmb_ses_");
    expect(answer.body).toMatchObject({ org_id: caller.org, user_id: owner.userId, email: owner.email, role: "owner" });
  });

  it("signs in once, and never after its expiry", async () => {
    const token = await linkFor(owner.userId);
    const browser = new Browser(app.url);
    expect((await browser.call("/v1/session", { token })).status).toBe(201);
    const again = await new Browser(app.url).call("/v1/session", { token });
    expect([again.status, again.body.error.code]).toEqual([401, "invalid_sign_in"]);
    const late = await linkFor(owner.userId);
    await app.sql`update sign_in_link set ends = now() - interval '1 s'`;
    expect((await browser.call("/v1/session", { token: late })).body.error.code).toBe("invalid_sign_in");
  });

  it("signs in only one of several concurrent users", async () => {
    const token = await linkFor(owner.userId);
    const tries = Array.from({ length: 6 }, () => new Browser(app.url).call("/v1/session", { token }));
    const statuses = (await Promise.all(tries)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 201)).toHaveLength(1);
  });

  it("is invalid once its member is removed or deactivated", async () => {
    const gone = await person(app, caller.org, "viewer");
    const tokens = [await linkFor(gone.userId), await linkFor(gone.userId)];
    await app.call(memberPath(gone.userId), undefined, { key: caller.key, method: "DELETE" });
    for (const token of tokens)
      expect((await new Browser(app.url).call("/v1/session", { token })).body.error.code).toBe("invalid_sign_in");
  });

  it("cannot be made for a member with more authority, or one who was not invited", async () => {
    const admin = await person(app, caller.org, "admin");
    const make = (userId: string) => app.call(`${memberPath(userId)}/sign-in-link`, {}, { key: admin.key });
    const beyond = await make(owner.userId);
    expect([beyond.status, beyond.body.error.details.exceeds]).toEqual([403, ["permissions"]]);
    const developer = await person(app, caller.org, "developer");
    expect((await make(developer.userId)).status).toBe(201);
    const invited = await app.admin(`/v1/orgs/${caller.org}/members`, { email: "late@example.com", role: "viewer" });
    expect((await make(invited.user_id)).body.error.code).toBe("member_not_active");
    const stranger = await app.caller(0);
    expect((await make((await person(app, stranger.org, "viewer")).userId)).status).toBe(404);
  });
});

describe("an invite", () => {
  it("is accepted by signing in; the response to the inviter has its link", async () => {
    const { invite, sign_in_url } = await app.admin(`/v1/orgs/${caller.org}/members`, {
      email: "new@example.com",
      role: "viewer",
    });
    expect(sign_in_url).toBe(`${app.url}/sign-in#token=${invite}`);
    const browser = new Browser(app.url);
    const { status, body } = await browser.call("/v1/session", { token: invite });
    expect([status, body.email, body.role]).toEqual([201, "new@example.com", "viewer"]);
    expect((await new Browser(app.url).call("/v1/session", { token: invite })).status).toBe(401);
  });
});

describe("a session", () => {
  it("has exactly its member's permissions", async () => {
    const viewer = await signedIn(app, caller.org, (await person(app, caller.org, "viewer")).userId);
    expect((await viewer.call(`/v1/orgs/${caller.org}/keys`)).status).toBe(200);
    const made = await viewer.call(`/v1/orgs/${caller.org}/keys`, {});
    expect([made.status, made.body.error.code]).toEqual([403, "permission_denied"]);
    const { body } = await viewer.call("/v1/session");
    expect(body.permissions).toContain("keys.read");
    expect(body.permissions).not.toContain("keys.write");
  });

  it("follows a role change at once", async () => {
    const member = await person(app, caller.org, "viewer");
    const browser = await signedIn(app, caller.org, member.userId);
    await app.call(memberPath(member.userId), { role: "admin" }, { key: caller.key, method: "PATCH" });
    expect((await browser.call(`/v1/orgs/${caller.org}/keys`, { role: "viewer" })).status).toBe(201);
    await app.call(memberPath(member.userId), { role: "billing" }, { key: caller.key, method: "PATCH" });
    expect((await browser.call(`/v1/orgs/${caller.org}/keys`, { role: "viewer" })).status).toBe(403);
  });

  it("is limited to its organization", async () => {
    const browser = await signedIn(app, caller.org, owner.userId);
    const stranger = await app.caller(0);
    expect((await browser.call(`/v1/orgs/${stranger.org}/keys`)).status).toBe(404);
  });

  it("is recorded as the user, and makes keys that outlive it without a parent", async () => {
    const browser = await signedIn(app, caller.org, owner.userId);
    const { body: key } = await browser.call(`/v1/orgs/${caller.org}/keys`, { name: "made at the console" });
    expect(key.parent_id).toBeUndefined();
    const { body: acts } = await app.call("/v1/audit?action=key.created", undefined, { key: caller.key });
    const act = acts.data.find((each: { subject: string }) => each.subject === key.id);
    expect(act.actor).toBe(owner.userId);
    await browser.call("/v1/session", undefined, { method: "DELETE" });
    expect((await app.call("/v1/key", undefined, { key: key.key })).status).toBe(200);
  });

  it("makes hardware keys for owners and admins if the operator allows it, and never drives hardware itself", async () => {
    const { org } = await app.caller(1);
    const [owner, developer] = [await person(app, org, "owner"), await person(app, org, "developer")];
    const [at, beside] = [await signedIn(app, org, owner.userId), await signedIn(app, org, developer.userId)];
    const keys = `/v1/orgs/${org}/keys`;
    const robot = { name: "robot", role: "operator", environment: "hardware" };
    const refused = await at.call(keys, robot);
    expect([refused.status, refused.body.error.details.exceeds]).toEqual([403, ["environment"]]);
    const grant = (allowed: boolean) =>
      app.call(`/v1/orgs/${org}/hardware-keys`, { allowed }, { admin: ADMIN_TOKEN, method: "PUT" });
    // Nobody of the organisation gives it to itself.
    for (const path of [`/v1/orgs/${org}/hardware-keys`, `/v1/orgs/${org}/settings`]) {
      const method = path.endsWith("keys") ? "PUT" : "PATCH";
      const tried = await at.call(path, { allowed: true, hardware_keys: true }, { method });
      expect([path, tried.status >= 400]).toEqual([path, true]);
    }
    expect((await grant(true)).body).toMatchObject({ hardware_keys: true });
    const made = await at.call(keys, robot);
    // It reaches no further than other keys for hardware.
    expect([made.status, made.body.environment, made.body.trust ?? null]).toEqual([201, "hardware", null]);
    expect((await at.call(`${keys}/${made.body.id}`, { name: "the arm" }, { method: "PATCH" })).status).toBe(200);
    expect((await at.call("/v1/key")).body.environment).toBe("simulation");
    expect((await at.call(keys, { name: "plain" })).body.environment).toBe("simulation");
    // Who makes keys for himself alone makes none for hardware, nor does a key, nor an application.
    expect((await beside.call(keys, { ...robot, role: "developer" })).body.error.details.exceeds).toEqual([
      "environment",
    ]);
    const plain = await app.call(keys, robot, { key: owner.key });
    expect([plain.status, plain.body.error.details.exceeds]).toEqual([403, ["environment"]]);
    await grant(false);
    expect((await at.call(keys, robot)).status).toBe(403);
    expect((await app.call("/v1/key", undefined, { key: made.body.key })).body.environment).toBe("hardware");
  });

  it("acts with a hidden key that cannot be seen, changed or taken over", async () => {
    const browser = await signedIn(app, caller.org, owner.userId);
    const { body: key } = await browser.call("/v1/key");
    const { body: keys } = await browser.call(`/v1/orgs/${caller.org}/keys`);
    expect(keys.data.map(({ id }: { id: string }) => id)).not.toContain(key.id);
    const path = `/v1/orgs/${caller.org}/keys/${key.id}`;
    const tries = [
      await browser.call(path),
      await browser.call(path, { name: "mine" }, { method: "PATCH" }),
      await browser.call(`${path}/rotate`, {}),
      await browser.call(path, undefined, { method: "DELETE" }),
    ];
    expect(tries.map(({ status }) => status)).toEqual([404, 404, 404, 404]);
  });

  it("cannot be used as an API key, nor an API key as a session", async () => {
    const browser = await signedIn(app, caller.org, owner.userId);
    const secret = browser.cookie.split("=")[1] ?? "";
    expect((await app.call("/v1/key", undefined, { key: secret })).body.error.code).toBe("invalid_api_key");
    const planted = { ...OWN_PAGE, cookie: `limber_session=${caller.key}` };
    expect((await app.call("/v1/key", undefined, { headers: planted })).body.error.code).toBe("session_ended");
    const { status, body } = await app.call("/v1/session", undefined, { key: caller.key });
    expect([status, body.org_id, body.id, body.user_id]).toEqual([200, caller.org, undefined, undefined]);
    expect((await app.call("/v1/session", undefined, { key: caller.key, method: "DELETE" })).status).toBe(422);
  });

  it("works over Connect as over REST", async () => {
    const browser = await signedIn(app, caller.org, owner.userId);
    const transport = createConnectTransport({ baseUrl: app.url, httpVersion: "1.1", useBinaryFormat: false });
    const client = createClient(SessionService, transport);
    const headers = { ...OWN_PAGE, cookie: browser.cookie };
    expect((await client.getSession({}, { headers })).session?.userId).toBe(owner.userId);
    const token = await linkFor(owner.userId);
    let kept = "";
    const onHeader = (answered: Headers): void => {
      kept = answered.get("set-cookie") ?? "";
    };
    await client.createSession({ token }, { headers: OWN_PAGE, onHeader });
    expect(kept).toMatch(/^limber_session=lmb_ses_/);
  });
});

describe("the cookie counts", () => {
  /** What comes with a cookie, and whether the cookie counts then. */
  const origin = (): string => new URL(app.url).origin;
  const CASES: readonly [string, () => Record<string, string>, "POST" | "GET", number][] = [
    ["for a page of the gateway's own", () => OWN_PAGE, "POST", 201],
    ["by the origin alone, of browsers that say no more", () => ({ origin: origin() }), "POST", 201],
    ["for a read of the gateway's own", () => OWN_PAGE, "GET", 200],
    ["not for another site", () => ({ "sec-fetch-site": "cross-site", origin: "https://evil.example" }), "POST", 403],
    ["not for another host of the same site", () => ({ "sec-fetch-site": "same-site" }), "POST", 403],
    ["not for an address that was typed or a link that was followed", () => ({ "sec-fetch-site": "none" }), "GET", 403],
    ["not for another port of this host", () => ({ origin: "http://127.0.0.1:1" }), "POST", 403],
    ["not for a page without an origin", () => ({ origin: "null" }), "POST", 403],
    ["not where two headers differ", () => ({ ...OWN_PAGE, origin: "https://evil.example" }), "POST", 403],
    ["not where nothing tells", () => ({}), "POST", 403],
    ["not where nothing tells of a read", () => ({}), "GET", 403],
    ["not with a form's type", () => ({ ...OWN_PAGE, "content-type": "text/plain" }), "POST", 403],
    [
      "not with another form's type",
      () => ({ ...OWN_PAGE, "content-type": "multipart/form-data; boundary=a" }),
      "POST",
      403,
    ],
    [
      "not for a name that only begins like JSON",
      () => ({ ...OWN_PAGE, "content-type": "application/jsonp" }),
      "POST",
      403,
    ],
  ];

  it.each(CASES)("%s", async (_, headers, method, status) => {
    const browser = await signedIn(app, caller.org, owner.userId);
    const path = `/v1/orgs/${caller.org}/keys`;
    const sent = { cookie: browser.cookie, ...headers() };
    const answer = await app.call(path, method === "POST" ? {} : undefined, { method, headers: sent });
    expect(answer.status).toBe(status);
    if (status === 403) expect(answer.body.error.code).toBe("cross_origin");
  });

  it("not over gRPC or for WebSockets", async () => {
    const { cookie } = await signedIn(app, caller.org, owner.userId);
    const client = createClient(SessionService, createGrpcTransport({ baseUrl: app.url }));
    const { reason } = await refusalIn(client.getSession({}, { headers: { ...OWN_PAGE, cookie } }));
    expect(reason).toBe("missing_api_key");
    const socket = new WebSocket(`${app.url.replace("http", "ws")}/v1/openpi/acme/base`, {
      headers: { cookie, origin: new URL(app.url).origin },
    });
    const status = await new Promise((resolve) => {
      socket.on("unexpected-response", (_, response) => resolve(response.statusCode));
      socket.on("open", () => resolve("open"));
      socket.on("error", () => resolve("error"));
    });
    expect(status).not.toBe("open");
  });

  it("not if a key is sent with it", async () => {
    const { cookie } = await signedIn(app, caller.org, owner.userId);
    const viewer = await app.key(caller.org, { role: "viewer" });
    const headers = { cookie, ...OWN_PAGE };
    expect((await app.call(`/v1/orgs/${caller.org}/keys`, {}, { key: viewer, headers })).status).toBe(403);
  });
});

describe("nobody is signed in", () => {
  it("by another site's page, not even as another user", async () => {
    const token = await linkFor(owner.userId);
    for (const headers of [
      { "sec-fetch-site": "cross-site" },
      { origin: "https://evil.example" },
      { ...OWN_PAGE, "content-type": "text/plain" },
    ] as const) {
      const { status, headers: answered } = await app.call("/v1/session", { token }, { headers });
      expect([403, 415]).toContain(status);
      expect(answered.getSetCookie()).toEqual([]);
    }
    expect((await new Browser(app.url).call("/v1/session", { token })).status).toBe(201);
  });

  it("with a planted secret, not even of the same browser", async () => {
    const attacker = await person(app, (await app.caller(0)).org, "owner");
    const stranger = await app.call("/v1/session", undefined, { key: attacker.key });
    const planted = await signedIn(app, stranger.body.org_id, attacker.userId);
    const victim = new Browser(app.url);
    victim.take(new Headers([["set-cookie", planted.cookie]]));
    await signedIn(app, caller.org, owner.userId, victim);
    expect(victim.cookie).not.toBe(planted.cookie);
    expect((await planted.call("/v1/session")).body.error.code).toBe("session_ended");
    const taken = await planted.call("/v1/session", { org_id: caller.org }, { method: "PATCH" });
    expect(taken.body.error.code).toBe("session_ended");
  });

  it("over an unencrypted connection", async () => {
    const plain = await ownGateway({ database: app.database, publicUrl: "http://gateway.example" });
    try {
      const headers = { origin: "http://gateway.example" };
      const { status, body } = await plain.call("/v1/session", { token: await linkFor(owner.userId) }, { headers });
      expect([status, body.error.code]).toEqual([422, "browser_needed"]);
    } finally {
      await plain.close();
    }
  });

  it("at a public address without a host-bound cookie", async () => {
    const secure = await ownGateway({ database: app.database, publicUrl: "https://gateway.example" });
    try {
      const headers = { origin: "https://gateway.example" };
      const answer = await secure.call("/v1/session", { token: await linkFor(owner.userId) }, { headers });
      const [cookie = ""] = answer.headers.getSetCookie();
      expect(cookie).toMatch(/^__Host-limber_session=[^;]+; Path=\/; Max-Age=604800; HttpOnly; SameSite=Lax; Secure$/);
      const value = cookie.split(";")[0]?.split("=")[1];
      const bare = await secure.call("/v1/key", undefined, {
        headers: { ...headers, cookie: `limber_session=${value}` },
      });
      expect(bare.body.error.code).toBe("missing_api_key");
      const whole = { ...headers, cookie: `a=b; __Host-limber_session=${value}` };
      expect((await secure.call("/v1/key", undefined, { headers: whole })).status).toBe(200);
    } finally {
      await secure.close();
    }
  });
});

describe("a session ends", () => {
  const ended = (browser: Browser): Promise<void> =>
    eventually(async () => {
      const { body } = await browser.call("/v1/session");
      if (body.error?.code !== "session_ended") throw new Error("it is not over yet");
    });
  const elsewhere = async (userId: string): Promise<[Browser, Browser]> => {
    const here = await signedIn(app, caller.org, userId);
    const there = new Browser(two.url);
    there.take(new Headers([["set-cookie", here.cookie]]));
    expect((await there.call("/v1/session")).status).toBe(200);
    return [here, there];
  };

  it("for good on every replica when an identity provider deactivates its member", async () => {
    const member = await person(app, caller.org, "viewer");
    const [here, there] = await elsewhere(member.userId);
    const path = `/v1/scim/v2/Users/${member.userId}`;
    const patch = (active: boolean) => ({
      schemas: ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
      Operations: [{ op: "replace", path: "active", value: active }],
    });
    const options = { key: caller.key, method: "PATCH", headers: { "content-type": "application/scim+json" } };
    await app.call(path, patch(false), options);
    expect((await here.call("/v1/session")).body.error.code).toBe("session_ended");
    await ended(there);
    await app.call(path, patch(true), options);
    await ended(here);
    await ended(there);
  });

  it("when its member is removed, signed out by an admin, or restricted to another workspace", async () => {
    const acts: ((userId: string) => Promise<{ status: number }>)[] = [
      (userId) => app.call(memberPath(userId), undefined, { key: caller.key, method: "DELETE" }),
      (userId) => app.call(`${memberPath(userId)}/sessions`, undefined, { key: caller.key, method: "DELETE" }),
      async (userId) => {
        const { body } = await app.call(`/v1/orgs/${caller.org}/workspaces`, { name: `of ${userId}` }, caller);
        const change = { workspace_ids: [body.id] };
        return app.call(memberPath(userId), change, { key: caller.key, method: "PATCH" });
      },
    ];
    for (const act of acts) {
      const member = await person(app, caller.org, "viewer");
      const [here, there] = await elsewhere(member.userId);
      expect((await act(member.userId)).status).toBe(200);
      expect((await here.call("/v1/session")).body.error.code).toBe("session_ended");
      await ended(there);
    }
  });

  it("by signing out, in every organisation of this browser and on every replica", async () => {
    const member = await person(app, caller.org, "viewer");
    const [here, there] = await elsewhere(member.userId);
    const { cookie } = here;
    expect((await here.call("/v1/session", undefined, { method: "DELETE" })).body).toEqual({ ended: 1 });
    expect(here.cookie).toBe("");
    const again = await app.call("/v1/session", undefined, { headers: { ...OWN_PAGE, cookie } });
    expect(again.body.error.code).toBe("session_ended");
    await ended(there);
  });

  it("after twelve hours without use, and after seven days with it", async () => {
    for (const change of [
      app.sql`seen = now() - interval '12 h 1 s'`,
      app.sql`ends = now() - interval '1 s', seen = now()`,
    ]) {
      const member = await person(app, caller.org, "viewer");
      const browser = await signedIn(app, caller.org, member.userId);
      await app.sql`update session set ${change}, key_id = key_id where user_id = ${member.userId}`;
      await ended(browser);
    }
  });

  it("when its organisation is suspended", async () => {
    const other = await app.caller(0);
    const member = await person(app, other.org, "owner");
    const browser = await signedIn(app, other.org, member.userId);
    await app.sql`update org set status = 'suspended' where id = ${other.org}`;
    await ended(browser);
  });
});

describe("at one browser", () => {
  it("several organizations can be signed in to and switched between", async () => {
    const other = await app.caller(0);
    const there = await person(app, other.org, "developer");
    const browser = await signedIn(app, caller.org, owner.userId);
    await signedIn(app, other.org, there.userId, browser);
    const { body } = await browser.call("/v1/session");
    expect(body.organisations.map((each: { org_id: string }) => each.org_id).sort()).toEqual(
      [caller.org, other.org].sort(),
    );
    expect(body.org_id).toBe(other.org);
    const before = browser.cookie;
    const back = await browser.call("/v1/session", { org_id: caller.org }, { method: "PATCH" });
    expect([back.status, back.body.org_id, back.body.role]).toEqual([200, caller.org, "owner"]);
    const old = await app.call("/v1/session", undefined, { headers: { ...OWN_PAGE, cookie: before } });
    expect(old.body.error.code).toBe("session_ended");
    expect((await browser.call(`/v1/orgs/${other.org}/settings`)).status).toBe(404);
    const stranger = await app.caller(0);
    const none = await browser.call("/v1/session", { org_id: stranger.org }, { method: "PATCH" });
    expect(none.status).toBe(404);
  });

  it("a member can switch between its workspaces only", async () => {
    const made = async (name: string): Promise<string> =>
      (await app.admin(`/v1/orgs/${caller.org}/workspaces`, { name })).id;
    const [lab, field, closed] = [await made("a lab"), await made("a field"), await made("a closed one")];
    const member = await person(app, caller.org, "developer", { workspace_ids: [lab, field] });
    const browser = await signedIn(app, caller.org, member.userId);
    const { body } = await browser.call("/v1/session");
    expect([body.workspace_id, body.reaches_organisation]).toEqual([lab, false]);
    expect(body.workspaces.map((each: { workspace_id: string }) => each.workspace_id)).toEqual([lab, field]);
    const go = (workspace_id: string) => browser.call("/v1/session", { workspace_id }, { method: "PATCH" });
    expect((await go(field)).body.workspace_id).toBe(field);
    expect((await go(closed)).status).toBe(404);
    expect((await go("")).status).toBe(404);
    expect((await browser.call("/v1/session")).body.workspace_id).toBe(field);
    const head = await signedIn(app, caller.org, owner.userId);
    expect((await head.call("/v1/session", { workspace_id: closed }, { method: "PATCH" })).body.workspace_id).toBe(
      closed,
    );
    const refused = await head.call(`/v1/orgs/${caller.org}/members`);
    expect(refused.body.error.code).toBe("scope_denied");
    const whole = await head.call("/v1/session", { workspace_id: "" }, { method: "PATCH" });
    expect([whole.status, whole.body.workspace_id]).toEqual([200, undefined]);
    expect((await head.call(`/v1/orgs/${caller.org}/members`)).status).toBe(200);
  });
});
