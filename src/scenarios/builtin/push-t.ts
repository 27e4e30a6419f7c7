/** push-t: the task of Diffusion Policy (Chi et al. 2023) as gym-pusht publishes it; 100 of its pixels are one meter here. */
import { between } from "../chance.ts";
import type { World } from "../engine.ts";
import { clamp, evenly, type Scenario } from "../scenario.ts";

/** Pixels of the published square, and of one meter. */
const SIDE = 512;
const PIXELS = 100;
const STEPS = 300;
const ENOUGH = 0.95;
const SUBSTEPS = 20;
const DT = 0.1;
/** The pusher's published controller. */
const STIFFNESS = 100;
const DAMPING = 20;
/** The published goal: the middle, turned by 45 degrees. */
const GOAL = { x: 256, y: 256, cos: Math.SQRT1_2, sin: Math.SQRT1_2 };

/** The distance of the T's center of gravity, its rotation center, from its origin along the stem (px). */
const CENTER = 45;

/** The T in its own frame (px): bar and stem, as center and half sides. Its origin is the middle of the bar's outer side. */
const PARTS = [
  { x: 0, y: 15, halfX: 60, halfY: 15 },
  { x: 0, y: 75, halfX: 15, halfY: 45 },
] as const;

const meters = (pixels: number): number => pixels / PIXELS;
const boxes = (extra: string, shift = 0): string =>
  PARTS.map(
    ({ x, y, halfX, halfY }) =>
      `<geom type="box" pos="${meters(x)} ${meters(y - shift)} 0" size="${meters(halfX)} ${meters(halfY)} .1" ${extra}/>`,
  ).join("");

// The pusher is too heavy to be moved by the T, and damping stops the T when released.
const MJCF = `
<mujoco model="push-t">
  <size memory="2M"/>
  <compiler angle="radian"/>
  <option timestep="${DT / SUBSTEPS}" integrator="implicitfast" gravity="0 0 0"/>
  <visual><headlight ambient=".6 .6 .6"/></visual>
  <default><geom friction="1 .005 .0001" solref=".01 1"/></default>
  <worldbody>
    <camera name="overhead" pos="2.56 2.56 6" xyaxes="1 0 0 0 1 0" fovy="46.2"/>
    <geom name="floor" type="plane" size="4 4 .1" pos="2.56 2.56 -.2" rgba="1 1 1 1" contype="0" conaffinity="0"/>
    <geom type="plane" pos="${meters(5)} 0 0" zaxis="1 0 0" size="6 6 .1" rgba="0 0 0 0" contype="2" conaffinity="4"/>
    <geom type="plane" pos="${meters(506)} 0 0" zaxis="-1 0 0" size="6 6 .1" rgba="0 0 0 0" contype="2" conaffinity="4"/>
    <geom type="plane" pos="0 ${meters(5)} 0" zaxis="0 1 0" size="6 6 .1" rgba="0 0 0 0" contype="2" conaffinity="4"/>
    <geom type="plane" pos="0 ${meters(506)} 0" zaxis="0 -1 0" size="6 6 .1" rgba="0 0 0 0" contype="2" conaffinity="4"/>
    <body name="goal" pos="${meters(GOAL.x)} ${meters(GOAL.y)} -.18" euler="0 0 ${Math.PI / 4}">
      ${boxes('rgba=".55 .85 .55 1" contype="0" conaffinity="0"')}
    </body>
    <body name="agent">
      <joint name="agent_x" type="slide" axis="1 0 0"/>
      <joint name="agent_y" type="slide" axis="0 1 0"/>
      <geom type="cylinder" size=".15 .1" mass="10000" rgba=".25 .4 .9 1" contype="1" conaffinity="4"/>
    </body>
    <body name="block">
      <joint name="block_x" type="slide" axis="1 0 0" damping="400"/>
      <joint name="block_y" type="slide" axis="0 1 0" damping="400"/>
      <joint name="block_turn" type="hinge" axis="0 0 1" damping="120"/>
      ${boxes('mass="1" rgba=".45 .5 .58 1" contype="4" conaffinity="3"', CENTER)}
    </body>
  </worldbody>
</mujoco>`;

type Point = readonly [number, number];

/** The four corners of each part, at a pose given in pixels. */
function cornersAt(x: number, y: number, cos: number, sin: number): Point[][] {
  return PARTS.map((part) =>
    [
      [-1, -1],
      [1, -1],
      [1, 1],
      [-1, 1],
    ].map(([sx, sy]): Point => {
      const [px, py] = [part.x + sx! * part.halfX, part.y + sy! * part.halfY];
      return [x + px * cos - py * sin, y + px * sin + py * cos];
    }),
  );
}

const GOAL_PARTS = cornersAt(GOAL.x, GOAL.y, GOAL.cos, GOAL.sin);
const AREA = PARTS.reduce((sum, { halfX, halfY }) => sum + 4 * halfX * halfY, 0);

/** The intersection area of two convex counter-clockwise shapes (Sutherland and Hodgman 1974). */
function overlap(shape: readonly Point[], within: readonly Point[]): number {
  let left = shape;
  for (const [i, a] of within.entries()) {
    const b = within[(i + 1) % within.length]!;
    const side = ([x, y]: Point): number => (b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0]);
    const kept: Point[] = [];
    for (const [j, p] of left.entries()) {
      const q = left[(j + 1) % left.length]!;
      const [sp, sq] = [side(p), side(q)];
      if (sp >= 0) kept.push(p);
      if (sp >= 0 !== sq >= 0) {
        const share = sp / (sp - sq);
        kept.push([p[0] + share * (q[0] - p[0]), p[1] + share * (q[1] - p[1])]);
      }
    }
    left = kept;
  }
  return left.reduce((sum, [x, y], i) => {
    const [nx, ny] = left[(i + 1) % left.length]!;
    return sum + (x * ny - nx * y) / 2;
  }, 0);
}

/** The T's published pose: its origin (px), and its direction from the engine's own arithmetic. */
function poseOf(world: World): { x: number; y: number; cos: number; sin: number } {
  const turn = world.bodyTurn("block");
  const [cos, sin] = [turn[0]!, turn[3]!];
  return { x: world.qpos[2]! * PIXELS + CENTER * sin, y: world.qpos[3]! * PIXELS - CENTER * cos, cos, sin };
}

/** The share of the goal that the T covers, 0 to 1. The parts of one T do not overlap, so the sum over pairs is exact. */
export function coverageOf(world: World): number {
  const { x, y, cos, sin } = poseOf(world);
  const parts = cornersAt(x, y, cos, sin);
  return (
    parts.reduce((sum, part) => sum + GOAL_PARTS.reduce((inner, goal) => inner + overlap(part, goal), 0), 0) / AREA
  );
}

/** Moves the pusher toward a position (px) for one control step, by the published controller. */
export function pushTowards(world: World, x: number, y: number): void {
  const dt = DT / SUBSTEPS;
  const targets = [x / PIXELS, y / PIXELS];
  for (let i = 0; i < SUBSTEPS; i++) {
    for (const [axis, target] of targets.entries()) {
      const speed = world.qvel[axis]!;
      world.qvel[axis] = speed + (STIFFNESS * (target - world.qpos[axis]!) - DAMPING * speed) * dt;
    }
    world.mj.mj_step(world.model, world.data);
  }
  world.forward();
}

/** The angle in [0, 2 pi), as published. */
const turnOf = (angle: number): number => angle - Math.floor(angle / (2 * Math.PI)) * 2 * Math.PI;

/** A round pusher, a T, and the T's goal. */
export const pushT: Scenario = {
  id: "push-t",
  version: "1.1.0",
  title: "Push-T",
  description: "Push a T-shaped block onto its mark with a round pusher.",
  topic: "manipulation",
  success: `At some step the T covers at least ${ENOUGH * 100} % of its mark.`,
  source: "gym-pusht PushT-v0 (state observations)",
  variants: [
    {
      actionSpace: "continuous_nd",
      fields: ["x", "y"],
      units: "px of the 512 px square: where the pusher is to go",
      bounds: evenly(2, 0, SIDE),
      proprioNames: ["agent_x", "agent_y", "block_x", "block_y", "block_angle"],
      dtMs: DT * 1000,
      maxSteps: STEPS,
      cameras: [{ name: "overhead", width: 96, height: 96 }],
      mjcf: MJCF,
      instruction: "push the T onto its mark",
      play(world) {
        let best = 0;
        return {
          reset(random) {
            world.qpos[0] = meters(between(random, 50, 450));
            world.qpos[1] = meters(between(random, 50, 450));
            const [x, y] = [between(random, 100, 400), between(random, 100, 400)];
            world.qpos[4] = between(random, -Math.PI, Math.PI);
            world.forward();
            const { cos, sin } = poseOf(world);
            world.qpos[2] = meters(x - CENTER * sin);
            world.qpos[3] = meters(y + CENTER * cos);
            world.forward();
            best = coverageOf(world);
          },
          isSolved: () => best >= ENOUGH,
          observe() {
            const { x, y } = poseOf(world);
            return [world.qpos[0]! * PIXELS, world.qpos[1]! * PIXELS, x, y, turnOf(world.qpos[4]!)];
          },
          step([x, y]) {
            pushTowards(world, x!, y!);
            const coverage = coverageOf(world);
            best = Math.max(best, coverage);
            const reward = clamp(coverage / ENOUGH, 0, 1);
            return coverage >= ENOUGH ? { reward, ending: "success" } : { reward };
          },
          measure: () => ({
            success: best >= ENOUGH,
            progress: clamp(best / ENOUGH, 0, 1),
            metrics: { max_coverage: best },
          }),
        };
      },
    },
  ],
};
