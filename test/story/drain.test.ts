/** A gateway that drains in the middle of its work. */
import { beforeAll, expect, it } from "vitest";
import { WebSocket } from "ws";
import { Request } from "zeromq";
import { decodeGr00t, encodeGr00t } from "../../src/codecs/python/gr00t.ts";
import { decodeNumpy, encodeNumpy, NdArray } from "../../src/codecs/python/ndarray.ts";
import type { App } from "../support/app.ts";
import { bearer, inference, readEvents } from "../support/clients.ts";
import { brokenInvariants } from "../support/invariants.ts";
import { robot } from "../support/loop-client.ts";
import { frameOf, type Model, summary } from "../support/model.ts";
import { openModel, ownGateway } from "../support/world.ts";

let app: App;
let model: Model;

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway(), openModel()]);
});

it("reports not ready while it still serves, then refuses connections, finishes and charges running calls, and exits", async () => {
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

  const closed = app.gateway.close(20_000, 3_000);
  const ready = await app.call("/ready");
  expect([ready.status, ready.body.error.code, ready.body.error.message]).toEqual([
    503,
    "not_ready",
    "the gateway is shutting down",
  ]);
  expect((await app.call("/health")).status).toBe(200);
  const late = app.call("/v1/act", body, { key });
  const lateOverRpc = (["grpc", "connect"] as const).map((transport) =>
    inference(app, transport).act(message, bearer(key)),
  );
  await expect.poll(() => asked).toBe(6);
  await expect.poll(() => app.call("/ready").catch(() => "refused")).toBe("refused");

  finish.resolve();
  expect((await overRest).status).toBe(200);
  expect([(await late).status, (await late).headers.get("connection")]).toEqual([200, "close"]);
  for (const answer of lateOverRpc) expect((await answer).action?.steps.length).toBe(10);
  expect((await overGrpc).action?.steps.length).toBe(10);
  expect((await stream.rest()).map(({ event }) => event)).toEqual(["route", "frame", "frame", "done"]);
  await closed;
  await expect(app.call("/ready")).rejects.toThrow();
  const [sum] =
    await app.sql`select sum(cost_micro)::int as spent, count(*)::int as requests from request where org_id = ${org}`;
  expect(sum).toEqual({ spent: 7_000, requests: 6 });
  const [left] = await app.sql`select available_micro::int as available from account where org_id = ${org}`;
  expect(left?.available).toBe(993_000);
  expect(await brokenInvariants(app.sql)).toEqual([]);
});

it("waits no longer than its limit: running calls are canceled with a closing error and not charged", async () => {
  model.script.act = undefined;
  const impatient = await ownGateway();
  await impatient.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  const { org, key } = await impatient.caller(1);
  const asked = Promise.withResolvers<void>();
  const before = model.cancelled();
  model.script.act = () => asked.resolve();
  const body = { model: "acme/base", action_space: "base_twist_2d", observations: [{ proprio: [0] }] };
  const call = impatient.call("/v1/act", body, { key });
  await asked.promise;
  const closed = impatient.gateway.close(50);
  const { status, body: answer } = await call;
  expect([status, answer.error.code]).toEqual([503, "not_ready"]);
  await closed;
  await expect.poll(model.cancelled).toBe(before + 1);
  const [left] = await impatient.sql`select available_micro::int as available from account where org_id = ${org}`;
  expect(left?.available).toBe(1_000_000);
  expect(await brokenInvariants(impatient.sql)).toEqual([]);
});

it("asks control loops to move while it serves, and accepts their streams again", async () => {
  model.script.act = undefined;
  const moving = await ownGateway();
  await moving.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  const { key } = await moving.caller(1);
  const open = { model: "acme/base", actionSpace: "base_twist_2d", horizon: 4, provider: { sessionId: "moving" } };
  const loop = robot(moving, key, open);
  await loop.expect("opened");
  loop.observe(1);
  await loop.expect("chunk");
  const closed = moving.gateway.close(20_000, 3_000);
  expect(await loop.expect("ended")).toMatchObject({ code: "not_ready", chunks: 1 });
  const again = robot(moving, key, open);
  expect(await again.expect("opened")).toMatchObject({ resumed: true });
  again.observe(2);
  await again.expect("chunk");
  // It has to go when connections are refused.
  expect(await again.expect("ended")).toMatchObject({ code: "not_ready" });
  await closed;
  expect(await brokenInvariants(moving.sql)).toEqual([]);
});

it("closes connections of openpi and GR00T clients after their pending answers", async () => {
  const draining = await ownGateway({ gr00tPort: 0 });
  await draining.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  const { key } = await draining.caller(1);
  const finish = Promise.withResolvers<void>();
  let asked = 0;
  model.script.act = async (call, answer) => {
    asked++;
    await finish.promise;
    answer(Array.from({ length: call.horizon }, () => [0, 0]));
  };
  const openpi = new WebSocket(`${draining.url.replace("http", "ws")}/v1/openpi/acme/base?horizon=4`, {
    headers: { authorization: `Api-Key ${key}` },
  });
  const told: (Buffer | number)[] = [];
  openpi.on("message", (data: Buffer) => told.push(data)).on("close", (code) => told.push(code));
  await expect.poll(() => told.length).toBe(1);
  openpi.send(encodeNumpy({ "observation/state": NdArray.float32([1], [1]), prompt: "go" }));
  const gr00t = new Request({ receiveTimeout: 60_000, linger: 0 });
  gr00t.connect(`tcp://127.0.0.1:${draining.gateway.gr00tPort}`);
  const observation = { "state.base": NdArray.float32([1], [1, 1]) };
  const options = { model: "acme/base", action_space: "base_twist_2d", horizon: 4 };
  await gr00t.send(encodeGr00t({ endpoint: "get_action", api_token: key, data: { ...observation, options } }));
  await expect.poll(() => asked).toBe(2);

  const closed = draining.gateway.close(20_000);
  finish.resolve();
  const [answer] = await gr00t.receive();
  expect((decodeGr00t(answer as Buffer) as Map<string, unknown>).get("error")).toBeUndefined();
  await expect.poll(() => told.length).toBe(3);
  expect((decodeNumpy(told[1] as Buffer) as Map<string, unknown>).has("actions")).toBe(true);
  expect(told[2]).toBe(1012);
  await closed;
  gr00t.close();
  model.script.act = undefined;
});
