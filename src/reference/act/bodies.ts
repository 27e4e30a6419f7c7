/**
 * The bodies for the joint-space controllers. All lengths and limits are plausible values of this project, not of a product: meters, radians,
 * base frame with x forward, y left, z up. Joint orders are the catalog's for each action space.
 */
import type { Chain, Joint, Vec3 } from "./chain.ts";

/** A controllable hand: its goal's names in proprio, its chain, and the row entry that drives each joint of the chain. */
export interface Limb {
  readonly goal: readonly [string, string, string];
  readonly chain: Chain;
  readonly rows: readonly number[];
}

/** A body: a name for each entry of a row, its hands, and the entries that are grippers (0 closed, 1 open). */
export interface Body {
  readonly names: readonly string[];
  readonly limbs: readonly Limb[];
  readonly grippers: readonly number[];
}

const hinge = (offset: Vec3, axis: Joint["axis"], lower: number, upper: number, rest = 0): Joint => ({
  offset,
  axis,
  lower,
  upper,
  rest,
});

const goalOf = (prefix: string): readonly [string, string, string] => [
  `${prefix}goal_x`,
  `${prefix}goal_y`,
  `${prefix}goal_z`,
];

/**
 * A 7-joint arm, roll and pitch alternating, 1.3 m tall when upright at zero; the base is the origin. Joint, offset from the previous one (m),
 * axis, limits (rad), rest (rad): bent at the elbow with the hand pointing down.
 */
const ARM_7: Chain = {
  joints: [
    hinge([0, 0, 0.18], "z", -2.9, 2.9),
    hinge([0, 0, 0.16], "y", -2.0, 2.0, 0.4),
    hinge([0, 0, 0.2], "z", -2.9, 2.9),
    hinge([0, 0, 0.2], "y", -2.2, 2.2, 1.5),
    hinge([0, 0, 0.19], "z", -2.9, 2.9),
    hinge([0, 0, 0.19], "y", -2.0, 2.0, 1.0),
    hinge([0, 0, 0.06], "z", -3.0, 3.0),
  ],
  hand: [0, 0, 0.12],
};

/** One 6-joint arm of a pair with bases 0.6 m apart; at zero the upper arm is upright and the forearm points forward. */
const arm6 = (side: 1 | -1): Chain => ({
  joints: [
    hinge([0, 0.3 * side, 0.1], "z", -3.1, 3.1),
    hinge([0, 0, 0.03], "y", -1.8, 1.2, -0.3),
    hinge([0.05, 0, 0.3], "y", -1.7, 1.6, 0.6),
    hinge([0.2, 0, 0], "x", -3.1, 3.1),
    hinge([0.1, 0, 0], "y", -1.8, 2.1, 0.3),
    hinge([0.07, 0, 0], "x", -3.1, 3.1),
  ],
  hand: [0.12, 0, 0],
});

/** A humanoid's arm on a fixed pelvis (the origin): upper arm down and forearm forward at zero. The waist carries it and is held. */
function humanoidArm(side: 1 | -1, waist: readonly Joint["axis"][], wrist: readonly Joint["axis"][]): Chain {
  const mirrored = (lower: number, upper: number): [number, number] => (side === 1 ? [lower, upper] : [-upper, -lower]);
  return {
    joints: [
      ...waist.map((axis): Joint => ({ ...hinge([0, 0, 0.04], axis, -2.6, 2.6), held: true })),
      hinge([0, 0.12 * side, 0.24], "y", -3.0, 2.6, 0.2),
      hinge([0, 0.04 * side, 0], "x", ...mirrored(-1.5, 2.2), 0.2 * side),
      hinge([0, 0, -0.1], "z", -2.6, 2.6),
      hinge([0, 0, -0.11], "y", -1.0, 2.0, 0.2),
      hinge([0.1, 0, 0], "x", -1.9, 1.9),
      ...wrist.map((axis) => hinge([0.04, 0, 0], axis, -1.6, 1.6)),
    ],
    hand: [0.1, 0, 0],
  };
}

const range = (from: number, count: number): number[] => Array.from({ length: count }, (_, i) => from + i);
const both = (names: readonly string[]): string[] =>
  ["left", "right"].flatMap((side) => names.map((name) => `${side}_${name}`));

/** joint_pos_7: the 7-joint arm. */
export const SINGLE_ARM: Body = {
  names: range(1, 7).map((joint) => `j${joint}`),
  limbs: [{ goal: goalOf(""), chain: ARM_7, rows: range(0, 7) }],
  grippers: [],
};

/** joint_pos_14: two 6-joint arms with a gripper each. */
export const TWO_ARMS: Body = {
  names: both(["waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate", "gripper"]),
  limbs: [
    { goal: goalOf("left_"), chain: arm6(1), rows: range(0, 6) },
    { goal: goalOf("right_"), chain: arm6(-1), rows: range(7, 6) },
  ],
  grippers: [6, 13],
};

const LEG = ["hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll"];
const ARM = ["shoulder_pitch", "shoulder_roll", "shoulder_yaw", "elbow", "wrist_roll"];

/** Legs 0 to 11, the waist from 12, then the left and the right arm: the order of the catalog's 23 and 29. */
function humanoid(waist: readonly Joint["axis"][], wrist: readonly Joint["axis"][]): Body {
  const turnNames = { x: "roll", y: "pitch", z: "yaw" };
  const arm = [...ARM, ...wrist.map((axis) => `wrist_${turnNames[axis]}`)];
  const first = 12 + waist.length;
  const limb = (prefix: string, side: 1 | -1, start: number): Limb => ({
    goal: goalOf(prefix),
    chain: humanoidArm(side, waist, wrist),
    rows: [...range(12, waist.length), ...range(start, arm.length)],
  });
  return {
    names: [...both(LEG), ...waist.map((axis) => `waist_${turnNames[axis]}`), ...both(arm)],
    limbs: [limb("left_", 1, first), limb("right_", -1, first + arm.length)],
    grippers: [],
  };
}

/** joint_pos_23: one waist joint and two 5-joint arms move; legs and waist are held. */
export const HUMANOID_23: Body = humanoid(["z"], []);

/** joint_pos_29: three waist joints and two 7-joint arms; legs and waist are held. */
export const HUMANOID_29: Body = humanoid(["z", "x", "y"], ["y", "z"]);
