/** bimanual-reach and humanoid-reach: two hands, each to its own goal. */
import type { Camera, Scenario } from "../scenario.ts";
import { ARM_6_HAND, humanoid, LEFT_ARM_6, RIGHT_ARM_6 } from "./bodies.ts";
import { handAt, type Reacher, reaching, reachScenario } from "./reach.ts";
import { chainBodies } from "./servo.ts";

const BLUE = { rgba: ".3 .4 .65 1", radius: 0.03 };
const GRAY = { rgba: ".45 .47 .5 1", radius: 0.035 };
const FRONT: Camera = { name: "front", width: 160, height: 120 };

const TWO_HANDS = [
  { name: "left_hand", goal: "left_goal_" },
  { name: "right_hand", goal: "right_goal_" },
] as const;

const twoArms: Reacher = {
  actionSpace: "joint_pos_14",
  hinges: [...LEFT_ARM_6, ...RIGHT_ARM_6],
  hands: TWO_HANDS,
  grippers: [
    { at: 6, name: "left_gripper" },
    { at: 13, name: "right_gripper" },
  ],
  bodies:
    chainBodies(LEFT_ARM_6, handAt("left_hand", ARM_6_HAND), BLUE) +
    chainBodies(RIGHT_ARM_6, handAt("right_hand", ARM_6_HAND), BLUE),
  cameras: `<camera name="front" pos="1.7 0 .9" xyaxes="0 1 0 -.4 0 1" fovy="55"/>`,
  shown: [FRONT],
  maxSteps: 150,
  instruction: "bring each hand to its green goal",
};

/** Two arms side by side. */
export const bimanualReach: Scenario = reachScenario(
  {
    id: "bimanual-reach",
    title: "Bimanual reach",
    description: "Bring both hands of a pair of six-joint arms to their goals.",
    topic: "manipulation",
  },
  reaching(twoArms),
);

function upperBody(actionSpace: string, body: ReturnType<typeof humanoid>, palm: readonly number[]): Reacher {
  return {
    actionSpace,
    hinges: body.hinges,
    hands: TWO_HANDS,
    grippers: [],
    bodies: body.bodies((side) => handAt(`${side}_hand`, palm), GRAY),
    cameras: `<camera name="front" pos="2.1 0 .3" xyaxes="0 1 0 0 0 1" fovy="55"/>`,
    shown: [FRONT],
    maxSteps: 150,
    instruction: "bring each hand to its green goal, standing still",
  };
}

/** A humanoid with a fixed pelvis: both hands to their goals. */
export const humanoidReach: Scenario = reachScenario(
  {
    id: "humanoid-reach",
    title: "Humanoid reach",
    description: "Bring both hands of a humanoid to their goals while its pelvis is held.",
    topic: "humanoid",
  },
  reaching(upperBody("joint_pos_23", humanoid(["z"], []), [0.1, 0, 0])),
  reaching(upperBody("joint_pos_29", humanoid(["z", "x", "y"], ["y", "z"]), [0.1, 0, 0])),
);
