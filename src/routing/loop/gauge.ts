/** The figures of a control loop: since it began, and over the last minute. */
import type { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import { BUCKETS, bucketOf, quantileOf } from "../health/cell.ts";

/** Figures of one session, or of one offering over all its sessions. */
export interface LoopFigures {
  /** Chunks that were sent. */
  readonly chunks: number;
  readonly holds: number;
  /** Holds because the answer would have come too late. */
  readonly missed: number;
  /** Chunks per second, from the first to the last. */
  readonly effectiveHz: number;
  /** Share of the answers that would have come too late. */
  readonly staleRatio: number;
  /** Standard deviation of the time between chunks, in milliseconds. */
  readonly jitterMs: number;
}

/** Pauses longer than this are the robot's own, and no part of its rate. */
const PAUSE_MS = 5_000;

/** Counts what one loop is sent. */
export class LoopGauge {
  chunks = 0;
  holds = 0;
  missed = 0;
  /** Intervals between chunks: how many, their mean, the sum of squared deviations. Source: Welford, 1962. */
  #intervals = 0;
  #meanMs = 0;
  #squares = 0;
  #lastAt = Number.NEGATIVE_INFINITY;

  /** A chunk was sent at `at`, on the steady clock in milliseconds. */
  chunk(at: number): void {
    this.chunks += 1;
    const interval = at - this.#lastAt;
    this.#lastAt = at;
    if (interval > PAUSE_MS) return;
    this.#intervals += 1;
    const off = interval - this.#meanMs;
    this.#meanMs += off / this.#intervals;
    this.#squares += off * (interval - this.#meanMs);
  }

  /** A hold was sent; `late` when the answer missed its deadline. */
  hold(late: boolean): void {
    this.holds += 1;
    if (late) this.missed += 1;
  }

  /** Adds what another one counted. */
  add(other: LoopGauge): void {
    this.chunks += other.chunks;
    this.holds += other.holds;
    this.missed += other.missed;
    const intervals = this.#intervals + other.#intervals;
    if (intervals === 0) return;
    const apart = other.#meanMs - this.#meanMs;
    this.#squares += other.#squares + (apart * apart * this.#intervals * other.#intervals) / intervals;
    this.#meanMs += (apart * other.#intervals) / intervals;
    this.#intervals = intervals;
  }

  /** What it comes to. */
  get figures(): LoopFigures {
    const { chunks, holds, missed } = this;
    const answers = chunks + missed;
    return {
      chunks,
      holds,
      missed,
      effectiveHz: this.#meanMs > 0 ? 1000 / this.#meanMs : 0,
      staleRatio: answers > 0 ? missed / answers : 0,
      jitterMs: this.#intervals > 0 ? Math.sqrt(this.#squares / this.#intervals) : 0,
    };
  }
}

/** Seconds that are looked back at. */
const SECONDS = 60;
/** Where the counts of observations begin behind those of chunks, and the two lists of ages behind both. */
const SEEN = SECONDS;
const AGES = 2 * SECONDS;
/** A robot that has sent no observation for this long is waited for. */
const WAITING_MS = 2_000;

/** What the figures of a loop come to. */
export interface LiveLoopFigures {
  readonly state: "running" | "holding" | "waiting";
  readonly lastHold: HoldReason | undefined;
  /** Chunks in the last whole second. */
  readonly rateHz: number;
  /** The fewest in a second through which observations came; undefined where there was none. */
  readonly worstHz: number | undefined;
  /** Observations per second in the same seconds. */
  readonly askedHz: number | undefined;
  /** Milliseconds; undefined without a chunk. */
  readonly ageP50Ms: number | undefined;
  readonly ageP99Ms: number | undefined;
}

/** Counts for who watches, in so little memory and time that it always does. Moments are of the steady clock, in milliseconds. */
export class LiveGauge {
  /** How often the robot was told to hold, by the number of the reason. */
  readonly holds: number[] = [];
  /** By second: chunks that left, and observations that came. Behind them ages by bucket, of this minute and of the one before. */
  #counts: Uint16Array | undefined;
  /** Where the ages of this minute stand, before or behind those of the other. */
  #agesAt = AGES;
  /** The newest second that has a place in them. */
  #second: number;
  /** The second in which the loop began, of which a part is missing. */
  readonly #first: number;
  #agesSince: number;
  #seenAt: number;
  #lastHold: HoldReason | undefined;
  #isHolding = false;

  constructor(at: number) {
    this.#second = Math.floor(at / 1000);
    this.#first = this.#second;
    this.#agesSince = at;
    this.#seenAt = at - WAITING_MS;
  }

  /** An observation came. */
  observed(at: number): void {
    this.#seenAt = at;
    this.#made()[SEEN + this.#placeOf(at)]! += 1;
  }

  /** A chunk left for an observation that was so old. */
  chunk(at: number, ageMs: number): void {
    this.#isHolding = false;
    const counts = this.#made();
    counts[this.#placeOf(at)]! += 1;
    this.#turnAges(at);
    const place = this.#agesAt + bucketOf(ageMs);
    // A count that is full stays so: its share of the minute is nearly all of it anyway.
    if (counts[place]! < 65_535) counts[place]! += 1;
  }

  /** The robot was told to hold. */
  hold(reason: HoldReason): void {
    this.#isHolding = true;
    this.#lastHold = reason;
    this.holds[reason] = (this.holds[reason] ?? 0) + 1;
  }

  /** What it comes to at a moment. */
  figures(at: number): LiveLoopFigures {
    const now = Math.floor(at / 1000);
    this.#advance(now);
    this.#turnAges(at);
    const counts = this.#counts ?? NONE;
    let worst = Number.POSITIVE_INFINITY;
    let asked = 0;
    let seconds = 0;
    for (let second = Math.max(now - SECONDS + 2, this.#first + 1); second < now; second++) {
      // A pause of the robot begins and ends within a second: those at its edges say nothing of the provider.
      if (!this.#sawIn(second) || !this.#sawIn(second - 1) || !this.#sawIn(second + 1)) continue;
      worst = Math.min(worst, counts[second % SECONDS]!);
      asked += counts[SEEN + (second % SECONDS)]!;
      seconds += 1;
    }
    const ages = counts.slice(AGES, AGES + BUCKETS).map((count, bucket) => count + counts[AGES + BUCKETS + bucket]!);
    const isWaiting = at - this.#seenAt >= WAITING_MS;
    return {
      state: isWaiting ? "waiting" : this.#isHolding ? "holding" : "running",
      lastHold: this.#lastHold,
      rateHz: now > this.#first ? counts[(now - 1) % SECONDS]! : 0,
      worstHz: seconds > 0 ? worst : undefined,
      askedHz: seconds > 0 ? asked / seconds : undefined,
      ageP50Ms: quantileOf(ages, 0.5),
      ageP99Ms: quantileOf(ages, 0.99),
    };
  }

  #made(): Uint16Array {
    this.#counts ??= new Uint16Array(NONE.length);
    return this.#counts;
  }

  #sawIn(second: number): boolean {
    return this.#counts !== undefined && this.#counts[SEEN + (second % SECONDS)]! > 0;
  }

  #placeOf(at: number): number {
    const second = Math.floor(at / 1000);
    if (second > this.#second) this.#advance(second);
    return second % SECONDS;
  }

  /** Empties the places of seconds that begin. */
  #advance(second: number): void {
    const counts = this.#counts;
    if (counts !== undefined)
      for (let next = Math.max(this.#second + 1, second - SECONDS + 1); next <= second; next++) {
        counts[next % SECONDS] = 0;
        counts[SEEN + (next % SECONDS)] = 0;
      }
    this.#second = Math.max(this.#second, second);
  }

  #turnAges(at: number): void {
    const passedMs = at - this.#agesSince;
    if (passedMs < 60_000) return;
    const before = this.#agesAt;
    this.#agesAt = before === AGES ? AGES + BUCKETS : AGES;
    this.#counts?.fill(0, this.#agesAt, this.#agesAt + BUCKETS);
    if (passedMs >= 120_000) this.#counts?.fill(0, before, before + BUCKETS);
    this.#agesSince = at;
  }
}

/** The counts of a loop that has none. */
const NONE = new Uint16Array(AGES + 2 * BUCKETS);
