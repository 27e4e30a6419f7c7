/** reference/ik-reach and reference/upper-body: joint targets that bring hands to their goals. */
import { type Body, HUMANOID_23, HUMANOID_29, type Limb, SINGLE_ARM, TWO_ARMS } from "./bodies.ts";
import { distance, handAt, solveReach, type Vec3 } from "./chain.ts";
import { readProprio } from "./layout.ts";
import type { ActionDeclaration, ActionSpace, Controller, Motion } from "./types.ts";

const DT_MS = 50;
/** The fastest joint moves by this much per step (1 rad/s); all arrive together. */
const JOINT_STEP = 0.05;

/** Joint targets for a body whose proprio is its joint angles followed by each hand's goal (m). */
function reachController(space: ActionSpace, body: Body, frame: string): Controller {
  const declaration: ActionDeclaration = {
    space,
    dim: body.names.length,
    dtMs: DT_MS,
    fields: body.names,
    units: body.grippers.length === 0 ? "rad" : "rad, gripper 0 to 1",
    frame,
    normalized: false,
    gripper: body.grippers.length === 0 ? null : { indices: body.grippers, closed: 0, open: 1 },
    proprioLayouts: [[...body.names, ...body.limbs.flatMap((limb) => limb.goal)]],
    visualLayouts: [],
    camera: null,
  };
  return { declaration, begin: (input) => reach(body, readProprio(input, declaration).values) };
}

/** Moves a body from `state` (its joints, then its hands' goals); joints outside the hands' chains keep their angles. */
export function reach(body: Body, state: Float64Array): Motion {
  const joints = state.slice(0, body.names.length);
  const targets = joints.slice();
  const goals = body.limbs.map((_, i) => pointAt(state, joints.length + 3 * i));
  body.limbs.forEach((limb, i) => {
    const solution = solveReach(limb.chain, anglesOf(limb, joints), goals[i]!);
    limb.rows.forEach((row, joint) => {
      targets[row] = solution[joint]!;
    });
  });
  return {
    next() {
      const farthest = joints.reduce((far, angle, i) => Math.max(far, Math.abs(targets[i]! - angle)), 0);
      const share = Math.min(1, JOINT_STEP / Math.max(farthest, 1e-9));
      joints.forEach((angle, i) => {
        joints[i] = angle + share * (targets[i]! - angle);
      });
      return joints;
    },
    note() {
      const gaps = body.limbs.map((limb, i) => distance(handAt(limb.chain, anglesOf(limb, joints)), goals[i]!));
      return `Damped least squares on the declared body; the chunk ends ${gaps.map(inMillimeters).join(" and ")} from the goal.`;
    },
  };
}

const anglesOf = (limb: Limb, joints: Float64Array): Float64Array =>
  Float64Array.from(limb.rows, (row) => joints[row]!);

const pointAt = (state: Float64Array, at: number): Vec3 => [state[at]!, state[at + 1]!, state[at + 2]!];

const inMillimeters = (meters: number): string => `${Math.round(meters * 1000)} mm`;

/** joint_pos_7: one hand to `goal_x, goal_y, goal_z`. */
export const jointReach = reachController(
  "joint_pos_7",
  SINGLE_ARM,
  "absolute joint angles; goals in the arm's base frame",
);

/** joint_pos_14: each hand to its own goal; grippers keep their opening. */
export const bimanualReach = reachController(
  "joint_pos_14",
  TWO_ARMS,
  "absolute joint angles; goals in the frame midway between the bases",
);

/** joint_pos_23: each hand to its own goal with the pelvis fixed; legs and waist keep their angles. */
export const humanoid23Reach = reachController(
  "joint_pos_23",
  HUMANOID_23,
  "absolute joint angles; goals in the pelvis frame",
);

/** joint_pos_29: the same with seven joints per arm. */
export const humanoid29Reach = reachController(
  "joint_pos_29",
  HUMANOID_29,
  "absolute joint angles; goals in the pelvis frame",
);
