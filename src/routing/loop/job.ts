/** One observation on its way to its chunk, and the questions that were asked about it. */
import type { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { AttemptFailure } from "../../contracts/failure.ts";
import type { PaidLoser, Try } from "../attempt/record.ts";
import type { PlanStep } from "../plan/plan.ts";
import type { DispatchEffect, ObservationView } from "./events.ts";

/** Why the robot is to hold in place of an observation. */
export interface Unfit {
  readonly reason: HoldReason;
  readonly detail?: string;
}

/** An observation, from when it came until there is a chunk or a hold for it. */
export class ObservationTask<O> {
  view: ObservationView<O>;
  /** When it was sensed, by our clock. */
  sensedAt: number;
  /** Why no offering may be called for it; undefined where one may. */
  readonly unfit: Unfit | undefined;
  /** What of it an offering does not read, or lacks; undefined where nothing is known to be wrong. */
  unread: string | undefined = undefined;
  /** Nobody was asked about this observation yet. */
  fresh = true;
  /** Every offering that was called; none at first. */
  tries: readonly LoopAttempt<O>[] = NOBODY;
  /** How many of them have not answered. */
  underWay = 0;
  /** When a second provider is asked; Infinity when not. */
  hedgeAt = Number.POSITIVE_INFINITY;
  /** What a hedge that was sent cost so far, were it to lose. */
  hedgeMicro: number | undefined = undefined;
  /** Who that is for. */
  losers: readonly PaidLoser[] | undefined = undefined;
  /** The next newer one that is under way. */
  newer: ObservationTask<O> | undefined = undefined;

  constructor(view: ObservationView<O>, sensedAt: number, unfit: Unfit | undefined) {
    this.view = view;
    this.sensedAt = sensedAt;
    this.unfit = unfit;
  }

  /** Asks one more. */
  ask(id: number, step: PlanStep, at: number, budgetMs: number): LoopAttempt<O> {
    const attempt = new LoopAttempt(this, id, step, at, budgetMs);
    // Nearly all ask one.
    this.tries = this.tries.length === 0 ? [attempt] : [...this.tries, attempt];
    this.underWay += 1;
    this.fresh = false;
    return attempt;
  }

  /** The one of its questions of this number that is not answered; undefined where there is none. */
  attempt(id: number): LoopAttempt<O> | undefined {
    const { tries } = this;
    for (let i = tries.length - 1; i >= 0; i--) if (tries[i]!.attempt === id) return running(tries[i]!);
    return undefined;
  }

  /** The earliest call that was not answered. */
  get first(): LoopAttempt<O> | undefined {
    for (const attempt of this.tries) if (attempt.status === "running") return attempt;
    return undefined;
  }

  /** Takes over a newer observation, for which no offering was called. */
  become({ view, sensedAt }: ObservationTask<O>): void {
    this.view = view;
    this.sensedAt = sensedAt;
    this.unread = undefined;
    this.fresh = true;
  }
}

const NOBODY: readonly never[] = [];

const running = <O>(attempt: LoopAttempt<O>): LoopAttempt<O> | undefined =>
  attempt.status === "running" ? attempt : undefined;

/** One provider being asked: what is to be done, while it runs, and what came of it, in one. */
export class LoopAttempt<O> implements DispatchEffect<O>, Try {
  readonly kind = "dispatch";
  readonly attempt: number;
  readonly step: PlanStep;
  readonly view: ObservationView<O>;
  readonly fresh: boolean;
  readonly budgetMs: number;
  startedAt: number;
  /** It was asked; false while it waits to be paid for. */
  asked = true;
  status: Try["status"] = "running";
  latencyMs = 0;
  reason: AttemptFailure | undefined = undefined;
  lack: string | undefined = undefined;
  readonly #job: ObservationTask<O>;

  constructor(job: ObservationTask<O>, id: number, step: PlanStep, at: number, budgetMs: number) {
    this.#job = job;
    this.attempt = id;
    this.step = step;
    this.view = job.view;
    this.fresh = job.fresh;
    this.budgetMs = budgetMs;
    this.startedAt = at;
  }

  /** What it was asked about. */
  get job(): ObservationTask<O> {
    return this.#job;
  }

  /** It ends at `at`. */
  end(status: "ok" | "error" | "cancelled", reason: AttemptFailure | undefined, at: number): void {
    this.status = status;
    this.latencyMs = at - this.startedAt;
    this.reason = reason;
    this.#job.underWay -= 1;
  }
}
