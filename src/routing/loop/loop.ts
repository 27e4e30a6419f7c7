/**
 * A control loop as a state machine over events and time: latest-wins, deadlines, holds, failover within an episode. It has no side
 * effects: every event returns the actions to carry out, and equal events give equal actions.
 */
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import { checkAnswer, unitsOf } from "../../contracts/act.ts";
import type { ActAnswer, Intent } from "../../contracts/contract.ts";
import { AttemptFailure } from "../../contracts/contract.ts";
import { isNeutral, mayHedge, meansTheSame, type PlanStep, sameCheckpoint, sameWay } from "../plan/plan.ts";
import {
  ChunkWindow,
  type HoldEffect,
  Intake,
  type LoopAttempt,
  type LoopEffect,
  type LoopEvent,
  type ObservationTask,
  type ObservationView,
} from "./window.ts";

/** The settings of a loop. */
export interface LoopRules {
  readonly intent: Intent;
  /** Maximum age of an observation when its chunk arrives, in milliseconds. */
  readonly deadlineMs: number;
  /** When to send a hedge, in milliseconds; undefined for never. */
  readonly hedgeAfterMs: number | undefined;
  readonly maxCostMicro: number;
  /** Models that can take over within an episode. */
  readonly models: readonly string[];
  /** Why a response violates the caller's safety bounds; undefined if it does not. */
  readonly broken: (answer: ActAnswer) => boolean;
  /** Whether the serving offering accepts one more call beside `underWay` others, and the credit covers all of them. */
  readonly beside: (step: PlanStep, underWay: number) => boolean;
}

/** The routing functions that the loop uses. */
export interface LoopRouter<O = unknown> {
  /**
   * The offerings that satisfy the request now, best first; empty if none does. Excludes those whose actions mean something else than those
   * of `bound`, the last serving step of the episode or its model.
   */
  steps(bound: PlanStep | string | undefined): readonly PlanStep[];
  /** The mismatch between an observation and a step's declared inputs, as a sentence; undefined if none is known. */
  unreadBy(step: PlanStep, view: ObservationView<O>): string | undefined;
  /** Requests permission to send one call; false if the breaker is open. */
  admit(step: PlanStep, at: number, budgetMs: number): boolean;
  /** Whether the budget covers a hedge; counts each call if `earn`. */
  hedge(): boolean;
  /** Number of values per step that a step's response must have. */
  dimOf(step: PlanStep): number | undefined;
  /** Called if no offering could be called for an observation at `at`, in an episode served by this model; undefined if none has. */
  lacks(model: string | undefined, at: number): void;
}

/** A robot's loop. `O` is an observation as the caller sent it. */
export class Loop<O> {
  readonly #rules: LoopRules;
  readonly #router: LoopRouter<O>;
  readonly #intake: Intake<O>;
  readonly #window: ChunkWindow<O>;
  readonly #patience = new LoopPatience();
  /** The newest observation that is not dispatched. */
  #slot: ObservationTask<O> | undefined;
  #blocked: HoldReason | undefined;
  #closed = false;
  #lastFlight = 0;
  /** The step that served this episode last. */
  #served: PlanStep | undefined;
  /** The model that the episode is bound to; undefined if none. */
  #bound: string | undefined;
  /** The offering and model of the last chunk sent, in any episode. */
  #lastOffering: string | undefined;
  #lastModel: string | undefined;
  /** Number of observations that were superseded or out of order. */
  dropped = 0;
  /** The effects of the present event. */
  readonly #effects = new Effects<O>();

  constructor(rules: LoopRules, router: LoopRouter<O>) {
    this.#rules = rules;
    this.#router = router;
    this.#intake = new Intake(rules.deadlineMs);
    this.#window = new ChunkWindow(rules.intent.units);
  }

  /** Handles an event and returns the effects in order. */
  next(event: LoopEvent<O>): LoopEffect<O>[] {
    const effects: LoopEffect<O>[] = [];
    this.into(effects, event);
    return effects;
  }

  /** The same, into a list that is reused; returns the number of effects. */
  into(effects: (LoopEffect<O> | undefined)[], event: LoopEvent<O>): number {
    this.#effects.begin(effects);
    if (!this.#closed) this.#take(event);
    return this.#effects.count;
  }

  /** When the next `time` event is due; Infinity if nothing depends on time. */
  get wakeAt(): number {
    const { oldest } = this.#window;
    if (!oldest) return this.#slot ? this.#expiry(this.#slot.sensedAt) : Number.POSITIVE_INFINITY;
    let first = Number.POSITIVE_INFINITY;
    for (let job: ObservationTask<O> | undefined = oldest; job; job = job.newer)
      first = Math.min(first, this.#expiry(job.sensedAt), job.hedgeAt);
    return first;
  }

  /** Whether a response is pending. */
  get busy(): boolean {
    return this.#window.size > 0;
  }

  /** Binds the episode to the model that served it before the stream was opened. */
  resume(model: string): void {
    this.#bound = model;
    this.#lastModel = model;
  }

  #take(event: LoopEvent<O>): void {
    const { at } = event;
    // Handle what was due before this event first.
    if (event.kind !== "time" && at >= this.wakeAt) this.#time(at);
    switch (event.kind) {
      case "observed":
        this.#observe(event.view, at);
        return;
      case "answered":
        this.#answered(event.attempt, event.answer, at);
        return;
      case "failed":
        this.#failed(event.attempt, event.failure, at, event.lack);
        return;
      case "waits":
      case "asked":
        this.#waits(event.attempt, event.kind === "waits", at);
        return;
      case "refused":
        this.#refused(event.attempt, HoldReason.INVALID_OBSERVATION, event.detail, at);
        return;
      case "limited":
        this.#refused(event.attempt, HoldReason.RATE_LIMITED, event.detail, at);
        return;
      case "unpaid":
        this.#refused(event.attempt, HoldReason.NOT_RECORDED, "", at);
        return;
      case "time":
        this.#time(at);
        return;
      case "blocked":
        this.#blocked = event.why;
        this.#rest(at);
        return;
      case "reset":
        this.#drop(at);
        this.#window.forget();
        this.#intake.reset();
        this.#served = undefined;
        this.#bound = undefined;
        return;
      case "closed":
        this.#drop(at);
        this.#closed = true;
    }
  }

  #observe(view: ObservationView<O>, at: number): void {
    const job = this.#intake.judge(view, at);
    if (!job) {
      this.dropped += 1;
      return;
    }
    if (job.unfit) {
      this.#hold(job, job.unfit.reason, at, job.unfit);
      return;
    }
    if (this.#slot) this.dropped += 1;
    this.#slot = job;
    this.#rest(at);
  }

  /** Continues with the waiting observation, unless a call is running and the serving offering accepts no other beside it. */
  #rest(at: number): void {
    const job = this.#slot;
    if (!job || this.#blocked !== undefined) return;
    if (!this.#window.isOpen(at)) return;
    const { hedgeAfterMs } = this.#rules;
    job.hedgeAt = hedgeAfterMs === undefined ? Number.POSITIVE_INFINITY : at + hedgeAfterMs;
    if (this.busy) {
      if (this.#askBeside(job, at)) this.#slot = undefined;
      return;
    }
    this.#slot = undefined;
    this.#window.add(job);
    this.#ask(job, at);
  }

  /** Calls only the serving offering while calls for older observations are running. */
  #askBeside(job: ObservationTask<O>, at: number): boolean {
    const { oldest, size } = this.#window;
    const usual = this.#usual(this.#steps());
    if (!usual) return false;
    for (let each = oldest; each; each = each.newer)
      if (each.first?.step.offering.id !== usual.offering.id) return false;
    if (!this.#rules.beside(usual, size) || !this.#fly(job, usual, at)) return false;
    this.#window.add(job);
    return true;
  }

  /** Calls the next eligible offering that was not called for this observation yet. */
  #ask(job: ObservationTask<O>, at: number): void {
    const steps = this.#steps();
    // The last serving offering comes first, which needs no list of the others.
    const usual = job.tries.length === 0 ? this.#usual(steps) : undefined;
    if (usual && this.#fly(job, usual, at)) return;
    const candidates = candidatesOf(steps, this.#served ?? this.#bound, this.#rules.models, this.#patience.lost);
    for (const step of candidates) {
      if (job.tries.some((tried) => sameWay(tried.step, step))) continue;
      if (this.#fly(job, step, at)) return;
    }
    if (job.tries.length === 0 && job.unread !== undefined) {
      if (this.#served === undefined) this.#intake.forgetShape();
      this.#window.remove(job);
      this.#hold(job, HoldReason.INVALID_OBSERVATION, at, { detail: job.unread });
      this.#rest(at);
      return;
    }
    const reason = job.tries.length === 0 ? HoldReason.NO_PROVIDER : HoldReason.UPSTREAM_FAILED;
    if (reason === HoldReason.NO_PROVIDER) this.#router.lacks(this.#served?.offering.model ?? this.#bound, at);
    this.#give(job, reason, at);
  }

  /** The step that served last, unless it is repeatedly late. */
  #usual(steps: readonly PlanStep[]): PlanStep | undefined {
    const id = this.#served?.offering.id;
    if (id === this.#patience.lost) return undefined;
    for (const step of steps) if (step.offering.id === id) return step;
    return undefined;
  }

  #steps(): readonly PlanStep[] {
    return this.#router.steps(this.#served ?? this.#bound);
  }

  #fly(job: ObservationTask<O>, step: PlanStep, at: number): boolean {
    if (step.offering.declared !== undefined) {
      const unread = this.#router.unreadBy(step, job.view);
      if (unread !== undefined) {
        job.unread ??= unread;
        return false;
      }
    }
    const budgetMs = Math.min(this.#expiry(job.sensedAt) - at, step.budgetMs);
    if (budgetMs <= 0 || !this.#router.admit(step, at, budgetMs)) return false;
    this.#effects.add(job.ask(++this.#lastFlight, step, at, budgetMs));
    return true;
  }

  #answered(id: number, answer: ActAnswer, at: number): void {
    const attempt = this.#window.find(id);
    if (!attempt) return;
    const failure = this.#faultOf(answer, attempt.step);
    if (failure !== undefined) {
      this.#failed(id, failure, at);
      return;
    }
    const { job } = attempt;
    const units = unitsOf(answer);
    this.#effects.end(attempt, "ok", undefined, units, at);
    if (job.underWay > 0) {
      // The losers of a hedge.
      if (job.hedgeMicro !== undefined)
        for (const { status, step } of job.tries)
          if (status === "running") {
            job.hedgeMicro += step.listMicro;
            job.losers = [...(job.losers ?? []), { step, micro: step.listMicro }];
          }
      this.#effects.callOff(job, undefined, at);
    }
    this.#window.took(at - attempt.startedAt);
    this.#passOver(job, at);
    this.#window.remove(job);
    const validUntil = job.view.step + units;
    // The robot has already passed its last step.
    if (this.#intake.hasReached(validUntil)) {
      this.#patience.late(attempt.step.offering.id);
      this.#hold(job, HoldReason.LATE, at, { tries: job.tries });
    } else this.#deliver(attempt, answer, validUntil, at);
    this.#rest(at);
  }

  #faultOf(answer: ActAnswer, step: PlanStep): AttemptFailure | undefined {
    const failure = checkAnswer(answer, { units: step.units, dim: this.#router.dimOf(step) });
    return failure ?? (this.#rules.broken(answer) ? AttemptFailure.UNSAFE_ACTION : undefined);
  }

  #deliver({ job, step }: LoopAttempt<O>, answer: ActAnswer, validUntil: number, at: number): void {
    const { view, sensedAt, tries, hedgeMicro, losers } = job;
    this.#patience.inTime();
    const { id: offering, model } = step.offering;
    const moved = this.#lastOffering !== offering;
    if (moved) this.#window.forget();
    const episodeBreak = this.#lastModel !== undefined && this.#lastModel !== model;
    this.#served = step;
    this.#lastOffering = offering;
    this.#lastModel = model;
    this.#effects.add({
      kind: "deliver",
      at,
      view,
      answer,
      step,
      ageMs: at - sensedAt,
      validUntil,
      tries,
      hedgeMicro,
      losers,
      moved,
      episodeBreak,
      dropped: this.dropped,
    });
  }

  #failed(id: number, failure: AttemptFailure, at: number, lack?: string): void {
    const attempt = this.#window.find(id);
    if (!attempt) return;
    attempt.lack = lack;
    const { job } = attempt;
    this.#effects.end(attempt, "error", failure, 0, at);
    this.#window.forget();
    if (job.underWay > 0) return;
    if (job !== this.#window.newest && failure !== AttemptFailure.UNSAFE_ACTION) {
      // A newer one is running: no other offering is called for this one.
      this.dropped += 1;
      this.#window.remove(job);
      this.#rest(at);
      return;
    }
    // Another provider is called for the newest observation.
    if (job === this.#window.newest && this.#slot && this.#blocked === undefined) {
      this.dropped += 1;
      job.become(this.#slot);
      this.#slot = undefined;
    }
    if (failure === AttemptFailure.UNSAFE_ACTION) this.#give(job, HoldReason.OUT_OF_BOUNDS, at);
    else this.#ask(job, at);
  }

  /** The time before the first call does not count against any offering. */
  #waits(id: number, waits: boolean, at: number): void {
    const attempt = this.#window.find(id);
    if (!attempt) return;
    attempt.asked = !waits;
    attempt.startedAt = at;
  }

  #refused(id: number, reason: HoldReason, detail: string, at: number): void {
    const job = this.#window.find(id)?.job;
    if (!job) return;
    this.#effects.callOff(job, undefined, at);
    this.#window.remove(job);
    this.#hold(job, reason, at, { detail });
    this.#rest(at);
  }

  #time(at: number): void {
    let newer: ObservationTask<O> | undefined;
    for (let job = this.#window.oldest; job; job = newer) {
      newer = job.newer;
      if (at >= this.#expiry(job.sensedAt)) {
        const { first } = job;
        if (first?.asked) this.#patience.late(first.step.offering.id);
        this.#effects.callOff(job, AttemptFailure.DEADLINE, at);
        this.#window.forget();
        this.#give(job, first?.asked === false ? HoldReason.NOT_RECORDED : HoldReason.LATE, at);
      } else if (at >= job.hedgeAt) {
        job.hedgeAt = Number.POSITIVE_INFINITY;
        // If a newer one is running, no other offering is called for this one.
        if (job === this.#window.newest) this.#hedge(job, at);
      }
    }
    const slot = this.#slot;
    if (!slot || this.busy || at < this.#expiry(slot.sensedAt)) return;
    this.#slot = undefined;
    // A client that does not read receives nothing more.
    if (this.#blocked === HoldReason.SLOW_READER) this.dropped += 1;
    else this.#hold(slot, this.#blocked ?? HoldReason.LATE, at);
  }

  #hedge(job: ObservationTask<O>, at: number): void {
    const { first } = job;
    if (!first?.asked) return;
    for (const step of this.#steps()) {
      if (!mayHedge(first.step, step, this.#rules.maxCostMicro)) continue;
      if (!this.#router.hedge()) return;
      if (this.#fly(job, step, at)) job.hedgeMicro = 0;
      return;
    }
  }

  /** Ends a task without a chunk. */
  #give(job: ObservationTask<O>, reason: HoldReason, at: number): void {
    this.#window.remove(job);
    this.#hold(job, reason, at, { tries: job.tries.filter(({ asked }) => asked) });
    this.#rest(at);
  }

  #hold(
    job: ObservationTask<O>,
    reason: HoldReason,
    at: number,
    more?: Partial<Pick<HoldEffect, "detail" | "tries">>,
  ): void {
    this.#effects.hold(job, reason, at, this.dropped, more);
  }

  /** Drops running and waiting observations. */
  #drop(at: number): void {
    this.#passOver(undefined, at);
    if (this.#slot) this.dropped += 1;
    this.#slot = undefined;
  }

  /**
   * Chunks are delivered in the order of their observations: observations older than a delivered one, or all if there is none, get no
   * chunk.
   */
  #passOver(answered: ObservationTask<O> | undefined, at: number): void {
    for (let job = this.#window.oldest; job && job !== answered; job = this.#window.oldest) {
      this.#window.remove(job);
      this.#effects.callOff(job, undefined, at);
      this.dropped += 1;
    }
  }

  #expiry(sensedAt: number): number {
    return sensedAt + this.#rules.deadlineMs;
  }
}

/**
 * The plan's eligible steps, best first: a robot never mixes two motion plans within an episode. `bound` is the step that served the
 * episode last, or its model if no more is known: it comes first, then its equals, then the models of the explicit chain `models`. Before
 * any step has served, all are eligible. The offering `late` comes after its equals.
 */
function candidatesOf(
  steps: readonly PlanStep[],
  bound: PlanStep | string | undefined,
  models: readonly string[],
  late?: string,
): readonly PlanStep[] {
  const isLate = ({ offering }: PlanStep): boolean => offering.id === late;
  const inTime = (equals: readonly PlanStep[]): readonly PlanStep[] =>
    late === undefined ? equals : [...equals.filter((step) => !isLate(step)), ...equals.filter(isLate)];
  if (bound === undefined) return inTime(steps);
  const listed = (step: PlanStep): boolean => models.includes(step.offering.model);
  if (typeof bound === "string") {
    const same = steps.filter(({ offering }) => offering.model === bound);
    return [...inTime(same), ...steps.filter((step) => step.offering.model !== bound && listed(step))];
  }
  const isLast = ({ offering }: PlanStep): boolean => offering.id === bound.offering.id;
  // The usual case: builds no list per observation.
  if (steps[0] !== undefined && isLast(steps[0]) && steps.length === 1) return steps;
  const equals = steps.filter((step) => !isLast(step) && sameCheckpoint(step, bound));
  const others = steps.filter(
    (step) => !isLast(step) && !sameCheckpoint(step, bound) && listed(step) && meansTheSame(step, bound),
  );
  return [...inTime([...steps.filter(isLast), ...equals]), ...others];
}

/**
 * Number of consecutive late responses after which the loop prefers an equal offering. Lateness depends on the robot's own deadline and
 * steps, so it affects only this loop: other calls are ranked by latency, failures and missed deadlines that allowed the usual latency.
 */
const MOST_LATE = 3;

/** Tracks the offering of one loop whose responses are late. */
class LoopPatience {
  #offering: string | undefined;
  #inARow = 0;

  /** A response of this offering was late or did not arrive. */
  late(offering: string): void {
    if (this.#offering !== offering) this.#inARow = 0;
    this.#offering = offering;
    this.#inARow += 1;
  }

  /** A response arrived in time. */
  inTime(): void {
    this.#offering = undefined;
    this.#inARow = 0;
  }

  /** The offering whose equals come first; undefined if none is repeatedly late. */
  get lost(): string | undefined {
    return this.#inARow >= MOST_LATE ? this.#offering : undefined;
  }
}

/** The effects of one event at a time. */
class Effects<O> {
  #list: (LoopEffect<O> | undefined)[] = [];
  /** Number of effects. */
  count = 0;

  /** Starts a new list, reusing this one. */
  begin(list: (LoopEffect<O> | undefined)[]): void {
    this.#list = list;
    this.count = 0;
  }

  /** Adds an effect. */
  add(effect: LoopEffect<O>): void {
    this.#list[this.count++] = effect;
  }

  /** Adds a hold in place of a task's chunk. `dropped` counts all superseded observations so far. */
  hold(
    { view: { step }, sensedAt }: ObservationTask<O>,
    reason: HoldReason,
    at: number,
    dropped: number,
    { detail = "", tries = [] }: Partial<Pick<HoldEffect, "detail" | "tries">> = {},
  ): void {
    this.add({ kind: "hold", at, step, reason, ageMs: at - sensedAt, detail, tries, dropped });
  }

  /** Cancels the calls for a task. A call that had not started has not failed. */
  callOff(job: ObservationTask<O>, failure: AttemptFailure | undefined, at: number): void {
    if (job.underWay === 0) return;
    for (const attempt of job.tries) {
      if (attempt.status !== "running") continue;
      this.add({ kind: "cancel", attempt: attempt.attempt });
      const fault = attempt.asked ? failure : undefined;
      this.end(attempt, fault === undefined ? "cancelled" : "error", fault, 0, at);
    }
  }

  /** Records how an attempt ended, for the caller and for the offering's health. */
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
