/** Routing as callers see it: who serves, who is passed over, and why. */
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import { setClock } from "../../support/clocks.ts";
import { eventually } from "../../support/eventually.ts";
import type { Model } from "../../support/model.ts";
import { SkippingClock } from "../../support/skipping-clock.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let caller: Caller;
const models = new Map<string, Model>();
const offerings = new Map<string, string>();
const clock = new SkippingClock();

/** Cheap but slow, dear but fast, and one that keeps what it sees. */
const PROVIDERS = {
  cheap: { price_per_action_step: 0.0001, region: "eu", advertised: { p50_ms: 900, p95_ms: 1_000, uptime_30d: 0.9 } },
  fast: { price_per_action_step: 0.0009, region: "us", advertised: { p50_ms: 5, p95_ms: 10, uptime_30d: 0.99 } },
  nosy: { price_per_action_step: 0.0005, region: "eu", advertised: { p50_ms: 300, p95_ms: 400, uptime_30d: 0.999 } },
} as const;
type Name = keyof typeof PROVIDERS;

beforeAll(async () => {
  setClock(clock);
  app = await ownGateway();
  caller = await app.caller(100);
  for (const [provider, facts] of Object.entries(PROVIDERS)) {
    const model = await openModel();
    models.set(provider, model);
    const about = { data_collection: provider === "nosy" ? "allow" : "deny" };
    const parameters = provider === "fast" ? ["seed"] : [];
    const declaration = { provider, about, model: "shared/base", endpoint: model.endpoint, parameters, ...facts };
    offerings.set(provider, await app.supply(declaration));
  }
});
afterEach(() => {
  for (const { script } of models.values()) script.act = undefined;
});

const act = (provider: object = {}, more: object = {}) =>
  app.call(
    "/v1/act",
    {
      model: "shared/base",
      action_space: "base_twist_2d",
      horizon: 10,
      observations: [{ proprio: [0] }],
      provider,
      ...more,
    },
    { key: caller.key },
  );
const served = async (provider: object = {}, more: object = {}): Promise<string> =>
  (await act(provider, more)).body.route?.provider;
const breakDown = (...names: Name[]): void => {
  for (const name of names) models.get(name)!.script.act = (_call, _answer, { stream }) => stream.close(2);
};
const asked = (name: Name): number => models.get(name)!.acts.length;

describe("constraints", () => {
  it("only and ignore select the providers", async () => {
    for (const name of Object.keys(PROVIDERS)) expect(await served({ only: [name] })).toBe(name);
    expect(await served({ ignore: ["cheap", "nosy"] })).toBe("fast");
  });

  it("region, data_collection, max_latency_ms, min_uptime_30d, prices and parameters each drop unfit offerings", async () => {
    expect(await served({ region: ["us"] })).toBe("fast");
    expect(await served({ data_collection: "deny", region: ["eu"] })).toBe("cheap");
    expect(await served({ max_latency_ms: 50 })).toBe("fast");
    expect(await served({ min_uptime_30d: 0.995 })).toBe("nosy");
    expect(await served({ max_cost_usd: 0.001 })).toBe("cheap");
    expect(await served({ max_price_per_action_step: 0.0001 })).toBe("cheap");
    expect(await served({ require_parameters: true }, { seed: 1 })).toBe("fast");
  });

  it("returns 409 with every dropped offering, the reason, and the smallest change that would admit one", async () => {
    const { status, body } = await act({ only: ["cheap", "fast"], max_cost_usd: 0.0005 });
    expect([status, body.error.code, body.error.type]).toEqual([409, "no_route_available", "routing_error"]);
    const { dropped, excluded_by, suggestions } = body.error.details;
    const reasons = dropped.map((drop: Record<string, string>) => [drop.offering_id, drop.reason]);
    expect(new Map(reasons)).toEqual(
      new Map([
        [offerings.get("cheap"), "max_cost_usd"],
        [offerings.get("fast"), "max_cost_usd"],
        [offerings.get("nosy"), "not_in_only"],
      ]),
    );
    for (const drop of dropped) expect(drop).toMatchObject({ model: "shared/base", detail: /./, stage: /./ });
    expect(new Set(excluded_by)).toEqual(new Set(["max_cost_usd", "not_in_only"]));
    expect(suggestions).toContainEqual({ field: "provider.max_cost_usd", value: 0.001, admits: 1 });
    expect(body.detail).toBe(body.error.message);
  });

  it("never serves hardware keys with placeholders, and simulation keys only on request", async () => {
    await app.catalog("shelf/base");
    const registry = { model: "shelf/base" };
    expect((await act({}, registry)).body.error?.code).toBe("no_live_deployment");
    const { status, body } = await act({ allow_simulated: true }, registry);
    expect([status, body.route.simulated, body.route.provider]).toEqual([200, true, "simulated"]);
    expect(body.action.steps.length).toBe(10);
    const hardware = await app.key(caller.org, { environment: "hardware" });
    const call = {
      ...registry,
      provider: { allow_simulated: true },
      action_space: "base_twist_2d",
      observations: [{}],
    };
    const refused = await app.call("/v1/act", call, { key: hardware });
    expect([refused.status, refused.body.route]).toEqual([409, undefined]);
    expect(await served({ allow_simulated: true })).not.toBe("simulated");
  });
});

describe("order", () => {
  it("by price, latency and uptime, most specific setting first", async () => {
    expect(await served({ sort: "price" })).toBe("cheap");
    expect(await served({}, { preference: "cheapest" })).toBe("cheap");
    expect(await served({}, { model: "shared/base:floor" })).toBe("cheap");
    expect(await served({ objective: { price: 1 } })).toBe("cheap");
    expect(await served({ sort: "quality" })).toBe("nosy");
    expect(await served({}, { preference: "reliable" })).toBe("nosy");
    expect(await served({ sort: "price" }, { model: "shared/base:quality", preference: "cheapest" })).toBe("nosy");
    expect(await served({ sort: "quality" }, { preference: "cheapest" })).toBe("nosy");
  });

  it("by name, and by aliases of live models", async () => {
    for (const name of Object.keys(PROVIDERS)) expect(await served({ order: [name] })).toBe(name);
    expect(await served({}, { model: "service/cheapest" })).toBe("cheap");
    expect(await served({}, { model: "service/auto:embodied:quality" })).toBe("nosy");
    expect((await act({}, { model: "service/auto" })).status).toBe(200);
  });
});

describe("attempts", () => {
  it("fail over past a failing provider and list both", async () => {
    breakDown("cheap");
    const { status, body } = await act({ order: ["cheap", "fast"] });
    expect(status).toBe(200);
    expect(body.route).toMatchObject({
      provider: "fast",
      fallback_used: true,
      attempts: [
        { provider: "cheap", offering_id: offerings.get("cheap"), status: "error", reason: "connection_lost" },
        { provider: "fast", offering_id: offerings.get("fast"), status: "ok" },
      ],
    });
    expect(body.route.attempts[1]).not.toHaveProperty("reason");
    expect(body.usage.cost_usd).toBe(0.009);
  });

  it("do not fail over with allow_fallbacks: false", async () => {
    breakDown("cheap");
    const before = asked("fast") + asked("nosy");
    const { status, body } = await act({ order: ["cheap"], allow_fallbacks: false });
    expect([status, body.error.code, body.error.source]).toEqual([502, "all_attempts_failed", "upstream"]);
    expect(body.route.attempts).toMatchObject([{ provider: "cheap", status: "error" }]);
    expect(asked("fast") + asked("nosy")).toBe(before);
  });

  it("try every provider of order in turn, and no other, with allow_fallbacks: false", async () => {
    breakDown("cheap", "fast");
    const before = asked("nosy");
    const { status, body } = await act({ order: ["cheap", "fast"], allow_fallbacks: false });
    expect(status).toBe(502);
    expect(body.route.attempts).toMatchObject([
      { provider: "cheap", status: "error" },
      { provider: "fast", status: "error" },
    ]);
    expect(asked("nosy")).toBe(before);
  });

  it("list every failure with the error if all fail, free of charge", async () => {
    const payer = await app.caller(1);
    breakDown("cheap", "fast", "nosy");
    const body = { model: "shared/base", action_space: "base_twist_2d", observations: [{ proprio: [0] }] };
    const answer = await app.call("/v1/act", body, { key: payer.key });
    expect([answer.status, answer.body.error.retryable]).toEqual([502, true]);
    expect(answer.body.route.attempts.map(({ provider }: { provider: string }) => provider).sort()).toEqual([
      "cheap",
      "fast",
      "nosy",
    ]);
    const balance = await app.call("/v1/billing/balance", undefined, payer);
    expect(balance.body).toMatchObject({ spent_usd: 0, held_usd: 0 });
    for (const { script } of models.values()) script.act = undefined;
    for (const name of Object.keys(PROVIDERS)) expect(await served({ only: [name] })).toBe(name);
  });

  it("continue with the request's fallback models", async () => {
    const own = await openModel();
    await app.supply({ provider: "solo", model: "solo/base", endpoint: own.endpoint });
    own.script.act = (_call, _answer, { stream }) => stream.close(2);
    const { body } = await act({ sort: "price" }, { model: "solo/base", models: ["shared/base"] });
    expect([body.model, body.route.fallback_used]).toEqual(["shared/base", true]);
    expect(body.route.attempts.map(({ model }: { model: string }) => model)).toEqual(["solo/base", "shared/base"]);
    await own.close();
  });

  it("end with 504 when deadline_ms has passed", async () => {
    models.get("nosy")!.script.act = () => undefined;
    const before = asked("nosy");
    const answer = act({ only: ["nosy"], deadline_ms: 4_000 });
    await expect.poll(() => asked("nosy")).toBe(before + 1);
    clock.skip(4_000);
    const { status, body } = await answer;
    expect([status, body.error.code, body.error.type]).toEqual([504, "deadline_exceeded", "timeout_error"]);
    expect(body.route.attempts).toMatchObject([{ provider: "nosy", status: "error", reason: "deadline" }]);
    await expect.poll(() => models.get("nosy")!.cancelled()).toBeGreaterThan(0);
  });

  it("are not started if no provider can finish in time", async () => {
    const model = await openModel();
    const slow = { advertised: { p50_ms: 20_000, p95_ms: 30_000 } };
    await app.supply({ provider: "slow", model: "slow/base", endpoint: model.endpoint, ...slow });
    const before = model.acts.length;
    const { status, body } = await act({ deadline_ms: 1_000 }, { model: "slow/base" });
    expect([status, body.error.code]).toEqual([504, "deadline_exceeded"]);
    expect(model.acts.length).toBe(before);

    // The deadline that is suggested is one that serves.
    const [{ field, value }] = body.error.details.suggestions;
    expect(field).toBe("provider.deadline_ms");
    await expect.poll(async () => (await act({ deadline_ms: value }, { model: "slow/base" })).status).toBe(200);
    await model.close();
  });
});

describe("figures", () => {
  it("use the probe for offerings that advertise nothing, and drop those without any measurement", async () => {
    const { endpoint } = models.get("cheap")!;
    const asked = { max_latency_ms: 60_000, min_uptime_30d: 0.9 };
    await app.supply({ provider: "silent", model: "silent/base", endpoint });
    expect(await served(asked, { model: "silent/base" })).toBe("silent");

    const unknown = await app.supply({ provider: "silent", model: "unknown/base", endpoint });
    await app.sql`update offering set report = null where id = ${unknown}`;
    // A preview measures nothing.
    const previewed = async (provider: object) => {
      const request = { model: "unknown/base", action_space: "base_twist_2d", observations: [{}], provider };
      return (await app.call("/v1/routes/preview", request, { key: caller.key })).body;
    };
    await eventually(async () => {
      expect((await previewed({ max_latency_ms: 60_000 })).dropped).toMatchObject([
        { reason: "max_latency_ms", detail: "p95 is neither advertised nor measured" },
      ]);
      expect((await previewed({ min_uptime_30d: 0.1 })).dropped).toMatchObject([
        { reason: "min_uptime_30d", detail: "uptime is neither advertised nor measured" },
      ]);
    });
    expect((await previewed({})).plan[0].expected_ms).toEqual({});
  });
});

it("names the action spaces that an alias serves if nothing serves the requested one", async () => {
  const { status, body } = await act({}, { model: "service/auto", action_space: "joint_pos_23" });
  expect([status, body.error.details?.needed], JSON.stringify(body)).toEqual([409, ["base_twist_2d"]]);
  expect(body.error.message).toContain("none emits joint_pos_23, set `action_space` to base_twist_2d");
});
