/** The controls of publications: how many run, how much they record, and that equal ones run once. */
import { describe, expect, it, vi } from "vitest";
import { BUILT_IN, digestOf } from "../../../src/scenarios/index.ts";
import type { PublishedEvaluation } from "../../../src/scenarios/published.ts";
import { ENGINE_FACTS, type Scenario } from "../../../src/scenarios/scenario.ts";
import { type ControlRun, Controls } from "../../../src/services/publication-controls.ts";

const scenario = BUILT_IN.find(({ id }) => id === "pendulum-swingup")!;
const [variant] = scenario.variants;
const free = { enter: async () => () => {} };

/** A published evaluation in the scenario, as far as its controls depend on it. */
const evaluation = (seed: number, episodes: number, world: Scenario = scenario) => {
  const { id, version } = world;
  const digest = digestOf(world, world.variants[0]!);
  const engine = { engine: ENGINE_FACTS.name, engine_version: ENGINE_FACTS.version };
  const stated = { id, version, digest, ...engine, action_space: variant.actionSpace, mode: "sync" };
  return { scenario: stated, seed, episodes: Array(episodes).fill({}) } as unknown as PublishedEvaluation;
};
const runsOf = (evaluations: readonly PublishedEvaluation[], world = scenario) =>
  new Controls(new Map([[world.id, world]]), { cores: free, threads: free }).runsOf(evaluations);
const stepsOf = (runs: ControlRun[] | string): number =>
  (runs as ControlRun[]).reduce((sum, { episodes }) => sum + episodes * variant.maxSteps, 0);

describe("the controls of a publication", () => {
  it("play 12,000 steps for each scenario and first seed, and 192,000 for all", () => {
    const each = (count: number) => Array.from({ length: count }, (_, seed) => evaluation(seed, 60));
    expect(stepsOf(runsOf([...each(2), ...each(2)]))).toBe(2 * 50 * variant.maxSteps);
    expect(runsOf(each(64))).toHaveLength(64);
    expect(stepsOf(runsOf(each(64)))).toBe(64 * 15 * variant.maxSteps);
  });

  it("are refused if one episode of each takes more steps than all may", () => {
    const long = { ...scenario, id: "long", variants: [{ ...variant, maxSteps: 90_000 }] } satisfies Scenario;
    const each = (count: number) => Array.from({ length: count }, (_, seed) => evaluation(seed, 1, long));
    expect(runsOf(each(2), long)).toHaveLength(2);
    expect(runsOf(each(3), long)).toMatch(/up to 270000 control steps in 3 scenarios and seeds, more than 192000/);
  });

  it("are refused once the reference's actions exceed what the document may still record, and no later ones run", async () => {
    const enter = vi.fn(free.enter);
    const controls = new Controls(new Map([[scenario.id, scenario]]), { cores: free, threads: { enter } });
    const runs = controls.runsOf([evaluation(0, 1), evaluation(1, 1)]) as ControlRun[];
    expect(await controls.of("org", runs, 100)).toMatch(/of the reference controller take more than 8388608 bytes/);
    expect(enter).toHaveBeenCalledTimes(1);
    expect(await controls.of("org", runs, 100_000)).toMatchObject([{ seed: 0 }, { seed: 1 }]);
    expect(enter).toHaveBeenCalledTimes(2);
  });

  it("run once for all publications that need them at the same time, however many others run", async () => {
    const entered: ((thrown: Error) => void)[] = [];
    const threads = { enter: () => new Promise<never>((_, reject) => entered.push(reject)) };
    const controls = new Controls(new Map([[scenario.id, scenario]]), { cores: free, threads });
    const seeds = Array.from({ length: 20 }, (_, seed) => seed);
    const all = [...seeds, ...seeds].map(async (seed) =>
      controls.of("org", controls.runsOf([evaluation(seed, 1)]) as ControlRun[], 0),
    );
    expect(entered).toHaveLength(20);
    for (const leave of entered) leave(new Error("closed"));
    expect((await Promise.allSettled(all)).map(({ status }) => status)).toEqual(Array(40).fill("rejected"));
  });
});
