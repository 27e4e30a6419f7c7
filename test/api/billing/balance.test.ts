/** GET /v1/billing/balance. */
import { beforeAll, expect, it } from "vitest";
import type { App } from "../../support/app.ts";
import { seeded } from "../../support/chance.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

const MODELS = ["acme/many", "acme/one", "acme/base"] as const;

let app: App;
let model: Model;

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway(), openModel()]);
  const { endpoint } = model;
  // What fails in a test opens the breaker of its own offering, and of no other test's.
  for (const model of MODELS) await app.supply({ provider: "acme", model, endpoint, price_per_action_step: 0.0000137 });
});

const act = (key: string, horizon: number, model: (typeof MODELS)[number] = "acme/base") =>
  app.call("/v1/act", { model, action_space: "base_twist_2d", horizon, observations: [{ proprio: [0] }] }, { key });

it("equals credit minus charges to the micro-dollar after concurrent calls and failures", async () => {
  const { org, key } = await app.caller(3);
  const random = seeded(11);
  model.script.act = (call, answer) => {
    const dim = call.horizon % 7 === 0 ? 3 : 2;
    answer(Array.from({ length: call.horizon }, () => Array(dim).fill(0)));
  };
  const answers = await Promise.all(
    Array.from({ length: 60 }, () => act(key, 1 + Math.floor(random() * 60), "acme/many")),
  );
  model.script.act = undefined;
  const charged = answers
    .filter(({ status }) => status === 200)
    .map(({ body }) => Math.round(body.usage.cost_usd * 1e6));
  const micro = charged.reduce((sum, cost) => sum + cost, 0);
  expect(charged.length).toBeGreaterThan(0);
  const usage = () => app.call("/v1/usage?limit=500", undefined, { key });
  await expect.poll(async () => (await usage()).body.data.length).toBe(charged.length);
  const rows = (await usage()).body;
  const listed = rows.data.map((row: { cost_usd: number }) => Math.round(row.cost_usd * 1e6));
  expect(listed.sort()).toEqual(charged.sort());
  const { status, body } = await app.call("/v1/billing/balance", undefined, { key });
  expect([status, body]).toEqual([
    200,
    {
      org_id: org,
      currency: "usd",
      granted_usd: 3,
      spent_usd: micro / 1e6,
      balance_usd: (3_000_000 - micro) / 1e6,
      held_usd: 0,
      available_usd: (3_000_000 - micro) / 1e6,
      byok_usd: 0,
      owed_usd: 0,
    },
  ]);
  expect(rows.totals).toEqual({ requests: charged.length, cost_usd: micro / 1e6 });
  expect(await brokenInvariants(app.sql)).toEqual([]);
});

it("shows credit held by running calls and returns it when they fail", async () => {
  const { key } = await app.caller(1);
  const asked = Promise.withResolvers<void>();
  const fail = Promise.withResolvers<void>();
  model.script.act = async (_call, _answer, { stream }) => {
    asked.resolve();
    await fail.promise;
    stream.close(2);
  };
  const call = act(key, 100, "acme/one");
  await asked.promise;
  const balance = async () => (await app.call("/v1/billing/balance", undefined, { key })).body;
  expect(await balance()).toMatchObject({ spent_usd: 0, balance_usd: 1, held_usd: 0.00137, available_usd: 0.99863 });
  fail.resolve();
  expect((await call).status).toBe(502);
  model.script.act = undefined;
  await expect.poll(balance).toMatchObject({ spent_usd: 0, held_usd: 0, available_usd: 1 });
});

it("is current right after the answer that changed it", async () => {
  const price = 1_370;
  // With credit for just these calls nothing is idle that could be given back.
  for (const credit of [1, (10 * price) / 1e6]) {
    const { key } = await app.caller(credit);
    for (let calls = 1; calls <= 10; calls++) {
      const answer = await act(key, 100);
      expect([answer.status, answer.body.error?.code]).toEqual([200, undefined]);
      const { body } = await app.call("/v1/billing/balance", undefined, { key });
      expect([body.spent_usd, body.held_usd]).toEqual([(calls * price) / 1e6, 0]);
      const { body: usage } = await app.call("/v1/usage", undefined, { key });
      expect([usage.data.length, usage.totals.cost_usd]).toEqual([calls, (calls * price) / 1e6]);
    }
  }
});

it("is readable by callers with billing permissions", async () => {
  const { org } = await app.caller(0);
  for (const [role, status] of [
    ["owner", 200],
    ["admin", 200],
    ["billing", 200],
    ["developer", 403],
    ["operator", 403],
    ["viewer", 403],
    ["supplier", 403],
  ] as const) {
    const key = await app.key(org, { role });
    expect((await app.call("/v1/billing/balance", undefined, { key })).status, role).toBe(status);
  }
  expect((await app.call("/v1/billing/balance")).body.error.code).toBe("missing_api_key");
});
