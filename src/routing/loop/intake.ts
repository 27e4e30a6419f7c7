/** Which observations of a loop are of any use: in order, of the episode's shape, and young enough. */
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { ObservationView } from "./events.ts";
import { ObservationTask } from "./job.ts";
import { ObservationAge } from "./transit.ts";

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
