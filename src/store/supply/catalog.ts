/** The catalog of models, scenarios and literature: imported whole or not at all, read back as one. */
import { pause } from "../../slices.ts";
import { type Queryable, type Sql, type Tx, tx } from "../database/tx.ts";
import { asBefore, letGo } from "./as-before.ts";
import {
  type CatalogRows,
  type LiteratureLine,
  parseCatalog,
  readCatalogFiles,
  type ScenarioLine,
  type Taxonomy,
} from "./catalog-files.ts";

export { CatalogFault, type LiteratureLine, type ScenarioLine, type Taxonomy } from "./catalog-files.ts";

/** What the catalog knows of a model beyond what routing needs. */
export interface CatalogEntry {
  slug: string;
  /** The maker's name as people write it. */
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

/** The catalog as of one import. */
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

/** What an import did. */
export interface Imported {
  readonly version: string;
  /** False when the database had these very files already. */
  readonly changed: boolean;
}

/** Told how far an import is: `models 500 of 1444`. */
export type Progress = (table: string, done: number, of: number) => void;

/** Any number, as long as it is the same for every replica and used for nothing else. */
const LOCK = 5_417_116_323;
const BATCH = 500;
/** Rows that are read between two looks at the event loop: a whole answer may come in one turn of it. */
const AT_ONCE = 100;

/**
 * Makes the database's catalog that of the files in `directory`, in one transaction; nothing is done where it is that
 * already. Catalog facts of known models are replaced, what their providers say beyond them stays, and a model that
 * left the catalog stays while it has offerings. Rejects with a `CatalogFault` that names each bad row.
 */
export async function importCatalog(sql: Sql, directory: string, progress: Progress = () => {}): Promise<Imported> {
  const files = await readCatalogFiles(directory);
  const { version } = files;
  if ((await versionOf(sql)) === version) return { version, changed: false };
  const rows = parseCatalog(files);
  const changed = await tx(sql, async (tx) => {
    await tx`select pg_advisory_xact_lock(${LOCK})`;
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

/** The catalog of a database that none was imported to. */
export const NO_CATALOG: Catalog = {
  version: "",
  entries: new Map(),
  scenarios: [],
  literature: [],
  taxonomy: undefined,
};

/** The catalog that the database has now; `known` itself where it is still that one, and an entry of it that says the same. */
export async function loadCatalog(sql: Sql, known: Catalog = NO_CATALOG): Promise<Catalog> {
  if (((await versionOf(sql)) ?? "") === known.version) return known;
  return tx(sql, async (tx) => {
    await tx`set transaction isolation level repeatable read, read only`;
    const [row] = await tx<{ version: string; taxonomy: Taxonomy }[]>`select version, taxonomy from catalog`;
    const entries = new Map<string, CatalogEntry>();
    for await (const batch of tx<CatalogEntry[]>`select * from catalog_entry`.cursor(AT_ONCE)) {
      for (const entry of batch) entries.set(entry.slug, asBefore(known.entries.get(entry.slug), entry));
      letGo(batch);
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
      taxonomy: row && asBefore(known.taxonomy, row.taxonomy),
    };
  });
}

/** All rows in their order; one that says what the row of its place said before is that. */
async function gathered<T>(batches: AsyncIterable<T[]>, before: readonly T[]): Promise<T[]> {
  const rows: T[] = [];
  for await (const batch of batches) {
    for (const row of batch) rows.push(asBefore(before[rows.length], row));
    letGo(batch);
    await pause();
  }
  return rows;
}
