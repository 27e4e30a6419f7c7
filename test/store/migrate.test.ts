import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { migrate, type SchemaFolders } from "../../src/store/database/migrate.ts";
import { connect } from "../../src/store/database/tx.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { brokenInvariants } from "../support/invariants.ts";

let database: FreshDatabase;
let directory: string;
let folders: SchemaFolders;
beforeEach(async () => {
  database = await freshDatabase({ empty: true });
  directory = mkdtempSync(join(tmpdir(), "limber-test-"));
  folders = { schema: join(directory, "schema"), migrations: join(directory, "migrations") };
  for (const folder of [folders.schema, folders.migrations]) mkdirSync(folder);
});
afterEach(async () => {
  await database.close();
  rmSync(directory, { recursive: true });
});

/** Writes a file of the baseline (`NN_subject.sql`) or a migration. */
const write = (name: string, text: string): void =>
  writeFileSync(join(/^\d\d_/.test(name) ? folders.schema : folders.migrations, name), text);
const steps = async (): Promise<string[]> =>
  (await database.sql<{ name: string }[]>`select name from step order by at`).map((row) => row.name);

const BASELINE = "0000_baseline";

/** A baseline of two files and two migrations, each of which needs the one before; written out of order. */
function fourFiles(): string[] {
  write("0002_four.sql", "insert into step (name) values ('four'); alter table step add column more int;");
  write("02_rows.sql", "insert into step (name) values ('two');");
  write(
    "01_tables.sql",
    "create table step (name text primary key, at int generated always as identity); insert into step values ('one');",
  );
  write("0001_three.sql", "-- with a comment; and a semicolon\ninsert into step (name) values ('three');");
  return [BASELINE, "0001_three.sql", "0002_four.sql"];
}

test("the migrator applies the baseline and the migrations in order, once, and later only new ones", async () => {
  const names = fourFiles();
  expect(await migrate(database.sql, folders)).toEqual(names);
  expect(await migrate(database.sql, folders)).toEqual([]);
  write("0003_five.sql", "insert into step (name) values ('five')");
  expect(await migrate(database.sql, folders)).toEqual(["0003_five.sql"]);
  expect(await steps()).toEqual(["one", "two", "three", "four", "five"]);
});

test("three replicas at once apply each migration once", async () => {
  const names = fourFiles();
  const replicas = [1, 2, 3].map(() => connect(database.url, { max: 1 }));
  const applied = await Promise.all(replicas.map((replica) => migrate(replica, folders)));
  expect(applied.flat().sort()).toEqual(names);
  expect(await steps()).toEqual(["one", "two", "three", "four"]);
  await Promise.all(replicas.map((replica) => replica.end()));
});

test("the migrator refuses a changed applied file, and applies nothing after it", async () => {
  fourFiles();
  await migrate(database.sql, folders);
  write("0001_three.sql", "insert into step (name) values ('tree')");
  write("0003_five.sql", "insert into step (name) values ('five')");
  await expect(migrate(database.sql, folders)).rejects.toThrow(
    "Migration 0001_three.sql was applied and has changed since: restore it, and add a new one",
  );
  expect(await steps()).toEqual(["one", "two", "three", "four"]);
});

test("a failed migration is rolled back and earlier ones are kept; a fixed one is applied", async () => {
  fourFiles();
  write("0001_three.sql", "insert into step (name) values ('three'); select 1 / 0;");
  await expect(migrate(database.sql, folders)).rejects.toThrow(
    "Migration 0001_three.sql failed and was rolled back: division by zero",
  );
  expect(await steps()).toEqual(["one", "two"]);
  write("0001_three.sql", "insert into step (name) values ('three');");
  expect(await migrate(database.sql, folders)).toEqual(["0001_three.sql", "0002_four.sql"]);
});

test("a baseline that fails in its last file is rolled back completely", async () => {
  fourFiles();
  write("02_rows.sql", "select 1 / 0;");
  await expect(migrate(database.sql, folders)).rejects.toThrow(
    "Migration 0000_baseline failed and was rolled back: division by zero",
  );
  expect(await database.sql`select to_regclass('step') as step`).toEqual([{ step: null }]);
});

test("the migrator refuses a new file that sorts before an applied one", async () => {
  write("0002_two.sql", "create table step (name text)");
  await migrate(database.sql, folders);
  write("0001_one.sql", "create table other (name text)");
  await expect(migrate(database.sql, folders)).rejects.toThrow("Migration 0001_one.sql comes before 0002_two.sql");
});

test("the gateway runs with a database that a newer version has migrated", async () => {
  fourFiles();
  await migrate(database.sql, folders);
  rmSync(join(folders.migrations, "0002_four.sql"));
  expect(await migrate(database.sql, folders)).toEqual([]);
});

describe("a database of an unreleased version is refused in one sentence, and left unchanged:", () => {
  const ANEW = "can't be upgraded: choose an empty database, or in the embedded default another DATA_DIR";

  test("one of 0.1.0, with migrations and no baseline", async () => {
    await database.sql`
      create table schema_migration (name text primary key, sha256 text not null, applied_at timestamptz not null default now())`;
    await database.sql`insert into schema_migration values ('0001_accounts.sql', 'a'), ('0065_zero_retention.sql', 'b')`;
    await database.sql`create table org (id text primary key)`;
    await expect(migrate(database.sql)).rejects.toMatchObject({
      message: `The database was made by an unreleased build of Limber 0.1.0, before there was a baseline schema, and ${ANEW}`,
      lasting: true,
    });
    expect(await database.sql`select tablename from pg_tables where schemaname = 'public' order by 1`).toEqual([
      { tablename: "org" },
      { tablename: "schema_migration" },
    ]);
  });

  test("one with another baseline", async () => {
    fourFiles();
    await migrate(database.sql, folders);
    write("02_rows.sql", "insert into step (name) values ('too')");
    await expect(migrate(database.sql, folders)).rejects.toMatchObject({
      message: `The database was made by an unreleased build of Limber with another baseline schema and ${ANEW}`,
      lasting: true,
    });
    expect(await steps()).toEqual(["one", "two", "three", "four"]);
  });
});

test("a later migration finds the rows written under the baseline, and keeps every balance", async () => {
  expect(await migrate(database.sql)).toEqual([BASELINE]);
  const { sql } = database;
  await sql`insert into org (id, name) values ('org_1', 'one')`;
  await sql`insert into account (org_id, granted_micro, available_micro, requests) values ('org_1', 5000, 3400, 1)`;
  await sql`insert into transfer (cause, kind, org_id, debit, credit, amount_micro) values
    ('grant_1', 'grant', 'org_1', 'granted', 'available', 5000), ('entry_1', 'lease', 'org_1', 'available', 'lease_1', 1600)`;
  await sql`insert into key_day (key_id, day, org_id, taken_micro) values ('key_1', '2026-01-01', 'org_1', 1600)`;
  await sql`
    insert into request_outcome (kind, org_id, request_id, units, cost_micro, lease)
    select kind, 'org_1', 'req_1', 16, 1600, 'lease_1' from unnest(request_kinds(
      array['key_1', 'settled', 'act', 'm', 'p', 'o', 'action_step', '0', null, 'false', 'false', '200', null, null])) as kind`;
  const requests = () => sql`select to_jsonb(request) - 'purpose' as row from request`;
  const before = await requests();
  write(
    "0001_purpose_of_requests.sql",
    `alter table request_kind add column purpose text not null default '';
     create or replace view request as
       select e.org_id, e.request_id, k.key_id, k.status, k.contract, k.model, k.provider, k.offering_id, k.unit, e.units, e.cost_micro,
         k.wake_up_micro, k.hedge_cost_micro, k.simulated, k.http_status, k.error_code, e.latency_ms, l.log, e.created, k.byok, e.lease,
         l.attempt_ms, l.queue_ms, l.input_bytes, l.session_id, l.robot_id, k.batch_id, k.purpose
       from request_outcome as e join request_kind as k on k.id = e.kind left join request_log as l using (org_id, request_id);`,
  );
  const next = { schema: join(import.meta.dirname, "../../src/store/schema"), migrations: folders.migrations };
  expect(await migrate(sql, next)).toEqual(["0001_purpose_of_requests.sql"]);
  expect(await requests()).toEqual(before);
  expect(await sql`select purpose from request`).toEqual([{ purpose: "" }]);
  expect(await brokenInvariants(sql)).toEqual([]);
  expect(await migrate(sql, next)).toEqual([]);
});

test.each([
  { what: "a name without a number", names: ["tables.sql"], says: "must be named like" },
  {
    what: "two files with one number",
    names: ["0001_a.sql", "0001_b.sql"],
    says: "Two migrations have the number 0001",
  },
])("the migrator refuses $what before it applies anything", async ({ names, says }) => {
  for (const name of names) write(name, "create table step (name text)");
  await expect(migrate(database.sql, folders)).rejects.toThrow(says);
  expect(await database.sql`select to_regclass('step') as step`).toEqual([{ step: null }]);
});

test("a fresh database has the gateway's tables, and none of another test's", async () => {
  const [first, second] = await Promise.all([freshDatabase(), freshDatabase()]);
  await first.sql`create table mine ()`;
  expect(await second.sql`select to_regclass('mine') as mine`).toEqual([{ mine: null }]);
  const tables = (one: FreshDatabase): Promise<unknown> =>
    one.sql`select tablename from pg_tables where schemaname = 'public' and tablename <> 'mine' order by 1`;
  expect(await tables(first)).toEqual(await tables(second));
  await Promise.all([first.close(), second.close()]);
});
