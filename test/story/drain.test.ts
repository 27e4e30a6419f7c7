/** A house that closes in the middle of its work. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { brokenInvariants } from "../../src/store/money/invariants.ts";
import { type App, openApp } from "../support/app.ts";
import { bearer, inference, readEvents, refusalIn } from "../support/clients.ts";
import { frameOf, type Model, startModel, summary } from "../support/model.ts";

let app: App;
let model: Model;

beforeAll(async () => {
  [app, model] = await Promise.all([openApp(), startModel()]);
});
afterAll(async () => {
  await app.database.close();
  await model.close();
});

it("ends what runs, turns away what comes, says that it's not ready, charges what it answered, and is gone", async () => {
  const contracts = ["act", "predict"];
  const facts = { model: "acme/base", endpoint: model.endpoint, contracts, price_per_frame: 0.001 };
  await app.supply({ provider: "acme", ...facts });
  const { org, key } = await app.caller(1);
  const finish = Promise.withResolvers<void>();
  let asked = 0;
  model.script.act = async (call, answer) => {
    asked++;
    await finish.promise;
    answer(Array.from({ length: call.horizon }, () => [0, 0]));
  };
  model.script.predict = async (call, { send, end }) => {
    send(await frameOf(call, 0));
    asked++;
    await finish.promise;
    send(await frameOf(call, 1));
    send(summary());
    end();
  };

  const body = { model: "acme/base", action_space: "base_twist_2d", horizon: 10, observations: [{ proprio: [0] }] };
  const message = { model: "acme/base", actionSpace: "base_twist_2d", horizon: 10, observations: [{ proprio: [0] }] };
  const overRest = app.call("/v1/act", body, { key });
  const overGrpc = inference(app, "grpc").act(message, bearer(key));
  const stream = await readEvents(app, "/v1/predict/stream", { ...body, horizon: 2, action_space: undefined }, key);
  await expect.poll(() => asked).toBe(3);

  const closed = app.house.close(20_000);
  const ready = await app.call("/ready");
  expect([ready.status, ready.body.error.code, ready.body.error.message]).toEqual([
    503,
    "not_ready",
    "the gateway is closing",
  ]);
  expect((await app.call("/health")).status).toBe(200);
  const late = await app.call("/v1/act", body, { key });
  expect([late.status, late.body.error.code, late.headers.get("retry-after")]).toEqual([503, "not_ready", "1"]);
  for (const face of ["grpc", "connect"] as const)
    expect(await refusalIn(inference(app, face).act(message, bearer(key)))).toMatchObject({
      code: "Unavailable",
      reason: "not_ready",
    });

  finish.resolve();
  expect((await overRest).status).toBe(200);
  expect((await overGrpc).action?.steps.length).toBe(10);
  expect((await stream.rest()).map(({ event }) => event)).toEqual(["route", "frame", "frame", "done"]);
  await closed;
  await expect(app.call("/ready")).rejects.toThrow();
  const [sum] =
    await app.sql`select sum(cost_micro)::int as spent, count(*)::int as requests from request where org_id = ${org}`;
  expect(sum).toEqual({ spent: 4_000, requests: 3 });
  const [left] = await app.sql`select available_micro::int as available from account where org_id = ${org}`;
  expect(left?.available).toBe(996_000);
  expect(await brokenInvariants(app.sql)).toEqual([]);
});

it("waits no longer than its patience: what still runs is told that the house closes, called off, and not charged", async () => {
  model.script.act = undefined;
  const impatient = await openApp();
  await impatient.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  const { org, key } = await impatient.caller(1);
  const asked = Promise.withResolvers<void>();
  const before = model.cancelled();
  model.script.act = () => asked.resolve();
  const body = { model: "acme/base", action_space: "base_twist_2d", observations: [{ proprio: [0] }] };
  const call = impatient.call("/v1/act", body, { key });
  await asked.promise;
  const closed = impatient.house.close(50);
  const { status, body: answer } = await call;
  expect([status, answer.error.code]).toEqual([503, "not_ready"]);
  await closed;
  await expect.poll(model.cancelled).toBe(before + 1);
  const [left] = await impatient.sql`select available_micro::int as available from account where org_id = ${org}`;
  expect(left?.available).toBe(1_000_000);
  expect(await brokenInvariants(impatient.sql)).toEqual([]);
  await impatient.database.close();
});
