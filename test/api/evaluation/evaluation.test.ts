/** Evaluations: a policy in a scenario, by jobs. */
import { beforeAll, describe, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import { readEvents } from "../../support/clients.ts";
import { eventually } from "../../support/eventually.ts";
import { honestSteps, type Model } from "../../support/model.ts";
import { startOpenpiServer } from "../../support/openpi-server.ts";
import type { Served } from "../../support/policy-server.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  model = await openModel();
  app = await ownGateway({ roles: new Set(["api", "worker"]) });
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  caller = await app.caller();
});

type Answering = (steps: readonly (readonly number[])[]) => void;

const NAV = {
  ...{ policy_endpoint: "acme/base", scenario: "base-nav", episodes: 3, policy_timeout_ms: 5000 },
  ...{ horizon: 16, replan_steps: 16 },
};
const evaluate = (body: object, key = caller.key) => app.call("/v1/evaluate", body, { key });
const shown = (id: string, key = caller.key) => app.call(`/v1/evaluate/${id}`, undefined, { key });
const ended = (id: string) =>
  eventually(
    async () => {
      const { body } = await shown(id);
      expect(["completed", "failed", "cancelled", "expired"]).toContain(body.status);
      return body;
    },
    { timeout: 60_000, interval: 100 },
  );

describe("202", () => {
  it("evaluates a gateway model and ends with scores, seeds, digests and an exact charge", async () => {
    const before = (await app.call("/v1/billing/balance", undefined, { key: caller.key })).body;
    const taken = await evaluate({ ...NAV, seed: 7, media: "strip", metadata: { run: "a" } });
    expect(taken.status, taken.text).toBe(202);
    expect(taken.body).toMatchObject({
      id: expect.stringMatching(/^job_/),
      object: "evaluation.job",
      kind: "evaluate",
      policy: { endpoint: "acme/base", protocol: "gateway", action_space: "base_twist_2d" },
      scenario: { id: "base-nav", engine: "mujoco-wasm", action_dim: 2, dt_ms: 100, max_steps: 300, mode: "sync" },
      progress: { completed: 0, total: 3 },
      metadata: { run: "a" },
    });
    const body = await ended(taken.body.id);
    expect(body).toMatchObject({
      status: "completed",
      policy: { model: "acme/base" },
      progress: { completed: 3, total: 3 },
      episodes: { requested: 3, completed: 3, errored: 0 },
      usage: { episodes: 3, cost_usd: 0.03 },
      route: { simulated: false },
      reproducibility: { hash: expect.stringMatching(/^sha256:[0-9a-f]{64}$/), replay_verified: true },
    });
    expect(body.per_episode.map(({ index, seed }: { index: number; seed: number }) => [index, seed])).toEqual([
      [0, 7],
      [1, 8],
      [2, 9],
    ]);
    expect(body.scores.success_rate).toMatchObject({
      n: 3,
      ci95: { method: "wilson" },
      ci95_exact: { low: expect.any(Number) },
    });
    expect(body.per_episode[0].picture_url).toMatch(/^data:image\/png;base64,/);
    const after = (await app.call("/v1/billing/balance", undefined, { key: caller.key })).body;
    const usage = (await app.call("/v1/usage?limit=500", undefined, { key: caller.key })).body;
    expect(after.spent_usd - before.spent_usd).toBeCloseTo(usage.totals.cost_usd, 6);
    const episodes = usage.data.filter(({ contract }: { contract: string }) => contract === "evaluate");
    expect(episodes).toHaveLength(3);
    expect(episodes[0]).toMatchObject({ model: "base-nav", units: 1, unit: "episode", cost_usd: 0.01 });
  });

  it("gives the same scores bit for bit for the same seeds and the same policy", async () => {
    const runs = [await evaluate({ ...NAV, episodes: 2 }), await evaluate({ ...NAV, episodes: 2 })];
    const ends = await Promise.all(runs.map(({ body }) => ended(body.id)));
    expect(ends[0].reproducibility.hash).toBe(ends[1].reproducibility.hash);
    expect(ends[0].per_episode.map((each: { trajectory_sha256: string }) => each.trajectory_sha256)).toEqual(
      ends[1].per_episode.map((each: { trajectory_sha256: string }) => each.trajectory_sha256),
    );
  });

  it("reports each episode as it ends, then the result", async () => {
    const { body } = await evaluate({ ...NAV, episodes: 2 });
    const stream = await readEvents(app, `/v1/evaluate/${body.id}/events`, undefined, caller.key);
    const events = await stream.rest();
    expect(events.map(({ event }) => event)).toEqual(["episode", "episode", "done"]);
    expect(events.at(-1)?.data).toMatchObject({ status: "completed", scores: { success_rate: { n: 2 } } });
  });

  it("counts episodes that the policy failed as failures, without a charge and with the reason", async () => {
    model.script.act = (_call, _answer, served) => served.stream.close();
    const { body } = await evaluate({ ...NAV, episodes: 2, policy_timeout_ms: 500 });
    const end = await ended(body.id);
    model.script.act = undefined;
    expect(end).toMatchObject({ status: "failed", episodes: { errored: 2 }, usage: { episodes: 0, cost_usd: 0 } });
    expect(end.scores.success_rate.value).toBe(0);
    expect(["policy_timeout", "policy_error", "policy_disconnected"]).toContain(end.error.code);
  });

  it.each([
    ["crashes", "policy_disconnected", 60_000, (served: Served) => served.stream.close()],
    ["hangs", "policy_timeout", 3_000, () => {}],
    ["answers NaN", "invalid_action", 60_000, (_: Served, answer: Answering) => answer([[Number.NaN, 0]])],
  ])(
    "fails the episode in which the policy %s, with its reason, and continues with the next",
    async (_, termination, policy_timeout_ms, fail) => {
      let asked = 0;
      const sessions: (string | undefined)[] = [];
      model.script.act = (call, answer, served) => {
        // Each episode is a session, under a name that tells the model nothing.
        if (!sessions.includes(call.sessionId)) sessions.push(call.sessionId);
        if (call.sessionId === sessions[1] && ++asked > 3) fail(served, answer);
        else answer(honestSteps(call, 2));
      };
      const { body } = await evaluate({ ...NAV, policy_timeout_ms });
      const end = await ended(body.id);
      model.script.act = undefined;
      expect(end).toMatchObject({
        status: "completed",
        episodes: { requested: 3, completed: 2, errored: 1 },
        usage: { episodes: 2, cost_usd: 0.02 },
        scores: { success_rate: { n: 3 } },
      });
      const [, second] = end.per_episode;
      expect(second).toMatchObject({ index: 1, status: "error", error: expect.any(String) });
      expect(second.steps).toBeGreaterThan(0);
      // What fails at the wire may be told as what came of the try after it.
      expect([termination, "policy_error"]).toContain(second.termination);
    },
  );

  it.each([
    ["a policy of the right dimension is tried", 2, "completed", "max_steps"],
    ["one of a wrong dimension is told from a bad one", 7, "failed", "action_dim_mismatch"],
  ])("calls a policy at an address over its wire: %s", async (_, dim, status, termination) => {
    const server = await startOpenpiServer();
    try {
      server.behave({ kind: "steps", steps: Array.from({ length: 16 }, () => Array.from({ length: dim }, () => 0)) });
      const taken = await evaluate({ ...NAV, policy_endpoint: server.endpoint, episodes: 1 });
      expect(taken.status, taken.text).toBe(202);
      const end = await ended(taken.body.id);
      expect(end).toMatchObject({ status, policy: { protocol: "openpi-ws" }, per_episode: [{ termination }] });
    } finally {
      await server.close();
    }
  });
});

describe("DELETE", () => {
  it("cancels an evaluation inside an episode, keeps completed ones, then returns 409", async () => {
    model.script.act = () => {};
    const { body } = await evaluate({ ...NAV, episodes: 5, policy_timeout_ms: 60_000 });
    await eventually(async () => expect((await shown(body.id)).body.status).toBe("running"));
    const off = await app.call(`/v1/evaluate/${body.id}`, undefined, { key: caller.key, method: "DELETE" });
    expect(off.status).toBe(200);
    const end = await ended(body.id);
    model.script.act = undefined;
    expect(end).toMatchObject({ status: "cancelled", usage: { episodes: 0 } });
    const again = await app.call(`/v1/evaluate/${body.id}`, undefined, { key: caller.key, method: "DELETE" });
    expect([again.status, again.body.error.code]).toEqual([409, "job_finished"]);
    const held = (await app.call("/v1/billing/balance", undefined, { key: caller.key })).body.held_usd;
    expect(held).toBeLessThan(10);
  });

  it.each([
    ["completed", undefined],
    ["failed", (_: unknown, __: unknown, served: Served) => served.end(13, "no")],
  ] as const)("says 409 to an evaluation that has %s, and leaves it as it is", async (status, answer) => {
    model.script.act = answer;
    const { body } = await evaluate({ ...NAV, episodes: 1 });
    const end = await ended(body.id);
    model.script.act = undefined;
    expect(end.status).toBe(status);
    const off = await app.call(`/v1/evaluate/${body.id}`, undefined, { key: caller.key, method: "DELETE" });
    expect([off.status, off.body.error.code]).toEqual([409, "job_finished"]);
    expect((await shown(body.id)).body).toEqual(end);
  });
});

describe("refusals", () => {
  it.each([
    ["no episodes", { ...NAV, episodes: 0 }, 422, "validation_failed"],
    ["10,001 episodes", { ...NAV, episodes: 10_001 }, 422, "validation_failed"],
    ["a scenario that never was", { ...NAV, scenario: "base-nap" }, 404, "not_found"],
    ["an action space that the scenario has not", { ...NAV, action_space: "joint_pos_7" }, 422, "validation_failed"],
    ["an unknown model", { ...NAV, policy_endpoint: "acme/unknown" }, 404, "model_not_found"],
    ["a model of another action space", { ...NAV, scenario: "arm-reach" }, 422, "action_space_mismatch"],
    ["a scheme that no wire has", { ...NAV, policy_endpoint: "ftp://127.0.0.1/" }, 422, "validation_failed"],
    ["more steps than are asked for", { ...NAV, horizon: 4, replan_steps: 5 }, 422, "validation_failed"],
    ["an unknown field", { ...NAV, epsiodes: 3 }, 422, "validation_failed"],
  ])("refuses %s", async (_, body, status, code) => {
    const answer = await evaluate(body);
    expect([answer.status, answer.body.error.code]).toEqual([status, code]);
  });

  it("accepts at most 10,000 episodes and returns their credit on cancellation", async () => {
    const rich = await app.caller(1_500);
    const { status, body } = await evaluate({ ...NAV, episodes: 10_000 }, rich.key);
    expect([status, body.progress]).toEqual([202, { completed: 0, total: 10_000 }]);
    await app.call(`/v1/evaluate/${body.id}`, undefined, { key: rich.key, method: "DELETE" });
    await eventually(async () => expect((await shown(body.id, rich.key)).body.status).toBe("cancelled"));
  });

  it("suggests names near a misspelled scenario", async () => {
    expect((await evaluate({ ...NAV, scenario: "base-nap" })).body.error.message).toContain("base-nav");
  });

  it("refuses before anything runs if the balance does not cover the episodes", async () => {
    const poor = await app.caller(0.02);
    const { status, body } = await evaluate(NAV, poor.key);
    expect([status, body.error.code]).toEqual([402, "insufficient_credits"]);
    expect((await app.call("/v1/jobs", undefined, { key: poor.key })).body.data).toEqual([]);
  });

  it("returns 404 for another organization's evaluation", async () => {
    const { body } = await evaluate({ ...NAV, episodes: 1 });
    const stranger = await app.caller();
    expect((await shown(body.id, stranger.key)).status).toBe(404);
    await ended(body.id);
  });

  it("requires the scope evaluate", async () => {
    const key = await app.key(caller.org, { role: "developer", scopes: ["act"] });
    expect((await evaluate(NAV, key)).status).toBe(403);
  });
});
