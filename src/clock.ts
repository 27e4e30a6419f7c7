/** Time: the only file that reads the clock or sets a timer, so that tests can hold both. */
import type { Signal } from "./cancellation.ts";

/** A time source: `wall` in unix milliseconds, `steady` in monotonic milliseconds. */
export interface Clock {
  wall(): number;
  steady(): number;
  /** Calls `run` once after `ms` milliseconds; the returned function cancels it. */
  after(ms: number, run: () => void): () => void;
}

const MAX_TIMER_MS = 2 ** 31 - 1;

const systemClock: Clock = {
  wall: () => Date.now(),
  steady: () => performance.now(),
  after: (ms, run) => {
    let timer: NodeJS.Timeout | undefined = setTimeout(run, Math.min(Math.max(ms, 0), MAX_TIMER_MS));
    return () => {
      clearTimeout(timer);
      // The returned function may be kept as long as a connection; the timer need not be.
      timer = undefined;
    };
  },
};

/** The machine's clock, for connection and statement timeouts; tests do not change it. */
export const ioClock: Clock = systemClock;

let clock: Clock = systemClock;
/** One moment on both clocks: the database's, in unix milliseconds, and this process's monotonic one. */
let anchor: { wall: number; steady: number } | undefined;
/** The database's last reported time, and when it arrived here. */
let told: { wall: number; steady: number } | undefined;

/**
 * The wall clock in unix milliseconds: the database's if known, else the machine's. Expiry times are set by the database or another replica,
 * so a wrong or jumping local clock must not end them early.
 */
export const now = (): number =>
  anchor === undefined ? clock.wall() : Math.floor(anchor.wall + clock.steady() - anchor.steady);

/** The wall clock in whole unix seconds, as in REST resources. */
export const nowSeconds = (): number => Math.floor(now() / 1000);

/** The earliest possible database time, in unix milliseconds, from its last response. Undefined if unknown. */
export const earliestNow = (): number | undefined => told && told.wall + clock.steady() - told.steady;

/**
 * Synchronizes the wall clock with the database, which reported `wallMs` between two monotonic times. If the clock agrees with that, it is
 * not changed, so that it does not jitter with latency. A test clock is never changed.
 */
export function setWall(wallMs: number, askedAt: number, answeredAt: number): void {
  if (clock !== systemClock) return;
  told = { wall: wallMs, steady: answeredAt };
  const middle = { wall: wallMs, steady: (askedAt + answeredAt) / 2 };
  const error = (answeredAt - askedAt) / 2 + 1;
  if (anchor === undefined || Math.abs(anchor.wall + middle.steady - anchor.steady - wallMs) > error) anchor = middle;
}

/** A monotonic clock in milliseconds, for durations and deadlines. */
export const steadyNow = (): number => clock.steady();

/** The CPU time of this process in all threads, in milliseconds. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Calls `run` once after `ms` milliseconds; the returned function cancels it. */
export const after = (ms: number, run: () => void): (() => void) => clock.after(ms, run);

/**
 * Calls `run` every `ms` milliseconds, first after `ms`, until the returned function is called. It stays on the clock on which it began, so
 * that a timer that one test leaves running does not run in the next.
 */
export function every(ms: number, run: () => void, began: Clock = clock): () => void {
  let forget = began.after(ms, function again() {
    forget = began.after(ms, again);
    run();
  });
  return () => forget();
}

/**
 * Like `every`, and passes to `run` the milliseconds since its last call, at most twice `ms`: a stall of this process must not count as the
 * silence of what it watches.
 */
export function everySpan(ms: number, run: (spanMs: number) => void, began: Clock = clock): () => void {
  let ranAt = began.steady();
  const look = (): void => {
    const at = began.steady();
    const spanMs = Math.min(at - ranAt, 2 * ms);
    ranAt = at;
    run(spanMs);
  };
  return every(ms, look, began);
}

/** The number of groups per interval, which run in turn. */
const PARTS = 8;

/** One timer for all callbacks of an interval, one group per tick. */
class Beat {
  readonly #clock: Clock;
  readonly #ms: number;
  readonly #parts = Array.from({ length: PARTS }, () => new Set<() => void>());
  #next = 0;
  #size = 0;
  #forget: () => void = () => {};

  constructor(clock: Clock, ms: number) {
    this.#clock = clock;
    this.#ms = ms;
  }

  /** Adds a callback; the returned function removes it. */
  join(run: () => void): () => void {
    // A wrapper, so that a callback added twice runs twice. The group that ran last has almost a full interval left.
    const member = (): void => run();
    const part = this.#parts[(this.#next + PARTS - 1) % PARTS]!;
    part.add(member);
    if (this.#size++ === 0) this.#forget = this.#clock.after(this.#ms / PARTS, this.#beat);
    return () => {
      if (part.delete(member) && --this.#size === 0) this.#forget();
    };
  }

  readonly #beat = (): void => {
    this.#forget = this.#clock.after(this.#ms / PARTS, this.#beat);
    const part = this.#parts[this.#next]!;
    this.#next = (this.#next + 1) % PARTS;
    for (const member of part) member();
  };
}

/** By clock, so that a timer that one test leaves running does not run in the next; and by interval. */
const beats = new WeakMap<Clock, Map<number, Beat>>();

/**
 * Like `every`, on one timer for all callbacks of an interval, for thousands of connections. The first call comes up to an eighth of the
 * interval early.
 */
export function everyTogether(ms: number, run: () => void): () => void {
  const known = beats.get(clock) ?? new Map<number, Beat>();
  beats.set(clock, known);
  const beat = known.get(ms) ?? new Beat(clock, ms);
  known.set(ms, beat);
  return beat.join(run);
}

/** The clock as a value, for pure code that has it as an argument. */
export const processClock: Clock = { wall: now, steady: steadyNow, after };

/** Resolves after `ms` milliseconds, or rejects with the signal's reason if that is aborted first. */
export function sleep(ms: number, signal?: Signal, on: Clock = clock): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const leave = (): void => {
      cancel();
      reject(signal?.reason);
    };
    const cancel = on.after(ms, () => {
      signal?.removeEventListener("abort", leave);
      resolve();
    });
    signal?.addEventListener("abort", leave, { once: true });
  });
}

/** A timeout: after `ms`, rejects with the error from `late`. A later result goes to `unwanted`; a later error is ignored. */
export interface WaitEnd<T> {
  readonly ms: number;
  /** The clock for `ms`: the business clock by default. */
  readonly on?: Clock;
  late(): unknown;
  unwanted?(value: T): void;
}

/** The result of `done` if it arrives in time. */
export function inTime<T>(done: PromiseLike<T>, { ms, on = clock, late, unwanted }: WaitEnd<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    let isLate = false;
    const forget = on.after(ms, () => {
      isLate = true;
      reject(late());
    });
    done.then(
      (value) => {
        forget();
        if (isLate) unwanted?.(value);
        else resolve(value);
      },
      (thrown) => {
        forget();
        reject(thrown);
      },
    );
  });
}

/** Replaces the clock; returns a function that restores it. Only for tests. */
export function replaceClock(other: Clock): () => void {
  const before = { clock, anchor };
  anchor = undefined;
  clock = other;
  return () => {
    clock = before.clock;
    anchor = before.anchor;
  };
}
