/** What an event asks for: the list that a loop writes while it takes one, in order. */
import type { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { AttemptFailure } from "../../contracts/failure.ts";
import { isNeutral } from "../plan/own-keys.ts";
import type { HoldEffect, LoopEffect } from "./events.ts";
import type { LoopAttempt, ObservationTask } from "./job.ts";

/** The effects of one event at a time. */
export class Effects<O> {
  #list: (LoopEffect<O> | undefined)[] = [];
  /** How many there are. */
  count = 0;

  /** Begins anew, over the beginning of this list. */
  begin(list: (LoopEffect<O> | undefined)[]): void {
    this.#list = list;
    this.count = 0;
  }

  /** Asks for one more. */
  add(effect: LoopEffect<O>): void {
    this.#list[this.count++] = effect;
  }

  /** The robot is to hold in place of a job's chunk. `dropped` are all observations so far that gave way. */
  hold(
    { view: { step }, sensedAt }: ObservationTask<O>,
    reason: HoldReason,
    at: number,
    dropped: number,
    { detail = "", tries = [] }: Partial<Pick<HoldEffect, "detail" | "tries">> = {},
  ): void {
    this.add({ kind: "hold", at, step, reason, ageMs: at - sensedAt, detail, tries, dropped });
  }

  /** Cancels the calls for a job. A call that had not begun has not failed. */
  callOff(job: ObservationTask<O>, failure: AttemptFailure | undefined, at: number): void {
    if (job.underWay === 0) return;
    for (const attempt of job.tries) {
      if (attempt.status !== "running") continue;
      this.add({ kind: "cancel", attempt: attempt.attempt });
      const fault = attempt.asked ? failure : undefined;
      this.end(attempt, fault === undefined ? "cancelled" : "error", fault, 0, at);
    }
  }

  /** Notes how an attempt ended, for the caller and for the health of its offering. */
  end(
    attempt: LoopAttempt<O>,
    status: "ok" | "error" | "cancelled",
    reason: AttemptFailure | undefined,
    units: number,
    at: number,
  ): void {
    attempt.end(status, reason, at);
    const { step, latencyMs, lack } = attempt;
    const verdict = reason ?? (status === "ok" ? "ok" : "cancelled");
    const outcome = isNeutral(step, reason) ? "cancelled" : verdict;
    const { offering, cold } = step;
    const lacked = lack !== undefined;
    this.add({ kind: "told", offeringId: offering.id, outcome, latencyMs, units, cold, at, lacked });
  }
}
