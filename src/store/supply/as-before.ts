/** What is read again and says the same is what was read before. */
import { isDeepStrictEqual } from "node:util";

/** `before` where `now` says the same, so that what was made of it need not be made again. */
export const asBefore = <T>(before: T | undefined, now: T): T => (isDeepStrictEqual(before, now) ? (before as T) : now);

/**
 * Empties a list of rows that were read. A list that is held across a wait keeps all that is in it, and what the collector meets twice it
 * takes for old: it would stay until the next full collection.
 */
export const letGo = (rows: unknown[]): void => {
  rows.length = 0;
};
