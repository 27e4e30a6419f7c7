/** ActStream: how loops end, what hostile traffic does to them, and how they are resumed. */
import * as http2 from "node:http2";
import { create, toBinary } from "@bufbuild/protobuf";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import { ActStreamRequestSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import { frameMessage } from "../../../src/codecs/grpc.ts";
import { pruneLoopSessions } from "../../../src/store/replicas/loop-sessions.ts";
import { ADMIN_TOKEN } from "../../support/app.ts";
import { refusalIn } from "../../support/clients.ts";
import { eventually } from "../../support/eventually.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { robot } from "../../support/loop-client.ts";
import { honestSteps } from "../../support/model.ts";
import { BOUNDLESS } from "../../support/pair.ts";
import { ownGateway } from "../../support/world.ts";
import { app, begin, caller, clock, endEach, isOver, OPEN, one, two } from "./act-stream-supply.ts";

beforeAll(begin);
afterEach(endEach);

describe("the end", () => {
  it("follows when the key is revoked", async () => {
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

  it.each([
    ["its contracts", { scopes: ["predict"] }, "scope_denied"],
    ["its models", { models: ["acme/other"] }, "key_narrowed"],
    ["what it may drive", { environment: "hardware" }, "key_narrowed"],
    ["its robot", { robot_id: "another" }, "key_narrowed"],
    ["its budget", { budget: { limit_usd: 0 } }, "key_budget_exhausted"],
  ])("follows when the key is narrowed in %s", async (_what, change, code) => {
    const key = await app.key(caller.org, { role: "operator" });
    const { body } = await app.call("/v1/key", undefined, { key });
    const loop = robot(app, key, OPEN);
    await loop.expect("opened");
    const path = `/v1/orgs/${caller.org}/keys/${body.id}`;
    // The operator's: what a loop may be served by narrows with `hardware`, what a key may move widens.
    expect((await app.call(path, change, { admin: ADMIN_TOKEN, method: "PATCH" })).status).toBe(200);
    for (let step = 1; ; step++) {
      loop.observe(step);
      const told = await loop.next();
      if (told?.kind !== "ended") continue;
      expect(told.value).toMatchObject({ code });
      break;
    }
    expect(await refusalIn(loop.next())).toMatchObject({ reason: code });
  });

  it("follows when the organization turns on zero data retention", async () => {
    const mine = await app.caller(1);
    const settle = (settings: object) =>
      app.call(`/v1/orgs/${mine.org}/settings`, settings, { key: mine.key, method: "PATCH" });
    const loop = robot(app, mine.key, OPEN);
    await loop.expect("opened");
    await settle({ zdr: true });
    expect(await loop.expect("ended")).toMatchObject({ code: "key_narrowed" });
  });

  it("does not follow a lowered rate limit: further steps are held by the new one", async () => {
    const key = await app.key(caller.org, { role: "operator" });
    const { body } = await app.call("/v1/key", undefined, { key });
    const loop = robot(app, key, OPEN);
    await loop.expect("opened");
    const lowered = { rate_limit: { requests: 1, window_s: 3600, burst: 1 } };
    await app.call(`/v1/orgs/${caller.org}/keys/${body.id}`, lowered, { key: caller.key, method: "PATCH" });
    for (let step = 1; ; step++) {
      loop.observe(step);
      const told = await loop.next();
      if (told?.kind === "hold" && told.value.reason === HoldReason.RATE_LIMITED) break;
      expect(told?.kind).not.toBe("ended");
    }
    loop.leave();
  });

  it("reaches a stream whose session another stream takes over", async () => {
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

  it("ignores a late notification of the previous stream and accepts the next stream's", async () => {
    const open = { ...OPEN, provider: { sessionId: "noticed late" } };
    const first = robot(app, caller.key, open);
    const { id } = await first.expect("opened");
    first.observe(1);
    await first.expect("chunk");
    // A slow database may know of it only now.
    const held = await eventually(async () => {
      const [row] = await app.sql`select session, stream from loop_session where stream = ${id}`;
      expect(row).toBeDefined();
      return row;
    });
    const second = robot(app, caller.key, open);
    await second.expect("opened");
    await first.expect("ended");
    await app.sql`select pg_notify('loop_taken', ${`${held?.session} ${held?.stream}`})`;
    for (const step of [2, 3, 4, 5, 6]) {
      second.observe(step);
      expect(await second.expect("chunk")).toMatchObject({ startStep: step });
    }
    const behind = "req_of_another_replica";
    await app.sql`update loop_session set stream = ${behind} where session = ${held?.session}`;
    await app.sql`select pg_notify('loop_taken', ${`${held?.session} ${behind}`})`;
    expect(await second.expect("ended")).toMatchObject({ code: "session_taken_over" });
    expect(await refusalIn(second.next())).toMatchObject({ code: "Aborted" });
    await expect(first.next()).rejects.toThrow();
  });

  it("waits for the answer in flight after the caller closed its side", async () => {
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

  it("cancels requests in flight when the caller leaves, and returns the credit", async () => {
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

  it("is reported as unavailable with a last message when the gateway closes", async () => {
    const closing = await ownGateway({ database: app.database });
    await expect.poll(async () => (await closing.call("/v1/models/acme/base", undefined, caller)).status).toBe(200);
    const loop = robot(closing, caller.key, OPEN);
    await loop.expect("opened");
    loop.observe(1);
    await loop.expect("chunk");
    const closed = closing.gateway.close(5_000);
    expect(await loop.expect("ended")).toMatchObject({ code: "not_ready", chunks: 1 });
    expect(await refusalIn(loop.next())).toMatchObject({ code: "Unavailable", reason: "not_ready" });
    await closed;
    expect(await brokenInvariants(app.sql)).toEqual([]);
  });
});

describe("hostile traffic", () => {
  it("observations of 20 MB are accepted, and at most two are kept", async () => {
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

  it("a thousand observations at once end in a chunk for the last", async () => {
    const loop = robot(app, (await app.caller(100, { role: "owner", rate_limit: BOUNDLESS })).key, {
      ...OPEN,
      horizon: 50,
    });
    await loop.expect("opened");
    for (let step = 1; step <= 1_000; step++) loop.observe(step);
    let chunks = 0;
    for (let last = 1_000; ; ) {
      const told = await loop.next();
      if (told === undefined) throw new Error("the loop ended before its last chunk");
      // An answer that came too late on a busy machine is a hold: the robot looks again.
      if (told.kind === "hold" && told.value.step === last) loop.observe(++last);
      if (told.kind !== "chunk") continue;
      chunks += 1;
      if (told.value.startStep === last) break;
    }
    expect(chunks).toBeLessThan(1_000);
    loop.leave();
  }, 120_000);

  it("a caller that does not read is not served, and delays no other caller", async () => {
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
  it.each([
    ["the same replica", 0],
    ["another replica", 0],
    ["another replica", 25],
  ])(
    "is resumed on %s by its session, without a second charge for the last chunk, when it has lasted for %i hours",
    async (where, hours) => {
      const mine = await app.caller(1);
      const elsewhere = where === "the same replica" ? app : await ownGateway({ database: app.database });
      if (elsewhere !== app)
        await expect.poll(async () => (await elsewhere.call("/v1/models/acme/base", undefined, mine)).status).toBe(200);
      const open = { ...OPEN, horizon: 200, provider: { sessionId: "resumed" } };
      const first = robot(app, mine.key, open);
      const { id } = await first.expect("opened");
      first.observe(1);
      await first.expect("chunk");
      first.observe(7);
      const charged = await first.expect("chunk");
      await app.sql`update loop_session set created = now() - ${`${hours} hours`}::text::interval`;
      await pruneLoopSessions(app.sql);
      first.leave();
      // Until its end is known elsewhere, a stream there does not hear of its last step when it is opened.
      await isOver(id);

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

  it("costs nothing twice, drop by drop, on either replica, for a caller that reconnects before its loop is open", async () => {
    const mine = await app.caller(1);
    const elsewhere = await ownGateway({ database: app.database });
    await expect.poll(async () => (await elsewhere.call("/v1/models/acme/base", undefined, mine)).status).toBe(200);
    const open = { ...OPEN, horizon: 200, provider: { sessionId: "eager" } };
    const first = robot(app, mine.key, open);
    first.observe(3);
    // A stream whose end is not on record within a tenth of a second is gone on from, and its step asked for again.
    const { id } = await first.expect("opened");
    const charged = await first.expect("chunk");
    first.leave();
    await isOver(id);
    let before = charged.observationAgeMs;
    for (const where of [elsewhere, app, app, elsewhere]) {
      const again = robot(where, mine.key, open);
      again.observe(3);
      const opened = await again.expect("opened");
      expect(opened).toMatchObject({ resumed: true });
      const replayed = await again.expect("chunk");
      expect(replayed).toMatchObject({ replayed: true, chunkId: charged.chunkId });
      expect(replayed.observationAgeMs).toBeGreaterThan(before);
      before = replayed.observationAgeMs;
      again.leave();
      await isOver(opened.id);
    }
    const last = robot(app, mine.key, open);
    last.say({ case: "reset", value: {} });
    last.observe(3);
    await last.expect("opened");
    expect(await last.expect("episode")).toMatchObject({ episode: 2 });
    // Another episode: its third step has nothing to do with that one.
    expect(await last.expect("chunk")).toMatchObject({ replayed: false, startStep: 3, episode: 2 });
    last.halfClose();
    await last.rest();
    await expect
      .poll(async () => (await app.call("/v1/billing/balance", undefined, mine)).body)
      .toMatchObject({ spent_usd: 0.04, held_usd: 0 });
    await elsewhere.close();
  });

  it("that the gateway has not noticed is taken over on another replica too", async () => {
    const mine = await app.caller(1);
    const elsewhere = await ownGateway({ database: app.database });
    await expect.poll(async () => (await elsewhere.call("/v1/models/acme/base", undefined, mine)).status).toBe(200);
    const open = { ...OPEN, horizon: 200, provider: { sessionId: "half-dead" } };
    const first = robot(app, mine.key, open);
    const { id } = await first.expect("opened");
    first.observe(3);
    await first.expect("chunk");
    const session = await eventually(async () => {
      const [row] = await app.sql`select session from loop_session where stream = ${id}`;
      expect(row).toBeDefined();
      return row?.session;
    });
    // A stream that takes over waits for the end of the one before, and not for long.
    clock.hold();
    const second = robot(elsewhere, mine.key, open);
    expect(await first.expect("ended")).toMatchObject({ code: "session_taken_over" });
    await eventually(async () =>
      expect(await app.sql`select from loop_session where session = ${session} and ended is not null`).toHaveLength(1),
    );
    clock.go();
    expect(await second.expect("opened")).toMatchObject({ episode: 1 });
    second.observe(3);
    expect(await second.expect("chunk")).toMatchObject({ replayed: true });
    second.leave();
    await elsewhere.close();
  });
});
