/** V8's garbage collector as this gateway wants it: many small pauses instead of a few that stop the world for long. */
import { constants, type PerformanceEntry, PerformanceObserver } from "node:perf_hooks";
import { getHeapSpaceStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { sleep } from "../clock.ts";
import { breathe, installPause } from "../slices.ts";

/** What V8 is told at the start, each unless the command line of the process sets it. */
const FLAGS = [
  /*
   * V8 learns from the first seconds which objects live long, and from then on makes their like in the old generation at once:
   * those of calls too, because calls wait. There they stay until the next full collection and hold on to younger ones, which
   * makes the collector's work several times what it has to be.
   */
  "--no-allocation-site-pretenuring",
  /*
   * The old are marked and swept beside the program; what is left for the pause at the end is a matter of two or three milliseconds.
   * Helpers shorten nothing of that, and where others want the CPU the pause waits for the last of them.
   */
  "--no-parallel-compaction",
  "--no-parallel-pointer-update",
  "--no-parallel-weak-ref-clearing",
  /*
   * The old may come to three times of what lives of them. In a calm process V8 would let them grow by a tenth, and collect them after
   * every few megabytes, each time with a pause. (Beginning later within that tenth is worse: then the pause comes before the marking
   * is done, and does all of it. Without compaction pauses would be shorter, but there is no end to the holes.)
   */
  "--heap-growing-percent=200",
  /*
   * A process that calms down is not squeezed into as little as it can be: V8 would stop for fifty milliseconds and more to give memory
   * back, and robots that ask at an even pace are such a calm.
   */
  `--gc-memory-reducer-start-delay-ms=${2 ** 31 - 1}`,
];

/** Small collections that are asked for are done by this thread alone, for the same reason. */
const ALONE = "--no-parallel-scavenge";

/** Whether a process was started with words of its own about a flag: `--no_parallel-scavenge` is some about `--parallel-scavenge`. */
export function isChosen(flag: string, words: readonly string[]): boolean {
  const nameOf = (word: string): string =>
    word
      .replaceAll("_", "-")
      .replace(/^--(no-?)?/, "")
      .split("=")[0]!;
  return words.some((word) => [nameOf(flag), "single-threaded", "single-threaded-gc"].includes(nameOf(word)));
}

/** Tells V8 how this gateway wants its garbage collected. */
export function tuneCollector(): void {
  for (const flag of FLAGS) if (!isChosen(flag, process.execArgv)) setFlagsFromString(flag);
  installPause(breatheOut);
}

/**
 * A collection of the young copies what lives on, all of it in one pause. Of what calls make next to nothing does; of a reload of
 * supply next to everything, and V8 lets sixteen megabytes come together. So many bytes are copied in well under a millisecond, and
 * as the collection of the old copies the young too, it must never meet many of them.
 */
const MOST_YOUNG_BYTES = 1_000_000;

interface Collector {
  /** Collects the young at once. */
  readonly collect: () => void;
  /** Whether V8 marks what lives among the old, which it does beside the program, in many steps; as of the last turn of the event loop that began. */
  readonly isMarking: () => boolean;
}

let collector: Collector | undefined;

function open(): Collector {
  // The one way to ask for a small collection. No command line has to name the flag, and nobody else gets to see the function.
  setFlagsFromString("--expose-gc");
  const gc: (how: { type: "minor" }) => void = runInNewContext("gc");
  setFlagsFromString("--no-expose-gc");
  let marking = false;
  const hear = (entries: readonly PerformanceEntry[]): void => {
    for (const entry of entries) {
      const { kind } = (entry as PerformanceEntry & { detail: { kind: number } }).detail; // as Node documents entries of this type
      if (kind === constants.NODE_PERFORMANCE_GC_INCREMENTAL) marking = true;
      else if (kind === constants.NODE_PERFORMANCE_GC_MAJOR) marking = false;
    }
  };
  const observer = new PerformanceObserver((list) => hear(list.getEntries()));
  observer.observe({ entryTypes: ["gc"] });
  const isMarking = (): boolean => {
    // It is told a turn later than it could be asked, and a small collection in that turn would do all of the marking in its pause.
    hear(observer.takeRecords());
    return marking;
  };
  const collect = (): void => gc({ type: "minor" });
  if (isChosen(ALONE, process.execArgv)) return { collect, isMarking };
  const alone = (): void => {
    setFlagsFromString(ALONE);
    collect();
    setFlagsFromString(ALONE.replace("no-", ""));
  };
  return { collect: alone, isMarking };
}

/** Whether so much is young that its collection would be felt. */
export const isYoungMany = (): boolean =>
  getHeapSpaceStatistics().some(
    ({ space_name, space_used_size }) => space_name === "new_space" && space_used_size > MOST_YOUNG_BYTES,
  );

/** Whether V8 is about to collect the old generation: a small collection now would finish that in the same pause. */
export function isCollectorBusy(): boolean {
  collector ??= open();
  return collector.isMarking();
}

/** Has the young collected at once. */
export function collectYoung(): void {
  collector ??= open();
  collector.collect();
}

/** How long the collector may need for the old, and how often it is asked whether it has ended. */
const MARKING_MS = 1_000;
const LOOK_MS = 5;

/**
 * Leaves the event loop to others once, for code that makes much that stays: as soon as there is so much of it that a collection
 * would be felt, it has a turn of its own. While the old are being collected nothing is made.
 */
export async function breatheOut(): Promise<void> {
  await breathe();
  if (!isYoungMany()) return;
  // What the collector began with in this turn is known in the next.
  await breathe();
  for (let waited = 0; isCollectorBusy(); waited += LOOK_MS) {
    if (waited >= MARKING_MS) return;
    await sleep(LOOK_MS);
  }
  // It has the young collected too, and while what it left is swept a small collection would wait for that.
  if (!isYoungMany()) return;
  collectYoung();
  await breathe();
}
