/** How much tests try that draw many cases or kill many processes. */

/** Whether this is the nightly run, which sets `LIMBER_LONG`. */
export const IS_LONG = process.env.LIMBER_LONG !== undefined;

/** Returns `count`, or five times as many in the nightly run. */
export const runs = (count: number): number => (IS_LONG ? 5 * count : count);
