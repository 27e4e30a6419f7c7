/** reference/potential-nav: a round base to a goal pose, around round obstacles. */
import { readProprio } from "./layout.ts";
import type { ActInput, ActionDeclaration, Controller } from "./types.ts";

const DT_MS = 100;
/** Top speeds, m/s and rad/s. */
const MAX_SPEED = 0.6;
const MAX_TURN = 1.5;
/** The base's radius (m), and the clearance (m) at which an obstacle starts to repel. */
const BODY_RADIUS = 0.2;
const INFLUENCE = 0.5;
/** Within this distance (m) the base is at its goal and only turns. */
const ARRIVED = 0.04;
/** Over this distance (m) to the goal the base slows down. */
const SLOW_DOWN = 0.4;
const MAX_OBSTACLES = 8;

interface Pose {
  x: number;
  y: number;
  yaw: number;
}

interface Obstacle {
  readonly x: number;
  readonly y: number;
  readonly radius: number;
}

const POSE_NAMES = ["x", "y", "yaw", "goal_x", "goal_y", "goal_yaw"];

const LAYOUTS = Array.from({ length: MAX_OBSTACLES + 1 }, (_, count) => [
  ...POSE_NAMES,
  ...Array.from({ length: count }, (_, i) => ["x", "y", "r"].map((part) => `obstacle_${i + 1}_${part}`)).flat(),
]);

/** The world in the proprio: one fixed frame, meters and radians. */
function readWorld(input: ActInput, declaration: ActionDeclaration): { pose: Pose; goal: Pose; obstacles: Obstacle[] } {
  const [x, y, yaw, goalX, goalY, goalYaw, ...rest] = readProprio(input, declaration).values;
  const obstacles = Array.from({ length: rest.length / 3 }, (_, i) => ({
    x: rest[3 * i]!,
    y: rest[3 * i + 1]!,
    radius: rest[3 * i + 2]!,
  }));
  return { pose: { x: x!, y: y!, yaw: yaw! }, goal: { x: goalX!, y: goalY!, yaw: goalYaw! }, obstacles };
}

/** Returns forward speed and turn rate at a pose: follow the field to the position, then turn to the heading. */
function twistFor(pose: Pose, goal: Pose, obstacles: readonly Obstacle[]): [number, number] {
  const far = Math.hypot(goal.x - pose.x, goal.y - pose.y);
  if (far < ARRIVED) return [0, limit(2 * wrap(goal.yaw - pose.yaw), MAX_TURN)];
  const [fx, fy] = fieldAt(pose, goal, far, obstacles);
  const off = wrap(Math.atan2(fy, fx) - pose.yaw);
  const speed = MAX_SPEED * Math.min(1, far / SLOW_DOWN) * Math.max(0, Math.cos(off)) ** 3;
  return [speed, limit(2.5 * off, MAX_TURN)];
}

/**
 * The driving direction: the attraction of the goal, without its component into a near obstacle, plus a repulsion from the obstacle and along
 * its side. The tangential part carries the base past an obstacle directly before the goal. Source: Khatib 1986 (potential field), De Medio and
 * Oriolo 1991 (vortex field).
 */
function fieldAt(pose: Pose, goal: Pose, far: number, obstacles: readonly Obstacle[]): [number, number] {
  let x = (goal.x - pose.x) / far;
  let y = (goal.y - pose.y) / far;
  for (const obstacle of obstacles) {
    const dx = pose.x - obstacle.x;
    const dy = pose.y - obstacle.y;
    const apart = Math.max(Math.hypot(dx, dy), 1e-6);
    const clearance = Math.max(apart - obstacle.radius - BODY_RADIUS, 0);
    const near = Math.max(0, 1 - clearance / INFLUENCE) * Math.min(1, far / SLOW_DOWN);
    const [nx, ny] = [dx / apart, dy / apart];
    const inward = Math.min(0, x * nx + y * ny);
    const side = nx * (goal.y - pose.y) - ny * (goal.x - pose.x) >= 0 ? 1 : -1;
    x += near * (-inward * nx - inward * side * -ny + near ** 2 * nx);
    y += near * (-inward * ny - inward * side * nx + near ** 2 * ny);
  }
  return [x, y];
}

/** Moves a pose along a twist for one step, on the exact arc. */
function drive(pose: Pose, speed: number, turn: number): void {
  const seconds = DT_MS / 1000;
  const middle = pose.yaw + (turn * seconds) / 2;
  const half = (turn * seconds) / 2;
  const chord = speed * seconds * (Math.abs(half) < 1e-9 ? 1 : Math.sin(half) / half);
  pose.x += chord * Math.cos(middle);
  pose.y += chord * Math.sin(middle);
  pose.yaw = wrap(pose.yaw + turn * seconds);
}

const limit = (value: number, most: number): number => Math.max(-most, Math.min(most, value));
const wrap = (angle: number): number => Math.atan2(Math.sin(angle), Math.cos(angle));

const noteAt = (pose: Pose, goal: Pose): string =>
  `Potential field; the chunk ends ${Math.hypot(goal.x - pose.x, goal.y - pose.y).toFixed(2)} m from the goal.`;

const twistDeclaration: ActionDeclaration = {
  space: "base_twist_2d",
  dim: 2,
  dtMs: DT_MS,
  fields: ["v_x", "omega_z"],
  units: "m/s and rad/s",
  frame: "base frame, x forward, counter-clockwise positive",
  normalized: false,
  gripper: null,
  proprioLayouts: LAYOUTS,
  visualLayouts: [],
  camera: null,
};

/** base_twist_2d: the field's twists along its path. */
export const baseTwist: Controller = {
  declaration: twistDeclaration,
  begin(input) {
    const { pose, goal, obstacles } = readWorld(input, twistDeclaration);
    return {
      next() {
        const twist = twistFor(pose, goal, obstacles);
        drive(pose, ...twist);
        return twist;
      },
      note: () => noteAt(pose, goal),
    };
  },
};

const waypointDeclaration: ActionDeclaration = {
  ...twistDeclaration,
  space: "waypoint_se2",
  dim: 3,
  fields: ["x", "y", "yaw"],
  units: "m, m, rad",
  frame: "base frame at request time, x forward, y left, counter-clockwise positive",
};

/** waypoint_se2: the poses along the same path, relative to the base's pose at the request. */
export const waypoints: Controller = {
  declaration: waypointDeclaration,
  begin(input) {
    const { pose, goal, obstacles } = readWorld(input, waypointDeclaration);
    const start = { ...pose };
    return {
      next() {
        drive(pose, ...twistFor(pose, goal, obstacles));
        return seenFrom(start, pose);
      },
      note: () => noteAt(pose, goal),
    };
  },
};

function seenFrom(start: Pose, pose: Pose): [number, number, number] {
  const cos = Math.cos(start.yaw);
  const sin = Math.sin(start.yaw);
  const dx = pose.x - start.x;
  const dy = pose.y - start.y;
  return [dx * cos + dy * sin, dy * cos - dx * sin, wrap(pose.yaw - start.yaw)];
}
