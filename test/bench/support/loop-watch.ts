/** How long the event loop was nobody else's. */
import { existsSync, openSync, readSync } from "node:fs";
import { constants, type PerformanceEntry, PerformanceObserver } from "node:perf_hooks";

/** The longest turn in milliseconds: by the wall, and by the CPU that this thread had in it, for others may use the machine too. */
export interface Pauses {
  readonly pauseMs: number;
  /** Of that, what this thread stood in the queue for a CPU that somebody else had. */
  readonly queuedMs: number;
  readonly pauseCpuMs: number;
}

/** Where Linux says for how many nanoseconds the thread that reads it ran, and for how many it waited to. */
const SCHEDSTAT = "/proc/thread-self/schedstat";
const schedstat = existsSync(SCHEDSTAT) ? openSync(SCHEDSTAT, "r") : undefined;
const read = Buffer.alloc(96);

/** What the scheduler gave this thread so far, in milliseconds. */
interface Scheduled {
  readonly cpuMs: number;
  readonly queuedMs: number;
}

function scheduled(): Scheduled {
  // Linux writes them down at its ticks, some milliseconds apart, and whenever somebody asks about the whole process.
  const { user, system } = process.cpuUsage();
  if (schedstat === undefined) return { cpuMs: (user + system) / 1000, queuedMs: 0 };
  const [ran, queued] = read.toString("latin1", 0, readSync(schedstat, read, 0, read.length, 0)).split(" ");
  return { cpuMs: Number(ran) / 1e6, queuedMs: Number(queued) / 1e6 };
}

/** On-CPU milliseconds of this thread so far. For the main thread alone. */
export const cpuMs = (): number => scheduled().cpuMs;

/** One turn of the event loop, in milliseconds on the clock of `performance.now()`. */
interface Turn {
  readonly from: number;
  readonly ms: number;
  readonly cpuMs: number;
  readonly queuedMs: number;
}

/** A pause that the garbage collector made. */
interface Collection {
  readonly from: number;
  readonly ms: number;
  /** Of everything, not of the young alone. */
  readonly full: boolean;
}

/** Turns that are shorter interest nobody. */
const SHORT_MS = 0.5;

/** Watches the event loop until the returned function is called. */
export function watchLoop(): () => Pauses & { readonly turns: readonly Turn[] } {
  const turns: Turn[] = [];
  let last = performance.now();
  let before = scheduled();
  let [pauseMs, queuedMs, pauseCpuMs] = [0, 0, 0];
  let watching = true;
  const beat = (): void => {
    const [at, now] = [performance.now(), scheduled()];
    const turn = {
      from: last,
      ms: at - last,
      cpuMs: now.cpuMs - before.cpuMs,
      queuedMs: now.queuedMs - before.queuedMs,
    };
    if (turn.ms > pauseMs) [pauseMs, queuedMs] = [turn.ms, turn.queuedMs];
    pauseCpuMs = Math.max(pauseCpuMs, turn.cpuMs);
    if (turn.ms > SHORT_MS) turns.push(turn);
    [last, before] = [at, now];
    if (watching) setImmediate(beat);
  };
  beat();
  return () => {
    watching = false;
    return { pauseMs, queuedMs, pauseCpuMs, turns };
  };
}

const collections: Collection[] = [];

/** From now on the collector's pauses are noted. */
export function watchCollector(): void {
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const { kind } = (entry as PerformanceEntry & { detail: { kind: number } }).detail; // as Node documents them
      collections.push({
        from: entry.startTime,
        ms: entry.duration,
        full: kind === constants.NODE_PERFORMANCE_GC_MAJOR,
      });
    }
  }).observe({ entryTypes: ["gc"] });
}

/** The collector's pauses since the last time that somebody asked. They are told a little later than they were. */
export async function collected(): Promise<readonly Collection[]> {
  await new Promise((resolve) => setTimeout(resolve, 20));
  return collections.splice(0);
}

/** What the collector took of a turn. */
export const collectorMs = ({ from, ms }: Turn, collections: readonly Collection[]): number =>
  collections.reduce((sum, each) => sum + (each.from >= from && each.from < from + ms ? each.ms : 0), 0);

/** The longest turn's CPU, what the collector took left out. */
export const longestOwnMs = (turns: readonly Turn[], collections: readonly Collection[]): number =>
  Math.max(0, ...turns.map((turn) => turn.cpuMs - collectorMs(turn, collections)));
