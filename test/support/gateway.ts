/** The gateway as its operators run it: a process of its own, started from its main file. */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { START_FLAGS } from "../../src/app/collector.ts";
import { bundledGateway } from "./bundled.ts";

const SOURCES = fileURLToPath(new URL("../../src/main.ts", import.meta.url));

/** How a process ended. */
export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A gateway that said it's ready. */
export interface Gateway {
  readonly pid: number;
  /** Where it listens; empty for a process that only works off jobs. */
  readonly url: string;
  /** What it has printed so far. */
  readonly stdout: () => string;
  readonly stderr: () => string;
  /** Sends a signal and resolves when the process has ended. */
  end(signal: NodeJS.Signals): Promise<Ended>;
}

/** A directory of its own, gone when `remove` is called. */
export function scratchDir(): { path: string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), "limber-start-"));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

/** Gateways that run. A test that fails before it ends one must not leave it behind. */
const gateways = new Set<ChildProcess>();
process.once("exit", () => {
  for (const child of gateways) child.kill("SIGKILL");
});

/** Nothing of the environment of the tests reaches the process but what finds its programs. */
function launch(
  env: Readonly<Record<string, string>>,
  flags: readonly string[] = [],
  main = join(bundledGateway(), "main.mjs"),
): {
  child: ChildProcess;
  stdout: string[];
  stderr: string[];
  ended: Promise<Ended>;
} {
  const { PATH = "", HOME = "", TMPDIR } = process.env;
  const child = spawn(process.execPath, [...START_FLAGS, ...flags, main], {
    env: {
      PATH,
      HOME,
      ...(TMPDIR !== undefined && { TMPDIR }),
      NODE_COMPILE_CACHE: join(bundledGateway(), "compiled"),
      PORT: "0",
      // No balancer has to see that it ends.
      LIMBER_DRAIN_DELAY_S: "0",
      // An outside database has what the test puts there.
      ...(env.DATABASE_URL !== undefined && { LIMBER_IMPORT_CATALOG: "false" }),
      ...env,
    },
    stdio: ["ignore", "pipe", "pipe", ...(flags.length > 0 ? (["ipc"] as const) : [])],
  });
  const stdout: string[] = [];
  const stderr: string[] = [];
  child.stdout!.setEncoding("utf8").on("data", (text: string) => stdout.push(text));
  child.stderr!.setEncoding("utf8").on("data", (text: string) => stderr.push(text));
  gateways.add(child);
  child.once("exit", () => gateways.delete(child));
  const ended = new Promise<Ended>((resolve) =>
    child.once("close", (code, signal) => resolve({ code, signal, stdout: stdout.join(""), stderr: stderr.join("") })),
  );
  return { child, stdout, stderr, ended };
}

/** Starts a gateway with this environment and waits until it's ready; fails when it ends before. */
export const startGateway = (env: Readonly<Record<string, string>>): Promise<Gateway> => launchGateway(env).ready;

/** A gateway that may not be ready yet. */
export interface Launched {
  readonly pid: number;
  /** The process itself, with a channel for messages where it was started with flags. */
  readonly child: ChildProcess;
  /** Rejects when it ends before it is. */
  readonly ready: Promise<Gateway>;
  /** Resolves when it has ended. */
  readonly ended: Promise<Ended>;
  /** What it has printed so far. */
  readonly stderr: () => string;
}

/** Starts a gateway with Node's own `flags`, and waits for nothing. It runs as a bundle, from its sources, or from another main file. */
export function launchGateway(
  env: Readonly<Record<string, string>>,
  flags: readonly string[] = [],
  { fromSources = false, main }: { fromSources?: boolean; main?: string } = {},
): Launched {
  const { child, stdout, stderr, ended } = launch(env, flags, fromSources ? SOURCES : main);
  const ready = readyOf({ child, stdout, stderr, ended });
  ready.catch(() => {});
  return { pid: child.pid!, child, ready, ended, stderr: () => stderr.join("") };
}

async function readyOf({ child, stdout, stderr, ended }: ReturnType<typeof launch>): Promise<Gateway> {
  const url = await new Promise<string>((resolve, reject) => {
    const look = (): void => {
      const found = /^limber ready ?(\S*)\n/m.exec(stdout.join(""))?.[1];
      if (found !== undefined) resolve(found);
    };
    child.stdout!.on("data", look);
    void ended.then(({ code, signal, stderr }) =>
      reject(new Error(`the gateway ended with ${code ?? signal}: ${stderr}`)),
    );
  });
  return {
    pid: child.pid!,
    url,
    stdout: () => stdout.join(""),
    stderr: () => stderr.join(""),
    end(signal) {
      child.kill(signal);
      return ended;
    },
  };
}

/** Starts a gateway that can't run and waits until it has ended. */
export const failToStart = (env: Readonly<Record<string, string>>): Promise<Ended> => launch(env).ended;

/** Every process that runs, with its parent; one that has ended and waits for its parent doesn't. */
function running(): Map<number, number> {
  const rows = existsSync("/proc/self/stat") ? fromProc() : fromPs();
  return new Map(
    rows.filter(([, state]) => !state?.startsWith("Z")).map(([pid, , parent]) => [Number(pid), Number(parent)]),
  );
}

function fromProc(): string[][] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        // "pid (name) state parent …", and the name may hold anything.
        const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
        return [[pid, ...stat.slice(stat.lastIndexOf(")") + 2).split(" ")]];
      } catch {
        return []; // it ended meanwhile
      }
    });
}

function fromPs(): string[][] {
  const lines = execFileSync("ps", ["-A", "-o", "pid=,stat=,ppid="], { encoding: "utf8" }).trim().split("\n");
  return lines.map((line) => line.trim().split(/\s+/));
}

/** Every process below another. */
export function descendantsOf(pid: number, all = running()): number[] {
  const children = [...all].filter(([, parent]) => parent === pid).map(([child]) => child);
  return children.flatMap((child) => [child, ...descendantsOf(child, all)]);
}

/** Those of `pids` that still run. */
export function stillRunning(pids: readonly number[]): number[] {
  const all = running();
  return pids.filter((pid) => all.has(pid));
}
