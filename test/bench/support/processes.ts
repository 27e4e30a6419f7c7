/** Processes that benchmarks start, and the CPU time that they take. */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { openSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { availableParallelism, setPriority } from "node:os";
import { createInterface } from "node:readline";
import { missingFlags, START_FLAGS } from "../../../src/app/collector.ts";

/** A started process and the first line it printed that `ready` accepted. */
export interface Started {
  pid: number;
  line: string;
  /** Every line that it has printed so far. */
  lines: string[];
  stop(): Promise<void>;
}

/** How to start a process. */
export interface StartOptions {
  env?: Record<string, string>;
  /** Flags of Node itself. */
  flags?: string[];
  /** A file that takes what it writes to stderr; the terminal when absent. */
  log?: string;
}

/** Starts a TypeScript file with Node and waits until `ready` accepts a line of its output. It never outlives this process. */
export function start(
  file: string,
  args: string[],
  ready: (line: string) => boolean,
  { env = {}, flags = [], log }: StartOptions = {},
): Promise<Started> {
  const child: ChildProcess = spawn(process.execPath, [...flags, file, ...args], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", log === undefined ? "inherit" : openSync(log, "a")],
  });
  const end = (): boolean => child.kill("SIGTERM");
  process.once("exit", end);
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  void gone.then(() => process.off("exit", end));
  const lines: string[] = [];
  return new Promise((resolve, reject) => {
    child.once("exit", (code) => reject(new Error(`${file} ended with ${code}: ${lines.join("\n")}`)));
    createInterface({ input: child.stdout! }).on("line", (line) => {
      lines.push(line);
      if (!ready(line)) return;
      resolve({
        pid: child.pid!,
        line,
        lines,
        stop: async () => {
          end();
          await gone;
        },
      });
    });
  });
}

/** Starts the model server of benchmarks, with the start flags of a gateway: a pause of its own would be taken for one of who asks it. */
export const startModelServer = (args: string[] = []): Promise<Started> =>
  start("test/bench/support/upstream.ts", args, (line) => line.startsWith("{"), { flags: [...START_FLAGS] });

/** Replaces this program by itself with the start flags of a gateway, where it was started without them. */
export function haveStartFlags(): void {
  const flags = missingFlags(process.execArgv);
  if (flags.length > 0)
    process.execve?.(process.execPath, [process.execPath, ...flags, ...process.execArgv, ...process.argv.slice(1)]);
}

/** The threads of a process by their numbers. */
const threadsOf = (pid: number): number[] => readdirSync(`/proc/${pid}/task`).map(Number);

/** On-CPU nanoseconds of all threads of a process so far. */
export function cpuNanos(pid: number): number {
  return ofThreads(pid, 0);
}

/** The sum of one figure of the scheduler over all threads of a process. */
function ofThreads(pid: number, figure: number): number {
  let total = 0;
  for (const task of threadsOf(pid)) {
    try {
      total += Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, "utf8").split(" ")[figure]);
    } catch {
      // The thread ended between the listing and the reading.
    }
  }
  return total;
}

/** Nanoseconds for which the threads of a process could have run and were not let: other processes had the cores. */
export function queuedNanos(pid: number): number {
  return ofThreads(pid, 1);
}

/** The processes below a process, such as those of its database. */
export function descendants(pid: number): number[] {
  const children = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((candidate) => parentOf(candidate) === pid);
  return children.flatMap((child) => [child, ...descendants(child)]);
}

function parentOf(pid: number): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
  } catch {
    return -1;
  }
}

/** The middle of a list. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

/** Asked once: who is kept on some cores sees no others. */
const cores = availableParallelism();

/** How far what is measured, and what loads it, goes before what else runs on the machine. */
const AHEAD = -10;

/**
 * Keeps what is measured on the first core and all others, this process too, off it, and all of them before what else runs on the
 * machine, where that is allowed; false where it can't be pinned.
 */
export function pin(measured: readonly number[], others: readonly number[]): boolean {
  const keep = (pid: number, on: string): boolean => spawnSync("taskset", ["-acp", on, String(pid)]).status === 0;
  if (cores < 2) return false;
  goFirst([...measured, ...others, process.pid]);
  return (
    measured.every((pid) => keep(pid, "0")) && [...others, process.pid].every((pid) => keep(pid, `1-${cores - 1}`))
  );
}

/** Keeps one thread on the first core: of a process that `pin` keeps off it, the first one by the process's own number. */
export function pinThread(thread: number): void {
  if (cores > 1) spawnSync("taskset", ["-cp", "0", String(thread)]);
}

function goFirst(pids: readonly number[]): void {
  try {
    // On Linux a priority is a thread's own: those of its first thread alone would go before the others of the process.
    for (const pid of pids) for (const thread of threadsOf(pid)) setPriority(thread, AHEAD);
    // Where Linux shares the cores among terminals first, and then among what each has started.
    writeFileSync("/proc/self/autogroup", String(AHEAD));
  } catch {
    // Only an administrator may.
  }
}
