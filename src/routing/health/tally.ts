/** What one replica counted of one offering since it began. Counters only grow: of two states the greater is the newer. */
import { BUCKETS } from "./sketch.ts";

/** Counters of one offering, as they are gossiped to other replicas and rolled up. */
export interface AttemptCounts {
  /** Calls that ended with a verdict: neither cancelled nor spoilt by their caller. */
  readonly calls: number;
  /** Those that its provider failed. */
  readonly failures: number;
  /** Latencies of warm calls, by bucket of the sketch. */
  readonly latency: Uint32Array;
}

/** A tally that counts. */
export class Counters implements AttemptCounts {
  calls = 0;
  failures = 0;
  readonly latency = new Uint32Array(BUCKETS);
}

/** A tally that stands. */
export const copyOf = ({ calls, failures, latency }: AttemptCounts): AttemptCounts => ({
  calls,
  failures,
  latency: latency.slice(),
});

/** What a tally counted since it was `before`; nothing where it was ahead, as when two messages overtook each other. */
export function since(before: AttemptCounts | undefined, tally: AttemptCounts): AttemptCounts {
  if (!before) return copyOf(tally);
  return {
    calls: Math.max(0, tally.calls - before.calls),
    failures: Math.max(0, tally.failures - before.failures),
    latency: tally.latency.map((count, i) => Math.max(0, count - before.latency[i]!)),
  };
}

/** Two states of one tally, of which each counter's greater one holds. */
export function newest(one: AttemptCounts, other: AttemptCounts): AttemptCounts {
  return {
    calls: Math.max(one.calls, other.calls),
    failures: Math.max(one.failures, other.failures),
    latency: one.latency.map((count, i) => Math.max(count, other.latency[i]!)),
  };
}
