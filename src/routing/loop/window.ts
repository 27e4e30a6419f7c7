/** Events and effects of a control loop, and its observations that await a chunk. */
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { ActAnswer, AttemptFailure } from "../../contracts/contract.ts";
import type { PaidLoser, Try } from "../attempt/record.ts";
import type { Report } from "../health/cell.ts";
import type { PlanStep } from "../plan/plan.ts";

/** A robot's observation at one control step. `O` is the payload, which the loop only passes on. */
export interface ObservationView<O> {
  readonly step: number;
  /** Time on the robot's clock, in milliseconds. */
  readonly tMs: number | undefined;
  /** The numbers and images of one observation, which must not change within an episode. */
  readonly shape: string;
  readonly payload: O;
}

/** An event. `at` is the steady clock in milliseconds and never goes backwards. */
export type LoopEvent<O> =
  | { readonly kind: "observed"; readonly at: number; readonly view: ObservationView<O> }
  | { readonly kind: "answered"; readonly at: number; readonly attempt: number; readonly answer: ActAnswer }
  /** `lack`: what the gateway found missing in the input. */
  | {
      readonly kind: "failed";
      readonly at: number;
      readonly attempt: number;
      readonly failure: AttemptFailure;
      readonly lack?: string | undefined;
    }
  /** A call waits for credit or for the key's rate limit; it starts with `asked`. */
  | { readonly kind: "waits"; readonly at: number; readonly attempt: number }
  /** A waiting call starts. */
  | { readonly kind: "asked"; readonly at: number; readonly attempt: number }
  /** No offering can use the observation. */
  | { readonly kind: "refused"; readonly at: number; readonly attempt: number; readonly detail: string }
  /** The key's rate limit is used up at present. */
  | { readonly kind: "limited"; readonly at: number; readonly attempt: number; readonly detail: string }
  /** The credit does not cover the call at present. */
  | { readonly kind: "unpaid"; readonly at: number; readonly attempt: number }
  /** Time passed; due when `wakeAt` is reached. */
  | { readonly kind: "time"; readonly at: number }
  /** Dispatching is blocked for this reason; undefined unblocks it. */
  | { readonly kind: "blocked"; readonly at: number; readonly why: HoldReason | undefined }
  /** A new episode starts. */
  | { readonly kind: "reset"; readonly at: number }
  /** The client has disconnected. */
  | { readonly kind: "closed"; readonly at: number };

/** An action that the loop requests of its caller. */
export type LoopEffect<O> = DispatchEffect<O> | CancelEffect | DeliverEffect<O> | HoldEffect | ReportEffect;

/** Call a provider. */
export interface DispatchEffect<O> {
  readonly kind: "dispatch";
  readonly attempt: number;
  readonly step: PlanStep;
  readonly view: ObservationView<O>;
  /** Whether this is the first call for the observation. */
  readonly fresh: boolean;
  readonly budgetMs: number;
}

/** Cancel a call whose result is no longer needed. */
interface CancelEffect {
  readonly kind: "cancel";
  readonly attempt: number;
}

/** Send a chunk. */
export interface DeliverEffect<O> {
  readonly kind: "deliver";
  readonly at: number;
  readonly view: ObservationView<O>;
  readonly answer: ActAnswer;
  readonly step: PlanStep;
  readonly ageMs: number;
  /** The first control step at which the chunk must no longer be executed. */
  readonly validUntil: number;
  readonly tries: readonly Try[];
  /** The charge for the loser of a hedge, in micro-dollars; undefined if no hedge was sent. */
  readonly hedgeMicro: number | undefined;
  /** The losers that receive it. */
  readonly losers?: readonly PaidLoser[] | undefined;
  /** The first chunk, or one from another offering than the previous chunk. */
  readonly moved: boolean;
  /** From another model than the previous chunk. */
  readonly episodeBreak: boolean;
  readonly dropped: number;
}

/** Tell the robot to hold. */
export interface HoldEffect {
  readonly kind: "hold";
  readonly at: number;
  readonly step: number;
  readonly reason: HoldReason;
  readonly ageMs: number;
  readonly detail: string;
  readonly tries: readonly Try[];
  readonly dropped: number;
}

/** Report a call's outcome to the health tracker. */
interface ReportEffect extends Report {
  readonly kind: "told";
  readonly offeringId: string;
}

/** Why an observation results in a hold. */
interface Unfit {
  readonly reason: HoldReason;
  readonly detail?: string;
}

/** An observation that awaits its chunk or hold. */
export class ObservationTask<O> {
  view: ObservationView<O>;
  /** Capture time on the gateway's clock. */
  sensedAt: number;
  /** Why no offering can be called for it; undefined if one can. */
  readonly unfit: Unfit | undefined;
  /** The mismatch with an offering's declared inputs; undefined if none is known. */
  unread: string | undefined = undefined;
  /** Whether no offering has been called for it yet. */
  fresh = true;
  /** Every call made for it. */
  tries: readonly LoopAttempt<O>[] = NO_ATTEMPTS;
  /** Number of running calls. */
  underWay = 0;
  /** When to send a hedge; Infinity if none is planned. */
  hedgeAt = Number.POSITIVE_INFINITY;
  /** The charge for the hedges sent so far, if they lose. */
  hedgeMicro: number | undefined = undefined;
  /** The losers that receive it. */
  losers: readonly PaidLoser[] | undefined = undefined;
  /** The next newer pending observation. */
  newer: ObservationTask<O> | undefined = undefined;

  constructor(view: ObservationView<O>, sensedAt: number, unfit: Unfit | undefined) {
    this.view = view;
    this.sensedAt = sensedAt;
    this.unfit = unfit;
  }

  /** Adds a call. */
  ask(id: number, step: PlanStep, at: number, budgetMs: number): LoopAttempt<O> {
    const attempt = new LoopAttempt(this, id, step, at, budgetMs);
    // Almost all observations need one call.
    this.tries = this.tries.length === 0 ? [attempt] : [...this.tries, attempt];
    this.underWay += 1;
    this.fresh = false;
    return attempt;
  }

  /** The running call with this number; undefined if there is none. */
  attempt(id: number): LoopAttempt<O> | undefined {
    const { tries } = this;
    for (let i = tries.length - 1; i >= 0; i--) if (tries[i]!.attempt === id) return running(tries[i]!);
    return undefined;
  }

  /** The earliest running call. */
  get first(): LoopAttempt<O> | undefined {
    for (const attempt of this.tries) if (attempt.status === "running") return attempt;
    return undefined;
  }

  /** Replaces the observation with a newer one that has no calls yet. */
  become({ view, sensedAt }: ObservationTask<O>): void {
    this.view = view;
    this.sensedAt = sensedAt;
    this.unread = undefined;
    this.fresh = true;
  }
}

const NO_ATTEMPTS: readonly never[] = [];

const running = <O>(attempt: LoopAttempt<O>): LoopAttempt<O> | undefined =>
  attempt.status === "running" ? attempt : undefined;

/** One call to a provider: its dispatch effect, its state and its outcome. */
export class LoopAttempt<O> implements DispatchEffect<O>, Try {
  readonly kind = "dispatch";
  readonly attempt: number;
  readonly step: PlanStep;
  readonly view: ObservationView<O>;
  readonly fresh: boolean;
  readonly budgetMs: number;
  startedAt: number;
  /** Whether it has started; false while it waits for credit or the rate limit. */
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

  /** The observation of the call. */
  get job(): ObservationTask<O> {
    return this.#job;
  }

  /** Ends the call at `at`. */
  end(status: "ok" | "error" | "cancelled", reason: AttemptFailure | undefined, at: number): void {
    this.status = status;
    this.latencyMs = at - this.startedAt;
    this.reason = reason;
    this.#job.underWay -= 1;
  }
}

/**
 * Maximum number of observations in flight, or the steps of a chunk if those are more. A pause that is shorter than a chunk then loses
 * no observation; the chunk of an older observation would arrive expired.
 */
export const MOST_AT_ONCE = 8;
/** Upper limit of that number. */
const MOST_EVER = 64;

/**
 * An offering that responds within this many milliseconds receives every observation of the fastest loop. A slower one receives only the
 * newest: more in flight would make each chunk older, and the caller would pay for chunks that the next one supersedes.
 */
const QUICK_MS = 5;

/**
 * The weight of one response in the moving average, and the cap of its latency. A sample also counts at most 1.5 times the average plus
 * 0.5 ms, so that a brief stall of the gateway, which delays many responses at once, does not make the provider look slow.
 */
const WEIGHT = 1 / 32;
const MOST_COUNTED_MS = 2 * QUICK_MS;
const LEAST_COUNTED_MS = 0.5;

/**
 * If a call has been running for longer than this, no other one is started: under overload, skipping observations keeps the
 * others in time. Most stalls of a machine are shorter.
 */
const LONGEST_MS = 4 * QUICK_MS;
/** A provider may process calls sequentially: the calls in flight must fit into this time. */
const ALL_MS = MOST_AT_ONCE * QUICK_MS;

/** The value of `#usualMs` if no response was measured. */
const UNKNOWN = -1;

/** The pending observations of one loop, a linked list from oldest to newest. */
export class ChunkWindow<O> {
  /** Undefined if nothing is pending. */
  oldest: ObservationTask<O> | undefined;
  newest: ObservationTask<O> | undefined;
  /** Number of pending observations. */
  size = 0;
  /** The serving offering's average latency, in milliseconds. */
  #usualMs = UNKNOWN;
  readonly #most: number;

  /** `steps` is the number of steps in a chunk. */
  constructor(steps: number) {
    this.#most = Math.min(Math.max(MOST_AT_ONCE, steps), MOST_EVER);
  }

  /** Whether the serving offering can receive one more observation: it responds quickly, and no running call has failed or is late. */
  isOpen(at: number): boolean {
    if (this.oldest === undefined) return true;
    const usualMs = this.#usualMs;
    if (usualMs === UNKNOWN || usualMs > QUICK_MS) return false;
    if (this.size >= this.#most || this.size * usualMs >= ALL_MS) return false;
    for (let job: ObservationTask<O> | undefined = this.oldest; job; job = job.newer)
      if (job.tries.length > 1 || job.underWay !== 1 || at - job.tries[0]!.startedAt > LONGEST_MS) return false;
    return true;
  }

  /** Records the latency of a response from the serving offering. */
  took(ms: number): void {
    const usual = this.#usualMs;
    const sample = Math.min(ms, MOST_COUNTED_MS);
    if (usual === UNKNOWN) this.#usualMs = sample;
    else this.#usualMs += (Math.min(sample, 1.5 * usual + LEAST_COUNTED_MS) - usual) * WEIGHT;
  }

  /** Discards the average after a failure or a change of offering. */
  forget(): void {
    this.#usualMs = UNKNOWN;
  }

  /** The running call with this number; undefined if it has ended. */
  find(id: number): LoopAttempt<O> | undefined {
    for (let job = this.oldest; job; job = job.newer) {
      const attempt = job.attempt(id);
      if (attempt) return attempt;
    }
    return undefined;
  }

  /** Appends the newest observation. */
  add(job: ObservationTask<O>): void {
    if (this.newest) this.newest.newer = job;
    else this.oldest = job;
    this.newest = job;
    this.size += 1;
  }

  /** Removes an observation. */
  remove(job: ObservationTask<O>): void {
    let before: ObservationTask<O> | undefined;
    for (let each = this.oldest; each !== job; each = each.newer) {
      if (each === undefined) return;
      before = each;
    }
    if (before) before.newer = job.newer;
    else this.oldest = job.newer;
    if (this.newest === job) this.newest = before;
    // A reference to the removed one must not keep the others in memory.
    job.newer = undefined;
    this.size -= 1;
  }
}

const FUTURE = { reason: HoldReason.INVALID_OBSERVATION, detail: "`t_ms` is in the future" };
const STALE = { reason: HoldReason.STALE_OBSERVATION };

/** Checks incoming observations: order, shape, age. */
export class Intake<O> {
  readonly #deadlineMs: number;
  readonly #transit = new ObservationAge();
  #newest: number | undefined;
  #shape: string | undefined;

  /** `deadlineMs` is the maximum age of an observation. */
  constructor(deadlineMs: number) {
    this.#deadlineMs = deadlineMs;
  }

  /** Starts a new episode with new step numbers and shape. */
  reset(): void {
    this.#newest = undefined;
    this.#shape = undefined;
  }

  /** Lets the next observation set the episode's shape, because no offering could read the earlier ones. */
  forgetShape(): void {
    this.#shape = undefined;
  }

  /** Whether an observation of this or a later step has arrived. */
  hasReached(step: number): boolean {
    return this.#newest !== undefined && this.#newest >= step;
  }

  /** Returns the task for an observation that arrives at `at`; undefined if it is out of order. */
  judge(view: ObservationView<O>, at: number): ObservationTask<O> | undefined {
    if (this.hasReached(view.step)) return undefined;
    this.#newest = view.step;
    this.#shape ??= view.shape;
    if (view.shape !== this.#shape) {
      const detail = `the observation has ${view.shape}, but the episode started with ${this.#shape}; send a reset to start a new episode`;
      return new ObservationTask(view, at, { reason: HoldReason.INVALID_OBSERVATION, detail });
    }
    const age = this.#transit.age(view.tMs, at);
    if (age === "future") return new ObservationTask(view, at, FUTURE);
    const sensedAt = at - age;
    return new ObservationTask(view, sensedAt, at >= sensedAt + this.#deadlineMs ? STALE : undefined);
  }
}

/** The quickest observation is looked for in a window of this length, so that drifting clocks are followed. */
const WINDOW_MS = 30_000;

/** An observation that comes this much sooner than the quickest one was not sensed yet. */
const FUTURE_MS = 1_000;

/**
 * How old an observation is when it comes, from two clocks that are not set by each other: the robot's and the gateway's. The quickest is taken
 * to have needed no time; every other is as old as it was slower.
 */
export class ObservationAge {
  /** Quickest difference of the two clocks in this window and the one before. */
  #quickest = Number.POSITIVE_INFINITY;
  #before = Number.POSITIVE_INFINITY;
  #since = Number.NEGATIVE_INFINITY;

  /** The age in milliseconds of what was sensed at `tMs` and came at `at`; "future" where it can't have been sensed yet. */
  age(tMs: number | undefined, at: number): number | "future" {
    if (tMs === undefined) return 0;
    const took = at - tMs;
    const usual = Math.min(this.#quickest, this.#before);
    if (took < usual - FUTURE_MS && usual !== Number.POSITIVE_INFINITY) return "future";
    if (at - this.#since >= WINDOW_MS) {
      this.#before = this.#quickest;
      this.#quickest = took;
      this.#since = at;
    } else this.#quickest = Math.min(this.#quickest, took);
    return took - Math.min(this.#quickest, this.#before);
  }
}
