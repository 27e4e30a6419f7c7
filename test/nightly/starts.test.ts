/** The starts of every built-in scenario at full length. */
import { describe, expect, it } from "vitest";
import { Arena } from "../../src/scenarios/episode.ts";
import { BUILT_IN } from "../../src/scenarios/index.ts";
import { solvedStarts } from "../support/starts.ts";

const STARTS = 100_000;
const EPISODES = 500;

const variants = BUILT_IN.flatMap(({ id, variants }) =>
  variants.map((variant) => [`${id} in ${variant.actionSpace}`, variant] as const),
);

describe.each(variants)("%s", (_, variant) => {
  it("needs a policy from each of 100,000 starts", async () => {
    expect(await solvedStarts(variant, Array(STARTS).keys())).toEqual([]);
  }, 7_200_000);

  it("is never solved by a policy that answers zeros in 500 complete episodes", async () => {
    const arena = await Arena.of(variant);
    const zeros = [variant.fields.map(() => 0)];
    const solved: number[] = [];
    for (let seed = 0; seed < EPISODES; seed++) {
      const policy = async () => ({ rows: zeros, latencyMs: 0 });
      if ((await arena.run(seed, policy, { mode: "sync", replanSteps: 1 })).success) solved.push(seed);
    }
    arena.close();
    expect(solved).toEqual([]);
  }, 7_200_000);
});
