/**
 * Tunes V8's garbage collector for many short pauses instead of a few long ones. The flags belong on the command line of the process: V8
 * does not support changing them while it runs.
 */
import { constants, type PerformanceEntry, PerformanceObserver } from "node:perf_hooks";
import { getHeapSpaceStatistics } from "node:v8";
import { sleep } from "../clock.ts";
import { installPassing } from "../codecs/passing.ts";
import { breathe, installPause } from "../slices.ts";

/** V8 flags of every gateway. `main.ts` adds the missing ones for its own process and for workers. */
export const START_FLAGS: readonly string[] = [
  /*
   * V8 observes in the first seconds which objects live long, and later allocates such objects directly in the old generation: also those
   * of calls, because calls wait. There they stay until the next full collection and keep younger objects alive, which multiplies the
   * collector's work.
   */
  "--no-allocation-site-pretenuring",
  /*
   * The old generation is marked and swept concurrently; the final pause takes only 2 to 3 ms. Helper threads do not shorten it, and on a
   * busy CPU the pause waits for the last of them. The same holds for the young generation: few objects survive, and on a machine with
   * other load the median pause without helpers is half of that with them.
   */
  "--no-parallel-compaction",
  "--no-parallel-pointer-update",
  "--no-parallel-weak-ref-clearing",
  "--no-parallel-scavenge",
  /*
   * The old generation can grow to three times its live size. In a calm process V8 would let it grow by a tenth, and collect it after every
   * few megabytes, each time with a pause. (Starting later within that tenth is worse: then the pause precedes the end of marking, and
   * does all of it. Without compaction, pauses would be shorter, but fragmentation would grow without bound.)
   */
  "--heap-growing-percent=200",
  /*
   * Disables the memory reducer: V8 would pause for 50 ms and more to return memory when a process becomes calm, and robots that call at a
   * steady rate count as calm.
   */
  `--gc-memory-reducer-start-delay-ms=${2 ** 31 - 1}`,
  // The only way to request a minor collection.
  "--expose-gc",
];

/** The flags that a command line does not set: `--no_parallel-scavenge` also sets `--parallel-scavenge`, and is kept. */
export function missingFlags(words: readonly string[]): string[] {
  const nameOf = (word: string): string =>
    word
      .replaceAll("_", "-")
      .replace(/^--(no-?)?/, "")
      .split("=")[0]!;
  const chosen = new Set(words.map(nameOf));
  return START_FLAGS.filter((flag) => !chosen.has(nameOf(flag)));
}

/** Runs minor collections between slices of long work and after many allocations, if the process has `--expose-gc`; else V8 decides. */
export function collectBetweenSlices(): void {
  if (globalThis.gc === undefined) return;
  installPause(pauseForCollection);
  installPassing(countRead);
  isCollecting = true;
}

/** Whether this process starts minor collections itself. */
let isCollecting = false;

/**
 * The number of received bytes after which a minor collection runs. They are stored outside V8's heap, but V8 counts them with the old
 * generation and runs a full collection after about 64 MB, which pauses the process for tens of milliseconds, although almost all are garbage
 * at once: 50 robots with cameras cause two per second. A minor collection of 1 to 2 ms frees them as well, but V8 runs one only for heap
 * objects, of which images need few. A message in several parts counts twice, because it is copied. Code that reads messages reports
 * them with `passed`.
 */
const MOST_ARRIVED_BYTES = 16 << 20;

let arrived = 0;

/** Counts bytes read into separate memory; after many of them, a minor collection runs at the end of this event loop turn. */
function countRead(bytes: number): void {
  arrived += bytes;
  if (arrived < MOST_ARRIVED_BYTES) return;
  arrived = 0;
  if (isCollecting) setImmediate(collectArrived);
}

/** Skips minor collections during a major one, which also frees the received bytes. */
function collectArrived(): void {
  if (!isCollectorBusy()) collectYoung();
}

/**
 * The size of the young generation at which a minor collection gets its own turn. A minor collection copies all survivors in one pause. Calls
 * leave almost none, but a reload of supply keeps almost everything, and V8 lets 16 MB accumulate. This many bytes are copied in well under a
 * millisecond. A full collection copies the young generation too, so it must stay small.
 */
const MOST_YOUNG_BYTES = 1_000_000;

/** Whether V8 is marking the old generation, by the performance entries so far. */
let marking = false;
let observer: PerformanceObserver | undefined;

function hear(entries: readonly PerformanceEntry[]): void {
  for (const entry of entries) {
    const { kind } = (entry as PerformanceEntry & { detail: { kind: number } }).detail; // as Node documents entries of this type
    if (kind === constants.NODE_PERFORMANCE_GC_INCREMENTAL) marking = true;
    else if (kind === constants.NODE_PERFORMANCE_GC_MAJOR) marking = false;
  }
}

/** Whether the young generation is so large that collecting it would cause a noticeable pause. */
export const isYoungMany = (): boolean =>
  getHeapSpaceStatistics().some(
    ({ space_name, space_used_size }) => space_name === "new_space" && space_used_size > MOST_YOUNG_BYTES,
  );

/**
 * Whether V8 was about to collect the old generation when this event loop turn began: a minor collection now would complete it in the same
 * pause.
 */
export function isCollectorBusy(): boolean {
  if (observer === undefined) {
    observer = new PerformanceObserver((list) => hear(list.getEntries()));
    observer.observe({ entryTypes: ["gc"] });
  }
  // The callback comes a turn late; a minor collection in between would do all marking in its pause.
  hear(observer.takeRecords());
  return marking;
}

/** Runs a minor collection now, if the process has `--expose-gc`. */
export const collectYoung = (): void => globalThis.gc?.({ type: "minor" });

/** The timeout of a major collection, and its polling interval. */
const MARKING_MS = 1_000;
const LOOK_MS = 5;

/**
 * Yields to the event loop once, for code with many long-lived allocations: when they would cause a noticeable pause, their collection gets
 * its own turn. During a major collection, none is started.
 */
export async function pauseForCollection(): Promise<void> {
  await breathe();
  if (!isYoungMany()) return;
  // A collection that starts in this turn is known in the next.
  await breathe();
  for (let waited = 0; isCollectorBusy(); waited += LOOK_MS) {
    if (waited >= MARKING_MS) return;
    await sleep(LOOK_MS);
  }
  // A major collection also collects the young generation, and a minor one would wait for its sweeping.
  if (!isYoungMany()) return;
  collectYoung();
  await breathe();
}
