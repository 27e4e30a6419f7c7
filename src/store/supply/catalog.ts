/** The catalog of models, scenarios and literature: imported atomically, read as one version. */

import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pause } from "../../slices.ts";
import { Lock } from "../database/locks.ts";
import { type Queryable, type Sql, type Tx, tx } from "../database/tx.ts";
import { emptyRows, reuseIfEqual } from "./supply.ts";

/** Catalog facts of a model that routing does not need. */
export interface CatalogEntry {
  slug: string;
  /** The maker's display name. */
  owner: string;
  year: number;
  servableCandidate: boolean;
  paramsB: number | null;
  license: string | null;
  arxiv: string | null;
  repo: string | null;
  weights: string | null;
  protocols: string[];
  sources: string[];
}

/** One version of the catalog. */
export interface Catalog {
  /** SHA-256 of the files; empty before the first import. */
  readonly version: string;
  readonly entries: ReadonlyMap<string, CatalogEntry>;
  /** By slug. */
  readonly scenarios: readonly ScenarioLine[];
  /** By slug. */
  readonly literature: readonly LiteratureLine[];
  readonly taxonomy: Taxonomy | undefined;
}

/** The result of an import. */
interface Imported {
  readonly version: string;
  /** False if the database already had these files. */
  readonly changed: boolean;
}

/** Receives the progress of an import: `models 500 of 1444`. */
type Progress = (table: string, done: number, of: number) => void;

const BATCH = 500;
/** Rows to process before yielding to the event loop: a complete response can arrive in one turn of it. */
const AT_ONCE = 100;

/**
 * Imports the catalog files in `directory` in one transaction; does nothing if the database already has them. Replaces the catalog facts of
 * known models, keeps what their providers added, and keeps models that left the catalog while they have offerings. Rejects with a
 * `CatalogFault` that names each bad row.
 */
export async function importCatalog(sql: Sql, directory: string, progress: Progress = () => {}): Promise<Imported> {
  const files = await readCatalogFiles(directory);
  const { version } = files;
  if ((await versionOf(sql)) === version) return { version, changed: false };
  const rows = parseCatalog(files);
  const changed = await tx(sql, async (tx) => {
    await tx`select pg_advisory_xact_lock(${Lock.CATALOG})`;
    if ((await versionOf(tx)) === version) return false; // another process was faster
    await replace(tx, rows, progress);
    await tx`
      insert into catalog (version, taxonomy) values (${version}, ${json(rows.taxonomy)}::text::jsonb)
      on conflict (only_one) do update set version = excluded.version, taxonomy = excluded.taxonomy, imported_at = now()`;
    return true;
  });
  return { version, changed };
}

/** Whether a catalog was ever imported. */
export const hasCatalog = async (sql: Queryable): Promise<boolean> => (await versionOf(sql)) !== undefined;

async function versionOf(sql: Queryable): Promise<string | undefined> {
  const [row] = await sql<{ version: string }[]>`select version from catalog`;
  return row?.version;
}

const json = (value: unknown): string => JSON.stringify(value);

async function replace(tx: Tx, rows: CatalogRows, progress: Progress): Promise<void> {
  const slugs = rows.models.map(({ slug }) => slug);
  await inBatches("models", rows.models, progress, (batch) => putModels(tx, batch));
  await tx`
    delete from model using catalog_entry as entry
    where entry.slug = model.slug and not model.slug = any(${slugs}::text[])
      and not exists (select from offering where offering.model = model.slug)`;
  await tx`delete from catalog_entry where not slug = any(${slugs}::text[])`;
  await tx`delete from scenario`;
  await inBatches("scenarios", rows.scenarios, progress, (batch) => putScenarios(tx, batch));
  await tx`delete from literature`;
  await inBatches("literature", rows.literature, progress, (batch) => putLiterature(tx, batch));
}

async function inBatches<T>(
  table: string,
  rows: readonly T[],
  progress: Progress,
  put: (batch: string) => Promise<unknown>,
): Promise<void> {
  for (let done = 0; done < rows.length; ) {
    const batch = rows.slice(done, done + BATCH);
    await put(json(batch));
    done += batch.length;
    progress(table, done, rows.length);
  }
}

async function putModels(tx: Tx, batch: string): Promise<void> {
  await tx`
    insert into model (
      slug, name, summary, kind, domain, family, tier, era, contracts, action_spaces, embodiments
    )
    select slug, name, coalesce(summary, ''), kind, domain, family, tier, era, contracts, action_spaces, embodiments
    from jsonb_to_recordset(${batch}::text::jsonb) as line (
      slug text, name text, summary text, kind text, domain text, family text, tier text, era text,
      contracts text[], action_spaces text[], embodiments text[]
    )
    on conflict (slug) do update set
      name = excluded.name,
      summary = case when excluded.summary = '' then model.summary else excluded.summary end,
      kind = excluded.kind, domain = excluded.domain, family = excluded.family, tier = excluded.tier,
      era = excluded.era, contracts = excluded.contracts, action_spaces = excluded.action_spaces,
      embodiments = excluded.embodiments, declared_by = null`;
  await tx`
    insert into catalog_entry (
      slug, owner, year, servable_candidate, params_b, license, arxiv, repo, weights, protocols, sources
    )
    select slug, owner, year, coalesce(servable_candidate, false), params_b, license, arxiv, repo, weights,
      coalesce(protocols, '{}'), sources
    from jsonb_to_recordset(${batch}::text::jsonb) as line (
      slug text, owner text, year integer, servable_candidate boolean, params_b double precision, license text,
      arxiv text, repo text, weights text, protocols text[], sources text[]
    )
    on conflict (slug) do update set
      owner = excluded.owner, year = excluded.year, servable_candidate = excluded.servable_candidate,
      params_b = excluded.params_b, license = excluded.license, arxiv = excluded.arxiv, repo = excluded.repo,
      weights = excluded.weights, protocols = excluded.protocols, sources = excluded.sources`;
}

const putScenarios = (tx: Tx, batch: string) => tx`
  insert into scenario select * from jsonb_to_recordset(${batch}::text::jsonb) as line (
    slug text, name text, owner text, year integer, target text, topic text, runnable boolean, license text,
    arxiv text, repo text, sources text[]
  )`;

const putLiterature = (tx: Tx, batch: string) => tx`
  insert into literature select * from jsonb_to_recordset(${batch}::text::jsonb) as line (
    slug text, title text, kind text, year integer, domain text, arxiv text, repo text, sources text[]
  )`;

/** The empty catalog, before the first import. */
export const NO_CATALOG: Catalog = {
  version: "",
  entries: new Map(),
  scenarios: [],
  literature: [],
  taxonomy: undefined,
};

/** The current catalog; returns `known` if it is unchanged, and reuses its equal entries. */
export async function loadCatalog(sql: Sql, known: Catalog = NO_CATALOG): Promise<Catalog> {
  if (((await versionOf(sql)) ?? "") === known.version) return known;
  return tx(sql, async (tx) => {
    await tx`set transaction isolation level repeatable read, read only`;
    const [row] = await tx<{ version: string; taxonomy: Taxonomy }[]>`select version, taxonomy from catalog`;
    const entries = new Map<string, CatalogEntry>();
    for await (const batch of tx<CatalogEntry[]>`select * from catalog_entry`.cursor(AT_ONCE)) {
      for (const entry of batch) entries.set(entry.slug, reuseIfEqual(known.entries.get(entry.slug), entry));
      emptyRows(batch);
      await pause();
    }
    return {
      version: row?.version ?? "",
      entries,
      scenarios: await gathered(
        tx<ScenarioLine[]>`select * from scenario order by slug collate "C"`.cursor(AT_ONCE),
        known.scenarios,
      ),
      literature: await gathered(
        tx<LiteratureLine[]>`select * from literature order by slug collate "C"`.cursor(AT_ONCE),
        known.literature,
      ),
      taxonomy: row && reuseIfEqual(known.taxonomy, row.taxonomy),
    };
  });
}

/** All rows in order, reusing unchanged ones. */
async function gathered<T>(batches: AsyncIterable<T[]>, before: readonly T[]): Promise<T[]> {
  const rows: T[] = [];
  for await (const batch of batches) {
    for (const row of batch) rows.push(reuseIfEqual(before[rows.length], row));
    emptyRows(batch);
    await pause();
  }
  return rows;
}

// The catalog's files: one JSON object per line. Every field is checked; every fault names its file and line.

/** A model's line. `null` means unknown. */
interface ModelLine {
  slug: string;
  name: string;
  owner: string;
  year: number;
  kind: string;
  domain: string;
  family: string;
  contracts: string[];
  embodiments: string[];
  action_spaces: string[];
  era: string;
  tier: string;
  servable_candidate: boolean | null;
  params_b: number | null;
  license: string | null;
  arxiv: string | null;
  repo: string | null;
  weights: string | null;
  protocols: string[] | null;
  summary: string | null;
  sources: string[];
}

/** A scenario's line. */
export interface ScenarioLine {
  slug: string;
  name: string;
  owner: string;
  year: number;
  target: string;
  topic: string;
  runnable: boolean;
  license: string | null;
  arxiv: string | null;
  repo: string | null;
  sources: string[];
}

/** A publication's line. */
export interface LiteratureLine {
  slug: string;
  title: string;
  kind: string;
  year: number;
  domain: string;
  arxiv: string | null;
  repo: string | null;
  sources: string[];
}

/** A word of a vocabulary and its meaning. */
interface Term {
  id: string;
  meaning: string;
}

/** The layout of an action space. */
interface SpaceLayout {
  id: string;
  /** Null if each offering declares its own. */
  dims: number | null;
  dims_rule?: string;
  units: string;
  reference?: string;
  fields: { name: string; unit: string; meaning: string }[];
  other_layouts?: { name: string; order: string[]; note: string }[];
  note: string;
}

/** The vocabularies of rows. */
export interface Taxonomy {
  domains: Term[];
  kinds: Term[];
  tiers: Term[];
  contracts: Term[];
  eras: Term[];
  families: Term[];
  embodiments: Term[];
  action_spaces: SpaceLayout[];
  protocols: Term[];
  scenario_topics: string[];
  literature_kinds: Term[];
}

/** The files before their rows are checked. */
interface CatalogFiles {
  /** SHA-256 of all files. */
  readonly version: string;
  readonly texts: Readonly<Record<FileName, string>>;
}

/** The parsed catalog. */
interface CatalogRows {
  models: ModelLine[];
  scenarios: ScenarioLine[];
  literature: LiteratureLine[];
  taxonomy: Taxonomy;
}

type FileName = (typeof FILES)[number];

const FILES = ["models.jsonl", "scenarios.jsonl", "literature.jsonl", "taxonomy.json"] as const;

/** Incremented whenever the same files would be parsed differently. */
const FORMAT = "1";

/** The most reported faults. */
const MOST_FAULTS = 20;

/** A catalog that cannot be imported. The message has one line per fault, with file and line number. */
export class CatalogFault extends Error {
  constructor(faults: readonly string[]) {
    const more = faults.length > MOST_FAULTS ? [`and ${faults.length - MOST_FAULTS} more`] : [];
    super([...faults.slice(0, MOST_FAULTS), ...more].join("\n"));
    this.name = "CatalogFault";
  }
}

/** Reads the files of `directory`. Rejects with a `CatalogFault` that names the unreadable one. */
async function readCatalogFiles(directory: string): Promise<CatalogFiles> {
  const hash = createHash("sha256").update(FORMAT);
  const texts = {} as Record<FileName, string>; // whole after the loop
  for (const name of FILES) {
    const bytes = await readFile(join(directory, name)).catch((cause: NodeJS.ErrnoException) => {
      throw new CatalogFault([`${name} cannot be read: ${cause.code ?? cause.message}`]);
    });
    hash.update(`\n${name} ${bytes.length}\n`).update(bytes);
    texts[name] = bytes.toString("utf8");
  }
  return { version: hash.digest("hex"), texts };
}

/** Parses the rows of the files. Throws a `CatalogFault` with all faults. */
function parseCatalog({ texts }: CatalogFiles): CatalogRows {
  const faults: string[] = [];
  const taxonomy = parseTaxonomy(texts["taxonomy.json"]);
  const words = vocabularies(taxonomy);
  const rows = {
    // Sound: `parseLines` checks every field of a row.
    models: parseLines("models.jsonl", texts, modelFields(words), faults) as unknown as ModelLine[],
    scenarios: parseLines("scenarios.jsonl", texts, scenarioFields(words), faults) as unknown as ScenarioLine[],
    literature: parseLines("literature.jsonl", texts, LITERATURE_FIELDS, faults) as unknown as LiteratureLine[],
  };
  if (faults.length > 0) throw new CatalogFault(faults);
  return { ...rows, taxonomy };
}

/** Checks a field. Returns undefined if it is valid, else the rest of the sentence "<field> must be …". */
type CatalogCheck = (value: unknown) => string | undefined;

/** The fields of a row; those in `optional` can be absent and are then null. */
interface CatalogFields {
  readonly required: Readonly<Record<string, CatalogCheck>>;
  readonly optional: Readonly<Record<string, CatalogCheck>>;
}

const isText = (value: unknown): value is string => typeof value === "string" && value.trim() !== "";
const text: CatalogCheck = (value) => (isText(value) ? undefined : "a text that is not empty");
const flag: CatalogCheck = (value) => (typeof value === "boolean" ? undefined : "true or false");
const year: CatalogCheck = (value) =>
  Number.isInteger(value) && Number(value) >= 1900 && Number(value) <= 2100
    ? undefined
    : "a whole number of 1900 to 2100";
const amount: CatalogCheck = (value) => (typeof value === "number" && value > 0 ? undefined : "a number above 0");
const matching =
  (pattern: RegExp, like: string): CatalogCheck =>
  (value) =>
    isText(value) && pattern.test(value) ? undefined : `written like ${like}`;
const oneOf =
  (words: readonly string[]): CatalogCheck =>
  (value) =>
    isText(value) && words.includes(value) ? undefined : `one of ${words.join(", ")}`;
const listOf =
  (check: CatalogCheck, least = 0): CatalogCheck =>
  (value) => {
    if (!Array.isArray(value) || value.length < least) return `a list${least > 0 ? ` of at least ${least}` : ""}`;
    const bad = value.map(check).find((fault) => fault !== undefined);
    if (bad !== undefined) return `a list whose items are ${bad}`;
    return new Set(value).size < value.length ? "a list that names nothing twice" : undefined;
  };

const SLUG = matching(/^[a-z0-9][a-z0-9._-]*\/[a-z0-9][a-z0-9._-]*$/, "owner/name in lower case");
const ADDRESS = matching(/^https:\/\/\S+$/, "https://…");
const ARXIV = matching(/^\d{4}\.\d{4,5}$|^[a-z-]+\/\d{7}$/, "2401.01234");

/** Closed vocabularies, which are enums in the schema. */
const DOMAINS = ["embodied", "driving", "game", "science", "general"];
const KINDS = ["world-model", "policy", "reasoning"];
const CONTRACTS = ["predict", "act", "ground", "evaluate"];
const BODIES = ["arm", "humanoid", "quadruped", "mobile-base", "vehicle", "virtual-agent", "agnostic", "none"];
const ERAS = ["current", "classic"];
/** Excludes `servable`, which results from live supply and is never a catalog fact. */
const TIERS = ["integration", "catalog"];
const LITERATURE_KINDS = ["survey", "position", "theory", "tutorial"];

/** Open vocabularies, which the catalog's taxonomy lists. */
type CatalogWords = Readonly<Record<"families" | "spaces" | "protocols" | "topics", readonly string[]>>;

const modelFields = ({ families, spaces, protocols }: CatalogWords): CatalogFields => ({
  required: {
    slug: SLUG,
    name: text,
    owner: text,
    year,
    kind: oneOf(KINDS),
    domain: oneOf(DOMAINS),
    family: oneOf(families),
    contracts: listOf(oneOf(CONTRACTS)),
    embodiments: listOf(oneOf(BODIES)),
    action_spaces: listOf(oneOf(spaces)),
    era: oneOf(ERAS),
    tier: oneOf(TIERS),
    sources: listOf(ADDRESS, 1),
  },
  optional: {
    servable_candidate: flag,
    params_b: amount,
    license: text,
    arxiv: ARXIV,
    repo: ADDRESS,
    weights: text,
    protocols: listOf(oneOf(protocols)),
    summary: text,
  },
});

const scenarioFields = ({ topics }: CatalogWords): CatalogFields => ({
  required: {
    slug: SLUG,
    name: text,
    owner: text,
    year,
    target: oneOf(DOMAINS),
    topic: oneOf(topics),
    runnable: flag,
    sources: listOf(ADDRESS, 1),
  },
  optional: { license: text, arxiv: ARXIV, repo: ADDRESS },
});

const LITERATURE_FIELDS: CatalogFields = {
  required: {
    slug: matching(/^[a-z0-9][a-z0-9._-]*$/, "a-title in lower case"),
    title: text,
    kind: oneOf(LITERATURE_KINDS),
    year,
    domain: oneOf(DOMAINS),
    sources: listOf(ADDRESS, 1),
  },
  optional: { arxiv: ARXIV, repo: ADDRESS },
};

type CatalogRow = Record<string, unknown>;

function parseLines(
  name: FileName,
  texts: CatalogFiles["texts"],
  fields: CatalogFields,
  faults: string[],
): CatalogRow[] {
  const lineOfSlug = new Map<unknown, number>();
  const rows: CatalogRow[] = [];
  for (const [index, line] of texts[name].split("\n").entries()) {
    if (line.trim() === "") continue;
    const number = index + 1;
    const row = jsonOf(line);
    const wrong = isObject(row) ? faultsOf(row, fields) : ["is not a JSON object"];
    faults.push(...wrong.map((fault) => `${name}:${number}: ${fault}`));
    if (!isObject(row)) continue;
    const before = lineOfSlug.get(row.slug);
    if (before !== undefined) faults.push(`${name}:${number}: slug ${row.slug} stands in line ${before} already`);
    lineOfSlug.set(row.slug, number);
    rows.push({ ...nothingKnown(fields), ...row });
  }
  if (rows.length === 0) faults.push(`${name}: has no rows`);
  return rows;
}

function faultsOf(row: CatalogRow, { required, optional }: CatalogFields): string[] {
  const faults: string[] = [];
  for (const [field, check] of Object.entries({ ...required, ...optional })) {
    if (!Object.hasOwn(row, field)) {
      if (field in required) faults.push(`${field} is missing`);
      continue;
    }
    const expected = check(row[field]);
    if (expected !== undefined) faults.push(`${field} must be ${expected}, not ${shown(row[field])}`);
  }
  for (const field of Object.keys(row)) {
    if (!(field in required) && !(field in optional)) faults.push(`there is no field ${shown(field)}`);
  }
  return faults;
}

const nothingKnown = ({ optional }: CatalogFields): CatalogRow =>
  Object.fromEntries(Object.keys(optional).map((field) => [field, null]));

const shown = (value: unknown): string => JSON.stringify(value).slice(0, 80);

const isObject = (value: unknown): value is CatalogRow =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const term = { id: text, meaning: text };
const VOCABULARIES = [
  "domains",
  "kinds",
  "tiers",
  "contracts",
  "eras",
  "families",
  "embodiments",
  "protocols",
  "literature_kinds",
];

function parseTaxonomy(file: string): Taxonomy {
  const given = jsonOf(file);
  if (!isObject(given)) throw new CatalogFault(["taxonomy.json: is not a JSON object"]);
  const faults = VOCABULARIES.flatMap((name) => listFaults(given, name, (item) => fieldFaults(item, term)));
  faults.push(...listFaults(given, "action_spaces", spaceFaults));
  const topics = listOf(text, 1)(given.scenario_topics);
  if (topics !== undefined) faults.push(`scenario_topics must be ${topics}`);
  if (faults.length > 0) throw new CatalogFault(faults.map((fault) => `taxonomy.json: ${fault}`));
  return given as unknown as Taxonomy; // every list was checked
}

function listFaults(taxonomy: CatalogRow, name: string, faultsIn: (item: CatalogRow) => string[]): string[] {
  const list = taxonomy[name];
  if (!Array.isArray(list) || list.length === 0) return [`${name} must be a list of at least 1`];
  return list.flatMap((item, index) =>
    (isObject(item) ? faultsIn(item) : ["must be an object"]).map((fault) => `${name}.${index}: ${fault}`),
  );
}

const fieldFaults = (item: CatalogRow, checks: Readonly<Record<string, CatalogCheck>>): string[] =>
  Object.entries(checks).flatMap(([field, check]) => {
    const expected = check(item[field]);
    return expected === undefined ? [] : [`${field} must be ${expected}`];
  });

const spaceFaults = (space: CatalogRow): string[] => [
  ...fieldFaults(space, {
    id: text,
    units: text,
    note: text,
    dims: (value) => (value === null || Number.isInteger(value) ? undefined : "a whole number or null"),
    fields: (value) => (Array.isArray(value) && value.length > 0 ? undefined : "a list of at least 1"),
  }),
  ...(Array.isArray(space.fields) ? space.fields : []).flatMap((field) =>
    fieldFaults(isObject(field) ? field : {}, { name: text, unit: text, meaning: text }),
  ),
  ...(Array.isArray(space.other_layouts) ? space.other_layouts : []).flatMap((layout) =>
    fieldFaults(isObject(layout) ? layout : {}, { name: text, order: listOf(text, 1), note: text }),
  ),
];

const vocabularies = ({ families, action_spaces, protocols, scenario_topics }: Taxonomy): CatalogWords => ({
  families: families.map(({ id }) => id),
  spaces: action_spaces.map(({ id }) => id),
  protocols: protocols.map(({ id }) => id),
  topics: scenario_topics,
});
