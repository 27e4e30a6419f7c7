/** reference/push-t: moves a T to its mark by the push that a model of pushing predicts to help most per step. */
import { readProprio } from "./layout.ts";
import type { ActionDeclaration, Controller } from "./types.ts";

/** Pixels of gym-pusht's square: the mark, and the T's outline in its own frame, counterclockwise. */
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
/** The T's center of gravity in its own frame, and the radius around it that the pusher never touches the T beyond. */
const CENTER: Point = [0, 45];
const CLEAR = 98;
const RADIUS = 15;
/** Resistance of the T to sliding and to turning, relative to each other (px²): the damping of its joints. */
const TURNING = 3000;
const FRICTION = 1;
/** Distance to the T before a push, and the longest push (px). */
const GAP = 6;
const LONGEST = 110;
/** Distance of the pusher's target per control step: on its way, and while pushing (px). */
const FAST = 45;
const SLOW = 11;
/** Step away from the T, where its outline is in the way (px). */
const RETREAT = 25;
/** Control steps that a push takes besides its way. */
const OVERHEAD = 4;

type Point = readonly [number, number];

/** The T's pose: its center of gravity and its angle. */
interface Pose {
  readonly x: number;
  readonly y: number;
  readonly angle: number;
}

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

const plus = (a: Point, b: Point, by = 1): Point => [a[0] + by * b[0], a[1] + by * b[1]];
const length = ([x, y]: Point): number => Math.hypot(x, y);
const unit = (a: Point): Point => {
  const size = Math.max(length(a), 1e-9);
  return [a[0] / size, a[1] / size];
};
const dot = (a: Point, b: Point): number => a[0] * b[0] + a[1] * b[1];

function outlineAt({ x, y, angle }: Pose): Point[] {
  const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
  return CORNERS.map(([cx, cy]): Point => {
    const [px, py] = [cx - CENTER[0], cy - CENTER[1]];
    return [x + px * cos - py * sin, y + px * sin + py * cos];
  });
}

const turned = ([x, y]: Point, angle: number): Point => [
  x * Math.cos(angle) - y * Math.sin(angle),
  x * Math.sin(angle) + y * Math.cos(angle),
];
const GOAL_CENTER = plus([GOAL.x, GOAL.y], turned(CENTER, GOAL.angle));

/** The mean of the corners around the center of gravity, and of their squared distances from it. */
const MEAN: Point = [0, CORNERS.reduce((sum, [, y]) => sum + y - CENTER[1], 0) / CORNERS.length];
const SPREAD = CORNERS.reduce((sum, [x, y]) => sum + x * x + (y - CENTER[1]) ** 2, 0) / CORNERS.length;

/** The mean squared distance of the T's corners from those of its mark. */
function errorOf({ x, y, angle }: Pose): number {
  const [dx, dy] = [x - GOAL_CENTER[0], y - GOAL_CENTER[1]];
  const turnedX = MEAN[1] * (Math.sin(GOAL.angle) - Math.sin(angle));
  const turnedY = MEAN[1] * (Math.cos(angle) - Math.cos(GOAL.angle));
  const rotated = 2 * (1 - Math.cos(angle - GOAL.angle)) * SPREAD;
  return dx * dx + dy * dy + rotated + 2 * (dx * turnedX + dy * turnedY);
}

/** The T's sides around its center of gravity: a corner, the way to the next one, and the inverse of its squared length. */
const SIDES = CORNERS.map(([ax, ay], i) => {
  const [bx, by] = CORNERS[(i + 1) % CORNERS.length]!;
  const [dx, dy] = [bx - ax, by - ay];
  return { x: ax - CENTER[0], y: ay - CENTER[1], dx, dy, inverse: 1 / (dx * dx + dy * dy) };
});

/** The point of the T's outline that is closest to another point, relative to the center of gravity. */
function closest({ x, y, angle }: Pose, to: Point): { at: Point; distance: number } {
  const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
  const [wx, wy] = [to[0] - x, to[1] - y];
  const [lx, ly] = [wx * cos + wy * sin, wy * cos - wx * sin];
  let [bestX, bestY, best] = [0, 0, Infinity];
  for (const side of SIDES) {
    const share = ((lx - side.x) * side.dx + (ly - side.y) * side.dy) * side.inverse;
    const within = Math.max(0, Math.min(1, share));
    const [px, py] = [side.x + within * side.dx, side.y + within * side.dy];
    const squared = (lx - px) * (lx - px) + (ly - py) * (ly - py);
    if (squared >= best) continue;
    best = squared;
    bestX = px;
    bestY = py;
  }
  return { at: [bestX * cos - bestY * sin, bestX * sin + bestY * cos], distance: Math.sqrt(best) };
}

/** The T after the pusher moved to `pusher` by `moved`: it slides without inertia, and sticks to the pusher within the friction cone. */
function pushed(pose: Pose, pusher: Point, moved: Point): Pose {
  const { at, distance } = closest(pose, pusher);
  const depth = RADIUS - distance;
  if (depth <= 0 || distance < 1e-6) return pose;
  const n: Point = [(pose.x + at[0] - pusher[0]) / distance, (pose.y + at[1] - pusher[1]) / distance];
  const t: Point = [-n[1], n[0]];
  const lever: Point = [-at[1], at[0]];
  const [ln, lt] = [dot(lever, n), dot(lever, t)];
  const [cnn, cnt, ctt] = [1 + (ln * ln) / TURNING, (ln * lt) / TURNING, 1 + (lt * lt) / TURNING];
  const slip = dot(moved, t);
  const scale = cnn * ctt - cnt * cnt;
  let fn = (ctt * depth - cnt * slip) / scale;
  let ft = (cnn * slip - cnt * depth) / scale;
  if (Math.abs(ft) > FRICTION * fn) {
    const side = Math.sign(ft) * FRICTION;
    fn = depth / (cnn + side * cnt);
    ft = side * fn;
  }
  if (!(fn > 0)) return pose;
  return {
    x: pose.x + fn * n[0] + ft * t[0],
    y: pose.y + fn * n[1] + ft * t[1],
    angle: pose.angle + (fn * ln + ft * lt) / TURNING,
  };
}

/** A push: a straight line of the pusher, and the predicted pose and error at its best end. */
interface Push {
  readonly from: Point;
  readonly along: Point;
  readonly reach: number;
  readonly pose: Pose;
  readonly error: number;
}

/** How finely pushes are searched: simulated steps (px), places along each side, and slants from its normal. */
interface Search {
  readonly slice: number;
  readonly shares: readonly number[];
  readonly slants: readonly number[];
}
const FINE: Search = { slice: 3, shares: [0.1, 0.3, 0.5, 0.7, 0.9], slants: [0, 0.4, -0.4] };
const COARSE: Search = { slice: 6, shares: [0.1, 0.37, 0.63, 0.9], slants: [0] };

/** Simulates a push, and ends it where the error is least. */
function best(pose: Pose, from: Point, along: Point, slice: number): Push {
  let result: Push = { from, along, reach: 0, pose, error: Infinity };
  let now = pose;
  for (let reach = slice; reach <= LONGEST; reach += slice) {
    const pusher = plus(from, along, reach);
    if (!isInside(pusher)) break;
    const next = pushed(now, pusher, [along[0] * slice, along[1] * slice]);
    if (next === now) {
      if (now !== pose) break;
      continue;
    }
    now = next;
    const error = errorOf(now);
    if (error < result.error) result = { from, along, reach, pose: now, error };
    else if (error > 4 * result.error + 400) break;
  }
  return result;
}

/** Pushes from all sides of the T. */
function pushes(pose: Pose, { slice, shares, slants }: Search): Push[] {
  const outline = outlineAt(pose);
  const found: Push[] = [];
  for (const [i, a] of outline.entries()) {
    const side = plus(outline[(i + 1) % outline.length]!, a, -1);
    const inward = unit([-side[1], side[0]]);
    for (const share of shares) {
      const from = plus(plus(a, side, share), inward, -RADIUS - GAP);
      if (!isInside(from) || closest(pose, from).distance < RADIUS + GAP - 0.1) continue;
      for (const slant of slants) {
        const push = best(pose, from, unit(plus(inward, unit(side), slant)), slice);
        if (push.error < Infinity) found.push(push);
      }
    }
  }
  return found;
}

/** The push that reduces the error most per control step, its way and the best push after it included. */
function choose(pose: Pose, agent: Point): Push | undefined {
  const before = errorOf(pose);
  const near = closest(pose, agent).distance < RADIUS + 2 * GAP;
  const here = near
    ? Array.from({ length: 24 }, (_, i) => best(pose, agent, turned([1, 0], (i * Math.PI) / 12), FINE.slice)).filter(
        ({ error }) => error < Infinity,
      )
    : [];
  const stepsOf = ({ from, reach }: Push, at: Point, around: Pose): number =>
    wayLength(at, from, around) / FAST + reach / SLOW + OVERHEAD;
  const gain = (push: Push, start: number, steps: number): number => Math.log((start + 1) / (push.error + 1)) / steps;
  const all = [...here, ...pushes(pose, FINE)]
    .map((push) => ({ push, steps: stepsOf(push, agent, pose) }))
    .map(({ push, steps }) => ({ push, steps, value: gain(push, before, steps) }))
    .sort((a, b) => b.value - a.value);
  const wide = [...all.slice(0, 4), ...all.toSorted((a, b) => a.push.error - b.push.error).slice(0, 2)];
  let chosen: { push: Push; value: number } | undefined;
  for (const { push, steps, value } of wide) {
    const end = plus(push.from, push.along, push.reach);
    let second = value;
    for (const next of pushes(push.pose, COARSE))
      second = Math.max(second, gain(next, before, steps + stepsOf(next, end, push.pose)));
    if (!chosen || second > chosen.value) chosen = { push, value: second };
  }
  return chosen?.push;
}

/** The length of the pusher's way around the T (px). */
function wayLength(from: Point, to: Point, pose: Pose): number {
  const direct = length(plus(to, from, -1));
  if (isClear(from, to, pose)) return direct;
  const middle: Point = [pose.x, pose.y];
  const [a, b] = [plus(from, middle, -1), plus(to, middle, -1)];
  const between = Math.abs(Math.atan2(a[0] * b[1] - a[1] * b[0], dot(a, b)));
  return Math.abs(CLEAR - length(a)) + CLEAR * between + Math.abs(CLEAR - length(b));
}

/** Whether the pusher's straight way does not touch the T. */
function isClear(from: Point, to: Point, pose: Pose): boolean {
  const way = plus(to, from, -1);
  const count = Math.ceil(length(way) / 6);
  for (let i = 1; i <= count; i++) if (closest(pose, plus(from, way, i / count)).distance < RADIUS + 2) return false;
  return true;
}

/** The next target on the way to the start of a push: straight if that is clear, otherwise around the T. */
function towards(agent: Point, to: Point, pose: Pose): Point {
  const way = plus(to, agent, -1);
  if (isClear(agent, to, pose)) return plus(agent, way, Math.min(1, FAST / Math.max(length(way), 1e-9)));
  const middle: Point = [pose.x, pose.y];
  const out = plus(agent, middle, -1);
  if (length(out) < CLEAR - 3) {
    const { at } = closest(pose, agent);
    return plus(agent, unit(plus(out, at, -1)), RETREAT);
  }
  const goal = plus(to, middle, -1);
  const between = Math.atan2(out[0] * goal[1] - out[1] * goal[0], dot(out, goal));
  const turn = Math.max(-0.4, Math.min(0.4, between));
  return plus(middle, turned(unit(out), turn), CLEAR);
}

const isInside = ([x, y]: Point): boolean => x >= 20 && x <= 491 && y >= 20 && y <= 491;
const inside = ([x, y]: Point): Point => [Math.max(20, Math.min(491, x)), Math.max(20, Math.min(491, y))];

/** continuous_nd with two numbers, the pusher's place in gym-pusht. */
export const pushT: Controller = {
  declaration,
  begin(input) {
    const [agentX, agentY, blockX, blockY, angle] = readProprio(input, declaration).values;
    const [x, y] = plus(inside([blockX!, blockY!]), turned(CENTER, angle!));
    const pose = { x, y, angle: angle! };
    let agent = inside([agentX!, agentY!]);
    const push = choose(pose, agent);
    let gone: number | undefined;
    return {
      next() {
        if (!push) return agent;
        if (gone === undefined && length(plus(agent, push.from, -1)) < 3) gone = 0;
        if (gone === undefined) agent = inside(towards(agent, push.from, pose));
        else {
          gone = Math.min(push.reach, gone + SLOW);
          agent = inside(plus(push.from, push.along, gone));
        }
        return agent;
      },
      note: () => "Chooses the push that its model of a sliding T predicts to help most, and one push after it.",
    };
  },
};
