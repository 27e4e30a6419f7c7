/** Stage 5: down the plan until one answers. Time and I/O come in as arguments. */
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import type { Signal } from "../../signal.ts";
import type { Plan, PlanStep } from "../plan/plan.ts";
import type { Outcome } from "./record.ts";
import { type AttemptOptions, type AttemptWorld, CALLED_OFF, type Ending, type Flight, Run, type Won } from "./run.ts";

export type { AttemptOptions, AttemptWorld } from "./run.ts";

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
export function attemptPlan<T>(plan: Plan, world: AttemptWorld, calls: AttemptCalls<T>): Promise<Attempted<T>> {
  // One promise for all of it: a robot's call goes this way, and nearly always to its first step alone.
  return new Promise((resolve, reject) => {
    const run = new Run(plan, world, (step, options) => calls.call(step, options));
    run.begin(
      ({ flight, answer }) => {
        run.close();
        try {
          run.end(flight, "ok", undefined, calls.unitsOf(answer));
          resolve(Object.assign(run.outcome(flight.step), { answer }));
        } catch (thrown) {
          reject(thrown);
        }
      },
      (thrown) => {
        run.close();
        reject(thrown);
      },
    );
  });
}

/** As `attemptPlan`, for streams: falls back silently until a first element is there, and never after it. */
export async function attemptStream<T>(
  plan: Plan,
  world: AttemptWorld,
  streams: AttemptStreams<T>,
): Promise<AttemptedStream<T>> {
  const run = new Run(plan, world, (step, options) => begin(streams.open(step, options), options.signal));
  try {
    const { flight, answer } = await new Promise<Won<Begun<T>>>((won, lost) => run.begin(won, lost));
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
  private readonly flight: Flight<Begun<T>>;
  private readonly iterator: AsyncIterator<T>;
  private readonly unitsOf: (element: T) => number;
  private units: number;
  private over = false;
  private thrown: unknown;
  /** Ends the read that is waiting. */
  private interrupt: (thrown: unknown) => void = () => {};
  private readonly forgetDeadline: () => void;
  /** Since when the next element is awaited; undefined while none is. */
  private waitsSince: number | undefined;
  private forgetWatch: (() => void) | undefined;

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
      this.waitsSince = this.run.world.clock.steady();
      if (this.forgetWatch === undefined) this.watch(this.flight.step.budgetMs);
      this.interrupt = reject;
      this.iterator.next().then(
        (element) => {
          this.waitsSince = undefined;
          if (!this.over) this.take(element);
          resolve(element);
        },
        (thrown) => this.fail(thrown),
      );
    });
  }

  /** One timer for all elements: where it comes too early for the one that is awaited, it comes again. */
  private watch(ms: number): void {
    const { clock } = this.run.world;
    this.forgetWatch = clock.after(ms, () => {
      this.forgetWatch = undefined;
      if (this.waitsSince === undefined) return;
      const left = this.waitsSince + this.flight.step.budgetMs - clock.steady();
      if (left > 0) this.watch(left);
      else this.fail(stoodStill(AttemptFailure.TIMEOUT));
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
    this.forgetWatch?.();
    this.run.end(this.flight, how, reason, this.units);
    this.run.close();
    this.flight.signal.abort(CALLED_OFF);
    close(this.iterator);
  }
}

const stoodStill = (failure: AttemptFailure): UpstreamFailure =>
  new UpstreamFailure(failure, "the stream stood still after its first element");
