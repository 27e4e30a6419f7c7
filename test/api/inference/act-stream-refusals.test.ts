/** ActStream: how loops end, what they do with bad input, and what they do when providers, credit or keys go. */
import * as http2 from "node:http2";
import { create, toBinary } from "@bufbuild/protobuf";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import { ActStreamRequestSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import { frameMessage } from "../../../src/codecs/grpc.ts";
import { brokenInvariants } from "../../../src/store/money/invariants.ts";
import { type App, type Caller, openApp } from "../../support/app.ts";
import { refusalIn } from "../../support/clients.ts";
import { robot } from "../../support/loop-client.ts";
import { honestSteps, type Model, startModel } from "../../support/model.ts";
import { BOUNDLESS } from "../../support/pair.ts";

const OPEN = { model: "acme/base", actionSpace: "base_twist_2d", horizon: 5 };
const ACT = { model: "acme/base", action_space: "base_twist_2d", horizon: 5, observations: [{ proprio: [0.5] }] };

let app: App;
let one: Model;
let two: Model;
let other: Model;
let caller: Caller;

beforeAll(async () => {
  [app, one, two, other] = await Promise.all([openApp(), startModel(), startModel(), startModel()]);
  await app.supply({ provider: "one", model: "acme/base", endpoint: one.endpoint });
  await app.supply({ provider: "two", model: "acme/base", endpoint: two.endpoint });
  await app.supply({ provider: "other", model: "other/base", endpoint: other.endpoint });
  caller = await app.caller(10);
});
afterEach(() => {
  for (const model of [one, two, other]) model.script.act = undefined;
});
afterAll(async () => {
  await app.close();
  for (const model of [one, two, other]) await model.close();
});

const dead: Model["script"]["act"] = (_call, _answer, { stream }) => stream.close(2);
const pinnedTo = (provider: string | undefined) => (provider === "one" ? one : two);

describe("a key's rate limit", () => {
  const FEW = { requests: 1, window_s: 3600, burst: 8 };

  it("counts each step as a request; a step beyond it is held with the reason, and the loop goes on", async () => {
    const key = await app.key(caller.org, { role: "owner", rate_limit: FEW });
    const loop = robot(app, key, OPEN);
    await loop.expect("opened");
    for (let step = 1; step <= 7; step++) {
      loop.observe(step);
      await loop.expect("chunk");
    }
    for (const step of [8, 9]) {
      loop.observe(step);
      expect(await loop.expect("hold")).toMatchObject({
        step,
        reason: HoldReason.RATE_LIMITED,
        detail: expect.stringContaining("1 requests and steps of control loops in 3600 s"),
      });
    }
    loop.say({ case: "close", value: {} });
    expect(await loop.expect("ended")).toMatchObject({ code: "", chunks: 7, holds: 2 });
  });

  it("is never used up by another key", async () => {
    const [noisy, quiet] = await Promise.all([1, 2].map(() => app.key(caller.org, { role: "owner", rate_limit: FEW })));
    const loop = robot(app, quiet!, OPEN);
    await loop.expect("opened");
    const refused = await Promise.all(Array.from({ length: 20 }, () => app.call("/v1/act", ACT, { key: noisy! })));
    expect(refused.filter(({ status }) => status === 429).length).toBeGreaterThan(10);
    for (let step = 1; step <= 6; step++) {
      loop.observe(step);
      await loop.expect("chunk");
    }
    loop.leave();
  });
});

describe("402", () => {
  it("is what a loop meets before anything is asked when there is no credit", async () => {
    const poor = await app.caller(0.0001);
    const before = one.acts.length + two.acts.length;
    const loop = robot(app, poor.key, OPEN);
    expect(await refusalIn(loop.next())).toMatchObject({
      code: "FailedPrecondition",
      reason: "insufficient_credits",
      details: { requiredUsd: 0.0005, availableUsd: 0.0001 },
    });
    expect(one.acts.length + two.acts.length).toBe(before);
  });

  it("ends a loop after the last chunk that the balance covers, with its details", async () => {
    const poor = await app.caller(0.0062);
    const loop = robot(app, poor.key, OPEN);
    await loop.expect("opened");
    let chunks = 0;
    let step = 0;
    const refused = (async () => {
      for (;;) {
        loop.observe(++step);
        const told = await loop.next();
        if (told?.kind === "chunk") chunks += 1;
        if (told?.kind === "ended") expect(told.value).toMatchObject({ code: "insufficient_credits", chunks: 12 });
      }
    })();
    expect(await refusalIn(refused)).toMatchObject({
      reason: "insufficient_credits",
      details: { requiredUsd: 0.0005, availableUsd: 0.0002, shortfallUsd: 0.0003 },
    });
    expect(chunks).toBe(12);
    await expect
      .poll(async () => (await app.call("/v1/billing/balance", undefined, poor)).body)
      .toMatchObject({ spent_usd: 0.006, balance_usd: 0.0002, held_usd: 0 });
    expect(await brokenInvariants(app.sql)).toEqual([]);
  });
});

describe("failover", () => {
  it("to the same checkpoint leaves no gap, and is told once", async () => {
    const loop = robot(app, caller.key, OPEN);
    await loop.expect("opened");
    loop.observe(1);
    const first = (await loop.expect("chunk")).route!.provider;
    pinnedTo(first).script.act = dead;
    loop.observe(2);
    const chunk = await loop.expect("chunk");
    expect(chunk).toMatchObject({ startStep: 2, episodeBreak: false });
    expect(chunk.route).toMatchObject({
      provider: first === "one" ? "two" : "one",
      attempts: [{ provider: first }, {}],
    });
    loop.observe(3);
    expect((await loop.expect("chunk")).route).toBeUndefined();
    loop.leave();
  });

  it("to another model happens inside an episode for those who list it alone, and says so", async () => {
    const strict = robot(app, caller.key, { ...OPEN, model: "acme/base" });
    const listing = robot(app, caller.key, { ...OPEN, models: ["other/base"] });
    for (const loop of [strict, listing]) {
      await loop.expect("opened");
      loop.observe(1);
      await loop.expect("chunk");
    }
    one.script.act = dead;
    two.script.act = dead;
    strict.observe(2);
    expect(await strict.expect("hold")).toMatchObject({ step: 2, reason: HoldReason.UPSTREAM_FAILED });
    listing.observe(2);
    expect(await listing.expect("chunk")).toMatchObject({ episodeBreak: true, route: { model: "other/base" } });
    listing.observe(3);
    expect(await listing.expect("chunk")).toMatchObject({ episodeBreak: false });
    for (const loop of [strict, listing]) loop.leave();
  });
});

describe("a hold", () => {
  it("comes in place of a late answer, which is called off and costs nothing", async () => {
    const poor = await app.caller(1);
    one.script.act = () => {};
    two.script.act = () => {};
    const cancelled = one.cancelled() + two.cancelled();
    const loop = robot(app, poor.key, { ...OPEN, provider: { deadlineMs: 60 } });
    await loop.expect("opened");
    loop.observe(1);
    const hold = await loop.expect("hold");
    expect(hold).toMatchObject({ step: 1, reason: HoldReason.LATE });
    expect(hold.observationAgeMs).toBeGreaterThanOrEqual(60);
    await expect.poll(() => one.cancelled() + two.cancelled()).toBe(cancelled + 1);
    loop.halfClose();
    expect(await loop.rest()).toMatchObject([{ kind: "ended", value: { chunks: 0, holds: 1, staleRatio: 1 } }]);
    await expect
      .poll(async () => (await app.call("/v1/billing/balance", undefined, poor)).body)
      .toMatchObject({ spent_usd: 0, held_usd: 0 });
  });

  it("comes in place of a chunk beyond the safety bounds", async () => {
    const loop = robot(app, caller.key, { ...OPEN, bounds: { lowest: [-1], highest: [1] } });
    await loop.expect("opened");
    loop.observe(1, { observations: [{ proprio: [5] }] });
    expect(await loop.expect("hold")).toMatchObject({ reason: HoldReason.OUT_OF_BOUNDS });
    loop.observe(2, { observations: [{ proprio: [0.5] }] });
    await loop.expect("chunk");
    loop.leave();
  });

  it("comes for observations whose dimensions change, that lie in the future, or whose picture is none", async () => {
    const loop = robot(app, caller.key, OPEN);
    await loop.expect("opened");
    loop.observe(1, { observations: [{ proprio: [1, 2], tMs: 1000 }] });
    await loop.expect("chunk");
    loop.observe(2, { observations: [{ proprio: [1], tMs: 1020 }] });
    expect(await loop.expect("hold")).toMatchObject({
      reason: HoldReason.INVALID_OBSERVATION,
      detail: expect.stringContaining("1 numbers"),
    });
    loop.observe(3, { observations: [{ proprio: [1, 2], tMs: 9_999_999 }] });
    expect(await loop.expect("hold")).toMatchObject({ detail: expect.stringContaining("future") });
    loop.say({ case: "reset", value: { instruction: "again" } });
    loop.observe(1, { observations: [{ proprio: [1], frames: [{ data: new Uint8Array([1, 2, 3]) }] }] });
    expect(await loop.expect("hold")).toMatchObject({
      reason: HoldReason.INVALID_OBSERVATION,
      detail: expect.stringContaining("PNG"),
    });
    loop.leave();
  });
});

describe("out of order", () => {
  it("observations are dropped and counted", async () => {
    const loop = robot(app, caller.key, OPEN);
    await loop.expect("opened");
    loop.observe(5);
    await loop.expect("chunk");
    for (const step of [5, 4, 1, 6]) loop.observe(step);
    expect(await loop.expect("chunk")).toMatchObject({ startStep: 6, droppedObservations: 3 });
    loop.leave();
  });
});

describe("refused", () => {
  it.each([
    [
      "an observation before open",
      [{ case: "observation", value: { step: 1, observations: [{}] } }],
      "validation_failed",
    ],
    [
      "open twice",
      [
        { case: "open", value: OPEN },
        { case: "open", value: OPEN },
      ],
      "validation_failed",
    ],
    ["a model that is not known", [{ case: "open", value: { ...OPEN, model: "no/such" } }], "model_not_found"],
    [
      "another action space",
      [{ case: "open", value: { ...OPEN, actionSpace: "joint_pos_7" } }],
      "action_space_mismatch",
    ],
    [
      "constraints that leave nothing",
      [{ case: "open", value: { ...OPEN, provider: { region: ["moon"] } } }],
      "no_route_available",
    ],
    ["a preset that is not there", [{ case: "open", value: { ...OPEN, preset: "none" } }], "preset_not_found"],
    [
      "bounds that do not fit",
      [{ case: "open", value: { ...OPEN, bounds: { lowest: [1, 2, 3] } } }],
      "validation_failed",
    ],
    [
      "bounds that nothing keeps",
      [{ case: "open", value: { ...OPEN, bounds: { lowest: [2], highest: [1] } } }],
      "validation_failed",
    ],
    [
      "an observation of nothing",
      [
        { case: "open", value: OPEN },
        { case: "observation", value: { step: 1 } },
      ],
      "validation_failed",
    ],
    [
      "numbers that are none",
      [
        { case: "open", value: OPEN },
        { case: "observation", value: { step: 1, observations: [{ proprio: [Number.NaN] }] } },
      ],
      "validation_failed",
    ],
    ["an empty message", [{ case: undefined }], "validation_failed"],
  ])("%s", async (_, said, reason) => {
    const loop = robot(app, caller.key);
    for (const message of said) loop.say(message as never);
    expect(await refusalIn(loop.rest())).toMatchObject({ reason });
  });

  it("over REST, with where it is served, and nothing else at its path", async () => {
    const { status, body } = await app.call("/v1/act/stream", {}, caller);
    expect([status, body.error.code]).toEqual([422, "stream_unsupported"]);
    expect(body.error.message).toContain("limber.v1.InferenceService/ActStream");
    expect((await app.call("/v1/act/stream", undefined, caller)).status).toBe(405);
  });

  it("over HTTP/1.1 by Connect", async () => {
    const response = await fetch(`${app.url}/limber.v1.InferenceService/ActStream`, {
      method: "POST",
      headers: { authorization: `Bearer ${caller.key}`, "content-type": "application/connect+proto" },
      body: "",
    });
    await response.text();
    expect(response.status).toBe(505);
  });
});

describe("the end", () => {
  it("comes when the key is revoked", async () => {
    const key = await app.key(caller.org, { role: "operator" });
    const { body } = await app.call("/v1/key", undefined, { key });
    const loop = robot(app, key, OPEN);
    await loop.expect("opened");
    loop.observe(1);
    await loop.expect("chunk");
    await app.sql`update key set disabled = true where id = ${body.id}`;
    expect(await loop.expect("ended")).toMatchObject({ code: "key_disabled", chunks: 1 });
    expect(await refusalIn(loop.next())).toMatchObject({ code: "Unauthenticated", reason: "key_disabled" });
  });

  it("comes to a stream whose session another one opens, which goes on in its stead", async () => {
    const open = { ...OPEN, provider: { sessionId: "twice" } };
    const first = robot(app, caller.key, open);
    await first.expect("opened");
    first.observe(1);
    const { route } = await first.expect("chunk");
    const second = robot(app, caller.key, open);
    expect(await second.expect("opened")).toMatchObject({ resumed: true, route: { provider: route?.provider } });
    expect(await first.expect("ended")).toMatchObject({ code: "session_taken_over" });
    expect(await refusalIn(first.next())).toMatchObject({ code: "Aborted", reason: "session_taken_over" });
    second.observe(2);
    expect(await second.expect("chunk")).toMatchObject({ startStep: 2, route: { provider: route?.provider } });
    second.leave();
  });

  it("waits for the answer that is under way when the caller has ended its side", async () => {
    const later = Promise.withResolvers<void>();
    one.script.act = two.script.act = async (call, answer) => {
      await later.promise;
      answer(honestSteps(call, 2));
    };
    const before = one.acts.length + two.acts.length;
    const loop = robot(app, caller.key, { ...OPEN, horizon: 100 });
    await loop.expect("opened");
    loop.observe(1);
    await expect.poll(() => one.acts.length + two.acts.length).toBe(before + 1);
    loop.halfClose();
    later.resolve();
    expect(await loop.rest()).toMatchObject([
      { kind: "chunk", value: { startStep: 1 } },
      { kind: "ended", value: { code: "", chunks: 1 } },
    ]);
  });

  it("calls off what is under way when the caller leaves, and gives the credit back", async () => {
    const rich = await app.caller(1);
    one.script.act = two.script.act = () => {};
    const cancelled = one.cancelled() + two.cancelled();
    const before = one.acts.length + two.acts.length;
    const loop = robot(app, rich.key, { ...OPEN, horizon: 100 });
    await loop.expect("opened");
    loop.observe(1);
    await expect.poll(() => one.acts.length + two.acts.length).toBe(before + 1);
    loop.leave();
    await expect.poll(() => one.cancelled() + two.cancelled()).toBe(cancelled + 1);
    await expect
      .poll(async () => (await app.call("/v1/billing/balance", undefined, rich)).body)
      .toMatchObject({ spent_usd: 0, held_usd: 0 });
  });

  it("comes as unavailable with a last message when the gateway closes", async () => {
    const closing = await openApp({ database: app.database });
    await expect.poll(async () => (await closing.call("/v1/models/acme/base", undefined, caller)).status).toBe(200);
    const loop = robot(closing, caller.key, OPEN);
    await loop.expect("opened");
    loop.observe(1);
    await loop.expect("chunk");
    const closed = closing.house.close(5_000);
    expect(await loop.expect("ended")).toMatchObject({ code: "not_ready", chunks: 1 });
    expect(await refusalIn(loop.next())).toMatchObject({ code: "Unavailable", reason: "not_ready" });
    await closed;
    expect(await brokenInvariants(app.sql)).toEqual([]);
  });
});

describe("hostile traffic", () => {
  it("observations of 20 MB are taken, and no more than two are kept", async () => {
    const loop = robot(app, caller.key, { ...OPEN, horizon: 100 });
    await loop.expect("opened");
    const frames = [0, 1].map((i) => ({ camera: `c${i}`, data: new Uint8Array(10 << 20) }));
    for (const step of [1, 2, 3]) loop.observe(step, { observations: [{ proprio: [1], frames }] });
    // None of them is a picture.
    expect(await loop.expect("hold")).toMatchObject({ reason: HoldReason.INVALID_OBSERVATION });
    loop.say({ case: "reset", value: {} });
    loop.observe(1);
    for (;;) {
      const told = await loop.next();
      if (told?.kind === "chunk") break;
    }
    loop.leave();
  });

  it("ten thousand observations at once end in a chunk for the last", async () => {
    const loop = robot(app, (await app.caller(100, { role: "owner", rate_limit: BOUNDLESS })).key, {
      ...OPEN,
      horizon: 50,
    });
    await loop.expect("opened");
    for (let step = 1; step <= 10_000; step++) loop.observe(step);
    let chunks = 0;
    for (;;) {
      const told = await loop.next();
      if (told?.kind !== "chunk") continue;
      chunks += 1;
      if (told.value.startStep === 10_000) break;
    }
    expect(chunks).toBeLessThan(10_000);
    loop.leave();
  });

  it("a caller who does not read is not worked for, and another is not held up by it", async () => {
    const deaf = http2.connect(app.url, { settings: { initialWindowSize: 1024 } });
    const stream = deaf.request({
      ":path": "/limber.v1.InferenceService/ActStream",
      ":method": "POST",
      "content-type": "application/grpc",
      te: "trailers",
      authorization: `Bearer ${caller.key}`,
    });
    stream.on("error", () => undefined);
    const say = (message: object): void => {
      stream.write(
        frameMessage(toBinary(ActStreamRequestSchema, create(ActStreamRequestSchema, { message } as never))),
      );
    };
    say({ case: "open", value: { ...OPEN, horizon: 200 } });
    const asked = (): number => one.acts.length + two.acts.length;
    const before = asked();
    for (let step = 1; step <= 400; step++) {
      say({ case: "observation", value: { step, observations: [{ proprio: [0] }] } });
      await new Promise((resolve) => setImmediate(resolve));
    }
    const loop = robot(app, caller.key, OPEN);
    await loop.expect("opened");
    loop.observe(1);
    await loop.expect("chunk");
    loop.leave();
    // A chunk of 200 steps is about 5 kB: what fits the windows, and a little more, is all that was made.
    expect(asked() - before).toBeLessThan(60);
    deaf.destroy();
  });
});

describe("a dropped connection", () => {
  it.each(["the same replica", "another replica"])(
    "is resumed on %s by its session, without a second charge for the last chunk",
    async (where) => {
      const mine = await app.caller(1);
      const elsewhere = where === "the same replica" ? app : await openApp({ database: app.database });
      if (elsewhere !== app)
        await expect.poll(async () => (await elsewhere.call("/v1/models/acme/base", undefined, mine)).status).toBe(200);
      const open = { ...OPEN, horizon: 200, provider: { sessionId: "resumed" } };
      const first = robot(app, mine.key, open);
      await first.expect("opened");
      first.observe(1);
      await first.expect("chunk");
      first.observe(7);
      const charged = await first.expect("chunk");
      first.leave();

      const second = robot(elsewhere, mine.key, open);
      expect(await second.expect("opened")).toMatchObject({ resumed: true, resumedStep: 7 });
      second.observe(7);
      const replayed = await second.expect("chunk");
      expect(replayed).toMatchObject({
        replayed: true,
        chunkId: charged.chunkId,
        usage: { actionSteps: 0, costUsd: 0 },
      });
      expect(replayed.action).toEqual(charged.action);
      expect(replayed.observationAgeMs).toBeGreaterThan(charged.observationAgeMs);
      second.observe(8);
      expect(await second.expect("chunk")).toMatchObject({ replayed: false, startStep: 8 });
      second.halfClose();
      await second.rest();
      await expect
        .poll(async () => (await app.call("/v1/billing/balance", undefined, mine)).body)
        .toMatchObject({ spent_usd: 0.06, held_usd: 0 });
      if (elsewhere !== app) await elsewhere.close();
    },
  );

  it("that the gateway has not noticed is taken over on another replica too", async () => {
    const mine = await app.caller(1);
    const elsewhere = await openApp({ database: app.database });
    await expect.poll(async () => (await elsewhere.call("/v1/models/acme/base", undefined, mine)).status).toBe(200);
    const open = { ...OPEN, horizon: 200, provider: { sessionId: "half-dead" } };
    const first = robot(app, mine.key, open);
    await first.expect("opened");
    first.observe(3);
    await first.expect("chunk");
    const second = robot(elsewhere, mine.key, open);
    expect(await second.expect("opened")).toMatchObject({ resumed: true, resumedStep: 3 });
    expect(await first.expect("ended")).toMatchObject({ code: "session_taken_over" });
    second.observe(3);
    expect(await second.expect("chunk")).toMatchObject({ replayed: true });
    second.leave();
    await elsewhere.close();
  });
});
