/** The events and effects of a control loop, and its observations on the way to their chunks. */
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { ActAnswer, AttemptFailure } from "../../contracts/contract.ts";
import type { PaidLoser, Try } from "../attempt/record.ts";
import type { Report } from "../health/cell.ts";
import type { PlanStep } from "../plan/plan.ts";

/** What a robot sensed at one control step. `O` is the observation itself, which the loop only hands on. */
export interface ObservationView<O> {
  readonly step: number;
  /** On the robot's own clock, in milliseconds. */
  readonly tMs: number | undefined;
  /** What must not change inside an episode: numbers and pictures that one observation has. */
  readonly shape: string;
  readonly payload: O;
}

/** What happens. `at` is the steady clock in milliseconds and never runs backwards. */
export type LoopEvent<O> =
  | { readonly kind: "observed"; readonly at: number; readonly view: ObservationView<O> }
  | { readonly kind: "answered"; readonly at: number; readonly attempt: number; readonly answer: ActAnswer }
  /** `lack`: what the gateway itself found the input to lack. */
  | {
      readonly kind: "failed";
      readonly at: number;
      readonly attempt: number;
      readonly failure: AttemptFailure;
      readonly lack?: string | undefined;
    }
  /** A call waits to be paid for, or for the key's step: it does not begin before `asked`. */
  | { readonly kind: "waits"; readonly at: number; readonly attempt: number }
  /** A flight that waited is asked now. */
  | { readonly kind: "asked"; readonly at: number; readonly attempt: number }
  /** The observation itself cannot be used by any offering. */
  | { readonly kind: "refused"; readonly at: number; readonly attempt: number; readonly detail: string }
  /** The key has no step left at the moment. */
  | { readonly kind: "limited"; readonly at: number; readonly attempt: number; readonly detail: string }
  /** It cannot be paid for at the moment. */
  | { readonly kind: "unpaid"; readonly at: number; readonly attempt: number }
  /** Time passed; due whenever `wakeAt` is reached. */
  | { readonly kind: "time"; readonly at: number }
  /** Nothing may be dispatched for this reason; undefined when it may again. */
  | { readonly kind: "blocked"; readonly at: number; readonly why: HoldReason | undefined }
  /** A new episode begins. */
  | { readonly kind: "reset"; readonly at: number }
  /** Nobody listens any longer. */
  | { readonly kind: "closed"; readonly at: number };

/** What is to be done. */
export type LoopEffect<O> = DispatchEffect<O> | CancelEffect | DeliverEffect<O> | HoldEffect | ReportEffect;

/** Ask a provider. */
export interface DispatchEffect<O> {
  readonly kind: "dispatch";
  readonly attempt: number;
  readonly step: PlanStep;
  readonly view: ObservationView<O>;
  /** Nobody was asked about this observation before. */
  readonly fresh: boolean;
  readonly budgetMs: number;
}

/** The answer of a flight is of no use any longer. */
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
  /** The first control step at which it may not be executed any longer. */
  readonly validUntil: number;
  readonly tries: readonly Try[];
  /** What the loser of a hedge is paid, in micro-dollars; undefined when none was sent. */
  readonly hedgeMicro: number | undefined;
  /** Who that is for. */
  readonly losers?: readonly PaidLoser[] | undefined;
  /** Another offering than the chunk before, or the first one. */
  readonly moved: boolean;
  /** Another model than the chunk before. */
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

/** Tell the health of an offering how it did. */
interface ReportEffect extends Report {
  readonly kind: "told";
  readonly offeringId: string;
}

/** Why the robot is to hold in place of an observation. */
interface Unfit {
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

/**
 * At most so many observations are asked about at once; as many as a chunk has steps, where those are more, so that a pause of which
 * a robot need not know loses it none: what is older than that has a chunk that is over before it comes.
 */
export const MOST_AT_ONCE = 8;
/** However many steps a chunk has. */
const MOST_EVER = 64;

/**
 * An offering that answers within this many milliseconds answers each observation of the fastest loop. A slower one is asked about the
 * newest alone: more at once would make each answer older, and the caller pay for chunks that the next one replaces.
 */
const QUICK_MS = 5;

/**
 * The weight of one answer in what is usual, and the most that it counts, of which no more than half as much again as is usual and half a
 * millisecond: a machine that stood still for a moment is no slow provider, though a dozen answers waited for it.
 */
const WEIGHT = 1 / 32;
const MOST_COUNTED_MS = 2 * QUICK_MS;
const LEAST_COUNTED_MS = 0.5;

/**
 * While anything is under way for longer than this, nothing is asked about beside it: where more comes than can be done, what is not
 * asked about is what keeps the rest in time. Most pauses of a machine are shorter.
 */
const LONGEST_MS = 4 * QUICK_MS;
/** Who serves may do one thing after the other: no more is under way than would be answered so within this time. */
const ALL_MS = MOST_AT_ONCE * QUICK_MS;

/** What `#usualMs` is where it is not known. */
const UNKNOWN = -1;

/** The jobs of one loop, a chain from the oldest observation to the newest. */
export class ChunkWindow<O> {
  /** Undefined when nothing is under way. */
  oldest: ObservationTask<O> | undefined;
  newest: ObservationTask<O> | undefined;
  /** How many there are. */
  size = 0;
  /** The usual time of the serving offering, in milliseconds. */
  #usualMs = UNKNOWN;
  readonly #most: number;

  /** `steps` are those of a chunk. */
  constructor(steps: number) {
    this.#most = Math.min(Math.max(MOST_AT_ONCE, steps), MOST_EVER);
  }

  /** Whether one more observation may be sent to the serving offering: it answers quickly, and no call under way went wrong. */
  isOpen(at: number): boolean {
    if (this.oldest === undefined) return true;
    const usualMs = this.#usualMs;
    if (usualMs === UNKNOWN || usualMs > QUICK_MS) return false;
    if (this.size >= this.#most || this.size * usualMs >= ALL_MS) return false;
    for (let job: ObservationTask<O> | undefined = this.oldest; job; job = job.newer)
      if (job.tries.length > 1 || job.underWay !== 1 || at - job.tries[0]!.startedAt > LONGEST_MS) return false;
    return true;
  }

  /** Who serves has answered after so long. */
  took(ms: number): void {
    const usual = this.#usualMs;
    const sample = Math.min(ms, MOST_COUNTED_MS);
    if (usual === UNKNOWN) this.#usualMs = sample;
    else this.#usualMs += (Math.min(sample, 1.5 * usual + LEAST_COUNTED_MS) - usual) * WEIGHT;
  }

  /** The usual time is not valid any more: a call failed, or another offering serves. */
  forget(): void {
    this.#usualMs = UNKNOWN;
  }

  /** The flight of this number; undefined where it is under way no longer. */
  find(id: number): LoopAttempt<O> | undefined {
    for (let job = this.oldest; job; job = job.newer) {
      const attempt = job.attempt(id);
      if (attempt) return attempt;
    }
    return undefined;
  }

  /** Takes in a job that is newer than all. */
  add(job: ObservationTask<O>): void {
    if (this.newest) this.newest.newer = job;
    else this.oldest = job;
    this.newest = job;
    this.size += 1;
  }

  /** Takes a job out. */
  remove(job: ObservationTask<O>): void {
    let before: ObservationTask<O> | undefined;
    for (let each = this.oldest; each !== job; each = each.newer) {
      if (each === undefined) return;
      before = each;
    }
    if (before) before.newer = job.newer;
    else this.oldest = job.newer;
    if (this.newest === job) this.newest = before;
    // Who keeps it keeps none of the others.
    job.newer = undefined;
    this.size -= 1;
  }
}

const FUTURE = { reason: HoldReason.INVALID_OBSERVATION, detail: "`t_ms` is in the future" };
const STALE = { reason: HoldReason.STALE_OBSERVATION };

/** Looks at the observations of one loop as they come. */
export class Intake<O> {
  readonly #deadlineMs: number;
  readonly #transit = new ObservationAge();
  #newest: number | undefined;
  #shape: string | undefined;

  /** `deadlineMs` is how old an observation may be. */
  constructor(deadlineMs: number) {
    this.#deadlineMs = deadlineMs;
  }

  /** A new episode begins: steps and shape begin anew. */
  reset(): void {
    this.#newest = undefined;
    this.#shape = undefined;
  }

  /** The next observation says the episode's shape anew: what came so far nobody could read. */
  forgetShape(): void {
    this.#shape = undefined;
  }

  /** Whether the robot has come to this step already, or past it. */
  hasReached(step: number): boolean {
    return this.#newest !== undefined && this.#newest >= step;
  }

  /** What is to be thought of an observation that comes at `at`; undefined where it comes out of order. */
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
