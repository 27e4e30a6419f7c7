/** How a control loop does: rate, staleness, jitter, missed deadlines. */

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
