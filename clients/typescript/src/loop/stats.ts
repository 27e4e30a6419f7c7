/** Statistics of a loop. */

/** Statistics of a loop so far. */
export interface LoopStats {
  /** Chunks per second: in the last second, on average, and in the worst complete second. */
  readonly rate: { readonly now: number; readonly average: number; readonly worstSecond: number };
  /** Age of observations when their chunks arrived, in milliseconds: of the last chunk, on average, and at most. */
  readonly ageMs: { readonly last: number; readonly mean: number; readonly most: number };
  readonly chunks: number;
  /** Chunks that arrived too late for any of their steps. */
  readonly stale: number;
  /** Control steps without an action, by reason. */
  readonly holds: Readonly<Record<string, number>>;
  /** Control steps with an action. */
  readonly actions: number;
  /** Observations that a newer one replaced: before they were sent, and in the gateway. */
  readonly dropped: { readonly here: number; readonly there: number };
  /** Number of opened streams. */
  readonly streams: number;
  readonly costUsd: number;
}

/** Counters of a loop. Times are in milliseconds of a monotonic clock. */
export class LoopCounts {
  stale = 0;
  actions = 0;
  droppedHere = 0;
  droppedThere = 0;
  streams = 0;
  readonly #holds = new Map<string, number>();
  #chunks = 0;
  #costUsd = 0;
  #ages = 0;
  #lastAge = 0;
  #mostAge = 0;
  #firstMs: number | undefined;
  /** Arrival times of the chunks of the last second. */
  readonly #recent: number[] = [];
  /** The current second, counted from the first chunk. */
  #second = 0;
  #inSecond = 0;
  #worst: number | undefined;

  chunk(nowMs: number, ageMs: number, costUsd: number): void {
    this.#firstMs ??= nowMs;
    this.#turn(nowMs);
    this.#chunks++;
    this.#inSecond++;
    this.#recent.push(nowMs);
    this.#costUsd += costUsd;
    this.#ages += ageMs;
    this.#lastAge = ageMs;
    this.#mostAge = Math.max(this.#mostAge, ageMs);
  }

  hold(reason: string): void {
    this.#holds.set(reason, (this.#holds.get(reason) ?? 0) + 1);
  }

  at(nowMs: number): LoopStats {
    this.#turn(nowMs);
    const seconds = (nowMs - (this.#firstMs ?? nowMs)) / 1000;
    const now = this.#recent.length;
    return {
      rate: { now, average: seconds > 0 ? this.#chunks / seconds : now, worstSecond: this.#worst ?? now },
      ageMs: { last: this.#lastAge, mean: this.#chunks === 0 ? 0 : this.#ages / this.#chunks, most: this.#mostAge },
      chunks: this.#chunks,
      stale: this.stale,
      holds: Object.fromEntries(this.#holds),
      actions: this.actions,
      dropped: { here: this.droppedHere, there: this.droppedThere },
      streams: this.streams,
      costUsd: this.#costUsd,
    };
  }

  #turn(nowMs: number): void {
    while (this.#recent.length > 0 && this.#recent[0]! <= nowMs - 1000) this.#recent.shift();
    const second = Math.floor((nowMs - (this.#firstMs ?? nowMs)) / 1000);
    if (second <= this.#second) return;
    // A second without a chunk is the worst possible one.
    const worst = second > this.#second + 1 ? 0 : this.#inSecond;
    this.#worst = Math.min(this.#worst ?? worst, worst);
    this.#second = second;
    this.#inSecond = 0;
  }
}
