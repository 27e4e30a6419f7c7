/** What a call costs "now": an offering that sleeps is woken at its price, and a control loop that keeps it awake pays list. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { type App, type Caller, openApp } from "../../support/app.ts";
import { type Model, startModel } from "../../support/model.ts";

let app: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  [app, model] = await Promise.all([openApp(), startModel()]);
  const facts = { endpoint: model.endpoint, price_per_action_step: 0.0001 };
  // Ten seconds of a dollar a thousand seconds: a cent to wake.
  const sleepy = { cost_usd_per_second: 0.001, cold_timeout_s: 10 };
  await app.supply({ provider: "sleepy", model: "sleepy/base", scaledown_s: 300, ...sleepy, ...facts });
  await app.supply({ provider: "dozy", model: "dozy/base", scaledown_s: 0.001, ...sleepy, ...facts });
  await app.supply({ provider: "silent", model: "silent/base", ...sleepy, ...facts });
  await app.supply({ provider: "awake", model: "sleepy/base", ...facts });
  caller = await app.caller(10);
});
afterAll(async () => {
  await app.close();
  await model.close();
});

const body = (name: string, provider: object) => ({
  model: name,
  action_space: "base_twist_2d",
  horizon: 10,
  observations: [{ proprio: [0] }],
  provider,
});
const act = (name: string, provider: object = {}) => app.call("/v1/act", body(name, provider), { key: caller.key });
const preview = async (provider: object) =>
  (await app.call("/v1/routes/preview?contract=act", body("sleepy/base", provider), { key: caller.key })).body;
const offeringOf = async (provider: string) =>
  (await app.call("/v1/models/sleepy/base")).body.offerings.find(
    (each: { provider: string }) => each.provider === provider,
  );

it("the price now stands above list while an offering sleeps; the call that wakes it pays, and a loop inside the warm window pays list", async () => {
  const only = { only: ["sleepy"] };
  const asleep = await preview(only);
  expect(asleep.plan[0]).toMatchObject({
    cold: true,
    wake_up_usd: 0.01,
    estimated_cost_usd: 0.011,
    price_unit_usd: 0.0001,
  });
  expect(asleep.plan[0].price_now_usd).toBeCloseTo(0.0011);
  const shown = await offeringOf("sleepy");
  expect(shown).toMatchObject({ cold: true, wake_up_usd: 0.01 });
  expect(shown.prices[0].now_usd).toBeGreaterThan(shown.prices[0].list_usd);

  expect((await preview({ sort: "price" })).plan[0].provider).toBe("awake");
  const refused = await act("sleepy/base", { ...only, max_cost_usd: 0.005 });
  expect(refused.status).toBe(409);
  expect(refused.body.error.details.suggestions).toContainEqual({
    field: "provider.max_cost_usd",
    value: 0.011,
    admits: 1,
  });

  expect((await act("sleepy/base", only)).body.usage.cost_usd).toBe(0.011);
  for (let i = 0; i < 3; i++)
    expect((await act("sleepy/base", { ...only, max_cost_usd: 0.005 })).body.usage.cost_usd).toBe(0.001);
  expect((await preview(only)).plan[0]).toMatchObject({ cold: false, wake_up_usd: 0, price_now_usd: 0.0001 });
  expect(await offeringOf("sleepy")).toMatchObject({ cold: false, wake_up_usd: 0 });
  const { body: usage } = await app.call("/v1/usage", undefined, caller);
  expect(usage.data.map((line: Record<string, number>) => line.wake_up_usd)).toEqual([0, 0, 0, 0.01]);
});

it("an offering whose window is over is woken, and paid for, again", async () => {
  for (let i = 0; i < 2; i++) expect((await act("dozy/base")).body.usage.cost_usd).toBe(0.011);
});

it("one that has a cost and says nothing of scaling down is taken to stay warm for a minute", async () => {
  expect((await act("silent/base")).body.usage.cost_usd).toBe(0.011);
  expect((await act("silent/base")).body.usage.cost_usd).toBe(0.001);
});
