/** How much tests that draw many cases try. */

/** Whether this is a nightly run. */
export const IS_LONG = process.env.LIMBER_LONG !== undefined;

/** Returns how many cases to try: `short`, or five times as many in a nightly run. */
export const runs = (short: number): number => (IS_LONG ? 5 * short : short);
