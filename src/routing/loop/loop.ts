/**
 * A control loop as a machine of events and time: latest-wins, deadlines, holds, failover inside an episode. It does nothing
 * itself: every event is answered with what is to be done, and the same events give the same answers.
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

/** What holds for a whole loop. */
export interface LoopRules {
  readonly intent: Intent;
  /** How old an observation may be when its chunk arrives, in milliseconds. */
  readonly deadlineMs: number;
  /** When to ask a second provider, in milliseconds; undefined for never. */
  readonly hedgeAfterMs: number | undefined;
  readonly maxCostMicro: number;
  /** Models that may take over inside an episode. */
  readonly models: readonly string[];
  /** Why an answer breaks the caller's safety bounds; undefined when it does not. */
  readonly broken: (answer: ActAnswer) => boolean;
  /** Whether the serving offering takes one more call beside `underWay` others, and all of them are paid for. */
  readonly beside: (step: PlanStep, underWay: number) => boolean;
}

/** What the loop asks of routing. */
export interface LoopRouter<O = unknown> {
  /**
   * The offerings that satisfy the request at this moment, best first; none when nothing does. None whose actions mean something else than
   * those of `bound`: who served the episode last, or the model that did.
   */
  steps(bound: PlanStep | string | undefined): readonly PlanStep[];
  /** What of an observation a step's offering does not read, or lacks, in a sentence; undefined where nothing is known to be wrong. */
  unreadBy(step: PlanStep, view: ObservationView<O>): string | undefined;
  /** Asks to send one call: false where a breaker rests. */
  admit(step: PlanStep, at: number, budgetMs: number): boolean;
  /** Whether a hedge may be spent; notes each call when `earn`. */
  hedge(): boolean;
  /** Numbers per step that a step's answer must have. */
  dimOf(step: PlanStep): number | undefined;
  /** Nobody could be asked about an observation at `at`, in an episode that this model serves; undefined while none does. */
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
  /** Who served this episode last. */
  #served: PlanStep | undefined;
  /** The model that the episode is bound to; undefined while it is bound to none. */
  #bound: string | undefined;
  /** The offering and the model of the last chunk that was sent, in whatever episode. */
  #lastOffering: string | undefined;
  #lastModel: string | undefined;
  /** Observations that were replaced, or came out of order. */
  dropped = 0;
  /** What the present event asks for. */
  readonly #effects = new Effects<O>();

  constructor(rules: LoopRules, router: LoopRouter<O>) {
    this.#rules = rules;
    this.#router = router;
    this.#intake = new Intake(rules.deadlineMs);
    this.#window = new ChunkWindow(rules.intent.units);
  }

  /** Takes an event and says what is to be done, in order. */
  next(event: LoopEvent<O>): LoopEffect<O>[] {
    const effects: LoopEffect<O>[] = [];
    this.into(effects, event);
    return effects;
  }

  /** The same, written over the beginning of a list that can so be used again; how many effects there are. */
  into(effects: (LoopEffect<O> | undefined)[], event: LoopEvent<O>): number {
    this.#effects.begin(effects);
    if (!this.#closed) this.#take(event);
    return this.#effects.count;
  }

  /** When the next `time` event is due; Infinity when nothing depends on time. */
  get wakeAt(): number {
    const { oldest } = this.#window;
    if (!oldest) return this.#slot ? this.#expiry(this.#slot.sensedAt) : Number.POSITIVE_INFINITY;
    let first = Number.POSITIVE_INFINITY;
    for (let job: ObservationTask<O> | undefined = oldest; job; job = job.newer)
      first = Math.min(first, this.#expiry(job.sensedAt), job.hedgeAt);
    return first;
  }

  /** Whether an answer is awaited. */
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
    // What should have happened before this event happens first.
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

  /** Goes on with the observation that waits, unless a call is under way and the serving offering takes no other beside it. */
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

  /** Calls the serving offering, and no other, while calls for older observations are under way. */
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

  /** Calls the next offering that may serve and was not called for this observation yet. */
  #ask(job: ObservationTask<O>, at: number): void {
    const steps = this.#steps();
    // Who served last goes first, and needs no list made of the others.
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

  /** Who served last, unless it is late again and again. */
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
    // The robot itself is past its last step already.
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
      // A newer one is under way: no other offering is called for this one.
      this.dropped += 1;
      this.#window.remove(job);
      this.#rest(at);
      return;
    }
    // Another provider is asked about the newest that there is.
    if (job === this.#window.newest && this.#slot && this.#blocked === undefined) {
      this.dropped += 1;
      job.become(this.#slot);
      this.#slot = undefined;
    }
    if (failure === AttemptFailure.UNSAFE_ACTION) this.#give(job, HoldReason.OUT_OF_BOUNDS, at);
    else this.#ask(job, at);
  }

  /** The time before the first call counts against no offering. */
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
        // With a newer one under way no other offering is called for this one.
        if (job === this.#window.newest) this.#hedge(job, at);
      }
    }
    const slot = this.#slot;
    if (!slot || this.busy || at < this.#expiry(slot.sensedAt)) return;
    this.#slot = undefined;
    // A caller that does not read gets nothing more.
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

  /** There will be no chunk for a job. */
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

  /** Forgets what is under way and what waits. */
  #drop(at: number): void {
    this.#passOver(undefined, at);
    if (this.#slot) this.dropped += 1;
    this.#slot = undefined;
  }

  /** Chunks go down in the order of their observations: what is older than an answer gets none any more; nothing does, where there is none. */
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
 * The steps of a plan that may serve now, best first: a robot never mixes two plans of motion inside an episode. `bound` is the step that
 * served the episode last, or the model that did where no more is known: it goes first, then its equals, then the models of the explicit
 * chain `models`. Before any step has served, every step may. The offering `late` comes behind its equals.
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
  // The usual case: no list is built for every observation.
  if (steps[0] !== undefined && isLast(steps[0]) && steps.length === 1) return steps;
  const equals = steps.filter((step) => !isLast(step) && sameCheckpoint(step, bound));
  const others = steps.filter(
    (step) => !isLast(step) && !sameCheckpoint(step, bound) && listed(step) && meansTheSame(step, bound),
  );
  return [...inTime([...steps.filter(isLast), ...equals]), ...others];
}

/**
 * Answers in a row that came too late for the robot, until the loop prefers an equal offering. Lateness depends on the robot's own deadline
 * and steps, so it moves this loop alone: other calls are ordered by latency, by failures, and by deadlines that gave a provider its usual
 * time.
 */
const MOST_LATE = 3;

/** The offering of one loop whose answers come too late. */
class LoopPatience {
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

  /** The offering whose equals go first; undefined while none is late again and again. */
  get lost(): string | undefined {
    return this.#inARow >= MOST_LATE ? this.#offering : undefined;
  }
}

/** The effects of one event at a time. */
class Effects<O> {
  #list: (LoopEffect<O> | undefined)[] = [];
  /** Number of pending observations. */
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
