/** Moves a hand by shifts: damped least squares over the engine's Jacobian, as in an arm's controller. */
import type { World } from "../engine.ts";
import { clamp } from "../scenario.ts";
import type { Hinge } from "./servo.ts";

/** Damping (rad/m): smoother near straight arms, and slower. */
const DAMPING = 0.05;
/** The share of the distance to the resting posture, in directions that do not move the hand. */
const POSTURE = 0.1;
const ITERATIONS = 4;
/** The maximum change of a joint per iteration (rad). */
const JOINT_STEP = 0.15;

/** The maximum shift and rotation of a hand per action, m and rad. */
const MOST_SHIFT = 0.05;
const MOST_TURN = 0.1;

/** The fields of an action that shifts a hand. */
export const HAND_SHIFTS = {
  actionSpace: "ee_delta_6d_grip",
  fields: ["dx", "dy", "dz", "drx", "dry", "drz", "gripper"],
  units: "m, rad per step in the base frame; gripper 0 closed to 1 open",
  bounds: {
    low: [-MOST_SHIFT, -MOST_SHIFT, -MOST_SHIFT, -MOST_TURN, -MOST_TURN, -MOST_TURN, 0],
    high: [MOST_SHIFT, MOST_SHIFT, MOST_SHIFT, MOST_TURN, MOST_TURN, MOST_TURN, 1],
  },
} as const;

/** A target pose of a hand: position (m) and rotation (nine numbers, row by row). */
export interface Pose {
  place: [number, number, number];
  turn: Float64Array;
}

/** Returns joint targets that bring a site to a pose, searched from the current joints. The world's positions do not change. */
export function follow(
  world: World,
  site: string,
  hinges: readonly Hinge[],
  rest: readonly number[],
  goal: Pose,
): number[] {
  const at = hinges.map(({ name }) => world.qposAt(name));
  const dofs = hinges.map(({ name }) => world.qvelAt(name));
  const before = world.qpos.slice();
  for (let i = 0; i < ITERATIONS; i++) {
    const turns = stepTowards(world, site, dofs, goal, at, rest);
    for (const [joint, turn] of turns.entries()) {
      const { lower, upper } = hinges[joint]!;
      const angle = world.qpos[at[joint]!]! + clamp(turn, -JOINT_STEP, JOINT_STEP);
      world.qpos[at[joint]!] = clamp(angle, lower, upper);
    }
    world.forward();
  }
  const targets = at.map((place) => world.qpos[place]!);
  world.qpos.set(before);
  world.forward();
  return targets;
}

function stepTowards(
  world: World,
  site: string,
  dofs: readonly number[],
  goal: Pose,
  at: readonly number[],
  rest: readonly number[],
): number[] {
  const jacobian = jacobianOf(world, site, dofs);
  const error = errorOf(world, site, goal);
  const damped = gram(jacobian);
  for (let row = 0; row < 6; row++) damped[row]![row]! += DAMPING * DAMPING;
  const task = transposed(jacobian, solve(damped, error));
  const lean = at.map((place, i) => POSTURE * (rest[i]! - world.qpos[place]!));
  const moved = jacobian.map((row) => row.reduce((sum, value, i) => sum + value * lean[i]!, 0));
  const taken = transposed(jacobian, solve(damped, moved));
  return task.map((turn, i) => turn + lean[i]! - taken[i]!);
}

/** Six rows: the derivatives of the site's position and rotation by each joint. */
function jacobianOf(world: World, site: string, dofs: readonly number[]): number[][] {
  const { mj, model, data } = world;
  const size = 3 * model.nv;
  const place = new mj.DoubleBuffer(size);
  const turn = new mj.DoubleBuffer(size);
  try {
    mj.mj_jacSite(model, data, place, turn, world.id("site", site));
    const [places, turns] = [place.GetView() as Float64Array, turn.GetView() as Float64Array];
    const rows = (values: Float64Array): number[][] =>
      [0, 1, 2].map((row) => dofs.map((dof) => values[row * model.nv + dof]!));
    return [...rows(places), ...rows(turns)];
  } finally {
    place.delete();
    turn.delete();
  }
}

/** The site's distance from the goal: meters, and radians about each axis (from the antisymmetric part, for small rotations). */
function errorOf(world: World, site: string, goal: Pose): number[] {
  const place = world.site(site);
  const turn = world.siteTurn(site);
  const column = (matrix: Float64Array, index: number): number[] => [
    matrix[index]!,
    matrix[3 + index]!,
    matrix[6 + index]!,
  ];
  const twist = [0, 0, 0];
  for (let axis = 0; axis < 3; axis++) {
    const [a, b] = [column(turn, axis), column(goal.turn, axis)];
    twist[0]! += 0.5 * (a[1]! * b[2]! - a[2]! * b[1]!);
    twist[1]! += 0.5 * (a[2]! * b[0]! - a[0]! * b[2]!);
    twist[2]! += 0.5 * (a[0]! * b[1]! - a[1]! * b[0]!);
  }
  return [...goal.place.map((part, i) => part - place[i]!), ...twist];
}

const gram = (rows: readonly (readonly number[])[]): number[][] =>
  rows.map((a) => rows.map((b) => a.reduce((sum, value, i) => sum + value * b[i]!, 0)));

const transposed = (rows: readonly (readonly number[])[], values: readonly number[]): number[] =>
  rows[0]!.map((_, joint) => rows.reduce((sum, row, i) => sum + row[joint]! * values[i]!, 0));

/** Solves a symmetric positive system by Cholesky. */
function solve(matrix: readonly (readonly number[])[], values: readonly number[]): number[] {
  const size = values.length;
  const lower = matrix.map(() => new Array<number>(size).fill(0));
  for (let i = 0; i < size; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = matrix[i]![j]!;
      for (let k = 0; k < j; k++) sum -= lower[i]![k]! * lower[j]![k]!;
      lower[i]![j] = i === j ? Math.sqrt(sum) : sum / lower[j]![j]!;
    }
  }
  const forward = new Array<number>(size).fill(0);
  for (let i = 0; i < size; i++) {
    let sum = values[i]!;
    for (let k = 0; k < i; k++) sum -= lower[i]![k]! * forward[k]!;
    forward[i] = sum / lower[i]![i]!;
  }
  const back = new Array<number>(size).fill(0);
  for (let i = size - 1; i >= 0; i--) {
    let sum = forward[i]!;
    for (let k = i + 1; k < size; k++) sum -= lower[k]![i]! * back[k]!;
    back[i] = sum / lower[i]![i]!;
  }
  return back;
}

/** Rotates `turn` by small angles about the world's axes (rad): first order, then orthonormalized. */
export function turned(turn: Float64Array, [x, y, z]: readonly [number, number, number]): Float64Array {
  const columns = [0, 1, 2].map((index) => {
    const [a, b, c] = [turn[index]!, turn[3 + index]!, turn[6 + index]!];
    return [a + y * c - z * b, b + z * a - x * c, c + x * b - y * a];
  });
  const unit = (v: readonly number[]): number[] => {
    const size = Math.sqrt(v[0]! * v[0]! + v[1]! * v[1]! + v[2]! * v[2]!);
    return v.map((part) => part / size);
  };
  const first = unit(columns[0]!);
  const along = columns[1]!.reduce((sum, part, i) => sum + part * first[i]!, 0);
  const second = unit(columns[1]!.map((part, i) => part - along * first[i]!));
  const third = [
    first[1]! * second[2]! - first[2]! * second[1]!,
    first[2]! * second[0]! - first[0]! * second[2]!,
    first[0]! * second[1]! - first[1]! * second[0]!,
  ];
  const out = new Float64Array(9);
  for (const [index, column] of [first, second, third].entries()) {
    for (let row = 0; row < 3; row++) out[3 * row + index] = column[row]!;
  }
  return out;
}
