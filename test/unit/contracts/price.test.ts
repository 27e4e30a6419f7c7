import fc from "fast-check";
import { expect, test } from "vitest";
import { charge } from "../../../src/billing/price.ts";
import { microOf } from "../../../src/contracts/contract.ts";
import { runs } from "../../support/runs.ts";

/** Half to even, in integers without bounds. */
function exactly(units: number, nano: number): number {
  const product = BigInt(units) * BigInt(nano);
  const micro = product / 1000n;
  const rest = product % 1000n;
  const up = rest > 500n || (rest === 500n && micro % 2n === 1n);
  return Number(up ? micro + 1n : micro);
}

test("a price rounds once, half to even", () => {
  expect([
    microOf(1, 499),
    microOf(1, 500),
    microOf(1, 501),
    microOf(1, 1500),
    microOf(1, 2500),
    microOf(3, 500),
  ]).toEqual([0, 0, 1, 2, 2, 2]);
});

test("a price equals unbounded integer arithmetic up to nine million dollars", () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 1_000_000 }), fc.integer({ min: 0, max: 9_000_000_000 }), (units, nano) => {
      fc.pre(units * nano < 2 ** 53);
      expect(microOf(units, nano)).toBe(exactly(units, nano));
    }),
    { numRuns: runs(400) },
  );
});

test("a price is exact if the quotient is one step from a whole number", () => {
  for (let micro = 2 ** 42; micro < 2 ** 42 + 50; micro++) {
    for (const off of [-501, -500, -499, -1, 0, 1, 499, 500, 501]) {
      expect(microOf(1, micro * 1000 + off)).toBe(exactly(1, micro * 1000 + off));
    }
  }
});

test("a plan's cost equals the credit leaser's charge", () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 5000 }), fc.integer({ min: 0, max: 1_000_000_000 }), (units, nano) => {
      expect(microOf(units, nano)).toBe(charge(units, nano));
    }),
  );
});
