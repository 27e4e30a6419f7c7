/** The world's step: the same states, sensors and warnings as the engine's own step followed by a complete computation. */
import { describe, expect, it } from "vitest";
import { seeded } from "../../../src/scenarios/chance.ts";
import { World } from "../../../src/scenarios/engine.ts";
import { decay } from "../../../src/scenarios/scenario.ts";
import { CRAWLER_MJCF } from "../../support/packs.ts";

/** The crawler on a floor, with its integrator. */
const floored = (integrator: string): string =>
  CRAWLER_MJCF.replace('gravity="0 0 0"', `integrator="${integrator}"`).replace(
    "<worldbody>",
    '<worldbody><geom type="plane" size="5 5 .1" pos="0 0 .75"/>',
  );

/** All that scenarios read. */
const readOf = (world: World): unknown[] => [
  ...world.qpos,
  ...world.qvel,
  ...world.site("imu"),
  ...world.siteTurn("imu"),
  ...world.body("fr"),
  ...["velocity", "turn", "push"].flatMap((sensor) => [...world.sensor(sensor)]),
  world.touching("fr"),
  world.unstable,
];

/** Steps two worlds, one by the engine's own step, and compares them after each. Returns the last reading. */
async function compared(mjcf: string, force: (step: number) => number, steps: number): Promise<readonly unknown[]> {
  const [world, own] = [await World.of(mjcf), await World.of(mjcf)];
  try {
    for (let step = 0; step < steps; step++) {
      const control = force(step);
      for (const each of [world, own]) each.ctrl.fill(control);
      world.step(3);
      for (let i = 0; i < 3; i++) own.mj.mj_step(own.model, own.data);
      own.forward();
      expect(readOf(world)).toEqual(readOf(own));
      if (world.unstable) break;
    }
    return readOf(world);
  } finally {
    world.close();
    own.close();
  }
}

/** Returns the state after 40 steps, a change, and two more steps, and whether the trunk touches the wall then. */
async function changed(
  change: (world: World) => void,
  by: "world" | "engine" = "world",
): Promise<{ state: readonly number[]; touches: boolean }> {
  const wall = '<body name="wall" mocap="true" pos="5 5 5"><geom type="box" size=".1 .1 .1"/></body></worldbody>';
  const world = await World.of(floored("Euler").replace("</worldbody>", wall));
  try {
    world.step(40);
    change(world);
    if (by === "world") world.step(2);
    else for (let i = 0; i < 2; i++) world.mj.mj_step(world.model, world.data);
    return { state: [...world.qpos, ...world.qvel], touches: world.touching("trunk", "wall") };
  } finally {
    world.close();
  }
}

describe("a step", () => {
  it.each(["Euler", "implicit", "implicitfast", "RK4"])(
    "by %s gives what the engine's own step gives",
    async (integrator) => {
      const random = seeded(1);
      expect((await compared(floored(integrator), () => 2 * random() - 1, 60)).at(-1)).toBe(false);
    },
  );

  it.each(["Euler", "RK4"])("by %s becomes unstable when the engine's own step does", async (integrator) => {
    const wild = floored(integrator).replaceAll('kp="10"', 'kp="1e7"');
    expect((await compared(wild, (step) => (step % 2 ? 1e4 : -1e4) * step ** 3, 200)).at(-1)).toBe(true);
  });

  it("starts from the new contacts after a mocap body was placed", async () => {
    const put = (each: World): void => each.put("wall", [0.1, 0.05, 0.95]);
    const { state, touches } = await changed(put);
    expect(touches).toBe(true);
    expect(state).toEqual((await changed(put, "engine")).state);
  });

  it("starts from the new state after positions and velocities were changed and `forward` was called", async () => {
    const lift = (each: World): void => {
      each.qpos[2]! += 0.05;
      each.qvel[2] = 1;
      each.forward();
    };
    expect((await changed(lift)).state).toEqual((await changed(lift, "engine")).state);
  });
});

it("decay is e to the power of minus x", () => {
  for (const x of [0, 1e-9, 0.1, 1, 2.5, 30, 600]) expect(decay(x) / Math.exp(-x)).toBeCloseTo(1, 11);
  expect(decay(1e6)).toBe(0);
});
