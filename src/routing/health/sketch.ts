/** A mergeable sketch of durations that forgets: quantiles within 10 %, over about the last hundred calls. */

const GROWTH = 1.2;
const LN_GROWTH = Math.log(GROWTH);
const SHORTEST_MS = 0.1;
/** How many buckets there are: they reach past an hour. */
export const BUCKETS = 100;
/** Each sample weighs this much more than the one before, so that old ones fade. */
const FADE = 1.02;
/** And twice as much after this long, so that idle figures fade too. */
const HALF_LIFE_MS = 60_000;
/** It fades in steps of this much, so that calls that come together pay for it once. */
const FADE_STEP_MS = 10;
/** Weights are scaled down before they grow out of a double's range. */
const HEAVIEST = 1e12;

/** More samples at once than this would drown everything that came before. */
const MOST_AT_ONCE = 50;

/** The bucket of a duration. Every replica has the same ones, so that their counts can be added up. */
export function bucketOf(durationMs: number): number {
  const exponent = Math.log(Math.max(durationMs, SHORTEST_MS) / SHORTEST_MS) / LN_GROWTH;
  return Math.min(Math.floor(exponent), BUCKETS - 1);
}

/** The duration below which the share `q` of counted ones lies, in milliseconds; undefined when there is none. */
export function quantileOf(counts: ArrayLike<number>, q: number): number | undefined {
  let total = 0;
  for (let i = 0; i < counts.length; i++) total += counts[i]!;
  let below = 0;
  for (let i = 0; i < counts.length; i++) {
    below += counts[i]!;
    if (below > 0 && below >= total * q) return middleOf(i);
  }
  return undefined;
}

/** The geometric middle of a bucket is at most a tenth off. */
const middleOf = (bucket: number): number => SHORTEST_MS * GROWTH ** (bucket + 0.5);

/** Durations in milliseconds, in buckets that grow by a fifth. */
export class Sketch {
  private readonly buckets = new Float64Array(BUCKETS);
  private total = 0;
  /** What the next sample weighs. */
  private weight = 1;
  private touchedAt = 0;

  /** Adds a duration that was seen at `now`. */
  add(durationMs: number, now: number, bucket = bucketOf(durationMs)): void {
    if (this.touchedAt === 0 || now - this.touchedAt >= FADE_STEP_MS) this.age(now);
    this.take(bucket, 1);
    this.heavier(FADE);
  }

  /** Adds durations that others counted, by bucket, as if they had been seen at `now`. */
  addCounts(counts: ArrayLike<number>, now: number): void {
    let sum = 0;
    for (let i = 0; i < BUCKETS; i++) sum += counts[i] ?? 0;
    if (sum === 0) return;
    this.age(now);
    const share = Math.min(1, MOST_AT_ONCE / sum);
    for (let i = 0; i < BUCKETS; i++) if (counts[i]) this.take(i, counts[i]! * share);
    this.heavier(FADE ** (sum * share));
  }

  /** How many fresh samples the faded ones are worth; at most about fifty. */
  samples(now: number): number {
    return this.total / this.weight / this.fading(now);
  }

  /** The duration below which the share `q` of the weight lies, in milliseconds; NaN when there is none. */
  quantile(q: number): number {
    let below = 0;
    for (let i = 0; i < BUCKETS; i++) {
      below += this.buckets[i]!;
      if (below > 0 && below >= this.total * q) return middleOf(i);
    }
    return Number.NaN;
  }

  private take(bucket: number, samples: number): void {
    this.buckets[bucket]! += this.weight * samples;
    this.total += this.weight * samples;
  }

  private heavier(times: number): void {
    this.weight *= times;
    if (this.weight > HEAVIEST) this.scale(1 / this.weight);
  }

  private fading(now: number): number {
    return this.touchedAt === 0 ? 1 : 2 ** (Math.max(0, now - this.touchedAt) / HALF_LIFE_MS);
  }

  private age(now: number): void {
    const fading = this.fading(now);
    // After days of silence nothing old counts, and the factor itself would overflow.
    if (fading > HEAVIEST) this.buckets.fill(0);
    if (fading > HEAVIEST) this.total = 0;
    else this.weight *= fading;
    this.touchedAt = Math.max(this.touchedAt, now);
  }

  private scale(by: number): void {
    for (let i = 0; i < BUCKETS; i++) this.buckets[i]! *= by;
    this.total *= by;
    this.weight *= by;
  }
}
