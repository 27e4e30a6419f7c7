/** Time and randomness as a test has them. */
import { type Clock, replaceClock } from "../../src/clock.ts";
import { replaceRandom } from "../../src/random.ts";

/** What undoes each replacement that is in force, oldest first. */
const inForce: (() => void)[] = [];

let clocks = 0;

/** How many times the clock has been replaced. A gateway that was open meanwhile has seen time jump. */
export const clockReplacements = (): number => clocks;

/** Replaces the clock, the source of randomness or both; returns a function that puts the old ones back. */
export function replaceAmbient(by: { clock?: Clock; random?: () => number }): () => void {
  if (by.clock) clocks++;
  const undo = [by.clock && replaceClock(by.clock), by.random && replaceRandom(by.random)];
  const restore = (): void => {
    const at = inForce.indexOf(restore);
    if (at < 0) return;
    inForce.splice(at, 1);
    for (const each of undo) each?.();
  };
  inForce.push(restore);
  return restore;
}

/** How many replacements are in force. */
export const replacementsNow = (): number => inForce.length;

/** Puts back what was replaced since `kept` replacements were in force, newest first; returns what it was. */
export function restoreReplaced(kept = 0): string[] {
  const left = inForce.slice(kept);
  for (const restore of left.toReversed()) restore();
  return left.length === 0 ? [] : [`${left.length} replacements of the clock or of randomness`];
}
