/** reference/energy-swingup: swings a pendulum upright from any state. */
import { UnsupportedObservation } from "../unsupported.ts";
import { readProprio } from "./layout.ts";
import type { ActionDeclaration, Controller } from "./types.ts";

/** The public constants of Pendulum-v1: angle from upright (rad, counter-clockwise), N m, m, kg, s. */
const GRAVITY = 10;
const MASS = 1;
const LENGTH = 1;
const DT = 0.05;
const MAX_TORQUE = 2;
const MAX_SPEED = 8;

const INERTIA = (MASS * LENGTH ** 2) / 3;
const TOP_ENERGY = (MASS * GRAVITY * LENGTH) / 2;

/** Torque per missing joule and rad/s; energy is pumped along the speed (Åström and Furuta 2000). */
const PUMP = 1.5;
/** Proportional and derivative gains near the top, and the angle (rad) within which the torque can hold it. */
const STIFFNESS = 12;
const DAMPING = 3;
const CATCH = 0.35;

const declaration: ActionDeclaration = {
  space: "continuous_nd",
  dim: 1,
  dtMs: DT * 1000,
  fields: ["torque"],
  units: "N m, -2 to 2",
  frame: "torque about the pivot, counter-clockwise positive",
  normalized: false,
  gripper: null,
  proprioLayouts: [["cos_theta", "sin_theta", "theta_dot"]],
  visualLayouts: [],
  camera: null,
};

function torqueFor(angle: number, speed: number): number {
  const limit = (torque: number): number => Math.max(-MAX_TORQUE, Math.min(MAX_TORQUE, torque));
  if (Math.abs(angle) < CATCH) return limit(-STIFFNESS * angle - DAMPING * speed);
  const short = TOP_ENERGY - ((INERTIA * speed ** 2) / 2 + TOP_ENERGY * Math.cos(angle));
  // A pendulum at rest has no direction to pump in, so the positive one is used.
  return limit(PUMP * short * (speed === 0 ? 1 : speed));
}

/** continuous_nd with one number, the torque of Pendulum-v1: energy pumping, then proportional-derivative balance at the top. */
export const swingUp: Controller = {
  declaration,
  begin(input) {
    const [cos, sin, startSpeed] = readProprio(input, declaration).values;
    if (Math.abs(Math.hypot(cos!, sin!) - 1) > 0.1) {
      throw new UnsupportedObservation("cos_theta and sin_theta must be the cosine and sine of one angle");
    }
    let angle = Math.atan2(sin!, cos!);
    let speed = startSpeed!;
    return {
      next() {
        const torque = torqueFor(angle, speed);
        const gain = (3 * GRAVITY) / (2 * LENGTH);
        speed += (gain * Math.sin(angle) + (3 / (MASS * LENGTH ** 2)) * torque) * DT;
        speed = Math.max(-MAX_SPEED, Math.min(MAX_SPEED, speed));
        angle = wrap(angle + speed * DT);
        return [torque];
      },
      note: () =>
        `Energy pumping and balance on Pendulum-v1's equations; the chunk ends ${Math.abs(angle).toFixed(2)} rad from upright.`,
    };
  },
};

const wrap = (angle: number): number => Math.atan2(Math.sin(angle), Math.cos(angle));
