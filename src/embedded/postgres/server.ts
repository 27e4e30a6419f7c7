/** One run of a PostgreSQL server, from its start to its exit. */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { after, sleep, steadyNow } from "../../clock.ts";
import { StoreUnavailable } from "../../store/database/unavailable.ts";
import { type Account, launch } from "./account.ts";
import type { Binaries } from "./binaries.ts";
import { explain } from "./cluster.ts";

/** How a server exited. */
export interface ServerExit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/** A server that accepts connections. */
export interface PostgresServer {
  readonly pid: number;
  /** Resolves when it has exited. */
  readonly exited: Promise<ServerExit>;
  /** Stops it: closes connections and rolls back open transactions. Resolves when it has exited. */
  end(): Promise<void>;
  /** Requests a stop without waiting. */
  interrupt(): void;
}

/** Options of a server. */
export interface ServerPlan {
  binaries: Binaries;
  account: Account | undefined;
  env: Record<string, string>;
  cluster: string;
  /** The directory of its socket, accessible only to its account. */
  sockets: string;
  settings: Record<string, string>;
  log: (line: string) => void;
}

/** Replaying a long write-ahead log takes minutes. */
const START_MS = 180_000;
/** The processes of a killed server hold its shared memory until their statements end; a new server cannot start before. */
const WORKERS_MS = 40_000;
const POLL_MS = 20;
const REMEMBERED_LINES = 50;

/** The escalation: a fast shutdown, which rolls back; an immediate one, which requires recovery; then a kill. */
const ENDINGS: readonly { signal: NodeJS.Signals; patienceMs: number }[] = [
  { signal: "SIGINT", patienceMs: 20_000 },
  { signal: "SIGQUIT", patienceMs: 5_000 },
  { signal: "SIGKILL", patienceMs: 5_000 },
];

/**
 * Starts a server on a cluster that the caller owns, after stopping any that an earlier owner left. Resolves when it accepts connections;
 * throws `StoreUnavailable` if it does not start, or if the signal is aborted first.
 */
export async function startServer(plan: ServerPlan, signal: AbortSignal): Promise<PostgresServer> {
  const patience = steadyNow() + WORKERS_MS;
  for (;;) {
    const said: string[] = [];
    await endOrphan(plan.cluster);
    const server = await attempt(plan, said, signal);
    if (server) return server;
    const workersLive = said.some((line) => /shared memory block .* is still in use/.test(line));
    if (!workersLive || signal.aborted || steadyNow() > patience) {
      throw new StoreUnavailable(explain(said.join("\n"), dirname(plan.cluster)));
    }
    await sleep(5 * POLL_MS);
  }
}

/** A server that accepts connections, or undefined if it exited; `said` receives its latest lines. */
async function attempt(plan: ServerPlan, said: string[], signal: AbortSignal): Promise<PostgresServer | undefined> {
  const settings = { ...plan.settings, unix_socket_directories: `"${plan.sockets}"` };
  const child = launch({
    program: plan.binaries.postgres,
    args: ["-D", plan.cluster, ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`])],
    account: plan.account,
    reaches: [plan.binaries.postgres, plan.cluster, plan.sockets],
    env: plan.env,
  });
  const closed = new Promise((resolve) => child.once("close", resolve));
  child.on("error", (error) => said.push(error.message));
  const { pid } = child;
  if (pid === undefined) return closed.then(() => undefined);

  const outcome = Promise.withResolvers<boolean>();
  const fail = (): void => outcome.resolve(false);
  createInterface({ input: child.stderr! }).on("line", (line) => {
    plan.log(line);
    if (said.push(line) > REMEMBERED_LINES) said.shift();
    if (line.includes("ready to accept connections")) outcome.resolve(true);
  });
  const exited = new Promise<ServerExit>((resolve) => child.once("exit", (code, by) => resolve({ code, signal: by })));
  void exited.then(fail);
  signal.addEventListener("abort", fail, { once: true });
  const giveUp = after(START_MS, fail);
  const started = await outcome.promise;
  signal.removeEventListener("abort", fail);
  giveUp();

  const isGone = (): boolean => child.exitCode !== null || child.signalCode !== null;
  const server = { pid, exited, interrupt: () => void child.kill("SIGINT"), end: () => endServer(pid, isGone) };
  if (started) return server;
  await server.end();
  await closed;
}

/**
 * Stops a server that outlived its owner, which happens if the system cannot tie a child to its parent, or while it is closing its files.
 */
async function endOrphan(cluster: string): Promise<void> {
  const record = join(cluster, "postmaster.pid");
  if (!existsSync(record)) return;
  const pid = Number.parseInt(readFileSync(record, "utf8"), 10);
  if (serves(pid, cluster)) return endServer(pid, () => !serves(pid, cluster));
  // After a crash, the pid can belong to any other process, and PostgreSQL would refuse to start. The first server's shared
  // memory protects the files from a second server, not this record.
  rmSync(record, { force: true });
}

/** Whether process `pid` is a server of this cluster. */
function serves(pid: number, cluster: string): boolean {
  return commandLine(pid).includes(`-D ${cluster} `);
}

function commandLine(pid: number): string {
  if (process.platform !== "linux")
    return spawnSync("ps", ["-ww", "-o", "command=", "-p", `${pid}`], { encoding: "utf8" }).stdout;
  const file = `/proc/${pid}/cmdline`;
  return existsSync(file) ? readFileSync(file, "utf8").replaceAll("\0", " ") : "";
}

async function endServer(pid: number, isGone: () => boolean): Promise<void> {
  for (const { signal, patienceMs } of ENDINGS) {
    const patience = steadyNow() + patienceMs;
    if (!isGone()) send(pid, signal);
    while (!isGone() && steadyNow() < patience) await sleep(POLL_MS);
    if (isGone()) return;
  }
  throw new StoreUnavailable(`The PostgreSQL process ${pid} does not end`);
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    const goneMeanwhile = error instanceof Error && "code" in error && error.code === "ESRCH";
    if (!goneMeanwhile) throw error;
  }
}
