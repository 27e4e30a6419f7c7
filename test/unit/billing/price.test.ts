import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { charge, fromUsd, MOST_MICRO, nanoFromUsd, toUsd, usdFromNano } from "../../../src/billing/price.ts";
import { Reason, Refusal } from "../../../src/errors.ts";
import { runs } from "../../support/runs.ts";

/** The rule again, in whole numbers of any size. */
function chargeByBigInt(units: bigint, nanoPerUnit: bigint): bigint {
  const nano = units * nanoPerUnit;
  const [whole, rest] = [nano / 1_000n, nano % 1_000n];
  return rest > 500n || (rest === 500n && whole % 2n === 1n) ? whole + 1n : whole;
}

describe("a charge", () => {
  it.each([
    [0, 100_000, 0],
    [16, 100_000, 1_600],
    [1, 499, 0],
    [1, 500, 0],
    [1, 501, 1],
    [1, 1_500, 2],
    [1, 2_500, 2],
    [3, 500, 2],
    [256, 1_000_000_000_000, 256_000_000_000],
    [3_333_333, 3_333_333, 11_111_108_889],
  ])("of %i units at %i nano-dollars is %i micro-dollars", (units, nanoPerUnit, micro) => {
    expect(charge(units, nanoPerUnit)).toBe(micro);
  });

  it("is exact and rounded once, half to even, for every price and number of units", () => {
    const product = (most: number) => {
      const dearest = Math.min(Math.floor((MOST_MICRO * 1_000) / most), Number.MAX_SAFE_INTEGER);
      return fc.tuple(fc.integer({ min: 0, max: most }), fc.integer({ min: 0, max: dearest }));
    };
    fc.assert(
      fc.property(
        fc.oneof(product(256), product(2 ** 20), product(2 ** 31), product(MOST_MICRO)),
        ([units, nanoPerUnit]) => {
          expect(BigInt(charge(units, nanoPerUnit))).toBe(chargeByBigInt(BigInt(units), BigInt(nanoPerUnit)));
        },
      ),
      { numRuns: runs(1_000) },
    );
  });

  it("is exact on halves beyond 2^53 nano-dollars", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 2 ** 34, max: 2 ** 39 }),
        fc.integer({ min: 2 ** 19, max: 2 ** 20 }),
        (micro, units) => {
          const nanoPerUnit = 500 * (2 * Math.floor(micro / units) + 1);
          expect(BigInt(charge(units, nanoPerUnit))).toBe(chargeByBigInt(BigInt(units), BigInt(nanoPerUnit)));
        },
      ),
      { numRuns: runs(400) },
    );
  });

  it.each([
    [-1, 1],
    [1, -1],
    [0.5, 1],
    [1, 0.5],
    [Number.NaN, 1],
    [1, Number.POSITIVE_INFINITY],
    [2 ** 53, 1],
    [MOST_MICRO, 1_001],
  ])("of %d units at %d nano-dollars is refused as a bug", (units, nanoPerUnit) => {
    expect(() => charge(units, nanoPerUnit)).toThrow(RangeError);
  });
});

describe("an amount in dollars", () => {
  it("is formatted with at most six decimals and parsed back to the same amount", () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: MOST_MICRO }), (micro) => {
        const usd = toUsd(micro);
        expect(String(usd)).toMatch(/^\d+(\.\d{1,6})?$|^\de-6$/);
        expect(fromUsd(usd)).toBe(micro);
      }),
      { numRuns: runs(1_000) },
    );
  });

  it("is parsed from common notation", () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 99_999_999 }), fc.integer({ min: 0, max: 999_999 }), (whole, decimals) => {
        expect(fromUsd(Number(`${whole}.${String(decimals).padStart(6, "0")}`))).toBe(whole * 1_000_000 + decimals);
      }),
    );
  });

  it.each([0.1 + 0.2, 1e-7, 0.0000015, 100.0000001, -1, -0.000001, Number.NaN, Number.POSITIVE_INFINITY, 1e9 + 1])(
    "of %d is refused, and the field is named",
    (usd) => {
      const refusal = (() => {
        try {
          return fromUsd(usd, "budget.limit_usd");
        } catch (thrown) {
          return thrown;
        }
      })();
      expect(refusal).toBeInstanceOf(Refusal);
      expect(refusal).toMatchObject({
        reason: Reason.VALIDATION_FAILED,
        param: "budget.limit_usd",
        details: { violations: [{ path: "budget.limit_usd", type: "money" }] },
      });
    },
  );
});

describe("a price in dollars", () => {
  it.each([
    [0.0001, 1, 100_000],
    [0.000000001, 1, 1],
    [0.075, 1_000, 75_000],
    [0.000001, 1_000, 1],
    [1_000, 1, 1_000_000_000_000],
    [0, 1, 0],
  ])("of %d for %i is %i nano-dollars each, and is parsed back to the same", (usd, per, nano) => {
    expect(nanoFromUsd(usd, per)).toBe(nano);
    expect(usdFromNano(nano, per)).toBe(usd);
  });

  it.each([
    [0.0000000005, 1],
    [0.0000005, 1_000],
    [-0.1, 1],
    [Number.NaN, 1],
  ])("of %d for %i is refused", (usd, per) => {
    expect(() => nanoFromUsd(usd, per)).toThrow(Refusal);
  });
});
