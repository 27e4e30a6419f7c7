/** Lists of users: filters, sorting, pages, projections; and changes by path. */
import { beforeAll, describe, expect, it } from "vitest";
import { KINDS, matches, parseFilter } from "../../../src/services/scim/attributes.ts";
import type { Answer, App, Caller } from "../../support/app.ts";
import { openWorld } from "../../support/world.ts";

let app: App;
let caller: Caller;
let everyone: Record<string, unknown>[];

const ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";
const scim = (verb: string, path: string, body?: unknown) =>
  app.call(`/v1/scim/v2${path}`, body, { key: caller.key, method: verb });
const listed = (query: Record<string, string>) => scim("GET", `/Users?${new URLSearchParams(query)}`);
const names = ({ body }: Answer): string[] => body.Resources.map(({ userName }: { userName: string }) => userName);

beforeAll(async () => {
  app = await openWorld();
  caller = await app.caller(0);
  for (const user of [
    { userName: "Ada@example.com", externalId: "X-1", title: "Engineer", name: { familyName: "O'Malley" } },
    {
      userName: "bob@example.com",
      externalId: "x-1",
      active: false,
      emails: [{ value: "B@HOME.example", type: "home" }],
    },
    {
      userName: "cyd@example.com",
      displayName: 'Say "hi" \\ $ .* (x)',
      emails: [
        { value: "cyd@work.example", type: "work", primary: true },
        { value: "cyd@home.example", type: "home" },
      ],
    },
    { userName: "dan@other.example", [ENTERPRISE]: { department: "Robots", manager: { value: "26118915" } } },
    { userName: "Ève@example.com", name: { givenName: "Ève" }, nickName: "€100" },
  ])
    expect((await scim("POST", "/Users", user)).status).toBe(201);
  everyone = (await listed({})).body.Resources;
});

/** Filters with how many of the five they find. */
const FILTERS: readonly (readonly [string, number])[] = [
  ['userName eq "ada@EXAMPLE.com"', 1],
  ['USERNAME Eq "Ada@example.com"', 1],
  ['urn:ietf:params:scim:schemas:core:2.0:User:userName sw "b"', 1],
  ['userName ne "ada@example.com"', 4],
  ['userName co "EXAMPLE"', 5],
  ['userName ew ".com"', 4],
  ['userName ew "?com"', 0],
  ['externalId eq "X-1"', 1],
  ["externalId pr", 2],
  ["not (externalId pr)", 3],
  ["active eq false", 1],
  ["active ne true", 1],
  ['name.familyName co "O\'Malley"', 1],
  ["name pr", 2],
  ['emails.type eq "HOME"', 2],
  ['emails co "@work."', 1],
  ['emails[type eq "work" and value co "@home."]', 0],
  ['emails[type eq "home" and value ew "@home.example"]', 2],
  ['emails[not (type eq "work") and value sw "cyd"]', 1],
  ['displayName eq "say \\"hi\\" \\\\ $ .* (X)"', 1],
  ['displayName co ".*"', 1],
  ['displayName ew ".* (x)"', 1],
  ['displayName sw "say \\u0022hi"', 1],
  [`${ENTERPRISE}:department eq "robots"`, 1],
  [`${ENTERPRISE}:manager.value eq "26118915"`, 1],
  [`${ENTERPRISE} pr`, 1],
  ['name.givenName eq "èVE"', 1],
  ['nickName sw "€"', 1],
  ['title pr and userName sw "a" or active eq false', 2],
  ['title pr and (userName sw "a" or active eq false)', 1],
  ['userName gt "c" and userName lt "e"', 2],
  ['meta.created gt "2001-01-01T00:00:00Z"', 5],
  ['meta.lastModified lt "2001-01-01T00:00:00+02:00"', 0],
  ['meta.resourceType eq "User"', 5],
  ['emails pr and emails.type eq "home"', 2],
  ['emails.type eq "home" and emails pr', 2],
  ['emails.type eq "home" and emails.type eq "work" and emails.value sw "cyd"', 1],
  ["not (title pr or externalId pr) and not (active eq false)", 3],
  ['not (not (title pr and userName sw "a"))', 1],
  ['not (title pr and userName sw "b")', 5],
  ['(title pr or emails pr) and (userName sw "a" or userName sw "c")', 2],
  ['displayName ne "a) or (title pr and b" and userName sw "c"', 1],
  ['title eq "a and b" or title eq "Engineer"', 1],
  ['userName eq "ada@example.com"    AND    Title PR', 1],
  [`${ENTERPRISE}:manager eq "26118915"`, 1],
  ["title eq null", 4],
  ["title ne null and id pr", 1],
];

describe("a filter", () => {
  it("matches the same users in the database and in memory", async () => {
    for (const [filter, count] of FILTERS) {
      const answer = await listed({ filter });
      expect(answer.status, `${filter}: ${answer.text}`).toBe(200);
      expect(answer.body.totalResults, filter).toBe(count);
      const tree = parseFilter(KINDS.user, filter);
      expect(names(answer), filter).toEqual(
        everyone.filter((each) => matches(tree, each)).map(({ userName }) => userName),
      );
    }
  });

  it("is refused as invalidFilter if it is malformed, too deep, too long, or names unknown attributes", async () => {
    const deep = (n: number) => `${"(".repeat(n)}userName pr${")".repeat(n)}`;
    for (const filter of [
      "",
      " ",
      "userName",
      "userName eq",
      'userName eq "a',
      "userName eq a",
      "userName eq 'a",
      'emails[type eq "work"].colour eq "x"',
      'emails[type eq "work"].value',
      'active eq "yes"',
      "active eq 1",
      'userName is "a"',
      'eq userName "a"',
      "userName pr pr",
      "userName pr and",
      "and userName pr",
      "userName pr or or userName pr",
      "(userName pr",
      "userName pr)",
      "()",
      "not userName pr",
      "not ()",
      'emails[type eq "work"',
      "emails[]",
      'emails[colour eq "red"]',
      'userName[type eq "x"]',
      'colour eq "red"',
      'name.colour eq "red"',
      'name.familyName.more eq "x"',
      'name eq "x"',
      "active gt true",
      "userName gt null",
      'meta.created gt "yesterday"',
      'userName eq "\\u0000"',
      'userName eq "\\ud800"',
      'userName eq "\\q"',
      "userName; drop table member",
      'urn:nobody:userName eq "x"',
      '__proto__ eq "x"',
      "constructor pr",
      "title np",
      "-g0 pr",
      "(userName pr) and -g0 pr",
      'title eq "-0',
      "title eq -0",
      'not title eq "x"',
      'not emails[type eq "work"]',
      '[type eq "work"]',
      'emails[type eq "work"] emails[type eq "home"]',
      "(userName pr]",
      deep(1000),
      deep(33),
      `${"not (".repeat(500)}userName pr${")".repeat(500)}`,
      Array(300).fill("userName pr").join(" or "),
      `userName eq "${"x".repeat(5000)}"`,
    ]) {
      const { status, body } = await listed({ filter });
      expect([status, body.scimType], filter.slice(0, 80)).toEqual([400, "invalidFilter"]);
    }
    expect((await listed({ filter: deep(32) })).body.totalResults).toBe(5);
  });
});

describe("a list", () => {
  it("is sorted by the given attribute in either order", async () => {
    const sorted = async (sortBy: string, sortOrder = "ascending") => names(await listed({ sortBy, sortOrder }));
    const up = await sorted("userName");
    expect(up.slice(0, 4)).toEqual(["Ada@example.com", "bob@example.com", "cyd@example.com", "dan@other.example"]);
    expect(await sorted("userName", "descending")).toEqual([...up].reverse());
    expect((await sorted("title"))[0]).toBe("Ada@example.com");
    expect(await sorted("emails.value")).toHaveLength(5);
    expect(await sorted("meta.created")).toEqual(everyone.map(({ userName }) => userName));
    expect((await listed({ sortBy: "colour" })).body.scimType).toBe("invalidPath");
    expect((await listed({ sortOrder: "sideways" })).status).toBe(400);
  });

  it("is paged, for any valid numbers", async () => {
    const page = async (query: Record<string, string>) => {
      const { body } = await listed(query);
      return [body.totalResults, body.startIndex, body.itemsPerPage, body.Resources.length];
    };
    expect(await page({ startIndex: "1", count: "2" })).toEqual([5, 1, 2, 2]);
    expect(await page({ startIndex: "5", count: "2" })).toEqual([5, 5, 1, 1]);
    expect(await page({ startIndex: "9", count: "2" })).toEqual([5, 9, 0, 0]);
    expect(await page({ startIndex: "-7", count: "3" })).toEqual([5, 1, 3, 3]);
    expect(await page({ count: "0" })).toEqual([5, 1, 0, 0]);
    expect(await page({ count: "-1" })).toEqual([5, 1, 0, 0]);
    expect(await page({ count: "1000000" })).toEqual([5, 1, 5, 5]);
    for (const query of [{ count: "x" }, { startIndex: "1.5" }, { count: "99999999999" }])
      expect((await listed(query as never)).status, JSON.stringify(query)).toBe(400);
  });

  it("has the requested attributes, and always id and schemas", async () => {
    const filter = 'userName sw "cyd"';
    const only = await listed({ filter, attributes: "emails.value,userName,colour" });
    expect(only.body.Resources).toEqual([
      {
        schemas: expect.any(Array),
        id: expect.any(String),
        userName: "cyd@example.com",
        emails: [{ value: "cyd@work.example" }, { value: "cyd@home.example" }],
      },
    ]);
    const without = await listed({ filter, excludedAttributes: "emails,meta,id,name.familyName" });
    expect(Object.keys(without.body.Resources[0]).sort()).toEqual([
      "active",
      "displayName",
      "id",
      "schemas",
      "userName",
    ]);
  });
});

describe("a change by path", () => {
  const change = (id: string, ...Operations: object[]) => scim("PATCH", `/Users/${id}`, { Operations });
  const fresh = async (): Promise<string> =>
    (await scim("POST", "/Users", { userName: `p${Math.random()}@example.com`, title: "T" })).body.id;

  it("adds, replaces and removes values of every form", async () => {
    const id = await fresh();
    const changed = async (...operations: object[]) => (await change(id, ...operations)).body;
    expect((await changed({ op: "add", path: "name.givenName", value: "A" })).name).toEqual({ givenName: "A" });
    expect((await changed({ op: "replace", path: "name", value: { familyName: "B" } })).name).toEqual({
      givenName: "A",
      familyName: "B",
    });
    const work = { op: "add", path: 'emails[type eq "work"].value', value: "w@x.example" };
    expect((await changed(work)).emails).toContainEqual({ type: "work", value: "w@x.example" });
    const home = { op: "add", path: "emails", value: [{ type: "home", value: "h@x.example", primary: true }] };
    const { emails } = await changed(home);
    expect(emails.filter(({ primary }: { primary?: boolean }) => primary)).toEqual([
      { type: "home", value: "h@x.example", primary: true },
    ]);
    const moved = await changed({ op: "replace", path: 'emails[type eq "work"].value', value: "v@x.example" });
    expect(moved.emails).toContainEqual({ type: "work", value: "v@x.example" });
    expect((await changed({ op: "remove", path: 'emails[type eq "work"]' })).emails).not.toContainEqual(
      expect.objectContaining({ type: "work" }),
    );
    const extended = await changed({ op: "add", path: `${ENTERPRISE}:department`, value: "Arms" });
    expect(extended[ENTERPRISE]).toEqual({ department: "Arms" });
    expect(extended.schemas).toContain(ENTERPRISE);
    const whole = await changed({
      op: "Add",
      value: { "name.familyName": "C", [`${ENTERPRISE}:department`]: "Legs", id: "other", colour: "red" },
    });
    expect([whole.name.familyName, whole[ENTERPRISE].department, whole.id]).toEqual(["C", "Legs", id]);
    const less = await changed({ op: "remove", path: "title" }, { op: "remove", path: ENTERPRISE });
    expect([less.title, less[ENTERPRISE]]).toEqual([undefined, undefined]);
  });

  it("accepts the forms of older Microsoft Entra ID agents", async () => {
    const id = await fresh();
    const { body } = await change(
      id,
      { op: "Add", path: "nickName", value: [{ value: "Babs" }] },
      { op: "Replace", path: "active", value: [{ value: "False" }] },
      { op: "Add", path: `${ENTERPRISE}:manager`, value: [{ $ref: "http://x.example/Users/7", value: "7" }] },
    );
    expect([body?.nickName, body?.active, body?.[ENTERPRISE]?.manager?.value]).toEqual(["Babs", false, "7"]);
  });

  it("changes nothing else", async () => {
    const photos = [{ value: "no address", type: "odd" }];
    const told = { userName: `odd${Math.random()}@example.com`, profileUrl: "neither", photos, title: "T" };
    const { body: made } = await scim("POST", "/Users", told);
    const { body } = await change(made.id, { op: "replace", path: "title", value: "U" });
    expect(body).toEqual({
      ...made,
      title: "U",
      meta: { ...made.meta, version: 'W/"2"', lastModified: expect.any(String) },
    });
    const more = {
      op: "add",
      path: "photos",
      value: [
        { value: "no address", type: "odd" },
        { value: "b", type: "Fax" },
      ],
    };
    const { photos: after } = (await change(made.id, more)).body;
    expect(after).toEqual([...photos, { value: "b", type: "Fax" }]);
  });

  it("selects values in any case, and by text with brackets, quotes and filter keywords", async () => {
    const id = await fresh();
    const odd = 'a "b" and (c or d]';
    await change(id, {
      op: "add",
      path: "emails",
      value: [
        { type: odd, value: "x@x.example" },
        { type: "Work", value: "w" },
      ],
    });
    const path = `emails[type eq ${JSON.stringify(odd.toUpperCase())} or type eq "WORK"].display`;
    const { emails } = (await change(id, { op: "replace", path, value: "D" })).body;
    expect(emails.map(({ display }: { display: string }) => display)).toEqual([undefined, "D", "D"]);
    expect(
      (await change(id, { op: "remove", path: `emails[type eq ${JSON.stringify(odd)}]` })).body.emails,
    ).toHaveLength(2);
  });

  it("is refused with SCIM errors, atomically", async () => {
    const id = await fresh();
    const before = (await scim("GET", `/Users/${id}`)).body;
    const first = { op: "replace", path: "title", value: "changed" };
    for (const [operation, scimType] of [
      [{ op: "replace", path: "colour", value: "red" }, "invalidPath"],
      [{ op: "replace", path: "name.colour", value: "red" }, "invalidPath"],
      [{ op: "replace", path: "emails[", value: "red" }, "invalidPath"],
      [{ op: "replace", path: 'emails[type eq "x"].colour', value: "red" }, "invalidPath"],
      [{ op: "replace", path: 'title[type eq "x"]', value: "red" }, "invalidPath"],
      [{ op: "replace", path: `${"(".repeat(1000)}`, value: "red" }, "invalidPath"],
      [{ op: "replace", path: "__proto__.polluted", value: "red" }, "invalidPath"],
      [{ op: "replace", path: 'emails[type eq "fax"].value', value: "x" }, "noTarget"],
      [{ op: "remove" }, "noTarget"],
      [{ op: "replace", path: "id", value: "x" }, "mutability"],
      [{ op: "add", path: "groups", value: [{ value: "x" }] }, "mutability"],
      [{ op: "replace", path: "meta.version", value: "x" }, "mutability"],
      [{ op: "remove", path: "userName" }, "mutability"],
      [{ op: "replace", path: "userName", value: "" }, "invalidValue"],
      [{ op: "replace", path: "title" }, "invalidValue"],
      [{ op: "replace", path: "title", value: { a: 1 } }, "invalidValue"],
      [{ op: "replace", path: "active", value: "perhaps" }, "invalidValue"],
      [{ op: "replace", value: "x" }, "invalidValue"],
      [{ op: "explode", path: "title", value: "x" }, "invalidSyntax"],
      [{ path: "title", value: "x" }, "invalidSyntax"],
    ] as const) {
      const { status, body } = await change(id, first, operation);
      expect([status, body.scimType], JSON.stringify(operation).slice(0, 90)).toEqual([400, scimType]);
    }
    expect((await change(id)).body.scimType).toBe("invalidSyntax");
    expect((await change(id, ...Array(1001).fill(first))).body.scimType).toBe("invalidSyntax");
    expect((await scim("GET", `/Users/${id}`)).body).toEqual(before);
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  });
});
