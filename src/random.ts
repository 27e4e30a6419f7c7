/** Randomness: the only file that draws random numbers, so that tests can choose them. */
import { randomBytes } from "node:crypto";

let draw: () => number = Math.random;

/** A uniform number in [0, 1). Not for secrets. */
export const random = (): number => draw();

/** `bytes` of cryptographic randomness. */
export const secretBytes = (bytes: number): Buffer => randomBytes(bytes);

/** Replaces the source of `random`; returns a function that restores it. Only for tests. */
export function replaceRandom(other: () => number): () => void {
  const before = draw;
  draw = other;
  return () => {
    draw = before;
  };
}
