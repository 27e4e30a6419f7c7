/** Quantiles of durations that were stored as counts by bucket. */
import { BUCKETS, quantileOf } from "../routing/index.ts";

/** Number of durations, and their quantiles in milliseconds; those are undefined without durations. */
interface Quantiles {
  readonly count: number;
  readonly p50: number | undefined;
  readonly p95: number | undefined;
  readonly p99: number | undefined;
}

/** Quantiles of counts by bucket, with an error of at most 10 %. */
export function quantilesOf(counts: Iterable<readonly [bucket: string | number, count: number]>): Quantiles {
  const all = new Float64Array(BUCKETS);
  let count = 0;
  for (const [bucket, n] of counts) {
    all[Number(bucket)]! += n;
    count += n;
  }
  const at = (q: number): number | undefined => {
    const ms = quantileOf(all, q);
    return ms === undefined ? undefined : Math.round(ms * 1000) / 1000;
  };
  return { count, p50: at(0.5), p95: at(0.95), p99: at(0.99) };
}
