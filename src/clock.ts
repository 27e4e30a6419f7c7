/** Time: the only file that reads the clock or sets a timer, so that tests can hold both. */
import type { Signal } from "./cancellation.ts";

/** Where time comes from: `wall` in unix milliseconds, `steady` in milliseconds that never run backwards. */
export interface Clock {
  wall(): number;
  steady(): number;
  /** Calls `run` once after `ms` milliseconds; the returned function forgets it. */
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
      // The function may be kept for as long as a connection lasts; the timer need not.
      timer = undefined;
    };
  },
};

/** The machine's own clock, for how long connections and statements may take: no test moves it. */
export const ioClock: Clock = systemClock;

let clock: Clock = systemClock;
/** A moment on both clocks at once: the database's, in unix milliseconds, and this process's steady one. */
let anchor: { wall: number; steady: number } | undefined;
/** What the database said last, and when that was here. */
let told: { wall: number; steady: number } | undefined;

/**
 * The wall clock in unix milliseconds: the database's where it is known, else the machine's. Whatever ends at a time was dated by the
 * database or by another replica, and must not end early where this machine's clock is wrong or jumps.
 */
export const now = (): number =>
  anchor === undefined ? clock.wall() : Math.floor(anchor.wall + clock.steady() - anchor.steady);

/** The same in whole unix seconds, as the REST resources carry it. */
export const nowSeconds = (): number => Math.floor(now() / 1000);

/** The earliest that it may be by the database's clock, in unix milliseconds: its last answer had left when it came. Undefined where it is not known. */
export const earliestNow = (): number | undefined => told && told.wall + clock.steady() - told.steady;

/**
 * Sets the wall clock by the database's: it said `wallMs` at some moment between two of the steady clock. A clock that agrees with
 * that is left alone, so that time does not jitter by what an answer takes. A test's own clock is never set.
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

/** The processor time that this process has had, all its threads together, in milliseconds. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Calls `run` once after `ms` milliseconds; the returned function cancels it. */
export const after = (ms: number, run: () => void): (() => void) => clock.after(ms, run);

/**
 * Calls `run` every `ms` milliseconds, the first time after that long, until the returned function is called; always on the clock that it began
 * with, so that what one test leaves running never comes onto the clock of the next.
 */
export function every(ms: number, run: () => void, began: Clock = clock): () => void {
  let forget = began.after(ms, function again() {
    forget = began.after(ms, again);
    run();
  });
  return () => forget();
}

/**
 * As `every`, and tells `run` how long ago it ran last, in milliseconds: at most twice `ms`, so that time in which this process stood still
 * itself is not counted as the silence of what it watches.
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

/** Those of one interval take turns in so many parts of it. */
const PARTS = 8;

/** One timer for all who wait for the same interval, a part of them at each beat. */
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

  /** Takes one more in; the returned function lets it out. */
  join(run: () => void): () => void {
    // An own function, so that one that joins twice is called twice; and the part whose turn was last, for nearly a whole interval.
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

/** By clock, so that what one test leaves running never comes onto the clock of the next; and by interval. */
const beats = new WeakMap<Clock, Map<number, Beat>>();

/**
 * As `every`, on one timer for all who ask for the same interval: for what thousands of connections wait for. The first time comes a little
 * early, by up to an eighth of the interval.
 */
export function everyTogether(ms: number, run: () => void): () => void {
  const known = beats.get(clock) ?? new Map<number, Beat>();
  beats.set(clock, known);
  const beat = known.get(ms) ?? new Beat(clock, ms);
  known.set(ms, beat);
  return beat.join(run);
}

/** The clock as a value, for pure code that takes one as an argument. */
export const processClock: Clock = { wall: now, steady: steadyNow, after };

/** Resolves after `ms` milliseconds, or rejects with the signal's reason when it is aborted first. */
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

/** The end of a wait: after `ms` it rejects with what `late` makes. What comes later is given to `unwanted`; what fails later nobody hears. */
export interface WaitEnd<T> {
  readonly ms: number;
  /** The clock that measures `ms`: business time unless stated. */
  readonly on?: Clock;
  late(): unknown;
  unwanted?(value: T): void;
}

/** What `done` resolves to, if it does so in time. */
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

/** Replaces the clock; returns a function that puts the old one back. Tests only. */
export function replaceClock(other: Clock): () => void {
  const before = { clock, anchor };
  anchor = undefined;
  clock = other;
  return () => {
    clock = before.clock;
    anchor = before.anchor;
  };
}
