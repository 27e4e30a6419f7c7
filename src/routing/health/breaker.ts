/** The circuit breaker of one offering: a pure reducer over timed events. Source: decisions, section 9. */
import { AttemptFailure } from "../../contracts/contract.ts";

/** States of a breaker. Only an operator sets and ends the forced states. */
type BreakerState = "closed" | "open" | "half_open" | "forced_open" | "forced_closed";

/** A breaker at one time. Times are in milliseconds of one clock. */
export interface Breaker {
  readonly state: BreakerState;
  /** Failures since the last success. */
  readonly consecutive: number;
  /** Calls and failures of the last 30 s in slices of 5 s, including those of other replicas. */
  readonly window: BreakerWindow;
  /** Consecutive failures seen by another replica, and the time of its report. */
  readonly elsewhere: { readonly consecutive: number; readonly at: number };
  /** Number of openings since a call last succeeded while it was closed; doubles the cooldown. */
  readonly trips: number;
  readonly openedAt: number;
  /** When it admits a probe; 0 if closed. */
  readonly retryAt: number;
  /** Until when the one probe may run; 0 if none does. */
  readonly probeUntil: number;
  /** Consecutive successful probes. */
  readonly probesPassed: number;
  /** Until when the first failure opens it again, because no call has succeeded since the gateway's own health checks closed it; else 0. */
  readonly trialUntil: number;
}

interface BreakerWindow {
  /** Number of the newest slice. */
  readonly slice: number;
  /** Newest first. */
  readonly calls: readonly number[];
  readonly failures: readonly number[];
}

/**
 * An event of a breaker. `released`: a call ended without a verdict, because of its caller or a cancellation. `heard`: another replica's
 * report of calls since its last report, and of consecutive failures. `own`: a health check of the gateway, not a call.
 */
export type BreakerEvent =
  | { readonly kind: "failed" | "released"; readonly at: number; readonly own?: boolean }
  /** Number of calls, 1 by default; more than 1 only if closed. */
  | { readonly kind: "succeeded"; readonly at: number; readonly calls?: number; readonly own?: boolean }
  | { readonly kind: "probing"; readonly at: number; readonly budgetMs: number }
  | {
      readonly kind: "heard";
      readonly at: number;
      readonly calls: number;
      readonly failures: number;
      readonly consecutive: number;
    }
  /** A health check with known-good input failed after suspected failures that would have opened it. */
  | { readonly kind: "condemned"; readonly at: number }
  | { readonly kind: "forced"; readonly at: number; readonly state: "forced_open" | "forced_closed" | "closed" };

const SLICES = 6;
const SLICE_MS = 5_000;
const CONSECUTIVE_LIMIT = 5;
const RATE_LIMIT = 0.5;
const RATE_CALLS = 10;
const COOLDOWN_MS = 10_000;
const LONGEST_COOLDOWN_MS = 300_000;
/** Cooldowns are lengthened by up to this share, so that replicas and offerings do not all probe at once. */
const JITTER = 0.2;
const PROBES_TO_CLOSE = 2;
const TRIAL_MS = 300_000;
/** How long another replica's consecutive failures count. */
const HEARSAY_MS = 30_000;
/** Maximum number of calls in another replica's report that count: as many as judge the window, so that own calls still weigh. */
const MOST_HEARD = 2 * RATE_CALLS;

const NO_CALLS: readonly number[] = Array(SLICES).fill(0);

/** A breaker without any events. */
export const CLOSED: Breaker = {
  state: "closed",
  consecutive: 0,
  window: { slice: 0, calls: NO_CALLS, failures: NO_CALLS },
  elsewhere: { consecutive: 0, at: 0 },
  trips: 0,
  openedAt: 0,
  retryAt: 0,
  probeUntil: 0,
  probesPassed: 0,
  trialUntil: 0,
};

/** Returns the breaker after an event. `random` returns a number in [0, 1) for the cooldown's jitter. */
export function reduce(breaker: Breaker, event: BreakerEvent, random: () => number): Breaker {
  if (event.kind === "forced")
    return event.state === "closed" ? CLOSED : { ...CLOSED, state: event.state, openedAt: event.at };
  switch (breaker.state) {
    case "closed":
      return whileClosed(breaker, event, random);
    case "open":
      return whileOpen(breaker, event);
    case "half_open":
      return whileHalfOpen(breaker, event, random);
    default:
      return breaker;
  }
}

/** Until when no call can be sent: 0 if one can be sent now, Infinity if only an operator can close the breaker. */
export function restsUntil(breaker: Breaker): number {
  switch (breaker.state) {
    case "open":
      return breaker.retryAt;
    case "half_open":
      return breaker.probeUntil;
    case "forced_open":
      return Number.POSITIVE_INFINITY;
    default:
      return 0;
  }
}

/** Whether a failure counts against the provider: not one caused by the caller's input, and not a provider at its limit. */
export function blamesProvider(failure: AttemptFailure): boolean {
  return !BLAMELESS.has(failure);
}

/** A server at its limit is healthy, and input or restrictions of the caller are not the server's fault. */
const BLAMELESS: ReadonlySet<AttemptFailure> = new Set([
  AttemptFailure.INPUT_REJECTED,
  AttemptFailure.UPSTREAM_BUSY,
  AttemptFailure.UNSAFE_ACTION,
]);

function whileClosed(breaker: Breaker, event: BreakerEvent, random: () => number): Breaker {
  switch (event.kind) {
    case "succeeded": {
      // Own successes override reports of other replicas.
      const window = slide(breaker.window, event.at, event.calls ?? 1, 0);
      return { ...breaker, consecutive: 0, trips: 0, trialUntil: 0, window, elsewhere: CLOSED.elsewhere };
    }
    case "failed": {
      const window = slide(breaker.window, event.at, 1, 1);
      const next: Breaker = { ...breaker, consecutive: breaker.consecutive + 1, window };
      const inARow = next.consecutive + heardOf(breaker, event.at);
      if (event.at < breaker.trialUntil) return open(next, event.at, random);
      const opens = inARow >= CONSECUTIVE_LIMIT || mostlyFails(window);
      return opens ? open({ ...next, trips: 0 }, event.at, random) : next;
    }
    case "heard":
      return hear(breaker, event);
    case "condemned": {
      // Consecutive suspected failures count from now on.
      const next = { ...breaker, consecutive: Math.max(breaker.consecutive, CONSECUTIVE_LIMIT) };
      return open(event.at < breaker.trialUntil ? next : { ...next, trips: 0 }, event.at, random);
    }
    default:
      return breaker;
  }
}

/** Other replicas' failures reduce the number needed to open; an own failure is required as well. */
function hear(breaker: Breaker, { at, calls, failures, consecutive }: BreakerEvent & { kind: "heard" }): Breaker {
  const share = Math.min(1, MOST_HEARD / Math.max(calls, 1));
  const window = slide(breaker.window, at, Math.round(calls * share), Math.round(failures * share));
  return { ...breaker, window, elsewhere: { consecutive, at } };
}

const heardOf = ({ elsewhere }: Breaker, at: number): number =>
  at - elsewhere.at < HEARSAY_MS ? elsewhere.consecutive : 0;

/** The gateway may send a health check before the cooldown ends. Results of calls that started earlier are outdated. */
function whileOpen(breaker: Breaker, event: BreakerEvent): Breaker {
  switch (event.kind) {
    case "probing":
      if (event.at < breaker.retryAt) return breaker;
      return { ...breaker, state: "half_open", probesPassed: 0, probeUntil: event.at + event.budgetMs };
    case "succeeded":
      if (!event.own) return breaker;
      if (breaker.probesPassed + 1 >= PROBES_TO_CLOSE) return onTrial(breaker, event.at);
      return { ...breaker, probesPassed: breaker.probesPassed + 1 };
    case "failed":
    case "released":
      return event.own ? { ...breaker, probesPassed: 0 } : breaker;
    default:
      return breaker;
  }
}

function whileHalfOpen(breaker: Breaker, event: BreakerEvent, random: () => number): Breaker {
  switch (event.kind) {
    case "probing":
      return { ...breaker, probeUntil: event.at + event.budgetMs };
    case "succeeded":
      if (breaker.probesPassed + 1 >= PROBES_TO_CLOSE) return event.own ? onTrial(breaker, event.at) : CLOSED;
      return { ...breaker, consecutive: 0, probesPassed: breaker.probesPassed + 1, probeUntil: 0 };
    case "failed":
      return open({ ...breaker, consecutive: breaker.consecutive + (event.own ? 0 : 1) }, event.at, random);
    case "condemned":
      return open(breaker, event.at, random);
    case "released":
      return { ...breaker, probeUntil: 0 };
    default:
      return breaker;
  }
}

/** An offering that passes a health check may still fail calls: the first failure opens it again for the former cooldown. */
const onTrial = ({ trips }: Breaker, at: number): Breaker => ({ ...CLOSED, trips, trialUntil: at + TRIAL_MS });

function open(breaker: Breaker, at: number, random: () => number): Breaker {
  const cooldown = Math.min(COOLDOWN_MS * 2 ** breaker.trips, LONGEST_COOLDOWN_MS);
  const retryAt = at + cooldown * (1 + JITTER * random());
  return {
    ...breaker,
    state: "open",
    trips: breaker.trips + 1,
    openedAt: at,
    retryAt,
    probeUntil: 0,
    probesPassed: 0,
    trialUntil: 0,
  };
}

function slide(window: BreakerWindow, at: number, calls: number, failures: number): BreakerWindow {
  // A clock that was set back must not empty the window.
  const slice = Math.max(Math.floor(at / SLICE_MS), window.slice);
  const passed = Math.min(slice - window.slice, SLICES);
  if (passed === 0) {
    return { slice, calls: withFirst(window.calls, calls), failures: withFirst(window.failures, failures) };
  }
  return { slice, calls: shift(window.calls, passed, calls), failures: shift(window.failures, passed, failures) };
}

function withFirst(counts: readonly number[], added: number): readonly number[] {
  if (added === 0) return counts;
  const more = counts.slice();
  more[0]! += added;
  return more;
}

function shift(counts: readonly number[], passed: number, added: number): number[] {
  const shifted = Array<number>(SLICES).fill(0);
  for (let i = passed; i < SLICES; i++) shifted[i] = counts[i - passed]!;
  shifted[0]! += added;
  return shifted;
}

function mostlyFails(window: BreakerWindow): boolean {
  const calls = window.calls.reduce((sum, count) => sum + count, 0);
  const failures = window.failures.reduce((sum, count) => sum + count, 0);
  return calls >= RATE_CALLS && failures >= calls * RATE_LIMIT;
}
