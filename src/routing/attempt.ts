/** Stage 5: down the plan until one answers. Time and I/O come in as arguments. */
import type { Clock } from "../ambient.ts";
import { AttemptFailure, UpstreamFailure } from "../contracts/failure.ts";
import { Reason, Refusal, refuse } from "../refusal.ts";
import { Cancel, type Signal } from "../signal.ts";
import type { HealthBoard } from "./health.ts";
import type { Hedges } from "./hedge.ts";
import { isNeutral } from "./own-keys.ts";
import { mayHedge, type Plan, type PlanStep } from "./plan.ts";
import { type Outcome, refusalOfTries, routeOf, type Try } from "./record.ts";

/** What one attempt is given. */
export interface AttemptOptions {
  /** Aborted when the answer is no longer wanted. */
  readonly signal: Signal;
  /** Milliseconds for this attempt. */
  readonly budgetMs: number;
}

/** What attempting needs of the world. */
export interface AttemptWorld {
  readonly clock: Clock;
  readonly health: Pick<HealthBoard, "admit" | "report">;
  readonly hedges: Hedges;
  /** Aborted when the caller leaves. */
  readonly signal: Signal;
}

/** How whole answers are got. Failures come as `UpstreamFailure`; a `Refusal` or a bug ends the request. */
export interface AttemptCalls<T> {
  call(step: PlanStep, options: AttemptOptions): Promise<T>;
  /** Units of an answer, for its throughput. */
  unitsOf(answer: T): number;
}

/** How streams are got. */
export interface AttemptStreams<T> {
  open(step: PlanStep, options: AttemptOptions): AsyncIterable<T>;
  /** Units of one element. */
  unitsOf(element: T): number;
}

/** An answer, who gave it, and what was tried. */
export interface Attempted<T> extends Outcome {
  readonly answer: T;
  readonly step: PlanStep;
}

/** A stream that has begun. Its last try is brought up to date when the stream ends. */
export interface AttemptedStream<T> extends Outcome {
  readonly first: T;
  /** The elements after the first. Leaving it early calls the upstream off; a failure in it is a refusal, never a fallback. */
  readonly rest: AsyncIterable<T>;
  readonly step: PlanStep;
}

/**
 * Tries the plan's steps in order until one answers, a late one hedged where the plan says so. Throws
 * `all_attempts_failed`, `deadline_exceeded` or `capacity_exhausted` with the route, or `client_closed_request`.
 */
export async function attemptPlan<T>(plan: Plan, world: AttemptWorld, calls: AttemptCalls<T>): Promise<Attempted<T>> {
  const run = new Run(plan, world, (step, options) => calls.call(step, options));
  try {
    const { flight, answer } = await run.firstAnswer();
    run.end(flight, "ok", undefined, calls.unitsOf(answer));
    return { answer, ...run.outcome(flight.step) };
  } finally {
    run.close();
  }
}

/** As `attemptPlan`, for streams: falls back silently until a first element is there, and never after it. */
export async function attemptStream<T>(
  plan: Plan,
  world: AttemptWorld,
  streams: AttemptStreams<T>,
): Promise<AttemptedStream<T>> {
  const run = new Run(plan, world, (step, options) => begin(streams.open(step, options), options.signal));
  try {
    const { flight, answer } = await run.firstAnswer();
    const rest = new Continued(run, { flight, answer }, streams.unitsOf);
    return { first: answer.first, rest, ...run.outcome(flight.step) };
  } catch (thrown) {
    run.close();
    throw thrown;
  }
}

interface Begun<T> {
  readonly first: T;
  readonly iterator: AsyncIterator<T>;
}

async function begin<T>(stream: AsyncIterable<T>, signal: Signal): Promise<Begun<T>> {
  const iterator = stream[Symbol.asyncIterator]();
  const { value, done } = await iterator.next();
  if (done) throw new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "the stream ended before its first element");
  // Whoever lost in the meantime must not be left open.
  if (signal.aborted) close(iterator);
  return { first: value, iterator };
}

function close(iterator: AsyncIterator<unknown>): void {
  iterator.return?.().catch(() => {});
}

/** What follows a stream's first element. It ends by itself, by its reader, by time, or by the caller who leaves: whichever is first. */
class Continued<T> implements AsyncIterableIterator<T> {
  private readonly run: Run<Begun<T>>;
  private readonly flight: Flight;
  private readonly iterator: AsyncIterator<T>;
  private readonly unitsOf: (element: T) => number;
  private units: number;
  private over = false;
  private thrown: unknown;
  /** Ends the read that is waiting. */
  private interrupt: (thrown: unknown) => void = () => {};
  private readonly forgetDeadline: () => void;

  constructor(run: Run<Begun<T>>, { flight, answer }: Won<Begun<T>>, unitsOf: (element: T) => number) {
    this.run = run;
    this.flight = flight;
    this.iterator = answer.iterator;
    this.unitsOf = unitsOf;
    this.units = unitsOf(answer.first);
    this.forgetDeadline = run.atEnd(() => this.fail(stoodStill(AttemptFailure.DEADLINE)));
    run.onLeave(() => this.fail(run.left()));
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<T>> {
    if (this.thrown !== undefined) return Promise.reject(this.thrown);
    if (this.over) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve, reject) => {
      const { budgetMs } = this.flight.step;
      const forget = this.run.world.clock.after(budgetMs, () => this.fail(stoodStill(AttemptFailure.TIMEOUT)));
      this.interrupt = (thrown) => {
        forget();
        reject(thrown);
      };
      this.iterator.next().then(
        (element) => {
          forget();
          if (!this.over) this.take(element);
          resolve(element);
        },
        (thrown) => this.fail(thrown),
      );
    });
  }

  return(): Promise<IteratorResult<T>> {
    this.finish("left", undefined);
    return Promise.resolve({ done: true, value: undefined });
  }

  private take(element: IteratorResult<T>): void {
    if (element.done) this.finish("ok", undefined);
    else this.units += this.unitsOf(element.value);
  }

  private fail(thrown: unknown): void {
    if (this.over) return;
    if (thrown instanceof UpstreamFailure) {
      this.finish("error", thrown.failure);
      this.thrown = this.run.refusal();
    } else {
      this.finish("left", undefined);
      this.thrown = thrown;
    }
    this.interrupt(this.thrown);
  }

  private finish(how: Ending, reason: AttemptFailure | undefined): void {
    if (this.over) return;
    this.over = true;
    this.forgetDeadline();
    this.run.end(this.flight, how, reason, this.units);
    this.run.close();
    this.flight.cancel.abort(CALLED_OFF);
    close(this.iterator);
  }
}

const stoodStill = (failure: AttemptFailure): UpstreamFailure =>
  new UpstreamFailure(failure, "the stream stood still after its first element");

/** Why an upstream is told to stop: nobody waits for it any more. One for all, as it says nothing of the one. */
const CALLED_OFF = new UpstreamFailure(AttemptFailure.TIMEOUT, "called off");

/** How an attempt ends. `left`: the caller did not read on. */
type Ending = "ok" | "error" | "cancelled" | "left";

/** One attempt under way. */
interface Flight {
  readonly step: PlanStep;
  readonly record: Try;
  /** Calls it off. */
  readonly cancel: Cancel;
  readonly budgetMs: number;
  /** Its time is the request's, not its own. */
  readonly isLast: boolean;
  cancelTimer: () => void;
}

interface Won<T> {
  readonly flight: Flight;
  readonly answer: T;
}

/** The attempts of one request. */
class Run<T> {
  private readonly plan: Plan;
  readonly world: AttemptWorld;
  private readonly call: (step: PlanStep, options: AttemptOptions) => Promise<T>;
  private readonly tries: Try[] = [];
  private readonly untried: Set<PlanStep>;
  private outOfTime = false;
  private hedgeMicro: number | undefined;
  /** What the caller's leaving does at the moment. */
  private leave: () => void = () => {};
  private readonly onAbort = (): void => this.leave();

  constructor(plan: Plan, world: AttemptWorld, call: (step: PlanStep, options: AttemptOptions) => Promise<T>) {
    this.plan = plan;
    this.world = world;
    this.call = call;
    this.untried = new Set(plan.steps);
    world.signal.addEventListener("abort", this.onAbort, { once: true });
  }

  close(): void {
    this.world.signal.removeEventListener("abort", this.onAbort);
  }

  outcome(step: PlanStep): Outcome & { step: PlanStep } {
    return { tries: this.tries, step, hedgeMicro: this.hedgeMicro };
  }

  async firstAnswer(): Promise<Won<T>> {
    for (;;) {
      if (this.world.signal.aborted) throw this.left();
      const step = this.nextStep();
      if (!step) throw this.refusal();
      const won = await this.race(step);
      if (won) return won;
    }
  }

  /** The next step that fits into the time that is left and whose breaker lets it through. */
  private nextStep(): PlanStep | undefined {
    for (const step of this.untried) {
      if (!this.fits(step)) this.outOfTime = true;
      else if (this.admits(step)) return step;
      this.untried.delete(step);
    }
    return undefined;
  }

  private fits(step: PlanStep): boolean {
    const left = this.leftMs();
    return left > 0 && (step.p50Ms <= left || step.p50Ms === Number.POSITIVE_INFINITY);
  }

  private admits(step: PlanStep): boolean {
    const { health, clock } = this.world;
    return health.admit(step.offering.id, clock.steady(), this.budgetOf(step), this.plan.strictOrder);
  }

  private leftMs(): number {
    return this.plan.endsAt - this.world.clock.steady();
  }

  private budgetOf(step: PlanStep): number {
    return Math.min(step.budgetMs, this.leftMs());
  }

  /** Asks one step, and a second when it is late. Undefined when all that were asked failed. */
  private race(first: PlanStep): Promise<Won<T> | undefined> {
    const { clock, hedges } = this.world;
    return new Promise((resolve, reject) => {
      const flying = new Set<Flight>();
      let cancelHedge = (): void => {};
      const finish = (): void => {
        cancelHedge();
        this.leave = () => {};
        for (const flight of flying) this.callOff(flight);
      };
      const launch = (step: PlanStep): void => {
        const flight = this.fly(step, {
          answered: (answer) => {
            flying.delete(flight);
            if (this.hedgeMicro !== undefined) for (const loser of flying) this.hedgeMicro += loser.step.costMicro;
            finish();
            resolve({ flight, answer });
          },
          failed: (failure) => {
            flying.delete(flight);
            this.end(flight, "error", failure, 0);
            if (flying.size > 0) return;
            finish();
            resolve(undefined);
          },
          broke: (thrown) => {
            flying.delete(flight);
            this.end(flight, "cancelled", undefined, 0);
            finish();
            reject(thrown);
          },
        });
        flying.add(flight);
      };
      this.leave = () => {
        finish();
        reject(this.left());
      };
      launch(first);
      hedges.earn();
      if (this.plan.hedgeAfterMs === undefined) return;
      cancelHedge = clock.after(this.plan.hedgeAfterMs, () => {
        const second = this.hedgeFor(first);
        if (!second) return;
        this.hedgeMicro ??= 0;
        launch(second);
      });
    });
  }

  private hedgeFor(first: PlanStep): PlanStep | undefined {
    for (const step of this.untried) {
      if (!mayHedge(first, step, this.plan.maxCostMicro) || !this.fits(step)) continue;
      return this.world.hedges.spend() && this.admits(step) ? step : undefined;
    }
    return undefined;
  }

  /** Starts one attempt and calls exactly one of the three when it is over, unless it is called off before. */
  private fly(
    step: PlanStep,
    on: { answered(answer: T): void; failed(failure: AttemptFailure): void; broke(thrown: unknown): void },
  ): Flight {
    this.untried.delete(step);
    const startedAt = this.world.clock.steady();
    const budgetMs = this.budgetOf(step);
    const record: Try = { step, startedAt, status: "running", latencyMs: 0, reason: undefined };
    this.tries.push(record);
    const isLast = budgetMs < step.budgetMs;
    const flight: Flight = { step, record, cancel: new Cancel(), budgetMs, isLast, cancelTimer: () => {} };
    let over = false;
    const once =
      <A>(then: (outcome: A) => void) =>
      (outcome: A): void => {
        if (over || flight.cancel.aborted) return;
        over = true;
        flight.cancelTimer();
        then(outcome);
      };
    const failed = once((failure: AttemptFailure) => {
      flight.cancel.abort(CALLED_OFF);
      on.failed(failure);
    });
    const broke = once(on.broke);
    flight.cancelTimer = this.world.clock.after(budgetMs, () => failed(outOf(flight)));
    this.started(step, { signal: flight.cancel, budgetMs }).then(once(on.answered), (thrown) => {
      if (thrown instanceof UpstreamFailure) failed(thrown.failure);
      else broke(thrown);
    });
    return flight;
  }

  private async started(step: PlanStep, options: AttemptOptions): Promise<T> {
    return this.call(step, options);
  }

  private callOff(flight: Flight): void {
    flight.cancelTimer();
    flight.cancel.abort(CALLED_OFF);
    this.end(flight, "cancelled", undefined, 0);
  }

  /** Writes down how an attempt ended, for the caller and for the health of its offering. */
  end(flight: Flight, how: Ending, reason: AttemptFailure | undefined, units: number): void {
    const { record, step } = flight;
    const at = this.world.clock.steady();
    // A caller who leaves a stream has had an answer as far as he read it.
    record.status = how === "left" ? "ok" : how;
    record.latencyMs = at - record.startedAt;
    record.reason = reason;
    if (reason === AttemptFailure.DEADLINE) this.outOfTime = true;
    const outcome = isNeutral(step, reason) ? "cancelled" : (reason ?? (how === "ok" ? "ok" : "cancelled"));
    this.world.health.report(step.offering.id, { outcome, latencyMs: record.latencyMs, units, cold: step.cold, at });
  }

  /** Calls `run` when the time of the whole request is over; the returned function forgets it. */
  atEnd(run: () => void): () => void {
    return this.world.clock.after(this.leftMs(), run);
  }

  /** What the caller's leaving does from now on. */
  onLeave(leave: () => void): void {
    this.leave = leave;
    if (this.world.signal.aborted) leave();
  }

  /** Why nothing came of it, by what was tried so far. */
  refusal(): Refusal {
    return refusalOfTries(this.tries, this.outOfTime);
  }

  /** The refusal of a request whose caller left, or that its own signal refused. */
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

/** Which clock an attempt ran out on. */
const outOf = (flight: Flight): AttemptFailure => (flight.isLast ? AttemptFailure.DEADLINE : AttemptFailure.TIMEOUT);
