/** Brings a database to the shape that this code expects. */
import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { type Sql, type Tx, tx } from "./tx.ts";
import { isOutage, StoreUnavailable } from "./unavailable.ts";

interface Migration {
  name: string;
  text: string;
  sha256: string;
}

const MIGRATIONS = join(import.meta.dirname, "..", "migrations");
const FILE_NAME = /^\d{4}_[a-z0-9_]+\.sql$/;
/** Any number, as long as it is the same for every replica and used for nothing else. */
const LOCK = 5_417_116_322;
const LOCK_WAIT = "120s";

/**
 * Applies the files `NNNN_name.sql` of `directory` (the gateway's own when none is given) that the database doesn't
 * have yet, in their order, each in a transaction of its own; any number of processes may do so at once. Returns the
 * names of those it applied. Throws `StoreUnavailable` when an applied file has changed, when a new one would come
 * before an applied one, or when one fails.
 */
export async function migrate(sql: Sql, directory = MIGRATIONS): Promise<string[]> {
  const migrations = await readMigrations(directory);
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

async function readMigrations(directory: string): Promise<Migration[]> {
  const names = (await readdir(directory)).filter((name) => name.endsWith(".sql")).sort();
  const misnamed = names.find((name) => !FILE_NAME.test(name));
  if (misnamed)
    throw new StoreUnavailable(`Migration ${misnamed} must be named like 0001_what_it_does.sql`, { lasting: true });
  const twin = names.find((name, at) => name.slice(0, 4) === names[at + 1]?.slice(0, 4));
  if (twin) throw new StoreUnavailable(`Two migrations have the number ${twin.slice(0, 4)}`, { lasting: true });
  return Promise.all(
    names.map(async (name) => {
      const text = await readFile(join(directory, name), "utf8");
      return { name, text, sha256: createHash("sha256").update(text).digest("hex") };
    }),
  );
}

/** Applies one file, unless that has been done; whether it did. */
async function apply(tx: Tx, { name, text, sha256 }: Migration): Promise<boolean> {
  await tx.unsafe(`set local lock_timeout = '${LOCK_WAIT}'; set local statement_timeout = 0`);
  await tx`select pg_advisory_xact_lock(${LOCK})`;
  await tx.unsafe(`create table if not exists schema_migration (
    name text primary key, sha256 text not null, applied_at timestamptz not null default now())`);
  const [row] = await tx<{ sha256: string | null; last: string | null }[]>`
    select (select sha256 from schema_migration where name = ${name}),
      (select max(name) from schema_migration) as last`;
  if (row?.sha256 === sha256) return false;
  if (row?.sha256)
    throw new StoreUnavailable(`Migration ${name} was applied and has changed since: restore it, and add a new one`, {
      lasting: true,
    });
  if (row?.last && row.last > name)
    throw new StoreUnavailable(
      `Migration ${name} comes before ${row.last}, which was applied: give it a later number`,
      { lasting: true },
    );
  await tx.unsafe(text);
  await tx`insert into schema_migration (name, sha256) values (${name}, ${sha256})`;
  return true;
}
