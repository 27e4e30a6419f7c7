/** What a loop has asked about and not answered yet, in the order of the observations, and when one more may be asked about beside it. */
import type { LoopAttempt, ObservationTask } from "./job.ts";

/**
 * At most so many observations are asked about at once; as many as a chunk has steps, where those are more, so that a pause of which
 * a robot need not know loses it none: what is older than that has a chunk that is over before it comes.
 */
export const MOST_AT_ONCE = 8;
/** However many steps a chunk has. */
const MOST_EVER = 64;

/**
 * An offering that answers within this many milliseconds answers each observation of the fastest loop. A slower one is asked about the
 * newest alone: more at once would make each answer older, and the caller pay for chunks that the next one replaces.
 */
export const QUICK_MS = 5;

/**
 * The weight of one answer in what is usual, and the most that it counts, of which no more than half as much again as is usual and half a
 * millisecond: a machine that stood still for a moment is no slow provider, though a dozen answers waited for it.
 */
const WEIGHT = 1 / 32;
const MOST_COUNTED_MS = 2 * QUICK_MS;
const LEAST_COUNTED_MS = 0.5;

/**
 * While anything is under way for longer than this, nothing is asked about beside it: where more comes than can be done, what is not
 * asked about is what keeps the rest in time. Most pauses of a machine are shorter.
 */
const LONGEST_MS = 4 * QUICK_MS;
/** Who serves may do one thing after the other: no more is under way than would be answered so within this time. */
const ALL_MS = MOST_AT_ONCE * QUICK_MS;

/** What `#usualMs` is where it is not known. */
const UNKNOWN = -1;

/** The jobs of one loop, a chain from the oldest observation to the newest. */
export class ChunkWindow<O> {
  /** Undefined when nothing is under way. */
  oldest: ObservationTask<O> | undefined;
  newest: ObservationTask<O> | undefined;
  /** How many there are. */
  size = 0;
  /** The usual time of the serving offering, in milliseconds. */
  #usualMs = UNKNOWN;
  readonly #most: number;

  /** `steps` are those of a chunk. */
  constructor(steps: number) {
    this.#most = Math.min(Math.max(MOST_AT_ONCE, steps), MOST_EVER);
  }

  /** Whether one more observation may be sent to the serving offering: it answers quickly, and no call under way went wrong. */
  isOpen(at: number): boolean {
    if (this.oldest === undefined) return true;
    const usualMs = this.#usualMs;
    if (usualMs === UNKNOWN || usualMs > QUICK_MS) return false;
    if (this.size >= this.#most || this.size * usualMs >= ALL_MS) return false;
    for (let job: ObservationTask<O> | undefined = this.oldest; job; job = job.newer)
      if (job.tries.length > 1 || job.underWay !== 1 || at - job.tries[0]!.startedAt > LONGEST_MS) return false;
    return true;
  }

  /** Who serves has answered after so long. */
  took(ms: number): void {
    const usual = this.#usualMs;
    const sample = Math.min(ms, MOST_COUNTED_MS);
    if (usual === UNKNOWN) this.#usualMs = sample;
    else this.#usualMs += (Math.min(sample, 1.5 * usual + LEAST_COUNTED_MS) - usual) * WEIGHT;
  }

  /** The usual time is not valid any more: a call failed, or another offering serves. */
  forget(): void {
    this.#usualMs = UNKNOWN;
  }

  /** The flight of this number; undefined where it is under way no longer. */
  find(id: number): LoopAttempt<O> | undefined {
    for (let job = this.oldest; job; job = job.newer) {
      const attempt = job.attempt(id);
      if (attempt) return attempt;
    }
    return undefined;
  }

  /** Takes in a job that is newer than all. */
  add(job: ObservationTask<O>): void {
    if (this.newest) this.newest.newer = job;
    else this.oldest = job;
    this.newest = job;
    this.size += 1;
  }

  /** Takes a job out. */
  remove(job: ObservationTask<O>): void {
    let before: ObservationTask<O> | undefined;
    for (let each = this.oldest; each !== job; each = each.newer) {
      if (each === undefined) return;
      before = each;
    }
    if (before) before.newer = job.newer;
    else this.oldest = job.newer;
    if (this.newest === job) this.newest = before;
    // Who keeps it keeps none of the others.
    job.newer = undefined;
    this.size -= 1;
  }
}
