/** What a call costs "now": who wakes an offering that sleeps pays for it, once among all replicas, and everybody else pays list. */
import { beforeAll, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import type { FreshDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { robot } from "../../support/loop-client.ts";
import { honestSteps, type Model } from "../../support/model.ts";
import { openModel, ownDatabase, ownGateway } from "../../support/world.ts";

let database: FreshDatabase;
let app: App;
let other: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  database = await ownDatabase();
  [app, model] = await Promise.all([ownGateway({ database }), openModel()]);
  other = await ownGateway({ database });
  const facts = { endpoint: model.endpoint, price_per_action_step: 0.0001 };
  // Ten seconds of a dollar a thousand seconds: a cent to wake.
  const sleepy = { cost_usd_per_second: 0.001, cold_timeout_s: 10 };
  await app.supply({ provider: "sleepy", model: "sleepy/base", scaledown_s: 300, ...sleepy, ...facts });
  await app.supply({ provider: "dozy", model: "dozy/base", scaledown_s: 0, ...sleepy, ...facts });
  await app.supply({ provider: "silent", model: "silent/base", ...sleepy, ...facts });
  await app.supply({ provider: "undeclared", model: "undeclared/base", cost_usd_per_second: 0.001, ...facts });
  await app.supply({
    provider: "instant",
    model: "instant/base",
    cost_usd_per_second: 0.001,
    scaledown_s: 0,
    ...facts,
  });
  await app.supply({ provider: "awake", model: "sleepy/base", ...facts });
  for (const provider of ["crowded", "probed", "broken", "shared", "looped"])
    await app.supply({ provider, model: `${provider}/base`, scaledown_s: 300, ...sleepy, ...facts });
  // The probe has woken them; but for one, that is long ago.
  await app.sql`
    update awake_offering set until = now() - interval '1 second'
    where offering_id not in (select o.id from offering o join provider p on p.id = o.provider_id where p.name = 'probed')`;
  caller = await app.caller(10);
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

it("a cold start is priced while an offering sleeps, charged to the call that causes it, and not to a warm loop", async () => {
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

it("a cold start is charged again after the warm window has ended", async () => {
  for (let i = 0; i < 2; i++) expect((await act("dozy/base")).body.usage.cost_usd).toBe(0.011);
});

it("a cold start is free and instant if no cold time is declared", async () => {
  for (const name of ["undeclared/base", "instant/base"])
    for (let i = 0; i < 2; i++) expect((await act(name, { deadline_ms: 4_000 })).body.usage.cost_usd).toBe(0.001);
});

it("an offering that declares a cold time without a warm window stays warm for a minute", async () => {
  expect((await act("silent/base")).body.usage.cost_usd).toBe(0.011);
  expect((await act("silent/base")).body.usage.cost_usd).toBe(0.001);
});

/** Answers acts when so many of them wait. */
function answerTogether(count: number): void {
  const waiting: (() => void)[] = [];
  model.script.act = (call, answer) => {
    waiting.push(() => answer(honestSteps(call, 2)));
    if (waiting.length < count) return;
    model.script.act = undefined;
    for (const each of waiting) each();
  };
}
const costs = (answers: readonly { body: { usage?: { cost_usd: number } } }[]) =>
  answers.map(({ body }) => body.usage?.cost_usd).sort();
const LIST = 0.001;
const WOKEN = 0.011;

it("one of overlapping calls pays for a cold start, the others pay list price", async () => {
  answerTogether(10);
  const answers = await Promise.all(Array.from({ length: 10 }, () => act("crowded/base")));
  expect(costs(answers)).toEqual([...Array.from({ length: 9 }, () => LIST), WOKEN]);
  expect((await act("crowded/base")).body.usage.cost_usd).toBe(LIST);
});

it("overlapping calls on two replicas pay once for a cold start", async () => {
  await eventually(async () => {
    const { status } = await other.call("/v1/routes/preview?contract=act", body("shared/base", {}), {
      key: caller.key,
    });
    expect(status).toBe(200);
  });
  answerTogether(6);
  const at = (place: App) => place.call("/v1/act", body("shared/base", {}), { key: caller.key });
  const answers = await Promise.all([app, other, app, other, app, other].map(at));
  expect(costs(answers)).toEqual([...Array.from({ length: 5 }, () => LIST), WOKEN]);
});

it("a cold start by the gateway's own probe is free", async () => {
  expect((await act("probed/base")).body.usage.cost_usd).toBe(LIST);
});

it("a failed call does not pay for a cold start; the next one does", async () => {
  model.script.act = (_, __, served) => served.end(13);
  expect((await act("broken/base")).status).toBe(502);
  model.script.act = undefined;
  expect(costs([await act("broken/base"), await act("broken/base")])).toEqual([LIST, WOKEN]);
});

it("a control loop pays once for the cold start that it causes", async () => {
  const loop = robot(app, caller.key, { model: "looped/base", actionSpace: "base_twist_2d", horizon: 10 });
  await loop.expect("opened");
  const paid: (number | undefined)[] = [];
  for (const step of [0, 1, 2]) {
    loop.observe(step);
    paid.push((await loop.expect("chunk")).usage?.costUsd);
  }
  loop.leave();
  expect(paid).toEqual([WOKEN, LIST, LIST]);
});
