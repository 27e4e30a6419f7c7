/** How old an observation is when it comes, from two clocks that nobody has set: the robot's and ours. */

/** Observations of this much are looked back on for the quickest one, so that drifting clocks are followed. */
const WINDOW_MS = 30_000;

/** What comes this much sooner than the quickest one was not sensed yet. */
const FUTURE_MS = 1_000;

/** The way of a stream's observations: the quickest is taken to have taken no time, every other is as old as it was slower. */
export class ObservationAge {
  /** Quickest difference of the two clocks in this window and the one before. */
  #quickest = Number.POSITIVE_INFINITY;
  #before = Number.POSITIVE_INFINITY;
  #since = Number.NEGATIVE_INFINITY;

  /** The age in milliseconds of what was sensed at `tMs` and came at `at`; "future" when it can't have been sensed yet. */
  age(tMs: number | undefined, at: number): number | "future" {
    if (tMs === undefined) return 0;
    const took = at - tMs;
    const usual = Math.min(this.#quickest, this.#before);
    if (took < usual - FUTURE_MS && usual !== Number.POSITIVE_INFINITY) return "future";
    if (at - this.#since >= WINDOW_MS) {
      this.#before = this.#quickest;
      this.#quickest = took;
      this.#since = at;
    } else this.#quickest = Math.min(this.#quickest, took);
    return took - Math.min(this.#quickest, this.#before);
  }
}
