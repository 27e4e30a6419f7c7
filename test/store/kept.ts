/** A table of numbers in a database of its own, which what is written about transactions looks at. */
import { connect, type Sql, type Tx } from "../../src/store/database/tx.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";

/** The database, between `begin` and `end`. */
export let database: FreshDatabase;
/** Its client. */
export let sql: Sql;

/** Before all tests. */
export async function begin(): Promise<void> {
  database = await freshDatabase({ max: 3, empty: true });
  sql = database.sql;
  await sql`create table kept (n int)`;
}

/** After each test. */
export const endEach = (): Promise<unknown> => sql`truncate kept`;

/** After all tests. */
export const end = (): Promise<void> => database.close();

/** How many numbers were kept. */
export const count = async (): Promise<number> => (await sql<{ n: number }[]>`select count(*) as n from kept`)[0]!.n;

/** Keeps a number. */
export const insert = (into: Sql | Tx, n = 0): Promise<unknown> => into`insert into kept values (${n})`;

/** A client of the same database with one connection for transactions. */
export async function withOneLane<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
  const narrow = connect(database.url, { max: 1 });
  return work(narrow).finally(() => narrow.end());
}
