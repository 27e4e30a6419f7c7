/** Figures of a control loop: since its start, and over the last minute. */
import type { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import { BUCKETS, bucketOf, quantileOf } from "../health/cell.ts";

/** Figures of one session, or of one offering over all its sessions. */
export interface LoopFigures {
  /** Number of chunks sent. */
  readonly chunks: number;
  readonly holds: number;
  /** Holds because the response would have been late. */
  readonly missed: number;
  /** Chunks per second, from the first to the last. */
  readonly effectiveHz: number;
  /** Share of late responses. */
  readonly staleRatio: number;
  /** Standard deviation of the time between chunks, in milliseconds. */
  readonly jitterMs: number;
}

/** Longer pauses are the robot's own and do not count for the rate. */
const PAUSE_MS = 5_000;

/** Counts the messages to one loop. */
export class LoopGauge {
  chunks = 0;
  holds = 0;
  missed = 0;
  /** Intervals between chunks: number, mean, and sum of squared deviations. Source: Welford, 1962. */
  #intervals = 0;
  #meanMs = 0;
  #squares = 0;
  #lastAt = Number.NEGATIVE_INFINITY;

  /** Counts a chunk sent at `at`, on the steady clock in milliseconds. */
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

  /** Counts a hold; `late` if the response missed its deadline. */
  hold(late: boolean): void {
    this.holds += 1;
    if (late) this.missed += 1;
  }

  /** Adds the counts of another one. */
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

  /** Returns the figures. */
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

/** Length of the window in seconds. */
const SECONDS = 60;
/** Offsets of the observation counts, behind those of chunks, and of the two age lists, behind both. */
const SEEN = SECONDS;
const AGES = 2 * SECONDS;
/** Time without observations after which the robot counts as paused. */
const WAITING_MS = 2_000;

/** The figures of a loop. */
export interface LiveLoopFigures {
  readonly state: "running" | "holding" | "waiting";
  readonly lastHold: HoldReason | undefined;
  /** Chunks in the last complete second. */
  readonly rateHz: number;
  /** Minimum chunks in a second with observations throughout; undefined if there was none. */
  readonly worstHz: number | undefined;
  /** Observations per second in the same seconds. */
  readonly askedHz: number | undefined;
  /** Milliseconds; undefined without a chunk. */
  readonly ageP50Ms: number | undefined;
  readonly ageP99Ms: number | undefined;
}

/** Counts for watchers, cheap enough in memory and time to run always. Times are on the steady clock, in milliseconds. */
export class LiveGauge {
  /** Number of holds, by reason number. */
  readonly holds: number[] = [];
  /** By second: chunks sent and observations received. Then ages by bucket, of this minute and the previous one. */
  #counts: Uint16Array | undefined;
  /** Offset of this minute's ages: before or after the other minute's. */
  #agesAt = AGES;
  /** The newest second in the window. */
  #second: number;
  /** The second in which the loop started, which is incomplete. */
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

  /** Counts an observation. */
  observed(at: number): void {
    this.#seenAt = at;
    this.#made()[SEEN + this.#placeOf(at)]! += 1;
  }

  /** Counts a chunk for an observation of this age. */
  chunk(at: number, ageMs: number): void {
    this.#isHolding = false;
    const counts = this.#made();
    counts[this.#placeOf(at)]! += 1;
    this.#turnAges(at);
    const place = this.#agesAt + bucketOf(ageMs);
    // A counter that is full stays full: it already dominates the minute.
    if (counts[place]! < 65_535) counts[place]! += 1;
  }

  /** Counts a hold. */
  hold(reason: HoldReason): void {
    this.#isHolding = true;
    this.#lastHold = reason;
    this.holds[reason] = (this.holds[reason] ?? 0) + 1;
  }

  /** The figures at a given time. */
  figures(at: number): LiveLoopFigures {
    const now = Math.floor(at / 1000);
    this.#advance(now);
    this.#turnAges(at);
    const counts = this.#counts ?? NONE;
    let worst = Number.POSITIVE_INFINITY;
    let asked = 0;
    let seconds = 0;
    for (let second = Math.max(now - SECONDS + 2, this.#first + 1); second < now; second++) {
      // A robot's pause starts and ends within a second: the seconds at its edges prove nothing about the provider.
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

  /** Clears the slots of new seconds. */
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

/** The counts of a loop without any. */
const NONE = new Uint16Array(AGES + 2 * BUCKETS);
