/** Processes that own an embedded PostgreSQL, and what a test needs to look at them. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { connect, type Sql } from "../../src/store/database/tx.ts";

/** Who runs the tests, and where. */
export const ROOT = process.getuid?.() === 0;
export const LINUX = process.platform === "linux";
/** Two users that every Linux has. */
export const NOBODY = 65_534;
export const DAEMON = 1;
/** The checkout that is tested. */
export const CHECKOUT = join(import.meta.dirname, "../..");

/** What the end of a test does, the last first. */
export const cleanups: (() => unknown)[] = [];

/** What every test ends with. */
export async function cleanUp(): Promise<void> {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
}

/** A directory below one that only its owner may enter, as temporary directories are. */
export function closedDirectory(): string {
  const path = mkdtempSync(join(tmpdir(), "limber-test-"));
  cleanups.push(() => rmSync(path, { recursive: true, force: true, maxRetries: 5 }));
  return join(path, "data");
}

/** A process that owns a database. */
export interface Owner {
  process: ChildProcess;
  /** The line it printed: where its database is, or why there is none. */
  said: { url: string; pid: number; problem: string };
  /** Ends it in an orderly way. */
  stop(): Promise<void>;
  /** kill -9. */
  kill(): Promise<void>;
}

/** A process that owns the database of `dataDir`, as user nobody if so asked. */
export async function own(
  dataDir: string,
  { as, home = CHECKOUT }: { as?: number; home?: string } = {},
): Promise<Owner> {
  const child = startOwner(dataDir, { as, home });
  const [line] = await once(createInterface({ input: child.stdout! }), "line");
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill(signal);
    await once(child, "exit");
  };
  return { process: child, said: JSON.parse(line), stop: () => end("SIGTERM"), kill: () => end("SIGKILL") };
}

/** The same before it has said anything. */
export function startOwner(
  dataDir: string,
  { as, home = CHECKOUT }: { as?: number | undefined; home?: string } = {},
): ChildProcess {
  const user = as === undefined ? {} : { uid: as, gid: as };
  const script = join(home, "test/support/postgres-owner.ts");
  const child = spawn(process.execPath, [script, dataDir], {
    ...user,
    cwd: "/",
    detached: true,
    stdio: ["ignore", "pipe", "inherit"],
  });
  cleanups.push(() => child.kill("SIGKILL"));
  return child;
}

/**
 * The running servers of a data directory. One that is dead and not yet collected by its parent has no command line.
 */
export function servers(dataDir: string): string[] {
  return readdirSync("/proc").filter((pid) => {
    const file = `/proc/${pid}/cmdline`;
    return (
      /^\d+$/.test(pid) && existsSync(file) && readFileSync(file, "utf8").includes(`${join(dataDir, "postgres")}\0`)
    );
  });
}

/** Does some work with a client of its own. */
export async function withClient<T>(url: string, work: (sql: Sql) => Promise<T>): Promise<T> {
  const sql = connect(url, { max: 2 });
  return work(sql).finally(() => sql.end());
}

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  await promisify(server.close.bind(server))();
  return port;
}

/** A thousand rows that must be kept. */
export const makeRows = (url: string): Promise<unknown> =>
  withClient(url, (sql) => sql`create table kept as select generate_series(1, 1000) as n`);
/** How many of them are there. */
export const countRows = (url: string): Promise<number> =>
  withClient(url, async (sql) => (await sql<{ n: number }[]>`select count(*) as n from kept`)[0]!.n);
