/** Migrates a database to the current schema: the baseline on an empty database, then migrations. */

import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { Lock } from "./locks.ts";
import { type Sql, type Tx, tx } from "./tx.ts";
import { isOutage, StoreUnavailable } from "./unavailable.ts";

/** SQL that is applied once, in its own transaction. */
interface Migration {
  name: string;
  text: string;
  sha256: string;
}

/** Where the SQL files are. */
export interface SchemaFolders {
  /** The baseline: `NN_subject.sql`, applied together in name order. */
  schema: string;
  /** Migrations after the baseline: `NNNN_what_it_does.sql`. */
  migrations: string;
}

const STORE = join(import.meta.dirname, "..");
const FOLDERS: SchemaFolders = { schema: join(STORE, "schema"), migrations: join(STORE, "migrations") };
/** The baseline's migration name, which sorts before all others. */
const BASELINE = "0000_baseline";
const FILE_NAME = /^\d{4}_[a-z0-9_]+\.sql$/;
const LOCK_WAIT = "120s";

/** The advice for a database that cannot be upgraded. */
const START_ANEW = "can't be upgraded: choose an empty database, or in the embedded default another DATA_DIR";

/**
 * Applies the missing baseline and migrations in order, each in its own transaction. Any number of processes can run it at once. Returns the
 * names of the applied ones. Throws `StoreUnavailable` if the database is from an unreleased version, if an applied file has changed, if a new
 * migration precedes an applied one, or if one fails.
 */
export async function migrate(sql: Sql, folders: SchemaFolders = FOLDERS): Promise<string[]> {
  const migrations = [await readBaseline(folders.schema), ...(await readMigrations(folders.migrations))];
  const applied: string[] = [];
  for (const migration of migrations) {
    try {
      if (await tx(sql, (tx) => apply(tx, migration))) applied.push(migration.name);
    } catch (cause) {
      if (cause instanceof StoreUnavailable) throw cause;
      const why = cause instanceof Error ? cause.message : String(cause);
      throw new StoreUnavailable(`Migration ${migration.name} failed and was rolled back: ${why}`, {
        cause,
        lasting: !isOutage(cause),
      });
    }
  }
  return applied;
}

async function readBaseline(directory: string): Promise<Migration> {
  const names = await sqlFiles(directory);
  const texts = await Promise.all(names.map((name) => readFile(join(directory, name), "utf8")));
  return migrationOf(BASELINE, texts.join("\n"));
}

async function readMigrations(directory: string): Promise<Migration[]> {
  const names = await sqlFiles(directory);
  const misnamed = names.find((name) => !FILE_NAME.test(name) || name.startsWith("0000"));
  if (misnamed)
    throw new StoreUnavailable(`Migration ${misnamed} must be named like 0001_what_it_does.sql`, { lasting: true });
  const twin = names.find((name, at) => name.slice(0, 4) === names[at + 1]?.slice(0, 4));
  if (twin) throw new StoreUnavailable(`Two migrations have the number ${twin.slice(0, 4)}`, { lasting: true });
  return Promise.all(names.map(async (name) => migrationOf(name, await readFile(join(directory, name), "utf8"))));
}

const sqlFiles = async (directory: string): Promise<string[]> =>
  (await readdir(directory)).filter((name) => name.endsWith(".sql")).sort();

const migrationOf = (name: string, text: string): Migration => ({
  name,
  text,
  sha256: createHash("sha256").update(text).digest("hex"),
});

/** Applies one migration unless it is applied already; returns whether it did. */
async function apply(tx: Tx, { name, text, sha256 }: Migration): Promise<boolean> {
  await tx.unsafe(`set local lock_timeout = '${LOCK_WAIT}'; set local statement_timeout = 0`);
  await tx`select pg_advisory_xact_lock(${Lock.MIGRATION})`;
  await tx.unsafe(`create table if not exists schema_migration (
    name text primary key, sha256 text not null, applied_at timestamptz not null default now())`);
  const [row] = await tx<{ sha256: string | null; last: string | null }[]>`
    select (select sha256 from schema_migration where name = ${name}),
      (select max(name) from schema_migration) as last`;
  if (row?.sha256 === sha256) return false;
  const problem = row && problemOf(name, row);
  if (problem) throw new StoreUnavailable(problem, { lasting: true });
  await tx.unsafe(text);
  await tx`insert into schema_migration (name, sha256) values (${name}, ${sha256})`;
  return true;
}

/** Why a migration cannot be applied; `sha256` is the hash of the text applied under its name, `last` the newest name. */
function problemOf(name: string, { sha256, last }: { sha256: string | null; last: string | null }): string | undefined {
  if (name === BASELINE) {
    if (sha256 !== null)
      return `The database was made by an unreleased build of Limber with another baseline schema and ${START_ANEW}`;
    // 0.1.0 had migrations and no baseline.
    return last === null
      ? undefined
      : `The database was made by an unreleased build of Limber 0.1.0, before there was a baseline schema, and ${START_ANEW}`;
  }
  if (sha256 !== null) return `Migration ${name} was applied and has changed since: restore it, and add a new one`;
  if (last !== null && last > name)
    return `Migration ${name} comes before ${last}, which was applied: give it a later number`;
  return undefined;
}
