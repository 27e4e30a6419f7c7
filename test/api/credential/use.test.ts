/** What calls do with an organisation's own keys at providers: by mode, in order, and what it costs. */
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { honestSteps, type Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("acme", "bolt", "late");

let app: App;
let model: Model;
let caller: Caller;
const seen: (string | undefined)[] = [];
let refused: readonly string[] = [];

const OWN = "Bearer own-key-at-the-provider";
const PLATFORM = "Bearer the-gateways-own";

beforeAll(async () => {
  [app, model] = await Promise.all([openWorld(), openModel()]);
  const auth = { type: "bearer", secret: "the-gateways-own" };
  await app.supply({ provider: named.acme, model: `${named.acme}/base`, endpoint: model.endpoint, auth });
  await app.supply({
    provider: named.acme,
    model: `${named.acme}/world`,
    endpoint: model.endpoint,
    contracts: ["predict", "ground"],
    price_per_frame: 0.01,
    price_per_1k_tokens: 0.01,
    auth,
  });
  model.script.act = (call, answer, served) => {
    const { authorization } = served.headers;
    seen.push(authorization);
    if (refused.includes(String(authorization))) served.end(16, "who are you?");
    else answer(honestSteps(call, 2));
  };
});
afterEach(() => {
  seen.length = 0;
  refused = [];
});

const BODY = {
  model: `${named.acme}/base`,
  action_space: "base_twist_2d",
  horizon: 10,
  observations: [{ proprio: [0.5] }],
};
const act = (more: object = {}) => app.call("/v1/act", { ...BODY, ...more }, { key: caller.key });
const preview = (more: object = {}) => app.call("/v1/routes/preview", { ...BODY, ...more }, { key: caller.key });
const usage = async () => (await app.call("/v1/usage", undefined, { key: caller.key })).body.data[0];
const statuses = (body: { route: { attempts: { status: string; byok?: boolean }[] } }) =>
  body.route.attempts.map(({ status, byok }) => [status, byok ?? false]);

async function store(mode: string | undefined, credit = 10): Promise<void> {
  caller = await app.caller(credit);
  const body = { secret: "own-key-at-the-provider", ...(mode && { mode }) };
  const { status } = await app.call(`/v1/credentials/${named.acme}`, body, { key: caller.key, method: "PUT" });
  expect(status).toBe(200);
}

const damage = () =>
  app.sql`update credential set sealed = set_byte(sealed, 90, get_byte(sealed, 90) # 1) where org_id = ${caller.org}`;

describe("prefer", () => {
  it("tries the own key first and charges 5 % of the list price", async () => {
    await store("prefer");
    const { status, body } = await act();
    expect([status, seen, body.route.byok, body.usage.cost_usd]).toEqual([200, [OWN], true, 0.00005]);
    expect(await usage()).toMatchObject({ byok: true, cost_usd: 0.00005, units: 10 });
    const { body: balance } = await app.call("/v1/billing/balance", undefined, { key: caller.key });
    expect(balance.spent_usd).toBe(0.00005);
  });

  it("falls back to the gateway's access at list price if the provider refuses the key, without blaming the provider", async () => {
    await store("prefer");
    refused = [OWN];
    for (let i = 0; i < 8; i++) {
      const { body } = await act();
      expect([statuses(body), body.route.byok ?? false, body.usage.cost_usd]).toEqual([
        [
          ["error", true],
          ["ok", false],
        ],
        false,
        0.001,
      ]);
      expect(body.route.attempts[0].reason).toBe("upstream_auth");
    }
    expect(await usage()).toMatchObject({ byok: false, cost_usd: 0.001 });
    const { body } = await app.call("/v1/status");
    expect(body.providers[0].offerings.map(({ state }: { state: string }) => state)).toEqual(["closed", "closed"]);
  });

  it("is the default mode", async () => {
    await store(undefined);
    await act();
    expect(seen).toEqual([OWN]);
  });

  it("ranks providers with a key first, within their model and after the request's order", async () => {
    await app.supply({
      provider: named.bolt,
      model: `${named.acme}/base`,
      endpoint: model.endpoint,
      price_per_action_step: 0.000001,
    });
    await store("prefer");
    const first = async (more: object) => {
      const { body } = await preview(more);
      return body.plan.map(
        ({ provider, byok }: { provider: string; byok?: boolean }) => `${provider}${byok ? "*" : ""}`,
      );
    };
    expect(await first({ preference: "cheapest" })).toEqual([`${named.acme}*`, named.acme, named.bolt]);
    expect(await first({ provider: { order: [named.bolt] } })).toEqual([named.bolt, `${named.acme}*`, named.acme]);
    expect(await first({ provider: { ignore: [named.acme] } })).toEqual([named.bolt]);
    expect(await first({ preference: "cheapest", provider: { allow_fallbacks: false } })).toEqual([
      `${named.acme}*`,
      named.acme,
    ]);
  });

  it("uses the gateway's access if the key no longer opens", async () => {
    await store("prefer");
    await damage();
    await eventually(async () => {
      seen.length = 0;
      const { body } = await act({ provider: { only: [named.acme] } });
      expect([body.route.byok ?? false, seen]).toEqual([false, [PLATFORM]]);
    });
  });

  it("applies to predict, streamed predict and ground", async () => {
    await store("prefer");
    const body = { model: `${named.acme}/world`, observations: BODY.observations, horizon: 2 };
    const predicted = await app.call("/v1/predict", body, { key: caller.key });
    expect([predicted.body.route.byok, predicted.body.usage.cost_usd]).toEqual([true, 0.001]);
    const stream = await app.call("/v1/predict/stream", body, { key: caller.key });
    expect(stream.text).toMatch(/"byok":true/);
    const ground = { model: `${named.acme}/world`, observations: BODY.observations, instruction: "cup" };
    expect((await app.call("/v1/ground", ground, { key: caller.key })).body.route.byok).toBe(true);
  });
});

describe("fallback", () => {
  it("tries the own key after the gateway's access failed", async () => {
    await store("fallback");
    const only = { provider: { only: [named.acme] } };
    expect(statuses((await act(only)).body)).toEqual([["ok", false]]);
    refused = [PLATFORM];
    const { body } = await act(only);
    expect([statuses(body), body.usage.cost_usd]).toEqual([
      [
        ["error", false],
        ["ok", true],
      ],
      0.00005,
    ]);
  });
});

describe("require", () => {
  it("never uses the gateway's access", async () => {
    await store("require");
    refused = [OWN];
    const { status, body } = await act({ provider: { only: [named.acme] } });
    expect([status, body.error.code, seen]).toEqual([502, "all_attempts_failed", [OWN]]);
  });

  it("requires credit only for the gateway's share", async () => {
    await store("require", 0.00005);
    expect((await act({ provider: { only: [named.acme] } })).status).toBe(200);
    expect((await act({ provider: { only: [named.acme] } })).status).toBe(402);
  });

  it("returns 409 with the reason if the key no longer opens", async () => {
    await store("require");
    await damage();
    await eventually(async () => {
      const { status, body } = await act({ provider: { only: [named.acme] } });
      expect([status, body.error.code]).toEqual([409, "no_route_available"]);
      expect(body.error.details.dropped.map(({ reason }: { reason: string }) => reason)).toContain("byok_only");
    });
    expect(seen).toEqual([]);
  });
});

describe("off", () => {
  it("does not use the key", async () => {
    await store("off");
    expect((await act({ provider: { only: [named.acme] } })).body.route.byok).toBeUndefined();
    expect(seen).toEqual([PLATFORM]);
  });
});

describe("a key stored before its provider joined", () => {
  it("is not used when a provider with that name appears later", async () => {
    caller = await app.caller(10);
    await app.call(
      `/v1/credentials/${named.late}`,
      { secret: "own-key-at-the-provider" },
      { key: caller.key, method: "PUT" },
    );
    await app.supply({ provider: named.late, model: `${named.late}/base`, endpoint: model.endpoint });
    seen.length = 0;
    await act({ model: `${named.late}/base` });
    expect(seen).toEqual([undefined]);
  });
});

describe("another organisation", () => {
  it("is never served over a connection opened with another organization's key", async () => {
    await store("prefer");
    await act({ provider: { only: [named.acme] } });
    caller = await app.caller(10);
    await act({ provider: { only: [named.acme] } });
    expect(seen).toEqual([OWN, PLATFORM]);
  });
});

describe("the organisation's mode", () => {
  it("applies to keys without a mode and to providers without a key", async () => {
    await store(undefined);
    const settle = (byok_mode: string) =>
      app.call(`/v1/orgs/${caller.org}/settings`, { byok_mode }, { key: caller.key, method: "PATCH" });
    expect((await settle("off")).status).toBe(200);
    const only = { provider: { only: [named.acme] } };
    await eventually(async () => expect((await act(only)).body.route.byok).toBeUndefined());
    await settle("require");
    await eventually(async () => expect((await act(only)).body.route.byok).toBe(true));
    const { status, body } = await act({ provider: { only: [named.bolt] } });
    expect([status, body.error.details.excluded_by]).toEqual([409, expect.arrayContaining(["byok_only"])]);
  });
});
