/** reference/push-t: moves a T to its mark by pushing where the error is largest. */
import { readProprio } from "./layout.ts";
import type { ActionDeclaration, Controller } from "./types.ts";

/** Pixels of gym-pusht's square; the mark, and the T's parts in its own frame (middle and half sides). */
const GOAL = { x: 256, y: 256, angle: Math.PI / 4 };
const CORNERS: readonly Point[] = [
  [-60, 0],
  [60, 0],
  [60, 30],
  [15, 30],
  [15, 120],
  [-15, 120],
  [-15, 30],
  [-60, 30],
];
const RADIUS = 15;
/** The distance at which the pusher lines up before a push, the depth per step, and the clearance around the T on its path (px). */
const BEFORE = 34;
const DEPTH = 14;
const CLEAR = 105;
const STEP = 30;

type Point = readonly [number, number];

const declaration: ActionDeclaration = {
  space: "continuous_nd",
  dim: 2,
  dtMs: 100,
  fields: ["x", "y"],
  units: "px of gym-pusht's 512 px square: where the pusher is to go",
  frame: "the square, absolute",
  normalized: false,
  gripper: null,
  proprioLayouts: [["agent_x", "agent_y", "block_x", "block_y", "block_angle"]],
  // In pixels: in the corner, where numbers are small, every push is cut off at the same edge.
  proprioScale: 512,
  visualLayouts: [],
  camera: null,
};

const turn = ([x, y]: Point, angle: number): Point => [
  x * Math.cos(angle) - y * Math.sin(angle),
  x * Math.sin(angle) + y * Math.cos(angle),
];
const plus = (a: Point, b: Point, by = 1): Point => [a[0] + by * b[0], a[1] + by * b[1]];
const length = ([x, y]: Point): number => Math.hypot(x, y);

/** The most effective place for a push: the middle of a side whose inward push reduces the T's distance from its mark the most. */
function bestPush(block: Point, angle: number): { at: Point; along: Point } {
  const wantedTurn = Math.atan2(Math.sin(GOAL.angle - angle), Math.cos(GOAL.angle - angle));
  const center: Point = plus(block, turn([0, 45], angle));
  const goalCenter: Point = plus([GOAL.x, GOAL.y], turn([0, 45], GOAL.angle));
  const wanted: Point = [goalCenter[0] - center[0], goalCenter[1] - center[1]];
  let best = { at: center, along: [1, 0] as Point, gain: -Infinity };
  for (const [i, from] of CORNERS.entries()) {
    const to = CORNERS[(i + 1) % CORNERS.length]!;
    for (const share of [0.15, 0.5, 0.85]) {
      const local: Point = [from[0] + share * (to[0] - from[0]), from[1] + share * (to[1] - from[1])];
      const side: Point = [to[0] - from[0], to[1] - from[1]];
      const inward = turn([-side[1] / length(side), side[0] / length(side)], angle);
      const at = plus(block, turn(local, angle));
      const arm: Point = [at[0] - center[0], at[1] - center[1]];
      const lever = arm[0] * inward[1] - arm[1] * inward[0];
      // A push moves the middle along its direction and rotates by its lever; both are weighted by the remaining error.
      const gain = (wanted[0] * inward[0] + wanted[1] * inward[1]) / 60 + (lever / 45) * wantedTurn * 1.6;
      if (gain > best.gain) best = { at, along: inward, gain };
    }
  }
  return best;
}

/** continuous_nd with two numbers, the pusher's place in gym-pusht. */
export const pushT: Controller = {
  declaration,
  begin(input) {
    const [agentX, agentY, blockX, blockY, blockAngle] = readProprio(input, declaration).values;
    const block: Point = [blockX!, blockY!];
    let agent: Point = [agentX!, agentY!];
    const { at, along } = bestPush(block, blockAngle!);
    const start = plus(at, along, -BEFORE - RADIUS);
    const middle = plus(block, turn([0, 45], blockAngle!));
    return {
      next() {
        agent = stepFrom(agent, start, at, along, middle);
        return agent;
      },
      note: () => "Pushes the side of the T whose push helps most, by its own outline; it does not plan ahead.",
    };
  },
};

function stepFrom(agent: Point, start: Point, at: Point, along: Point, middle: Point): Point {
  const toStart: Point = [start[0] - agent[0], start[1] - agent[1]];
  const offLine = Math.abs((agent[0] - at[0]) * along[1] - (agent[1] - at[1]) * along[0]);
  const before = (agent[0] - at[0]) * along[0] + (agent[1] - at[1]) * along[1] < 0;
  if (offLine < 10 && before && length(toStart) < BEFORE + RADIUS + 20) return inside(plus(agent, along, DEPTH));
  const share = Math.min(1, STEP / Math.max(length(toStart), 1e-9));
  let next = plus(agent, toStart, share);
  // The path to the start goes around the T.
  const out: Point = [next[0] - middle[0], next[1] - middle[1]];
  const near = length(out);
  if (near < CLEAR && length(toStart) > 30) next = plus(middle, out, CLEAR / Math.max(near, 1e-9));
  return inside(next);
}

const inside = ([x, y]: Point): Point => [Math.max(20, Math.min(492, x)), Math.max(20, Math.min(492, y))];
