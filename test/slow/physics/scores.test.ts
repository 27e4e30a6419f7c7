import { describe, expect, it } from "vitest";
import type { EpisodeRecord } from "../../../src/scenarios/episode.ts";
import { bootstrap, clopperPearson, scoresOf, wilson } from "../../../src/scenarios/scores.ts";

describe("the interval of a rate", () => {
  // Reference values of the published formulas.
  it.each([
    [9, 10, 0.596, 0.982, 0.555, 0.997],
    [45, 50, 0.786, 0.957, 0.782, 0.967],
    [450, 500, 0.871, 0.923, 0.87, 0.925],
    [0, 10, 0, 0.278, 0, 0.308],
    [10, 10, 0.722, 1, 0.692, 1],
  ])("of %i of %i is exact", (successes, n, low, high, exactLow, exactHigh) => {
    expect(wilson(successes, n).low).toBeCloseTo(low, 3);
    expect(wilson(successes, n).high).toBeCloseTo(high, 3);
    expect(clopperPearson(successes, n).low).toBeCloseTo(exactLow, 3);
    expect(clopperPearson(successes, n).high).toBeCloseTo(exactHigh, 3);
  });

  it("is [0, 1] without trials, and exact for a thousand", () => {
    expect(wilson(0, 0)).toEqual({ low: 0, high: 1 });
    const { low, high } = clopperPearson(500, 1000);
    expect(low).toBeCloseTo(0.4685, 3);
    expect(high).toBeCloseTo(0.5315, 3);
  });
});

describe("scores", () => {
  const episode = (over: Partial<EpisodeRecord>): EpisodeRecord => ({
    seed: 0,
    success: false,
    termination: "max_steps",
    error: undefined,
    return: 0,
    progress: 0,
    steps: 10,
    simTimeS: 1,
    policyCalls: 5,
    latenciesMs: [1, 2],
    metrics: { far_m: 1 },
    clippedSteps: 0,
    staleSteps: 0,
    meanActionDelta: 0,
    initialStateSha256: "",
    trajectorySha256: "",
    actions: new Float64Array(),
    ...over,
  });

  it("count an episode with a fault as a failure, and report how each ended", () => {
    const { successRate, terminations } = scoresOf([
      episode({ success: true, termination: "success" }),
      episode({ termination: "policy_timeout" }),
    ]);
    expect(successRate).toMatchObject({ value: 0.5, successes: 1, n: 2 });
    expect(terminations).toEqual({ success: 1, policy_timeout: 1 });
  });

  it("weigh ratios by steps and seconds, not by episodes", () => {
    const scores = scoresOf([
      episode({ steps: 90, staleSteps: 9, simTimeS: 9, policyCalls: 45 }),
      episode({ steps: 10, staleSteps: 10, simTimeS: 1, policyCalls: 5 }),
    ]);
    expect(scores.staleActionRatio).toBeCloseTo(0.19);
    expect(scores.effectiveHz).toBeCloseTo(5);
  });

  it("have a mean return whose interval contains it and is reproducible", () => {
    const values = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    const interval = bootstrap(values);
    expect(interval.low).toBeLessThan(5.5);
    expect(interval.high).toBeGreaterThan(5.5);
    expect(bootstrap(values)).toEqual(interval);
    expect(scoresOf([episode({ return: 3 })]).return).toMatchObject({ mean: 3, std: 0, median: 3, min: 3, max: 3 });
  });

  it("use the mean of the middle two as the median of an even count", () => {
    const medianOf = (...returns: number[]) => scoresOf(returns.map((each) => episode({ return: each }))).return.median;
    expect([medianOf(4, 1), medianOf(9, 1, 3, 5), medianOf(9, 1, 3)]).toEqual([2.5, 4, 3]);
  });
});
