import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CONTROLLERS, plan } from "../../../src/reference/act/plan.ts";
import type { ActInput, ActionSpace } from "../../../src/reference/act/types.ts";
import { UnsupportedObservation } from "../../../src/reference/unsupported.ts";
import { pushT } from "../../../src/scenarios/builtin/push-t.ts";
import { Arena, type EpisodePolicy } from "../../../src/scenarios/episode.ts";
import { runs } from "../../support/runs.ts";
import { between, overheadView, seeded } from "../../support/scenes.ts";

const SPACES = Object.keys(CONTROLLERS) as ActionSpace[];
const DIMS: Record<ActionSpace, number> = {
  base_twist_2d: 2,
  waypoint_se2: 3,
  ee_delta_6d_grip: 7,
  joint_pos_7: 7,
  joint_pos_14: 14,
  joint_pos_23: 23,
  joint_pos_29: 29,
  continuous_nd: 1,
  latent_action: 28,
};

/** The longest layout of a space; of continuous_nd, where each layout is a task of its own, the pendulum's. */
const layoutOf = (space: ActionSpace): readonly string[] =>
  CONTROLLERS[space].declaration.proprioLayouts.at(space === "continuous_nd" ? 0 : -1)!;

/** Proprio in that layout of a space; a pendulum's angle lies on the circle. */
function proprioFor(space: ActionSpace, random: () => number): number[] {
  const angle = between(random, -3, 3);
  if (space === "continuous_nd") return [Math.cos(angle), Math.sin(angle), between(random, -1, 1)];
  return layoutOf(space).map(() => between(random, -0.5, 0.5));
}

const ask = (actionSpace: ActionSpace, more: Partial<ActInput> = {}): ActInput => ({
  actionSpace,
  horizon: 16,
  proprio: proprioFor(actionSpace, seeded(1)),
  frames: [],
  ...more,
});

describe.each(SPACES)("act in %s", (space) => {
  it.each([1, 16, 256])("returns horizon %i with exactly that many finite rows of the space's dimension", (horizon) => {
    const out = plan(ask(space, { horizon }));
    expect(out.dim).toBe(DIMS[space]);
    expect(out.steps).toHaveLength(horizon * DIMS[space]);
    expect(out.steps.every(Number.isFinite)).toBe(true);
    expect(out.dtMs).toBe(CONTROLLERS[space].declaration.dtMs);
    expect(out.note).toMatch(/^[A-Z].*\.$/);
  });

  it("returns the same chunk for the same input, whatever the seed, and another for another observation", () => {
    const once = plan(ask(space, { seed: 1 }));
    expect(plan(ask(space, { seed: 2 }))).toEqual(once);
    expect(plan(ask(space, { proprio: proprioFor(space, seeded(2)) })).steps).not.toEqual(once.steps);
  });

  it("starts a long chunk with the rows of a short one", () => {
    const long = plan(ask(space, { horizon: 40 })).steps;
    expect(long.subarray(0, 4 * DIMS[space])).toEqual(plan(ask(space, { horizon: 4 })).steps);
  });

  it("reads named proprioception in any order and does not change the caller's numbers", () => {
    const names = layoutOf(space);
    const proprio = proprioFor(space, seeded(3));
    const before = [...proprio];
    const straight = plan(ask(space, { proprio, proprioNames: names }));
    expect(proprio).toEqual(before);
    const reversed = { proprio: [...proprio].reverse(), proprioNames: [...names].reverse() };
    expect(plan(ask(space, reversed))).toEqual(straight);
    expect(plan(ask(space, { proprio: Float64Array.from(proprio) }))).toEqual(straight);
  });

  it("refuses unknown lengths and names and names that do not match the numbers, and lists what it knows", () => {
    const names = layoutOf(space);
    const proprio = proprioFor(space, seeded(3));
    const known = new RegExp(names[0]!);
    expect(() => plan(ask(space, { proprio: [...proprio, 0, 0] }))).toThrow(known);
    expect(() => plan(ask(space, { proprio: [...proprio, 0, 0] }))).toThrow(UnsupportedObservation);
    expect(() => plan(ask(space, { proprio, proprioNames: names.map((name) => `${name}_deg`) }))).toThrow(known);
    expect(() => plan(ask(space, { proprio, proprioNames: names.map(() => names[0]!) }))).toThrow(
      UnsupportedObservation,
    );
    expect(() => plan(ask(space, { proprio, proprioNames: names.slice(1) }))).toThrow(UnsupportedObservation);
  });

  it("returns finite rows or a refusal for any numbers up to a million, and refuses non-finite ones", () => {
    const layout = CONTROLLERS[space].declaration.proprioLayouts.at(-1)!;
    const number = fc.oneof(fc.double({ min: -1e6, max: 1e6, noNaN: true }), fc.constantFrom(0, -0, 1e6, 1e-300));
    fc.assert(
      fc.property(fc.array(number, { minLength: layout.length, maxLength: layout.length }), (proprio) => {
        const out = answerOrRefusal(ask(space, { proprio, horizon: 8 }));
        if (out !== undefined) expect(out.steps.every(Number.isFinite)).toBe(true);
      }),
      { numRuns: runs(12) },
    );
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY, 1e7]) {
      const proprio = proprioFor(space, seeded(1)).fill(bad, 0, 1);
      expect(() => plan(ask(space, { proprio }))).toThrow(/finite/);
    }
  });
});

describe("the reference act", () => {
  it("has a controller for each action space of the specification", () => {
    expect([...SPACES].sort()).toEqual(Object.keys(DIMS).sort());
    for (const space of SPACES) {
      const { declaration } = CONTROLLERS[space];
      expect(declaration.space).toBe(space);
      expect(declaration.fields).toHaveLength(declaration.dim);
      expect(new Set(declaration.fields).size).toBe(declaration.dim);
      const lengths = declaration.proprioLayouts.map((layout) => layout.length);
      expect(new Set(lengths).size).toBe(lengths.length);
    }
  });

  it("refuses an unknown action space, a horizon out of range and a goal image", () => {
    const goal = overheadView(1, [], [0, 0], 1);
    expect(() => plan({ ...ask("joint_pos_7"), actionSpace: "joint_pos_8" })).toThrow(UnsupportedObservation);
    expect(() => plan({ ...ask("joint_pos_7"), actionSpace: "toString" })).toThrow(UnsupportedObservation);
    for (const horizon of [0, 257, 1.5, Number.NaN]) {
      expect(() => plan(ask("joint_pos_7", { horizon }))).toThrow(UnsupportedObservation);
    }
    expect(() => plan(ask("joint_pos_7", { goal }))).toThrow(/goal image/);
  });

  it("refuses a cosine and a sine that are of no angle", () => {
    expect(() => plan(ask("continuous_nd", { proprio: [0, 0, 0] }))).toThrow(UnsupportedObservation);
  });
});

function answerOrRefusal(input: ActInput): ReturnType<typeof plan> | undefined {
  try {
    return plan(input);
  } catch (error) {
    if (error instanceof UnsupportedObservation) return undefined;
    throw error;
  }
}

describe("continuous_nd", () => {
  it("uses the step time of its task: 20 ms for a pole on a cart, 50 ms for a pendulum", () => {
    const pole = plan(ask("continuous_nd", { proprio: [0, 0, 0.05, 0] }));
    expect(pole.dtMs).toBe(20);
    expect(pole.steps[0]).toBeGreaterThan(0);
    expect(plan(ask("continuous_nd")).dtMs).toBe(50);
  });

  it("of reference/push-t has two numbers inside the square", () => {
    const input = ask("continuous_nd", { proprio: [100, 100, 250, 250, 1] });
    const { dim, steps } = plan(input, "reference/push-t");
    expect(dim).toBe(2);
    expect(steps.every((value) => value >= 0 && value <= 512)).toBe(true);
    expect(() => plan(input)).toThrow(UnsupportedObservation);
    const far = plan(ask("continuous_nd", { proprio: [1e6, -1e6, 1e6, 0, 1e6] }), "reference/push-t");
    expect(far.steps.every((value) => value >= 0 && value <= 512)).toBe(true);
  });

  it("of reference/push-t solves most episodes of its scenario", async () => {
    const arena = await Arena.of(pushT.variants[0]);
    try {
      const policy: EpisodePolicy = async ({ proprio }) => {
        const { steps } = plan(ask("continuous_nd", { proprio, horizon: 16 }), "reference/push-t");
        return { rows: Array.from({ length: 16 }, (_, i) => steps.subarray(2 * i, 2 * i + 2)), latencyMs: 0 };
      };
      let solved = 0;
      for (let seed = 0; seed < 5; seed++) {
        const { success } = await arena.run(seed, policy, { mode: "sync", replanSteps: undefined });
        solved += success ? 1 : 0;
      }
      expect(solved).toBeGreaterThanOrEqual(4);
    } finally {
      arena.close();
    }
  }, 60_000);
});
