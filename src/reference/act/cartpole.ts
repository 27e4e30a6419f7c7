/** reference/energy-swingup's other task: a pole on a cart, balanced by a linear law. */
import { readProprio } from "./layout.ts";
import type { ActionDeclaration, Controller } from "./types.ts";

/** CartPole-v1's public constants: s, N, m/s², kg, m (half the pole). */
const DT = 0.02;
const MAX_FORCE = 10;
const GRAVITY = 9.8;
const CART = 1;
const POLE = 0.1;
const HALF_POLE = 0.5;

/** Newtons per m, m/s, rad and rad/s: tuned by hand for the published constants, well inside the stable region. */
const GAINS = [1, 2, 30, 4] as const;

const declaration: ActionDeclaration = {
  space: "continuous_nd",
  dim: 1,
  dtMs: DT * 1000,
  fields: ["force"],
  units: "N, -10 to 10",
  frame: "force on the cart along its rail, positive x",
  normalized: false,
  gripper: null,
  proprioLayouts: [["cart_x", "cart_v", "pole_angle", "pole_omega"]],
  visualLayouts: [],
  camera: null,
};

/** continuous_nd with one number, the force of CartPole-v1's cart; the pole's angle is from upright, positive towards positive x. */
export const balancePole: Controller = {
  declaration,
  begin(input) {
    let state = Array.from(readProprio(input, declaration).values);
    return {
      next() {
        const wanted = GAINS.reduce((sum, gain, i) => sum + gain * state[i]!, 0);
        const force = Math.max(-MAX_FORCE, Math.min(MAX_FORCE, wanted));
        state = moved(state, force);
        return [force];
      },
      note: () =>
        `Linear balance on CartPole-v1's equations; the chunk ends ${Math.abs(state[2]!).toFixed(2)} rad from upright.`,
    };
  },
};

/** At this angular speed no law helps, and its square must still be finite. */
const MOST = 1e6;
const bounded = (value: number): number => Math.max(-MOST, Math.min(MOST, value));

/** One step of the public equations (Barto, Sutton and Anderson 1983). */
function moved([x, v, angle, omega]: readonly number[], force: number): number[] {
  const [cos, sin] = [Math.cos(angle!), Math.sin(angle!)];
  const total = CART + POLE;
  const pushed = (force + POLE * HALF_POLE * omega! ** 2 * sin) / total;
  const turned = (GRAVITY * sin - cos * pushed) / (HALF_POLE * (4 / 3 - (POLE * cos ** 2) / total));
  const sped = pushed - (POLE * HALF_POLE * turned * cos) / total;
  return [x! + DT * v!, v! + DT * sped, angle! + DT * omega!, omega! + DT * turned].map(bounded);
}
