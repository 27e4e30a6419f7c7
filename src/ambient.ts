/** Time, chance and names: the only door to the clock and to randomness, so that tests can hold both. */
import { randomBytes, randomFillSync } from "node:crypto";
import type { Signal } from "./cancellation.ts";
import { collectYoung, isCollectorBusy, isYoungMany } from "./collector.ts";

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
    const timer = setTimeout(run, Math.min(Math.max(ms, 0), MAX_TIMER_MS));
    return () => clearTimeout(timer);
  },
};

let clock: Clock = systemClock;
let chance: () => number = Math.random;
/** A moment on both clocks at once: the database's, in unix milliseconds, and this process's steady one. */
let anchor: { wall: number; steady: number } | undefined;

/**
 * The wall clock in unix milliseconds: the database's where it is known, else the machine's. Whatever ends at a time was dated by the
 * database or by another replica, and must not end early where this machine's clock is wrong or jumps.
 */
export const now = (): number =>
  anchor === undefined ? clock.wall() : Math.floor(anchor.wall + clock.steady() - anchor.steady);

/** The same in whole unix seconds, as the REST resources carry it. */
export const nowSeconds = (): number => Math.floor(now() / 1000);

/**
 * Sets the wall clock by the database's: it said `wallMs` at some moment between two of the steady clock. A clock that agrees with
 * that is left alone, so that time does not jitter by what an answer takes. A test's own clock is never set.
 */
export function setWall(wallMs: number, askedAt: number, answeredAt: number): void {
  if (clock !== systemClock) return;
  const told = { wall: wallMs, steady: (askedAt + answeredAt) / 2 };
  const error = (answeredAt - askedAt) / 2 + 1;
  if (anchor === undefined || Math.abs(anchor.wall + told.steady - anchor.steady - told.wall) > error) anchor = told;
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

/** Calls `run` every `ms` milliseconds, the first time after that long, until the returned function is called. */
export function every(ms: number, run: () => void): () => void {
  let forget = clock.after(ms, function again() {
    forget = clock.after(ms, again);
    run();
  });
  return () => forget();
}

/** The clock as a value, for pure code that takes one as an argument. */
export const ambientClock: Clock = { wall: now, steady: steadyNow, after };

/** Resolves after `ms` milliseconds, or rejects with the signal's reason when it is aborted first. */
export function sleep(ms: number, signal?: Signal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const leave = (): void => {
      cancel();
      reject(signal?.reason);
    };
    const cancel = clock.after(ms, () => {
      signal?.removeEventListener("abort", leave);
      resolve();
    });
    signal?.addEventListener("abort", leave, { once: true });
  });
}

/** The end of a wait: after `ms` it rejects with what `late` makes. What comes later is given to `unwanted`; what fails later nobody hears. */
export interface WaitEnd<T> {
  readonly ms: number;
  late(): unknown;
  unwanted?(value: T): void;
}

/** What `done` resolves to, if it does so in time. */
export function inTime<T>(done: PromiseLike<T>, { ms, late, unwanted }: WaitEnd<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    let isLate = false;
    const forget = clock.after(ms, () => {
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

/** Work that can be put down at each `yield` and taken up again. It yields at least once in a millisecond or so. */
export type Sliced<T> = Generator<void, T>;

/** How long sliced work may hold the event loop. */
const SLICE_MS = 1;

/** Leaves the event loop to others once. */
export const breathe = (): Promise<void> => new Promise(setImmediate);

/** How long the collector may need for the old, and how often it is asked whether it has ended. */
const MARKING_MS = 1_000;
const LOOK_MS = 5;

/**
 * Leaves the event loop to others once, for whoever makes much that stays: as soon as there is so much of it that a collection
 * would be felt, it has a turn of its own. While the old are being collected nothing is made.
 */
export async function breatheOut(): Promise<void> {
  await breathe();
  if (!isYoungMany()) return;
  // What the collector began with in this turn is known in the next.
  await breathe();
  for (let waited = 0; isCollectorBusy(); waited += LOOK_MS) {
    if (waited >= MARKING_MS) return;
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
  // It has the young collected too, and while what it left is swept a small collection would wait for that.
  if (!isYoungMany()) return;
  collectYoung();
  await breathe();
}

/** Does sliced work to its end, leaving the event loop to others after every millisecond and at the end of what was long; `rest` is how. */
export async function inSlices<T>(work: Sliced<T>, rest = breathe): Promise<T> {
  let rested = false;
  for (let since = steadyNow(); ; ) {
    const { done, value } = work.next();
    if (done) {
      // What follows is often long, too, and would go on in the same turn.
      if (rested) await rest();
      return value;
    }
    if (steadyNow() - since < SLICE_MS) continue;
    await rest();
    rested = true;
    since = steadyNow();
  }
}

/** Does sliced work to its end in one go. */
export function atOnce<T>(work: Sliced<T>): T {
  for (;;) {
    const { done, value } = work.next();
    if (done) return value;
  }
}

/** A uniform number in [0, 1). Not for secrets. */
export const random = (): number => chance();

const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const pool = new Uint8Array(4096);
let taken = pool.length;

/**
 * A ten-letter millisecond stamp in Crockford letters, three for the turn within it and thirteen random ones (65 bits): sortable by birth,
 * so that what is kept in the order of names grows at its end; unguessable enough for a name.
 */
function ulid(): string {
  if (taken + 16 > pool.length) {
    randomFillSync(pool);
    taken = 0;
  }
  const ms = now();
  // Turns begin anywhere, so that they don't tell how many names there were.
  if (ms !== stamped.ms) stamped = { ms, text: stampOf(ms), turn: (pool[taken++]! << 5) | (pool[taken++]! & 31) };
  const turn = stamped.turn++;
  // A short text is joined at once, a long one becomes a tree of its parts: so there are few parts.
  const half = ALPHABET[(turn >> 10) & 31]! + PAIRS[turn & 1023]! + pair() + pair();
  return stamped.text + half + (pair() + pair() + pair() + pair() + ALPHABET[pool[taken++]! & 31]!);
}

const pair = (): string => PAIRS[((pool[taken++]! & 31) << 5) | (pool[taken++]! & 31)]!;

/** Every two letters. */
const PAIRS = Array.from({ length: 1024 }, (_, i) => `${ALPHABET[i >> 5]}${ALPHABET[i & 31]}`);

/** Many names are made in one millisecond. */
let stamped = { ms: Number.NaN, text: "", turn: 0 };

function stampOf(ms: number): string {
  let stamp = "";
  for (let rest = ms, i = 0; i < 10; i++, rest = Math.floor(rest / 32)) stamp = ALPHABET[rest % 32] + stamp;
  return stamp;
}

/** The prefixes that a resource's name may start with. */
export type IdPrefix =
  | "act"
  | "aud"
  | "cred"
  | "dlv"
  | "entry"
  | "evt"
  | "bct"
  | "key"
  | "job"
  | "lease"
  | "line"
  | "oac"
  | "off"
  | "org"
  | "pay"
  | "pred"
  | "prov"
  | "rep"
  | "stop"
  | "replica"
  | "req"
  | "grnd"
  | "grp"
  | "usr"
  | "wh"
  | "ws";

/** A fresh resource name such as `org_01J…`: sortable by the moment of its making. */
export const newId = (prefix: IdPrefix): string => `${prefix}_${ulid()}`;

/** `bytes` of cryptographic randomness. */
export const secretBytes = (bytes: number): Buffer => randomBytes(bytes);

/** Replaces the clock or the source of chance; returns a function that puts the old ones back. Tests only. */
export function replaceAmbient(with_: { clock?: Clock; random?: () => number }): () => void {
  const before = { clock, chance, anchor };
  if (with_.clock) anchor = undefined;
  clock = with_.clock ?? clock;
  chance = with_.random ?? chance;
  return () => {
    clock = before.clock;
    chance = before.chance;
    anchor = before.anchor;
  };
}
