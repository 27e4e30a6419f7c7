/** The embedded nats-server, if installed: runs in the data directory, is restarted if it exits, and stops with the process. */
import type { ChildProcess } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, sleep } from "../clock.ts";
import { secretBytes } from "../random.ts";
import { launch } from "./postgres/account.ts";

/** Options of the server. */
export interface EmbeddedNatsOptions {
  /** The path of the program. */
  readonly program: string;
  /** The parent folder of its data. */
  readonly dataDir: string;
  /** Called if it exits unexpectedly or cannot start. */
  readonly warn: (text: string) => void;
}

/** A running server. */
export interface EmbeddedNats {
  /** Its address with its token, constant for the lifetime of this process. */
  readonly url: string;
  /** The process id of the current server. */
  readonly pid: number;
  /** Stops it permanently. */
  stop(): Promise<void>;
}

const READY_MS = 10_000;
const TERM_MS = 5_000;
const RESTART_MS = { first: 100, most: 5_000 };

interface NatsServer {
  readonly child: ChildProcess;
  readonly port: string;
  readonly exited: Promise<void>;
}

/** Starts a server on a free loopback port, which requires its token. Rejects if it does not start. */
export async function startEmbeddedNats({ program, dataDir, warn }: EmbeddedNatsOptions): Promise<EmbeddedNats> {
  const folder = join(dataDir, "nats");
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const config = join(folder, "nats.conf");
  const token = secretBytes(24).toString("hex");
  const lines = [`jetstream { store_dir: ${JSON.stringify(folder)} }`, `authorization { token: "${token}" }`];
  writeFileSync(config, `${lines.join("\n")}\n`, { mode: 0o600 });
  let server = await begin(program, config, "-1");
  const { port } = server;
  const stopping = new AbortController();
  const { signal } = stopping;

  const watch = async (): Promise<void> => {
    for (let waitMs = RESTART_MS.first; ; ) {
      await server.exited;
      if (signal.aborted) return;
      if (waitMs === RESTART_MS.first) warn("nats-server exited and restarts; events wait in the outbox");
      await sleep(waitMs, signal).catch(() => {});
      if (signal.aborted) return;
      try {
        server = await begin(program, config, port);
        waitMs = RESTART_MS.first;
      } catch {
        waitMs = Math.min(RESTART_MS.most, 2 * waitMs);
      }
    }
  };
  const watched = watch();
  const endWithProcess = (): void => void server.child.kill("SIGKILL");
  process.once("exit", endWithProcess);
  return {
    url: `nats://${token}@127.0.0.1:${port}`,
    get pid() {
      return server.child.pid ?? 0;
    },
    async stop() {
      stopping.abort();
      await end(server);
      await watched;
      // It may have been restarted meanwhile.
      await end(server);
      process.off("exit", endWithProcess);
    },
  };
}

/** Starts it so that it exits with this process in any case, if the system supports that. It reports its own port. */
async function begin(program: string, config: string, port: string): Promise<NatsServer> {
  const args = ["-c", config, "-a", "127.0.0.1", "-p", port];
  const child = launch({ program, args, account: undefined, reaches: [], env: {} });
  const exited = new Promise<void>((resolve) => {
    child.once("exit", () => resolve());
    child.once("error", () => resolve());
  });
  const ready = Promise.withResolvers<string>();
  let own = "";
  createInterface({ input: child.stderr! }).on("line", (line) => {
    own = /Listening for client connections on \S+:(\d+)/.exec(line)?.[1] ?? own;
    if (line.includes("Server is ready")) ready.resolve(own);
  });
  void exited.then(() => ready.reject(new Error("nats-server exited before it was ready")));
  const forget = after(READY_MS, () => ready.reject(new Error("nats-server was not ready in time")));
  try {
    return { child, exited, port: await ready.promise };
  } catch (error) {
    child.kill("SIGKILL");
    throw error;
  } finally {
    forget();
  }
}

async function end({ child, exited }: NatsServer): Promise<void> {
  const forget = after(TERM_MS, () => child.kill("SIGKILL"));
  child.kill("SIGTERM");
  if (child.exitCode === null && child.signalCode === null) await exited;
  forget();
}
