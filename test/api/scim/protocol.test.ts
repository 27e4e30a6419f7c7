/**
 * What testers of SCIM servers look at, from RFC 7644 itself: each attribute is removed by a PATCH (3.5.2.2), a search by POST does what a
 * query does (3.4.3), and every refusal has SCIM's shape (3.12), at paths that are not there too.
 */
import { beforeAll, describe, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import { openWorld } from "../../support/world.ts";

let app: App;
let caller: Caller;

beforeAll(async () => {
  app = await openWorld();
  caller = await app.caller(1);
});

const scim = (verb: string, path: string, body?: unknown) =>
  app.call(`/v1/scim/v2${path}`, body, {
    key: caller.key,
    method: verb,
    headers: { ...(body !== undefined && { "content-type": "application/scim+json" }) },
  });

const ERROR = "urn:ietf:params:scim:api:messages:2.0:Error";
const SEARCH = "urn:ietf:params:scim:api:messages:2.0:SearchRequest";
const LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse";
const ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";

const VALUES = [{ value: "x@example.com", type: "work", primary: true }];
const WHOLE = {
  externalId: "e",
  name: { familyName: "Lovelace" },
  displayName: "Ada",
  nickName: "a",
  profileUrl: "https://a.example",
  title: "t",
  userType: "u",
  preferredLanguage: "en",
  locale: "en",
  timezone: "UTC",
  emails: VALUES,
  phoneNumbers: [{ value: "tel:+1-201-555-0123" }],
  ims: VALUES,
  photos: [{ value: "https://a.example/p" }],
  addresses: [{ locality: "London" }],
  entitlements: VALUES,
  roles: VALUES,
  [ENTERPRISE]: { employeeNumber: "1", costCenter: "c", organization: "o", division: "d", department: "e" },
};

let born = 0;
const user = async (more: object = {}) =>
  (await scim("POST", "/Users", { userName: `protocol-${++born}@example.com`, ...more })).body;
const group = async (more: object = {}) =>
  (await scim("POST", "/Groups", { displayName: `group ${++born}`, ...more })).body;

describe("a removal by PATCH", () => {
  const remove = async (path: string, attribute: string) => {
    const { body, status } = await scim("PATCH", path, { Operations: [{ op: "remove", path: attribute }] });
    const { body: after } = await scim("GET", path);
    return [status, body[attribute], after[attribute]];
  };

  it("removes every removable attribute of a user", async () => {
    const { id } = await user(WHOLE);
    for (const attribute of Object.keys(WHOLE))
      expect([attribute, await remove(`/Users/${id}`, attribute)]).toEqual([attribute, [200, undefined, undefined]]);
  });

  it("removes every removable attribute of a group", async () => {
    const { id: member } = await user();
    const { id } = await group({ externalId: "e", members: [{ value: member }] });
    for (const attribute of ["externalId", "members"])
      expect([attribute, await remove(`/Groups/${id}`, attribute)]).toEqual([attribute, [200, undefined, undefined]]);
  });

  it("of another attribute keeps a group's externalId", async () => {
    const { id: member } = await user();
    const { id } = await group({ externalId: "stays", members: [{ value: member }] });
    await remove(`/Groups/${id}`, "members");
    expect((await scim("GET", `/Groups/${id}`)).body.externalId).toBe("stays");
  });
});

describe("what is not there", () => {
  it.each([
    ["GET", "/Nonsense"],
    ["POST", "/Nonsense"],
    ["GET", "/Users/a/b/c"],
    ["GET", ""],
    ["DELETE", "/Schemas"],
    ["GET", "/Schemas/nothing"],
    ["GET", "/.search"],
  ])("is refused in SCIM's shape: %s %s", async (verb, path) => {
    const { status, headers, body } = await scim(verb, path, verb === "POST" ? {} : undefined);
    expect([headers.get("content-type"), body.schemas, body.status]).toEqual([
      "application/scim+json",
      [ERROR],
      String(status),
    ]);
    expect([404, 405]).toContain(status);
  });

  it("outside SCIM's paths is refused in the gateway's own format", async () => {
    expect((await app.call("/v1/scim/v2x")).body.error.code).toBe("not_found");
  });
});

describe("a search by POST", () => {
  const search = (path: string, request: object) => scim("POST", `${path}/.search`, { schemas: [SEARCH], ...request });

  it("within a resource type finds the same as a query, with the requested attributes", async () => {
    const { id, userName } = await user({ title: "searched", nickName: "n" });
    const found = await search("/Users", {
      filter: `userName eq "${userName}"`,
      attributes: ["title"],
      startIndex: 1,
      count: 10,
    });
    expect([found.status, found.headers.get("content-type")]).toEqual([200, "application/scim+json"]);
    const schemas = ["urn:ietf:params:scim:schemas:core:2.0:User"];
    expect(found.body).toMatchObject({ schemas: [LIST], totalResults: 1, itemsPerPage: 1, startIndex: 1 });
    expect(found.body.Resources).toEqual([{ schemas, id, title: "searched" }]);
    const without = await search("/Users", { filter: `userName eq "${userName}"`, excludedAttributes: ["nickName"] });
    expect(without.body.Resources[0]).toMatchObject({ id, title: "searched" });
    expect(without.body.Resources[0]).not.toHaveProperty("nickName");

    const made = await group();
    const groups = await search("/Groups", { filter: `displayName eq "${made.displayName}"` });
    expect(groups.body.Resources).toEqual([(await scim("GET", `/Groups/${made.id}`)).body]);
  });

  it("at the root searches both types, by page, and by attributes that only one has", async () => {
    const mark = `mark-${++born}`;
    const people = [await user({ displayName: mark }), await user({ displayName: mark })];
    const made = await group({ displayName: mark, externalId: mark });
    const ids = [...people.map(({ id }) => id).sort(), made.id];
    const filter = `displayName eq "${mark}"`;
    const all = await search("", { filter });
    expect([all.body.totalResults, all.body.Resources.map(({ id }: { id: string }) => id)]).toEqual([3, ids]);
    expect(all.body.Resources[2]).toEqual((await scim("GET", `/Groups/${made.id}`)).body);
    expect(all.body.Resources[0]).toEqual((await scim("GET", `/Users/${ids[0]}`)).body);
    for (const [at, id] of ids.entries()) {
      const { body } = await search("", { filter, startIndex: at + 1, count: 1 });
      expect([body.totalResults, body.startIndex, body.Resources.map((each: { id: string }) => each.id)]).toEqual([
        3,
        at + 1,
        [id],
      ]);
    }
    const named = await search("", { filter: `userName eq "${people[0].userName}"` });
    expect(named.body.Resources.map(({ id }: { id: string }) => id)).toEqual([people[0].id]);
  });

  it("is validated like a query", async () => {
    const { status, body } = await search("", { filter: "nonsense" });
    expect([status, body.schemas, body.scimType]).toEqual([400, [ERROR], "invalidFilter"]);
  });
});
