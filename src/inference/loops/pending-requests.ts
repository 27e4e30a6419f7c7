/** The questions of a loop that are on their way: asked when they may be and are paid for, and what comes of each. */

import type { Call } from "../../call.ts";
import { steadyNow } from "../../clock.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { asRefusal, Reason, Refusal } from "../../errors.ts";
import type { DispatchEffect, Hedges, LoopEvent, PlanStep } from "../../routing/index.ts";
import type { LoopBilling } from "./loop-billing.ts";
import type { ParsedObservation } from "./observation-view.ts";
import { PendingRequest, type RequestOwner } from "./pending-request.ts";
import type { PlanTracker } from "./plan-tracker.ts";
import type { UpstreamChannels } from "./upstream-channels.ts";

/** Whose questions they are. */
export interface PendingRequestsOptions {
  readonly call: Call;
  readonly channels: UpstreamChannels;
  readonly billing: LoopBilling;
  readonly tracker: PlanTracker;
  readonly hedges: Hedges;
  readonly happen: (event: LoopEvent<ParsedObservation>) => void;
  readonly end: (refusal: Refusal) => void;
  /** Whether the caller may ask, whose observations may keep failing. */
  readonly mayAsk: (at: number) => boolean;
  /** Throws the refusal of a caller that may not. */
  readonly assertMayAsk: (at: number) => void;
  /** Told of what an offering's server did wrong, for its owner. */
  readonly said: (step: PlanStep, cause: UpstreamFailure) => void;
}

/** One loop's questions. */
export class PendingRequests implements RequestOwner {
  readonly #options: PendingRequestsOptions;
  /** One for each observation that is asked about, or two where it was hedged. */
  readonly #requests: PendingRequest[] = [];
  /** What is to be done, in words. */
  instruction: string;

  constructor(options: PendingRequestsOptions, instruction: string) {
    this.#options = options;
    this.instruction = instruction;
  }

  /** Asks, at `at`; at once where it may. */
  dispatch(effect: DispatchEffect<ParsedObservation>, at: number): void {
    const attempt = new PendingRequest(this, effect);
    this.#requests.push(attempt);
    this.#options.hedges.earn();
    const { billing, tracker, happen } = this.#options;
    // A step counts once, at however many offerings.
    const isCounted = !effect.fresh || this.#tryCount(at);
    if (isCounted && billing.tryCover(tracker.plan, at)) {
      this.#ask(effect, attempt);
      return;
    }
    happen({ kind: "waits", at, attempt: effect.attempt });
    void this.#askLater(effect, attempt, isCounted);
  }

  /** Asks once the key has a step and the bill covers it. Never rejects. */
  async #askLater(
    effect: DispatchEffect<ParsedObservation>,
    attempt: PendingRequest,
    isCounted: boolean,
  ): Promise<void> {
    const { billing, tracker, happen } = this.#options;
    try {
      if (!isCounted) await this.#count();
      await billing.cover(tracker.plan);
    } catch (thrown) {
      this.#unpaid(effect.attempt, thrown);
      return;
    }
    if (attempt.aborted) return;
    // It turned out that this step cannot be paid: the next observation goes to one that can.
    if (tracker.isUnpaid(effect.step)) {
      this.#landed(effect.attempt);
      happen({ kind: "unpaid", at: steadyNow(), attempt: effect.attempt });
      return;
    }
    happen({ kind: "asked", at: steadyNow(), attempt: effect.attempt });
    // Its time may have been over.
    if (!attempt.aborted) this.#ask(effect, attempt);
  }

  /** Its outcome is ignored from now on. */
  callOff(id: number): void {
    this.#landed(id)?.abort(undefined);
  }

  answered({ attempt, step, view }: DispatchEffect<ParsedObservation>, answer: ActAnswer): void {
    if (!this.#landed(attempt)) return;
    const { channels, happen, end } = this.#options;
    try {
      if (channels.exceeds(step, view.payload, answer))
        this.#failed(attempt, new UpstreamFailure(AttemptFailure.UNSAFE_ACTION, "beyond the bounds that hold here"));
      else happen({ kind: "answered", at: steadyNow(), attempt, answer });
    } catch (thrown) {
      // The connection that carried the answer carries those of other loops too.
      end(asRefusal(thrown));
    }
  }

  failed({ attempt, step }: DispatchEffect<ParsedObservation>, thrown: unknown): void {
    if (!this.#landed(attempt)) return;
    if (thrown instanceof UpstreamFailure) this.#options.said(step, thrown);
    this.#failed(attempt, thrown);
  }

  /** Ends a request that is under way; undefined where it has ended. */
  #landed(id: number): PendingRequest | undefined {
    const requests = this.#requests;
    const last = requests.at(-1);
    if (last?.id === id) return requests.pop();
    const at = requests.findIndex((attempt) => attempt.id === id);
    return at < 0 ? undefined : requests.splice(at, 1)[0];
  }

  /** Takes a step from the key's limit where one is at hand. */
  #tryCount(at: number): boolean {
    const { mayAsk, call } = this.#options;
    return mayAsk(at) && (call.steps?.tryStep() ?? true);
  }

  /** Takes a step from the key's limit; rejects with the refusal where there is none. */
  async #count(): Promise<void> {
    const { assertMayAsk, call } = this.#options;
    assertMayAsk(steadyNow());
    await call.steps?.waitStep();
  }

  #ask({ step, view, budgetMs }: DispatchEffect<ParsedObservation>, attempt: PendingRequest): void {
    this.#options.channels.ask(attempt, step, view.payload, this.instruction, budgetMs);
  }

  #failed(attempt: number, thrown: unknown): void {
    const { happen, end } = this.#options;
    const at = steadyNow();
    if (thrown instanceof UpstreamFailure)
      happen({ kind: "failed", at, attempt, failure: thrown.failure, lack: thrown.lack });
    else if (thrown instanceof Refusal) happen({ kind: "refused", at, attempt, detail: thrown.message });
    else end(asRefusal(thrown));
  }

  /** No credit ends the loop; a ledger that is away and a rate limit make the robot hold. */
  #unpaid(attempt: number, thrown: unknown): void {
    this.#landed(attempt);
    const { happen, end } = this.#options;
    const refusal = asRefusal(thrown);
    const at = steadyNow();
    if (refusal.reason === Reason.STORE_UNAVAILABLE) happen({ kind: "unpaid", at, attempt });
    else if (refusal.reason === Reason.RATE_LIMIT_EXCEEDED || refusal.reason === Reason.TOO_MANY_FAILED_CALLS)
      happen({ kind: "limited", at, attempt, detail: refusal.message });
    else end(refusal);
  }
}
