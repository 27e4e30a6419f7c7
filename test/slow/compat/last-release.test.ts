/**
 * One version apart, as installed: the TypeScript client of today at the gateway of the last release, and the client of the last release at the gateway
 * of today. The clients in Python and C++ do the same in their own checks.
 */
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import * as today from "../../../clients/typescript/src/index.ts";
import { START_FLAGS } from "../../../src/fast/collector.ts";
import { redSquare } from "../../../src/upstream/pictures/test-picture.ts";
import { type DemoGateway, startDemo } from "../../support/demo-gateway.ts";
import { scratchDir } from "../../support/gateway.ts";
import { lastRelease } from "../../support/last-release.ts";

const ROOT = join(import.meta.dirname, "../../..");
const scratch = scratchDir();
const last = lastRelease();
const before: typeof today = await import(pathToFileURL(join(last, "typescript/dist/index.js")).href);

const STATE = { x: 0, y: 0, yaw: 0, goal_x: 2, goal_y: 1, goal_yaw: 0 };
const ACT = { model: "reference/potential-nav", actionSpace: "base_twist_2d", horizon: 4 };

describe.each([
  ["the client of today, at the gateway of the last release", today, "src/cli.js", ["start"], join(last, "gateway")],
  ["the client of the last release, at the gateway of today", before, "src/main.ts", [], ROOT],
] as const)("%s", (name, { Limber, ModelNotFound, observationOf, RobotStopped }, main, args, cwd) => {
  let gateway: DemoGateway;
  let limber: today.Limber;
  const observations = [observationOf({ state: STATE })];

  beforeAll(async () => {
    const data = join(scratch.path, name.replaceAll(/\W+/g, "-"));
    gateway = await startDemo(process.execPath, [...START_FLAGS, main, ...args], { cwd, data });
    limber = new Limber(gateway);
  }, 240_000);
  afterAll(() => gateway?.stop());

  it("acts, predicts, grounds and previews", async () => {
    const { action, route } = await limber.act({ ...ACT, observations });
    expect(action?.steps.map(({ values }) => values.length)).toEqual([2, 2, 2, 2]);
    expect(route?.provider).toBe("reference");
    const { plan } = await limber.preview({ request: { ...ACT, observations } });
    expect(plan.map(({ provider }) => provider)).toContain("reference");
    const seen = [observationOf({ images: { front: await redSquare(0.25, 0.75) } })];
    const frames: number[] = [];
    for await (const { index } of limber.predict({ model: "reference/block-flow", horizon: 2, observations: seen }))
      frames.push(index);
    expect(frames).toEqual([0, 1]);
    const asked = { model: "reference/colour-shape", instruction: "the red square", observations: seen };
    expect((await limber.ground(asked)).points).toHaveLength(1);
  });

  it("evaluates a policy, and is told each episode", async () => {
    const run = await limber.evaluate({ policyEndpoint: ACT.model, scenario: "base-nav", episodes: 2 });
    const episodes: number[] = [];
    for await (const { index } of run) episodes.push(index);
    expect(episodes.sort()).toEqual([0, 1]);
    expect((await run.result()).scores?.successRate?.n).toBe(2);
  });

  it("lists models and usage", async () => {
    const page = await limber.models({ limit: 5 }).next();
    expect(page.value).toHaveProperty("id");
    expect((await limber.model(ACT.model)).id).toBe(ACT.model);
    expect((await limber.usage({ limit: 1 })).data).toHaveLength(1);
  });

  it("is refused by the class of the reason", async () => {
    await expect(limber.act({ ...ACT, model: "reference/no-such", observations })).rejects.toThrow(ModelNotFound);
  });

  it("runs a loop that an emergency stop ends, with the robot held", async () => {
    const robot = "one-apart";
    const told: today.Command[] = [];
    const acted = (): number => told.filter(({ hold }) => hold === undefined).length;
    let stop: Promise<{ readonly id: string }> | undefined;
    const ran = limber.loop({ ...ACT, horizon: 16, rateHz: 50, robot, hold: [0, 0] }).run(
      () => {
        if (acted() >= 10) stop ??= limber.robots.stop({ case: "robotId", value: robot }, "a test");
        return { state: STATE };
      },
      (command) => void told.push(command),
      { maxSeconds: 50 },
    );
    await expect(ran).rejects.toThrow(RobotStopped);
    expect(told.at(-1)).toMatchObject({ values: [0, 0], hold: "robot_stopped" });
    await limber.robots.release((await stop!).id);
  });
});

afterAll(() => scratch.remove());
