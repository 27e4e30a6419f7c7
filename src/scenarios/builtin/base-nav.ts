/** base-nav: a round base to a goal pose between round pillars, by twists or by waypoints. */
import { between, type Random } from "../chance.ts";
import type { World } from "../engine.ts";
import { type Camera, clamp, lengthOf, type Scenario, type ScenarioVariant, type Task } from "../scenario.ts";

const RADIUS = 0.2;
const PILLARS = [0.15, 0.2, 0.25, 0.3, 0.35] as const;
/** The minimum distance between two pillars, and around start and goal (m). */
const ROOM = 0.8;
const CLEAR = 0.5;
const NEAR_M = 0.1;
const NEAR_RAD = 0.2;
const DT_MS = 100;
const SUBSTEPS = 20;
const MAX_STEPS = 300;
const SPEED = 1;
const TURN = 3;
/** The maximum speeds of the waypoint tracker, m/s and rad/s. */
const TRACK_SPEED = 0.8;
const TRACK_TURN = 2;

const MJCF = `
<mujoco model="base">
  <size memory="2M"/>
  <compiler angle="radian"/>
  <option timestep="${DT_MS / SUBSTEPS / 1000}" integrator="implicitfast"/>
  <visual><headlight ambient=".5 .5 .5"/></visual>
  <worldbody>
    <camera name="overhead" pos="0 0 9" xyaxes="0 -1 0 1 0 0" fovy="50"/>
    <geom name="floor" type="plane" size="5 5 .1" rgba=".82 .84 .86 1" contype="0" conaffinity="0"/>
    <body name="goal" mocap="true" pos="2 0 .01">
      <geom type="cylinder" size=".15 .01" rgba=".1 .75 .2 1" contype="0" conaffinity="0"/>
    </body>
    ${PILLARS.map(
      (radius, i) => `
    <body name="pillar_${i + 1}" mocap="true"><geom type="cylinder" size="${radius} .4" rgba=".6 .3 .25 1" contype="2" conaffinity="1"/></body>`,
    ).join("")}
    <body name="base" pos="0 0 .15">
      <joint name="x" type="slide" axis="1 0 0" armature="1"/>
      <joint name="y" type="slide" axis="0 1 0" armature="1"/>
      <joint name="yaw" type="hinge" axis="0 0 1" armature=".2"/>
      <geom type="cylinder" size="${RADIUS} .12" mass="20" rgba=".2 .35 .75 1" contype="1" conaffinity="2"/>
      <geom type="box" size=".06 .03 .03" pos=".15 0 .14" mass=".1" rgba=".95 .8 .2 1" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
  <actuator>
    <velocity name="x" joint="x" kv="300"/>
    <velocity name="y" joint="y" kv="300"/>
    <velocity name="yaw" joint="yaw" kv="15"/>
  </actuator>
</mujoco>`;

interface Spot {
  readonly x: number;
  readonly y: number;
  readonly yaw: number;
}

/** The angle in [-pi, pi). */
const wrapped = (angle: number): number => angle - Math.floor((angle + Math.PI) / (2 * Math.PI)) * 2 * Math.PI;

/** The base's heading: cosine and sine from the engine's own arithmetic. */
function heading(world: World): { cos: number; sin: number } {
  const turn = world.bodyTurn("base");
  return { cos: turn[0]!, sin: turn[3]! };
}

/** Drives the base at a speed of its own frame (m/s) and a turn rate (rad/s) for one control step. */
function driveTwist(world: World, speed: number, turn: number): void {
  for (let i = 0; i < SUBSTEPS; i++) {
    const { cos, sin } = heading(world);
    world.ctrl[0] = speed * cos;
    world.ctrl[1] = speed * sin;
    world.ctrl[2] = turn;
    world.step();
  }
}

/** Tracks a world pose for one control step. */
function driveTo(world: World, x: number, y: number, yaw: number): void {
  for (let i = 0; i < SUBSTEPS; i++) {
    const [dx, dy] = [x - world.qpos[0]!, y - world.qpos[1]!];
    const far = lengthOf(dx, dy);
    const speed = Math.min(TRACK_SPEED, 8 * far);
    world.ctrl[0] = far === 0 ? 0 : (speed * dx) / far;
    world.ctrl[1] = far === 0 ? 0 : (speed * dy) / far;
    world.ctrl[2] = clamp(8 * wrapped(yaw - world.qpos[2]!), -TRACK_TURN, TRACK_TURN);
    world.step();
  }
}

/** The common part of both variants. */
function playing(world: World, act: (action: Float64Array) => void): Task & { pose(): Spot } {
  let goal: Spot = { x: 0, y: 0, yaw: 0 };
  let pillars: [number, number, number][] = [];
  let path = 0;
  let straight = 0;
  let first = 0;
  let ended: "success" | "collision" | "out_of_bounds" | undefined;
  const pose = (): Spot => ({ x: world.qpos[0]!, y: world.qpos[1]!, yaw: wrapped(world.qpos[2]!) });
  const gap = (): number => lengthOf(goal.x - world.qpos[0]!, goal.y - world.qpos[1]!);
  return {
    pose,
    reset(random) {
      const start = spot(random, -3, -2);
      goal = spot(random, 2, 3);
      pillars = scatter(random, start, goal);
      world.qpos.set([start.x, start.y, start.yaw]);
      world.put("goal", [goal.x, goal.y, 0.01]);
      for (const [i, [x, y]] of pillars.entries()) world.put(`pillar_${i + 1}`, [x, y, 0.4]);
      world.forward();
      path = 0;
      straight = gap();
      first = straight;
      ended = undefined;
    },
    observe() {
      const { x, y, yaw } = pose();
      return [x, y, yaw, goal.x, goal.y, goal.yaw, ...pillars.flat()];
    },
    step(action) {
      const before = pose();
      act(action);
      const after = pose();
      path += lengthOf(after.x - before.x, after.y - before.y);
      const reward = -gap();
      if (world.touching("base")) ended = "collision";
      else if (Math.abs(after.x) > 5 || Math.abs(after.y) > 5) ended = "out_of_bounds";
      else if (gap() < NEAR_M && Math.abs(wrapped(goal.yaw - after.yaw)) < NEAR_RAD) ended = "success";
      return ended === undefined ? { reward } : { reward, ending: ended };
    },
    measure() {
      const success = ended === "success";
      return {
        success,
        progress: success ? 1 : 1 - Math.min(1, gap() / first),
        metrics: { spl: success ? straight / Math.max(path, straight) : 0, path_m: path, goal_distance_m: gap() },
      };
    },
  };
}

const spot = (random: Random, low: number, high: number): Spot => ({
  x: between(random, low, high),
  y: between(random, -2, 2),
  yaw: between(random, -3, 3),
});

/** Places the pillars with space between them and around start and goal. */
function scatter(random: Random, start: Spot, goal: Spot): [number, number, number][] {
  const placed: [number, number, number][] = [];
  for (const radius of PILLARS) {
    for (let tries = 0; ; tries++) {
      const [x, y] = [between(random, -1.5, 1.5), between(random, -2, 2)];
      // The distances shrink in crowded worlds, so that the search ends.
      const room = ROOM / (1 + Math.floor(tries / 50));
      const apart = placed.every(([px, py, pr]) => lengthOf(px - x, py - y) > pr + radius + room);
      const clear = [start, goal].every((place) => lengthOf(place.x - x, place.y - y) > radius + CLEAR);
      if (!apart || !clear) continue;
      placed.push([x, y, radius]);
      break;
    }
  }
  return placed;
}

const SHOWN: readonly Camera[] = [{ name: "overhead", width: 128, height: 128 }];

const COMMON = {
  proprioNames: [
    ...["x", "y", "yaw", "goal_x", "goal_y", "goal_yaw"],
    ...PILLARS.flatMap((_, i) => ["x", "y", "r"].map((part) => `obstacle_${i + 1}_${part}`)),
  ],
  dtMs: DT_MS,
  maxSteps: MAX_STEPS,
  cameras: SHOWN,
  mjcf: MJCF,
  instruction: "drive to the green goal without touching a pillar",
};

const twists: ScenarioVariant = {
  ...COMMON,
  actionSpace: "base_twist_2d",
  fields: ["v_x", "omega_z"],
  units: "m/s and rad/s, in the base frame",
  bounds: { low: [-SPEED, -TURN], high: [SPEED, TURN] },
  play: (world) => playing(world, ([speed, turn]) => driveTwist(world, speed!, turn!)),
};

const waypoints: ScenarioVariant = {
  ...COMMON,
  actionSpace: "waypoint_se2",
  fields: ["x", "y", "yaw"],
  units: "m, m, rad, in the frame of the base when it was asked; carried out in the world's frame",
  bounds: { low: [-5, -5, -2 * Math.PI], high: [5, 5, 2 * Math.PI] },
  play(world) {
    const task = playing(world, ([x, y, yaw]) => driveTo(world, x!, y!, yaw!));
    let origin = { x: 0, y: 0, yaw: 0, cos: 1, sin: 0 };
    return {
      ...task,
      observe() {
        origin = { ...task.pose(), ...heading(world) };
        return task.observe();
      },
      grounded: ([x, y, yaw]) =>
        Float64Array.of(
          origin.x + x! * origin.cos - y! * origin.sin,
          origin.y + x! * origin.sin + y! * origin.cos,
          wrapped(origin.yaw + yaw!),
        ),
    };
  },
};

/** A base among pillars. */
export const baseNav: Scenario = {
  id: "base-nav",
  version: "1.0.0",
  title: "Base navigation",
  description: "Drive a round base to a goal pose between five pillars.",
  topic: "navigation",
  success: `The base stands within ${NEAR_M} m and ${NEAR_RAD} rad of its goal pose and has touched nothing.`,
  source: "",
  variants: [twists, waypoints],
};
