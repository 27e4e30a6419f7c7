/** Time and chance as a test has them. */
import { type Clock, replaceClock } from "../../src/clock.ts";
import { replaceRandom } from "../../src/random.ts";

/** Replaces the clock, the source of chance or both; returns a function that puts the old ones back. */
export function replaceAmbient(by: { clock?: Clock; random?: () => number }): () => void {
  const undo = [by.clock && replaceClock(by.clock), by.random && replaceRandom(by.random)];
  return () => {
    for (const each of undo) each?.();
  };
}
