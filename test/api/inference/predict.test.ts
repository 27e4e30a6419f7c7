/** POST /v1/predict, /v1/predict/stream, /v1/ground and their other transports. */
import sharp from "sharp";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import type { PredictRequest } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { redSquare } from "../../../src/upstream/pictures/test-picture.ts";
import { ACT_DECLARATION, type App, type Caller } from "../../support/app.ts";
import { bearer, inference, readEvents, refusalIn } from "../../support/clients.ts";
import { setClock } from "../../support/clocks.ts";
import { type Market, openMarket } from "../../support/market.ts";
import { frameOf, type Model, summary } from "../../support/model.ts";
import { SkippingClock } from "../../support/skipping-clock.ts";
import { openModel } from "../../support/world.ts";

let market: Market;
let app: App;
let model: Model;
let caller: Caller;
let offering: string;
let observations: object[];
const clock = new SkippingClock();

beforeAll(async () => {
  setClock(clock);
  market = await openMarket(
    [
      {
        provider: "acme",
        model: "acme/world",
        contracts: ["predict", "ground"],
        price_per_frame: 0.002,
        price_per_1k_tokens: 0.01,
        timeout_s: 60,
      },
    ],
    100,
  );
  ({ app, model, caller } = market);
  offering = market.offerings[0]!;
  observations = [{ frames: [{ camera: "front", url: dataUrl(await redSquare(0.3, 0.3)) }] }];
});
afterEach(() => {
  model.script.predict = undefined;
  model.script.ground = undefined;
});

const dataUrl = (png: Buffer): string => `data:image/png;base64,${png.toString("base64")}`;
const body = (more: object = {}) => ({ model: "acme/world", horizon: 4, observations, ...more });
const predict = (more: object = {}, key = caller.key) => app.call("/v1/predict", body(more), { key });
const stream = (more: object = {}, key = caller.key) => readEvents(app, "/v1/predict/stream", body(more), key);
const spent = async ({ key }: Caller): Promise<number> =>
  (await app.call("/v1/billing/balance", undefined, { key })).body.spent_usd;

describe("POST /v1/predict", () => {
  it("returns the requested frames, which decode, and charges each", async () => {
    const payer = await app.caller(1);
    const { status, body } = await predict({}, payer.key);
    expect(status).toBe(200);
    expect(body).toMatchObject({
      id: expect.stringMatching(/^pred_/),
      object: "world.prediction",
      created: expect.any(Number),
      model: "acme/world",
      dt_ms: ACT_DECLARATION.dt_ms,
      route: { simulated: false, fallback_used: false, attempts: [{ status: "ok", offering_id: offering }] },
      usage: { frames: 4, gpu_seconds: 0.01, cost_usd: 0.008 },
    });
    expect(body.frames.map(({ index }: { index: number }) => index)).toEqual([0, 1, 2, 3]);
    for (const frame of body.frames) {
      const { width, height, format } = await sharp(Buffer.from(frame.data, "base64")).metadata();
      expect([width, height, format]).toEqual([frame.width, frame.height, frame.format]);
    }
    await expect.poll(() => spent(payer)).toBe(0.008);
  });

  it("returns 16 frames by default", async () => {
    expect((await predict({ horizon: undefined })).body.frames.length).toBe(16);
  });

  it("refuses actions whose length does not match their action space", async () => {
    const { status, body } = await predict({ action_space: "base_twist_2d", actions: [[1, 2], [1]] });
    expect([status, body.detail[0].loc]).toEqual([422, ["body", "actions", 1]]);
  });

  it("honors stream: true", async () => {
    const { status, body } = await predict({ stream: true });
    expect([status, body.error.code, body.error.param]).toEqual([422, "stream_unsupported", "stream"]);
  });

  it("fails attempts with missing or invalid frames free of charge", async () => {
    const payer = await app.caller(1);
    const answers = {
      wrong_step_count: async (call: PredictRequest) => [await frameOf(call, 0), summary()],
      empty_answer: async () => [summary()],
      malformed_answer: async () => [Buffer.from("ffff", "hex")],
    };
    for (const [reason, messages] of Object.entries(answers)) {
      model.script.predict = async (call, { send, end }) => {
        for (const message of await messages(call)) send(message);
        end();
      };
      const { status, body } = await predict({}, payer.key);
      expect([status, body.error.code], reason).toEqual([502, "all_attempts_failed"]);
      expect(body.route.attempts).toMatchObject([{ status: "error", reason }]);
      model.script.predict = undefined;
      expect((await predict({}, caller.key)).status).toBe(200);
    }
    expect(await spent(payer)).toBe(0);
  });
});

describe("POST /v1/predict/stream", () => {
  it("sends route, then each frame with its number, then done with the bill", async () => {
    const payer = await app.caller(1);
    const events = await stream({}, payer.key);
    expect([events.status, events.type]).toEqual([200, "text/event-stream; charset=utf-8"]);
    const read = await events.rest();
    expect(read.map(({ event, id }) => [event, id])).toEqual([
      ["route", undefined],
      ["frame", "0"],
      ["frame", "1"],
      ["frame", "2"],
      ["frame", "3"],
      ["done", undefined],
    ]);
    expect(read[0]?.data).toMatchObject({
      id: expect.stringMatching(/^pred_/),
      model: "acme/world",
      simulated: false,
      fallback_used: false,
      attempts: [{ offering_id: offering, status: "ok" }],
      estimated_cost_usd: 0.008,
      deadline_at: expect.any(Number),
    });
    expect(read[5]?.data).toMatchObject({
      id: read[0]?.data.id,
      object: "world.prediction",
      frames: 4,
      finish_reason: "complete",
      route: { attempts: [{ offering_id: offering, status: "ok" }], simulated: false },
      usage: { frames: 4, gpu_seconds: 0.01, cost_usd: 0.008 },
    });
    await expect.poll(() => spent(payer)).toBe(0.008);
  });

  it("sends each frame as soon as it arrives", async () => {
    const more = Promise.withResolvers<void>();
    model.script.predict = async (call, { send, end }) => {
      send(await frameOf(call, 0));
      await more.promise;
      send(await frameOf(call, 1));
      send(summary());
      end();
    };
    const events = await stream({ horizon: 2 });
    expect((await events.next())?.event).toBe("route");
    expect((await events.next())?.data).toMatchObject({ index: 0 });
    more.resolve();
    expect((await events.rest()).map(({ event }) => event)).toEqual(["frame", "done"]);
  });

  it("ends with a named error instead of done when the model fails, free of charge", async () => {
    const payer = await app.caller(1);
    model.script.predict = async (call, { send, stream }) => {
      send(await frameOf(call, 0));
      stream.close(2);
    };
    const read = await (await stream({}, payer.key)).rest();
    expect(read.map(({ event }) => event)).toEqual(["route", "frame", "error"]);
    expect(read[2]?.data.error).toMatchObject({ code: "all_attempts_failed", source: "upstream", status: 502 });
    // Frames of a provider that broke off are not charged.
    expect(read[2]?.data.usage).toEqual({ frames: 1, gpu_seconds: 0, cost_usd: 0 });
    // In seconds, as every time is.
    const { created, deadline_at } = read[0]!.data as { created: number; deadline_at: number };
    expect(deadline_at - created).toBeGreaterThan(-1);
    expect(deadline_at - created).toBeLessThan(200);
    expect(read[2]?.data.route.attempts).toMatchObject([{ status: "error", reason: "connection_lost" }]);
    await expect.poll(async () => (await app.call("/v1/billing/balance", undefined, payer)).body.held_usd).toBe(0);
    expect(await spent(payer)).toBe(0);
  });

  it("forwards and charges no more frames than requested", async () => {
    const payer = await app.caller(1);
    model.script.predict = async (call, { send, end }) => {
      for (let index = 0; index < 9; index++) send(await frameOf(call, index));
      send(summary());
      end();
    };
    const read = await (await stream({ horizon: 2 }, payer.key)).rest();
    expect(read.filter(({ event }) => event === "frame").length).toBeLessThanOrEqual(2);
    expect(["done", "error"]).toContain(read.at(-1)?.event);
    expect(read.at(-1)?.data.error?.code).not.toBe("internal_error");
    await expect.poll(async () => (await app.call("/v1/billing/balance", undefined, payer)).body.held_usd).toBe(0);
    expect(await spent(payer)).toBeLessThanOrEqual(0.004);
  });

  it("sends done with the delivered frames at the deadline", async () => {
    const payer = await app.caller(1);
    model.script.predict = async (call, { send }) => send(await frameOf(call, 0));
    const events = await stream({ provider: { deadline_ms: 30_000 } }, payer.key);
    for (const event of ["route", "frame"]) expect((await events.next())?.event).toBe(event);
    clock.skip(30_000);
    const read = await events.rest();
    expect(read.map(({ event }) => event)).toEqual(["done"]);
    expect(read[0]?.data).toMatchObject({
      finish_reason: "deadline",
      frames: 1,
      usage: { frames: 1, cost_usd: 0.002 },
    });
    await expect.poll(() => spent(payer)).toBe(0.002);
  });

  it("fails over before the first frame, visible only in the attempts", async () => {
    const other = await openModel({ predict: (_call, served) => served.end(13, "no") });
    const model2 = await openModel();
    other.script.predict = undefined;
    const facts = { model: "fall/back", contracts: ["predict"], price_per_frame: 0.001 };
    await app.supply({ provider: "falls", endpoint: other.endpoint, ...facts });
    await app.supply({ provider: "stands", endpoint: model2.endpoint, ...facts });
    other.script.predict = (_call, served) => served.end(13, "no");
    const read = await (await stream({ model: "fall/back", provider: { order: ["falls"] } })).rest();
    expect(read.map(({ event }) => event)).toEqual(["route", "frame", "frame", "frame", "frame", "done"]);
    expect(read[0]?.data).toMatchObject({
      provider: "stands",
      fallback_used: true,
      attempts: [
        { provider: "falls", status: "error", reason: "upstream_error" },
        { provider: "stands", status: "ok" },
      ],
    });
    await other.close();
    await model2.close();
  });

  it("cancels the model's work when the caller leaves, and charges the delivered frames", async () => {
    const payer = await app.caller(1);
    const before = model.cancelled();
    const asked = Promise.withResolvers<void>();
    model.script.predict = async (call, { send }) => {
      send(await frameOf(call, 0));
      send(await frameOf(call, 1));
      asked.resolve();
    };
    const events = await stream({}, payer.key);
    expect((await events.next())?.event).toBe("route");
    expect((await events.next())?.event).toBe("frame");
    expect((await events.next())?.event).toBe("frame");
    events.leave();
    await expect.poll(model.cancelled).toBe(before + 1);
    await expect.poll(() => spent(payer)).toBe(0.004);
    const { body } = await app.call("/v1/usage", undefined, payer);
    expect(body.data).toMatchObject([{ contract: "predict", units: 2, cost_usd: 0.004 }]);
  });

  it("ends when its key is revoked, and charges the delivered frames", async () => {
    const payer = await app.caller(1);
    for (const transport of ["rest", "grpc"] as const) {
      const before = [model.cancelled(), await spent(payer)] as const;
      model.script.predict = async (call, { send }) => {
        send(await frameOf(call, 0));
        send(await frameOf(call, 1));
      };
      const key = await app.key(payer.org, { name: transport });
      const revoke = async () =>
        expect(
          (await app.sql`update key set disabled = true where org_id = ${payer.org} and name = ${transport}`).count,
        ).toBe(1);
      if (transport === "rest") {
        const events = await stream({}, key);
        for (const event of ["route", "frame", "frame"]) expect((await events.next())?.event).toBe(event);
        await revoke();
        expect(await events.next()).toMatchObject({ event: "error", data: { error: { code: "key_disabled" } } });
      } else {
        const frames = [{ camera: "front", data: await redSquare(0.4, 0.4) }];
        const predict = { model: "acme/world", horizon: 4, observations: [{ frames }] };
        const events = inference(app, transport).predictStream({ predict }, bearer(key))[Symbol.asyncIterator]();
        for (const event of ["route", "frame", "frame"]) expect((await events.next()).value?.event.case).toBe(event);
        await revoke();
        expect(await refusalIn(events.next())).toMatchObject({ code: "Unauthenticated", reason: "key_disabled" });
      }
      await expect.poll(model.cancelled).toBe(before[0] + 1);
      await expect.poll(() => spent(payer)).toBe(Math.round((before[1] + 0.004) * 1e6) / 1e6);
    }
  });

  it("accepts no idempotency key in header or field", async () => {
    const header = { key: caller.key, headers: { "idempotency-key": "k1" } };
    for (const answer of [
      await app.call("/v1/predict/stream", body(), header),
      await app.call("/v1/predict/stream", body({ idempotency_key: "k1" }), { key: caller.key }),
    ]) {
      expect([answer.status, answer.body.error.code]).toEqual([422, "idempotency_unsupported"]);
    }
  });

  it.each(["connect", "grpc", "grpc-web"] as const)("streams the same events over %s", async (transport) => {
    const predict = {
      model: "acme/world",
      horizon: 2,
      observations: [{ frames: [{ camera: "front", data: await redSquare(0.4, 0.4) }] }],
    };
    const events = await Array.fromAsync(inference(app, transport).predictStream({ predict }, bearer(caller.key)));
    expect(events.map(({ event }) => event.case)).toEqual(["route", "frame", "frame", "done"]);
    const refused = Array.fromAsync(
      inference(app, transport).predictStream({ predict }, bearer(caller.key, { "idempotency-key": "k1" })),
    );
    expect(await refusalIn(refused)).toMatchObject({ code: "InvalidArgument", reason: "idempotency_unsupported" });
  });

  it("cancels the model's work when a gRPC caller leaves, and charges the delivered frames", async () => {
    const payer = await app.caller(1);
    const before = model.cancelled();
    model.script.predict = async (call, { send }) => {
      send(await frameOf(call, 0));
      send(await frameOf(call, 1));
    };
    const predict = {
      model: "acme/world",
      horizon: 4,
      observations: [{ frames: [{ data: await redSquare(0.4, 0.4) }] }],
    };
    const leaving = new AbortController();
    const events = inference(app, "grpc").predictStream({ predict }, { ...bearer(payer.key), signal: leaving.signal });
    const reading = (async () => {
      let frames = 0;
      for await (const { event } of events) if (event.case === "frame" && ++frames === 2) leaving.abort();
    })();
    expect(await refusalIn(reading)).toMatchObject({ code: "Canceled" });
    await expect.poll(model.cancelled).toBe(before + 1);
    await expect.poll(() => spent(payer)).toBe(0.004);
  });
});

describe("POST /v1/ground", () => {
  const ground = (more: object = {}, key = caller.key) =>
    app.call("/v1/ground", { instruction: "the red square", observations, ...more }, { key });

  it("returns points and boxes from the provider and charges tokens", async () => {
    const payer = await app.caller(1);
    const { status, body } = await ground({}, payer.key);
    expect(status).toBe(200);
    expect(body).toMatchObject({
      id: expect.stringMatching(/^grnd_/),
      object: "world.grounding",
      model: "acme/world",
      points: [{ x: 0.3, y: 0.3, label: "square", confidence: 0.9, frame: 0, camera: "front" }],
      boxes: [],
      route: { model: "acme/world", provider: "acme", simulated: false },
      usage: { input_tokens: 300, output_tokens: 20, cost_usd: 0.0032 },
    });
    expect(body.route).not.toHaveProperty("attempts");
    await expect.poll(() => spent(payer)).toBe(0.0032);
  });

  it("accepts service/ground and the model's own name", async () => {
    expect((await ground({ model: "service/ground" })).status).toBe(200);
    expect((await ground({ model: "acme/world" })).status).toBe(200);
    expect((await ground({ model: "acme/nothing" })).body.error.code).toBe("model_not_found");
  });

  it("requires an instruction", async () => {
    const { status, body } = await ground({ instruction: undefined });
    expect([status, body.detail]).toMatchObject([422, [{ loc: ["body", "instruction"], type: "missing" }]]);
  });

  it("never charges more than it reserved, whatever the provider counts", async () => {
    const payer = await app.caller(1);
    model.script.ground = (_call, { send, end }) => {
      send(Buffer.from("2080ade204", "hex")); // input_tokens: ten million
      end();
    };
    const { status, body } = await ground({}, payer.key);
    expect(status).toBe(200);
    expect(body.usage.cost_usd).toBeLessThan(0.05);
    await expect.poll(() => spent(payer)).toBe(body.usage.cost_usd);
  });

  it("treats a place outside the image as a failed attempt", async () => {
    model.script.ground = (_call, { send, end }) => {
      const x = Buffer.alloc(9);
      x[0] = 0x09;
      x.writeDoubleLE(512, 1);
      send(Buffer.concat([Buffer.of(0x0a, x.length), x]));
      end();
    };
    const { status, body } = await ground();
    expect([status, body.error.code]).toEqual([502, "all_attempts_failed"]);
  });

  it("works the same over Connect and gRPC", async () => {
    const request = {
      instruction: "the red square",
      observations: [{ frames: [{ data: await redSquare(0.4, 0.4) }] }],
    };
    for (const transport of ["connect", "grpc"] as const) {
      const answer = await inference(app, transport).ground(request, bearer(caller.key));
      expect(answer).toMatchObject({ points: [{ x: 0.4, y: 0.4 }], usage: { costUsd: 0.0032 } });
    }
  });
});
