/** An agent closes `base-nav` over the Model Context Protocol: it looks by ground, and a model acts through a robot that a person armed. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { redSquare } from "../../../src/upstream/pictures/test-picture.ts";
import { type App, openApp } from "../../support/app.ts";
import { attendBase } from "../../support/armed-base.ts";
import { type Agent, agent } from "../../support/attending.ts";
import { eventually } from "../../support/eventually.ts";

let app: App;
let mcp: Agent;

beforeAll(async () => {
  app = await openApp({ referenceSupply: true });
}, 120_000);
afterAll(async () => {
  await mcp.close();
  await app.close();
});

it("an agent reads where a robot can go, has the armed robot driven there, and ends the run", async () => {
  const people = await app.caller(100);
  const key = async (more: object) =>
    (await app.admin(`/v1/orgs/${people.org}/keys`, more)) as { key: string; id: string };
  const [operator, robotKey, own] = [await key({ role: "operator" }), await key({}), await key({ role: "developer" })];
  mcp = await agent(app, own.key);

  const base = await attendBase(app, robotKey.key, "base-1");
  await base.attends;

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
  const driven = base.drive();
  const { body } = await mcp.use("run_policy", { ...goal, instruction: `drive to ${seen.points[0].x} of the width` });
  const record = await driven;
  expect(record).toMatchObject({ success: true, termination: "success" });
  expect((await mcp.use("cancel_run", { run_id: body.run.id })).body.run).toMatchObject({ why: "cancelled" });
  await eventually(async () => {
    const { run } = (await mcp.use("get_run", { run_id: body.run.id })).body;
    expect(run.chunks).toBeGreaterThanOrEqual(record.policyCalls);
    expect(run.cost_usd).toBeGreaterThan(0);
  });
  base.leave();
}, 60_000);
