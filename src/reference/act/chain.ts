/** Forward and inverse kinematics of serial arms, in meters and radians, in the frame of the chain's base. */

/** A point or a direction: x forward, y left, z up. */
export type Vec3 = readonly [number, number, number];

/** One hinge: its position in the previous hinge's frame, its axis, its limits and its resting angle. */
export interface Joint {
  readonly offset: Vec3;
  readonly axis: "x" | "y" | "z";
  readonly lower: number;
  readonly upper: number;
  readonly rest: number;
  /** A held joint keeps its measured angle: it carries the hand, but is not used to move it. */
  readonly held?: true;
}

/** Hinges from base to tip, and the hand's position in the last hinge's frame. */
export interface Chain {
  readonly joints: readonly Joint[];
  readonly hand: Vec3;
}

/** Damping (m): larger is smoother near straight arms, and slower. */
const DAMPING = 0.04;
/** The share of the distance to the resting angles per iteration, in directions that do not move the hand. */
const POSTURE = 0.05;
/** The maximum movement of the hand (m) and a joint (rad) per iteration, and the iterations per search. */
const HAND_STEP = 0.05;
const JOINT_STEP = 0.2;
const ITERATIONS = 120;
/** A search ends at this distance from its goal (m). */
const CLOSE = 0.002;
/** Searches after the first: from the resting angles, then from postures spread over the joints' ranges. */
const RESTARTS = 6;

type Matrix = readonly [Vec3, Vec3, Vec3];

const IDENTITY: Matrix = [
  [1, 0, 0],
  [0, 1, 0],
  [0, 0, 1],
];

const add = (a: Vec3, b: Vec3): Vec3 => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
const subtract = (a: Vec3, b: Vec3): Vec3 => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
const dot = (a: Vec3, b: Vec3): number => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const scale = (a: Vec3, by: number): Vec3 => [a[0] * by, a[1] * by, a[2] * by];
const apply = (m: Matrix, v: Vec3): Vec3 => [dot(m[0], v), dot(m[1], v), dot(m[2], v)];
const cross = (a: Vec3, b: Vec3): Vec3 => [
  a[1] * b[2] - a[2] * b[1],
  a[2] * b[0] - a[0] * b[2],
  a[0] * b[1] - a[1] * b[0],
];

/** The distance between two points. */
export const distance = (a: Vec3, b: Vec3): number => Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);

const COLUMN = { x: 0, y: 1, z: 2 } as const;

/** Rotates `m` about its own axis: each of the other two columns gets a share of the other. */
function turn(m: Matrix, axis: "x" | "y" | "z", angle: number): Matrix {
  const c = Math.cos(angle);
  const s = Math.sin(angle);
  const first = (COLUMN[axis] + 1) % 3;
  const second = (COLUMN[axis] + 2) % 3;
  const row = (r: Vec3): Vec3 => {
    const out: [number, number, number] = [...r];
    out[first] = c * r[first]! + s * r[second]!;
    out[second] = c * r[second]! - s * r[first]!;
    return out;
  };
  return [row(m[0]), row(m[1]), row(m[2])];
}

/** Returns the hand's position, and each hinge's position and axis, at the given angles. */
function pose(chain: Chain, angles: ArrayLike<number>): { hand: Vec3; places: Vec3[]; axes: Vec3[] } {
  let rotation = IDENTITY;
  let place: Vec3 = [0, 0, 0];
  const places: Vec3[] = [];
  const axes: Vec3[] = [];
  chain.joints.forEach((joint, i) => {
    place = add(place, apply(rotation, joint.offset));
    const column = COLUMN[joint.axis];
    places.push(place);
    axes.push([rotation[0][column]!, rotation[1][column]!, rotation[2][column]!]);
    rotation = turn(rotation, joint.axis, angles[i]!);
  });
  return { hand: add(place, apply(rotation, chain.hand)), places, axes };
}

/** Returns the hand's position at the given angles (one per joint, radians). */
export const handAt = (chain: Chain, angles: ArrayLike<number>): Vec3 => pose(chain, angles).hand;

/**
 * Returns joint angles within limits that bring the hand to `goal`. The search starts from `angles`, so that the nearest posture wins, then from
 * other postures. If no search succeeds, returns the nearest angles. Held joints keep their angle.
 */
export function solveReach(chain: Chain, angles: Float64Array, goal: Vec3): Float64Array {
  let best = angles;
  let least = Infinity;
  for (let start = 0; start <= RESTARTS && least > CLOSE; start++) {
    const found = descend(chain, startAt(chain, angles, start), goal);
    const gap = distance(handAt(chain, found), goal);
    if (gap < least) {
      best = found;
      least = gap;
    }
  }
  return best;
}

/** The start posture of a search: 0 the given one, 1 the resting one, then golden-ratio steps over the middle of each range. */
function startAt(chain: Chain, angles: Float64Array, start: number): Float64Array {
  return angles.map((angle, i) => {
    const { lower, upper, rest, held } = chain.joints[i]!;
    if (held) return angle;
    if (start === 0) return Math.max(lower, Math.min(upper, angle));
    return start === 1 ? rest : lower + (upper - lower) * (0.2 + 0.6 * ((start * 0.618 + i * 0.377) % 1));
  });
}

function descend(chain: Chain, start: Float64Array, goal: Vec3): Float64Array {
  let angles = start;
  for (let i = 0; i < ITERATIONS && distance(handAt(chain, angles), goal) > CLOSE / 2; i++) {
    angles = stepTowards(chain, angles, goal);
  }
  return angles;
}

/**
 * Moves the joint angles one iteration toward `goal`: damped least squares on the hand's position, with a null-space pull to the resting angles.
 * Source: Nakamura and Hanafusa 1986 (damped inverse), Liégeois 1977 (null-space posture).
 */
function stepTowards(chain: Chain, angles: Float64Array, goal: Vec3): Float64Array {
  const { hand, places, axes } = pose(chain, angles);
  const columns = chain.joints.map(
    (joint, i): Vec3 => (joint.held ? [0, 0, 0] : cross(axes[i]!, subtract(hand, places[i]!))),
  );
  const solve = dampedInverse(columns);
  const pull = solve(scale(subtract(goal, hand), Math.min(1, HAND_STEP / Math.max(distance(goal, hand), 1e-9))));
  const posture = chain.joints.map((joint, i) => (joint.held ? 0 : POSTURE * (joint.rest - angles[i]!)));
  const drift = solve(columns.reduce((sum, column, i) => add(sum, scale(column, posture[i]!)), [0, 0, 0] as Vec3));
  const turns = columns.map((column, i) => dot(column, pull) + posture[i]! - dot(column, drift));
  const slow = Math.min(1, JOINT_STEP / Math.max(...turns.map(Math.abs), 1e-9));
  return angles.map((angle, i) => {
    const { lower, upper, held } = chain.joints[i]!;
    return held ? angle : Math.max(lower, Math.min(upper, angle + slow * turns[i]!));
  });
}

/** Solves (J Jᵀ + damping² I) y = v for y, by Cramer's rule on three by three. */
function dampedInverse(columns: readonly Vec3[]): (v: Vec3) => Vec3 {
  const rows = IDENTITY.map((unit) => {
    const along = columns.map((column) => dot(column, unit));
    const sums = columns.reduce((sum, column, i) => add(sum, scale(column, along[i]!)), [0, 0, 0] as Vec3);
    return add(sums, scale(unit, DAMPING ** 2));
  });
  const [a, b, c] = rows as [Vec3, Vec3, Vec3];
  const determinant = dot(a, cross(b, c));
  return (v) => {
    const minors = [cross(b, c), cross(c, a), cross(a, b)] as const;
    return scale(add(add(scale(minors[0], v[0]), scale(minors[1], v[1])), scale(minors[2], v[2])), 1 / determinant);
  };
}
