/** Members: inviting, accepting, changing, removing, handing on. */
import { beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { type Person, person } from "../../support/members.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
let other: App;
let caller: Caller;
let owner: Person;

beforeAll(async () => {
  app = await ownGateway();
  other = await ownGateway({ database: app.database });
  caller = await app.caller(1);
  owner = await person(app, caller.org, "owner");
});

const members = (org = caller.org) => `/v1/orgs/${org}/members`;
const invite = (body: object, key = owner.key) => app.call(members(), body, { key });
const change = (userId: string, body: object, key = owner.key) =>
  app.call(`${members()}/${userId}`, body, { key, method: "PATCH" });
const remove = (userId: string, options: object = { key: owner.key }, org = caller.org) =>
  app.call(`${members(org)}/${userId}`, undefined, { method: "DELETE", ...options });
const looks = (gateway: App, key: string) => gateway.call("/v1/key", undefined, { key });

describe("POST /v1/orgs/{org_id}/members", () => {
  it("invites with a link shown once and stored as a hash", async () => {
    const { status, body } = await invite({ email: "ada@example.com", role: "developer", workspace_ids: [] });
    expect(status).toBe(201);
    expect(body).toEqual({
      sign_in_url: expect.stringContaining("/sign-in#token=lmb_inv_"),
      user_id: expect.stringMatching(/^usr_/),
      org_id: caller.org,
      email: "ada@example.com",
      role: "developer",
      given_role: "developer",
      workspace_ids: [],
      status: "invited",
      created: expect.any(Number),
      invite: expect.stringMatching(/^lmb_inv_/),
      invite_expires_at: expect.any(Number),
    });
    const [row] = await app.sql`select row_to_json(member)::text as text from member where id = ${body.user_id}`;
    expect(row?.text).not.toContain(body.invite);
  });

  it("re-invites a pending member and invalidates the first invite", async () => {
    const first = await invite({ email: "again@example.com", role: "developer" });
    const second = await invite({ email: "AGAIN@example.com", role: "viewer" });
    expect(second.body.user_id).toBe(first.body.user_id);
    const stale = await app.call("/v1/members/accept", { invite: first.body.invite });
    expect([stale.status, stale.body.error.code]).toEqual([404, "invalid_invite"]);
    expect((await app.call("/v1/members/accept", { invite: second.body.invite })).body.member.role).toBe("viewer");
  });

  it("refuses to invite a member, ignoring case", async () => {
    const { status, body } = await invite({ email: owner.email.toUpperCase(), role: "viewer" });
    expect([status, body.error.code]).toEqual([409, "already_exists"]);
  });

  it("gives no role beyond the caller's", async () => {
    const admin = await person(app, caller.org, "admin");
    const { status, body } = await invite({ email: "x@example.com", role: "owner" }, admin.key);
    expect([status, body.error.code]).toEqual([403, "permission_denied"]);
    expect((await invite({ email: "y@example.com", role: "admin" }, admin.key)).status).toBe(201);
  });

  it("requires an owner, an admin or the operator", async () => {
    for (const role of ["developer", "operator", "billing", "viewer", "supplier"]) {
      const { key } = await person(app, caller.org, role);
      expect((await invite({ email: "z@example.com", role: "viewer" }, key)).status, role).toBe(403);
    }
    const stranger = await app.caller(0);
    expect((await invite({ email: "z@example.com", role: "viewer" }, stranger.key)).status).toBe(404);
    expect((await app.call(members(), { email: "z@example.com", role: "viewer" })).status).toBe(401);
  });

  it("refuses invalid fields", async () => {
    for (const body of [
      {},
      { email: "ada@example.com" },
      { email: "nobody", role: "viewer" },
      { email: "a@example.com", role: "king" },
      { email: "a@example.com", role: "" },
      { email: `${"a".repeat(300)}@example.com`, role: "viewer" },
      { email: "a@example.com", role: "viewer", status: "active" },
    ])
      expect((await invite(body)).status, JSON.stringify(body)).toBe(422);
  });
});

describe("POST /v1/members/accept", () => {
  it("creates a member with a first key of that name and role, and emits both events", async () => {
    const { body: invited } = await invite({ email: "bob@example.com", role: "operator" });
    const { status, body } = await app.call("/v1/members/accept", { invite: invited.invite, key_name: "laptop" });
    expect(status).toBe(201);
    expect(body.member).toMatchObject({ user_id: invited.user_id, status: "active", role: "operator" });
    expect(body.member).not.toHaveProperty("invite");
    const shown = (await looks(app, body.key.key)).body;
    expect(shown).toMatchObject({ user_id: invited.user_id, role: "operator", name: "laptop", org_id: caller.org });
    const told = await app.sql`select name from outbox where org_id = ${caller.org} and name = 'member.added'`;
    expect(told.length).toBeGreaterThan(0);
  });

  it("accepts an invite once, even for concurrent calls", async () => {
    const { body } = await invite({ email: "race@example.com", role: "viewer" });
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => app.call("/v1/members/accept", { invite: body.invite })),
    );
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
    expect(answers.filter(({ status }) => status === 404)).toHaveLength(19);
    const keys = await app.sql`select from key where user_id = ${body.user_id}`;
    expect(keys).toHaveLength(1);
  });

  it("refuses expired and unknown invites", async () => {
    const { body } = await invite({ email: "late@example.com", role: "viewer" });
    await app.sql`update member set invite_ends = now() - interval '1 second' where id = ${body.user_id}`;
    for (const text of [body.invite, "lmb_inv_x", "null", "\\", "é"])
      expect((await app.call("/v1/members/accept", { invite: text })).status).toBe(404);
    expect((await app.call("/v1/members/accept", { invite: "" })).status).toBe(422);
    expect((await app.call("/v1/members/accept", { invite: "x".repeat(10_000) })).status).toBe(422);
  });
});

describe("GET /v1/orgs/{org_id}/members", () => {
  it("lists each member once over pages, oldest first, without invites", async () => {
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const query = cursor === undefined ? "?limit=3" : `?limit=3&cursor=${cursor}`;
      const { body } = await app.call(members() + query, undefined, { key: owner.key });
      expect(body.object).toBe("list");
      for (const each of body.data) {
        expect(each).not.toHaveProperty("invite");
        seen.push(each.user_id);
      }
      cursor = body.has_more ? body.next_cursor : undefined;
    } while (cursor !== undefined);
    const [{ count } = { count: 0 }] = await app.sql`select count(*) from member where org_id = ${caller.org}`;
    expect(new Set(seen).size).toBe(count);
    expect(seen).toHaveLength(Number(count));
    expect([...seen].sort()).toEqual(seen);
  });

  it("returns 404 for another organization's ids", async () => {
    const stranger = await app.caller(0);
    const theirs = await person(app, stranger.org, "viewer");
    for (const path of [
      members(stranger.org),
      `${members()}/${theirs.userId}`,
      `${members()}/usr_nobody`,
      members("org_nobody"),
    ]) {
      const { status, body } = await app.call(path, undefined, { key: owner.key });
      expect([status, body.error.code], path).toEqual([404, "not_found"]);
    }
    expect((await change(theirs.userId, { role: "viewer" })).status).toBe(404);
    expect((await remove(theirs.userId)).status).toBe(404);
    expect((await remove(theirs.userId, { key: owner.key }, stranger.org)).status).toBe(404);
  });
});

describe("PATCH /v1/orgs/{org_id}/members/{user_id}", () => {
  it("changes keys in the old role, or above the new one, on every replica within a second", async () => {
    const ada = await person(app, caller.org, "admin");
    const robot = await app.admin(`/v1/orgs/${caller.org}/keys`, { role: "operator", user_id: ada.userId });
    const dev = await app.admin(`/v1/orgs/${caller.org}/keys`, { role: "developer", user_id: ada.userId });
    const rolesOf = async (gateway: App) =>
      Promise.all([ada.key, robot.key, dev.key].map(async (key) => (await looks(gateway, key)).body.role));
    expect(await rolesOf(other)).toEqual(["admin", "operator", "developer"]);
    expect((await change(ada.userId, { role: "operator" })).body.role).toBe("operator");
    const isRefused = async (gateway: App) =>
      (await gateway.call(members(), undefined, { key: ada.key })).status === 403;
    await eventually(async () => expect(await isRefused(other)).toBe(true));
    expect(await rolesOf(other)).toEqual(["operator", "operator", "operator"]);
    expect((await change(ada.userId, { role: "admin" })).body.role).toBe("admin");
  });

  it("keeps the role if only workspaces change; an empty list means all", async () => {
    const ada = await person(app, caller.org, "viewer");
    const { body } = await change(ada.userId, { workspace_ids: [] });
    expect(body).toMatchObject({ role: "viewer", workspace_ids: [] });
  });

  it("stops an admin from changing an owner, and the last owner from stepping down", async () => {
    const admin = await person(app, caller.org, "admin");
    expect((await change(owner.userId, { role: "viewer" }, admin.key)).status).toBe(403);
    expect((await remove(owner.userId, { key: admin.key })).status).toBe(403);
    const { status, body } = await change(owner.userId, { role: "admin" });
    expect([status, body.error.code]).toEqual([409, "last_owner"]);
  });
});

describe("DELETE /v1/orgs/{org_id}/members/{user_id}", () => {
  it("refuses all keys of the member on every replica within a second, for good", async () => {
    const ada = await person(app, caller.org, "developer");
    const second = await app.call(`/v1/orgs/${caller.org}/keys`, {}, { key: ada.key });
    expect(second.body.user_id).toBe(ada.userId);
    for (const gateway of [app, other]) expect((await looks(gateway, ada.key)).status).toBe(200);
    const { status, body } = await remove(ada.userId);
    expect([status, body]).toEqual([200, { user_id: ada.userId, removed: true }]);
    for (const gateway of [app, other])
      for (const key of [ada.key, second.body.key])
        await eventually(async () => {
          const { status, body } = await looks(gateway, key);
          expect([status, body.error?.code]).toEqual([401, "key_disabled"]);
        });
    expect((await remove(ada.userId)).status).toBe(404);
    const told = await app.sql`select from outbox where org_id = ${caller.org} and name = 'member.removed'`;
    expect(told.length).toBeGreaterThan(0);
  });

  it("never removes the last owner", async () => {
    const { org } = await app.caller(0);
    const ada = await person(app, org, "owner");
    for (const options of [{ key: ada.key }, { admin: ADMIN_TOKEN }]) {
      const { status, body } = await remove(ada.userId, options, org);
      expect([status, body.error.code]).toEqual([409, "last_owner"]);
    }
  });

  it("keeps one of two owners who remove each other concurrently", async () => {
    for (let round = 0; round < 5; round++) {
      const { org } = await app.caller(0);
      const [ada, bob] = await Promise.all([person(app, org, "owner"), person(app, org, "owner")]);
      const answers = await Promise.all([
        remove(ada.userId, { key: bob.key }, org),
        remove(bob.userId, { key: ada.key }, org),
      ]);
      expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
      const left = await app.sql`select from member where org_id = ${org} and role = 'owner' and status = 'active'`;
      expect(left).toHaveLength(1);
    }
  });

  it("does not count an invited owner as the last owner", async () => {
    const { org } = await app.caller(0);
    const ada = await person(app, org, "owner");
    await app.admin(members(org), { email: "maybe@example.com", role: "owner" });
    expect((await remove(ada.userId, { key: ada.key }, org)).body.error.code).toBe("last_owner");
  });
});

describe("POST /v1/orgs/{org_id}/transfer", () => {
  it("makes another member the owner, and the caller an admin", async () => {
    const { org } = await app.caller(0);
    const [ada, bob] = await Promise.all([person(app, org, "owner"), person(app, org, "viewer")]);
    const transfer = (userId: string, key: string) =>
      app.call(`/v1/orgs/${org}/transfer`, { user_id: userId }, { key });
    const { status, body } = await transfer(bob.userId, ada.key);
    expect(status).toBe(200);
    expect([body.owner.user_id, body.owner.role]).toEqual([bob.userId, "owner"]);
    expect([body.previous.user_id, body.previous.role]).toEqual([ada.userId, "admin"]);
    await eventually(async () => expect((await transfer(ada.userId, ada.key)).status).toBe(403));
    expect((await looks(app, bob.key)).body.role).toBe("owner");
  });

  it("requires an owner and an active member", async () => {
    const { org } = await app.caller(0);
    const [ada, admin] = await Promise.all([person(app, org, "owner"), person(app, org, "admin")]);
    const { user_id: invited } = await app.admin(members(org), { email: "soon@example.com", role: "viewer" });
    const transfer = (userId: string, key: string) =>
      app.call(`/v1/orgs/${org}/transfer`, { user_id: userId }, { key });
    expect((await transfer(admin.userId, admin.key)).status).toBe(403);
    expect((await transfer(invited, ada.key)).body.error.code).toBe("member_not_active");
    expect((await transfer("usr_nobody", ada.key)).status).toBe(404);
    expect((await transfer(ada.userId, ada.key)).body.owner.role).toBe("owner");
  });
});

describe("keys of members", () => {
  it("can be made by developers only for themselves", async () => {
    const [ada, bob] = await Promise.all([person(app, caller.org, "developer"), person(app, caller.org, "developer")]);
    const make = (body: object, key: string) => app.call(`/v1/orgs/${caller.org}/keys`, body, { key });
    expect((await make({}, ada.key)).body).toMatchObject({ user_id: ada.userId, role: "developer" });
    expect((await make({ user_id: bob.userId }, ada.key)).status).toBe(403);
    expect((await make({ role: "admin" }, ada.key)).status).toBe(403);
    // A key that belongs to nobody has nobody to make keys for.
    expect((await make({}, await app.key(caller.org, { role: "developer" }))).status).toBe(403);
  });

  it("never act above their member's role", async () => {
    const ada = await person(app, caller.org, "viewer");
    const make = (body: object) => app.call(`/v1/orgs/${caller.org}/keys`, body, { key: owner.key });
    expect((await make({ user_id: ada.userId, role: "developer" })).status).toBe(403);
    expect((await make({ user_id: ada.userId })).body.role).toBe("viewer");
    expect((await make({ user_id: "usr_nobody" })).status).toBe(404);
  });
});

describe("members of workspaces", () => {
  const workspace = async (): Promise<string> =>
    (await app.call(`/v1/orgs/${caller.org}/workspaces`, { name: `w${Math.random()}` }, { key: owner.key })).body.id;

  it("have keys only in their workspaces", async () => {
    const [lab, barn] = [await workspace(), await workspace()];
    const ada = await person(app, caller.org, "developer", { workspace_ids: [lab] });
    expect((await looks(app, ada.key)).body.workspace_id).toBe(lab);
    const make = (body: object, key = owner.key) => app.call(`/v1/orgs/${caller.org}/keys`, body, { key });
    expect((await make({ user_id: ada.userId })).body.workspace_id).toBe(lab);
    const elsewhere = await make({ user_id: ada.userId, workspace_id: barn });
    expect([elsewhere.status, elsewhere.body.error.code]).toEqual([403, "scope_denied"]);
  });

  it("lose keys of workspaces they leave", async () => {
    const [lab, barn] = [await workspace(), await workspace()];
    const ada = await person(app, caller.org, "developer", { workspace_ids: [lab] });
    expect((await change(ada.userId, { workspace_ids: [lab, barn] })).status).toBe(200);
    expect((await looks(other, ada.key)).status).toBe(200);
    expect((await change(ada.userId, { workspace_ids: [barn] })).body.workspace_ids).toEqual([barn]);
    await eventually(async () => expect((await looks(other, ada.key)).status).toBe(401));
  });

  it("cannot be assigned an unknown workspace", async () => {
    const { status, body } = await invite({ email: "w@example.com", role: "viewer", workspace_ids: ["ws_nobody"] });
    expect([status, body.error.param]).toEqual([404, "workspace_ids.0"]);
  });
});

describe("the audit log", () => {
  it("has one record per change of a member", async () => {
    const { org } = await app.caller(0);
    const ada = await person(app, org, "owner");
    const bob = await person(app, org, "viewer");
    await app.call(`${members(org)}/${bob.userId}`, { role: "operator" }, { key: ada.key, method: "PATCH" });
    await app.call(`/v1/orgs/${org}/transfer`, { user_id: bob.userId }, { key: ada.key });
    await app.call(`${members(org)}/${ada.userId}`, undefined, { key: bob.key, method: "DELETE" });
    const acts = await app.sql`
      select actor, action, subject from audit where org_id = ${org} and (action like 'member.%' or action = 'org.transferred') order by seq`;
    expect(acts.map(({ actor, action, subject }) => [actor, action, subject])).toEqual([
      ["admin", "member.invited", ada.userId],
      [ada.userId, "member.joined", ada.userId],
      ["admin", "member.invited", bob.userId],
      [bob.userId, "member.joined", bob.userId],
      [ada.keyId, "member.changed", bob.userId],
      [ada.keyId, "org.transferred", bob.userId],
      [bob.keyId, "member.removed", ada.userId],
    ]);
  });
});
