/** What a loop has asked about and not answered yet, in the order of the observations, and when one more may be asked about beside it. */
import type { PlanStep } from "../plan.ts";
import type { Try } from "../record.ts";
import type { Sighting } from "./events.ts";

/** At most so many observations are asked about at once. */
export const MOST_AT_ONCE = 8;

/**
 * Who answers within this many milliseconds answers each observation of the fastest loop. Whoever takes longer is asked about the
 * newest alone: more at once would make each answer older, and the caller pay for chunks that the next one replaces.
 */
export const QUICK_MS = 5;

/** The weight of one answer in what is usual, and the most that it counts: a machine that stood still for a moment is no slow provider. */
const WEIGHT = 1 / 32;
const MOST_COUNTED_MS = 2 * QUICK_MS;

/**
 * While anything is under way for longer than this, nothing is asked about beside it: where more comes than can be done, what is not
 * asked about is what keeps the rest in time.
 */
const LONGEST_MS = 2 * QUICK_MS;

/** One provider being asked. */
export interface Flight {
  readonly id: number;
  readonly step: PlanStep;
  readonly record: Try;
}

/** One observation on its way to its chunk. */
export interface Job<O> {
  sighting: Sighting<O>;
  /** When it was sensed, by our clock. */
  sensedAt: number;
  /** Nobody was asked about this observation yet. */
  fresh: boolean;
  readonly flights: Flight[];
  readonly tries: Try[];
  /** When a second provider is asked; Infinity when not. */
  hedgeAt: number;
  /** What a hedge that was sent cost so far, were it to lose. */
  hedgeMicro: number | undefined;
}

/** The jobs of one loop. */
export class Window<O> {
  /** Oldest observation first. */
  readonly jobs: Job<O>[] = [];
  /** How long who serves usually takes, in milliseconds; undefined when that is not known. */
  #usualMs: number | undefined;

  /** Whether one more may be asked about, of who serves: it answers quickly, and nothing that is under way went wrong. */
  isOpen(at: number): boolean {
    const { jobs } = this;
    if (jobs.length === 0) return true;
    if (this.#usualMs === undefined || this.#usualMs > QUICK_MS || jobs.length >= MOST_AT_ONCE) return false;
    for (const { tries, flights } of jobs)
      if (tries.length > 1 || flights.length !== 1 || at - tries[0]!.startedAt > LONGEST_MS) return false;
    return true;
  }

  /** The newest; undefined when nothing is under way. */
  get newest(): Job<O> | undefined {
    return this.jobs[this.jobs.length - 1];
  }

  /** Who serves has answered after so long. */
  took(ms: number): void {
    const sample = Math.min(ms, MOST_COUNTED_MS);
    this.#usualMs = this.#usualMs === undefined ? sample : this.#usualMs + (sample - this.#usualMs) * WEIGHT;
  }

  /** What was usual tells nothing any more: somebody failed, or another serves. */
  forget(): void {
    this.#usualMs = undefined;
  }

  /** The job and the flight of this number; undefined where it is under way no longer. */
  find(id: number): { job: Job<O>; flight: Flight } | undefined {
    for (const job of this.jobs) for (const flight of job.flights) if (flight.id === id) return { job, flight };
    return undefined;
  }

  /** Takes a job out. */
  remove(job: Job<O>): void {
    if (this.jobs[0] === job) this.jobs.shift();
    else this.jobs.splice(this.jobs.indexOf(job), 1);
  }
}
