/** cartpole-balance: the constants of CartPole-v1 (Barto, Sutton and Anderson 1983; Gymnasium), with a continuous force. */
import { between } from "../chance.ts";
import { evenly, type Scenario } from "../scenario.ts";

const FORCE = 10;
const FAR_M = 2.4;
const TILT_RAD = (12 * 2 * Math.PI) / 360;

// The pole is a uniform rod of 1 m and 0.1 kg: center at 0.5 m, m l² / 12 about it.
const MJCF = `
<mujoco model="cartpole">
  <size memory="1M"/>
  <compiler angle="radian"/>
  <option timestep="0.02" integrator="Euler" gravity="0 0 -9.8"><flag contact="disable"/></option>
  <visual><headlight ambient=".5 .5 .5"/></visual>
  <worldbody>
    <camera name="front" pos="0 -4 .6" xyaxes="1 0 0 0 0 1" fovy="50"/>
    <geom name="rail" type="box" size="2.6 .02 .02" pos="0 0 -.05" rgba=".4 .4 .45 1"/>
    <body name="cart">
      <inertial pos="0 0 0" mass="1" diaginertia=".01 .01 .01"/>
      <joint name="slide" type="slide" axis="1 0 0"/>
      <geom type="box" size=".2 .1 .1" rgba=".2 .4 .8 1"/>
      <body name="pole">
        <inertial pos="0 0 .5" mass=".1" diaginertia="0.008333333333333333 0.008333333333333333 .0001"/>
        <joint name="hinge" type="hinge" axis="0 1 0"/>
        <geom type="capsule" size=".03" fromto="0 0 0 0 0 1" rgba=".85 .55 .2 1"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor name="force" joint="slide"/></actuator>
</mujoco>`;

/** A pole on a cart: keep it upright for 500 steps. */
export const cartpoleBalance: Scenario = {
  id: "cartpole-balance",
  version: "1.0.0",
  title: "Cart-pole balance",
  description: "Push a cart along its rail so that the pole on it stays upright.",
  topic: "control-suite",
  success: "The pole stands for all 500 steps: within 12 degrees of upright and 2.4 m of the middle.",
  source: "Gymnasium CartPole-v1",
  variants: [
    {
      actionSpace: "continuous_nd",
      fields: ["force"],
      units: "N, -10 to 10",
      bounds: evenly(1, -FORCE, FORCE),
      proprioNames: ["cart_x", "cart_v", "pole_angle", "pole_omega"],
      dtMs: 20,
      maxSteps: 500,
      cameras: [{ name: "front", width: 160, height: 120 }],
      mjcf: MJCF,
      instruction: "keep the pole upright",
      play(world) {
        let steps = 0;
        return {
          reset(random) {
            steps = 0;
            for (const at of [0, 1]) world.qpos[at] = between(random, -0.05, 0.05);
            for (const at of [0, 1]) world.qvel[at] = between(random, -0.05, 0.05);
          },
          observe: () => [world.qpos[0]!, world.qvel[0]!, world.qpos[1]!, world.qvel[1]!],
          step([force]) {
            world.ctrl[0] = force!;
            world.step();
            const upright = Math.abs(world.qpos[1]!) <= TILT_RAD;
            if (!upright) return { reward: 1, ending: "fell" };
            if (Math.abs(world.qpos[0]!) > FAR_M) return { reward: 1, ending: "out_of_bounds" };
            steps += 1;
            return steps < 500 ? { reward: 1 } : { reward: 1, ending: "success" };
          },
          measure: () => ({ success: steps >= 500, progress: steps / 500, metrics: { balanced_steps: steps } }),
        };
      },
    },
  ],
};
