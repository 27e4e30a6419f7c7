/** How a control loop does at this moment: rates of the last minute second by second, ages of observations, holds by reason. A kilobyte each. */
import { type HoldReason, HoldReasonSchema } from "../../../gen/limber/v1/control_loop_pb.ts";
import { BUCKETS, bucketOf, quantileOf } from "../health/sketch.ts";

/** Seconds that are looked back at. */
const SECONDS = 60;
/** Places for the reasons of holds, by their numbers. */
const REASONS = Math.max(...HoldReasonSchema.values.map(({ number }) => number)) + 1;
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
  readonly holds = new Uint32Array(REASONS);
  /** By second: chunks that left, and observations that came. */
  readonly #chunks = new Uint16Array(SECONDS);
  readonly #seen = new Uint16Array(SECONDS);
  /** The newest second that has a place in them. */
  #second: number;
  /** The second in which the loop began, of which a part is missing. */
  readonly #first: number;
  /** Ages by bucket, of this minute and of the one before. */
  #ages = new Uint16Array(BUCKETS);
  #agesBefore = new Uint16Array(BUCKETS);
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
    this.#seen[this.#placeOf(at)]! += 1;
  }

  /** A chunk left for an observation that was so old. */
  chunk(at: number, ageMs: number): void {
    this.#isHolding = false;
    this.#chunks[this.#placeOf(at)]! += 1;
    this.#turnAges(at);
    const bucket = bucketOf(ageMs);
    // A count that is full stays so: its share of the minute is nearly all of it anyway.
    if (this.#ages[bucket]! < 65_535) this.#ages[bucket]! += 1;
  }

  /** The robot was told to hold. */
  hold(reason: HoldReason): void {
    this.#isHolding = true;
    this.#lastHold = reason;
    this.holds[reason]! += 1;
  }

  /** What it comes to at a moment. */
  figures(at: number): LiveLoopFigures {
    const now = Math.floor(at / 1000);
    this.#advance(now);
    this.#turnAges(at);
    let worst = Number.POSITIVE_INFINITY;
    let asked = 0;
    let seconds = 0;
    for (let second = Math.max(now - SECONDS + 2, this.#first + 1); second < now; second++) {
      // A pause of the robot begins and ends within a second: those at its edges say nothing of the provider.
      if (!this.#sawIn(second) || !this.#sawIn(second - 1) || !this.#sawIn(second + 1)) continue;
      worst = Math.min(worst, this.#chunks[second % SECONDS]!);
      asked += this.#seen[second % SECONDS]!;
      seconds += 1;
    }
    const ages = this.#ages.map((count, bucket) => count + this.#agesBefore[bucket]!);
    const isWaiting = at - this.#seenAt >= WAITING_MS;
    return {
      state: isWaiting ? "waiting" : this.#isHolding ? "holding" : "running",
      lastHold: this.#lastHold,
      rateHz: now > this.#first ? this.#chunks[(now - 1) % SECONDS]! : 0,
      worstHz: seconds > 0 ? worst : undefined,
      askedHz: seconds > 0 ? asked / seconds : undefined,
      ageP50Ms: quantileOf(ages, 0.5),
      ageP99Ms: quantileOf(ages, 0.99),
    };
  }

  #sawIn(second: number): boolean {
    return this.#seen[second % SECONDS]! > 0;
  }

  #placeOf(at: number): number {
    const second = Math.floor(at / 1000);
    if (second > this.#second) this.#advance(second);
    return second % SECONDS;
  }

  /** Empties the places of seconds that begin. */
  #advance(second: number): void {
    for (let next = Math.max(this.#second + 1, second - SECONDS + 1); next <= second; next++) {
      this.#chunks[next % SECONDS] = 0;
      this.#seen[next % SECONDS] = 0;
    }
    this.#second = Math.max(this.#second, second);
  }

  #turnAges(at: number): void {
    const passedMs = at - this.#agesSince;
    if (passedMs < 60_000) return;
    const emptied = this.#agesBefore.fill(0);
    this.#agesBefore = passedMs < 120_000 ? this.#ages : this.#ages.fill(0);
    this.#ages = emptied;
    this.#agesSince = at;
  }
}
