import { describe, expect, it } from "vitest";
import { seeded } from "../../../src/scenarios/chance.ts";
import { Betting, mcnemarExact, pairOf, rateDifference } from "../../../src/scenarios/paired.ts";
import { coverage, falseStops } from "../../support/calibration.ts";
import { played } from "../../support/tournaments.ts";

describe("paired comparisons", () => {
  // Reference values: scipy.stats.binomtest(min, n, 0.5).
  it.each([
    [0, 0, 1],
    [5, 5, 1],
    [6, 0, 0.03125],
    [9, 1, 0.021484375],
    [30, 15, 0.0356978036],
  ])("gives McNemar's exact p-value for %i against %i discordant seeds", (a, b, p) => {
    expect(mcnemarExact(a, b)).toBeCloseTo(p, 9);
    expect(mcnemarExact(b, a)).toBeCloseTo(p, 9);
  });

  it("gives intervals of success differences that never have no width", () => {
    const { low, high } = rateDifference(0, 0, 50);
    expect(low).toBeLessThan(0);
    expect(high).toBeGreaterThan(0);
    expect(rateDifference(50, 0, 50).high).toBeLessThanOrEqual(1);
  });

  it("covers the true difference in 95 % of tournaments at 50 seeds", () => {
    const { success, return: returned } = coverage(300, 50);
    expect(success).toBeGreaterThan(0.92);
    expect(returned).toBeGreaterThan(0.91);
  });

  it("calls one of two equal policies better in at most 5 % of comparisons, however often it is looked at", () => {
    expect(falseStops(400, 100)).toBeLessThan(0.05);
  });

  it("knows a clear difference early, and its sequence contains the truth", () => {
    const [a, b] = played([0.9, 0.4], 200, seeded(3));
    const pair = pairOf(a!, b!, { metric: "success", alpha: 0.05, pairs: 1, mayStop: true });
    expect(pair.better).toBe("a");
    expect(pair.anytime.knownAfter).toBeLessThan(60);
    expect(pair.anytime.interval.low).toBeGreaterThan(0);
    expect(pair.anytime.interval.low).toBeLessThan(0.5);
    expect(pair.anytime.interval.high).toBeGreaterThan(0.5);
  });

  it("finds the same interval in the mirror", () => {
    const [one, other] = [new Betting(0.05), new Betting(0.05)];
    for (const difference of [1, 0, 1, 1, 0, -1, 1, 1, 0, 0, 1]) {
      one.add(difference);
      other.add(-difference);
    }
    expect(one.sequence().interval.low).toBeCloseTo(-other.sequence().interval.high, 6);
    expect(one.knownAfter).toBe(other.knownAfter);
  });
});
