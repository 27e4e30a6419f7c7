/** Control policies, without physics. */
import { describe, expect, it } from "vitest";
import { controlEpisodes, controlPolicy, referenceOf } from "../../../src/scenarios/controls.ts";
import { BUILT_IN } from "../../../src/scenarios/index.ts";

const variants = BUILT_IN.flatMap((scenario) =>
  scenario.variants.map((variant) => [`${scenario.id} in ${variant.actionSpace}`, scenario, variant] as const),
);
const LOOK = { proprio: [], time: 0, first: true };

describe.each(variants)("the controls of %s", (_, scenario, variant) => {
  const { low, high } = variant.bounds;

  it("include a reference model, and play at most 50 episodes and 12,000 control steps", () => {
    expect(referenceOf(scenario, variant)).toMatch(/^reference\//);
    expect(controlEpisodes(3, variant)).toBe(3);
    const most = controlEpisodes(10_000, variant);
    expect(most).toBeLessThanOrEqual(50);
    expect(most * variant.maxSteps).toBeLessThanOrEqual(12_000);
  });

  it("send zeros, or random numbers within the bounds that depend on the seed alone", async () => {
    const acted = async (control: "zero" | "random", seed: number): Promise<number[]> => {
      const { rows } = await controlPolicy(control, scenario, variant, seed)(LOOK);
      return [...Array.from(rows[0]!)];
    };
    const zeros = await acted("zero", 1);
    expect(zeros).toEqual(low.map((least, i) => Math.min(high[i]!, Math.max(0, least))));
    const random = await acted("random", 1);
    expect(random.every((value, i) => value >= low[i]! && value < high[i]!)).toBe(true);
    expect(await acted("random", 1)).toEqual(random);
    expect(await acted("random", 2)).not.toEqual(random);
  });
});
