/** arm-reach: one hand to a goal, by joint targets or by shifts of the hand. */
import { between } from "../chance.ts";
import { type Camera, clamp, distance, type Scenario, type ScenarioVariant } from "../scenario.ts";
import { ARM_7, ARM_7_HAND } from "./bodies.ts";
import { follow, HAND_SHIFTS, type Pose, turned } from "./follow.ts";
import { APART_M, handAt, type Reacher, reaching, reachScenario } from "./reach.ts";
import { chainBodies, Servos } from "./servo.ts";

const SHOWN: readonly Camera[] = [
  { name: "front", width: 160, height: 120 },
  { name: "overhead", width: 128, height: 128 },
];

const arm: Reacher = {
  actionSpace: "joint_pos_7",
  hinges: ARM_7,
  hands: [{ name: "hand", goal: "goal_" }],
  grippers: [],
  bodies: chainBodies(ARM_7, handAt("hand", ARM_7_HAND), { rgba: ".85 .85 .88 1", radius: 0.045 }),
  cameras: `
    <camera name="front" pos="2 0 .8" xyaxes="0 1 0 -.1 0 1" fovy="55"/>
    <camera name="overhead" pos=".5 0 1.9" xyaxes="0 -1 0 1 0 0" fovy="40"/>`,
  shown: SHOWN,
  maxSteps: 150,
  instruction: "bring the hand to the green goal",
};

/** The joints at rest: bent at the elbow, with the hand pointing down over (0.5, 0). */
const REST = [0, 0.4, 0, 1.5, 0, 1.2, 0];
/** The area of start positions and goals (m): in front of the arm, within its reach. */
const REACHABLE = [
  [0.35, 0.65],
  [-0.25, 0.25],
  [0.15, 0.4],
] as const;
const SUBSTEPS = 10;

const joints = reaching(arm);

/** The same arm, driven by shifts of its hand: position, rotation, gripper. The gripper has no effect here. */
const shifts: ScenarioVariant = {
  ...joints,
  ...HAND_SHIFTS,
  proprioNames: ["ee_x", "ee_y", "ee_z", "goal_x", "goal_y", "goal_z"],
  play(world) {
    const servos = new Servos(world, ARM_7);
    const pose: Pose = { place: [0, 0, 0], turn: new Float64Array(9) };
    let goal: [number, number, number] = [0, 0, 0];
    let first = 0;
    let held = 0;
    let reached = false;
    const gap = (): number => distance(world.site("hand"), goal);
    return {
      reset(random) {
        const some = (): [number, number, number] => {
          const [x, y, z] = REACHABLE.map(([low, high]) => between(random, low, high));
          return [x!, y!, z!];
        };
        servos.place(REST);
        world.forward();
        pose.turn = world.siteTurn("hand");
        pose.place = some();
        goal = some();
        for (let i = 0; i < 20; i++) {
          servos.place(follow(world, "hand", ARM_7, REST, pose));
          world.forward();
        }
        world.put("hand_goal", goal);
        world.forward();
        pose.place = world.site("hand");
        first = gap();
        held = 0;
        reached = false;
      },
      isSolved: () => first < APART_M,
      observe: () => [...world.site("hand"), ...goal],
      step(action) {
        // Shifts add to the commanded position, which stays near the measured one, so that a blocked hand accumulates no distance.
        const hand = world.site("hand");
        pose.place = [0, 1, 2].map((axis) =>
          clamp(pose.place[axis]! + action[axis]!, hand[axis]! - 0.08, hand[axis]! + 0.08),
        ) as Pose["place"];
        pose.turn = turned(pose.turn, [action[3]!, action[4]!, action[5]!]);
        servos.aim(follow(world, "hand", ARM_7, REST, pose));
        world.step(SUBSTEPS);
        held = gap() < 0.015 ? held + 1 : 0;
        if (held < 5) return { reward: -gap() };
        reached = true;
        return { reward: -gap(), ending: "success" };
      },
      measure: () => ({
        success: reached,
        progress: 1 - Math.min(1, gap() / Math.max(first, 0.015)),
        metrics: { hand_distance_m: gap() },
      }),
    };
  },
};

/** One arm, one goal. */
export const armReach: Scenario = reachScenario(
  {
    id: "arm-reach",
    title: "Arm reach",
    description: "Bring the hand of a seven-joint arm to a goal.",
    topic: "manipulation",
  },
  shifts,
  joints,
);
