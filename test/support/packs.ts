/** A scenario pack that holds a weight up, as a folder to be spoilt. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";

/** `scenario.json` of a pack that is right. */
export const PACK = {
  id: "hold-up",
  version: "1.0.0",
  title: "Hold up",
  description: "Hold a weight up.",
  mjcf: "hold.xml",
  action_space: "base_twist_2d",
  action_dim: 2,
  substeps: 5,
  max_steps: 40,
  action: { kind: "control", scale: 20 },
  obs: [["qpos"], ["qvel"], ["site", "tip"], ["command"]],
  reset: { qpos_noise: 0.01 },
  command: [[0, 1]],
  fail: { body_below: { body: "weight", z: -0.2 } },
  cameras: [{ name: "front", width: 32, height: 32 }],
};

/** Its model; the quotes around the timestep are single ones. */
export const MJCF = `<mujoco><size memory="1M"/><option timestep='0.01'/><worldbody><camera name="front" pos="0 -2 0" xyaxes="1 0 0 0 0 1"/>
  <body name="weight"><joint name="lift" type="slide" axis="0 0 1"/><geom type="sphere" size=".1" mass="1"/><site name="tip"/></body>
  <body name="other" pos="1 0 0"><joint name="slide" type="slide" axis="1 0 0" damping="1"/><geom type="sphere" size=".1" mass="1"/></body>
  </worldbody><actuator><motor joint="lift"/><motor joint="slide"/></actuator></mujoco>`;

/** A pack with a drawn target, a hand that follows a mocap body, and a gripper. */
export const REACH_PACK = {
  ...PACK,
  id: "hand-reach",
  title: "Hand reach",
  mjcf: "hand.xml",
  action_space: "continuous_nd",
  action_dim: 4,
  action: {
    kind: "mocap_delta",
    scale: 0.02,
    mocap: "lead",
    body: "hand",
    gripper: { actuators: ["left", "right"], scale: 0.5 },
  },
  obs: [["site", "tip"], ["target"], ["sensor", "tip_velocity", 0.5]],
  reset: {},
  command: [],
  target: {
    around: "tip",
    box: [
      [-0.1, 0.1],
      [-0.1, 0.1],
      [0, 0.1],
    ],
    marker: "goal",
  },
  reward: { far: { site: "tip", place: "target", within_m: 0.02, weight: -1 } },
  success: { site_near: { site: "tip", place: "target", within_m: 0.02 } },
  fail: {},
};

/** Its model. */
export const HAND_MJCF = `<mujoco><size memory="1M"/><option timestep="0.01" gravity="0 0 0"/><worldbody><camera name="front" pos="0 -2 0" xyaxes="1 0 0 0 0 1"/>
  <body name="hand" pos="0.3 0 0.5"><freejoint/><geom type="sphere" size=".05" mass="1"/><site name="tip" pos=".05 0 0"/>
    <body name="left_finger"><joint name="left" type="slide" axis="0 1 0" damping="1"/><geom type="sphere" size=".01"/></body>
    <body name="right_finger"><joint name="right" type="slide" axis="0 -1 0" damping="1"/><geom type="sphere" size=".01"/></body></body>
  <body name="lead" mocap="true" pos="0.3 0 0.5"/>
  <body name="goal" mocap="true"><geom type="sphere" size=".02" contype="0" conaffinity="0"/></body></worldbody>
  <contact><exclude body1="hand" body2="left_finger"/><exclude body1="hand" body2="right_finger"/><exclude body1="left_finger" body2="right_finger"/></contact>
  <equality><weld body1="lead" body2="hand" relpose="0 0 0 1 0 0 0"/></equality>
  <actuator><motor name="left" joint="left"/><motor name="right" joint="right"/></actuator>
  <sensor><framelinvel name="tip_velocity" objtype="site" objname="tip"/></sensor></mujoco>`;

/** A pack of a robot with four legs that follows a commanded velocity. */
export const CRAWL_PACK = {
  ...PACK,
  id: "crawl",
  title: "Crawl",
  mjcf: "crawler.xml",
  action_space: "continuous_nd",
  action_dim: 4,
  action: { kind: "joint_target", scale: 0.5 },
  obs: [
    ["sensor", "velocity"],
    ["sensor", "turn"],
    ["gravity", "imu"],
    ["qpos_rel_from", 7],
    ["qvel_from", 6],
    ["last_action"],
    ["command"],
  ],
  reset: { keyframe: "glide" },
  command: [
    [-1, 1],
    [-0.5, 0.5],
    [-1, 1],
  ],
  command_every: 5,
  reward: {
    track: [
      { sensor: "velocity", values: [0, 1], command: [0, 1], weight: 1, sigma: 0.25 },
      { sensor: "turn", values: [2], command: [2], weight: 0.5, sigma: 0.25 },
    ],
  },
  fail: { tilted: { site: "imu", below: 0 } },
};

const leg = (name: string, x: number, y: number): string =>
  `<body name="${name}" pos="${x} ${y} 0"><joint name="${name}" type="hinge" axis="0 1 0" damping="1"/><geom type="capsule" size=".02" fromto="0 0 0 0 0 -.2"/></body>`;

/** Its model, without gravity: at the keyframe "glide" it faces along y and glides forward, at "tumble" it rolls over. */
export const CRAWLER_MJCF = `<mujoco><size memory="1M"/><option timestep="0.01" gravity="0 0 0"/><worldbody><camera name="front" pos="0 -2 0" xyaxes="1 0 0 0 0 1"/>
  <body name="trunk" pos="0 0 1"><freejoint/><geom type="box" size=".2 .1 .05" mass="5"/><site name="imu"/>
    ${leg("fr", 0.2, -0.12)}${leg("fl", 0.2, 0.12)}${leg("rr", -0.2, -0.12)}${leg("rl", -0.2, 0.12)}</body></worldbody>
  <actuator><position joint="fr" kp="10"/><position joint="fl" kp="10"/><position joint="rr" kp="10"/><position joint="rl" kp="10"/></actuator>
  <sensor><velocimeter name="velocity" site="imu"/><gyro name="turn" site="imu"/><accelerometer name="push" site="imu"/></sensor>
  <keyframe><key name="glide" qpos="0 0 1 1 0 0 1 .3 -.3 .3 -.3" qvel="0 .4 0 0 0 0 0 0 0 0" ctrl=".3 -.3 .3 -.3"/>
    <key name="tumble" qpos="0 0 1 1 0 0 0 0 0 0 0" qvel="0 0 0 6 0 0 0 0 0 0"/></keyframe></mujoco>`;

/** Files of a pack by name; what is no text is written as JSON. */
export type PackFiles = Readonly<Record<string, object | string>>;

/** A folder of packs, by their names; it is gone after the test, or when `remove` is called. */
export function packFolder(packs: Readonly<Record<string, PackFiles>>, remove = onTestFinished): string {
  const folder = mkdtempSync(join(tmpdir(), "packs-"));
  remove(() => rmSync(folder, { recursive: true, force: true }));
  for (const [name, files] of Object.entries(packs)) {
    mkdirSync(join(folder, name));
    for (const [file, content] of Object.entries(files)) {
      writeFileSync(join(folder, name, file), typeof content === "string" ? content : JSON.stringify(content));
    }
  }
  return folder;
}
