/** Comparisons: policies on equal seeds, their paired differences and a verdict. */
import { beforeAll, describe, expect, it } from "vitest";
import { ACT_DECLARATION, type App, type Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let caller: Caller;
let model: Model;

beforeAll(async () => {
  model = await openModel();
  app = await ownGateway({ roles: new Set(["api", "worker"]) });
  await app.supply({
    ...{ provider: "acme", model: "acme/base", endpoint: model.endpoint },
    action_spaces: ["base_twist_2d", "waypoint_se2"],
  });
  caller = await app.caller();
});

const NAV = { scenario: "base-nav", action_space: "waypoint_se2", episodes: 12, seed: 5, metric: "progress" };
const compare = (body: object, key = caller.key) => app.call("/v1/evaluate/compare", { ...NAV, ...body }, { key });
const shown = (id: string, key = caller.key) => app.call(`/v1/evaluate/compare/${id}`, undefined, { key });
const ended = (id: string) =>
  eventually(
    async () => {
      const { body } = await shown(id);
      expect(["completed", "failed", "cancelled"]).toContain(body.status);
      return body;
    },
    { timeout: 60_000, interval: 100 },
  );

/** A policy at an address: drives straight to the goal, or stands. */
async function policyOf(kind: "seek" | "stand"): Promise<object> {
  const { endpoint } = await openModel({
    act({ horizon, observations }, answer) {
      const [x = 0, y = 0, yaw = 0, goalX = 0, goalY = 0, goalYaw = 0] = observations.at(-1)?.proprio ?? [];
      const [dx, dy, cos, sin] = [goalX - x, goalY - y, Math.cos(yaw), Math.sin(yaw)];
      const rows = { seek: [dx * cos + dy * sin, dy * cos - dx * sin, goalYaw - yaw], stand: [0, 0, 0] };
      answer(Array.from({ length: horizon }, () => rows[kind]));
    },
  });
  return { policy_endpoint: endpoint, horizon: 16, replan_steps: 16 };
}

describe("comparisons", () => {
  it("report paired differences on equal seeds, stop once the better policy is known, and unblind at the end", async () => {
    const policies = [await policyOf("stand"), await policyOf("seek")];
    const taken = await compare({ policies, episodes: 200, blind: true, stop_when_known: true, metadata: { run: 1 } });
    expect(taken.status, taken.text).toBe(202);
    expect(taken.body).toMatchObject({
      id: expect.stringMatching(/^cmp_/),
      object: "evaluation.comparison",
      blind: true,
      episodes: 200,
      estimate: { episodes: 400, episodes_usd: 4, policy_calls: 7600, policy_calls_usd: 0, total_usd: 4 },
      metadata: { run: 1 },
    });
    expect(taken.body.policies.map((each: object) => Object.keys(each).includes("policy"))).toEqual([false, false]);
    const end = await ended(taken.body.id);
    expect(end.status).toBe("completed");
    const named = (at: number) =>
      end.policies.find(
        ({ policy }: { policy: { endpoint: string } }) =>
          policy.endpoint === (policies[at] as { policy_endpoint: string }).policy_endpoint,
      );
    const [still, seeking] = [named(0), named(1)];
    expect(end.verdict).toMatchObject({ known: true, best: [seeking.label] });
    // Unix seconds, which fit into the schema's 32 bits.
    expect(end.created_at).toBeLessThan(2 ** 32);
    expect(end.verdict.text).toContain(`${seeking.label} is better than ${still.label}`);
    expect([seeking.rank, still.rank]).toEqual([1, 2]);
    const [pair] = end.pairs;
    expect(pair).toMatchObject({
      better: seeking.label,
      anytime: { interval: { method: "betting" } },
    });
    expect(pair.anytime.known_after).toBeLessThan(200);
    expect(pair.n).toBeLessThan(200);
    expect(end.usage.episodes).toBeLessThan(400);
    expect(end.seeds[0]).toMatchObject({ seed: 5, outcomes: [{ label: "A" }, { label: "B" }] });
    const each = await app.call(`/v1/evaluate/${seeking.evaluation_id}`, undefined, { key: caller.key });
    expect(each.body.per_episode[0].seed).toBe(5);
  });

  it("call equal policies tied", async () => {
    const taken = await compare({ policies: [await policyOf("seek"), await policyOf("seek")], episodes: 3 });
    expect(taken.status, taken.text).toBe(202);
    const end = await ended(taken.body.id);
    expect(end).toMatchObject({ status: "completed", verdict: { known: false, best: ["A", "B"] } });
    expect(end.verdict.text).toMatch(/^Neither is known to be better: /);
    expect(end.pairs).toEqual([expect.objectContaining({ a: "A", b: "B", n: 3 })]);
    expect(end.pairs[0].better).toBeUndefined();
  });

  it("return the same comparison for the same idempotency key", async () => {
    const policies = [{ policy_endpoint: "acme/base" }, { policy_endpoint: "acme/base", horizon: 4 }];
    const [one, two] = [
      await compare({ policies, idempotency_key: "k1" }),
      await compare({ policies, idempotency_key: "k1" }),
    ];
    expect([one.status, two.status, two.body.id], two.text).toEqual([202, 202, one.body.id]);
    const off = await app.call(`/v1/evaluate/compare/${one.body.id}`, undefined, { key: caller.key, method: "DELETE" });
    expect(off.status, off.text).toBe(200);
    expect((await ended(one.body.id)).status).toBe("cancelled");
    const again = await app.call(`/v1/evaluate/compare/${one.body.id}`, undefined, {
      key: caller.key,
      method: "DELETE",
    });
    expect([again.status, again.body.error.code]).toEqual([409, "job_finished"]);
  });
});

describe("refusals", () => {
  it.each([
    ["one policy", { policies: [{ policy_endpoint: "acme/base" }] }, 422, "policies"],
    [
      "a model of no one's",
      { policies: [{ policy_endpoint: "acme/base" }, { policy_endpoint: "acme/unknown" }] },
      404,
      "policies.1.policy_endpoint",
    ],
    [
      "more than 10,000 episodes of all policies",
      { policies: Array.from({ length: 3 }, () => ({ policy_endpoint: "acme/base" })), episodes: 4000 },
      422,
      "episodes",
    ],
  ])("names the field for %s", async (_, body, status, param) => {
    const answer = await compare(body);
    expect([answer.status, answer.body.error.param], answer.text).toEqual([status, param]);
  });

  it("returns 404 for another organization's private model and comparison", async () => {
    const other = await app.caller();
    const owner = { key: other.key };
    await app.call("/v1/supply/providers", { name: "theirs" }, owner);
    const declared = { ...ACT_DECLARATION, model: "theirs/secret", endpoint: model.endpoint };
    const { status, text } = await app.call("/v1/supply/providers/theirs/models", declared, owner);
    expect(status, text).toBeLessThan(300);
    const policies = [{ policy_endpoint: "acme/base" }, { policy_endpoint: "theirs/secret" }];
    const answer = await compare({ policies });
    expect([answer.status, answer.body.error.param], answer.text).toEqual([404, "policies.1.policy_endpoint"]);
    const mine = await compare({ policies: [policies[0], policies[0]], episodes: 1 });
    expect((await shown(mine.body.id, other.key)).status).toBe(404);
    await app.call(`/v1/evaluate/compare/${mine.body.id}`, undefined, { key: caller.key, method: "DELETE" });
  });

  it("says how many episodes the balance covers before anything runs", async () => {
    const poor = await app.caller(0.5);
    const policies = [await policyOf("stand"), await policyOf("seek")];
    const { status, body, text } = await compare({ policies, episodes: 100 }, poor.key);
    expect([status, body.error.code, body.error.details.max_affordable?.episodes], text).toEqual([
      402,
      "insufficient_credits",
      25,
    ]);
    expect((await app.call("/v1/jobs", undefined, { key: poor.key })).body.data).toEqual([]);
  });

  it("starts and charges nothing on a dry run, and says the most that it could cost", async () => {
    const policies = [{ policy_endpoint: "acme/base" }, { policy_endpoint: "acme/base" }];
    const { status, body, text } = await compare({ policies, dry_run: true });
    expect(status, text).toBe(202);
    expect(body).toMatchObject({ id: "", estimate: { episodes: 24, episodes_usd: 0.24 } });
    expect(body.estimate.policy_calls_usd).toBeGreaterThan(0);
    expect(body.estimate.total_usd).toBeCloseTo(0.24 + body.estimate.policy_calls_usd, 6);
    const one = await app.call(
      "/v1/evaluate",
      { scenario: "base-nav", episodes: 12, policy_endpoint: "acme/base", dry_run: true, max_calls_usd: 0.01 },
      { key: caller.key },
    );
    expect(one.body, one.text).toMatchObject({ id: "", estimate: { policy_calls_usd: 0.01, total_usd: 0.13 } });
  });
});

it("ends an evaluation before its calls could cost more than the cap, and leaves calls of the episode that it cut off out of the usage", async () => {
  const { key, org } = await app.caller();
  const asked = { scenario: "base-nav", episodes: 20, policy_endpoint: "acme/base" };
  const dry = await app.call("/v1/evaluate", { ...asked, dry_run: true }, { key });
  const { policy_calls, policy_calls_usd } = dry.body.estimate;
  const cap = (10 * policy_calls_usd) / policy_calls;
  const { body } = await app.call("/v1/evaluate", { ...asked, max_calls_usd: cap }, { key });
  const end = await eventually(async () => {
    const now = await app.call(`/v1/evaluate/${body.id}`, undefined, { key });
    expect(now.body.status).toBe("expired");
    return now.body;
  });
  expect(end.error.code).toBe("calls_budget_exhausted");
  const [billed] = await app.sql<{ micro: number }[]>`
    select sum(cost_micro)::float8 as micro from request where org_id = ${org} and contract = 'act'`;
  expect(billed?.micro).toBeGreaterThan(0);
  expect(billed?.micro).toBeLessThanOrEqual(cap * 1e6);
  expect(end.usage).toMatchObject({ policy_calls: 0, policy_cost_usd: 0, total_cost_usd: 0 });
});
