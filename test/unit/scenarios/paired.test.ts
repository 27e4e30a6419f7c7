import { describe, expect, it } from "vitest";
import { seeded } from "../../../src/scenarios/chance.ts";
import {
  Betting,
  mcnemarExact,
  pairOf,
  rateDifference,
  signFlip,
  weightedPairOf,
} from "../../../src/scenarios/paired.ts";
import { coverage, falseStops, suiteCoverage } from "../../support/calibration.ts";
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

describe("weighted comparisons", () => {
  const outcome = (success: boolean) => ({ success, progress: Number(success), return: 0 });
  const judging = { metric: "success", alpha: 0.05, pairs: 1, mayStop: false } as const;

  it.each([
    [6, 0],
    [9, 1],
    [12, 3],
    [30, 15],
    [60, 30],
    [5, 5],
  ])("give nearly McNemar's p-value for %i against %i equal differences, and never less", (a, b) => {
    const p = signFlip([...Array(a).fill(0.01), ...Array(b).fill(-0.01)]);
    expect(p).toBeGreaterThanOrEqual(mcnemarExact(a, b) - 1e-9);
    expect(p).toBeLessThan(1.15 * mcnemarExact(a, b) + 1e-9);
  });

  it("give the p-value that all signs of unequal differences give", () => {
    const differences = [0.3, 0.2, 0.2, -0.1, 0.5, 0.05, 0.4, -0.2, 0.15, 0.33];
    const sumOf = (signs: number) =>
      Math.abs(differences.reduce((sum, d, i) => sum + (((signs >> i) & 1) === 1 ? Math.abs(d) : -Math.abs(d)), 0));
    const observed = Math.abs(differences.reduce((sum, d) => sum + d, 0));
    const asFar = Array.from({ length: 2 ** 10 }, (_, signs) => sumOf(signs)).filter((sum) => sum >= observed - 1e-9);
    expect(signFlip(differences)).toBeCloseTo(asFar.length / 2 ** 10, 2);
    expect(signFlip([])).toBe(1);
  });

  it("are the plain difference and interval for one task", () => {
    const [a, b] = played([0.8, 0.6], 40, seeded(1));
    const plain = pairOf(a!, b!, judging);
    const weighted = weightedPairOf([{ share: 1, a: a!, b: b! }], judging);
    expect(weighted).toMatchObject({ n: 40, success: plain.success, progress: plain.progress, anytime: plain.anytime });
  });

  it("follow the weights, not the numbers of episodes, and wait for every task", () => {
    const [won, lost] = [Array(20).fill(outcome(true)), Array(20).fill(outcome(false))];
    const heavy = { share: 0.9, a: won.slice(0, 10), b: lost.slice(0, 10) };
    const light = { share: 0.1, a: lost, b: won };
    const pair = weightedPairOf([heavy, light], judging);
    expect(pair?.success.mean).toBeCloseTo(0.8, 9);
    expect(pair?.better).toBe("a");
    expect(
      weightedPairOf(
        [light, heavy].map(({ share, a, b }) => ({ share, a: b, b: a })),
        judging,
      )?.better,
    ).toBe("b");
    expect(weightedPairOf([heavy, { ...light, a: [] }], judging)).toBeUndefined();
  });

  it("call none better from three seeds of two tasks that one policy always solves", () => {
    const task = { share: 0.5, a: Array(3).fill(outcome(true)), b: Array(3).fill(outcome(false)) };
    expect(weightedPairOf([task, { ...task, a: task.a.slice(0, 2) }], judging)?.better).toBeUndefined();
  });

  it("cover the true overall rate and difference, and err in at most 5 % of equal policies", () => {
    const { rate, progress, difference, wrong } = suiteCoverage(150, [10, 10, 20, 5, 15]);
    for (const share of [rate, progress, difference]) expect(share).toBeGreaterThan(0.91);
    expect(wrong).toBeLessThanOrEqual(0.06);
  });
});
