/** A database of its own for whoever asks, in the PostgreSQL of the test run. */
import { randomUUID } from "node:crypto";
import { inject } from "vitest";
import { connect, type Sql } from "../../src/store/database/tx.ts";

/** The database that others are copied from. */
export const TEMPLATE = "limber_template";

/** A database that nobody else uses, with the gateway's tables and nothing in them. */
export interface FreshDatabase {
  url: string;
  sql: Sql;
  /** Closes `sql` and drops the database, whoever else is still connected. */
  close(): Promise<void>;
}

/** Databases that a test file has made and not closed yet. */
const open = new Map<string, () => Promise<void>>();

/** Closes the databases that a test file left open; returns their names. */
export async function closeDatabases(): Promise<string[]> {
  const left = [...open];
  for (const [, close] of left) await close();
  return left.map(([name]) => `database ${name}`);
}

/** The address of another database on the server of `url`. */
export function databaseUrl(url: string, name: string): string {
  const address = new URL(url);
  address.pathname = name;
  return address.href;
}

/** Makes a database; `max` is that of its `sql`, an `empty` one has no tables at all, and one that `stays` may outlive its file. */
export async function freshDatabase({ max = 8, empty = false, stays = false } = {}): Promise<FreshDatabase> {
  const { url: server, problem } = inject("postgres");
  if (problem !== undefined && !empty) throw new Error(`No test can have a database: ${problem}`);
  const name = `test_${randomUUID().replaceAll("-", "")}`;
  await command(server, `create database ${name} template ${empty ? "template1" : TEMPLATE} strategy file_copy`);
  const url = databaseUrl(server, name);
  const sql = connect(url, { max });
  const close = async (): Promise<void> => {
    open.delete(name);
    await sql.end();
    await command(server, `drop database ${name} with (force)`);
  };
  if (!stays) open.set(name, close);
  return { url, sql, close };
}

async function command(url: string, statement: string): Promise<void> {
  const server = connect(url, { max: 1 });
  await server.unsafe(statement).finally(() => server.end());
}
