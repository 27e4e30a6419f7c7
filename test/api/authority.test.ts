/**
 * Authority only narrows: no RPC lets a key give away, change or take over more than it has. The RPCs are found in the schema; one that
 * writes keys, members, roles, applications or settings and does not say what it yields fails here.
 */
import { type DescMethod, getOption } from "@bufbuild/protobuf";
import { beforeAll, describe, expect, it } from "vitest";
import { Access, rpc, Yield } from "../../gen/limber/edge/v1/options_pb.ts";
import { SERVICES } from "../../src/app/services.ts";
import type { Answer, App, Caller } from "../support/app.ts";
import { seeded } from "../support/chance.ts";
import { eventually } from "../support/eventually.ts";
import { type Person, person } from "../support/members.ts";
import { consent, pkce, register } from "../support/oauth.ts";
import { ownGateway } from "../support/world.ts";

const METHODS: readonly DescMethod[] = SERVICES.flatMap((service): readonly DescMethod[] => service.methods);
const WRITES = /^(keys\.write|members\.write|scim\.write|oauth\.\w+|org\.\w+|workspaces\.write|settings\.write)$/;
const yields = (method: DescMethod): Yield => getOption(method, rpc).yields;

let app: App;
let two: App;
let caller: Caller;
let workspace: string;
let end: number;
/** A person who may do nothing but see. */
let viewer: Person;
/** A person who may do everything. */
let head: Person;
/** Somebody whose user was pushed, deactivated by now. */
let asleep: string;
let group: string;
let client: string;

beforeAll(async () => {
  app = await ownGateway();
  two = await ownGateway({ database: app.database });
  caller = await app.caller(10, { role: "owner" });
  workspace = (await app.admin(`/v1/orgs/${caller.org}/workspaces`, { name: "lab" })).id;
  end = Math.floor(Date.now() / 1000) + 3600;
  viewer = await person(app, caller.org, "viewer");
  head = await person(app, caller.org, "owner");
  const user = await app.call("/v1/scim/v2/Users", { userName: "pushed@example.com", active: false }, caller);
  asleep = user.body.id;
  const made = await app.call("/v1/scim/v2/Groups", { displayName: "crew" }, caller);
  group = made.body.id;
  const { key } = caller;
  await app.call(`/v1/scim/v2/Groups/${group}/map`, { role: "developer" }, { key });
  client = (await register(app, key, { scopes: ["act"] })).body.client_id;
});

/** Owner's keys, each narrowed in one dimension, by the word of that dimension. */
const narrow = (): Readonly<Record<string, object>> => ({
  scopes: { scopes: ["ground"] },
  models: { models: ["acme/base"] },
  workspace: { workspace_id: workspace },
  robot: { robot_id: "arm-7" },
  bounds: { bounds: { lowest: [-1], highest: [1] } },
  budget: { budget: { limit_usd: 1, interval: "daily" } },
  rate_limit: { rate_limit: { requests: 5000, window_s: 60 } },
  expires_at: { expires_at: end },
});

const keysPath = (id = ""): string => `/v1/orgs/${caller.org}/keys${id}`;

/** A key that nothing narrows. */
const wide = (): Promise<Answer["body"]> => app.admin(keysPath(), { role: "owner" });

/** What a narrowed key tries by each RPC that yields authority, and is refused for its one narrow dimension. */
const ATTEMPTS: Readonly<Record<string, (key: string, dimension: string) => Promise<Answer>>> = {
  "AccountService.CreateKey": (key, dimension) =>
    app.call(keysPath(), { role: "owner", ...WIDER[dimension as keyof typeof WIDER] }, { key }),
  "AccountService.UpdateKey": async (key) =>
    app.call(keysPath(`/${(await wide()).id}`), { name: "mine" }, { key, method: "PATCH" }),
  "AccountService.RotateKey": async (key) => app.call(keysPath(`/${(await wide()).id}/rotate`), {}, { key }),
  "AccountService.UpdateSettings": async (key) => {
    await app.call(`/v1/orgs/${caller.org}/settings`, { zdr: true }, { key: caller.key, method: "PATCH" });
    return app.call(`/v1/orgs/${caller.org}/settings`, { zdr: false }, { key, method: "PATCH" });
  },
  "WorkspaceService.UpdateWorkspace": async (key) => {
    const path = `/v1/orgs/${caller.org}/workspaces/${workspace}`;
    const tight = { budget: { limit_usd: 1, interval: "daily" } };
    await app.call(path, tight, { key: caller.key, method: "PATCH" });
    return app.call(path, { clear: ["budget"] }, { key, method: "PATCH" });
  },
  "IdentityService.InviteMember": (key) =>
    app.call(`/v1/orgs/${caller.org}/members`, { email: "friend@example.com", role: "admin" }, { key }),
  "SessionService.CreateSignInLink": (key) =>
    app.call(`/v1/orgs/${caller.org}/members/${head.userId}/sign-in-link`, {}, { key }),
  "IssuerService.PutIssuer": (key) =>
    app.call(
      `/v1/orgs/${caller.org}/issuers/sso`,
      { issuer: "https://accounts.example", client_id: "c" },
      { key, method: "PUT" },
    ),
  "IssuerService.TestIssuer": (key) =>
    app.call(
      `/v1/orgs/${caller.org}/issuers/sso/test`,
      { issuer: "https://accounts.example", client_id: "c" },
      { key },
    ),
  "IdentityService.UpdateMember": (key) =>
    app.call(`/v1/orgs/${caller.org}/members/${viewer.userId}`, { role: "admin" }, { key, method: "PATCH" }),
  "IdentityService.TransferOwnership": (key) =>
    app.call(`/v1/orgs/${caller.org}/transfer`, { user_id: viewer.userId }, { key }),
  "OauthService.CreateOauthClient": (key) => register(app, key, { scopes: ["act", "usage.read"] }),
  "ScimService.CreateUser": (key) =>
    app.call("/v1/scim/v2/Users", { userName: `x-${Math.random()}@example.com` }, { key }),
  "ScimService.ReplaceUser": (key) =>
    app.call(`/v1/scim/v2/Users/${asleep}`, { userName: "pushed@example.com", active: true }, { key, method: "PUT" }),
  "ScimService.PatchUser": (key) =>
    app.call(
      `/v1/scim/v2/Users/${asleep}`,
      {
        schemas: ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
        Operations: [{ op: "replace", path: "active", value: true }],
      },
      { key, method: "PATCH" },
    ),
  "ScimService.ReplaceGroup": (key) =>
    app.call(
      `/v1/scim/v2/Groups/${group}`,
      { displayName: "crew", members: [{ value: viewer.userId }] },
      { key, method: "PUT" },
    ),
  "ScimService.PatchGroup": (key) =>
    app.call(
      `/v1/scim/v2/Groups/${group}`,
      {
        schemas: ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
        Operations: [{ op: "add", path: "members", value: [{ value: viewer.userId }] }],
      },
      { key, method: "PATCH" },
    ),
  "ScimService.MapGroup": (key) => app.call(`/v1/scim/v2/Groups/${group}/map`, { role: "admin" }, { key }),
};

/** What a key asks for that is more than it has in one dimension. */
const WIDER = {
  scopes: { scopes: ["act"] },
  models: { models: ["other/model"] },
  workspace: { workspace_id: "ws_other" },
  robot: { robot_id: "leg-1" },
  bounds: { bounds: { lowest: [-2], highest: [2] } },
  budget: { budget: { limit_usd: 2, interval: "daily" } },
  rate_limit: { rate_limit: { requests: 5001, window_s: 60, burst: 1 } },
  expires_at: { expires_at: 4_000_000_000 },
} as const;

/** RPCs that yield authority, and by which a narrowed key gets less than it has whatever it asks for; each has a test of its own below. */
const NARROWED_BY_THEMSELVES = new Set([
  // What the consenting key has limits what is consented to.
  "OauthService.Authorize",
  // A new group gives no role, and a member who leaves a group gets the role that was given by hand.
  "ScimService.CreateGroup",
  "ScimService.DeleteGroup",
]);

const nameOf = (method: DescMethod): string => `${method.parent.name}.${method.name}`;

describe("every RPC", () => {
  it("that changes keys, members, roles, applications or settings declares what it grants", () => {
    const silent = METHODS.filter((method) => {
      const { permission, access, yields } = getOption(method, rpc);
      const signsUp =
        access === Access.ADMIN_OR_SIGNUP ||
        /AcceptInvite|Authorize$|Token$|CreateSession|UpdateSession/.test(method.name);
      return (WRITES.test(permission) || signsUp) && yields === Yield.UNSPECIFIED;
    });
    expect(silent.map(nameOf)).toEqual([]);
  });

  it("that grants authority is tested below", () => {
    const yielding = METHODS.filter((method) => yields(method) === Yield.AUTHORITY).map(nameOf);
    const tried = [...Object.keys(ATTEMPTS), ...NARROWED_BY_THEMSELVES];
    expect(yielding.toSorted()).toEqual(tried.toSorted());
  });

  it("that grants authority refuses a key narrowed in any dimension and names the dimension", async () => {
    const faults: string[] = [];
    let tried = 0;
    for (const [dimension, facts] of Object.entries(narrow())) {
      const { key } = await app.admin(keysPath(), { role: "owner", ...facts });
      for (const [name, attempt] of Object.entries(ATTEMPTS)) {
        const { status, text } = await attempt(key, dimension);
        tried++;
        // A key of a workspace sees nothing of what is not in it.
        const hidden = dimension === "workspace" && status === 404;
        const refused = status === 403 && (text.includes(dimension) || dimension === "workspace");
        if (!hidden && !refused) faults.push(`${name} by a key narrowed in ${dimension}: ${status} ${text}`);
      }
    }
    expect(faults).toEqual([]);
    expect(tried).toBe(8 * Object.keys(ATTEMPTS).length);
  }, 120_000);
});

describe("what was found from outside", () => {
  it("a key with bounds cannot rotate an unbounded key", async () => {
    const { key } = await app.admin(keysPath(), { role: "admin", bounds: { lowest: [-1], highest: [1] } });
    const { id } = await app.admin(keysPath(), { role: "developer" });
    const { status, body } = await app.call(keysPath(`/${id}/rotate`), {}, { key });
    expect([status, body.error.code, body.error.details.exceeds]).toEqual([403, "scope_denied", ["bounds"]]);
  });

  it("a key cannot lift its own limits", async () => {
    const limits = { robot_id: "arm-7", rate_limit: { requests: 5, window_s: 60, burst: 50 }, expires_at: end };
    const { id, key } = await app.admin(keysPath(), { role: "admin", ...limits });
    const change = (body: object) => app.call(keysPath(`/${id}`), body, { key, method: "PATCH" });
    for (const [body, dimension] of [
      [{ environment: "hardware" }, "environment"],
      [{ rate_limit: { requests: 6, window_s: 60 } }, "rate_limit"],
      [{ rate_limit: { requests: 5, window_s: 60, burst: 51 } }, "rate_limit"],
      [{ clear: ["rate_limit"] }, "rate_limit"],
      [{ clear: ["robot_id"] }, "robot"],
      [{ robot_id: "arm-8" }, "robot"],
      [{ clear: ["expires_at"] }, "expires_at"],
      [{ expires_at: end + 1 }, "expires_at"],
    ] as const) {
      const { status, body: refused } = await change(body);
      expect([status, refused.error?.details.exceeds], JSON.stringify(body)).toEqual([403, [dimension]]);
    }
    expect((await change({ rate_limit: { requests: 4, window_s: 60 }, scopes: ["act"] })).status).toBe(200);
  });

  it("consent gives an application at most the consenting key's authority, and ends with it", async () => {
    const limits = {
      bounds: { lowest: [-1], highest: [1] },
      robot_id: "arm-7",
      models: ["acme/base"],
      expires_at: end,
    };
    const { id, key } = await app.admin(keysPath(), { role: "developer", ...limits });
    const { verifier, challenge } = pkce();
    const { code } = (await consent(app, key, client, challenge)).body;
    const fields = { grant_type: "authorization_code", code, code_verifier: verifier, client_id: client };
    const form = new URLSearchParams({ ...fields, redirect_uri: "https://app.example.com/callback" }).toString();
    const headers = { "content-type": "application/x-www-form-urlencoded" };
    const { body } = await app.call("/v1/oauth/token", form, { headers });
    const look = () => app.call("/v1/key", undefined, { key: body.access_token });
    expect((await look()).body).toMatchObject({ ...limits, parent_id: id });
    await app.call(keysPath(`/${id}`), undefined, { key: caller.key, method: "DELETE" });
    await eventually(async () => expect((await look()).status).toBe(401));
  });

  it("leaving or deleting a group gives no role beyond the caller's", async () => {
    const boss = await person(app, caller.org, "owner");
    const crew = (await app.call("/v1/scim/v2/Groups", { displayName: "demoted" }, caller)).body.id;
    await app.call(`/v1/scim/v2/Groups/${crew}/map`, { role: "viewer" }, caller);
    const admin = await person(app, caller.org, "admin");
    const put = (members: readonly string[], key: string) =>
      app.call(
        `/v1/scim/v2/Groups/${crew}`,
        { displayName: "demoted", members: members.map((value) => ({ value })) },
        { key, method: "PUT" },
      );
    expect((await put([admin.userId, boss.userId], caller.key)).status).toBe(200);
    const narrowed = await app.key(caller.org, { role: "admin", models: ["acme/base"] });
    for (const attempt of [
      put([], narrowed),
      app.call(`/v1/scim/v2/Groups/${crew}`, undefined, { key: narrowed, method: "DELETE" }),
    ])
      expect((await attempt).status).toBe(403);
    const shown = await app.call(`/v1/orgs/${caller.org}/members/${admin.userId}`, undefined, caller);
    expect(shown.body.role).toBe("viewer");
  });
});

describe("a key that a key made", () => {
  const child = async (of: string, facts: object = {}) => (await app.call(keysPath(), facts, { key: of })).body;
  const codeOf = async (key: string, gateway: App) =>
    (await gateway.call("/v1/key", undefined, { key })).body.error?.code;

  it("is narrowed, disabled, enabled and revoked with every key above it, on every replica", async () => {
    const top = await app.admin(keysPath(), { role: "admin" });
    const middle = await child(top.key, { role: "admin" });
    const leaf = await child(middle.key);
    expect([middle.parent_id, leaf.parent_id]).toEqual([top.id, middle.id]);
    for (const gateway of [app, two]) expect(await codeOf(leaf.key, gateway)).toBeUndefined();
    const change = (body: object) => app.call(keysPath(`/${top.id}`), body, { key: caller.key, method: "PATCH" });
    await change({ disabled: true });
    for (const gateway of [app, two])
      await eventually(async () => expect(await codeOf(leaf.key, gateway)).toBe("key_disabled"));
    await change({ disabled: false, scopes: ["ground"], models: ["acme/base"] });
    for (const gateway of [app, two])
      await eventually(async () => {
        const { body } = await gateway.call("/v1/key", undefined, { key: leaf.key });
        expect(body).toMatchObject({ scopes: ["ground"], models: ["acme/base"] });
        expect((await gateway.call("/v1/act", {}, { key: leaf.key })).body.error.code).toBe("scope_denied");
      });
    await app.call(keysPath(`/${top.id}`), undefined, { key: caller.key, method: "DELETE" });
    for (const gateway of [app, two])
      await eventually(async () => expect(await codeOf(leaf.key, gateway)).toBe("key_disabled"));
    const told = await app.sql`
      select from outbox where org_id = ${caller.org} and name = 'key.revoked' and encode(payload, 'escape') like any (${[top, middle, leaf].map(({ id }) => `%${id}%`)})`;
    expect(told).toHaveLength(3);
  });

  it("cannot change or revoke its ancestors", async () => {
    const top = await app.admin(keysPath(), { role: "admin" });
    const leaf = await child(top.key, { role: "admin" });
    const options = { key: leaf.key };
    expect((await app.call(keysPath(`/${top.id}`), { name: "x" }, { ...options, method: "PATCH" })).status).toBe(403);
    expect((await app.call(keysPath(`/${top.id}/rotate`), {}, options)).status).toBe(403);
    expect((await app.call(keysPath(`/${top.id}`), undefined, { ...options, method: "DELETE" })).status).toBe(403);
  });

  it("has at most eight ancestors", async () => {
    let { key } = await app.admin(keysPath(), { role: "admin" });
    for (let i = 0; i < 8; i++) ({ key } = await child(key, { role: "admin" }));
    const { status, body } = await app.call(keysPath(), {}, { key });
    expect([status, body.error.code]).toEqual([409, "key_line_too_long"]);
  });
});

describe("a walk over the real API", () => {
  it("a narrowed key and all keys it obtains never show a key outside its authority", async () => {
    const random = seeded(16);
    const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
    const facts = {
      role: "admin",
      scopes: ["act", "ground"],
      models: ["acme/*"],
      environment: "simulation",
      robot_id: "arm-7",
      rate_limit: { requests: 50, window_s: 1, burst: 500, concurrency: 8, streams: 4 },
      budget: { limit_usd: 5, interval: "daily" },
      expires_at: end,
    };
    const start = await app.admin(keysPath(), facts);
    for (const more of [{}, { models: ["acme/base"] }, { role: "viewer" }, { role: "owner" }, { scopes: ["act"] }])
      await app.admin(keysPath(), { role: "developer", ...more });
    const parts = [
      {},
      { role: "admin" },
      { role: "owner" },
      { scopes: ["act"] },
      { scopes: ["predict"] },
      { models: ["acme/base"] },
      { models: ["*"] },
      { environment: "hardware" },
      { robot_id: "arm-8" },
      { budget: { limit_usd: 1, interval: "daily" } },
      { budget: { limit_usd: 9, interval: "lifetime" } },
      { rate_limit: { requests: 60, window_s: 1 } },
      { rate_limit: { requests: 40, window_s: 1, burst: 450 } },
      { expires_at: end + 100 },
      { expires_at: end - 100 },
    ];
    const cleared = [["robot_id"], ["budget"], ["expires_at"], ["rate_limit"]];
    const held = new Map<string, string>([[start.id, start.key]]);
    const statuses = new Map<number, number>();
    for (let step = 0; step < 300; step++) {
      const key = pick([...held.values()]);
      const { data } = (await app.call(keysPath("?limit=500"), undefined, { key: caller.key })).body;
      const { id } = pick(data as { id: string }[]);
      const { role: _, ...fields } = { role: "", ...pick(parts), ...pick(parts) };
      const operations = [
        () => app.call(keysPath(), { role: pick(["admin", "developer", "owner"]), ...fields }, { key }),
        () => app.call(keysPath(`/${id}`), fields, { key, method: "PATCH" }),
        () => app.call(keysPath(`/${id}`), { clear: pick(cleared) }, { key, method: "PATCH" }),
        () => app.call(keysPath(`/${id}/rotate`), {}, { key }),
      ];
      const { status, body } = await pick(operations)();
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      if (body.key !== undefined) held.set(body.id, body.key);
    }
    for (const key of held.values()) {
      // Some of them share forty calls a second.
      const body = await eventually(async () => {
        const shown = await app.call("/v1/key", undefined, { key });
        expect(shown.status).toBe(200);
        return shown.body;
      });
      expect(["act", "ground"]).toEqual(expect.arrayContaining(body.scopes));
      expect(body.scopes.length).toBeGreaterThan(0);
      expect(body.models.every((model: string) => model.startsWith("acme/"))).toBe(true);
      expect([body.environment, body.robot_id, body.role === "owner"]).toEqual(["simulation", "arm-7", false]);
      expect(body.expires_at).toBeLessThanOrEqual(end);
      expect(body.rate_limit.requests / body.rate_limit.window_s).toBeLessThanOrEqual(50);
      expect(body.budget.limit_usd).toBeLessThanOrEqual(5);
    }
    expect(held.size).toBeGreaterThan(5);
    expect([...statuses.keys()].filter((status) => status >= 500)).toEqual([]);
    expect(statuses.get(403)).toBeGreaterThan(50);
  }, 120_000);
});
