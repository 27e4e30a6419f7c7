/** The statistics of comparisons at full length. */
import { expect, it } from "vitest";
import { seeded } from "../../src/scenarios/chance.ts";
import { pairOf } from "../../src/scenarios/paired.ts";
import { runTrial } from "../../src/scenarios/trial.ts";
import { coverage, falseStops, suiteCoverage } from "../support/calibration.ts";
import { played } from "../support/tournaments.ts";

it.each([50, 100, 250])("covers the true difference in 93 to 97 percent of 1,000 tournaments at %i seeds", (seeds) => {
  const { success, return: returned } = coverage(1_000, seeds);
  for (const share of [success, returned]) {
    expect(share).toBeGreaterThanOrEqual(0.93);
    expect(share).toBeLessThanOrEqual(0.97);
  }
});

it.each([
  ["five tasks of 5 to 20 episodes", [10, 10, 20, 5, 15]],
  ["twenty tasks of 3 episodes", Array(20).fill(3)],
  ["three tasks of 100 episodes", [100, 100, 100]],
])("covers overall scores on %s, and calls at most 5 % of equal policies better", (_, episodes) => {
  const { rate, progress, difference, wrong } = suiteCoverage(1_000, episodes);
  console.log(`intervals cover ${rate}, ${progress}, ${difference}; ${wrong} of equal pairs have a winner`);
  for (const share of [rate, progress, difference]) expect(share).toBeGreaterThanOrEqual(0.93);
  expect(wrong).toBeLessThanOrEqual(0.06);
});

it("keeps the error of anytime-valid stops below 5 % in 10,000 comparisons", () => {
  expect(falseStops(10_000, 500)).toBeLessThanOrEqual(0.05);
});

it("recovers the order of six policies of known strength in 95 % of tournaments", () => {
  const random = seeded(9);
  const rates = [0.95, 0.8, 0.65, 0.5, 0.35, 0.2];
  const judging = { metric: "success", alpha: 0.05, pairs: 15, mayStop: false } as const;
  let wrong = 0;
  for (let i = 0; i < 200; i++) {
    const outcomes = played(rates, 400, random);
    const isOrdered = outcomes.slice(1).every((after, at) => pairOf(outcomes[at]!, after, judging).better !== "b");
    const inOrder = outcomes.slice(1).every((after, at) => pairOf(outcomes[at]!, after, judging).success.mean > 0);
    if (!isOrdered || !inOrder) wrong += 1;
  }
  expect(wrong / 200).toBeLessThanOrEqual(0.05);
});

/** Successes of a controller of `cartpole-balance` on the seeds from 0 on, with uniform noise of this many newtons added to its force. */
async function balanced(noiseN: number, seeds: number): Promise<boolean[]> {
  const plan = {
    scenario: "cartpole-balance",
    actionSpace: "continuous_nd",
    seed: 0,
    rules: { mode: "sync", replanSteps: 1 },
    pictures: false,
    media: "none",
    pack: undefined,
  } as const;
  const successes: boolean[] = [];
  const random = seeded(Math.round(noiseN * 1_000));
  const over = new AbortController();
  await runTrial(
    plan,
    {
      core: async () => () => {},
      next: async () => (successes.length < seeds ? { index: successes.length } : { index: undefined, rendered: [] }),
      act: async ({ proprio: [x, v, angle, omega] }) => {
        const force = x! + 2 * v! + 30 * angle! + 4 * omega!;
        return { rows: [[force + noiseN * (2 * random() - 1)]], latencyMs: 1 };
      },
      finished: async ({ success }) => void successes.push(success),
    },
    over.signal,
  );
  return successes;
}

it("recovers the order of a controller with six levels of noise in 95 % of tournaments of 200 episodes", async () => {
  const played = await Promise.all([5.8, 6.8, 7.4, 8, 8.7, 9.5].map((noiseN) => balanced(noiseN, 600)));
  console.log(`success rates ${played.map((each) => (each.filter(Boolean).length / 600).toFixed(2)).join(", ")}`);
  const random = seeded(11);
  const orderedOf = (episodes: number): number => {
    let ordered = 0;
    for (let i = 0; i < 1_000; i++) {
      const seeds = Array.from({ length: episodes }, () => Math.floor(random() * 600));
      const rates = played.map((each) => seeds.filter((seed) => each[seed]).length);
      if (rates.every((rate, at) => at === 0 || rates[at - 1]! > rate)) ordered += 1;
    }
    return ordered / 1_000;
  };
  for (const episodes of [25, 50, 100, 200, 400]) console.log(`${episodes} episodes: ${orderedOf(episodes)} in order`);
  expect(orderedOf(200)).toBeGreaterThanOrEqual(0.95);
});
