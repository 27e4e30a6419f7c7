/** Idempotency keys on act and predict. */
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type Answer, type App, type Caller } from "../../support/app.ts";
import { bearer, inference, refusalIn } from "../../support/clients.ts";
import { type Market, openMarket } from "../../support/market.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";

const named = uniqueNames("acme");

let market: Market;
let app: App;
let model: Model;
let caller: Caller;
let next = 0;

beforeAll(async () => {
  const about = { data_collection: "deny" };
  market = await openMarket([
    { provider: named.acme, about, model: `${named.acme}/base`, contracts: ["act", "predict"], price_per_frame: 0.001 },
  ]);
  ({ app, model, caller } = market);
});
afterEach(() => {
  model.script.act = undefined;
});

const freshKey = (): string => `key-${next++}`;
const BODY = {
  model: `${named.acme}/base`,
  action_space: "base_twist_2d",
  horizon: 2,
  observations: [{ proprio: [0.5] }],
};
const act = (idempotencyKey: string, more: object = {}, { key } = caller) =>
  app.call("/v1/act", { ...BODY, ...more }, { key, headers: { "idempotency-key": idempotencyKey } });
/** A replayed answer without what tells it from the first one, its age apart. */
const asFirst = ({ body: { replayed, ...body } }: Answer, { body: first }: Answer) => {
  expect(replayed).toBe(true);
  return { ...body, observation_age_ms: first.observation_age_ms };
};
const spent = async ({ key }: Caller): Promise<number> =>
  (await app.call("/v1/billing/balance", undefined, { key })).body.spent_usd;

describe("200", () => {
  it("repeats the first answer with its age, without a second call or charge", async () => {
    const payer = await app.caller(1);
    const key = freshKey();
    const first = await act(key, {}, payer);
    const asked = model.acts.length;
    const again = await act(key, {}, payer);
    expect([first.status, again.status]).toEqual([200, 200]);
    expect(asFirst(again, first)).toEqual(first.body);
    expect([first, again].map(({ headers }) => headers.get("idempotent-replayed"))).toEqual([null, "true"]);
    expect(again.headers.get("ratelimit-limit")).toBe(first.headers.get("ratelimit-limit"));
    expect(model.acts.length).toBe(asked);
    await expect.poll(() => spent(payer)).toBe(0.0002);
  });

  it("marks the first answer of every call that accepts an idempotency key", async () => {
    const { org, key } = await app.caller(10);
    const calls: readonly [path: string, body: object, admin?: string][] = [
      ["/v1/batch", { contract: "act", requests: [BODY] }],
      ["/v1/evaluate", { policy_endpoint: `${named.acme}/base`, scenario: "base-nav", episodes: 1 }],
      [`/v1/orgs/${org}/credits`, { amount_usd: 1 }, ADMIN_TOKEN],
    ];
    for (const [path, body, admin] of calls) {
      const said = { ...body, idempotency_key: freshKey() };
      const who = admin === undefined ? { key } : { admin };
      const answers = [await app.call(path, said, who), await app.call(path, said, who)];
      expect(answers.map(({ status }) => status < 300)).toEqual([true, true]);
      const told = answers.map(({ headers }) => headers.get("idempotent-replayed"));
      expect([path, ...told]).toEqual([path, null, "true"]);
    }
  });

  it("recognizes the same request in any JSON formatting, with the key in body or header", async () => {
    const key = freshKey();
    const first = await act(key);
    const body = `{"observations":[{"proprio":[5e-1]}],"seed":null,"horizon":2,"idempotency_key":"${key}","action_space":"base_twist_2d","model":"${named.acme}/base"}`;
    const again = await app.call("/v1/act", body, { key: caller.key });
    expect(again.body.id).toBe(first.body.id);
  });

  it("prefers the field over the header", async () => {
    const [field, header] = [freshKey(), freshKey()];
    const first = await act(header, { idempotency_key: field });
    expect((await act(field)).body.id).toBe(first.body.id);
    expect((await act(header)).body.id).not.toBe(first.body.id);
  });

  it("replays an answer from REST over gRPC and Connect", async () => {
    const key = freshKey();
    const first = await act(key);
    const asked = model.acts.length;
    const message = {
      model: `${named.acme}/base`,
      actionSpace: "base_twist_2d",
      horizon: 2,
      observations: [{ proprio: [0.5] }],
    };
    for (const transport of ["grpc", "connect"] as const) {
      let replayed: string | null = null;
      const options = bearer(caller.key, { "idempotency-key": key });
      const onHeader = (headers: Headers): void => {
        replayed = headers.get("idempotent-replayed");
      };
      const again = await inference(app, transport).act(message, { ...options, onHeader });
      expect([again.id, replayed]).toEqual([first.body.id, "true"]);
    }
    const changed = inference(app, "grpc").act(
      { ...message, horizon: 3 },
      bearer(caller.key, { "idempotency-key": key }),
    );
    expect(await refusalIn(changed)).toMatchObject({ code: "AlreadyExists", reason: "idempotency_conflict" });
    expect(model.acts.length).toBe(asked);
  });

  it("separates the keys of two organizations", async () => {
    const key = freshKey();
    const stranger = await app.caller(1);
    const first = await act(key);
    expect((await act(key, {}, stranger)).body.id).not.toBe(first.body.id);
  });

  it("under zero data retention stores only a keyed hash of the request, and still recognizes it afterwards", async () => {
    const key = freshKey();
    const settle = ({ org, key }: Caller, zdr: boolean) =>
      app.call(`/v1/orgs/${org}/settings`, { zdr }, { key, method: "PATCH" });
    const [one, two] = [await app.caller(1), await app.caller(1)];
    await Promise.all([settle(one, true), settle(two, true)]);
    const first = await act(key, {}, one);
    expect([first.status, (await act(key, {}, two)).status]).toEqual([200, 200]);
    const batch = { contract: "act", requests: [BODY], idempotency_key: key };
    const jobs = [one, two].map(async (caller) => (await app.call("/v1/batch", batch, { key: caller.key })).body.id);
    const [job] = await Promise.all(jobs);
    const kept = await app.sql<{ hash: string }[]>`
      select encode(hash, 'hex') as hash from idempotency where key = ${key} and org_id in (${one.org}, ${two.org})
      union all
      select encode(idempotency_hash, 'hex') from job where idempotency_key = ${key}`;
    expect([kept.length, new Set(kept.map(({ hash }) => hash)).size]).toEqual([4, 4]);

    await settle(one, false);
    expect((await act(key, {}, one)).body.id).toBe(first.body.id);
    expect((await app.call("/v1/batch", batch, { key: one.key })).body.id).toBe(job);
    expect((await act(key, { horizon: 3 }, one)).status).toBe(409);
  });

  it("applies to predict", async () => {
    const payer = await app.caller(1);
    const body = {
      model: `${named.acme}/base`,
      horizon: 2,
      observations: [{ proprio: [1] }],
      idempotency_key: freshKey(),
    };
    const first = await app.call("/v1/predict", body, { key: payer.key });
    const again = await app.call("/v1/predict", body, { key: payer.key });
    expect([first.status, again.text === first.text]).toEqual([200, true]);
    await expect.poll(() => spent(payer)).toBe(0.002);
  });

  it("runs one of many concurrent calls", async () => {
    const key = freshKey();
    const payer = await app.caller(1);
    const asked = model.acts.length;
    const answers = await Promise.all(Array.from({ length: 12 }, () => act(key, {}, payer)));
    expect(model.acts.length - asked).toBe(1);
    const good = answers.filter(({ status }) => status === 200);
    expect(good.length).toBeGreaterThan(0);
    expect(new Set(good.map(({ body }) => body.id)).size).toBe(1);
    for (const { status, body } of answers)
      if (status !== 200) expect([status, body.error.code]).toEqual([409, "idempotency_in_progress"]);
    await expect.poll(() => spent(payer)).toBe(0.0002);
  });
});

describe("409", () => {
  it("refuses a different body", async () => {
    const key = freshKey();
    await act(key);
    const { status, body } = await act(key, { horizon: 3 });
    expect([status, body.error.code, body.error.type, body.error.param]).toEqual([
      409,
      "idempotency_conflict",
      "conflict_error",
      "idempotency_key",
    ]);
  });

  it("refuses the same body on another contract", async () => {
    const key = freshKey();
    await act(key);
    const body = { model: `${named.acme}/base`, horizon: 2, observations: [{ proprio: [0.5] }], idempotency_key: key };
    const answer = await app.call("/v1/predict", body, { key: caller.key });
    expect([answer.status, answer.body.error.code]).toEqual([409, "idempotency_conflict"]);
  });

  it("returns 409 while the first call still runs", async () => {
    const key = freshKey();
    const finish = Promise.withResolvers<void>();
    const asked = Promise.withResolvers<void>();
    model.script.act = async (_call, answer) => {
      asked.resolve();
      await finish.promise;
      answer([
        [1, 2],
        [3, 4],
      ]);
    };
    const first = act(key);
    await asked.promise;
    const { status, body, headers } = await act(key);
    expect([status, body.error.code, body.error.retryable]).toEqual([409, "idempotency_in_progress", true]);
    expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
    finish.resolve();
    const { body: answered } = await first;
    expect((await act(key)).body.id).toBe(answered.id);
  });
});

describe("a call that was refused", () => {
  it("releases its key if it failed before or after dispatch", async () => {
    const key = freshKey();
    const poor = await app.caller(0);
    expect((await act(key, {}, poor)).status).toBe(402);
    await app.admin(`/v1/orgs/${poor.org}/credits`, { amount_usd: 1 });
    model.script.act = (_call, _answer, { stream }) => stream.close(2);
    expect((await act(key, {}, poor)).status).toBe(502);
    model.script.act = undefined;
    await expect.poll(async () => (await act(key, {}, poor)).status).toBe(200);
    await expect.poll(() => spent(poor)).toBe(0.0002);
  });
});

describe("422", () => {
  it("refuses a key other than 1 to 255 printable ASCII characters", async () => {
    for (const key of ["x".repeat(256), "two words", "ümlaut", ""]) {
      const { status } = await app.call("/v1/act", { ...BODY, idempotency_key: key }, { key: caller.key });
      expect(status, JSON.stringify(key)).toBe(422);
    }
    expect((await act("x".repeat(256))).body.error.param).toBe("idempotency_key");
    expect((await act("x".repeat(255))).status).toBe(200);
  });

  it("refuses a key on act with stream: true", async () => {
    const { status, body } = await act(freshKey(), { stream: true });
    expect([status, body.error?.code]).toEqual([422, "idempotency_unsupported"]);
  });
});
