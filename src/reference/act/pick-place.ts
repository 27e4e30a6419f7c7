/** reference/pick-place: moves a block to its mark by proprio. It keeps no state; the phase is derived from the scene. */
import { readProprio } from "./layout.ts";
import type { ActInput, ActionDeclaration, Controller } from "./types.ts";

const DT_MS = 50;
/** Heights of the hand (m): above objects, and at them. */
const ABOVE = 0.12;
const AT = 0.02;
/** The distances that count as above, and as at (m). */
const OVER = 0.008;
const REACHED = 0.006;
/** The maximum movement of the hand per step (m). */
const MOST = 0.02;
/** The gripper's opening around the block, as a share of the full opening: above it nothing is held, at it the fingers press. */
const HELD = 0.58;

type PlaceTarget = readonly [number, number, number];

interface Scene {
  readonly hand: PlaceTarget;
  readonly opening: number;
  readonly block: PlaceTarget;
  readonly mark: PlaceTarget;
}

/** The hand's target, and whether to open the gripper. */
interface Aim {
  readonly place: PlaceTarget;
  readonly open: boolean;
  readonly phase: string;
}

const flat = (a: PlaceTarget, b: PlaceTarget): number => Math.hypot(a[0] - b[0], a[1] - b[1]);

function aimAt({ hand, opening, block, mark }: Scene): Aim {
  const overBlock = flat(hand, block);
  const around = overBlock < 0.02 && Math.abs(hand[2] - block[2]) < 0.02;
  const held = around && opening < HELD;
  if (flat(block, mark) < 0.012 && block[2] < AT + 0.012) {
    // The block is at its mark: release it before moving up.
    const away: PlaceTarget = opening > 0.8 ? [hand[0], hand[1], ABOVE] : hand;
    return { place: away, open: true, phase: "letting go" };
  }
  if (held) {
    const overMark = flat(hand, mark) < OVER;
    if (overMark) return { place: [mark[0], mark[1], AT], open: false, phase: "putting down" };
    if (hand[2] < ABOVE - 0.03 && flat(hand, mark) > 0.04) {
      return { place: [hand[0], hand[1], ABOVE], open: false, phase: "lifting" };
    }
    return { place: [mark[0], mark[1], Math.max(hand[2], ABOVE - 0.02)], open: false, phase: "carrying" };
  }
  if (around && overBlock < REACHED * 2 && hand[2] < AT + REACHED) {
    return { place: hand, open: false, phase: "closing" };
  }
  if (overBlock < OVER) return { place: [block[0], block[1], AT], open: true, phase: "going down" };
  const low = hand[2] < ABOVE - 0.04 && overBlock > 0.03;
  return {
    place: low ? [hand[0], hand[1], ABOVE] : [block[0], block[1], Math.max(ABOVE, 0.1)],
    open: true,
    phase: "going over",
  };
}

/** The predicted scene after one step toward a target: the hand moves, and moves a held block. */
function ahead(scene: Scene, aim: Aim): { scene: Scene; shift: PlaceTarget } {
  const way = aim.place.map((part, i) => part - scene.hand[i]!);
  const far = Math.hypot(...way);
  const share = far === 0 ? 0 : Math.min(1, MOST / far);
  const shift = way.map((part) => part * share) as [number, number, number];
  const hand = scene.hand.map((part, i) => part + shift[i]!) as [number, number, number];
  const carried = !aim.open && scene.opening < HELD && flat(scene.hand, scene.block) < 0.02;
  const block = carried ? (scene.block.map((part, i) => part + shift[i]!) as [number, number, number]) : scene.block;
  return { scene: { ...scene, hand, block }, shift };
}

const THINGS = ["block_x", "block_y", "block_z", "mark_x", "mark_y", "mark_z"];

const shiftDeclaration: ActionDeclaration = {
  space: "ee_delta_6d_grip",
  dim: 7,
  dtMs: DT_MS,
  fields: ["dx", "dy", "dz", "drx", "dry", "drz", "gripper"],
  units: "m, rad, gripper 0 to 1",
  frame: "robot base frame, change per control step",
  normalized: false,
  gripper: { indices: [6], closed: 0, open: 1 },
  proprioLayouts: [["ee_x", "ee_y", "ee_z", "gripper", ...THINGS]],
  visualLayouts: [],
  camera: null,
};

const placeAt = (values: Float64Array, at: number): PlaceTarget => [values[at]!, values[at + 1]!, values[at + 2]!];

/** ee_delta_6d_grip: shifts of the hand. The gripper command is constant over the chunk, so that it depends on measurements. */
export const pickPlaceShifts: Controller = {
  declaration: shiftDeclaration,
  begin(input) {
    const { values } = readProprio(input, shiftDeclaration);
    let scene: Scene = {
      hand: placeAt(values, 0),
      opening: values[3]!,
      block: placeAt(values, 4),
      mark: placeAt(values, 7),
    };
    const { open, phase } = aimAt(scene);
    return {
      next() {
        const aim = aimAt(scene);
        const held = aim.open === open ? aim : { ...aim, place: scene.hand };
        const moved = ahead(scene, held);
        scene = moved.scene;
        return [...moved.shift, 0, 0, 0, open ? 1 : 0];
      },
      note: () => `Pick and place by a state machine: ${phase}.`,
    };
  },
};

/** The 7-joint arm in the plane of its first rotation: shoulder height, upper arm, forearm, and hand to the grip's center (m). */
const SHOULDER = 0.34;
const UPPER = 0.4;
const FOREARM = 0.38;
const HAND = 0.06 + 0.16;
const JOINT_STEP = 0.08;

/** Returns the six joint angles that bring the grip to a position with the hand pointing straight down, in closed form. */
function jointsAt([x, y, z]: PlaceTarget): number[] {
  const out = Math.hypot(x, y);
  const up = z + HAND - SHOULDER;
  const far = Math.min(Math.hypot(out, up), UPPER + FOREARM - 1e-6);
  const elbow = Math.acos(clamp((far ** 2 - UPPER ** 2 - FOREARM ** 2) / (2 * UPPER * FOREARM)));
  const shoulder = Math.atan2(out, up) - Math.atan2(FOREARM * Math.sin(elbow), UPPER + FOREARM * Math.cos(elbow));
  return [Math.atan2(y, x), shoulder, 0, elbow, 0, Math.PI - shoulder - elbow];
}

const clamp = (value: number): number => Math.max(-1, Math.min(1, value));

/** The grip's position at these six joints, with rolls at zero. */
function gripAt([turn, shoulder, , elbow, , wrist]: readonly number[]): PlaceTarget {
  const [a, b, c] = [shoulder!, shoulder! + elbow!, shoulder! + elbow! + wrist!];
  const out = UPPER * Math.sin(a) + FOREARM * Math.sin(b) + HAND * Math.sin(c);
  const up = SHOULDER + UPPER * Math.cos(a) + FOREARM * Math.cos(b) + HAND * Math.cos(c);
  return [out * Math.cos(turn!), out * Math.sin(turn!), up];
}

const jointDeclaration: ActionDeclaration = {
  ...shiftDeclaration,
  space: "joint_pos_7",
  fields: ["j1", "j2", "j3", "j4", "j5", "j6", "gripper"],
  units: "rad, gripper 0 to 1",
  frame: "absolute joint angles; places in the arm's base frame; the last roll is kept at zero",
  proprioLayouts: [["j1", "j2", "j3", "j4", "j5", "j6", "gripper", ...THINGS]],
};

/** joint_pos_7: the same by joint targets of six joints and the gripper. */
export const pickPlaceJoints: Controller = {
  declaration: jointDeclaration,
  begin(input: ActInput) {
    const { values } = readProprio(input, jointDeclaration);
    let joints = Array.from(values.subarray(0, 6));
    let scene: Scene = {
      hand: gripAt(joints),
      opening: values[6]!,
      block: placeAt(values, 7),
      mark: placeAt(values, 10),
    };
    const { open, phase } = aimAt(scene);
    return {
      next() {
        const aim = aimAt(scene);
        const held = aim.open === open ? aim : { ...aim, place: scene.hand };
        scene = ahead(scene, held).scene;
        const wanted = jointsAt(scene.hand);
        joints = joints.map((angle, i) => angle + Math.max(-JOINT_STEP, Math.min(JOINT_STEP, wanted[i]! - angle)));
        return [...joints, open ? 1 : 0];
      },
      note: () => `Pick and place by a state machine: ${phase}.`,
    };
  },
};
