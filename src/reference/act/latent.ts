/** reference/latent-reach: encodes a segment of joint motion as one short code, and decodes it. */
import { UnsupportedObservation } from "../unsupported.ts";
import { SINGLE_ARM } from "./bodies.ts";
import { readProprio } from "./layout.ts";
import { jointReach, reach } from "./reach.ts";
import type { ActionDeclaration, Controller } from "./types.ts";

/** Joints of the coded motion: those of joint_pos_7. */
const JOINTS = 7;
/** Joint rows behind one code. */
const LATENT_ROWS = 8;
/** Coefficients kept per joint. */
const KEPT = 4;
/** Numbers in one code: coefficient k of joint j (from 0) is at `4 j + k`. */
export const LATENT_DIM = JOINTS * KEPT;

/** The orthonormal DCT-II: BASIS[k][n] = c(k) cos(π (n + ½) k / N) with c(0) = √(1/N) and c(k) = √(2/N), N = 8 rows. */
const BASIS = Array.from({ length: KEPT }, (_, k) =>
  Array.from({ length: LATENT_ROWS }, (_, n) => {
    const weight = Math.sqrt((k === 0 ? 1 : 2) / LATENT_ROWS);
    return weight * Math.cos((Math.PI * (n + 0.5) * k) / LATENT_ROWS);
  }),
);

/** Encodes 8 rows of 7 joint angles as the first four DCT-II coefficients of each joint. Faster variations are lost. */
export function encodeLatent(rows: ArrayLike<number>): Float64Array {
  checkLength(rows, LATENT_ROWS * JOINTS);
  return Float64Array.from({ length: LATENT_DIM }, (_, at) => {
    const basis = BASIS[at % KEPT]!;
    const joint = Math.floor(at / KEPT);
    return basis.reduce((sum, weight, n) => sum + weight * rows[n * JOINTS + joint]!, 0);
  });
}

/** Decodes a code to 8 rows of 7 joint angles; `encodeLatent` of them returns the code. */
export function decodeLatent(code: ArrayLike<number>): Float64Array {
  checkLength(code, LATENT_DIM);
  return Float64Array.from({ length: LATENT_ROWS * JOINTS }, (_, at) => {
    const row = Math.floor(at / JOINTS);
    const joint = at % JOINTS;
    return BASIS.reduce((sum, basis, k) => sum + basis[row]! * code[joint * KEPT + k]!, 0);
  });
}

function checkLength(values: ArrayLike<number>, length: number): void {
  if (values.length !== length)
    throw new UnsupportedObservation(`a latent segment must have ${length} numbers, got ${values.length}`);
}

const declaration: ActionDeclaration = {
  space: "latent_action",
  dim: LATENT_DIM,
  dtMs: LATENT_ROWS * jointReach.declaration.dtMs,
  fields: SINGLE_ARM.names.flatMap((joint) => Array.from({ length: KEPT }, (_, k) => `${joint}_dct${k}`)),
  units: "rad (orthonormal DCT-II coefficients)",
  frame: "each row codes 8 rows of joint_pos_7, 50 ms apart",
  normalized: false,
  gripper: null,
  proprioLayouts: jointReach.declaration.proprioLayouts,
  visualLayouts: [],
  camera: null,
};

/** latent_action: the motion of joint_pos_7, coded; each row covers 400 ms. */
export const latentReach: Controller = {
  declaration,
  begin(input) {
    const motion = reach(SINGLE_ARM, readProprio(input, declaration).values);
    const rows = new Float64Array(LATENT_ROWS * JOINTS);
    return {
      next() {
        for (let n = 0; n < LATENT_ROWS; n++) rows.set(motion.next(), n * JOINTS);
        return encodeLatent(rows);
      },
      note: () => `${motion.note()} Each row holds four DCT-II coefficients per joint of the next 8 joint rows.`,
    };
  },
};
