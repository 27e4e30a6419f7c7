import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { migrate } from "../../src/store/database/migrate.ts";
import { connect } from "../../src/store/database/tx.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";

let database: FreshDatabase;
let directory: string;
beforeEach(async () => {
  database = await freshDatabase({ empty: true });
  directory = mkdtempSync(join(tmpdir(), "limber-test-"));
});
afterEach(async () => {
  await database.close();
  rmSync(directory, { recursive: true });
});

const write = (name: string, text: string): void => writeFileSync(join(directory, name), text);
const steps = async (): Promise<string[]> =>
  (await database.sql<{ name: string }[]>`select name from step order by at`).map((row) => row.name);

/** Three files, each of which needs the one before; written out of order. */
function threeFiles(): string[] {
  write("0003_three.sql", "insert into step (name) values ('three'); alter table step add column more int;");
  write(
    "0001_one.sql",
    "create table step (name text primary key, at int generated always as identity); insert into step values ('one');",
  );
  write("0002_two.sql", "-- with a comment; and a semicolon\ninsert into step (name) values ('two');");
  return ["0001_one.sql", "0002_two.sql", "0003_three.sql"];
}

test("applies files in their order, once, and then only what is new", async () => {
  const names = threeFiles();
  expect(await migrate(database.sql, directory)).toEqual(names);
  expect(await migrate(database.sql, directory)).toEqual([]);
  write("0004_four.sql", "insert into step (name) values ('four')");
  expect(await migrate(database.sql, directory)).toEqual(["0004_four.sql"]);
  expect(await steps()).toEqual(["one", "two", "three", "four"]);
});

test("three replicas at once apply each file once between them", async () => {
  const names = threeFiles();
  const replicas = [1, 2, 3].map(() => connect(database.url, { max: 1 }));
  const applied = await Promise.all(replicas.map((replica) => migrate(replica, directory)));
  expect(applied.flat().sort()).toEqual(names);
  expect(await steps()).toEqual(["one", "two", "three"]);
  await Promise.all(replicas.map((replica) => replica.end()));
});

test("refuses an applied file that has changed, and applies nothing after it", async () => {
  threeFiles();
  await migrate(database.sql, directory);
  write("0002_two.sql", "insert into step (name) values ('too')");
  write("0004_four.sql", "insert into step (name) values ('four')");
  await expect(migrate(database.sql, directory)).rejects.toThrow(
    "Migration 0002_two.sql was applied and has changed since: restore it, and add a new one",
  );
  expect(await steps()).toEqual(["one", "two", "three"]);
});

test("a failing file leaves nothing of itself and everything of those before; mended, it is applied", async () => {
  threeFiles();
  write("0002_two.sql", "insert into step (name) values ('two'); select 1 / 0;");
  await expect(migrate(database.sql, directory)).rejects.toThrow(
    "Migration 0002_two.sql failed and was rolled back: division by zero",
  );
  expect(await steps()).toEqual(["one"]);
  write("0002_two.sql", "insert into step (name) values ('two');");
  expect(await migrate(database.sql, directory)).toEqual(["0002_two.sql", "0003_three.sql"]);
});

test("refuses a new file that would come before an applied one", async () => {
  write("0002_two.sql", "create table step (name text)");
  await migrate(database.sql, directory);
  write("0001_one.sql", "create table other (name text)");
  await expect(migrate(database.sql, directory)).rejects.toThrow("Migration 0001_one.sql comes before 0002_two.sql");
});

test("runs beside a database that newer code has already taken further", async () => {
  threeFiles();
  await migrate(database.sql, directory);
  rmSync(join(directory, "0003_three.sql"));
  expect(await migrate(database.sql, directory)).toEqual([]);
});

test.each([
  { what: "a name without a number", names: ["tables.sql"], says: "must be named like" },
  {
    what: "two files with one number",
    names: ["0001_a.sql", "0001_b.sql"],
    says: "Two migrations have the number 0001",
  },
])("refuses $what before anything is applied", async ({ names, says }) => {
  for (const name of names) write(name, "create table step (name text)");
  await expect(migrate(database.sql, directory)).rejects.toThrow(says);
  expect(await database.sql`select to_regclass('step') as step`).toEqual([{ step: null }]);
});

test("a fresh database has the gateway's tables, and nothing of another test's", async () => {
  const [first, second] = await Promise.all([freshDatabase(), freshDatabase()]);
  await first.sql`create table mine ()`;
  expect(await second.sql`select to_regclass('mine') as mine`).toEqual([{ mine: null }]);
  const tables = (one: FreshDatabase): Promise<unknown> =>
    one.sql`select tablename from pg_tables where schemaname = 'public' and tablename <> 'mine' order by 1`;
  expect(await tables(first)).toEqual(await tables(second));
  await Promise.all([first.close(), second.close()]);
});
