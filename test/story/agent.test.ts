/** An agent closes `base-nav` over the Model Context Protocol: it looks by ground, and a model acts through a robot that a person armed. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { Arena } from "../../src/scenarios/episode.ts";
import { BUILT_IN } from "../../src/scenarios/index.ts";
import { redSquare } from "../../src/upstream/pictures/test-picture.ts";
import { type App, openApp } from "../support/app.ts";
import { type Agent, agent, attend, type Heard } from "../support/attending.ts";
import { eventually } from "../support/eventually.ts";

let app: App;
let mcp: Agent;

beforeAll(async () => {
  app = await openApp({ referenceSupply: true });
}, 120_000);
afterAll(async () => {
  await mcp.close();
  await app.close();
});

it("sees where to go, has the armed robot driven there, and ends the run", async () => {
  const people = await app.caller(100);
  const key = async (more: object) =>
    (await app.admin(`/v1/orgs/${people.org}/keys`, more)) as { key: string; id: string };
  const [operator, robotKey, own] = [await key({ role: "operator" }), await key({}), await key({ role: "developer" })];
  mcp = await agent(app, own.key);

  // The base, in the scenario's own physics: it carries out what its stream brings, and nothing else.
  const nav = BUILT_IN.find(({ id }) => id === "base-nav")!.variants[0];
  const arena = await Arena.of(nav);
  let step = 0;
  let answer = (_: Heard): void => {};
  const robot = attend(
    app,
    robotKey.key,
    { robotId: "base-1", actionSpace: nav.actionSpace, horizon: 8, deadlineMs: 10_000 },
    (event) => answer(event),
  );
  await eventually(() => expect(robot.heard).toHaveLength(1));
  const chunkFor = (proprio: readonly number[]): Promise<readonly number[][]> =>
    new Promise((resolve) => {
      const sense = (): void => robot.observe(++step, proprio, nav.proprioNames);
      answer = (event) => {
        if (event.case === "chunk" && event.value.startStep === step)
          resolve(event.value.action!.steps.map(({ values }) => values));
        else if (event.case === "hold" || event.case === "run") sense();
      };
      sense();
    });

  const goal = { model: "reference/potential-nav", max_seconds: 120, wait_s: 0, robot_id: "base-1" };
  const refused = await mcp.use("run_policy", goal);
  expect(refused).toMatchObject({ isError: true, body: { error: { code: "robot_not_armed" } } });
  const arm = { robot_id: "base-1", key_id: own.id, models: [goal.model], max_seconds: 300, expires_in: 600 };
  const bounds = { lowest: [-1, -3], highest: [1, 3] };
  expect((await app.call("/v1/robots/arm", { ...arm, bounds }, { key: operator.key })).status).toBe(201);

  const url = `data:image/png;base64,${(await redSquare(0.7, 0.3)).toString("base64")}`;
  const looked = { instruction: "the red square", observations: [{ frames: [{ camera: "overhead", url }] }] };
  const { body: seen } = await mcp.use("ground", looked);
  expect(seen.points[0].x).toBeCloseTo(0.7, 1);
  const driven = arena.run(1, async ({ proprio }) => ({ rows: await chunkFor(proprio), latencyMs: 0 }), {
    mode: "sync",
    replanSteps: undefined,
  });
  const { body } = await mcp.use("run_policy", { ...goal, instruction: `drive to ${seen.points[0].x} of the width` });
  const record = await driven;
  expect(record).toMatchObject({ success: true, termination: "success" });
  expect((await mcp.use("cancel_run", { run_id: body.run.id })).body.run).toMatchObject({ why: "cancelled" });
  await eventually(async () => {
    const { run } = (await mcp.use("get_run", { run_id: body.run.id })).body;
    expect(run.chunks).toBeGreaterThanOrEqual(record.policyCalls);
    expect(run.cost_usd).toBeGreaterThan(0);
  });
  robot.leave();
  arena.close();
}, 60_000);
