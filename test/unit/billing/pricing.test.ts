/** What calls cost, by table: every unit, waking up, hedges, and calls on the caller's own provider key. */
import { describe, expect, it } from "vitest";
import { charge } from "../../../src/billing/price.ts";
import { microOf, ownKeyNano } from "../../../src/contracts/contract.ts";

const CASES: readonly (readonly [what: string, units: number, nanoPerUnit: number, micro: number])[] = [
  ["16 action steps at 0.0001 USD", 16, 100_000, 1_600],
  ["one action step at a nano-dollar", 1, 1, 0],
  ["500 action steps at a nano-dollar: half a micro-dollar goes to the even one", 500, 1, 0],
  ["1,500 of them: half again, up to the even one", 1_500, 1, 2],
  ["256 frames at 0.0005 USD", 256, 500_000, 128_000],
  ["1,234 tokens at 0.01 USD for a thousand", 1_234, 10_000, 12_340],
  ["50 episodes at 2.50 USD", 50, 2_500_000_000, 125_000_000],
  ["nothing", 0, 100_000, 0],
  ["for nothing", 16, 0, 0],
];

describe("a call at the list price", () => {
  it.each(CASES)("%s", (_, units, nano, micro) => {
    expect(charge(units, nano)).toBe(micro);
    expect(microOf(units, nano)).toBe(micro);
  });
});

describe("a call on the caller's own provider key", () => {
  it.each([
    ["a twentieth of the list price", 100_000, 5_000],
    ["whole nano-dollars, rounded down", 119, 5],
    ["nothing if a twentieth of the list price is less than a nano-dollar", 19, 0],
  ])("%s", (_, nano, own) => {
    expect(ownKeyNano(nano)).toBe(own);
  });

  it("costs at most the list price for any number of units", () => {
    for (const nano of [0, 1, 19, 20, 999, 100_000, 2_500_000_000])
      for (const units of [0, 1, 16, 256, 100_000])
        expect(charge(units, ownKeyNano(nano))).toBeLessThanOrEqual(charge(units, nano));
  });
});
