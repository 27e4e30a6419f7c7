import { describe, expect, it } from "vitest";
import { seeded } from "../../../src/scenarios/chance.ts";
import { strengthsOf } from "../../../src/scenarios/strengths.ts";
import { inSlices } from "../../../src/slices.ts";
import { played } from "../../support/tournaments.ts";

const strengths = (results: readonly (readonly number[])[]) => inSlices(strengthsOf([{ weight: 1, results }]));
const values = async (results: readonly (readonly number[])[]) => (await strengths(results)).map(({ value }) => value);

/** Simulated successes of policies with these rates. */
const successes = (rates: readonly number[], seeds: number) =>
  played(rates, seeds, seeded(seeds)).map((outcomes) => outcomes.map(({ success }) => Number(success)));

describe("Bradley-Terry strengths", () => {
  it("recover the odds between two policies", async () => {
    // The first wins on 73 of 100 seeds: odds of 2.7 to 1.
    const first = Array.from({ length: 2_000 }, (_, i) => Number(i % 100 < 73));
    const [a, b] = await values([first, first.map((result) => 1 - result)]);
    expect(a! - b!).toBeCloseTo(Math.log(73 / 27), 2);
    expect(a! + b!).toBeCloseTo(0, 9);
  });

  it("recover the order of six policies of known strength", async () => {
    const found = await strengths(successes([0.95, 0.8, 0.65, 0.5, 0.35, 0.2], 400));
    const order = found.map(({ value }) => value);
    expect(order).toEqual(order.toSorted((a, b) => b - a));
    for (const { value, ci95 } of found) {
      expect(ci95.low).toBeLessThan(value);
      expect(ci95.high).toBeGreaterThan(value);
    }
    expect(found[0]!.ci95.low).toBeGreaterThan(found[2]!.ci95.high);
  });

  it("do not depend on the order of the policies", async () => {
    const results = successes([0.9, 0.6, 0.5, 0.2], 100);
    const straight = await strengths(results);
    const turned = (await strengths(results.toReversed())).toReversed();
    for (const [i, { value, ci95 }] of straight.entries()) {
      expect(turned[i]!.value).toBeCloseTo(value, 4);
      expect(turned[i]!.ci95.low).toBeCloseTo(ci95.low, 4);
    }
  });

  it("stay finite for policies that win or lose every seed, and grow with the number of seeds", async () => {
    const swept = (seeds: number) => values([Array(seeds).fill(1), Array(seeds).fill(0), Array(seeds).fill(0.5)]);
    const [few, many] = [await swept(5), await swept(200)];
    for (const value of [...few, ...many]) expect(Math.abs(value)).toBeLessThan(20);
    expect(many[0]! - many[1]!).toBeGreaterThan(few[0]! - few[1]!);
  });

  it("are equal for policies that tie on every seed, and count a tie as half a win", async () => {
    expect(await values([Array(9).fill(1), Array(9).fill(1), Array(9).fill(1)])).toEqual(
      [0, 0, 0].map((zero) => expect.closeTo(zero, 9)),
    );
    const tied = await values([
      [1, 1, 0, 0, 1],
      [0, 1, 0, 1, 1],
    ]);
    expect(tied[0]).toBeCloseTo(tied[1]!, 9);
  });

  it("compare policies of which one has not reached every seed, on the seeds that it has", async () => {
    const [a, b, c] = await values([
      [1, 1, 1, 1],
      [0, 0],
      [0, 0, 0, 0],
    ]);
    expect(a).toBeGreaterThan(Math.max(b!, c!));
  });
});
