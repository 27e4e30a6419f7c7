/** What is deducted: the list price, the wake-up of a container that slept, and both providers of a hedge. */
import { beforeAll, expect, it } from "vitest";
import type { App } from "../../support/app.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { openModel, ownGateway } from "../../support/world.ts";

const named = uniqueNames("acme", "cheap", "quick", "sleepy", "slow");

let app: App;
let model: Model;
let slow: Model;

beforeAll(async () => {
  [app, model, slow] = await Promise.all([ownGateway(), openModel(), openModel()]);
  const basis = { cost_usd_per_second: 0.001, scaledown_s: 600, cold_timeout_s: 10 };
  await app.supply({ provider: named.sleepy, model: `${named.acme}/sleepy`, endpoint: model.endpoint, ...basis });
  // Its probe has woken it, long ago.
  await app.sql`delete from awake_offering`;
  await app.supply({ provider: named.slow, model: `${named.acme}/hedged`, endpoint: slow.endpoint });
  await app.supply({
    provider: named.quick,
    model: `${named.acme}/hedged`,
    endpoint: model.endpoint,
    price_per_action_step: 0.0003,
  });
});

const act = (key: string, more: object) =>
  app.call(
    "/v1/act",
    { action_space: "base_twist_2d", horizon: 10, observations: [{ proprio: [0] }], ...more },
    { key },
  );
const lastUsage = async (key: string) => (await app.call("/v1/usage", undefined, { key })).body.data[0];

it("charges list price plus cold start to the call that starts a container, and list price while it is warm", async () => {
  const { key } = await app.caller(1);
  const first = await act(key, { model: `${named.acme}/sleepy` });
  expect([first.status, first.body.usage.cost_usd]).toEqual([200, 0.011]);
  expect(await lastUsage(key)).toMatchObject({ cost_usd: 0.011, wake_up_usd: 0.01 });
  const second = await act(key, { model: `${named.acme}/sleepy` });
  expect(second.body.usage.cost_usd).toBe(0.001);
  expect(await lastUsage(key)).toMatchObject({ cost_usd: 0.001, wake_up_usd: 0 });
  const { body } = await app.call("/v1/billing/balance", undefined, { key });
  expect(body.spent_usd).toBe(0.012);
});

it("carries fractions of a micro-dollar to the key's next charge", async () => {
  const offering = { provider: named.cheap, model: `${named.acme}/cheap`, endpoint: model.endpoint };
  await app.supply({ ...offering, price_per_action_step: 0.0000004 });
  const { key } = await app.caller(1);
  const costs: number[] = [];
  for (let i = 0; i < 5; i++) {
    const { body, text } = await act(key, { model: `${named.acme}/cheap`, horizon: 1 });
    expect(body.usage, text).toBeDefined();
    costs.push(Math.round(body.usage.cost_usd * 1e6));
  }
  expect(costs).toEqual([0, 1, 0, 1, 0]);
});

it("charges both providers of a hedge and shows the second one's part", async () => {
  const { key } = await app.caller(1);
  const late = Promise.withResolvers<void>();
  slow.script.act = async (_call, answer) => {
    await late.promise;
    answer(Array.from({ length: 10 }, () => [0, 0]));
  };
  const provider = { order: [named.slow, named.quick], hedge: { after_ms: 1 } };
  const { status, body } = await act(key, { model: `${named.acme}/hedged`, provider });
  late.resolve();
  expect([status, body.route.provider, body.usage.cost_usd]).toEqual([200, named.quick, 0.003]);
  expect(body.route.hedge_cost_usd).toBe(0.001);
  expect(await lastUsage(key)).toMatchObject({ cost_usd: 0.004, hedge_cost_usd: 0.001 });
  const { body: balance } = await app.call("/v1/billing/balance", undefined, { key });
  expect(balance.spent_usd).toBe(0.004);
  expect(await brokenInvariants(app.sql)).toEqual([]);
});
