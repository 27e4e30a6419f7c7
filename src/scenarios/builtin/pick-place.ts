/** arm-pick-place: a block from the table to its mark, by shifts of the hand or by joint targets. */
import { between } from "../chance.ts";
import type { World } from "../engine.ts";
import { type Camera, clamp, distance, type Scenario, type ScenarioVariant, type Task } from "../scenario.ts";
import { ARM_7 } from "./bodies.ts";
import { follow, HAND_SHIFTS, type Pose, turned } from "./follow.ts";
import { chainBodies, Servos, servos } from "./servo.ts";

/** The maximum distance of the released block from its mark (m). */
const NEAR_M = 0.03;
const DT_MS = 50;
const SUBSTEPS = 25;
const MAX_STEPS = 240;
/** Half the block's side, and the opening of each finger (m). */
const HALF = 0.02;
const OPENING = 0.04;
/** Above this opening of a finger (m) no object of the block's size is held. */
const RELEASED = HALF + 0.004;
/** The middle between the fingertips, on the last link (m). */
const GRASP = 0.16;
const TABLE_Z = 0;

/** The arm without its last roll, which remains zero: six joints and a gripper are the seven numbers of joint_pos_7. */
const DRIVEN = ARM_7.slice(0, 6);
const REST = [0, 0.55, 0, 1.45, 0, 1.14];

const finger = (side: "left" | "right"): string => {
  const sign = side === "left" ? 1 : -1;
  return `
      <body name="${side}_finger" pos="0 0 .11" gravcomp="1">
        <joint name="${side}_finger" type="slide" axis="0 ${sign} 0" range="0 ${OPENING}" armature=".1" damping="20"/>
        <geom type="box" size=".012 .008 .035" pos="0 ${sign * 0.008} .035" mass=".05" rgba=".25 .25 .28 1" contype="1" conaffinity="2" friction="2 .05 .001" condim="4"/>
      </body>`;
};

const HAND = `
      <geom type="box" size=".03 .07 .02" pos="0 0 .09" rgba=".3 .3 .33 1" class="link"/>
      <geom type="capsule" size=".03" fromto="0 0 0 0 0 .08" rgba=".85 .85 .88 1" class="link"/>
      <site name="grasp" pos="0 0 ${GRASP}" size=".005"/>
      <camera name="wrist" pos=".06 0 .07" xyaxes="0 1 0 1 0 0" fovy="75"/>
      ${finger("left")}
      ${finger("right")}`;

const MJCF = `
<mujoco model="pick-place">
  <size memory="8M"/>
  <compiler angle="radian"/>
  <option timestep="${DT_MS / SUBSTEPS / 1000}" integrator="implicitfast" cone="elliptic" impratio="10"/>
  <visual><headlight ambient=".5 .5 .5"/></visual>
  <default>
    <default class="servo"><joint armature="0.1" damping="1"/></default>
    <default class="link"><geom contype="0" conaffinity="0" mass="0.5"/></default>
  </default>
  <worldbody>
    <camera name="front" pos="1.35 0 .75" xyaxes="0 1 0 -.75 0 1" fovy="50"/>
    <geom name="table" type="box" size=".5 .6 .02" pos=".5 0 ${TABLE_Z - 0.02}" rgba=".75 .68 .58 1" contype="4" conaffinity="2" friction="1 .01 .001"/>
    <body name="mark" mocap="true"><geom type="cylinder" size=".03 .001" rgba=".1 .75 .2 1" contype="0" conaffinity="0"/></body>
    ${chainBodies(ARM_7, HAND, { rgba: ".85 .85 .88 1", radius: 0.04 })}
    <body name="block" pos=".5 0 ${HALF}">
      <freejoint name="block"/>
      <geom type="box" size="${HALF} ${HALF} ${HALF}" mass=".05" rgba=".85 .2 .2 1" contype="2" conaffinity="5" friction="2 .05 .001" condim="4"/>
    </body>
  </worldbody>
  <actuator>
    ${servos(ARM_7)}
    <position name="left_finger" joint="left_finger" kp="600" dampratio="1" forcerange="-12 12"/>
    <position name="right_finger" joint="right_finger" kp="600" dampratio="1" forcerange="-12 12"/>
  </actuator>
</mujoco>`;

type PlaceGoal = [number, number, number];

/** The common part of both variants. `aim` sets the servos for one action. */
function playing(
  world: World,
  seen: (blockAndMark: number[], opening: number) => number[],
  begin: () => void,
  aim: (action: Float64Array) => void,
): Task {
  const arm = new Servos(world, ARM_7);
  const block = world.qposAt("block");
  const [left, right] = [world.qposAt("left_finger"), world.qposAt("right_finger")];
  const grip = [world.id("actuator", "left_finger"), world.id("actuator", "right_finger")];
  let mark: PlaceGoal = [0, 0, 0];
  let first = 0;
  let lifted = 0;
  let placed = 0;
  let ended: "success" | "out_of_bounds" | undefined;
  const blockAt = (): PlaceGoal => [world.qpos[block]!, world.qpos[block + 1]!, world.qpos[block + 2]!];
  const openingNow = (): number => (world.qpos[left]! + world.qpos[right]!) / 2;
  const gap = (): number => distance(blockAt(), mark);
  return {
    reset(random) {
      const some = (): PlaceGoal => [between(random, 0.4, 0.6), between(random, -0.22, 0.22), HALF];
      const from = some();
      do mark = some();
      while (distance(from, mark) < 0.12);
      arm.place([...REST, 0]);
      world.qpos[left] = OPENING;
      world.qpos[right] = OPENING;
      for (const at of grip) world.ctrl[at] = OPENING;
      for (const [axis, part] of from.entries()) world.qpos[block + axis] = part;
      // A small turn about the vertical, as a unit quaternion without trigonometry.
      const half = between(random, -0.15, 0.15);
      const size = Math.sqrt(1 + half * half);
      world.qpos.set([1 / size, 0, 0, half / size], block + 3);
      world.put("mark", [mark[0], mark[1], 0.001]);
      world.forward();
      first = gap();
      lifted = 0;
      placed = 0;
      ended = undefined;
      begin();
    },
    observe: () => seen([...blockAt(), ...mark], openingNow() / OPENING),
    step(action) {
      aim(action);
      const opening = clamp(action[6]!, 0, 1) * OPENING;
      // Closed means pressing: slightly smaller than the block, so that the fingers hold it with full force.
      for (const at of grip) world.ctrl[at] = opening;
      world.step(SUBSTEPS);
      lifted = Math.max(lifted, blockAt()[2] - HALF);
      const released = openingNow() > RELEASED;
      placed = gap() < NEAR_M && released ? placed + 1 : 0;
      if (blockAt()[2] < TABLE_Z - 0.05) ended = "out_of_bounds";
      else if (placed >= 3 && lifted > 0.02) ended = "success";
      return ended === undefined ? { reward: -gap() } : { reward: -gap(), ending: ended };
    },
    measure: () => ({
      success: ended === "success",
      progress: ended === "success" ? 1 : 0.2 * Math.min(1, lifted / 0.05) + 0.7 * (1 - Math.min(1, gap() / first)),
      metrics: { block_distance_m: gap(), lifted_m: lifted },
    }),
  };
}

const SHOWN: readonly Camera[] = [
  { name: "front", width: 224, height: 224 },
  { name: "wrist", width: 224, height: 224 },
];

const THINGS = ["block_x", "block_y", "block_z", "mark_x", "mark_y", "mark_z"];

const COMMON = {
  dtMs: DT_MS,
  maxSteps: MAX_STEPS,
  cameras: SHOWN,
  mjcf: MJCF,
  instruction: "put the red block on the green mark",
};

const shifts: ScenarioVariant = {
  ...COMMON,
  ...HAND_SHIFTS,
  proprioNames: ["ee_x", "ee_y", "ee_z", "gripper", ...THINGS],
  play(world) {
    const arm = new Servos(world, ARM_7);
    const pose: Pose = { place: [0, 0, 0], turn: new Float64Array(9) };
    return playing(
      world,
      (things, opening) => [...world.site("grasp"), opening, ...things],
      () => {
        pose.place = world.site("grasp");
        pose.turn = world.siteTurn("grasp");
      },
      (action) => {
        const hand = world.site("grasp");
        pose.place = [0, 1, 2].map((axis) =>
          clamp(pose.place[axis]! + action[axis]!, hand[axis]! - 0.06, hand[axis]! + 0.06),
        ) as Pose["place"];
        pose.turn = turned(pose.turn, [action[3]!, action[4]!, action[5]!]);
        arm.aim(follow(world, "grasp", ARM_7, [...REST, 0], pose));
      },
    );
  },
};

const joints: ScenarioVariant = {
  ...COMMON,
  actionSpace: "joint_pos_7",
  fields: [...DRIVEN.map(({ name }) => name), "gripper"],
  units: "rad, absolute joint targets; gripper 0 closed to 1 open; the last roll is kept at zero",
  bounds: { low: [...DRIVEN.map(({ lower }) => lower), 0], high: [...DRIVEN.map(({ upper }) => upper), 1] },
  proprioNames: [...DRIVEN.map(({ name }) => name), "gripper", ...THINGS],
  play(world) {
    const arm = new Servos(world, ARM_7);
    return playing(
      world,
      (things, opening) => [...arm.angles().slice(0, 6), opening, ...things],
      () => {},
      (action) => arm.aim([...action.subarray(0, 6), 0]),
    );
  },
};

/** A block, a mark, and an arm with a gripper. */
export const armPickPlace: Scenario = {
  id: "arm-pick-place",
  version: "1.0.0",
  title: "Arm pick and place",
  description: "Pick a block up from the table and put it down on its mark.",
  topic: "manipulation",
  success: `The block, once lifted, lies released within ${NEAR_M * 1000} mm of its mark for 3 steps.`,
  source: "",
  variants: [shifts, joints],
};
