/** Stage 5: attempts the steps of a plan until one responds. Time and I/O are parameters. */

import { HedgeWithheld } from "../../../gen/limber/v1/route_pb.ts";
import { Cancel, type Items, type Signal, untilAbort } from "../../cancellation.ts";
import type { Clock } from "../../clock.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { Reason, Refusal, refuse } from "../../errors.ts";
import type { CallWatcher } from "../health/cell.ts";
import type { HealthTracker } from "../health/health.ts";
import { isNeutral, mayHedge, type Plan, type PlanStep } from "../plan/plan.ts";
import {
  type Hedges,
  type Outcome,
  type PaidLoser,
  type Reads,
  refusalOfTries,
  routeOf,
  type Try,
  type Waker,
} from "./record.ts";

/** How unary responses are obtained. Failures are `UpstreamFailure`s; a `Refusal` or a bug ends the request. */
export interface AttemptCalls<T> {
  /** Never throws, but may reject. */
  call(step: PlanStep, options: AttemptOptions): Promise<T>;
  /** Units of a response, for its throughput. */
  unitsOf(answer: T): number;
}

/** How streams are obtained. */
export interface AttemptStreams<T> {
  open(step: PlanStep, options: AttemptOptions): AsyncIterable<T>;
  /** Units of one element. */
  unitsOf(element: T): number;
}

/** A response, its offering, and the attempts. */
export interface Attempted<T> extends Outcome {
  readonly answer: T;
  readonly step: PlanStep;
}

/** A started stream. Its last attempt is updated when the stream ends. */
export interface AttemptedStream<T> extends Outcome {
  readonly first: T;
  /** The elements after the first. Leaving the iteration early cancels the provider's call; a failure is a refusal, never a failover. */
  readonly rest: Items<T>;
  readonly step: PlanStep;
}

/**
 * Attempts the plan's steps in order until one responds, and hedges a late one if the plan allows it. Throws `all_attempts_failed`,
 * `input_contract`, `deadline_exceeded` or `capacity_exhausted` with the route, or `client_closed_request`.
 */
export async function attemptPlan<T>(plan: Plan, world: AttemptWorld, calls: AttemptCalls<T>): Promise<Attempted<T>> {
  const run = new AttemptRun(plan, world, (step, options) => calls.call(step, options), true);
  try {
    const { attempt, answer } = await run.first();
    run.end(attempt, "ok", undefined, calls.unitsOf(answer));
    return Object.assign(run.outcome(attempt.step), { answer });
  } finally {
    run.close();
  }
}

/** As `attemptPlan`, for streams: fails over before the first element, and never after it. */
export async function attemptStream<T>(
  plan: Plan,
  world: AttemptWorld,
  streams: AttemptStreams<T>,
): Promise<AttemptedStream<T>> {
  const run = new AttemptRun(
    plan,
    world,
    async (step, options) => begin(streams.open(step, options), options.signal),
    false,
  );
  try {
    const { attempt, answer } = await run.first();
    attempt.record.wake?.answered();
    const rest = new Continued(run, { attempt, answer }, streams.unitsOf);
    return { first: answer.first, rest, ...run.outcome(attempt.step) };
  } catch (thrown) {
    run.close();
    throw thrown;
  }
}

interface Begun<T> {
  readonly first: T;
  /** The elements after the first. */
  readonly elements: AsyncIterator<T>;
}

async function begin<T>(stream: AsyncIterable<T>, signal: Signal): Promise<Begun<T>> {
  const elements = stream[Symbol.asyncIterator]();
  const read = await elements.next();
  if (read.done) throw new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "the stream ended before its first element");
  // An attempt that lost in the meantime must not stay open.
  if (signal.aborted) elements.return?.().catch(() => undefined);
  return { first: read.value, elements };
}

/**
 * The elements after a stream's first. It ends when the stream ends, its reader stops, the deadline passes or the caller disconnects,
 * whichever is first.
 */
class Continued<T> implements Items<T> {
  readonly #run: AttemptRun<Begun<T>>;
  readonly #attempt: RunningAttempt<Begun<T>>;
  readonly #elements: Items<T>;
  readonly #unitsOf: (element: T) => number;
  #units: number;
  #isOver = false;
  /** Aborted with the reason of an early end. */
  readonly #stop = new Cancel();
  readonly #forgetDeadline: () => void;
  /** Since when the next element has been awaited; undefined if none is. */
  #waitsSince: number | undefined;
  #forgetWatch: (() => void) | undefined;

  constructor(run: AttemptRun<Begun<T>>, { attempt, answer }: Won<Begun<T>>, unitsOf: (element: T) => number) {
    this.#run = run;
    this.#attempt = attempt;
    this.#elements = untilAbort({ [Symbol.asyncIterator]: () => answer.elements }, this.#stop);
    this.#unitsOf = unitsOf;
    this.#units = unitsOf(answer.first);
    this.#forgetDeadline = run.atEnd(() => this.#fail(stoodStill(AttemptFailure.DEADLINE)));
    run.onLeave(() => this.#fail(run.left()));
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<T, undefined>> {
    this.#waitsSince = this.#run.world.clock.steady();
    if (!this.#isOver && this.#forgetWatch === undefined) this.#watch(this.#attempt.step.budgetMs);
    try {
      const read = await this.#elements.next();
      this.#stop.throwIfAborted();
      this.#waitsSince = undefined;
      if (read.done) this.#finish("ok", undefined);
      else this.#units += this.#unitsOf(read.value);
      return read;
    } catch (thrown) {
      this.#fail(thrown);
      throw this.#stop.reason;
    }
  }

  /** The reader stops. */
  return(): Promise<IteratorReturnResult<undefined>> {
    this.#finish("left", undefined);
    return this.#elements.return();
  }

  #fail(thrown: unknown): void {
    if (this.#isOver) return;
    if (thrown instanceof UpstreamFailure) {
      this.#finish("error", thrown.failure);
      this.#stop.abort(this.#run.refusal());
    } else {
      this.#finish("left", undefined);
      this.#stop.abort(thrown);
    }
  }

  /** One timer for all elements: if it fires too early for the awaited element, it is set again. */
  #watch(ms: number): void {
    const { clock } = this.#run.world;
    this.#forgetWatch = clock.after(ms, () => {
      this.#forgetWatch = undefined;
      if (this.#waitsSince === undefined) return;
      const left = this.#waitsSince + this.#attempt.step.budgetMs - clock.steady();
      if (left > 0) this.#watch(left);
      else this.#fail(stoodStill(AttemptFailure.TIMEOUT));
    });
  }

  #finish(how: AttemptEnding, reason: AttemptFailure | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#forgetDeadline();
    this.#forgetWatch?.();
    this.#run.end(this.#attempt, how, reason, this.#units);
    this.#run.close();
    this.#attempt.signal.abort(CANCELED);
  }
}

const stoodStill = (failure: AttemptFailure): UpstreamFailure =>
  new UpstreamFailure(failure, "the stream stalled after its first element");

/** Parameters of one attempt. */
export interface AttemptOptions {
  /** Aborted when the response is no longer needed. */
  readonly signal: Signal;
  /** Milliseconds for this attempt. */
  readonly budgetMs: number;
}

/** Dependencies of attempts. */
export interface AttemptWorld {
  readonly clock: Clock;
  readonly health: Pick<HealthTracker, "admit" | "report"> &
    Partial<Pick<HealthTracker, "begun" | "ended" | "isSilent" | "abandon" | "rests" | "said">>;
  readonly hedges: Hedges;
  /** Describes an offering's declared inputs, for refusals of rejected input. */
  readonly reads?: Reads | undefined;
  /** Undefined if cold starts are free. */
  readonly wakes?: Waker | undefined;
  /** Aborted when the caller disconnects. */
  readonly signal: Signal;
  /**
   * The caller's organization: a failure that the input may have caused counts against an offering only together with a failure of another
   * organization or of the gateway's own probe.
   */
  readonly orgId?: string;
  /** Keep no server error texts, because they may repeat the input. */
  readonly quiet?: boolean;
}

/** The abort reason of a provider call whose response is no longer needed. One object for all calls. */
const CANCELED = new UpstreamFailure(AttemptFailure.TIMEOUT, "canceled");

/**
 * Reports the cause of a failure to the offering's owner, in the words of its server or of the gateway. Input failures are not reported,
 * because they may repeat the input.
 */
export function notifyOwner(
  { health, quiet }: Pick<AttemptWorld, "health" | "quiet">,
  step: PlanStep,
  { failure, message }: UpstreamFailure,
): void {
  if (!quiet && failure !== AttemptFailure.INPUT_REJECTED && !isNeutral(step, failure))
    health.said?.(step.offering.id, failure, message);
}

/** How an attempt ends. `left`: the caller stopped reading. */
type AttemptEnding = "ok" | "error" | "cancelled" | "left";

/** One running attempt from its start to its end or cancellation: the parameters of its call, and its outcome. */
class RunningAttempt<T> implements AttemptOptions, CallWatcher {
  readonly step: PlanStep;
  readonly record: Try;
  /** Cancels it. */
  readonly signal = new Cancel();
  readonly budgetMs: number;
  /** Whether its time limit is the request's, not its own. */
  readonly isLast: boolean;
  /** See `Waiter`. */
  place = -1;
  readonly #race: AttemptRace<T>;
  #forgetTimer: () => void = nothing;
  #over = false;

  constructor(race: AttemptRace<T>, step: PlanStep, startedAt: number, budgetMs: number) {
    this.step = step;
    this.record = { step, startedAt, status: "running", latencyMs: 0, reason: undefined };
    this.budgetMs = budgetMs;
    this.isLast = budgetMs < step.budgetMs;
    this.#race = race;
  }

  /** Reports exactly one end of the call to the race, unless it is canceled before. */
  watch(call: Promise<T>, clock: Clock): void {
    this.#forgetTimer = clock.after(this.budgetMs, this.#late);
    call.then(this.#answered, this.#threw);
  }

  /** See `Waiter`: ends it as timed out, as its offering's silence indicates. */
  abandon(): void {
    if (!this.#over && !this.signal.aborted && this.#race.mayForsake()) this.#fail(AttemptFailure.TIMEOUT);
  }

  callOff(): void {
    this.#forgetTimer();
    this.signal.abort(CANCELED);
  }

  /** Returns true the first time, unless it was canceled. */
  #end(): boolean {
    if (this.#over || this.signal.aborted) return false;
    this.#over = true;
    this.#forgetTimer();
    return true;
  }

  readonly #answered = (answer: T): void => {
    if (this.#end()) this.#race.answered(this, answer);
  };

  readonly #threw = (thrown: unknown): void => {
    if (thrown instanceof UpstreamFailure) {
      this.record.lack = thrown.lack;
      this.record.retryAfterMs = thrown.retryAfterMs;
      this.#fail(thrown.failure, thrown);
    } else if (this.#end()) this.#race.broke(this, thrown);
  };

  /** Whether the request's deadline or its own timeout ended it. */
  readonly #late = (): void => this.#fail(this.isLast ? AttemptFailure.DEADLINE : AttemptFailure.TIMEOUT);

  #fail(failure: AttemptFailure, cause?: UpstreamFailure): void {
    if (!this.#end()) return;
    if (cause) this.#race.said(this, cause);
    this.signal.abort(CANCELED);
    this.#race.failed(this, failure);
  }
}

const nothing = (): void => {};

/** Whether an attempt ended without any response from its offering. An offering at its concurrency limit was not called. */
const isSilence = (how: AttemptEnding, reason: AttemptFailure | undefined): boolean =>
  how === "cancelled" || (reason !== undefined && SILENCES.has(reason));
const SILENCES: ReadonlySet<AttemptFailure> = new Set([
  AttemptFailure.TIMEOUT,
  AttemptFailure.DEADLINE,
  AttemptFailure.UPSTREAM_BUSY,
]);

/** One step of the plan and, if it is late, a hedge: the first response wins, and the race is lost when all calls failed. */
class AttemptRace<T> {
  readonly #run: AttemptRun<T>;
  /** Settled by the first of: a response, the last failure, a bug, or the caller's disconnect. */
  readonly #end = Promise.withResolvers<Won<T> | undefined>();
  #flying: RunningAttempt<T>[] = [];
  #cancelHedge: () => void = nothing;

  constructor(run: AttemptRun<T>) {
    this.#run = run;
  }

  /** Calls the step. Resolves with the winner, or without one if all attempts failed. Rejects with the error that ends the request. */
  from(first: PlanStep): Promise<Won<T> | undefined> {
    const run = this.#run;
    this.#flying.push(run.fly(this, first));
    run.world.hedges.earn();
    const { hedgeAfterMs } = run.plan;
    if (hedgeAfterMs !== undefined)
      this.#cancelHedge = run.world.clock.after(hedgeAfterMs, () => {
        const second = run.hedgeFor(first);
        if (second) this.#flying.push(run.fly(this, second));
      });
    return this.#end.promise;
  }

  /** Whether its only attempt can be dropped in favor of another step. A running hedge counts as another. */
  mayForsake(): boolean {
    return this.#flying.length === 1 && this.#run.mayForsake();
  }

  answered(attempt: RunningAttempt<T>, answer: T): void {
    this.#land(attempt);
    for (const loser of this.#flying) this.#run.paysFor(loser.record);
    this.#finish();
    this.#end.resolve({ attempt, answer });
  }

  failed(attempt: RunningAttempt<T>, failure: AttemptFailure): void {
    this.#land(attempt);
    this.#run.end(attempt, "error", failure, 0);
    if (this.#flying.length > 0) return;
    this.#finish();
    this.#end.resolve(undefined);
  }

  /** The cause of a failure. */
  said({ step }: RunningAttempt<T>, cause: UpstreamFailure): void {
    notifyOwner(this.#run.world, step, cause);
  }

  broke(attempt: RunningAttempt<T>, thrown: unknown): void {
    this.#land(attempt);
    this.#run.end(attempt, "cancelled", undefined, 0);
    this.#finish();
    this.#end.reject(thrown);
  }

  /** The caller has disconnected. */
  leave(): void {
    this.#finish();
    this.#end.reject(this.#run.left());
  }

  #land(attempt: RunningAttempt<T>): void {
    this.#flying = this.#flying.filter((other) => other !== attempt);
  }

  #finish(): void {
    this.#cancelHedge();
    this.#run.onLeave(nothing);
    for (const attempt of this.#flying) {
      attempt.callOff();
      this.#run.end(attempt, "cancelled", undefined, 0);
    }
  }
}

/** The offering that responded first, and its response. */
interface Won<T> {
  readonly attempt: RunningAttempt<T>;
  readonly answer: T;
}

/** The attempts of one request. */
class AttemptRun<T> {
  readonly plan: Plan;
  readonly world: AttemptWorld;
  private readonly call: (step: PlanStep, options: AttemptOptions) => Promise<T>;
  private readonly isWhole: boolean;
  private readonly tries: Try[] = [];
  private readonly untried: PlanStep[];
  private outOfTime = false;
  private hedgeMicro: number | undefined;
  private losers: PaidLoser[] | undefined;
  private hedgeWithheld: HedgeWithheld | undefined;
  /** What happens if the caller disconnects now. */
  private leave: () => void = nothing;
  private readonly onAbort = (): void => this.leave();

  /** `call` never throws, but may reject. `isWhole`: an attempt ends with its response, so that an offering without one is silent. */
  constructor(
    plan: Plan,
    world: AttemptWorld,
    call: (step: PlanStep, options: AttemptOptions) => Promise<T>,
    isWhole: boolean,
  ) {
    this.isWhole = isWhole;
    this.plan = plan;
    this.world = world;
    this.call = call;
    this.untried = plan.steps.slice();
    world.signal.addEventListener("abort", this.onAbort, { once: true });
  }

  close(): void {
    this.world.signal.removeEventListener("abort", this.onAbort);
  }

  outcome(step: PlanStep): Outcome & { step: PlanStep } {
    const { tries, hedgeMicro, hedgeWithheld, losers } = this;
    return { tries, step, hedgeMicro, hedgeWithheld, ...(losers && { losers }) };
  }

  /** Works through the plan to the first response; rejects with the failure. */
  async first(): Promise<Won<T>> {
    for (;;) {
      if (this.world.signal.aborted) throw this.left();
      const step = this.nextStep();
      if (!step) throw this.refusal();
      const race = new AttemptRace(this);
      this.leave = () => race.leave();
      const winner = await race.from(step);
      if (winner) return winner;
    }
  }

  /** The next step that fits into the remaining time and whose breaker admits it. */
  private nextStep(): PlanStep | undefined {
    const at = this.world.clock.steady();
    this.preferHeard(at);
    for (let step = this.untried[0]; step !== undefined; step = this.untried[0]) {
      if (!this.fits(step, at)) this.outOfTime = true;
      else if (this.admits(step, at)) return step;
      this.untried.shift();
    }
    return undefined;
  }

  /** Moves a step that may respond before a first one at which calls already wait without a response. */
  private preferHeard(at: number): void {
    const [first] = this.untried;
    if (first === undefined || this.plan.strictOrder || !this.isSilent(first, at)) return;
    const other = this.untried.findIndex((step) => this.fits(step, at) && !this.isSilent(step, at));
    if (other > 0) this.untried.unshift(...this.untried.splice(other, 1));
    this.world.health.abandon?.(first.offering.id, at);
  }

  /** Whether another step may respond if a running attempt is dropped. */
  mayForsake(): boolean {
    if (this.plan.strictOrder) return false;
    const at = this.world.clock.steady();
    const rests = ({ offering }: PlanStep): boolean => this.world.health.rests?.(offering.id, at) === true;
    return this.untried.some((step) => this.fits(step, at) && !this.isSilent(step, at) && !rests(step));
  }

  private isSilent({ offering }: PlanStep, at: number): boolean {
    return this.world.health.isSilent?.(offering.id, at) === true;
  }

  private fits(step: PlanStep, at: number): boolean {
    const left = this.plan.endsAt - at;
    return left > 0 && (step.p50Ms <= left || step.p50Ms === Number.POSITIVE_INFINITY);
  }

  private admits(step: PlanStep, at: number): boolean {
    return this.world.health.admit(step.offering.id, at, this.budgetOf(step, at), this.plan.strictOrder);
  }

  private budgetOf(step: PlanStep, at: number): number {
    return Math.min(step.budgetMs, this.plan.endsAt - at);
  }

  /** The step for a hedge, paid for by the hedge budget. If there is none, the route states why. */
  hedgeFor(first: PlanStep): PlanStep | undefined {
    let why: HedgeWithheld = HedgeWithheld.NO_EQUAL;
    let paid = false;
    const at = this.world.clock.steady();
    for (const step of this.untried) {
      if (!mayHedge(first, step, Number.POSITIVE_INFINITY)) continue;
      if (!mayHedge(first, step, this.plan.maxCostMicro)) why = HedgeWithheld.MAX_COST_USD;
      else if (!this.fits(step, at)) why = HedgeWithheld.DEADLINE;
      else if (!paid && !this.world.hedges.spend()) why = HedgeWithheld.BUDGET;
      else {
        paid = true;
        why = HedgeWithheld.CIRCUIT_OPEN;
        if (!this.admits(step, at)) continue;
        this.hedgeMicro ??= 0;
        this.hedgeWithheld = undefined;
        return step;
      }
    }
    this.hedgeWithheld = why;
    return undefined;
  }

  /** Adds the loser of a hedge to the bill. */
  paysFor(loser: Try): void {
    loser.paid = true;
    if (this.hedgeMicro === undefined) return;
    const { step } = loser;
    this.hedgeMicro += step.listMicro;
    this.losers ??= [];
    this.losers.push({ step, micro: step.listMicro });
  }

  /** Starts one attempt, which reports its outcome to the race. */
  fly(race: AttemptRace<T>, step: PlanStep): RunningAttempt<T> {
    const place = this.untried.indexOf(step);
    if (place >= 0) this.untried.splice(place, 1);
    const { clock } = this.world;
    const at = clock.steady();
    const attempt = new RunningAttempt(race, step, at, this.budgetOf(step, at));
    this.tries.push(attempt.record);
    if (step.cold) attempt.record.wake = this.world.wakes?.(step, at);
    if (this.isWhole) this.world.health.begun?.(step.offering.id, at, attempt);
    attempt.watch(this.call(step, attempt), clock);
    return attempt;
  }

  /** Records how an attempt ended, for the caller and for the offering's health. */
  end(
    attempt: Pick<RunningAttempt<unknown>, "record" | "step"> & CallWatcher,
    how: AttemptEnding,
    reason: AttemptFailure | undefined,
    units: number,
  ): void {
    const { record, step } = attempt;
    const at = this.world.clock.steady();
    // A caller that leaves a stream has received a response as far as it was read.
    record.status = how === "left" ? "ok" : how;
    record.latencyMs = at - record.startedAt;
    record.reason = reason;
    if (reason === AttemptFailure.DEADLINE) this.outOfTime = true;
    if (how === "ok" || how === "left" || record.paid) record.wake?.answered();
    else record.wake?.failed();
    if (this.isWhole) this.world.health.ended?.(step.offering.id, at, how === "ok" || !isSilence(how, reason), attempt);
    const outcome = isNeutral(step, reason) ? "cancelled" : (reason ?? (how === "ok" ? "ok" : "cancelled"));
    const { latencyMs, lack } = record;
    const { offering, cold } = step;
    const lacked = lack !== undefined;
    this.world.health.report(offering.id, { outcome, latencyMs, units, cold, at, lacked }, this.world.orgId);
  }

  /** Calls `run` at the deadline of the request; the returned function cancels it. */
  atEnd(run: () => void): () => void {
    const { clock } = this.world;
    return clock.after(this.plan.endsAt - clock.steady(), run);
  }

  /** Sets what happens if the caller disconnects from now on. */
  onLeave(leave: () => void): void {
    this.leave = leave;
    if (this.world.signal.aborted) leave();
  }

  /** The failure, derived from the attempts so far. */
  refusal(): Refusal {
    return refusalOfTries(this.tries, this.outOfTime, this.world.reads);
  }

  /** The refusal of a request whose caller disconnected, or whose own signal refused it. */
  left(): Refusal {
    const route = routeOf({ tries: this.tries, step: undefined, hedgeMicro: this.hedgeMicro });
    const { reason } = this.world.signal;
    if (!(reason instanceof Refusal)) return refuse(Reason.CLIENT_CLOSED_REQUEST, "the caller left", {}, { route });
    const { retryAfter } = reason;
    return refuse(reason.reason, reason.message, reason.details, {
      route,
      ...(retryAfter !== undefined && { retryAfter }),
    });
  }
}
