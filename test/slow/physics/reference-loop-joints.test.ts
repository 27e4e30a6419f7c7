import { describe, expect, it } from "vitest";
import { type Body, HUMANOID_23, HUMANOID_29, SINGLE_ARM, TWO_ARMS } from "../../../src/reference/act/bodies.ts";
import { distance, handAt, type Vec3 } from "../../../src/reference/act/chain.ts";
import { decodeLatent } from "../../../src/reference/act/latent.ts";
import { plan } from "../../../src/reference/act/plan.ts";
import type { ActionSpace } from "../../../src/reference/act/types.ts";
import { ServoJoints } from "../../support/plants.ts";
import { between, seeded } from "../../support/scenes.ts";
import { EPISODES, expectOnlyTheModelToSucceed, model, type Random, rowsOf } from "./reference-closed-loop.ts";

describe("joint controllers", () => {
  const BODIES = {
    joint_pos_7: SINGLE_ARM,
    joint_pos_14: TWO_ARMS,
    joint_pos_23: HUMANOID_23,
    joint_pos_29: HUMANOID_29,
  };

  /** A posture away from the limits, with small angles for what is held. */
  function posture(body: Body, random: Random): Float64Array {
    const angles = Float64Array.from(body.names, () => between(random, -0.1, 0.1));
    for (const { chain, rows } of body.limbs) {
      chain.joints.forEach(({ lower, upper, held }, i) => {
        if (!held) angles[rows[i]!] = lower + (upper - lower) * between(random, 0.2, 0.8);
      });
    }
    return angles;
  }

  const handsOf = (body: Body, angles: Float64Array): Vec3[] =>
    body.limbs.map(({ chain, rows }) =>
      handAt(
        chain,
        rows.map((row) => angles[row]!),
      ),
    );

  /** A start and goals that some posture with the same held joints reaches. */
  function errand(body: Body, random: Random): { joints: ServoJoints; goals: Vec3[] } {
    const start = posture(body, random);
    const end = posture(body, random);
    for (const { chain, rows } of body.limbs) {
      chain.joints.forEach(({ held }, i) => {
        if (held) end[rows[i]!] = start[rows[i]!]!;
      });
    }
    return { joints: new ServoJoints(start), goals: handsOf(body, end) };
  }

  const areThere = (body: Body, angles: Float64Array, goals: Vec3[]): boolean =>
    handsOf(body, angles).every((hand, i) => distance(hand, goals[i]!) < 0.015);

  it.each(Object.entries(BODIES))("%s bring every hand within 15 mm of its goal", (space, body) => {
    expectOnlyTheModelToSucceed((actor, random) => {
      const { joints, goals } = errand(body, random);
      for (let chunk = 0; chunk < 25; chunk++) {
        const proprio = [...joints.angles, ...goals.flat()];
        for (const row of rowsOf(actor(space as ActionSpace, { proprio }, random))) joints.track(row);
      }
      return areThere(body, joints.angles, goals);
    });
  });

  it("bring the hand within 15 mm of its goal by decoded latent_action", () => {
    expectOnlyTheModelToSucceed((actor, random) => {
      const { joints, goals } = errand(SINGLE_ARM, random);
      for (let chunk = 0; chunk < 6; chunk++) {
        const proprio = [...joints.angles, ...goals.flat()];
        for (const code of rowsOf(actor("latent_action", { proprio }, random)).slice(0, 4)) {
          const rows = decodeLatent(code);
          for (let at = 0; at < rows.length; at += 7) joints.track(rows.subarray(at, at + 7));
        }
      }
      return areThere(SINGLE_ARM, joints.angles, goals);
    });
  });

  it.each([["joint_pos_23", HUMANOID_23] as const, ["joint_pos_29", HUMANOID_29] as const])(
    "%s keep the legs and the waist exactly as measured",
    (space, body) => {
      const { joints, goals } = errand(body, seeded(3));
      const held = body.names.flatMap((name, i) => (/^(left|right)_(hip|knee|ankle)|^waist/.test(name) ? [i] : []));
      const { steps, dim } = model(space, { proprio: [...joints.angles, ...goals.flat()] }, seeded(1));
      expect(held).toHaveLength(space === "joint_pos_23" ? 13 : 15);
      for (let row = 0; row < 16; row++) {
        for (const i of held) expect(steps[row * dim + i]).toBe(joints.angles[i]);
      }
    },
  );

  it("keep both grippers as measured in joint_pos_14", () => {
    const { joints, goals } = errand(TWO_ARMS, seeded(4));
    joints.angles[6] = 0.3;
    joints.angles[13] = 0.9;
    const { steps } = model("joint_pos_14", { proprio: [...joints.angles, ...goals.flat()] }, seeded(1));
    for (let row = 0; row < 16; row++) {
      expect(steps[row * 14 + 6]).toBe(0.3);
      expect(steps[row * 14 + 13]).toBe(0.9);
    }
  });

  it("turn no joint by more than 0.05 rad per step, also if a joint is measured outside its limits", () => {
    for (let seed = 1; seed <= EPISODES; seed++) {
      const { joints, goals } = errand(SINGLE_ARM, seeded(seed));
      joints.angles[seed % 7] = 3.6;
      const { steps } = model("joint_pos_7", { proprio: [...joints.angles, ...goals.flat()] }, seeded(1));
      const path = [...joints.angles, ...steps];
      for (let i = 7; i < path.length; i++) expect(Math.abs(path[i]! - path[i - 7]!)).toBeLessThanOrEqual(0.05 + 1e-9);
    }
  });

  it("move as near as they can to a goal out of reach, and report the final distance", () => {
    const proprio = [...posture(SINGLE_ARM, seeded(1)), 3, 0, 0.5];
    const { steps, note } = plan({ actionSpace: "joint_pos_7", horizon: 256, proprio, frames: [] });
    const hand = handAt(SINGLE_ARM.limbs[0]!.chain, steps.slice(-7));
    expect(distance(hand, [3, 0, 0.5])).toBeLessThan(2.15);
    expect(note).toContain(`${Math.round(distance(hand, [3, 0, 0.5]) * 1000)} mm`);
  });

  it("place the hand of the 7-joint arm as its link lengths require", () => {
    const { chain } = SINGLE_ARM.limbs[0]!;
    const quarter = Math.PI / 2;
    expectNear(handAt(chain, [0, 0, 0, 0, 0, 0, 0]), [0, 0, 1.3]);
    expectNear(handAt(chain, [0, quarter, 0, 0, 0, 0, 0]), [0.96, 0, 0.34]);
    expectNear(handAt(chain, [quarter, quarter, 0, 0, 0, 0, 0]), [0, 0.96, 0.34]);
    expectNear(handAt(chain, [0, quarter, 0, -quarter, 0, 0, 0]), [0.4, 0, 0.9]);
  });

  function expectNear(place: Vec3, expected: Vec3): void {
    expect(distance(place, expected)).toBeLessThan(1e-9);
  }
});
