/** What the validators of identity providers ask of a service: the sequences of Microsoft Entra ID and of Okta, as they send them. */
import { beforeAll, describe, expect, it } from "vitest";
import type { Answer, App, Caller } from "../../support/app.ts";
import { openWorld } from "../../support/world.ts";

let app: App;
let caller: Caller;

beforeAll(async () => {
  app = await openWorld();
  caller = await app.caller(0);
});

const USER = "urn:ietf:params:scim:schemas:core:2.0:User";
const GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group";
const ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";
const ERROR = "urn:ietf:params:scim:api:messages:2.0:Error";
const LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse";
const PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp";

const scim = (method: string, path: string, body?: unknown, headers: Record<string, string> = {}) =>
  app.call(`/v1/scim/v2${path}`, body, {
    key: caller.key,
    method,
    headers: { ...(body !== undefined && { "content-type": "application/scim+json; charset=utf-8" }), ...headers },
  });
const patch = (path: string, ...Operations: object[]) => scim("PATCH", path, { schemas: [PATCH], Operations });
const found = (kind: string, filter: string, more = "") =>
  scim("GET", `/${kind}?filter=${encodeURIComponent(filter)}${more}`);
const valuesOf = ({ body }: Answer): string[] => (body.members ?? []).map(({ value }: { value: string }) => value);

/** Everything that says "no" does it in SCIM's own message. */
function expectError({ status, headers, body }: Answer, wanted: number, scimType?: string): void {
  expect([status, body.schemas, body.status, body.scimType]).toEqual([wanted, [ERROR], String(wanted), scimType]);
  expect(headers.get("content-type")).toBe("application/scim+json");
  expect(body.detail.length).toBeGreaterThan(0);
}

describe("Microsoft Entra ID", () => {
  it("searches, creates and finds a user by each name, and creates it only once", async () => {
    const none = await found("Users", 'userName eq "entra@example.com"');
    expect(none.body).toEqual({ schemas: [LIST], totalResults: 0, startIndex: 1, itemsPerPage: 0, Resources: [] });
    const told = {
      schemas: [USER, ENTERPRISE],
      externalId: "entra",
      userName: "entra@example.com",
      active: true,
      displayName: "lennay",
      emails: [{ type: "work", value: "entra@example.com", primary: true }],
      meta: { resourceType: "User" },
      name: { formatted: "Adrienne", familyName: "McG", givenName: "A" },
      roles: [],
    };
    const made = await scim("POST", "/Users", told);
    expect([made.status, made.headers.get("location")]).toEqual([201, made.body.meta.location]);
    for (const filter of ['userName eq "ENTRA@example.com"', 'externalId eq "entra"', `id eq "${made.body.id}"`]) {
      const { body } = await found("Users", filter);
      expect([body.totalResults, body.Resources[0]], filter).toEqual([1, made.body]);
    }
    expectError(await scim("POST", "/Users", told), 409, "uniqueness");
    expectError(await scim("GET", "/Users/00000000-0000-0000-0000-000000000000"), 404);
  });

  it("deactivates a user in every form that it writes", async () => {
    const { id } = (await scim("POST", "/Users", { schemas: [USER], userName: "forms@example.com" })).body;
    const on = { op: "Replace", path: "active", value: true };
    for (const off of [
      { op: "Replace", path: "active", value: "False" },
      { op: "Replace", path: "active", value: "false" },
      { op: "replace", path: "active", value: false },
      { op: "Add", path: "active", value: "False" },
      { op: "Replace", path: "active", value: [{ value: "False" }] },
      { op: "Replace", path: `${USER}:active`, value: "False" },
      { op: "Replace", value: { active: "False" } },
      { op: "replace", value: { active: false } },
      { op: "Replace", value: { [`${USER}:active`]: false } },
    ]) {
      expect((await patch(`/Users/${id}`, on)).body.active, JSON.stringify(off)).toBe(true);
      const { status, body } = await patch(`/Users/${id}`, off);
      expect([status, body.active], JSON.stringify(off)).toEqual([200, false]);
      expect((await found("Users", `id eq "${id}" and active eq false`)).body.totalResults).toBe(1);
    }
  });

  it("changes attributes by dotted names, by the types of their values, and in extensions", async () => {
    const { id } = (await scim("POST", "/Users", { schemas: [USER], userName: "dots@example.com" })).body;
    const { body } = await patch(
      `/Users/${id}`,
      { op: "Add", path: 'emails[type eq "work"].value', value: "work@example.com" },
      { op: "Add", path: 'emails[type eq "work"].primary', value: "True" },
      { op: "Add", path: 'phoneNumbers[type eq "mobile"].value', value: "+1" },
      { op: "Add", path: 'addresses[type eq "work"].streetAddress', value: "Main 1" },
      { op: "Replace", path: 'addresses[type eq "work"].locality', value: "Ghent" },
      { op: "Replace", path: "name.familyName", value: "Doe" },
      { op: "Add", path: `${ENTERPRISE}:department`, value: "bob" },
      { op: "Add", path: `${ENTERPRISE}:manager`, value: id },
      { op: "Add", value: { "name.givenName": "Jo", displayName: "Jo", [`${ENTERPRISE}:costCenter`]: "7" } },
    );
    expect(body).toMatchObject({
      emails: [{ primary: false }, { type: "work", value: "work@example.com", primary: true }],
      phoneNumbers: [{ type: "mobile", value: "+1" }],
      addresses: [{ type: "work", streetAddress: "Main 1", locality: "Ghent" }],
      name: { familyName: "Doe", givenName: "Jo" },
      displayName: "Jo",
      [ENTERPRISE]: { department: "bob", costCenter: "7", manager: { value: id } },
    });
    const manager = await found("Users", `id eq "${id}" and ${ENTERPRISE}:manager eq "${id}"`, "&attributes=id");
    expect(manager.body.Resources).toEqual([{ schemas: [USER, ENTERPRISE], id }]);
    const less = await patch(
      `/Users/${id}`,
      { op: "Remove", path: `${ENTERPRISE}:manager` },
      { op: "Remove", path: 'emails[type eq "work"].primary' },
      { op: "Remove", path: 'phoneNumbers[type eq "mobile"]' },
    );
    expect([less.body[ENTERPRISE].manager, less.body.emails, less.body.phoneNumbers]).toEqual([
      undefined,
      [
        { value: "dots@example.com", primary: false },
        { type: "work", value: "work@example.com" },
      ],
      undefined,
    ]);
    expectError(
      await patch(`/Users/${id}`, { op: "Replace", path: 'emails[type eq "home"].value', value: "x" }),
      400,
      "noTarget",
    );
  });

  it("keeps a group and its members, without reading them all", async () => {
    const users = await Promise.all(
      ["g1", "g2"].map(async (name) => (await scim("POST", "/Users", { schemas: [USER], userName: name })).body.id),
    );
    const [one, two] = users;
    const told = {
      schemas: [GROUP],
      externalId: "8aa1",
      displayName: "entra group",
      meta: { resourceType: "Group" },
      members: [],
    };
    const { body: group } = await scim("POST", "/Groups", told);
    const path = `/Groups/${group.id}`;
    const added = await patch(path, {
      op: "Add",
      path: "members",
      value: [
        { $ref: null, value: one },
        { $ref: null, value: two },
      ],
    });
    expect(valuesOf(added).sort()).toEqual([...users].sort());
    const shown = await scim("GET", `${path}?excludedAttributes=members`);
    expect([shown.status, shown.body.members, shown.body.displayName]).toEqual([200, undefined, "entra group"]);
    const byName = await found("Groups", 'displayName eq "Entra Group"', "&excludedAttributes=members");
    expect([byName.body.totalResults, byName.body.Resources[0]]).toEqual([1, shown.body]);
    for (const [user, count] of [
      [one, 1],
      ["usr_nobody", 0],
    ] as const)
      expect((await found("Groups", `id eq "${group.id}" and members eq "${user}"`)).body.totalResults).toBe(count);
    expect(valuesOf(await patch(path, { op: "Remove", path: "members", value: [{ $ref: null, value: one }] }))).toEqual(
      [two],
    );
    expect(valuesOf(await patch(path, { op: "Add", path: "members", value: [{ value: two }] }))).toEqual([two]);
    expect(valuesOf(await patch(path, { op: "Remove", path: `members[value eq "${two}"]` }))).toEqual([]);
    const renamed = await patch(path, { op: "Replace", path: "displayName", value: "renamed" });
    expect([renamed.status, renamed.body.displayName]).toEqual([200, "renamed"]);
    expectError(await scim("POST", "/Groups", { ...told, displayName: "Renamed" }), 409, "uniqueness");
    expect((await scim("DELETE", path)).status).toBe(204);
    expectError(await scim("GET", path), 404);
  });
});

describe("Okta", () => {
  it("can page beyond the end", async () => {
    const { key } = await app.caller(0);
    const by = (method: string, path: string, body?: unknown) => app.call(`/v1/scim/v2${path}`, body, { key, method });
    for (const at of [1, 2, 3, 4, 5]) await by("POST", "/Users", { userName: `page-${at}@okta.example` });
    const seen: string[] = [];
    for (const [query, start, items] of [
      ["startIndex=1&count=2", 1, 2],
      ["startIndex=3&count=2", 3, 2],
      ["startIndex=5&count=2", 5, 1],
      ["startIndex=6&count=2", 6, 0],
      ["startIndex=0&count=2", 1, 2],
      ["startIndex=-3&count=0", 1, 0],
      ["count=1001", 1, 5],
    ] as const) {
      const { status, body } = await by("GET", `/Users?${query}`);
      expect([status, body.schemas, body.totalResults, body.startIndex, body.itemsPerPage], query).toEqual([
        200,
        [LIST],
        5,
        start,
        items,
      ]);
      if (query.startsWith("startIndex=1") || start === 3 || start === 5)
        seen.push(...body.Resources.map(({ id }: { id: string }) => id));
    }
    expect(new Set(seen).size).toBe(5);
  });

  it("can create, read, replace, deactivate and reactivate a user", async () => {
    const told = {
      schemas: [USER],
      userName: "test.user@okta.example",
      name: { givenName: "Test", familyName: "User" },
      emails: [{ primary: true, value: "test.user@okta.example", type: "work" }],
      displayName: "Test User",
      locale: "en-US",
      externalId: "00ujl29u0le5T6Aj10h7",
      groups: [],
      password: "1mz050nq",
      active: true,
    };
    const none = await found("Users", `userName eq "${told.userName}"`, "&startIndex=1&count=100");
    expect([none.status, none.body.totalResults]).toEqual([200, 0]);
    const made = await scim("POST", "/Users", told);
    expect(made.status).toBe(201);
    expect(made.text).not.toContain("1mz050nq");
    const path = `/Users/${made.body.id}`;
    const replaced = await scim("PUT", path, { ...made.body, name: { givenName: "Other", familyName: "User" } });
    expect([replaced.status, replaced.body.name.givenName]).toEqual([200, "Other"]);
    for (const active of [false, true]) {
      const { status, body } = await patch(path, { op: "replace", value: { active } });
      expect([status, body.active]).toEqual([200, active]);
    }
    expectError(await scim("POST", "/Users", told), 409, "uniqueness");
    expectError(await scim("GET", "/Users/0000000-not-there"), 404);
  });

  it("can push a group completely and in parts", async () => {
    const ids: string[] = [];
    for (const at of [1, 2, 3]) ids.push((await scim("POST", "/Users", { userName: `okta-${at}` })).body.id);
    const [a = "", b = "", c = ""] = ids;
    const { body: group } = await scim("POST", "/Groups", { schemas: [GROUP], displayName: "okta group", members: [] });
    const path = `/Groups/${group.id}`;
    const both = await patch(
      path,
      { op: "remove", path: `members[value eq "${a}"]` },
      { op: "add", path: "members", value: [{ value: b, display: "okta-2" }] },
      { op: "add", path: "members", value: [{ value: c, display: "okta-3" }] },
    );
    expect(valuesOf(both).sort()).toEqual([b, c].sort());
    const renamed = await patch(path, { op: "replace", value: { id: group.id, displayName: "okta renamed" } });
    expect([renamed.body.displayName, valuesOf(renamed).length]).toEqual(["okta renamed", 2]);
    const whole = await patch(path, { op: "replace", path: "members", value: [{ value: a }] });
    expect(valuesOf(whole)).toEqual([a]);
    const put = await scim("PUT", path, {
      schemas: [GROUP],
      id: group.id,
      displayName: "okta renamed",
      members: [{ value: c }],
    });
    expect([put.status, valuesOf(put)]).toEqual([200, [c]]);
  });

  it("can make changes conditional on a version", async () => {
    const { body } = await scim("POST", "/Groups", { schemas: [GROUP], displayName: "versions" });
    const path = `/Groups/${body.id}`;
    const op = { schemas: [PATCH], Operations: [{ op: "replace", path: "displayName", value: "versions two" }] };
    const first = await scim("PATCH", path, op, { "if-match": body.meta.version });
    expect([first.status, first.headers.get("etag")]).toEqual([200, first.body.meta.version]);
    for (const [method, given] of [["PATCH", op], ["PUT", { displayName: "x" }], ["DELETE"]] as const)
      expectError(await scim(method, path, given, { "if-match": body.meta.version }), 412);
    expect((await scim("GET", path, undefined, { "if-none-match": first.body.meta.version })).status).toBe(304);
  });
});
