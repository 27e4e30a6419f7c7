/**
 * One real PostgreSQL for a whole test run, with a database that holds the gateway's tables, for others to be copied
 * from.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { startPostgres } from "../../src/embedded/postgres.ts";
import { migrate } from "../../src/store/database/migrate.ts";
import { connect } from "../../src/store/database/tx.ts";
import { databaseUrl, TEMPLATE } from "./database.ts";

declare module "vitest" {
  export interface ProvidedContext {
    /** Where the run's PostgreSQL is, and why its template could not be made, if it could not. */
    postgres: { url: string; problem: string | undefined };
  }
}

/** Nothing here has to outlive a power cut. */
const CARELESS = { fsync: "off", full_page_writes: "off", synchronous_commit: "off", max_connections: "200" };

/** Starts it before the first test; the returned function ends it after the last. */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const dataDir = mkdtempSync(join(tmpdir(), "limber-test-"));
  const postgres = await startPostgres({ dataDir, settings: CARELESS });
  // Only the tests that need a database have to fail when the tables can't be made.
  const problem = await makeTemplate(postgres.url).then(
    () => undefined,
    (error: unknown) => String(error),
  );
  project.provide("postgres", { url: postgres.url, problem });
  return async () => {
    await postgres.stop();
    rmSync(dataDir, { recursive: true, force: true });
  };
}

async function makeTemplate(url: string): Promise<void> {
  const server = connect(url, { max: 1 });
  await server.unsafe(`create database ${TEMPLATE}`);
  await server.end();
  const template = connect(databaseUrl(url, TEMPLATE), { max: 1 });
  await migrate(template).finally(() => template.end());
}
