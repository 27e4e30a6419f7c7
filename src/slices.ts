/** Long work in slices of about a millisecond, so that it never holds the event loop. */
import { steadyNow } from "./clock.ts";

/** Work that can be put down at each `yield` and taken up again. It yields at least once in a millisecond or so. */
export type Sliced<T> = Generator<void, T>;

/** How long sliced work may hold the event loop. */
const SLICE_MS = 1;

/** Leaves the event loop to others once. */
export const breathe = (): Promise<void> => new Promise(setImmediate);

let pauseOnce = breathe;

/** Leaves the event loop to others once, where much was made that stays. */
export const pause = (): Promise<void> => pauseOnce();

/** Replaces what `pause` does; returns a function that puts the old one back. The collector collects garbage in it. */
export function installPause(other: () => Promise<void>): () => void {
  const before = pauseOnce;
  pauseOnce = other;
  return () => {
    pauseOnce = before;
  };
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
