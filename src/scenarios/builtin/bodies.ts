/**
 * The bodies of the scenarios with joint targets. Lengths and limits are plausible values of this project, the same that the reference provider
 * plans for: meters, radians, x forward, y left, z up; joint orders are the catalog's for each action space.
 */
import { chainBodies, type Hinge } from "./servo.ts";

type Axis = Hinge["axis"];
type Placement = readonly [number, number, number];

const hinge = (
  name: string,
  offset: Placement,
  axis: Axis,
  lower: number,
  upper: number,
  stiffness: number,
): Hinge => ({
  name,
  offset,
  axis,
  lower,
  upper,
  stiffness,
});

/** Seven hinges, roll and pitch alternating, 1.3 m tall when upright at zero. */
export const ARM_7: readonly Hinge[] = [
  hinge("j1", [0, 0, 0.18], "z", -2.9, 2.9, 400),
  hinge("j2", [0, 0, 0.16], "y", -2.0, 2.0, 400),
  hinge("j3", [0, 0, 0.2], "z", -2.9, 2.9, 300),
  hinge("j4", [0, 0, 0.2], "y", -2.2, 2.2, 300),
  hinge("j5", [0, 0, 0.19], "z", -2.9, 2.9, 150),
  hinge("j6", [0, 0, 0.19], "y", -2.0, 2.0, 150),
  hinge("j7", [0, 0, 0.06], "z", -3.0, 3.0, 80),
];

/** The hand's position on the last link of the 7-joint arm (m). */
export const ARM_7_HAND: Placement = [0, 0, 0.12];

/** One six-joint arm of a pair with bases 0.6 m apart. */
const arm6 = (side: "left" | "right"): Hinge[] => {
  const sign = side === "left" ? 1 : -1;
  return [
    hinge(`${side}_waist`, [0, 0.3 * sign, 0.1], "z", -3.1, 3.1, 300),
    hinge(`${side}_shoulder`, [0, 0, 0.03], "y", -1.8, 1.2, 300),
    hinge(`${side}_elbow`, [0.05, 0, 0.3], "y", -1.7, 1.6, 300),
    hinge(`${side}_forearm_roll`, [0.2, 0, 0], "x", -3.1, 3.1, 150),
    hinge(`${side}_wrist_angle`, [0.1, 0, 0], "y", -1.8, 2.1, 150),
    hinge(`${side}_wrist_rotate`, [0.07, 0, 0], "x", -3.1, 3.1, 80),
  ];
};

/** Both arms of the pair, left first. */
export const LEFT_ARM_6 = arm6("left");
export const RIGHT_ARM_6 = arm6("right");
/** The position of each hand of the pair on its last link (m). */
export const ARM_6_HAND: Placement = [0.12, 0, 0];

const TURN = { x: "roll", y: "pitch", z: "yaw" } as const;

/** A humanoid with a fixed pelvis (the origin). */
export interface Humanoid {
  /** Legs, waist, left arm, right arm. */
  readonly hinges: readonly Hinge[];
  /** Its bodies, as MJCF; `hand` creates the content of each arm's last link. */
  bodies(hand: (side: "left" | "right") => string, look: { rgba: string; radius: number }): string;
}

/** A humanoid with these waist hinges, and these wrist hinges after each arm's roll. */
export function humanoid(waistAxes: readonly Axis[], wristAxes: readonly Axis[]): Humanoid {
  const held = (part: Hinge): Hinge => ({ ...part, held: true });
  const leg = (side: "left" | "right"): Hinge[] => {
    const sign = side === "left" ? 1 : -1;
    const at = (name: string, offset: Placement, axis: Axis): Hinge =>
      held(hinge(`${side}_${name}`, offset, axis, -2.6, 2.6, 300));
    return [
      at("hip_pitch", [0, 0.09 * sign, -0.06], "y"),
      at("hip_roll", [0, 0.02 * sign, 0], "x"),
      at("hip_yaw", [0, 0, -0.12], "z"),
      at("knee", [0, 0, -0.2], "y"),
      at("ankle_pitch", [0, 0, -0.32], "y"),
      at("ankle_roll", [0, 0, -0.02], "x"),
    ];
  };
  const arm = (side: "left" | "right"): Hinge[] => {
    const sign = side === "left" ? 1 : -1;
    const mirrored = (lower: number, upper: number): [number, number] =>
      sign === 1 ? [lower, upper] : [-upper, -lower];
    const [least, most] = mirrored(-1.5, 2.2);
    return [
      hinge(`${side}_shoulder_pitch`, [0, 0.12 * sign, 0.24], "y", -3.0, 2.6, 300),
      hinge(`${side}_shoulder_roll`, [0, 0.04 * sign, 0], "x", least, most, 300),
      hinge(`${side}_shoulder_yaw`, [0, 0, -0.1], "z", -2.6, 2.6, 200),
      hinge(`${side}_elbow`, [0, 0, -0.11], "y", -1.0, 2.0, 200),
      hinge(`${side}_wrist_roll`, [0.1, 0, 0], "x", -1.9, 1.9, 80),
      ...wristAxes.map((axis) => hinge(`${side}_wrist_${TURN[axis]}`, [0.04, 0, 0], axis, -1.6, 1.6, 80)),
    ];
  };
  const waist = waistAxes.map((axis) => held(hinge(`waist_${TURN[axis]}`, [0, 0, 0.04], axis, -2.6, 2.6, 600)));
  const [left, right] = [arm("left"), arm("right")];
  return {
    hinges: [...leg("left"), ...leg("right"), ...waist, ...left, ...right],
    bodies: (hand, look) => `
      <geom type="box" size=".08 .11 .06" rgba="${look.rgba}" contype="0" conaffinity="0"/>
      ${chainBodies(leg("left"), "", look)}
      ${chainBodies(leg("right"), "", look)}
      ${chainBodies(
        waist,
        `<geom type="capsule" size=".1" fromto="0 0 .05 0 0 .25" rgba="${look.rgba}" class="link"/>
         <geom type="sphere" size=".09" pos="0 0 .42" rgba="${look.rgba}" class="link"/>
         ${chainBodies(left, hand("left"), look)}
         ${chainBodies(right, hand("right"), look)}`,
        look,
      )}`,
  };
}
