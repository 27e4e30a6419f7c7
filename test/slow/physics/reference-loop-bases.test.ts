import { describe, expect, it } from "vitest";
import { plan } from "../../../src/reference/act/plan.ts";
import type { ActOutput } from "../../../src/reference/act/types.ts";
import { angleBetween, Pendulum, type PlanarPose, TrackedBase, WheeledBase } from "../../support/plants.ts";
import { between, seeded } from "../../support/scenes.ts";
import {
  type Actor,
  EPISODES,
  expectOnlyTheModelToSucceed,
  model,
  type Random,
  REPLAN,
  rowsOf,
} from "./reference-closed-loop.ts";

describe("base controllers", () => {
  interface World {
    start: PlanarPose;
    goal: PlanarPose;
    obstacles: [number, number, number][];
  }

  function world(random: Random, count: number): World {
    const poseAt = (low: number, high: number): PlanarPose => ({
      x: between(random, low, high),
      y: between(random, -2, 2),
      yaw: between(random, -3, 3),
    });
    const obstacles: [number, number, number][] = [];
    while (obstacles.length < count) {
      const next = [between(random, -1.5, 1.5), between(random, -2, 2), between(random, 0.15, 0.4)] as const;
      if (obstacles.every(([x, y, r]) => Math.hypot(x - next[0], y - next[1]) > r + next[2] + 0.8)) {
        obstacles.push([...next]);
      }
    }
    return { start: poseAt(-3, -2), goal: poseAt(2, 3), obstacles };
  }

  const isThere = (pose: PlanarPose, goal: PlanarPose): boolean =>
    Math.hypot(goal.x - pose.x, goal.y - pose.y) < 0.1 && Math.abs(angleBetween(goal.yaw, pose.yaw)) < 0.2;

  /** Drives until there, crashed or out of time; `carryOut` moves the base by one row. */
  function drive(
    { goal, obstacles }: World,
    pose: PlanarPose,
    ask: () => ActOutput,
    carryOut: (row: Float64Array, origin: PlanarPose) => void,
  ): boolean {
    for (let chunk = 0; chunk < 70 && !isThere(pose, goal); chunk++) {
      const origin = { ...pose };
      for (const row of rowsOf(ask())) {
        carryOut(row, origin);
        if (obstacles.some(([x, y, r]) => Math.hypot(x - pose.x, y - pose.y) < r + 0.2)) return false;
      }
    }
    return isThere(pose, goal);
  }

  const proprioOf = ({ goal, obstacles }: World, pose: PlanarPose): number[] => [
    ...[pose.x, pose.y, pose.yaw, goal.x, goal.y, goal.yaw],
    ...obstacles.flat(),
  ];

  it.each([0, 1, 5])(
    "base_twist_2d drives a lagging base to its goal pose past %i obstacles without touching one",
    (count) => {
      expectOnlyTheModelToSucceed((actor, random) => {
        const place = world(random, count);
        const base = new WheeledBase(place.start, 80);
        const ask = (): ActOutput => actor("base_twist_2d", { proprio: proprioOf(place, base.pose) }, random);
        return drive(place, base.pose, ask, ([speed, turn]) => base.drive(speed!, turn!, 100));
      });
    },
  );

  it.each([0, 5])(
    "waypoint_se2 leads a tracked base to its goal pose past %i obstacles without touching one",
    (count) => {
      expectOnlyTheModelToSucceed((actor, random) => {
        const place = world(random, count);
        const base = new TrackedBase(place.start);
        const ask = (): ActOutput => actor("waypoint_se2", { proprio: proprioOf(place, base.pose) }, random);
        return drive(place, base.pose, ask, ([x, y, yaw], origin) => base.follow(origin, [x!, y!, yaw!], 100));
      });
    },
  );

  it("avoid an obstacle exactly between start and goal", () => {
    const pose = { x: -2, y: 0, yaw: 0 };
    const base = new WheeledBase(pose, 80);
    const place: World = { start: pose, goal: { x: 2, y: 0, yaw: 0 }, obstacles: [[0, 0, 0.4]] };
    const ask = (): ActOutput => model("base_twist_2d", { proprio: proprioOf(place, base.pose) }, seeded(1));
    expect(drive(place, base.pose, ask, ([speed, turn]) => base.drive(speed!, turn!, 100))).toBe(true);
  });
});

describe("continuous_nd", () => {
  it("swings Pendulum-v1 up and holds it for the last 20 of 200 steps, at a mean return above -200", () => {
    const episode = (actor: Actor, random: Random): { held: boolean; total: number } => {
      const pendulum = new Pendulum(between(random, -Math.PI, Math.PI), between(random, -1, 1));
      let total = 0;
      let upright = 0;
      for (let step = 0; step < 200; step += REPLAN) {
        for (const [torque] of rowsOf(actor("continuous_nd", { proprio: pendulum.observe() }, random))) {
          total += pendulum.push(torque!);
          upright = Math.abs(angleBetween(pendulum.angle, 0)) < 0.2 ? upright + 1 : 0;
        }
      }
      return { held: upright >= 20, total };
    };
    expectOnlyTheModelToSucceed((actor, random) => episode(actor, random).held);
    const totals = Array.from({ length: EPISODES }, (_, i) => episode(model, seeded(i + 1)).total);
    expect(totals.reduce((sum, total) => sum + total, 0) / EPISODES).toBeGreaterThan(-200);
  });

  it("keeps to the torque limit from rest at the bottom", () => {
    const { steps } = plan({ actionSpace: "continuous_nd", horizon: 256, proprio: [-1, 0, 0], frames: [] });
    expect(steps[0]).not.toBe(0);
    expect(steps.every((torque) => Math.abs(torque) <= 2)).toBe(true);
  });
});
