/** Seeded random numbers for scenarios: integer arithmetic only, so that a seed is reproducible on every machine. */

/** Draws a number from [0, 1). */
export type Random = () => number;

/** The same seed (a whole number) always gives the same numbers. Source: Bob Jenkins' small fast generator with 32-bit words and a counter. */
export function seeded(seed: number): Random {
  let a = 0;
  let b = seed >>> 0;
  let c = Math.floor(seed / 2 ** 32) >>> 0;
  let counter = 1;
  const draw = (): number => {
    const word = (((a + b) | 0) + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = ((c << 21) | (c >>> 11)) + word;
    c |= 0;
    return (word >>> 0) / 2 ** 32;
  };
  // Similar seeds start similarly, so their first words are discarded.
  for (let i = 0; i < 15; i++) draw();
  return draw;
}

/** A number from [low, high). */
export const between = (random: Random, low: number, high: number): number => low + (high - low) * random();
