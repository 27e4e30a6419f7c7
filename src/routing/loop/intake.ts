/** Which observations of a loop are of any use: in order, of the episode's shape, and young enough. */
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { ObservationView } from "./events.ts";
import { ObservationTask } from "./job.ts";

const FUTURE = { reason: HoldReason.INVALID_OBSERVATION, detail: "t_ms lies in the future" };
const STALE = { reason: HoldReason.STALE_OBSERVATION };

/** Looks at the observations of one loop as they come. */
export class Intake<O> {
  readonly #deadlineMs: number;
  readonly #transit = new ObservationAge();
  #newest: number | undefined;
  #shape: string | undefined;

  /** `deadlineMs` is how old an observation may be. */
  constructor(deadlineMs: number) {
    this.#deadlineMs = deadlineMs;
  }

  /** A new episode begins: steps and shape begin anew. */
  reset(): void {
    this.#newest = undefined;
    this.#shape = undefined;
  }

  /** The next observation says the episode's shape anew: what came so far nobody could read. */
  forgetShape(): void {
    this.#shape = undefined;
  }

  /** Whether the robot has come to this step already, or past it. */
  hasReached(step: number): boolean {
    return this.#newest !== undefined && this.#newest >= step;
  }

  /** What is to be thought of an observation that comes at `at`; undefined where it comes out of order. */
  judge(view: ObservationView<O>, at: number): ObservationTask<O> | undefined {
    if (this.hasReached(view.step)) return undefined;
    this.#newest = view.step;
    this.#shape ??= view.shape;
    if (view.shape !== this.#shape) {
      const detail = `it has ${view.shape}, where the episode began with ${this.#shape}; reset begins a new one`;
      return new ObservationTask(view, at, { reason: HoldReason.INVALID_OBSERVATION, detail });
    }
    const age = this.#transit.age(view.tMs, at);
    if (age === "future") return new ObservationTask(view, at, FUTURE);
    const sensedAt = at - age;
    return new ObservationTask(view, sensedAt, at >= sensedAt + this.#deadlineMs ? STALE : undefined);
  }
}

/** The quickest observation is looked for in a window of this length, so that drifting clocks are followed. */
const WINDOW_MS = 30_000;

/** An observation that comes this much sooner than the quickest one was not sensed yet. */
const FUTURE_MS = 1_000;

/**
 * How old an observation is when it comes, from two clocks that are not set by each other: the robot's and the gateway's. The quickest is taken
 * to have needed no time; every other is as old as it was slower.
 */
export class ObservationAge {
  /** Quickest difference of the two clocks in this window and the one before. */
  #quickest = Number.POSITIVE_INFINITY;
  #before = Number.POSITIVE_INFINITY;
  #since = Number.NEGATIVE_INFINITY;

  /** The age in milliseconds of what was sensed at `tMs` and came at `at`; "future" where it can't have been sensed yet. */
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
