/**
 * The database that comes with the gateway: a real PostgreSQL that this process starts, keeps alive and ends. Nothing
 * but its socket leads to it, and the socket is open to its own account (and to root) alone.
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
import { StoreUnavailable } from "../store/database/client.ts";
import { accountFor } from "./postgres/account.ts";
import { findBinaries, libraryEnvironment } from "./postgres/binaries.ts";
import { claim } from "./postgres/claim.ts";
import { ensureCluster, SUPERUSER } from "./postgres/cluster.ts";
import { type PostgresServer, type ServerExit, type ServerPlan, startServer } from "./postgres/server.ts";

/** How to run the embedded database. */
export interface EmbeddedOptions {
  /** Where it keeps its files; made when it isn't there. */
  dataDir: string;
  /** Told each time the server ends without being asked to. It is being started again by then. */
  onExit?: (exit: ServerExit) => void;
  /** Gets every line that the server writes to its log. */
  log?: (line: string) => void;
  /** Settings of PostgreSQL that differ from the gateway's. */
  settings?: Record<string, string>;
}

/** A running database. */
export interface EmbeddedPostgres {
  /**
   * Its address for `connect`, and for any client that takes `?host=`. The same for as long as this process owns it.
   */
  readonly url: string;
  /** The process id of the present server. */
  readonly pid: number;
  /** How often the server has been started again after it ended without being asked to. */
  readonly restarts: number;
  /** Ends the server and gives the data directory free. Calling it twice is calling it once. */
  stop(): Promise<void>;
}

const SETTINGS: Record<string, string> = {
  listen_addresses: "",
  unix_socket_permissions: "0700",
  max_connections: "100",
  fsync: "on",
  synchronous_commit: "on",
  // Failed statements are told to who sent them; a log of them would hold what they hold.
  log_min_messages: "log",
  log_checkpoints: "off",
  log_line_prefix: "",
  timezone: "UTC",
  log_timezone: "UTC",
};

const RESTART_MS = { first: 50, most: 5_000 };
/** The longest path of a socket that every platform takes, less the name that PostgreSQL gives it. */
const SOCKET_DIRECTORY_BYTES = 103 - "/.s.PGSQL.5432".length;

/**
 * Starts the database of `dataDir`, making it at the first start and ending what an earlier process left behind.
 * Resolves when it accepts connections. Throws `StoreUnavailable` when it can't, above all while another process
 * owns `dataDir`.
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

/** Its real path; whatever forbids its use is said by the call that finds it. */
function openDataDir(path: string): string {
  mkdirSync(dirname(path), { recursive: true });
  if (!existsSync(path)) mkdirSync(path);
  readdirSync(path);
  accessSync(path, constants.W_OK | constants.X_OK);
  return realpathSync(path);
}

/** A short path, whatever the length of DATA_DIR, that two data directories never share. */
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

/** The next server, however long it takes: a full disk may be emptied. Undefined when the signal is aborted first. */
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
