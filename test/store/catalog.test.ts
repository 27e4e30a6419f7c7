import { appendFileSync, cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { createOrg } from "../../src/store/account/orgs.ts";
import { type Catalog, CatalogFault, importCatalog, loadCatalog, NO_CATALOG } from "../../src/store/supply/catalog.ts";
import { addModel, createProvider, type ModelRecord } from "../../src/store/supply/supply.ts";
import { SupplyReader } from "../../src/store/supply/supply-reader.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";

const DATA = join(import.meta.dirname, "..", "..", "data");

let db: FreshDatabase;
let directory: string;
/** Files of the catalog with their first rows alone: most of what an import costs is to read all of them. */
const SHORT = mkdtempSync(join(tmpdir(), "limber-catalog-"));
beforeAll(() => {
  cpSync(DATA, SHORT, { recursive: true });
  for (const name of ["models.jsonl", "scenarios.jsonl", "literature.jsonl"]) {
    const rows = readFileSync(join(SHORT, name), "utf8").split("\n").slice(0, 30);
    writeFileSync(join(SHORT, name), `${rows.join("\n")}\n`);
  }
});
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "limber-catalog-"));
  cpSync(SHORT, directory, { recursive: true });
});
afterEach(() => rmSync(directory, { recursive: true }));
afterAll(() => rmSync(SHORT, { recursive: true }));

const openDatabase = async (): Promise<void> => {
  db = await freshDatabase();
};
const closeDatabase = (): Promise<void> => db.close();

const file = (name: string): string => join(directory, name);
const linesOf = (name: string): string[] => readFileSync(file(name), "utf8").trimEnd().split("\n");
const change = (name: string, line: number, by: (row: Record<string, unknown>) => object | string): void => {
  const lines = linesOf(name);
  const changed = by(JSON.parse(lines[line - 1]!));
  lines[line - 1] = typeof changed === "string" ? changed : JSON.stringify(changed);
  writeFileSync(file(name), `${lines.join("\n")}\n`);
};
const faultOf = async (): Promise<string> => {
  const fault = await importCatalog(db.sql, directory).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!(fault instanceof CatalogFault)) throw new Error(`not refused: ${fault}`);
  return fault.message;
};
const slugs = async (): Promise<string[]> => (await new SupplyReader(db.sql).read()).models.map(({ slug }) => slug);

const served: ModelRecord = {
  slug: "1mather/omnid",
  name: "omnid",
  summary: "What its provider says.",
  limits: "One arm.",
  kind: "policy",
  domain: "embodied",
  family: "",
  tier: "catalog",
  era: "current",
  contracts: ["act"],
  actionSpaces: ["joint_pos_7"],
  embodiments: ["arm"],
  featured: true,
};

/** Makes the model known by an offering of it. */
async function serve(model: ModelRecord): Promise<void> {
  await addModel(db.sql, model);
  const { id: orgId } = await createOrg(db.sql, { name: "partner" });
  const about = { displayName: "", contactEmail: null, homepage: null, regions: [], retainsFrames: false };
  const { id } = await createProvider(db.sql, { orgId, name: "partner", ...about });
  const offering = { id: "off_1", org_id: orgId, provider_id: id, model: model.slug, contracts: ["act"] };
  await db.sql`insert into offering ${db.sql({ ...offering, runtime: "openpi-ws", endpoint: "ws://a", hardware: "cpu" })}`;
}

describe("the catalog import", () => {
  beforeEach(openDatabase);
  afterEach(closeDatabase);

  it("loads every row of the files unchanged, and reports its progress", async () => {
    cpSync(DATA, directory, { recursive: true });
    const told: string[] = [];
    const { version, changed } = await importCatalog(db.sql, directory, (...said) => told.push(said.join(" ")));
    expect([version, changed]).toEqual([expect.stringMatching(/^[0-9a-f]{64}$/), true]);
    expect(told).toContain("models 500 1444");
    const done = told.filter((line) => /^\w+ (\d+) \1$/.test(line)).map((line) => line.split(" ")[0]);
    expect(done).toEqual(["models", "scenarios", "literature"]);

    const catalog = await loadCatalog(db.sql);
    const { models } = await new SupplyReader(db.sql).read();
    const rows = linesOf("models.jsonl").map((line) => JSON.parse(line));
    expect(models.length).toBe(rows.length);
    const bySlug = new Map(models.map((model) => [model.slug, model]));
    for (const row of rows) {
      const { slug, name, kind, domain, family, era, tier, contracts, embodiments, action_spaces, summary, ...facts } =
        row;
      const { servable_candidate: servableCandidate = false, params_b: paramsB = null, ...named } = facts;
      const { owner, year, sources, protocols = [], ...rest } = named;
      expect(bySlug.get(slug)).toMatchObject({ name, kind, domain, family, era, tier, contracts, embodiments });
      expect(bySlug.get(slug)).toMatchObject({ actionSpaces: action_spaces, summary: summary ?? "", featured: false });
      expect(catalog.entries.get(slug)).toMatchObject({
        ...{ owner, year, sources, servableCandidate, paramsB, protocols },
        ...rest,
      });
    }
    expect(catalog.scenarios).toMatchObject(linesOf("scenarios.jsonl").map((line) => JSON.parse(line)));
    expect(catalog.literature).toMatchObject(linesOf("literature.jsonl").map((line) => JSON.parse(line)));
    expect(catalog.taxonomy).toEqual(JSON.parse(readFileSync(file("taxonomy.json"), "utf8")));
    expect(catalog.version).toBe(version);
  });

  it("does nothing the second time, and runs once if many start it concurrently", async () => {
    const all = await Promise.all([1, 2, 3].map(() => importCatalog(db.sql, directory)));
    expect(all.filter(({ changed }) => changed)).toHaveLength(1);
    const [before] = await db.sql`select xmin::text, imported_at from catalog`;
    expect(await importCatalog(db.sql, directory)).toEqual({ version: all[0]!.version, changed: false });
    expect(await db.sql`select xmin::text, imported_at from catalog`).toEqual([before]);
  });

  it("adopts changes, and deletes what was removed", async () => {
    const { version } = await importCatalog(db.sql, directory);
    const [first, ...others] = linesOf("models.jsonl");
    writeFileSync(file("models.jsonl"), `${others.join("\n")}\n`);
    change("models.jsonl", 1, (row) => ({ ...row, name: "Renamed", year: 2001 }));
    change("scenarios.jsonl", 2, (row) => ({ ...row, runnable: false }));
    const again = await importCatalog(db.sql, directory);
    expect(again.changed && again.version !== version).toBe(true);
    const { slug } = JSON.parse(others[0]!);
    const catalog = await loadCatalog(db.sql);
    expect(catalog.entries.get(slug)).toMatchObject({ year: 2001 });
    expect((await new SupplyReader(db.sql).read()).models.find((model) => model.slug === slug)?.name).toBe("Renamed");
    expect(catalog.scenarios[1]?.runnable).toBe(false);
    expect(await slugs()).not.toContain(JSON.parse(first!).slug);
    expect(catalog.entries.size).toBe(others.length);
  });

  it("replaces catalog facts of a served model, and keeps its provider's additions", async () => {
    await serve(served);
    await importCatalog(db.sql, directory);
    const model = (await new SupplyReader(db.sql).read()).models.find(({ slug }) => slug === served.slug);
    expect(model).toMatchObject({ name: "OmniD", family: "manipulation", actionSpaces: [] });
    expect(model).toMatchObject({ summary: served.summary, limits: served.limits, featured: true });
  });

  it("keeps a served model that leaves the catalog, and a model that was never in it", async () => {
    await serve(served);
    await addModel(db.sql, { ...served, slug: "own/model" });
    await importCatalog(db.sql, directory);
    writeFileSync(file("models.jsonl"), `${linesOf("models.jsonl").slice(1).join("\n")}\n`);
    await importCatalog(db.sql, directory);
    expect(await slugs()).toEqual(expect.arrayContaining([served.slug, "own/model"]));
    expect((await loadCatalog(db.sql)).entries.has(served.slug)).toBe(false);
  });

  it("keeps the previous catalog if a row is invalid", async () => {
    await importCatalog(db.sql, directory);
    const before = await loadCatalog(db.sql);
    appendFileSync(file("literature.jsonl"), "oops\n");
    expect(await faultOf()).toBe(`literature.jsonl:${linesOf("literature.jsonl").length}: is not a JSON object`);
    expect(await loadCatalog(db.sql)).toEqual(before);
  });
});

describe("an invalid catalog row", () => {
  // Nothing is written to it.
  beforeAll(openDatabase);
  afterAll(closeDatabase);

  const CASES: readonly [string, string, number, (row: Record<string, unknown>) => object | string, RegExp][] = [
    ["no JSON", "models.jsonl", 17, () => "{", /^models\.jsonl:17: is not a JSON object$/],
    ["no object", "literature.jsonl", 3, () => "[1]", /^literature\.jsonl:3: is not a JSON object$/],
    ["a field missing", "models.jsonl", 2, ({ name, ...row }) => row, /^models\.jsonl:2: name is missing$/],
    [
      "a field too many",
      "models.jsonl",
      9,
      (row) => ({ ...row, stars: 5 }),
      /^models\.jsonl:9: there is no field "stars"$/,
    ],
    [
      "an unknown word",
      "models.jsonl",
      5,
      (row) => ({ ...row, family: "vlaa" }),
      /:5: family must be one of .*vla.*, not "vlaa"$/,
    ],
    [
      "a tier that only supply gives",
      "models.jsonl",
      5,
      (row) => ({ ...row, tier: "servable" }),
      /:5: tier must be one of/,
    ],
    [
      "a list with a bad item",
      "models.jsonl",
      6,
      (row) => ({ ...row, contracts: ["fly"] }),
      /:6: contracts must be a list whose items are one of/,
    ],
    [
      "a list that repeats",
      "models.jsonl",
      6,
      (row) => ({ ...row, embodiments: ["arm", "arm"] }),
      /:6: embodiments must be a list that names nothing twice/,
    ],
    [
      "a year of no time",
      "scenarios.jsonl",
      1,
      (row) => ({ ...row, year: 2025.5 }),
      /^scenarios\.jsonl:1: year must be a whole number/,
    ],
    [
      "null for what is not known",
      "models.jsonl",
      4,
      (row) => ({ ...row, license: null }),
      /:4: license must be a text/,
    ],
    [
      "an address that is none",
      "scenarios.jsonl",
      8,
      (row) => ({ ...row, sources: ["javascript:alert(1)"] }),
      /:8: sources must be a list whose items are written like https/,
    ],
    [
      "a slug that is none",
      "models.jsonl",
      3,
      (row) => ({ ...row, slug: "Owner/Name" }),
      /:3: slug must be written like owner\/name/,
    ],
    [
      "a slug twice",
      "models.jsonl",
      8,
      (row) => ({ ...row, slug: "1mather/omnid" }),
      /:8: slug 1mather\/omnid stands in line 1 already/,
    ],
  ];

  it.each(CASES)(
    "with %s is reported by file and line, and nothing is written",
    async (_, name, line, by, expected) => {
      change(name, line, by);
      expect(await faultOf()).toMatch(expected);
      expect(await slugs()).toEqual([]);
      expect(await loadCatalog(db.sql)).toBe(NO_CATALOG);
    },
  );

  it("hides no other: up to twenty are reported", async () => {
    for (let line = 1; line <= 25; line++) change("models.jsonl", line, (row) => ({ ...row, era: "future" }));
    const lines = (await faultOf()).split("\n");
    expect(lines).toHaveLength(21);
    expect([lines[0], lines.at(-1)]).toEqual([expect.stringContaining("models.jsonl:1: era"), "and 5 more"]);
  });

  it("is reported like a file that is missing, empty or damaged", async () => {
    writeFileSync(file("scenarios.jsonl"), "\n");
    expect(await faultOf()).toBe("scenarios.jsonl: has no rows");
    writeFileSync(file("taxonomy.json"), JSON.stringify({ families: [{ id: "x" }] }));
    expect(await faultOf()).toMatch(/^taxonomy\.json: families\.0: meaning must be a text that is not empty$/m);
    rmSync(file("taxonomy.json"));
    expect(await faultOf()).toBe("taxonomy.json cannot be read: ENOENT");
  });
});

describe("loading the catalog", () => {
  beforeEach(openDatabase);
  afterEach(closeDatabase);

  it("returns the identical catalog while no other was imported", async () => {
    expect(await loadCatalog(db.sql)).toBe(NO_CATALOG);
    await importCatalog(db.sql, directory);
    const catalog: Catalog = await loadCatalog(db.sql);
    expect(catalog.entries.size).toBe(linesOf("models.jsonl").length);
    expect(await loadCatalog(db.sql, catalog)).toBe(catalog);
  });
});
