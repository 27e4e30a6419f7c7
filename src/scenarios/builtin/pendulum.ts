/** pendulum-swingup: Pendulum-v1 of Gymnasium, step for step. */
import { between } from "../chance.ts";
import type { World } from "../engine.ts";
import { clamp, evenly, type Scenario } from "../scenario.ts";

const TORQUE = 2;
const SPEED = 8;
const DT = 0.05;
const STEPS = 200;
/** The last steps of the episode that must be upright, and the tolerance (rad). */
const UPRIGHT_STEPS = 20;
const UPRIGHT_RAD = 0.2;
/** Gravity's torque over the inertia at the horizontal, 1/s²: m g l/2 over m l²/3. */
const TOP = 15;

// A uniform rod of 1 m and 1 kg: m l² / 3 about its pivot. MuJoCo's Euler step is the specification's: speed first, then angle.
const MJCF = `
<mujoco model="pendulum">
  <size memory="1M"/>
  <compiler angle="radian"/>
  <option timestep="${DT}" integrator="Euler" gravity="0 0 -10"><flag contact="disable" eulerdamp="disable"/></option>
  <visual><headlight ambient=".5 .5 .5"/></visual>
  <worldbody>
    <camera name="front" pos="0 -4 0" xyaxes="1 0 0 0 0 1" fovy="40"/>
    <body name="rod">
      <inertial pos="0 0 .5" mass="1" diaginertia="0.08333333333333333 0.08333333333333333 .0001"/>
      <joint name="pivot" type="hinge" axis="0 -1 0"/>
      <geom type="capsule" size=".05" fromto="0 0 0 0 0 1" rgba=".8 .3 .3 1"/>
    </body>
    <geom type="sphere" size=".07" rgba=".1 .1 .1 1"/>
  </worldbody>
  <actuator><motor name="torque" joint="pivot"/></actuator>
</mujoco>`;

/** Cosine and sine of the angle from upright, from the engine's own arithmetic. */
function directionOf(world: World): { cos: number; sin: number } {
  const turn = world.bodyTurn("rod");
  // The rod's own z axis: upright at zero, and counter-clockwise (towards -x) positive.
  return { cos: turn[8]!, sin: -turn[2]! };
}

/** The angle in (-pi, pi]. */
function wrapped(angle: number): number {
  const turns = Math.floor((angle + Math.PI) / (2 * Math.PI));
  return angle - turns * 2 * Math.PI;
}

/** A hanging pendulum: swing it up and hold it. */
export const pendulumSwingup: Scenario = {
  id: "pendulum-swingup",
  version: "1.1.0",
  title: "Pendulum swing-up",
  description: "Swing a pendulum up with a torque too weak to lift it, and hold it upright.",
  topic: "control-suite",
  success: `The pendulum is within ${UPRIGHT_RAD} rad of upright in each of the last ${UPRIGHT_STEPS} of ${STEPS} steps.`,
  source: "Gymnasium Pendulum-v1",
  variants: [
    {
      actionSpace: "continuous_nd",
      fields: ["torque"],
      units: "N m, -2 to 2",
      bounds: evenly(1, -TORQUE, TORQUE),
      proprioNames: ["cos_theta", "sin_theta", "theta_dot"],
      dtMs: DT * 1000,
      maxSteps: STEPS,
      cameras: [{ name: "front", width: 128, height: 128 }],
      mjcf: MJCF,
      instruction: "swing the pendulum up and hold it",
      play(world) {
        let steps = 0;
        let upright = 0;
        /** One control step under a torque. */
        const swing = (torque: number): void => {
          world.ctrl[0] = torque;
          world.step();
          const after = world.qvel[0]!;
          const capped = clamp(after, -SPEED, SPEED);
          if (capped !== after) {
            world.qpos[0] = world.qpos[0]! - (after - capped) * DT;
            world.qvel[0] = capped;
            world.forward();
          }
          steps += 1;
          upright = Math.abs(wrapped(world.qpos[0]!)) < UPRIGHT_RAD ? upright + 1 : 0;
        };
        const begin = (angle: number, speed: number): void => {
          steps = 0;
          upright = 0;
          world.qpos[0] = angle;
          world.qvel[0] = speed;
        };
        return {
          reset(random) {
            begin(between(random, -Math.PI, Math.PI), between(random, -1, 1));
          },
          isSolved() {
            const [angle, speed] = [world.qpos[0]!, world.qvel[0]!];
            // A free swing stays near the top only with an energy (J per kg m²) close to that of the upright position.
            if (Math.abs(0.5 * speed * speed + TOP * (directionOf(world).cos - 1)) > 1) return false;
            while (steps < STEPS) swing(0);
            const isUpright = upright >= UPRIGHT_STEPS;
            begin(angle, speed);
            world.forward();
            return isUpright;
          },
          observe() {
            const { cos, sin } = directionOf(world);
            return [cos, sin, world.qvel[0]!];
          },
          step([torque]) {
            const angle = wrapped(world.qpos[0]!);
            const speed = world.qvel[0]!;
            const cost = angle * angle + 0.1 * speed * speed + 0.001 * torque! * torque!;
            swing(torque!);
            if (steps < STEPS) return { reward: -cost };
            return { reward: -cost, ending: upright >= UPRIGHT_STEPS ? "success" : "max_steps" };
          },
          measure: () => ({
            success: upright >= UPRIGHT_STEPS,
            progress: Math.min(1, upright / UPRIGHT_STEPS),
            metrics: { upright_steps: upright },
          }),
        };
      },
    },
  ],
};
