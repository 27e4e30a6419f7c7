/** Runners outside: an evaluation that the gateway can't run is taken, reported and finished over the API. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { importCatalog } from "../../../src/store/supply/catalog.ts";
import { type App, type Caller, openApp } from "../../support/app.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { brokenInvariants } from "../../support/invariants.ts";

const DATA = join(import.meta.dirname, "../../../data");
const EXAMPLE = join(import.meta.dirname, "../../../examples/evaluation-runner.ts");
const BENCHMARK = "1x/1x-world-model-challenge";

let database: FreshDatabase;
let app: App;
let caller: Caller;
/** A second key of the same organisation. */
let other: string;

beforeAll(async () => {
  database = await freshDatabase();
  await importCatalog(database.sql, DATA);
  app = await openApp({ database, roles: new Set(["api", "worker"]) });
  caller = await app.caller();
  other = await app.key(caller.org, { role: "operator", scopes: ["evaluate"] });
}, 60_000);
afterAll(async () => {
  expect(await brokenInvariants(database.sql)).toEqual([]);
  await app.gateway.close(0);
  await database.close();
});

const ASKED = { policy_endpoint: "ws://robot.lan:8000", scenario: BENCHMARK, runner: "external", episodes: 3, seed: 7 };
const evaluate = (body: object = {}, key = caller.key) => app.call("/v1/evaluate", { ...ASKED, ...body }, { key });
const shown = async (id: string) => (await app.call(`/v1/evaluate/${id}`, undefined, { key: caller.key })).body;
const claim = (body: object = {}, key = caller.key) =>
  app.call("/v1/evaluate/claims", { harness: "vla-eval 0.3.1", ...body }, { key });
const beat = (id: string, epoch: number, key = caller.key) =>
  app.call(`/v1/evaluate/${id}/heartbeat`, { epoch }, { key });
const report = (id: string, epoch: number, index: number, body: object = {}, key = caller.key) =>
  app.call(
    `/v1/evaluate/${id}/episodes`,
    { epoch, index, termination: "success", return: 1, steps: 40, sim_time_s: 2, latencies_ms: [5, 7], ...body },
    { key },
  );
const finish = (id: string, epoch: number, body: object = {}, key = caller.key) =>
  app.call(`/v1/evaluate/${id}/finish`, { epoch, ...body }, { key });
const spent = async () => (await app.call("/v1/billing/balance", undefined, { key: caller.key })).body.spent_usd;
const codeOf = ({ status, body }: { status: number; body: { error?: { code: string } } }) => [status, body.error?.code];
/** Lets the time of whoever holds the evaluation be over. */
const pass = (id: string) => app.sql`update job set lease_until = now() - interval '1 second' where id = ${id}`;
/** An evaluation in the hands of a runner. */
const taken = async (body: object = {}) => {
  const { id } = (await evaluate(body)).body;
  return { id, epoch: (await claim()).body.claim.epoch as number };
};

describe("an evaluation runner", () => {
  it("claims an evaluation, reports its episodes in any order, and ends it with scores and an exact charge", async () => {
    const before = await spent();
    const asked = await evaluate({ metadata: { run: "a" } });
    expect(asked.status, asked.text).toBe(202);
    expect(asked.body).toMatchObject({
      status: "queued",
      runner: "external",
      policy: { endpoint: "ws://robot.lan:8000", protocol: "external" },
      scenario: { id: BENCHMARK, engine: "external", digest: "" },
    });
    const { id } = asked.body;
    const got = await claim({ scenarios: [BENCHMARK], lease_s: 90 });
    expect(got.body.claim).toMatchObject({
      epoch: 1,
      lease_s: 90,
      open_episodes: [0, 1, 2],
      seed: 7,
      horizon: 16,
      replan_steps: 4,
      evaluation: { id, status: "running", harness: "vla-eval 0.3.1", metadata: { run: "a" } },
    });
    expect(got.body.claim.lease_until - Date.now() / 1000).toBeGreaterThan(80);
    expect((await claim()).body).toEqual({});
    expect((await beat(id, 1)).body).toMatchObject({ stop: false, lease_until: expect.any(Number) });

    expect((await report(id, 1, 2)).body).toMatchObject({ stop: false, progress: { completed: 1, total: 3 } });
    await report(id, 1, 0, { termination: "max_steps", return: 0.25, progress: 0.5, metrics: { reward: 0.25 } });
    expect(codeOf(await finish(id, 1))).toEqual([409, "episodes_missing"]);
    await report(id, 1, 1, { termination: "policy_timeout", error: "it hung", return: 0 });
    const end = await finish(id, 1);
    expect(end.status, end.text).toBe(200);
    expect(end.body).toMatchObject({
      status: "completed",
      harness: "vla-eval 0.3.1",
      episodes: { requested: 3, completed: 2, errored: 1 },
      usage: { episodes: 2, cost_usd: 0.02 },
      scores: { success_rate: { value: 1 / 3, successes: 1, n: 3, ci95: { method: "wilson" } }, policy_calls: 6 },
      per_episode: [
        { index: 0, seed: 7, status: "failure", progress: 0.5, metrics: { reward: 0.25 } },
        { index: 1, seed: 8, status: "error", error: "it hung" },
        { index: 2, seed: 9, status: "success" },
      ],
    });
    expect(await shown(id)).toEqual(end.body);
    expect((await spent()) - before).toBeCloseTo(0.02, 6);
    const [told] = await app.sql`select name from outbox where position(convert_to(${id}, 'UTF8') in payload) > 0`;
    expect(told).toEqual({ name: "evaluation.completed" });
  });

  it("is charged once per episode however often it reports one, and cannot change an outcome", async () => {
    const before = await spent();
    const { id, epoch } = await taken();
    const answers = await Promise.all([1, 2, 3].map(() => report(id, epoch, 0)));
    expect(answers.map(({ status }) => status)).toContain(200);
    expect((await report(id, epoch, 0)).status).toBe(200);
    expect(codeOf(await report(id, epoch, 0, { termination: "fell" }))).toEqual([409, "episode_reported"]);
    expect((await spent()) - before).toBeCloseTo(0.01, 6);
    await finish(id, epoch, { error: { code: "harness_broke", message: "no more" } });
  });

  it("that is lost loses its evaluation to the next runner, which runs the remaining episodes and keeps no data of the first", async () => {
    const before = await spent();
    const { id, epoch } = await taken();
    await report(id, epoch, 1);
    await pass(id);
    const next = (await claim({ harness: "vla-eval 0.4.0" }, other)).body.claim;
    expect(next).toMatchObject({ epoch: epoch + 1, open_episodes: [0, 2], evaluation: { progress: { completed: 1 } } });
    for (const fenced of [await beat(id, epoch), await report(id, epoch, 0), await finish(id, epoch)])
      expect(codeOf(fenced)).toEqual([409, "claim_lost"]);
    expect(codeOf(await report(id, next.epoch, 0))).toEqual([409, "claim_lost"]);
    expect((await shown(id)).progress.completed).toBe(1);
    for (const index of [0, 2]) expect((await report(id, next.epoch, index, {}, other)).status).toBe(200);
    expect((await finish(id, next.epoch, {}, other)).body).toMatchObject({
      status: "completed",
      harness: "vla-eval 0.4.0",
    });
    expect((await spent()) - before).toBeCloseTo(0.03, 6);
    expect(codeOf(await report(id, next.epoch, 0, {}, other))).toEqual([409, "claim_lost"]);
  });

  it("receives the cancellation of its evaluation, which also ends if the runner never returns", async () => {
    const { id, epoch } = await taken();
    await report(id, epoch, 0);
    const off = await app.call(`/v1/evaluate/${id}`, undefined, { key: caller.key, method: "DELETE" });
    expect(off.body.status).toBe("cancelling");
    expect((await beat(id, epoch)).body.stop).toBe(true);
    expect((await finish(id, epoch)).body).toMatchObject({ status: "cancelled", usage: { episodes: 1 } });

    const lost = await taken();
    await app.call(`/v1/evaluate/${lost.id}`, undefined, { key: caller.key, method: "DELETE" });
    await pass(lost.id);
    await app.sql`select pg_notify('job', ${lost.id})`;
    await eventually(async () => expect((await shown(lost.id)).status).toBe("cancelled"));
  });

  it("ends its evaluation with its own error, and the evaluation fails if every episode was a fault", async () => {
    const broken = await taken();
    const error = { code: "gpu_lost", message: "the simulator's card is gone" };
    expect((await finish(broken.id, broken.epoch, { error })).body).toMatchObject({ status: "failed", error });
    const faulty = await taken({ episodes: 1 });
    await report(faulty.id, faulty.epoch, 0, { termination: "invalid_action", error: "NaN" });
    expect((await finish(faulty.id, faulty.epoch)).body).toMatchObject({
      status: "failed",
      error: { code: "invalid_action", message: "NaN" },
      usage: { episodes: 0, cost_usd: 0 },
    });
  });

  it("receives only what its harness can run, and nothing of another organization", async () => {
    const { id } = (await evaluate()).body;
    expect((await claim({ scenarios: ["another/benchmark"] })).body).toEqual({});
    const stranger = await app.caller();
    expect((await claim({}, stranger.key)).body).toEqual({});
    expect(codeOf(await beat(id, 1, stranger.key))).toEqual([404, "not_found"]);
    const { epoch } = (await claim()).body.claim;
    await finish(id, epoch, { error: { code: "done", message: "done" } });
  });
});

describe("the example runner", () => {
  it("claims waiting evaluations, calls the policy through the gateway, and ends each with its scores", async () => {
    const reference = await openApp({ database, roles: new Set(["api"]), referenceSupply: true });
    try {
      const { id } = (await evaluate({ policy_endpoint: "reference/potential-nav", episodes: 2 })).body;
      const { stdout } = await promisify(execFile)(process.execPath, [EXAMPLE, reference.url, caller.key, BENCHMARK]);
      expect(stdout).toContain(`${id} completed: 2 of 2\n`);
      expect(await shown(id)).toMatchObject({ status: "completed", harness: "example 1.0", usage: { episodes: 2 } });
    } finally {
      await reference.close();
    }
  });
});

describe("a refused external evaluation", () => {
  it("names what a catalog-only benchmark needs, and that a runner can claim it", async () => {
    const answer = await evaluate({ runner: undefined });
    expect(codeOf(answer)).toEqual([409, "scenario_not_runnable"]);
    expect(answer.body.error.message).toMatch(/harness.*external.*\/v1\/evaluate\/claims/);
  });

  it.each([
    ["an unknown benchmark", { scenario: "nobody/nothing" }, 404, "not_found"],
    ["a scenario that runs here", { scenario: "base-nav" }, 422, "validation_failed"],
    ["pictures", { pictures: true }, 422, "validation_failed"],
    ["10,001 episodes", { episodes: 10_001 }, 422, "validation_failed"],
    ["no episodes", { episodes: 0 }, 422, "validation_failed"],
  ])("is an external evaluation of %s", async (_, body, status, code) => {
    expect(codeOf(await evaluate(body))).toEqual([status, code]);
  });

  it.each([
    ["an episode beyond the last", { index: 3 }],
    ["an unknown outcome", { termination: "bored" }],
    ["a non-finite return", { return: "NaN" }],
    ["a non-finite metric", { metrics: { reward: "Infinity" } }],
    ["progress beyond 1", { progress: 1.1 }],
    ["an invalid digest", { trajectory_sha256: "abc" }],
  ])("is %s", async (_, body) => {
    const { id, epoch } = await taken();
    expect(codeOf(await report(id, epoch, 0, body))).toEqual([422, "validation_failed"]);
    await finish(id, epoch, { error: { code: "done", message: "done" } });
  });

  it("needs a key with the scope evaluate and a role that can run jobs", async () => {
    const acting = await app.key(caller.org, { role: "developer", scopes: ["act"] });
    const viewing = await app.key(caller.org, { role: "viewer" });
    expect(codeOf(await claim({}, acting))).toEqual([403, "scope_denied"]);
    expect(codeOf(await claim({}, viewing))).toEqual([403, "permission_denied"]);
  });

  it("stores no episode that exceeds the balance, and the runner may report it again later", async () => {
    const poor = await app.caller(0.02);
    const { id } = (await evaluate({ episodes: 2 }, poor.key)).body;
    const { epoch } = (await claim({}, poor.key)).body.claim;
    expect((await report(id, epoch, 0, {}, poor.key)).status).toBe(200);
    await app.sql`update job set request = request || '{"priceMicro": 20000}' where id = ${id}`;
    expect(codeOf(await report(id, epoch, 1, {}, poor.key))).toEqual([402, "insufficient_credits"]);
    await app.admin(`/v1/orgs/${poor.org}/credits`, { amount_usd: 1 });
    expect((await report(id, epoch, 1, {}, poor.key)).status).toBe(200);
    expect((await finish(id, epoch, {}, poor.key)).body).toMatchObject({ status: "completed" });
  });
});
