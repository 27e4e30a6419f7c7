/** Every built-in scenario: its reference controller does well, nobody and chance do badly, and a replay is the same to the last bit. */
import { afterAll, describe, expect, it } from "vitest";
import { plan } from "../../../src/reference/act/plan.ts";
import { coverageOf, pushT, pushTowards } from "../../../src/scenarios/builtin/push-t.ts";
import { between, seeded } from "../../../src/scenarios/chance.ts";
import { Arena, type EpisodePolicy, type EpisodeRecord, type Rules } from "../../../src/scenarios/episode.ts";
import { BUILT_IN, digestOf } from "../../../src/scenarios/index.ts";
import type { Scenario, ScenarioVariant } from "../../../src/scenarios/scenario.ts";
import { IS_LONG, runs } from "../../support/runs.ts";

const RULES = { mode: "sync", replanSteps: 4 } as const satisfies Rules;

/** The share of episodes that the reference controller must solve, where another share than nearly all is meant. */
const LEAST: Readonly<Record<string, number>> = { "arm-pick-place": 0.85, "arm-reach": 0.85 };

const cases = BUILT_IN.filter(({ id }) => id !== "push-t").flatMap((scenario) =>
  scenario.variants.map((variant) => [`${scenario.id} in ${variant.actionSpace}`, scenario, variant] as const),
);

const arenas: Arena[] = [];
afterAll(() => {
  for (const arena of arenas) arena.close();
});

async function arenaOf(variant: ScenarioVariant): Promise<Arena> {
  const arena = await Arena.of(variant);
  arenas.push(arena);
  return arena;
}

const zero =
  ({ fields }: ScenarioVariant): EpisodePolicy =>
  async () => ({ rows: [fields.map(() => 0)], latencyMs: 0 });

function random({ bounds }: ScenarioVariant): EpisodePolicy {
  const draw = seeded(5);
  return async () => ({ rows: [bounds.low.map((low, i) => between(draw, low, bounds.high[i]!))], latencyMs: 0 });
}

const reference =
  ({ actionSpace, fields }: ScenarioVariant): EpisodePolicy =>
  async ({ proprio }) => {
    const { steps } = plan({ actionSpace, horizon: RULES.replanSteps, proprio, frames: [] });
    const dim = fields.length;
    return {
      rows: Array.from({ length: steps.length / dim }, (_, row) => steps.subarray(row * dim, (row + 1) * dim)),
      latencyMs: 0,
    };
  };

async function episodes(arena: Arena, policy: EpisodePolicy, count: number): Promise<EpisodeRecord[]> {
  const records: EpisodeRecord[] = [];
  for (let seed = 0; seed < count; seed++) records.push(await arena.run(seed, policy, RULES));
  return records;
}

const successes = (records: readonly EpisodeRecord[]): number => records.filter(({ success }) => success).length;

describe.each(cases)("%s", (_, scenario: Scenario, variant) => {
  const count = IS_LONG ? 10 : 3;
  const controls = IS_LONG ? 5 : 2;

  it("is solved by its reference controller, but not by zero or random actions", async () => {
    const arena = await arenaOf(variant);
    const solved = successes(await episodes(arena, reference(variant), count));
    expect(solved).toBeGreaterThanOrEqual(Math.round(count * (LEAST[scenario.id] ?? 0.95)));
    expect(successes(await episodes(arena, zero(variant), controls))).toBe(0);
    expect(successes(await episodes(arena, random(variant), controls))).toBe(0);
  });

  it("repeats its trajectory for equal seeds and actions, and gives another for another seed", async () => {
    const [arena, other] = [await arenaOf(variant), await arenaOf(variant)];
    const [record] = await episodes(arena, reference(variant), 1);
    expect(other.replay(0, record!.actions).trajectorySha256).toBe(record!.trajectorySha256);
    expect(arena.replay(0, record!.actions).trajectorySha256).toBe(record!.trajectorySha256);
    expect(arena.replay(1, record!.actions).trajectorySha256).not.toBe(record!.trajectorySha256);
  });

  it("names every number of an observation and of an action", async () => {
    const arena = await arenaOf(variant);
    const seen: number[] = [];
    await arena.run(
      1,
      ({ proprio }) => {
        seen.push(proprio.length);
        return zero(variant)({ proprio, time: 0, first: true });
      },
      RULES,
    );
    expect(new Set(seen)).toEqual(new Set([variant.proprioNames.length]));
    expect(variant.bounds.low).toHaveLength(variant.fields.length);
    expect(digestOf(scenario, variant)).toMatch(/^sha256:[0-9a-f]{64}$/);
  });
});

describe("push-t", () => {
  const variant = pushT.variants[0];
  const HORIZON = 8;
  const CANDIDATES = 20;

  /** Tries random pushes in the same physics and keeps the one that leaves the T best (sampling model-predictive control). */
  function sampling(arena: Arena): EpisodePolicy {
    const { world } = arena;
    const draw = seeded(11);
    return async () => {
      const [positions, speeds] = [world.qpos.slice(), world.qvel.slice()];
      const [x, y] = [positions[2]! * 100, positions[3]! * 100];
      let best = { value: -Infinity, rows: [] as number[][] };
      for (let i = 0; i < CANDIDATES; i++) {
        const near = (spread: number): number[] => [
          between(draw, x - spread, x + spread),
          between(draw, y - spread, y + spread),
        ];
        const [first, second] = [near(150), near(120)];
        const rows = Array.from({ length: HORIZON }, (_, step) => (step < HORIZON / 2 ? first : second));
        world.qpos.set(positions);
        world.qvel.set(speeds);
        world.forward();
        for (const [toX, toY] of rows) pushTowards(world, toX!, toY!);
        const off = Math.hypot(world.qpos[2]! - 2.24, world.qpos[3]! - 2.88) / 2;
        const turned = world.qpos[4]! - Math.PI / 4;
        const value = 2 * coverageOf(world) - off - Math.abs(Math.atan2(Math.sin(turned), Math.cos(turned))) / 1.5;
        if (value > best.value) best = { value, rows };
      }
      world.qpos.set(positions);
      world.qvel.set(speeds);
      world.forward();
      return { rows: best.rows, latencyMs: 0 };
    };
  }

  it("is mostly covered by planning in its own physics, and hardly by zero or random actions", async () => {
    const arena = await arenaOf(variant);
    const covered = async (policy: EpisodePolicy, count: number): Promise<number> => {
      const records = await episodes(arena, policy, count);
      return records.reduce((sum, { metrics }) => sum + metrics.max_coverage!, 0) / count;
    };
    expect(await covered(sampling(arena), IS_LONG ? 2 : 1)).toBeGreaterThan(0.7);
    expect(await covered(zero(variant), runs(2))).toBeLessThan(0.2);
    expect(await covered(random(variant), runs(2))).toBeLessThan(0.25);
  }, 300_000);

  it("repeats its trajectory for equal seeds and actions", async () => {
    const [arena, other] = [await arenaOf(variant), await arenaOf(variant)];
    const [record] = await episodes(arena, random(variant), 1);
    expect(other.replay(0, record!.actions).trajectorySha256).toBe(record!.trajectorySha256);
  });
});

describe("a scenario with published figures", () => {
  it("CartPole-v1 drops the pole after about 37 steps without a force", async () => {
    const [scenario] = BUILT_IN;
    const arena = await arenaOf(scenario!.variants[0]);
    const records = await episodes(arena, zero(scenario!.variants[0]), runs(10));
    const mean = records.reduce((sum, { steps }) => sum + steps, 0) / records.length;
    expect(mean).toBeGreaterThan(30);
    expect(mean).toBeLessThan(45);
  });

  it("Pendulum-v1 returns about -1200 without a torque, and about -150 with energy pumping", async () => {
    const scenario = BUILT_IN[1]!;
    const arena = await arenaOf(scenario.variants[0]);
    const mean = async (policy: EpisodePolicy): Promise<number> => {
      const records = await episodes(arena, policy, runs(10));
      return records.reduce((sum, record) => sum + record.return, 0) / records.length;
    };
    expect(await mean(zero(scenario.variants[0]))).toBeLessThan(-1000);
    expect(await mean(reference(scenario.variants[0]))).toBeGreaterThan(-200);
  });
});
