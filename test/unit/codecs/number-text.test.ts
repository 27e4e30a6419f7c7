import fc from "fast-check";
import { expect, it } from "vitest";
import { LONGEST_NUMBER, writeNumber } from "../../../src/codecs/number-text.ts";

const bytes = Buffer.alloc(LONGEST_NUMBER + 2, "#");
const textOf = (value: number): string => {
  const end = writeNumber(bytes, value, 1);
  expect(bytes[0]).toBe(0x23);
  expect(end - 1).toBeLessThanOrEqual(LONGEST_NUMBER);
  return bytes.toString("latin1", 1, end);
};

const float = new Float64Array(1);
const bits = new BigInt64Array(float.buffer);
/** The double so many places above another. */
function neighbour(value: number, places: number): number {
  float[0] = value;
  bits[0]! += BigInt(places);
  return float[0];
}

const RUNS = { numRuns: 5_000, seed: 1 };
const finite = fc.double({ noNaN: true, noDefaultInfinity: true });

it.each<[string, fc.Arbitrary<number>]>([
  ["any double", finite],
  ["doubles within arm's length", fc.double({ min: -10, max: 10, noNaN: true })],
  ["single floats", fc.float({ min: -1000, max: 1000, noNaN: true })],
  ["numbers that somebody wrote with few digits", fc.tuple(fc.integer(), fc.nat(12)).map(([n, d]) => n / 10 ** d)],
  [
    "numbers of ten-thousandths and what is next to them",
    fc
      .tuple(fc.nat(2 ** 53 - 1), fc.integer({ min: 1, max: 2 ** 20 }), fc.integer({ min: -2, max: 2 }))
      .map(([n, by, places]) => neighbour(Math.floor(n / by) / 10_000, places))
      .filter(Number.isFinite), // there is nothing below zero's own bits
  ],
  ["whole numbers", fc.integer({ min: -(2 ** 32), max: 2 ** 32 })],
  [
    "neighbours of powers of ten and of two",
    fc
      .tuple(fc.integer({ min: -8, max: 12 }), fc.constantFrom(2, 10), fc.integer({ min: -300, max: 300 }))
      .map(([exponent, base, places]) => neighbour(base ** exponent, places)),
  ],
])("%s are written as JSON writes them", (_, numbers) => {
  fc.assert(
    fc.property(numbers, (value) => {
      expect(textOf(value)).toBe(JSON.stringify(value));
      expect(textOf(-value)).toBe(JSON.stringify(-value));
    }),
    RUNS,
  );
});

it.each([0, -0, 5e-324, -1.7976931348623157e308, 2 ** 31, 2 ** 31 - 1, 1e21, 1e-6, 9.999999e-7, 0.1 + 0.2, 1 / 3])(
  "%d is written as JSON writes it",
  (value) => {
    expect(textOf(value)).toBe(JSON.stringify(value));
  },
);
