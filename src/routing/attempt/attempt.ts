/** Stage 5: down the plan until one answers. Time and I/O come in as arguments. */

import { Cancel, type Items, type Signal, untilAbort } from "../../cancellation.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import type { Plan, PlanStep } from "../plan/plan.ts";
import type { Outcome } from "./record.ts";
import {
  type AttemptEnding,
  type AttemptOptions,
  AttemptRun,
  type AttemptWorld,
  CALLED_OFF,
  type RunningAttempt,
  type Won,
} from "./run.ts";

export type { AttemptOptions, AttemptWorld } from "./run.ts";

/** How whole answers are got. Failures come as `UpstreamFailure`; a `Refusal` or a bug ends the request. */
export interface AttemptCalls<T> {
  /** Throws nothing, but may reject. */
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

/** An answer, the offering that gave it, and the attempts. */
export interface Attempted<T> extends Outcome {
  readonly answer: T;
  readonly step: PlanStep;
}

/** A stream that has begun. Its last try is brought up to date when the stream ends. */
export interface AttemptedStream<T> extends Outcome {
  readonly first: T;
  /** The elements after the first. Leaving it early calls the upstream off; a failure in it is a refusal, never a fallback. */
  readonly rest: Items<T>;
  readonly step: PlanStep;
}

/**
 * Tries the plan's steps in order until one answers, a late one hedged where the plan says so. Throws
 * `all_attempts_failed`, `input_contract`, `deadline_exceeded` or `capacity_exhausted` with the route, or `client_closed_request`.
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

/** As `attemptPlan`, for streams: falls back silently until a first element is there, and never after it. */
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

/** What follows a stream's first element. It ends by itself, by its reader, by time, or when the caller leaves: whichever is first. */
class Continued<T> implements Items<T> {
  readonly #run: AttemptRun<Begun<T>>;
  readonly #attempt: RunningAttempt<Begun<T>>;
  readonly #elements: Items<T>;
  readonly #unitsOf: (element: T) => number;
  #units: number;
  #isOver = false;
  /** Aborted with what ends it early. */
  readonly #stop = new Cancel();
  readonly #forgetDeadline: () => void;
  /** Since when the next element is awaited; undefined while none is. */
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

  /** Its reader wants nothing more. */
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

  /** One timer for all elements: where it comes too early for the one that is awaited, it comes again. */
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
    this.#attempt.signal.abort(CALLED_OFF);
  }
}

const stoodStill = (failure: AttemptFailure): UpstreamFailure =>
  new UpstreamFailure(failure, "the stream stood still after its first element");
