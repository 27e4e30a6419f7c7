/** Robots that people arm for agents: what moves them, what never does, and what ends it. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { type Agent, type Attending, agent, attend, type Heard } from "../../support/attending.ts";
import { signedIn } from "../../support/browser.ts";
import { seeded } from "../../support/chance.ts";
import { eventually } from "../../support/eventually.ts";
import { person } from "../../support/members.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let elsewhere: App;
let model: Model;
let people: Caller;
let operator: { key: string; id: string };
let robotKey: string;
let agentKey: { key: string; id: string };
let mcp: Agent;
const robots: Attending[] = [];
let named = 0;

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway(), openModel()]);
  elsewhere = await ownGateway({ database: app.database });
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  await app.supply({ provider: "acme", model: "acme/other", endpoint: model.endpoint });
  people = await app.caller(100);
  operator = await made({ role: "operator" });
  robotKey = (await made({})).key;
  // The robots here sense as fast as they are answered.
  agentKey = await made({ role: "developer", rate_limit: { requests: 1_000_000, window_s: 1, burst: 1_000_000 } });
  mcp = await agent(app, agentKey.key);
  await eventually(async () =>
    expect((await elsewhere.call("/v1/models/acme/base", undefined, people)).status).toBe(200),
  );
});
afterEach(() => {
  for (const robot of robots.splice(0)) robot.leave();
});
afterAll(async () => {
  await mcp.close();
});

const made = async (more: object): Promise<{ key: string; id: string }> => {
  const { key, id } = await app.admin(`/v1/orgs/${people.org}/keys`, more);
  return { key, id };
};
const post = (path: string, body: object, key = operator.key, at = app) => at.call(path, body, { key });
const freshRobot = (): string => `arm-${++named}`;

const ARM = { models: ["acme/base"], max_seconds: 60, expires_in: 600 };
async function arm(robot_id: string, more: object = {}, key = operator.key) {
  const { status, body, text } = await post("/v1/robots/arm", { robot_id, key_id: agentKey.id, ...ARM, ...more }, key);
  if (status !== 201) throw new Error(text);
  return body as { id: string; ends: number };
}

/** A robot that waits, and senses on while a run moves it. */
async function waiting(
  robotId: string,
  { at = app, key = robotKey, open = {} }: { at?: App; key?: string; open?: object } = {},
) {
  let step = 0;
  let runs = false;
  const onHeard = (event: Heard, robot: Attending): void => {
    if (event.case === "run") runs = true;
    if (event.case === "over") runs = false;
    if (runs) robot.observe(++step);
  };
  const robot = attend(at, key, { robotId, actionSpace: "base_twist_2d", horizon: 4, ...open }, onHeard);
  robots.push(robot);
  await eventually(() => expect(robot.heard[0]?.case).toBe("opened"));
  return robot;
}

const run = (robot_id: string, more: object = {}, by: Agent = mcp) =>
  by.use("run_policy", { robot_id, model: "acme/base", max_seconds: 60, wait_s: 0, ...more });

/** A robot that an agent's run moves. */
async function moving(more: { at?: App; arming?: object } = {}) {
  const robotId = freshRobot();
  const robot = await waiting(robotId, more.at ? { at: more.at } : {});
  const arming = await arm(robotId, more.arming);
  const { body, isError } = await run(robotId);
  expect(isError, JSON.stringify(body)).toBe(false);
  await eventually(() => expect(robot.chunks).toBeGreaterThan(3));
  return { robotId, robot, arming, run: body.run as { id: string } };
}

const endOf = (robot: Attending) => robot.heard.findLast((event) => event.case === "over")?.value.run;
/** The run is over for the robot, and nothing of it came after that. */
async function isOver(robot: Attending, ...why: string[]): Promise<void> {
  await eventually(() => expect(endOf(robot)).toBeDefined());
  expect(why).toContain(endOf(robot)!.why);
  expect(robot.heard.at(-1)!.case).toBe("over");
  const { chunks } = robot;
  // What the robot still senses is answered by nothing.
  for (const step of [1, 2, 3]) robot.observe(100_000 + step);
  await run("nobody");
  expect(robot.chunks).toBe(chunks);
}
const auditOf = async (): Promise<{ action: string; actor: string; subject: string }[]> =>
  (await app.call(`/v1/audit?org_id=${people.org}&limit=500`, undefined, { admin: ADMIN_TOKEN })).body.data;

describe("an agent's run", () => {
  it("moves the armed robot, charges the agent's key, and is recorded", async () => {
    const { robotId, robot, run: began } = await moving();
    expect((await mcp.use("list_armings")).body.data).toMatchObject([{ robot_id: robotId, stands: true }]);
    const { body } = await mcp.use("cancel_run", { run_id: began.id });
    expect(body.run).toMatchObject({ why: "cancelled", robot_id: robotId });
    await isOver(robot, "cancelled");
    const started = robot.heard.find((event) => event.case === "run");
    const episodes = robot.heard.flatMap((event) => (event.case === "chunk" ? [event.value.episode] : []));
    expect(new Set(episodes)).toEqual(new Set([started?.value.episode]));
    await eventually(async () => {
      const shown = (await mcp.use("get_run", { run_id: began.id })).body.run;
      expect(shown).toMatchObject({ chunks: robot.chunks, ended: expect.any(Number) });
      const { data } = (await app.call(`/v1/usage?key_id=${agentKey.id}`, undefined, { key: people.key })).body;
      expect(data.length).toBeGreaterThan(0);
    });
    const acts = (await auditOf()).map(({ action, actor }) => `${action} by ${actor}`);
    for (const act of [
      `robot.armed by ${operator.id}`,
      `robot.run by ${agentKey.id}`,
      `robot.run_cancelled by ${agentKey.id}`,
    ])
      expect(acts).toContain(act);
  });

  it("is answered when it ends at its own time limit", async () => {
    const robotId = freshRobot();
    const robot = await waiting(robotId);
    await arm(robotId);
    const { body } = await run(robotId, { max_seconds: 1, wait_s: 20 });
    expect(body.run).toMatchObject({ why: "max_seconds" });
    await isOver(robot, "max_seconds");
  });

  it("moves a robot that attends on another replica", async () => {
    const { robot, run: began } = await moving({ at: elsewhere });
    await mcp.use("cancel_run", { run_id: began.id });
    await isOver(robot, "cancelled");
  });

  it("can start again after it ended, and never twice at once", async () => {
    const { robotId, robot, run: began } = await moving();
    expect(await run(robotId)).toMatchObject({ isError: true, body: { error: { code: "robot_busy" } } });
    await mcp.use("cancel_run", { run_id: began.id });
    await isOver(robot, "cancelled");
    const before = robot.chunks;
    expect((await run(robotId)).isError).toBe(false);
    await eventually(() => expect(robot.chunks).toBeGreaterThan(before));
  });

  it("is refused for a robot that does not attend, and does not start later", async () => {
    const robotId = freshRobot();
    await arm(robotId);
    expect(await run(robotId)).toMatchObject({ isError: true, body: { error: { code: "robot_absent" } } });
    const robot = await waiting(robotId);
    robot.observe(1);
    await run("nobody");
    expect(robot.heard.map(({ case: kind }) => kind)).toEqual(["opened"]);
  });
});

describe("what ends a run, and with it the arming where a person or a stop ended that", () => {
  const END: Readonly<Record<string, (of: Awaited<ReturnType<typeof moving>>) => Promise<unknown>>> = {
    "a stop of the robot": ({ robotId }) => post("/v1/robots/stop", { robot_id: robotId, reason: "x" }),
    "a stop of the agent's key": () => post("/v1/robots/stop", { key_id: agentKey.id, reason: "x" }),
    "a stop of who armed it": () => post("/v1/robots/stop", { key_id: operator.id, reason: "x" }, people.key),
    "a stop of everything": () => post("/v1/robots/stop", { all: true, reason: "x" }),
    "a stop at another replica": ({ robotId }) =>
      post("/v1/robots/stop", { robot_id: robotId, reason: "x" }, operator.key, elsewhere),
    "the agent's own stop": ({ robotId }) => mcp.use("stop_robots", { robot_id: robotId, reason: "x" }),
    "disarming it": ({ arming }) => post("/v1/robots/disarm", { arming_id: arming.id }),
  };

  it.each(Object.entries(END))("%s", async (_, end) => {
    const all = await moving();
    const { robotId, robot, arming } = all;
    await end(all);
    await isOver(robot, "stopped", "robot_stopped", "disarmed", "robot_not_armed");
    // A stop is in force before it is written, and the arming ends with its writing.
    const stands = async (): Promise<boolean> => {
      const { data } = (await app.call("/v1/robots/armings?ended=true", undefined, { key: operator.key })).body;
      return data.find(({ id }: { id: string }) => id === arming.id).stands;
    };
    await eventually(async () => expect(await stands()).toBe(false));
    // What was stopped is released; the arming stays over.
    const { data } = (await app.call("/v1/robots/stops", undefined, { key: operator.key })).body;
    for (const { id } of data) await post("/v1/robots/release", { stop_id: id }, people.key);
    expect(await stands()).toBe(false);
    expect(await run(robotId)).toMatchObject({ isError: true, body: { error: { code: "robot_not_armed" } } });
  });

  it("an answered stop lets no further chunk through", async () => {
    const { robotId, robot } = await moving();
    await post("/v1/robots/stop", { robot_id: robotId, reason: "x" });
    const after = robot.heard.length;
    await isOver(robot, "stopped", "robot_stopped");
    expect(robot.heard.slice(after).filter((event) => event.case === "chunk").length).toBeLessThanOrEqual(1);
    const { data } = (await app.call("/v1/robots/stops", undefined, { key: operator.key })).body;
    for (const { id } of data) await post("/v1/robots/release", { stop_id: id }, people.key);
  });

  it("the arming's expiry ends the run", async () => {
    let isMoving = false;
    // On a busy machine a short arming may have ended before the run begins.
    for (let expires_in = 2; !isMoving; expires_in *= 2) {
      const robotId = freshRobot();
      const robot = await waiting(robotId);
      await arm(robotId, { expires_in });
      isMoving = !(await run(robotId)).isError;
      if (isMoving) await isOver(robot, "max_seconds", "robot_not_armed");
    }
  });

  it("the armer's lost permission ends the run and the arming", async () => {
    const leaving = await made({ role: "operator" });
    const robotId = freshRobot();
    const robot = await waiting(robotId);
    await arm(robotId, {}, leaving.key);
    await run(robotId);
    await eventually(() => expect(robot.chunks).toBeGreaterThan(2));
    await app.sql`update key set role = 'viewer' where id = ${leaving.id}`;
    await isOver(robot, "operator_gone", "robot_not_armed");
    expect(await run(robotId)).toMatchObject({ isError: true, body: { error: { code: "robot_not_armed" } } });
  });

  it("the end of the armer's session ends the run and the arming", async () => {
    const { userId } = await person(app, people.org, "operator");
    const browser = await signedIn(app, people.org, userId);
    const robotId = freshRobot();
    const robot = await waiting(robotId);
    const armed = await browser.call("/v1/robots/arm", { robot_id: robotId, key_id: agentKey.id, ...ARM });
    expect(armed.status, armed.text).toBe(201);
    await run(robotId);
    await eventually(() => expect(robot.chunks).toBeGreaterThan(2));
    expect((await browser.call("/v1/session", undefined, { method: "DELETE" })).status).toBeLessThan(300);
    await isOver(robot, "operator_gone", "robot_not_armed");
    expect(await run(robotId)).toMatchObject({ isError: true, body: { error: { code: "robot_not_armed" } } });
  });

  it("revoking the agent's key or the robot's ends the run", async () => {
    const short = await made({ role: "developer" });
    const theirs = await agent(app, short.key);
    const robotId = freshRobot();
    const robot = await waiting(robotId);
    await arm(robotId, { key_id: short.id });
    expect((await run(robotId, {}, theirs)).isError).toBe(false);
    await eventually(() => expect(robot.chunks).toBeGreaterThan(2));
    await app.sql`update key set disabled = true where id = ${short.id}`;
    await isOver(robot, "key_disabled");
    await theirs.close();
    const own = await made({});
    const second = await waiting(freshRobot(), { key: own.key });
    await app.sql`update key set disabled = true where id = ${own.id}`;
    expect(String(await second.ended)).toContain("invalid API key");
  });

  it("a disconnect of the robot or of the waiting agent ends the run", async () => {
    const { robot, run: began } = await moving();
    robot.leave();
    await eventually(async () =>
      expect((await mcp.use("get_run", { run_id: began.id })).body.run).toMatchObject({ why: "robot_left" }),
    );
    const robotId = freshRobot();
    const second = await waiting(robotId);
    await arm(robotId);
    const left = new AbortController();
    const body = { robot_id: robotId, model: "acme/base", max_seconds: 60 };
    const waits = app.call("/v1/robots/runs", body, { key: agentKey.key, signal: left.signal }).catch(() => undefined);
    await eventually(() => expect(second.chunks).toBeGreaterThan(2));
    left.abort();
    await waits;
    await isOver(second, "caller_left");
  });
});

describe("authority only narrows", () => {
  const refused = (code: string) => ({ isError: true, body: { error: { code } } });

  it("the arming limits robot, models, time and agent", async () => {
    const robotId = freshRobot();
    await waiting(robotId);
    await arm(robotId, { max_seconds: 5 });
    expect(await run(robotId, { max_seconds: 6 })).toMatchObject(refused("robot_not_armed"));
    expect(await run(robotId, { model: "acme/other", max_seconds: 5 })).toMatchObject(refused("robot_not_armed"));
    expect(await run(freshRobot(), { max_seconds: 5 })).toMatchObject(refused("robot_not_armed"));
    const other = await agent(app, (await made({ role: "developer" })).key);
    expect(await run(robotId, { max_seconds: 5 }, other)).toMatchObject(refused("robot_not_armed"));
    expect((await other.use("list_armings")).body.data).toEqual([]);
    await other.close();
  });

  it("the arming's bounds and the robot's own both apply", async () => {
    const tight = { lowest: [-0.001], highest: [0.001] };
    for (const [arming, open] of [
      [{ bounds: tight }, {}],
      [{}, { bounds: tight }],
    ]) {
      const robotId = freshRobot();
      const robot = await waiting(robotId, { open: open! });
      await arm(robotId, arming);
      await run(robotId);
      await eventually(() => expect(robot.heard.filter((event) => event.case === "hold").length).toBeGreaterThan(0));
      expect(robot.chunks).toBe(0);
      robot.leave();
    }
  });

  it("the agent's and the robot's keys limit models and robots", async () => {
    const narrow = await made({ role: "developer", models: ["acme/other"] });
    const theirs = await agent(app, narrow.key);
    const robotId = freshRobot();
    const robot = await waiting(robotId);
    await arm(robotId, { key_id: narrow.id });
    await run(robotId, {}, theirs);
    await isOver(robot, "model_not_in_scope");
    await theirs.close();
    const second = freshRobot();
    const blind = await waiting(second, { key: (await made({ models: ["acme/other"] })).key });
    await arm(second);
    await run(second);
    await isOver(blind, "model_not_in_scope");
    expect(blind.chunks).toBe(0);
    const bound = attend(app, (await made({ robot_id: "one" })).key, { robotId: "two", actionSpace: "base_twist_2d" });
    expect(String(await bound.ended)).toContain("another robot");
  });

  it("a key cannot arm for itself, an application cannot arm, and a narrowed key grants no more than it holds", async () => {
    const body = (more: object) => ({ robot_id: "r", key_id: agentKey.id, ...ARM, ...more });
    const code = async (more: object, key: string) => (await post("/v1/robots/arm", body(more), key)).body.error?.code;
    expect(await code({ key_id: operator.id }, operator.key)).toBe("validation_failed");
    expect(await code({}, agentKey.key)).toBe("permission_denied");
    expect(await code({}, (await made({ role: "operator", models: ["acme/other"] })).key)).toBe("model_not_in_scope");
    expect(await code({}, (await made({ role: "operator", robot_id: "other" })).key)).toBe("scope_denied");
    expect(await code({}, (await made({ role: "operator", scopes: ["predict"] })).key)).toBe("scope_denied");
    expect(await code({ models: ["acme/*"] }, operator.key)).toBe("validation_failed");
    expect(await code({ expires_in: 86_401 }, operator.key)).toBe("validation_failed");
    const stranger = await app.caller(1);
    expect(await code({}, stranger.key)).toBe("not_found");
    const { id } = await arm(freshRobot());
    expect((await post("/v1/robots/disarm", { arming_id: id }, stranger.key)).status).toBe(404);
    expect((await app.call("/v1/robots/armings", undefined, { key: stranger.key })).body.data).toEqual([]);
  });

  it("arming in one workspace moves only that workspace's robots", async () => {
    const workspace = async (name: string): Promise<string> =>
      (await post(`/v1/orgs/${people.org}/workspaces`, { name }, people.key)).body.id;
    const [a, b] = [await workspace("a"), await workspace("b")];
    const inA = await made({ role: "operator", workspace_id: a });
    const agentA = await made({ role: "developer", workspace_id: a });
    const robotId = freshRobot();
    const theirs = await waiting(robotId, { key: (await made({ workspace_id: b })).key });
    expect((await post("/v1/robots/arm", { robot_id: robotId, key_id: agentKey.id, ...ARM }, inA.key)).status).toBe(
      404,
    );
    await arm(robotId, { key_id: agentA.id }, inA.key);
    const client = await agent(app, agentA.key);
    expect(await run(robotId, {}, client)).toMatchObject(refused("robot_absent"));
    expect(theirs.heard.map(({ case: kind }) => kind)).toEqual(["opened"]);
    const ours = await waiting(robotId, { key: (await made({ workspace_id: a })).key });
    expect((await run(robotId, {}, client)).isError).toBe(false);
    await eventually(() => expect(ours.chunks).toBeGreaterThan(0));
    expect(theirs.chunks).toBe(0);
    await client.close();
  });
});

it("no sequence of tool calls moves a robot that is not armed", async () => {
  const seed = Number(process.env.AGENT_SEED ?? 7);
  const chance = seeded(seed);
  const pick = <T>(all: readonly T[]): T => all[Math.floor(chance() * all.length)]!;
  const quiet = freshRobot();
  const robot = await waiting(quiet);
  // Another robot is armed for this agent, and an earlier arming of this one is over.
  const busy = freshRobot();
  await waiting(busy);
  await arm(busy);
  await post("/v1/robots/disarm", { arming_id: (await arm(quiet)).id });
  const act = { model: "acme/base", action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0.5] }] };
  const ids: string[] = ["run_01M80526TGMQ1E57VD2PJ4MK4Q"];
  const name = (): string => pick([quiet, busy, ` ${quiet}`, quiet.toUpperCase(), `${quiet}\u0000`]);
  const CALLS: Readonly<Record<string, () => object>> = {
    run_policy: () => ({
      robot_id: name(),
      model: pick(["acme/base", "acme/other", "service/auto"]),
      max_seconds: 1,
      wait_s: 0,
    }),
    act: () => ({ ...act, robot_id: name() }),
    get_run: () => ({ run_id: pick(ids) }),
    cancel_run: () => ({ run_id: pick(ids) }),
    list_armings: () => ({ ended: chance() < 0.5 }),
    preview_route: () => ({ request: act }),
    list_models: () => ({ limit: 1 }),
    arm_robot: () => ({ robot_id: quiet, key_id: agentKey.id, ...ARM }),
    attend_robot: () => ({ open: { robot_id: quiet, action_space: "base_twist_2d" } }),
  };
  for (let turn = 0; turn < 120; turn++) {
    const tool = pick(Object.keys(CALLS));
    robot.observe(turn);
    const said = await mcp.use(tool, CALLS[tool]!()).catch(() => undefined);
    if (said?.body.run?.id !== undefined) ids.push(said.body.run.id);
    expect(
      robot.heard.map(({ case: kind }) => kind),
      `seed ${seed}, turn ${turn}, ${tool}`,
    ).toEqual(["opened"]);
  }
});
