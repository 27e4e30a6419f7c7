/** When a loop asks an equal of who serves it: by the holds that its own robot was given, which say nothing to other callers. */

/**
 * So many answers in a row that came too late for the robot. What a robot calls late hangs on its own deadline and its own steps, so it
 * moves this loop alone: all others are ordered by latency, by failures, and by deadlines that gave a provider its usual time.
 */
export const MOST_LATE = 3;

/** The patience of one loop with those who serve it. */
export class LoopPatience {
  #offering: string | undefined;
  #inARow = 0;

  /** An answer of this offering came too late, or not at all until then. */
  late(offering: string): void {
    if (this.#offering !== offering) this.#inARow = 0;
    this.#offering = offering;
    this.#inARow += 1;
  }

  /** An answer came in time. */
  inTime(): void {
    this.#offering = undefined;
    this.#inARow = 0;
  }

  /** Whose equals go first; undefined while nobody is late again and again. */
  get lost(): string | undefined {
    return this.#inARow >= MOST_LATE ? this.#offering : undefined;
  }
}
