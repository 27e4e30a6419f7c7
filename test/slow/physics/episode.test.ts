import { describe, expect, it } from "vitest";
import { Arena, type Chunk } from "../../../src/scenarios/episode.ts";
import { PolicyFailure } from "../../../src/scenarios/failure.ts";
import { BUILT_IN } from "../../../src/scenarios/index.ts";

const variant = BUILT_IN[0]!.variants[0];
const SYNC = { mode: "sync", replanSteps: 1 } as const;

async function run(policy: (call: number) => Chunk, rules: Parameters<Arena["run"]>[2] = SYNC) {
  const arena = await Arena.of(variant);
  let call = 0;
  try {
    return await arena.run(1, async () => policy(call++), rules);
  } finally {
    arena.close();
  }
}

const chunk = (...rows: number[][]): Chunk => ({ rows, latencyMs: 0 });

describe("an episode", () => {
  it.each([
    ["a number too many", () => chunk([1, 2]), "action_dim_mismatch", "got 2"],
    ["NaN", () => chunk([Number.NaN]), "invalid_action", "non-finite number"],
    ["no rows", () => chunk(), "invalid_action", "no action"],
    [
      "nothing in time",
      () => {
        throw new PolicyFailure("policy_timeout", "the policy did not answer in time");
      },
      "policy_timeout",
      "in time",
    ],
  ] as const)("ends as a fault on %s, with the steps done until then", async (_, bad, termination, text) => {
    const record = await run((call) => (call < 3 ? chunk([0]) : bad()));
    expect(record).toMatchObject({ termination, success: false, steps: 3 });
    expect(record.error).toContain(text);
  });

  it("rethrows the gateway's own bugs, which do not count against the policy", async () => {
    await expect(
      run(() => {
        throw new Error("a bug");
      }),
    ).rejects.toThrow("a bug");
  });

  it("clips actions beyond the bounds, counts them, and hashes the applied ones", async () => {
    const wild = await run(() => chunk([1e9]));
    const most = await run(() => chunk([10]));
    expect(wild.clippedSteps).toBe(wild.steps);
    expect(most.clippedSteps).toBe(0);
    expect(wild.trajectorySha256).toBe(most.trajectorySha256);
  });

  it("executes at most as many rows of a chunk as it replans after", async () => {
    const record = await run(() => chunk([0], [0], [0], [0], [0]), { mode: "sync", replanSteps: 2 });
    expect(record.policyCalls).toBe(Math.ceil(record.steps / 2));
  });

  it.each([
    [0, 0],
    [0.999, 0],
    [1, 1],
    [1.999, 1],
    [2, 2],
  ])("counts for a latency of %d steps exactly %i stale ones with each chunk", async (steps, stale) => {
    for (const dtMs of [20, 0.1 * 3, 0.0033 * 7 * 1000]) {
      const slow = async (): Promise<Chunk> => ({
        rows: Array.from({ length: 8 }, () => [0]),
        latencyMs: steps * dtMs,
      });
      const arena = await Arena.of({ ...variant, dtMs, maxSteps: 4 + stale });
      try {
        const record = await arena.run(1, slow, { mode: "realtime", replanSteps: 4 });
        expect([record.policyCalls, record.staleSteps, record.steps]).toEqual([1, stale, 4 + stale]);
      } finally {
        arena.close();
      }
    }
  });

  it("with a rounded-up step length counts the same stale step as an exact one", async () => {
    const arena = await Arena.of({ ...variant, dtMs: 20 + 4e-15, maxSteps: 5 });
    try {
      const slow = async (): Promise<Chunk> => ({ rows: Array.from({ length: 8 }, () => [0]), latencyMs: 20 });
      expect((await arena.run(1, slow, { mode: "realtime", replanSteps: 4 })).staleSteps).toBe(1);
    } finally {
      arena.close();
    }
  });

  it("executes a quarter of each chunk by default, and one row of a short chunk", async () => {
    const rules = { mode: "sync", replanSteps: undefined } as const;
    const long = await run(() => chunk(...Array.from({ length: 12 }, () => [0])), rules);
    expect(long.policyCalls).toBe(Math.ceil(long.steps / 3));
    const short = await run(() => chunk([0], [0]), rules);
    expect(short.policyCalls).toBe(short.steps);
  });

  it("continues in real time during a slow policy, under its last action, and counts the stale steps", async () => {
    const slow = (): Chunk => ({ rows: Array.from({ length: 8 }, () => [0]), latencyMs: 50 });
    const record = await run(slow, { mode: "realtime", replanSteps: 4 });
    expect(record.staleSteps).toBeGreaterThan(0);
    expect(record.policyCalls).toBeLessThanOrEqual(Math.ceil(record.steps / 6) + 1);
    expect((await run(slow)).staleSteps).toBe(0);
  });
});
