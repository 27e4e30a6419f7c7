/**
 * V8's garbage collector as this gateway wants it: many small pauses instead of a few that stop the world for long. The flags are those of
 * the command line that starts the process: V8 promises nothing of flags that change while it runs.
 */
import { constants, type PerformanceEntry, PerformanceObserver } from "node:perf_hooks";
import { getHeapSpaceStatistics } from "node:v8";
import { sleep } from "../clock.ts";
import { installPassing } from "../codecs/passing.ts";
import { breathe, installPause } from "../slices.ts";

/** Flags of V8 that every gateway runs with. `main.ts` adds those that its command line lacks, for its own process and for workers. */
export const START_FLAGS: readonly string[] = [
  /*
   * V8 learns from the first seconds which objects live long, and from then on makes their like in the old generation at once:
   * those of calls too, because calls wait. There they stay until the next full collection and hold on to younger ones, which
   * makes the collector's work several times what it has to be.
   */
  "--no-allocation-site-pretenuring",
  /*
   * The old are marked and swept beside the program; what is left for the pause at the end is a matter of two or three milliseconds.
   * Helpers shorten nothing of that, and where others want the CPU the pause waits for the last of them. The same goes for the young:
   * few of them live on, and the median pause without helpers is half of that with them on a machine that has other work.
   */
  "--no-parallel-compaction",
  "--no-parallel-pointer-update",
  "--no-parallel-weak-ref-clearing",
  "--no-parallel-scavenge",
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
  // The one way to ask for a small collection.
  "--expose-gc",
];

/** The start flags that a command line leaves to V8: `--no_parallel-scavenge` is a choice about `--parallel-scavenge`, and one against it stays. */
export function missingFlags(words: readonly string[]): string[] {
  const nameOf = (word: string): string =>
    word
      .replaceAll("_", "-")
      .replace(/^--(no-?)?/, "")
      .split("=")[0]!;
  const chosen = new Set(words.map(nameOf));
  return START_FLAGS.filter((flag) => !chosen.has(nameOf(flag)));
}

/** Has small collections made between slices of long work, and after much that arrived, where the process was started with `--expose-gc`; elsewhere V8 makes them when it likes. */
export function collectBetweenSlices(): void {
  if (globalThis.gc === undefined) return;
  installPause(pauseForCollection);
  installPassing(countRead);
  isCollecting = true;
}

/** Whether this process has small collections made of its own accord. */
let isCollecting = false;

/**
 * Bytes that arrive are kept outside V8's heap. V8 counts them with the old, and makes a full collection after some 64 MB of them, which
 * stops the program for tens of milliseconds, although nearly all of them are garbage a moment after they came: 50 robots with cameras
 * have two of these a second. A small collection of a millisecond or two frees them as well, but V8 makes one only when objects ask for
 * it, of which there are few beside pictures. It is made after so many bytes, of which there is a copy each where a message came in parts. Code
 * that reads messages reports them by `passed`.
 */
const MOST_ARRIVED_BYTES = 16 << 20;

let arrived = 0;

/** Counts bytes that were read into memory of their own; after many of them the young are collected, at the end of this turn of the event loop. */
function countRead(bytes: number): void {
  arrived += bytes;
  if (arrived < MOST_ARRIVED_BYTES) return;
  arrived = 0;
  if (isCollecting) setImmediate(collectArrived);
}

/** While the old are being collected they are left alone, as between slices: what came is freed with them. */
function collectArrived(): void {
  if (!isCollectorBusy()) collectYoung();
}

/**
 * A collection of the young copies what lives on, all of it in one pause. Of what calls make next to nothing does; of a reload of
 * supply next to everything, and V8 lets sixteen megabytes come together. So many bytes are copied in well under a millisecond, and
 * as the collection of the old copies the young too, it must never meet many of them.
 */
const MOST_YOUNG_BYTES = 1_000_000;

/** Whether V8 marks what lives among the old, as of the entries that were heard. */
let marking = false;
let observer: PerformanceObserver | undefined;

function hear(entries: readonly PerformanceEntry[]): void {
  for (const entry of entries) {
    const { kind } = (entry as PerformanceEntry & { detail: { kind: number } }).detail; // as Node documents entries of this type
    if (kind === constants.NODE_PERFORMANCE_GC_INCREMENTAL) marking = true;
    else if (kind === constants.NODE_PERFORMANCE_GC_MAJOR) marking = false;
  }
}

/** Whether so much is young that its collection would be felt. */
export const isYoungMany = (): boolean =>
  getHeapSpaceStatistics().some(
    ({ space_name, space_used_size }) => space_name === "new_space" && space_used_size > MOST_YOUNG_BYTES,
  );

/**
 * Whether V8 is about to collect the old generation, as of the last turn of the event loop that began: a small collection now would
 * finish that in the same pause.
 */
export function isCollectorBusy(): boolean {
  if (observer === undefined) {
    observer = new PerformanceObserver((list) => hear(list.getEntries()));
    observer.observe({ entryTypes: ["gc"] });
  }
  // Its callback comes a turn late, and a small collection in that turn would do all of the marking in its pause.
  hear(observer.takeRecords());
  return marking;
}

/** Has the young collected at once; nothing where the process was started without `--expose-gc`. */
export const collectYoung = (): void => globalThis.gc?.({ type: "minor" });

/** How long the collector may need for the old, and how often it is polled. */
const MARKING_MS = 1_000;
const LOOK_MS = 5;

/**
 * Leaves the event loop to others once, for code that makes much that stays: as soon as there is so much of it that a collection
 * would be felt, it has a turn of its own. While the old are being collected nothing is made.
 */
export async function pauseForCollection(): Promise<void> {
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
