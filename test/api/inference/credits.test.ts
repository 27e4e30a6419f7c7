/** 402 on inference: refused before anything is asked of anybody. */
import { beforeAll, expect, it } from "vitest";
import type { App } from "../../support/app.ts";
import { bearer, inference, refusalIn } from "../../support/clients.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { robot } from "../../support/loop-client.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { openModel, ownGateway } from "../../support/world.ts";

const named = uniqueNames("acme", "cheap", "dearest", "dear");

let app: App;
let model: Model;

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway(), openModel()]);
  const endpoint = model.endpoint;
  await app.supply({ provider: named.acme, model: `${named.acme}/base`, endpoint });
  await app.supply({ provider: named.cheap, model: `${named.acme}/priced`, endpoint });
  for (const [provider, price_per_action_step] of [
    [named.dear, 0.01],
    [named.dearest, 0.02],
  ] as const)
    await app.supply({ provider, model: `${named.acme}/priced`, endpoint, price_per_action_step });
  const contracts = ["predict", "ground"];
  const prices = { price_per_frame: 0.01, price_per_1k_tokens: 0.01 };
  await app.supply({ provider: named.acme, model: `${named.acme}/world`, endpoint, contracts, ...prices });
});

const BODY = {
  model: `${named.acme}/base`,
  action_space: "base_twist_2d",
  horizon: 100,
  observations: [{ proprio: [0.5] }],
};
const asked = (): number => model.acts.length + model.predicts.length + model.grounds.length;

it("the error names the price, the balance, the calculation and what would fit", async () => {
  const { key } = await app.caller(0.0042);
  const before = asked();
  const { status, body, headers } = await app.call("/v1/act", BODY, { key });
  expect([status, body.error.code, body.error.type, headers.get("retry-after")]).toEqual([
    402,
    "insufficient_credits",
    "billing_error",
    null,
  ]);
  expect(body.error.details).toEqual({
    topup_url: expect.stringMatching(/^http.*\/v1\/billing\/topup$/),
    limit_source: "org_credits",
    required_usd: 0.01,
    available_usd: 0.0042,
    shortfall_usd: 0.0058,
    estimated: { unit: "action_step", units: 100, unit_price_usd: 0.0001, wake_up_usd: 0 },
    max_affordable: { horizon: 42 },
    dropped: [expect.objectContaining({ provider: named.acme, model: `${named.acme}/base`, reason: "unaffordable" })],
  });
  expect(asked()).toBe(before);
  expect((await app.call("/v1/act", { ...BODY, horizon: 42 }, { key })).status).toBe(200);
  expect((await app.call("/v1/act", { ...BODY, horizon: 1 }, { key })).status).toBe(402);
});

it("refuses every contract before dispatch without credit", async () => {
  const { key } = await app.caller(0);
  const before = asked();
  const observations = [{ proprio: [0] }];
  const calls = [
    ["/v1/act", BODY],
    ["/v1/act", { ...BODY, stream: true }],
    ["/v1/predict", { model: `${named.acme}/world`, observations }],
    ["/v1/predict/stream", { model: `${named.acme}/world`, observations }],
    ["/v1/ground", { model: `${named.acme}/world`, observations, instruction: "a cube" }],
  ] as const;
  for (const [path, body] of calls) {
    const answer = await app.call(path, body, { key });
    expect([answer.status, answer.body.error?.code], path).toEqual([402, "insufficient_credits"]);
  }
  expect(asked()).toBe(before);
});

it("works the same over gRPC and Connect", async () => {
  const { key } = await app.caller(0);
  for (const transport of ["grpc", "connect"] as const) {
    const call = inference(app, transport).act({ ...BODY, actionSpace: "base_twist_2d" }, bearer(key));
    expect(await refusalIn(call)).toMatchObject({
      code: "FailedPrecondition",
      reason: "insufficient_credits",
      details: { limitSource: "org_credits", requiredUsd: 0.01, shortfallUsd: 0.01 },
    });
  }
});

it("names the key's budget and its renewal if that ran out", async () => {
  const { org, key: rich } = await app.caller(10);
  const key = await app.key(org, { budget: { limit_usd: 0.01, interval: "daily" } });
  expect((await app.call("/v1/act", BODY, { key })).status).toBe(200);
  const before = asked();
  const { status, body } = await app.call("/v1/act", BODY, { key });
  expect([status, body.error.code]).toEqual([402, "key_budget_exhausted"]);
  expect(body.error.details).toMatchObject({ limit_source: "key_budget", available_usd: 0, shortfall_usd: 0.01 });
  const midnight = Math.floor(Date.now() / 86_400_000 + 1) * 86_400;
  expect([midnight, midnight + 86_400]).toContain(body.error.details.resets_at);
  expect(asked()).toBe(before);
  expect((await app.call("/v1/act", BODY, { key: rich })).status).toBe(200);
});

it("serves exactly as many concurrent calls as the balance covers", async () => {
  const { org, key } = await app.caller(0.025);
  const calls = Array.from({ length: 60 }, () => app.call("/v1/act", { ...BODY, horizon: 10 }, { key }));
  const statuses = (await Promise.all(calls)).map(({ status }) => status);
  expect(statuses.filter((status) => status === 200).length).toBe(25);
  expect(statuses.filter((status) => status === 402).length).toBe(35);
  const { body } = await app.call("/v1/billing/balance", undefined, { key });
  expect(body).toMatchObject({ org_id: org, granted_usd: 0.025, spent_usd: 0.025, balance_usd: 0, available_usd: 0 });
  expect(await brokenInvariants(app.sql)).toEqual([]);
});

const PRICED = {
  ...BODY,
  model: `${named.acme}/priced`,
  horizon: 10,
  provider: { order: [named.dearest, named.cheap] },
};

it("drops unaffordable steps and serves with the others", async () => {
  const { key } = await app.caller(0.15);
  const { body: plan } = await app.call("/v1/routes/preview?contract=act", PRICED, { key });
  expect(plan.plan.map(({ provider }: { provider: string }) => provider)).toEqual([named.cheap, named.dear]);
  expect(plan.dropped).toMatchObject([
    { provider: named.dearest, reason: "unaffordable", detail: "0.2 USD > 0.15 USD that may be spent" },
  ]);
  expect(plan).toMatchObject({ considered: 3, estimated_cost_usd: { min: 0.001, max: 0.1 } });
  expect(plan).not.toHaveProperty("would_refuse");
  const { status, body } = await app.call("/v1/act", PRICED, { key });
  expect([status, body.route.provider, body.route.fallback_used, body.usage.cost_usd]).toEqual([
    200,
    named.cheap,
    false,
    0.001,
  ]);
  const { body: balance } = await app.call("/v1/billing/balance", undefined, { key });
  expect(balance).toMatchObject({ spent_usd: 0.001, held_usd: 0 });
});

it("sends no hedge that the balance does not cover", async () => {
  const { key } = await app.caller(0.1005);
  const provider = { order: [named.dear, named.cheap], hedge: { after_ms: 1 } };
  const { body } = await app.call("/v1/routes/preview?contract=act", { ...PRICED, provider }, { key });
  expect(body.estimated_cost_usd.max).toBe(0.1);
  expect(body.plan.flatMap(({ reason_codes }: { reason_codes: string[] }) => reason_codes)).not.toContain("hedge");
});

it("names all steps and the cheapest price if none is affordable", async () => {
  const { key } = await app.caller(0.0005);
  const { status, body } = await app.call("/v1/act", PRICED, { key });
  expect([status, body.error.code]).toEqual([402, "insufficient_credits"]);
  expect(body.error.details).toMatchObject({ required_usd: 0.001, max_affordable: { horizon: 5 } });
  const reasons = body.error.details.dropped.map((each: { provider: string; reason: string }) => [
    each.provider,
    each.reason,
  ]);
  expect(reasons.sort()).toEqual([
    [named.cheap, "unaffordable"],
    [named.dear, "unaffordable"],
    [named.dearest, "unaffordable"],
  ]);
  const { body: plan } = await app.call("/v1/routes/preview?contract=act", PRICED, { key });
  expect([plan.plan.length, plan.would_refuse]).toEqual([3, { code: "insufficient_credits" }]);
});

it("a key's budget narrows a plan as the balance does", async () => {
  const { org } = await app.caller(10);
  const key = await app.key(org, { budget: { limit_usd: 0.05, interval: "daily" } });
  const { status, body } = await app.call("/v1/act", PRICED, { key });
  expect([status, body.route.provider]).toEqual([200, named.cheap]);
});

it("a control loop continues with affordable offerings", async () => {
  const { key } = await app.caller(0.05);
  const provider = { order: [named.dearest, named.cheap] };
  const open = { model: `${named.acme}/priced`, actionSpace: "base_twist_2d", horizon: 10, provider };
  const loop = robot(app, key, open);
  await loop.expect("opened");
  loop.observe(0);
  expect(await loop.expect("chunk")).toMatchObject({ route: { provider: named.cheap }, usage: { costUsd: 0.001 } });
  loop.leave();
});
