/** reference/visual-reach: moves the hand to a goal, or to a visible colored object. */
import { ground } from "../ground.ts";
import type { RgbFrame } from "../image.ts";
import { UnsupportedObservation } from "../unsupported.ts";
import { readProprio } from "./layout.ts";
import type { ActInput, ActionDeclaration, Controller } from "./types.ts";

/** The declared camera looks straight down: image up is +x, image left is +y, pixels are square, and the image is this wide (m). */
const VIEW_WIDTH_M = 0.64;
/** The center of a fixed camera's image in the base frame (m). */
const VIEW_CENTER: readonly [number, number] = [0.5, 0];
/** The height of the target above the base for an object on the table (m). */
const REACH_HEIGHT_M = 0.03;

/** The camera that is used if a request has several. */
const CAMERA = "overhead";
const DT_MS = 50;
/** 0.4 m/s. */
const MAX_STEP = 0.02;
const GRIPPER_OPEN = 1;

const HAND = ["ee_x", "ee_y", "ee_z"];

const declaration: ActionDeclaration = {
  space: "ee_delta_6d_grip",
  dim: 7,
  dtMs: DT_MS,
  fields: ["dx", "dy", "dz", "drx", "dry", "drz", "gripper"],
  units: "m, rad, gripper 0 to 1",
  frame: "robot base frame, change per control step",
  normalized: false,
  gripper: { indices: [6], closed: 0, open: 1 },
  proprioLayouts: [[], HAND, [...HAND, "goal_x", "goal_y", "goal_z"]],
  visualLayouts: [0, 3],
  camera: `looks straight down, picture up is +x and picture left is +y, ${VIEW_WIDTH_M} m wide; with ee_x, ee_y, ee_z fixed with its middle over (${VIEW_CENTER.join(", ")}) m and things at ${REACH_HEIGHT_M} m, with no proprio riding over the hand`,
};

/** The hand's displacement, and its source. */
interface Errand {
  readonly way: readonly [number, number, number];
  readonly why: string;
}

/** One reader per layout length: a goal in proprio takes precedence over the image. */
const ERRANDS: Readonly<Record<number, (hand: Float64Array, input: ActInput) => Errand>> = {
  6: ([x, y, z, goalX, goalY, goalZ]) => ({ way: [goalX! - x!, goalY! - y!, goalZ! - z!], why: "the goal in proprio" }),
  3: ([x, y, z], input) => {
    const seen = lookFor(input);
    const way = [VIEW_CENTER[0] + seen.forward - x!, VIEW_CENTER[1] + seen.left - y!, REACH_HEIGHT_M - z!] as const;
    return { way, why: `the ${seen.label} in the fixed overhead picture` };
  },
  0: (_, input) => {
    const seen = lookFor(input);
    return { way: [seen.forward, seen.left, 0], why: `the ${seen.label} in the hand's own picture, height unknown` };
  },
};

/** The object's position relative to the image center, in meters of the declared view. */
function lookFor(input: ActInput): { forward: number; left: number; label: string } {
  const frame = chooseFrame(input.frames);
  const { points, note } = ground(frame, input.instruction ?? "");
  const point = points[0];
  if (point === undefined)
    throw new UnsupportedObservation(
      `without a goal in proprio the instruction must name a visible colored object: ${note}`,
    );
  const { width, height } = frame.image;
  const metersPerPixel = VIEW_WIDTH_M / width;
  return {
    forward: (0.5 - point.y) * height * metersPerPixel,
    left: (0.5 - point.x) * width * metersPerPixel,
    label: point.label,
  };
}

function chooseFrame(frames: readonly RgbFrame[]): RgbFrame {
  const only = frames.length === 1 ? frames[0] : frames.findLast((frame) => frame.camera === CAMERA);
  if (only !== undefined) return only;
  throw new UnsupportedObservation(
    frames.length === 0
      ? "without a goal in proprio this model needs a camera frame"
      : `with several cameras, the one that looks down must be named "${CAMERA}"`,
  );
}

/**
 * ee_delta_6d_grip: straight to the goal, with constant rotation and an open gripper. Proprio `ee_x, ee_y, ee_z` (base frame, m) with `goal_x,
 * goal_y, goal_z` needs no image. With the hand alone, the goal is the first colored object of the instruction, seen by the declared fixed
 * camera. Without proprio the camera is assumed above the hand, which is brought above the object at its own height.
 */
export const visualReach: Controller = {
  declaration,
  begin(input) {
    const { values } = readProprio(input, declaration);
    const { way, why } = ERRANDS[values.length]!(values, input);
    const left = Float64Array.from(way);
    return {
      next() {
        const far = Math.hypot(...left);
        const share = far === 0 ? 0 : Math.min(1, MAX_STEP / far);
        const step = left.map((part) => part * share);
        step.forEach((part, axis) => {
          left[axis] = left[axis]! - part;
        });
        return [...step, 0, 0, 0, GRIPPER_OPEN];
      },
      note: () => `Straight to ${why}; the chunk ends ${Math.round(Math.hypot(...left) * 1000)} mm from it.`,
    };
  },
};
