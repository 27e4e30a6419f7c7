/**
 * How many calls may be worked on at once. The limit finds the capacity by itself: it shrinks by the ratio of the turn that the event
 * loop should take to the turn that it takes, and grows while turns are short and the limit is used. So it follows what the gateway's
 * own processor does, and no upstream. After Gradient2 of https://github.com/Netflix/concurrency-limits.
 */

/** Turns of the event loop up to this long are no overload, in milliseconds. */
const TURN_MS = 20;
/** Turns may be this many times as long as the shortest that this machine has shown of late. */
const TOLERANCE = 2;
/** The floor rises by this share of the difference in a calm window, so that it forgets a faster past. */
const FLOOR_RISE = 0.02;
/** One window halves the limit at most, and raises it by a quarter and its root at most. */
const STEEPEST = 0.5;
const GROWTH = 1.25;

/** The bounds of a limit, in calls. */
export interface LimitBounds {
  readonly initial: number;
  readonly least: number;
  readonly most: number;
}

/**
 * Calls of one turn share their reads, their writes and their commit: fewer than 16 at once cost several times as much each, which an
 * overloaded processor has least of all.
 */
export const DEFAULT_BOUNDS: LimitBounds = { initial: 32, least: 16, most: 8192 };

/** One limit. */
export class GradientLimit {
  readonly #bounds: LimitBounds;
  #limit: number;
  /** Unknown at first, and so no excuse for a long turn. */
  #floorMs = 0;

  constructor(bounds: LimitBounds = DEFAULT_BOUNDS) {
    this.#bounds = bounds;
    this.#limit = bounds.initial;
  }

  /** In whole calls. */
  get value(): number {
    return Math.floor(this.#limit);
  }

  /** A window is over: how long turns took in the mean, the most calls that were worked on at once, and whether calls waited. */
  update(turnMs: number, peak: number, waited: boolean): void {
    if (turnMs < this.#floorMs) this.#floorMs = turnMs;
    else if (!waited) this.#floorMs += (turnMs - this.#floorMs) * FLOOR_RISE;
    const targetMs = Math.max(TURN_MS, TOLERANCE * this.#floorMs);
    const gradient = Math.max(STEEPEST, Math.min(1, targetMs / turnMs));
    const isUsed = waited || peak * 2 >= this.#limit;
    const { least, most } = this.#bounds;
    let next = this.#limit;
    if (gradient < 1) next = this.#limit * gradient + Math.sqrt(this.#limit) * (gradient - STEEPEST);
    else if (isUsed && turnMs * 2 <= targetMs) next = this.#limit * GROWTH + Math.sqrt(this.#limit);
    else if (isUsed) next = this.#limit + Math.sqrt(this.#limit) / 2;
    this.#limit = Math.max(least, Math.min(most, next));
  }
}
