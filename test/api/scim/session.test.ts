/** Identity providers at work: users come, are sorted into groups, change, and go. */
import { beforeAll, describe, expect, it } from "vitest";
import type { Answer, App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { person } from "../../support/members.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
let other: App;
let caller: Caller;

beforeAll(async () => {
  app = await ownGateway();
  other = await ownGateway({ database: app.database });
  caller = await app.caller(1);
});

const USER = "urn:ietf:params:scim:schemas:core:2.0:User";
const ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";
const PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp";

const scim = (verb: string, path: string, body?: unknown, headers: Record<string, string> = {}, key = caller.key) =>
  app.call(`/v1/scim/v2${path}`, body, {
    key,
    method: verb,
    headers: { ...(body !== undefined && { "content-type": "application/scim+json" }), ...headers },
  });
const patch = (path: string, ...Operations: object[]) => scim("PATCH", path, { schemas: [PATCH], Operations });
const told = ({ status, body }: Answer) => [status, body?.scimType];

let born = 0;
const make = async (more: object = {}): Promise<Answer["body"]> => {
  const userName = `user-${++born}@example.com`;
  const { status, text, body } = await scim("POST", "/Users", { schemas: [USER], userName, ...more });
  if (status !== 201) throw new Error(text);
  return body;
};

describe("a session of an identity provider", () => {
  it("can list, create, push, map and deactivate; the user's keys are refused on every replica within a second", async () => {
    const found = await scim("GET", `/Users?filter=${encodeURIComponent('userName eq "ada@example.com"')}`);
    expect(found.body).toMatchObject({ totalResults: 0, Resources: [] });
    const ada = await scim("POST", "/Users", { schemas: [USER], userName: "ada@example.com", active: true });
    expect(ada.status).toBe(201);
    const { id } = ada.body;
    const group = await scim("PUT", "/Groups/engineering", { displayName: "engineering", members: [{ value: id }] });
    expect([group.status, group.body.members[0].value]).toEqual([200, id]);
    const mapped = await scim("POST", "/Groups/engineering/map", { role: "developer" });
    expect([mapped.status, mapped.body]).toEqual([
      200,
      { id: group.body.id, displayName: "engineering", role: "developer" },
    ]);
    const member = await app.call(`/v1/orgs/${caller.org}/members/${id}`, undefined, { key: caller.key });
    expect(member.body).toMatchObject({ role: "developer", given_role: "viewer", status: "active" });
    const key = await app.key(caller.org, { user_id: id });
    const calls = (gateway: App) => gateway.call("/v1/key", undefined, { key });
    expect((await calls(other)).status).toBe(200);
    expect((await patch(`/Users/${id}`, { op: "replace", path: "active", value: false })).body.active).toBe(false);
    for (const gateway of [app, other])
      await eventually(async () => expect((await calls(gateway)).body.error?.code).toBe("key_disabled"));
    expect((await scim("GET", `/Users/${id}`)).body.active).toBe(false);
    expect((await patch(`/Users/${id}`, { op: "replace", value: { active: true } })).body.active).toBe(true);
    await eventually(async () => expect((await calls(other)).status).toBe(200));
  });

  it("accepts the short form of a deactivation, and booleans as text", async () => {
    const { id } = await make();
    expect((await scim("PATCH", `/Users/${id}`, { active: false })).body.active).toBe(false);
    expect((await patch(`/Users/${id}`, { op: "Replace", path: "active", value: "True" })).body.active).toBe(true);
    expect((await scim("PUT", `/Users/${id}`, { userName: "put@example.com", active: false })).body.active).toBe(false);
    expect((await scim("PUT", `/Users/${id}`, { userName: "put@example.com" })).body.active).toBe(false);
  });
});

describe("users", () => {
  it("are returned as sent, with id, meta, schemas, ETag and location", async () => {
    const body = {
      schemas: [USER, ENTERPRISE],
      userName: "bjensen@example.com",
      externalId: "701984",
      name: { givenName: "Barbara", familyName: "Jensen" },
      displayName: "Babs",
      emails: [
        { value: "bjensen@work.example", type: "work", primary: true },
        { value: "b@home.example", type: "home" },
      ],
      phoneNumbers: [{ value: "555-5555", type: "work" }],
      addresses: [{ type: "work", locality: "Hollywood", country: "USA" }],
      [ENTERPRISE]: { employeeNumber: "17", manager: { value: "26118915" } },
      password: "t1meMa$heen",
      favouriteColour: "green",
    };
    const { status, headers, body: made } = await scim("POST", "/Users", body);
    expect(status).toBe(201);
    expect(headers.get("content-type")).toBe("application/scim+json");
    const { password: _, favouriteColour: __, ...kept } = body;
    expect(made).toEqual({
      ...kept,
      id: expect.stringMatching(/^usr_/),
      active: true,
      meta: {
        resourceType: "User",
        created: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
        lastModified: expect.any(String),
        location: `${app.url}/v1/scim/v2/Users/${made.id}`,
        version: 'W/"1"',
      },
    });
    expect(headers.get("etag")).toBe('W/"1"');
    expect(headers.get("location")).toBe(made.meta.location);
    expect((await scim("GET", `/Users/${made.id}`)).body).toEqual(made);
    const [row] = await app.sql`select row_to_json(member)::text as text from member where id = ${made.id}`;
    expect(row?.text).not.toContain("t1meMa");
  });

  it("accept attribute names in any case", async () => {
    const { status, body } = await scim("POST", "/Users", {
      USERNAME: "case@example.com",
      Name: { GIVENNAME: "Cas" },
      EMAILS: [{ VALUE: "case@example.com" }],
    });
    expect([status, body.userName, body.name.givenName]).toEqual([201, "case@example.com", "Cas"]);
  });

  it("have unique names, ignoring case", async () => {
    const { userName } = await make();
    const again = await scim("POST", "/Users", { userName: userName.toUpperCase() });
    expect(told(again)).toEqual([409, "uniqueness"]);
    const { id } = await make();
    expect(told(await scim("PUT", `/Users/${id}`, { userName }))).toEqual([409, "uniqueness"]);
    expect(told(await patch(`/Users/${id}`, { op: "replace", path: "userName", value: userName }))).toEqual([
      409,
      "uniqueness",
    ]);
  });

  it("require a userName and valid types", async () => {
    for (const body of [
      {},
      { userName: "" },
      { userName: "  " },
      { userName: null },
      { userName: 7.5 },
      { userName: true },
      { userName: ["a"] },
      { userName: "a@x.example", active: "maybe" },
      { userName: "a@x.example", emails: "a@x.example" },
      { userName: "a@x.example", name: "Ada" },
      { userName: "x".repeat(300) },
      { userName: "a\u0000b" },
      [],
    ]) {
      const { status, body: said } = await scim("POST", "/Users", body);
      expect(status, JSON.stringify(body)).toBe(400);
      expect(said.schemas).toEqual(["urn:ietf:params:scim:api:messages:2.0:Error"]);
      expect(said.status).toBe("400");
      expect(typeof said.detail).toBe("string");
    }
    expect(told(await scim("POST", "/Users", "{", {}))).toEqual([400, "invalidSyntax"]);
    expect((await scim("POST", "/Users", "a=b", { "content-type": "text/plain" })).status).toBe(415);
  });

  it("are deleted for good with their keys", async () => {
    const { id } = await make();
    const key = await app.key(caller.org, { user_id: id, role: "viewer" });
    const gone = await scim("DELETE", `/Users/${id}`);
    expect([gone.status, gone.text, gone.headers.get("content-length")]).toEqual([204, "", null]);
    for (const [verb, body] of [["GET"], ["DELETE"], ["PUT", { userName: "x" }], ["PATCH", { active: true }]] as const)
      expect((await scim(verb, `/Users/${id}`, body)).status, verb).toBe(404);
    await eventually(async () => expect((await app.call("/v1/key", undefined, { key })).status).toBe(401));
  });

  it("are the same as members, and the last owner stays", async () => {
    const { org } = await app.caller(0);
    const ada = await person(app, org, "owner");
    const own = (verb: string, body?: unknown) => scim(verb, `/Users/${ada.userId}`, body, {}, ada.key);
    const seen = await own("GET");
    expect(seen.body).toMatchObject({
      userName: ada.email,
      active: true,
      emails: [{ value: ada.email, primary: true }],
    });
    for (const answer of [await own("DELETE"), await own("PATCH", { active: false })])
      expect([answer.status, answer.body.status]).toEqual([409, "409"]);
    const admin = await person(app, org, "admin");
    const byAdmin = await scim("PATCH", `/Users/${ada.userId}`, { active: false }, {}, admin.key);
    expect(byAdmin.status).toBe(403);
  });

  it("return 404 to another organization", async () => {
    const { id } = await make();
    const stranger = await app.caller(0);
    const theirs = await scim("GET", `/Users/${id}`, undefined, {}, stranger.key);
    const nobodys = await scim("GET", "/Users/usr_nobody", undefined, {}, stranger.key);
    expect([theirs.status, theirs.text]).toEqual([404, nobodys.text]);
    const list = await scim("GET", "/Users", undefined, {}, stranger.key);
    expect(list.body.totalResults).toBe(0);
    const pushed = await scim("PUT", "/Groups/spies", { members: [{ value: id }] }, {}, stranger.key);
    expect(told(pushed)).toEqual([400, "invalidValue"]);
  });
});

describe("versions", () => {
  it("are ETags: 304 where nothing changed, 412 where something did", async () => {
    const { id, meta } = await make();
    const same = await scim("GET", `/Users/${id}`, undefined, { "if-none-match": meta.version });
    expect([same.status, same.text, same.headers.get("etag")]).toEqual([304, "", meta.version]);
    const op = { schemas: [PATCH], Operations: [{ op: "replace", path: "displayName", value: "B" }] };
    const changed = await scim("PATCH", `/Users/${id}`, op, { "if-match": meta.version });
    expect([changed.status, changed.body.meta.version]).toEqual([200, changed.headers.get("etag")]);
    expect(changed.body.meta.version).not.toBe(meta.version);
    for (const [verb, body] of [["PATCH", op], ["PUT", { userName: "v@example.com" }], ["DELETE"]] as const) {
      const stale = await scim(verb, `/Users/${id}`, body, { "if-match": meta.version });
      expect([stale.status, stale.body.status], verb).toEqual([412, "412"]);
    }
    expect((await scim("DELETE", `/Users/${id}`, undefined, { "if-match": "*" })).status).toBe(204);
  });

  it("of a user change with the user's groups", async () => {
    const { id, meta } = await make();
    const made = await scim("POST", "/Groups", { displayName: "etags", members: [{ value: id }] });
    const { body } = await scim("GET", `/Users/${id}`, undefined, { "if-none-match": meta.version });
    expect(body.groups).toEqual([
      { value: made.body.id, $ref: `${app.url}/v1/scim/v2/Groups/${made.body.id}`, display: "etags", type: "direct" },
    ]);
  });
});

describe("groups", () => {
  const roleOf = async (id: string) =>
    (await app.call(`/v1/orgs/${caller.org}/members/${id}`, undefined, { key: caller.key })).body.role;

  it("grant the highest of their roles, and nothing once deleted", async () => {
    const { id } = await make();
    const groups = await Promise.all(
      ["g-viewer", "g-operator", "g-admin"].map(async (displayName) => {
        const { body } = await scim("POST", "/Groups", { displayName, members: [{ value: id }] });
        await scim("POST", `/Groups/${body.id}/map`, { role: displayName.slice(2) });
        return body.id as string;
      }),
    );
    expect(await roleOf(id)).toBe("admin");
    await patch(`/Groups/${groups[2]}`, { op: "remove", path: `members[value eq "${id}"]` });
    expect(await roleOf(id)).toBe("operator");
    await scim("POST", `/Groups/${groups[1]}/map`, { role: "" });
    expect(await roleOf(id)).toBe("viewer");
    await patch(`/Groups/${groups[2]}`, { op: "add", path: "members", value: [{ value: id }] });
    expect(await roleOf(id)).toBe("admin");
    expect((await scim("DELETE", `/Groups/${groups[2]}`)).status).toBe(204);
    expect(await roleOf(id)).toBe("viewer");
  });

  it("change their members' keys with the role, on every replica", async () => {
    const { id } = await make();
    const { body } = await scim("PUT", "/Groups/movers", { members: [id] });
    await scim("POST", "/Groups/movers/map", { role: "developer" });
    const key = await app.key(caller.org, { user_id: id });
    await scim("PUT", `/Groups/${body.id}`, { members: [] });
    await eventually(async () => expect((await other.call("/v1/key", undefined, { key })).body.role).toBe("viewer"));
  });

  it("never grant or remove ownership", async () => {
    expect((await scim("POST", "/Groups/kings/map", { role: "owner" })).status).toBe(400);
    const ada = await person(app, caller.org, "owner");
    await scim("PUT", "/Groups/lowly", { members: [{ value: ada.userId }] });
    await scim("POST", "/Groups/lowly/map", { role: "viewer" });
    expect(await roleOf(ada.userId)).toBe("owner");
  });

  it("are replaced by PUT and changed in parts by PATCH", async () => {
    const [a, b, c] = await Promise.all([make(), make(), make()]);
    const { body } = await scim("POST", "/Groups", {
      displayName: "parts",
      externalId: "x1",
      members: [{ value: a.id }],
    });
    const path = `/Groups/${body.id}`;
    const ids = (answer: Answer) => (answer.body.members ?? []).map(({ value }: { value: string }) => value).sort();
    expect(ids(await patch(path, { op: "add", path: "members", value: [{ value: b.id }, { value: a.id }] }))).toEqual(
      [a.id, b.id].sort(),
    );
    expect(ids(await patch(path, { op: "remove", path: "members", value: [{ value: a.id }] }))).toEqual([b.id]);
    expect(ids(await patch(path, { op: "replace", path: "members", value: [{ value: c.id }] }))).toEqual([c.id]);
    const renamed = await patch(path, { op: "replace", value: { id: body.id, displayName: "parts two" } });
    expect([renamed.body.displayName, renamed.body.externalId, ids(renamed)]).toEqual(["parts two", "x1", [c.id]]);
    expect(ids(await patch(path, { op: "remove", path: "members" }))).toEqual([]);
    expect(ids(await scim("PUT", path, { displayName: "parts", members: [{ value: a.id, display: "x" }] }))).toEqual([
      a.id,
    ]);
    expect(told(await scim("POST", "/Groups", { displayName: "PARTS" }))).toEqual([409, "uniqueness"]);
    expect(told(await scim("POST", "/Groups", {}))).toEqual([400, "invalidValue"]);
    expect(told(await patch(path, { op: "add", path: "members", value: [{ value: "usr_nobody" }] }))).toEqual([
      400,
      "invalidValue",
    ]);
    expect((await scim("PUT", "/Groups/grp_01M80526TGMQ1E57VD2PJ4MK4Q", { displayName: "x" })).status).toBe(404);
  });

  it("are recorded once per change", async () => {
    const { org, key } = await app.caller(0);
    const by = (verb: string, path: string, body?: unknown) => scim(verb, path, body, {}, key);
    const { body: user } = await by("POST", "/Users", { userName: "rec@example.com" });
    await by("PUT", "/Groups/team", { members: [{ value: user.id }] });
    await by("POST", "/Groups/team/map", { role: "operator" });
    await by("PATCH", `/Users/${user.id}`, { active: false });
    await by("DELETE", "/Groups/team");
    await by("DELETE", `/Users/${user.id}`);
    const acts = await app.sql`
      select action from audit where org_id = ${org} and (action like 'member.%' or action like 'group.%') order by seq`;
    expect(acts.map(({ action }) => action)).toEqual([
      "member.provisioned",
      "group.pushed",
      "group.mapped",
      "member.updated",
      "group.removed",
      "member.removed",
    ]);
  });
});

describe("discovery", () => {
  it("shows capabilities, resource types and schemas without a key", async () => {
    const open = (path: string) => app.call(`/v1/scim/v2${path}`);
    const config = await open("/ServiceProviderConfig");
    expect(config.headers.get("content-type")).toBe("application/scim+json");
    expect(config.body).toMatchObject({
      patch: { supported: true },
      filter: { supported: true, maxResults: 1000 },
      etag: { supported: true },
      sort: { supported: true },
      bulk: { supported: false, maxOperations: 0, maxPayloadSize: 0 },
    });
    const types = await open("/ResourceTypes");
    expect(
      types.body.Resources.map(({ name, endpoint }: { name: string; endpoint: string }) => [name, endpoint]),
    ).toEqual([
      ["User", "/Users"],
      ["Group", "/Groups"],
    ]);
    const user = await open("/ResourceTypes/User");
    expect(user.body).toMatchObject({ schema: USER, schemaExtensions: [{ schema: ENTERPRISE, required: false }] });
    const schemas = await open("/Schemas");
    expect(schemas.body.totalResults).toBe(3);
    for (const each of schemas.body.Resources) {
      const one = await open(`/Schemas/${each.id}`);
      expect(one.body).toEqual(each);
      expect(each.meta.location).toBe(`${app.url}/v1/scim/v2/Schemas/${each.id}`);
    }
    const names = schemas.body.Resources[0].attributes.map(({ name }: { name: string }) => name);
    expect(names).toContain("userName");
    expect(names).not.toContain("password");
    for (const path of ["/Schemas/urn:nothing", "/ResourceTypes/Robot"]) expect((await open(path)).status).toBe(404);
  });
});
