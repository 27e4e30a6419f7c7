/**
 * The embedded database: a real PostgreSQL that this process starts, restarts and stops. It is reachable only through a unix socket, which is
 * open only to its own account (and root).
 */
import {
  accessSync,
  chownSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  realpathSync,
  rmSync,
  statSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { sleep } from "../clock.ts";
import { StoreUnavailable } from "../store/database/unavailable.ts";
import { accountFor } from "./postgres/account.ts";
import { findBinaries, libraryEnvironment } from "./postgres/binaries.ts";
import { claim } from "./postgres/claim.ts";
import { ensureCluster, SUPERUSER } from "./postgres/cluster.ts";
import { type PostgresServer, type ServerExit, type ServerPlan, startServer } from "./postgres/server.ts";

/** Options of the embedded database. */
export interface EmbeddedOptions {
  /** The data directory; created if missing. */
  dataDir: string;
  /** Called whenever the server exits unexpectedly; it is being restarted by then. */
  onExit?: (exit: ServerExit) => void;
  /** Receives every line of the server's log. */
  log?: (line: string) => void;
  /** PostgreSQL settings that override the gateway's. */
  settings?: Record<string, string>;
}

/** A running database. */
export interface EmbeddedPostgres {
  /**
   * Its address for `connect`, and for any client that supports `?host=`. Constant for the lifetime of this process.
   */
  readonly url: string;
  /** The process id of the current server. */
  readonly pid: number;
  /** The number of restarts after an unexpected exit. */
  readonly restarts: number;
  /** Stops the server and releases the data directory. Idempotent. */
  stop(): Promise<void>;
}

const SETTINGS: Record<string, string> = {
  listen_addresses: "",
  unix_socket_permissions: "0700",
  max_connections: "100",
  fsync: "on",
  synchronous_commit: "on",
  // Clients receive the errors of their statements; a log of these would contain their data.
  log_min_messages: "log",
  log_checkpoints: "off",
  log_line_prefix: "",
  timezone: "UTC",
  log_timezone: "UTC",
};

const RESTART_MS = { first: 50, most: 5_000 };
/** The longest socket path that every platform supports, less PostgreSQL's file name. */
const SOCKET_DIRECTORY_BYTES = 103 - "/.s.PGSQL.5432".length;

/**
 * Starts the database in `dataDir`: creates it at the first start, and stops a server that an earlier process left. Resolves when it accepts
 * connections. Throws `StoreUnavailable` if it cannot start, in particular while another process owns `dataDir`.
 */
export async function startPostgres(options: EmbeddedOptions): Promise<EmbeddedPostgres> {
  try {
    const dataDir = openDataDir(options.dataDir);
    const sockets = socketDirectory(dataDir);
    const release = claim(dataDir);
    const giveFree = (): void => {
      try {
        rmSync(sockets, { recursive: true, force: true });
      } finally {
        release();
      }
    };
    try {
      const plan = await prepare(dataDir, sockets, options);
      const stopping = new AbortController();
      return keep(await startServer(plan, stopping.signal), plan, options.onExit, stopping, giveFree);
    } catch (error) {
      giveFree();
      throw error;
    }
  } catch (cause) {
    if (cause instanceof StoreUnavailable) throw cause;
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new StoreUnavailable(`DATA_DIR ${options.dataDir} can't hold the database: ${why}`, { cause });
  }
}

/** Its real path; if it is unusable, the next operation reports why. */
function openDataDir(path: string): string {
  mkdirSync(dirname(path), { recursive: true });
  if (!existsSync(path)) mkdirSync(path);
  readdirSync(path);
  accessSync(path, constants.W_OK | constants.X_OK);
  return realpathSync(path);
}

/** A short path, independent of DATA_DIR's length, and unique per data directory. */
function socketDirectory(dataDir: string): string {
  const { dev, ino } = statSync(dataDir);
  const name = `limber-${dev.toString(36)}-${ino.toString(36)}`;
  const places = [tmpdir(), "/tmp"].map((place) => join(realpathSync(place), name));
  return places.find((place) => Buffer.byteLength(place) <= SOCKET_DIRECTORY_BYTES) ?? places[0]!;
}

async function prepare(dataDir: string, sockets: string, options: EmbeddedOptions): Promise<ServerPlan> {
  const cluster = join(dataDir, "postgres");
  const binaries = findBinaries();
  const account = accountFor(cluster);
  rmSync(sockets, { recursive: true, force: true });
  mkdirSync(sockets, { mode: 0o700 });
  if (account) chownSync(sockets, account.uid, account.gid);
  const env = libraryEnvironment(binaries, join(sockets, "lib"));
  await ensureCluster(cluster, binaries, account, env);
  const settings = { ...SETTINGS, ...options.settings };
  return { binaries, account, env, cluster, sockets, settings, log: options.log ?? (() => {}) };
}

function keep(
  first: PostgresServer,
  plan: ServerPlan,
  onExit: EmbeddedOptions["onExit"],
  stopping: AbortController,
  giveFree: () => void,
): EmbeddedPostgres {
  const { signal } = stopping;
  let server = first;
  let restarts = 0;
  let stopped: Promise<void> | undefined;

  const watch = async (): Promise<void> => {
    for (;;) {
      const exit = await server.exited;
      if (signal.aborted) return;
      onExit?.(exit);
      const next = await revive(plan, signal);
      if (next === undefined) return;
      server = next;
      restarts += 1;
      if (signal.aborted) return server.end();
    }
  };
  const watched = watch();
  const endWithProcess = (): void => server.interrupt();
  process.once("exit", endWithProcess);

  const stop = async (): Promise<void> => {
    stopping.abort();
    await server.end();
    await watched;
    process.off("exit", endWithProcess);
    giveFree();
  };
  return {
    url: `postgres://${SUPERUSER}@localhost/postgres?host=${encodeURIComponent(plan.sockets)}`,
    get pid() {
      return server.pid;
    },
    get restarts() {
      return restarts;
    },
    stop: () => {
      stopped ??= stop();
      return stopped;
    },
  };
}

/** Starts the next server, retrying for as long as needed: a full disk can be emptied. Undefined if the signal is aborted first. */
async function revive(plan: ServerPlan, signal: AbortSignal): Promise<PostgresServer | undefined> {
  for (let delay = RESTART_MS.first; !signal.aborted; delay = Math.min(2 * delay, RESTART_MS.most)) {
    try {
      await sleep(delay, signal);
      return await startServer(plan, signal);
    } catch (error) {
      if (!signal.aborted) plan.log(error instanceof Error ? error.message : String(error));
    }
  }
  return undefined;
}
