/** Evaluations whose policies are slow, hang, or are not there: nobody else waits for them, and they end. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { ACT_DECLARATION, type App } from "../../support/app.ts";
import { beginEvaluation, endedEvaluation, evaluationNow } from "../../support/evaluations.ts";
import { eventually } from "../../support/eventually.ts";
import { honestSteps, type Model } from "../../support/model.ts";
import { startOpenpiServer } from "../../support/openpi-server.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
const models: Model[] = [];

beforeAll(async () => {
  app = await ownGateway({ roles: new Set(["api", "worker"]) });
});
afterAll(async () => {
  for (const model of models) await model.close();
});

/** A model of its own, so that no other test's breaker is open. */
async function supplied(slug: string): Promise<Model> {
  const model = await openModel();
  models.push(model);
  await app.supply({ provider: "acme", model: slug, endpoint: model.endpoint });
  return model;
}

const evaluate = (key: string, body?: object) => beginEvaluation(app, key, body);
const shown = (id: string, key: string) => evaluationNow(app, id, key);
const ended = (id: string, key: string) => endedEvaluation(app, id, key);

it("other organizations are evaluated while one has more hanging evaluations than slots", async () => {
  const [slow, quick] = [await app.caller(100), await app.caller()];
  const sessions = new Set<string>();
  const hanging = await supplied("acme/hanging");
  await supplied("acme/quick");
  hanging.script.act = ({ sessionId }) => void sessions.add(sessionId ?? "");
  const asked = { policy_endpoint: "acme/hanging" };
  const ids = await Promise.all(Array.from({ length: 20 }, () => evaluate(slow.key, asked)));
  // One organisation has half of the places.
  await eventually(() => expect(sessions.size).toBe(8), { timeout: 60_000 });
  const other = await evaluate(quick.key, { policy_endpoint: "acme/quick" });
  expect(await ended(other, quick.key)).toMatchObject({ status: "completed" });
  expect(sessions.size).toBe(8);
  // Those that wait first, so that none of them begins.
  const waits = await Promise.all(
    ids.map(async (id) => ({ id, first: (await shown(id, slow.key)).status === "queued" })),
  );
  for (const { id } of waits.toSorted((a, b) => Number(b.first) - Number(a.first)))
    await app.call(`/v1/evaluate/${id}`, undefined, { key: slow.key, method: "DELETE" });
  for (const id of ids) expect((await ended(id, slow.key)).status).toBe("cancelled");
});

it.each([
  ["five times by default", {}, 5],
  ["as many times as requested", { stop_after_faults: 2 }, 2],
])("an unreachable policy is attempted %s", async (_, asked, tries) => {
  const { key } = await app.caller();
  const server = await startOpenpiServer();
  await server.close();
  const id = await evaluate(key, { policy_endpoint: server.endpoint, episodes: 200, ...asked });
  expect(await ended(id, key)).toMatchObject({
    status: "failed",
    episodes: { requested: 200, completed: 0, errored: tries },
    error: { code: "policy_disconnected", message: expect.stringContaining(`${tries} episodes in a row`) },
    usage: { episodes: 0 },
  });
});

it("different faults, or faults around an episode without one, do not end an evaluation early", async () => {
  const { key } = await app.caller();
  const sessions: (string | undefined)[] = [];
  const model = await supplied("acme/flaky");
  model.script.act = (call, answer, served) => {
    if (!sessions.includes(call.sessionId)) sessions.push(call.sessionId);
    const episode = sessions.indexOf(call.sessionId);
    if (episode % 2 === 0) served.end(13, "no");
    else answer(honestSteps(call, 2));
  };
  const end = await ended(
    await evaluate(key, { policy_endpoint: "acme/flaky", episodes: 5, stop_after_faults: 2 }),
    key,
  );
  expect(end).toMatchObject({ status: "completed", episodes: { completed: 2, errored: 3 } });
});

it("the wall-time budget is reported, and ends an evaluation with the scores of the completed episodes", async () => {
  const { key } = await app.caller(100);
  const model = await supplied("acme/late");
  const late = { policy_endpoint: "acme/late" };
  expect(await shown(await evaluate(key, { ...late, episodes: 1 }), key)).toMatchObject({ wall_budget_s: 600 });
  expect(await shown(await evaluate(key, { ...late, episodes: 20 }), key)).toMatchObject({ wall_budget_s: 1200 });
  model.script.act = () => {};
  const id = await evaluate(key, {
    policy_endpoint: "acme/late",
    episodes: 90,
    policy_timeout_ms: 700,
    wall_budget_s: 1,
    stop_after_faults: 90,
  });
  const end = await ended(id, key);
  expect(end).toMatchObject({
    status: "expired",
    wall_budget_s: 1,
    error: { code: "wall_budget_exhausted" },
    episodes: { requested: 90, completed: 0, errored: end.per_episode.length },
    usage: { episodes: 0 },
  });
  expect(end.scores.success_rate.n).toBe(end.per_episode.length);
  expect(end.per_episode.length).toBeLessThan(90);
  expect(end.per_episode[0].wall_ms).toBeGreaterThan(0);
});

it("16 policies are compared although one hangs, one lies about its dimensions, one answers NaN and one is not there", async () => {
  const caller = await app.caller();
  const policy = async (script: Model["script"]["act"]): Promise<object> => {
    const model = await openModel({ act: script });
    return { policy_endpoint: model.endpoint, horizon: 16 };
  };
  const space = { action_spaces: ["continuous_nd"], action_dim: 1 };
  const liar = await openModel();
  await app.supply({ provider: "acme", model: "acme/liar", endpoint: liar.endpoint, ...space });
  liar.script.act = ({ horizon }, answer) => answer(Array(horizon).fill([0, 0]));
  const gone = await openModel();
  await gone.close();
  const bad = [
    await policy(() => {}),
    { policy_endpoint: "acme/liar", horizon: 16 },
    await policy(({ horizon }, answer) => answer(Array(horizon).fill([Number.NaN]))),
    { policy_endpoint: gone.endpoint, horizon: 16 },
  ];
  const good = await policy(({ horizon }, answer) => answer(Array(horizon).fill([0])));
  const policies = [...bad, ...Array(16 - bad.length).fill(good)];
  const asked = { scenario: "cartpole-balance", episodes: 2, policy_timeout_ms: 10_000, stop_after_faults: 1 };
  const compare = (of: object[]) => app.call("/v1/evaluate/compare", { ...asked, policies: of }, { key: caller.key });

  const other = { key: (await app.caller()).key };
  await app.call("/v1/supply/providers", { name: "hidden" }, other);
  const declared = { ...ACT_DECLARATION, ...space, model: "hidden/secret", endpoint: liar.endpoint };
  const kept = await app.call("/v1/supply/providers/hidden/models", declared, other);
  expect(kept.status, kept.text).toBeLessThan(300);
  const refused = await compare([...policies.slice(0, 15), { policy_endpoint: "hidden/secret" }]);
  expect([refused.status, refused.body.error.param], refused.text).toEqual([404, "policies.15.policy_endpoint"]);
  expect((await app.call("/v1/jobs", undefined, { key: caller.key })).body.data).toEqual([]);

  const taken = await compare(policies);
  expect(taken.status, taken.text).toBe(202);
  const end = await eventually(
    async () => {
      const now = await app.call(`/v1/evaluate/compare/${taken.body.id}`, undefined, { key: caller.key });
      expect(now.body.status, now.text).toBe("completed");
      return now.body;
    },
    { timeout: 120_000, interval: 250 },
  );
  const ends = end.policies.map(({ error, rank }: { error?: { code: string; message: string }; rank?: number }) =>
    error ? [error.code, error.message] : rank,
  );
  expect(ends).toEqual([
    ["policy_timeout", expect.stringContaining("did not respond within 10000 ms")],
    ["action_dim_mismatch", expect.stringContaining("acme action dim mismatch")],
    ["invalid_action", expect.stringContaining("a non-finite number")],
    ["policy_disconnected", expect.stringContaining("could not be reached")],
    ...Array(12).fill(1),
  ]);
  expect(end.verdict.text).toContain("A was not compared: policy_timeout");
  expect(end.pairs).toHaveLength((12 * 11) / 2);
  expect(end.usage).toMatchObject({ episodes: 24 });
  const { body } = await app.call("/v1/billing/balance", undefined, { key: caller.key });
  expect(body.spent_usd).toBeCloseTo(24 * 0.01, 6);
}, 240_000);
