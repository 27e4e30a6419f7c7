/** What the native wire says and understands, byte for byte, and how it holds its connections. */
import { once } from "node:events";
import { constants, createSecureServer, createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { setTimeout as realSleep } from "node:timers/promises";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { create, equals, fromBinary, toBinary } from "@bufbuild/protobuf";
import sharp from "sharp";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  ActRequestSchema,
  GroundRequestSchema,
  GroundResponseSchema,
  PredictRequestSchema,
  PredictResponseSchema,
} from "../../gen/limber/policy/v1/policy_service_pb.ts";
import { FrameSchema, ImageFormat, type Observation, ObservationSchema } from "../../gen/limber/v1/observation_pb.ts";
import { replaceAmbient } from "../../src/ambient.ts";
import type { PredictAnswerPart } from "../../src/contracts/contract.ts";
import { FrameSet } from "../../src/upstream/frames.ts";
import { guardedAgent } from "../../src/upstream/guard.ts";
import { createUpstream, type Upstream } from "../../src/upstream/index.ts";
import { frameSources } from "../../src/upstream/pictures.ts";
import type { Wire } from "../../src/upstream/wire.ts";
import { startBadUpstream, startCable } from "../support/bad-upstream.ts";
import { eventually } from "../support/eventually.ts";
import { ManualClock, settle } from "../support/manual-clock.ts";
import {
  type PolicyOptions,
  type PolicyServer,
  prefixed,
  response,
  type Served,
  startPolicyServer,
} from "../support/policy-server.ts";
import {
  actInput,
  callWith,
  failureIn,
  framesOf,
  groundInput,
  nameOf,
  observed,
  predictInput,
  rowsOf,
  targetAt,
} from "../support/wire-calls.ts";
import { selfSigned } from "../support/wire-client.ts";

const STEPS = [
  [1, 2],
  [3, 4],
];
const NO_FRAMES = framesOf();

let upstream: Upstream;
let wire: Required<Wire>;
let server: PolicyServer;

const serve = async (methods: PolicyOptions["methods"] = {}): Promise<void> => {
  server = await startPolicyServer({ methods });
};
const act = (more = {}, signal?: AbortSignal, endpoint = server.endpoint) =>
  wire.act(targetAt(endpoint), actInput(more), NO_FRAMES, callWith(signal));
const predict = (more = {}, signal?: AbortSignal) =>
  wire.predict(targetAt(server.endpoint), predictInput(more), NO_FRAMES, callWith(signal));
const ground = (signal?: AbortSignal) =>
  wire.ground(targetAt(server.endpoint), groundInput(observed(), "the cube"), NO_FRAMES, callWith(signal));

beforeEach(() => {
  upstream = createUpstream({ allowPrivate: true });
  wire = upstream.wireOf("limber-policy") as Required<Wire>; // the native wire serves all three contracts
});
afterEach(async () => {
  await upstream.close();
  await server?.close().catch(() => undefined);
});

const png = (value: number): Promise<Buffer> =>
  sharp({ create: { width: 6, height: 4, channels: 3, background: { r: value, g: 0, b: 0 } } })
    .png()
    .toBuffer();

const dataUrl = (bytes: Buffer): string => `data:image/png;base64,${bytes.toString("base64")}`;

/** Two observations with everything on them, pictures as addresses and as bytes; and how a server is to see them. */
async function fullObservations(): Promise<{ given: Observation[]; seen: Observation[] }> {
  const [a, b, c] = await Promise.all([png(10), png(20), png(30)]);
  const known = { format: ImageFormat.PNG, width: 6, height: 4 };
  const intrinsics = { fx: 1, fy: 2, cx: 3, cy: 4 };
  const rest = { proprio: [0.1, -2], tMs: 5, proprioNames: ["x", "y"], tactile: [1], gripper: 0.5 };
  return {
    given: [
      observed({ ...rest, frames: [{ camera: "front", url: dataUrl(a), tMs: 7, intrinsics }] }),
      observed({ frames: [{ camera: "wrist", data: b }], depth: [{ camera: "front", url: dataUrl(c) }] }),
    ],
    seen: [
      observed({ ...rest, frames: [{ camera: "front", data: a, tMs: 7, intrinsics, ...known }] }),
      observed({ frames: [{ camera: "wrist", data: b, ...known }], depth: [{ camera: "front", data: c, ...known }] }),
    ],
  };
}

describe("what a server is told", () => {
  it("is every field of an act, pictures as bytes and without their addresses", async () => {
    await serve();
    server.behave({ kind: "steps", steps: STEPS });
    const { given, seen } = await fullObservations();
    const goal = create(FrameSchema, { camera: "goal", data: await png(99) });
    const agent = guardedAgent({ allowPrivate: true });
    const frames = new FrameSet(frameSources(given, goal), { agent, allowPrivate: true });
    const more = { observations: given, seed: 0, temperature: 0, sessionId: "s1", returnPrediction: true };
    await wire.act(targetAt(server.endpoint), actInput(more), frames, callWith());
    const expected = create(ActRequestSchema, {
      callId: 1,
      body: {
        case: "call",
        value: {
          model: "test/model",
          observations: seen,
          instruction: "go on",
          goalImage: { ...goal, format: ImageFormat.PNG, width: 6, height: 4 },
          actionSpace: "base_twist_2d",
          horizon: 2,
          seed: 0,
          temperature: 0,
          returnPrediction: true,
          sessionId: "s1",
          requestId: "req_1",
          budgetMs: 10_000,
        },
      },
    });
    expect(equals(ActRequestSchema, fromBinary(ActRequestSchema, server.requests[0]!), expected)).toBe(true);
    await agent.close();
  });

  it("is every field of a prediction and of a grounding, with the time that is left and the request's name", async () => {
    const heard: Served[] = [];
    const hear = async (served: Served): Promise<void> => {
      heard.push(served);
      await served.ended;
      const summary = { body: { case: "summary" as const, value: {} } };
      served.send(toBinary(PredictResponseSchema, create(PredictResponseSchema, summary)));
      served.end();
    };
    await serve({ Predict: hear, Ground: hear });
    const { given, seen } = await fullObservations();
    const actions = [{ $typeName: "limber.v1.ActionStep" as const, values: [1, 2] }];
    const more = { observations: given, actions, actionSpace: "base_twist_2d", seed: 3, fps: 10, resolution: "64x48" };
    const target = targetAt(server.endpoint);
    for await (const part of wire.predict(target, predictInput(more), framesOf(...given), callWith())) void part;
    const last = given.at(-1)!;
    await wire.ground(target, groundInput(last, "the cube"), framesOf(last), callWith()).catch(() => undefined);

    const [predicted, grounded] = heard.map(({ messages }) => messages[0]!);
    const common = { model: "test/model", instruction: "go on", horizon: 2, seed: 3, fps: 10, resolution: "64x48" };
    const asked = create(PredictRequestSchema, {
      ...common,
      observations: seen,
      actions,
      actionSpace: "base_twist_2d",
    });
    expect(equals(PredictRequestSchema, fromBinary(PredictRequestSchema, predicted!), asked)).toBe(true);
    const sought = create(GroundRequestSchema, { model: "test/model", observation: seen[1]!, instruction: "the cube" });
    expect(equals(GroundRequestSchema, fromBinary(GroundRequestSchema, grounded!), sought)).toBe(true);
    expect(heard[0]?.headers).toMatchObject({
      "content-type": "application/grpc+proto",
      te: "trailers",
      "grpc-timeout": "10000m",
      "x-request-id": "req_1",
    });
  });

  it("is no message of more than 64 MiB", async () => {
    await serve();
    const picture = Buffer.concat([await png(1), Buffer.alloc(15 * 2 ** 20)]);
    const observation = observed({ frames: Array.from({ length: 5 }, () => ({ data: picture })) });
    const call = wire.act(
      targetAt(server.endpoint),
      actInput({ observations: [observation] }),
      framesOf(observation),
      callWith(),
    );
    expect(nameOf(await failureIn(call))).toBe("INPUT_REJECTED");
    expect(server.acts).toHaveLength(0);
  });
});

const frameMessage = (index: number): Uint8Array =>
  toBinary(PredictResponseSchema, create(PredictResponseSchema, { body: { case: "frame", value: { index } } }));

const indexOf = (part: PredictAnswerPart | undefined): number | undefined =>
  part?.kind === "frame" ? part.frame.index : undefined;

describe("a prediction", () => {
  it("hands on each frame when it comes, not when the last one has", async () => {
    const { promise: firstSeen, resolve: sawFirst } = Promise.withResolvers<void>();
    await serve({
      Predict: async ({ send, end }) => {
        send(frameMessage(0));
        await firstSeen;
        send(frameMessage(1));
        const value = { gpuSeconds: 1.5, note: "line one\nline two" };
        send(toBinary(PredictResponseSchema, create(PredictResponseSchema, { body: { case: "summary", value } })));
        end();
      },
    });
    const parts = predict()[Symbol.asyncIterator]();
    expect(indexOf((await parts.next()).value)).toBe(0);
    sawFirst();
    expect(indexOf((await parts.next()).value)).toBe(1);
    expect((await parts.next()).value).toEqual({ kind: "summary", gpuSeconds: 1.5, note: "line one line two" });
    expect((await parts.next()).done).toBe(true);
  });

  it.each(["leaves the loop", "calls it off"])("is cancelled at the server when the reader %s", async (how) => {
    const { promise: reset, resolve } = Promise.withResolvers<number>();
    await serve({
      Predict: ({ stream, send }) => {
        stream.on("close", () => resolve(stream.rstCode));
        send(frameMessage(0));
      },
    });
    const reader = new AbortController();
    const parts = predict({}, reader.signal)[Symbol.asyncIterator]();
    await parts.next();
    if (how === "leaves the loop") await parts.return?.();
    else {
      const next = failureIn(parts.next());
      reader.abort();
      expect(nameOf(await next)).toBe("TIMEOUT");
    }
    expect(await reset).toBe(constants.NGHTTP2_CANCEL);
  });

  it("that nobody reads neither fills our memory nor holds up an act", async () => {
    const big = create(PredictResponseSchema, { body: { case: "frame", value: { data: Buffer.alloc(2 ** 20) } } });
    const bytes = toBinary(PredictResponseSchema, big);
    let sent = 0;
    let closed = false;
    await serve({
      Predict: async ({ stream }) => {
        stream.once("close", () => {
          closed = true;
        });
        while (!closed && sent < 500) {
          sent++;
          if (!stream.write(prefixed(bytes)))
            await Promise.race([once(stream, "drain"), once(stream, "close")]).catch(() => 0);
        }
      },
    });
    server.behave({ kind: "steps", steps: STEPS });
    const parts = Array.from({ length: 4 }, () => predict()[Symbol.asyncIterator]());
    await Promise.all(parts.map((each) => each.next()));
    for (let i = 0; i < 20; i++) expect(rowsOf(await act())).toEqual(STEPS);
    expect(sent).toBeLessThan(100);
    await Promise.all(parts.map((each) => each.return?.()));
  });

  it.each([
    [1, "CONNECTION_LOST"],
    [2, "UPSTREAM_ERROR"],
    [3, "INPUT_REJECTED"],
    [4, "TIMEOUT"],
    [7, "UPSTREAM_AUTH"],
    [8, "UPSTREAM_BUSY"],
    [11, "INPUT_REJECTED"],
    [12, "UPSTREAM_ERROR"],
    [13, "UPSTREAM_ERROR"],
    [14, "UNREACHABLE"],
    [16, "UPSTREAM_AUTH"],
    [99, "UPSTREAM_ERROR"],
  ])("that ends with gRPC status %i after a frame fails with %s, and the frame was handed on", async (status, name) => {
    await serve({
      Predict: ({ send, end }) => {
        send(frameMessage(0));
        end(status, "at%20fault:%0A/srv/key.py%0Alast%20line");
      },
    });
    const parts = predict()[Symbol.asyncIterator]();
    expect(indexOf((await parts.next()).value)).toBe(0);
    const failure = await failureIn(parts.next());
    expect(nameOf(failure)).toBe(name);
    expect(failure.message).toBe(`status ${status}: last line`);
  });
});

describe("an answer of one message", () => {
  const answer = toBinary(GroundResponseSchema, create(GroundResponseSchema, { points: [{ x: 0.5 }], inputTokens: 2 }));

  it("comes as the server wrote it", async () => {
    await serve({
      Ground: ({ send, end }) => {
        send(answer);
        end();
      },
    });
    expect(await ground()).toMatchObject({
      points: [{ x: 0.5 }],
      boxes: [],
      note: "",
      inputTokens: 2,
      outputTokens: 0,
    });
  });

  it.each<[string, string, (served: Served) => void]>([
    ["no message", "EMPTY_ANSWER", ({ end }) => end()],
    ["two messages", "MALFORMED_ANSWER", ({ send, end }) => [send(answer), send(answer), end()]],
    ["bytes of no message", "MALFORMED_ANSWER", ({ send, end }) => [send(Buffer.alloc(20, 0xff)), end()]],
    [
      "a compressed message",
      "MALFORMED_ANSWER",
      ({ stream, end }) => [stream.write(prefixed(answer, { flag: 1 })), end()],
    ],
    [
      "a flag of no meaning",
      "MALFORMED_ANSWER",
      ({ stream, end }) => [stream.write(prefixed(answer, { flag: 9 })), end()],
    ],
    ["100 MB", "ANSWER_TOO_LARGE", ({ stream }) => stream.write(prefixed(answer, { length: 100 * 2 ** 20 }))],
    [
      "half a message",
      "CONNECTION_LOST",
      ({ stream, end }) => [stream.write(prefixed(answer, { length: 900 })), end()],
    ],
    ["a reset", "CONNECTION_LOST", ({ stream }) => stream.close(constants.NGHTTP2_INTERNAL_ERROR)],
    ["a refusal of the stream", "UPSTREAM_BUSY", ({ stream }) => stream.close(constants.NGHTTP2_REFUSED_STREAM)],
    ["an order to calm down", "UPSTREAM_BUSY", ({ stream }) => stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM)],
  ])("that is %s fails with %s", async (_, name, misbehave) => {
    await serve({ Ground: (served) => misbehave(served) });
    expect(nameOf(await failureIn(ground()))).toBe(name);
  });
});

describe("what stands before a server", () => {
  it.each([
    [401, {}, "UPSTREAM_AUTH"],
    [403, {}, "UPSTREAM_AUTH"],
    [404, {}, "UPSTREAM_ERROR"],
    [413, {}, "INPUT_REJECTED"],
    [429, {}, "UPSTREAM_BUSY"],
    [502, {}, "UNREACHABLE"],
    [503, {}, "UPSTREAM_BUSY"],
    [200, { "content-type": "text/html" }, "MALFORMED_ANSWER"],
    [200, { "content-type": "application/grpc", "grpc-status": "16" }, "UPSTREAM_AUTH"],
    [200, { "content-type": "application/grpc", "grpc-status": "12" }, "UPSTREAM_ERROR"],
  ])("answers %i with %o: %s, for acts and for other calls", async (status, more, name) => {
    const proxy = createServer().on("stream", (stream) => {
      stream.on("error", () => undefined);
      stream.respond({ ":status": status, ...more });
      stream.end("secret=hunter2");
    });
    await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
    const endpoint = `grpc://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
    await serve();
    const health = failureIn(wire.health(targetAt(endpoint), callWith()));
    for (const failure of [await failureIn(act({}, undefined, endpoint)), await health]) {
      expect(nameOf(failure)).toBe(name);
      expect(failure.message).not.toContain("hunter2");
    }
    await upstream.close();
    await new Promise((resolve) => proxy.close(resolve));
  });
});

describe("the stream of acts", () => {
  it("is one stream for all of them, on a connection that predictions don't share", async () => {
    let streams = 0;
    await serve({
      Act: (served) => {
        streams++;
        let answered = 0;
        served.stream.on("grpc-message", () => {
          while (answered < served.messages.length) {
            const { callId } = fromBinary(ActRequestSchema, served.messages[answered++]!);
            served.send(response(callId, { case: "chunk", value: { steps: [{ values: [callId] }] } }));
          }
        });
      },
    });
    const answers = await Promise.all(Array.from({ length: 50 }, () => act({ horizon: 1 })));
    expect(answers.map((answer) => rowsOf(answer)[0]?.[0])).toEqual(answers.map((_, i) => i + 1));
    await wire.health(targetAt(server.endpoint), callWith());
    expect(streams).toBe(1);
    expect(server.counts.connections).toBe(2);
  });

  it("takes answers in any order, each for its own call", async () => {
    const first = Promise.withResolvers<void>();
    await serve();
    server.behave({ kind: "later", steps: [[1, 1]], after: first.promise }, { kind: "steps", steps: [[2, 2]] });
    const slow = act({ horizon: 1 });
    await eventually(() => expect(server.acts).toHaveLength(1));
    expect(rowsOf(await act({ horizon: 1 }))).toEqual([[2, 2]]);
    first.resolve();
    expect(rowsOf(await slow)).toEqual([[1, 1]]);
  });

  it("lives on when one call fails", async () => {
    await serve();
    server.behave({ kind: "error", text: "no" }, { kind: "steps", steps: STEPS });
    await failureIn(act());
    await act();
    expect(server.counts.connections).toBe(1);
  });

  it.each([0, 999])(
    "is given up with all its calls when the server answers call %i, which nobody made",
    async (callId) => {
      await serve({
        Act: ({ stream, send }) => void stream.once("grpc-message", () => send(response(callId, undefined))),
      });
      const calls = [failureIn(act()), failureIn(act())];
      for (const call of calls) expect(nameOf(await call)).toBe("MALFORMED_ANSWER");
    },
  );

  it("fails its calls with the status that it ends with, and the next call opens another", async () => {
    let streams = 0;
    await serve({
      Act: ({ stream, end }) => {
        streams++;
        stream.once("grpc-message", () => end(8, "full"));
      },
    });
    expect(nameOf(await failureIn(act()))).toBe("UPSTREAM_BUSY");
    expect(nameOf(await failureIn(act()))).toBe("UPSTREAM_BUSY");
    expect(streams).toBe(2);
  });

  it("is left at the server's GOAWAY: calls under way are answered, new ones go over a new connection", async () => {
    const { promise: later, resolve } = Promise.withResolvers<void>();
    await serve();
    server.behave({ kind: "later", steps: [[1, 1]], after: later }, { kind: "steps", steps: [[2, 2]] });
    const before = act({ horizon: 1 });
    await eventually(() => expect(server.acts).toHaveLength(1));
    server.goAway();
    await realSleep(20); // the GOAWAY has arrived
    expect(rowsOf(await act({ horizon: 1 }))).toEqual([[2, 2]]);
    expect(server.counts.connections).toBe(2);
    resolve();
    expect(rowsOf(await before)).toEqual([[1, 1]]);
  });

  it("sends no more than 64 MiB to a server that doesn't read", async () => {
    await serve({ Act: ({ stream }) => void stream.pause() });
    const picture = Buffer.concat([await png(1), Buffer.alloc(15 * 2 ** 20)]);
    const observation = observed({ frames: [{ data: picture }] });
    const caller = new AbortController();
    const calls = Array.from({ length: 8 }, () => {
      const input = actInput({ observations: [observation] });
      return failureIn(wire.act(targetAt(server.endpoint), input, framesOf(observation), callWith(caller.signal)));
    });
    expect(nameOf(await Promise.race(calls))).toBe("UPSTREAM_BUSY");
    caller.abort();
    const names = (await Promise.all(calls)).map(nameOf);
    expect(new Set(names)).toEqual(new Set(["UPSTREAM_BUSY", "TIMEOUT"]));
  });
});

describe("a connection", () => {
  it("that has fallen silent is given up after a call ran out of time on it, and the next call gets another", async () => {
    await serve();
    server.behave({ kind: "steps", steps: STEPS });
    const cable = await startCable(Number(new URL(server.endpoint).port));
    const endpoint = `grpc://127.0.0.1:${cable.port}`;
    await act({}, undefined, endpoint);

    const clock = new ManualClock();
    const restore = replaceAmbient({ clock });
    cable.pull();
    const caller = new AbortController();
    const call = failureIn(act({}, caller.signal, endpoint));
    await settle(); // it's on its way
    caller.abort();
    expect(nameOf(await call)).toBe("TIMEOUT");
    const waiting = failureIn(act({}, undefined, endpoint));
    await clock.advance(10_000);
    expect(nameOf(await waiting)).toBe("CONNECTION_LOST");
    expect(rowsOf(await act({}, undefined, endpoint))).toEqual(STEPS);
    restore();
    await upstream.close();
    await cable.close();
  });

  it("that lives is kept after a call ran out of time on it", async () => {
    await serve();
    server.behave({ kind: "silence" }, { kind: "steps", steps: STEPS });
    const clock = new ManualClock();
    const restore = replaceAmbient({ clock });
    const caller = new AbortController();
    const call = failureIn(act({}, caller.signal));
    await eventually(() => expect(server.acts).toHaveLength(1));
    const timers = clock.pending;
    caller.abort();
    await call;
    await eventually(() => expect(clock.pending).toBe(timers)); // the proof of life has come
    await clock.advance(60_000);
    await act();
    expect(server.counts.connections).toBe(1);
    restore();
  });

  it("is closed after five minutes without a call, and made again for the next one", async () => {
    const clock = new ManualClock();
    const restore = replaceAmbient({ clock });
    let gone = 0;
    await serve();
    server.behave({ kind: "steps", steps: STEPS });
    server.onDisconnect(() => {
      gone++;
    });
    await act();
    await wire.health(targetAt(server.endpoint), callWith());
    await clock.advance(299_999);
    await act();
    await clock.advance(1);
    await eventually(() => expect(gone).toBe(1)); // the one that has had no call since
    await clock.advance(299_999);
    await eventually(() => expect(gone).toBe(2));
    expect(clock.pending).toBe(0);
    await act();
    expect(server.counts.connections).toBe(3);
    restore();
  });

  it("that can't be made is not tried again at once, and calls fail meanwhile without waiting", async () => {
    const clock = new ManualClock();
    const restore = replaceAmbient({ clock, random: () => 0.5 });
    const bad = await startBadUpstream((socket) => socket.resetAndDestroy());
    await serve();
    const endpoint = `grpc://127.0.0.1:${bad.port}`;
    const attempts: number[] = [];
    for (let second = 0; second < 8; second++) {
      for (let i = 0; i < 5; i++) await failureIn(act({}, undefined, endpoint));
      attempts.push(bad.connections());
      await clock.advance(50);
    }
    // 19, 38, 75 and 150 ms of waiting, with this chance: a try at 0, 50, 100, 200 and 350 ms.
    expect(attempts).toEqual([1, 2, 3, 3, 4, 4, 4, 5]);
    restore();
    await bad.close();
  });

  it("that isn't made in ten seconds is given up", async () => {
    const clock = new ManualClock();
    const restore = replaceAmbient({ clock });
    const bad = await startBadUpstream(() => undefined);
    await serve();
    const call = failureIn(act({}, undefined, `grpc://127.0.0.1:${bad.port}`));
    await eventually(() => expect(bad.connections()).toBe(1));
    await clock.advance(10_000);
    expect(nameOf(await call)).toBe("UNREACHABLE");
    restore();
    await bad.close();
  });

  it("under TLS is made only to a server whose certificate we trust", async () => {
    const { key, cert } = selfSigned();
    const secure = createSecureServer({ key, cert }).on("stream", (stream) => {
      stream.respond({ ":status": 200, "content-type": "application/grpc", "grpc-status": "8" }, { endStream: true });
    });
    await new Promise<void>((resolve) => secure.listen(0, "127.0.0.1", resolve));
    const target = targetAt(`grpcs://localhost:${(secure.address() as AddressInfo).port}`);
    await serve();
    expect(nameOf(await failureIn(wire.health(target, callWith())))).toBe("UNREACHABLE");

    const before = getCACertificates("default");
    setDefaultCACertificates([...before, cert]);
    const trusting = createUpstream({ allowPrivate: true });
    expect(nameOf(await failureIn(trusting.native.health(target, callWith())))).toBe("UPSTREAM_BUSY");
    setDefaultCACertificates(before);
    await trusting.close();
    await upstream.close();
    await new Promise((resolve) => secure.close(resolve));
  });
});

it("describes what a server serves", async () => {
  await serve();
  expect(await upstream.native.describe(targetAt(server.endpoint), callWith())).toMatchObject([{ slug: "test/model" }]);
});

it("keeps the schema of observations that the splicing of pictures relies on: frames and depth are all there is", () => {
  const withFrames = ObservationSchema.fields.filter((field) => field.message === FrameSchema).map(({ name }) => name);
  expect(withFrames).toEqual(["frames", "depth"]);
});
