/** How often tests of chance repeat. */

/** The nightly run tries this many times as much. */
const LONGER = process.env.LIMBER_LONG === undefined ? 1 : 5;

/** Returns `count`, or five times as many in the nightly run, which sets `LIMBER_LONG`. */
export const runs = (count: number): number => count * LONGER;
