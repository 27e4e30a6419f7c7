/** What a number of units is planned to cost. Charges are made by `charge` in money, the same rule; a test holds the two together. */

/**
 * `units` at `nanoPerUnit` nano-dollars each, in integer micro-dollars, rounded once, half to even.
 * Exact while the product stays below 2^53 nano-dollars (nine million dollars).
 */
export function microOf(units: number, nanoPerUnit: number): number {
  const nano = units * nanoPerUnit;
  const micro = Math.floor(nano / 1000);
  // The quotient may have been rounded up to a whole number; the rest is then negative, and up is where it belongs.
  const rest = nano - micro * 1000;
  return rest > 500 || (rest === 500 && micro % 2 === 1) ? micro + 1 : micro;
}

/** The most that so many units are charged, in whole micro-dollars: what was left open of earlier charges may round them up. */
export const mostMicroOf = (units: number, nanoPerUnit: number): number => {
  const micro = microOf(units, nanoPerUnit);
  return micro * 1000 < units * nanoPerUnit ? micro + 1 : micro;
};

/** What the gateway asks for an episode of an evaluation, in micro-dollars. */
export const EPISODE_MICRO = 10_000;

/** What the gateway asks for a call with the caller's own provider key, in hundredths of the list price. */
const OWN_KEY_PERCENT = 5;

/** The price of a unit for a call with the caller's own provider key, in whole nano-dollars, the rest let go. */
export const ownKeyNano = (nanoPerUnit: number): number => Math.floor((nanoPerUnit * OWN_KEY_PERCENT) / 100);
