/** V8's garbage collector while much is made that stays: many small collections instead of a few that stop the world for long. */
import { constants, type PerformanceEntry, PerformanceObserver } from "node:perf_hooks";
import { getHeapSpaceStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/**
 * A collection of the young copies what lives on, all of it in one pause. Of what calls make next to nothing does; of a reload of
 * supply next to everything, and V8 lets sixteen megabytes come together. So many bytes are copied in about a millisecond.
 */
const MOST_YOUNG_BYTES = 2_000_000;

interface Collector {
  /** Collects the young at once. */
  readonly collect: () => void;
  /** Whether V8 marks what lives among the old, which it does beside the program, in many steps. */
  readonly isMarking: () => boolean;
}

let collector: Collector | undefined;

function open(): Collector {
  // The one way to ask for a small collection. No command line has to name the flag, and nobody else gets to see the function.
  setFlagsFromString("--expose-gc");
  const gc: (how: { type: "minor" }) => void = runInNewContext("gc");
  setFlagsFromString("--no-expose-gc");
  let marking = false;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const { kind } = (entry as PerformanceEntry & { detail: { kind: number } }).detail; // as Node documents entries of this type
      if (kind === constants.NODE_PERFORMANCE_GC_INCREMENTAL) marking = true;
      else if (kind === constants.NODE_PERFORMANCE_GC_MAJOR) marking = false;
    }
  }).observe({ entryTypes: ["gc"] });
  return { collect: () => gc({ type: "minor" }), isMarking: () => marking };
}

/** Whether so much is young that its collection would be felt. */
export const isYoungMany = (): boolean =>
  getHeapSpaceStatistics().some(
    ({ space_name, space_used_size }) => space_name === "new_space" && space_used_size > MOST_YOUNG_BYTES,
  );

/** Whether V8 is about to collect the old: whoever has a small collection now, has it finish that in the same pause. */
export function isCollectorBusy(): boolean {
  collector ??= open();
  return collector.isMarking();
}

/** Has the young collected at once, by this thread alone: where others want the CPU, it would wait for its helpers. */
export function collectYoung(): void {
  collector ??= open();
  setFlagsFromString("--no-parallel-scavenge");
  collector.collect();
  setFlagsFromString("--parallel-scavenge");
}
