/** Runs long work in slices of about a millisecond, so that it does not block the event loop. */
import { steadyNow } from "./clock.ts";

/** Work that can pause at each `yield`. It yields at least about once per millisecond. */
export type Sliced<T> = Generator<void, T>;

/** How long sliced work can block the event loop. */
const SLICE_MS = 1;

/** Yields to the event loop once. */
export const breathe = (): Promise<void> => new Promise(setImmediate);

let pauseOnce = breathe;

/** Yields to the event loop once, after many long-lived allocations. */
export const pause = (): Promise<void> => pauseOnce();

/** Replaces what `pause` does; returns a function that restores it. The process uses it to collect garbage. */
export function installPause(other: () => Promise<void>): () => void {
  const before = pauseOnce;
  pauseOnce = other;
  return () => {
    pauseOnce = before;
  };
}

/** Runs sliced work to its end, yielding to the event loop after every millisecond and after long work; `rest` does so. */
export async function inSlices<T>(work: Sliced<T>, rest = breathe): Promise<T> {
  let rested = false;
  for (let since = steadyNow(); ; ) {
    const { done, value } = work.next();
    if (done) {
      // The next work is often long, too, and would run in the same turn.
      if (rested) await rest();
      return value;
    }
    if (steadyNow() - since < SLICE_MS) continue;
    await rest();
    rested = true;
    since = steadyNow();
  }
}

/** Runs sliced work to its end without yielding. */
export function atOnce<T>(work: Sliced<T>): T {
  for (;;) {
    const { done, value } = work.next();
    if (done) return value;
  }
}
