/** What the native wire says and understands, byte for byte. */
import { once } from "node:events";
import { constants, createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { create, equals, fromBinary, toBinary } from "@bufbuild/protobuf";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  ActRequestSchema,
  GroundRequestSchema,
  GroundResponseSchema,
  PredictRequestSchema,
  PredictResponseSchema,
} from "../../gen/limber/policy/v1/policy_service_pb.ts";
import { FrameSchema, ImageFormat, type Observation, ObservationSchema } from "../../gen/limber/v1/observation_pb.ts";
import type { PredictAnswerPart } from "../../src/contracts/contract.ts";
import { FrameSet, frameSources } from "../../src/upstream/pictures/frames.ts";
import { guardedAgent } from "../../src/upstream/transport/guard.ts";
import { prefixed, type Served } from "../support/policy-server.ts";
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
import {
  act,
  begin,
  dataUrl,
  end,
  ground,
  png,
  predict,
  STEPS,
  serve,
  server,
  upstream,
  wire,
} from "./limber-policy-server.ts";

beforeEach(begin);
afterEach(end);

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

describe("a limber-policy server", () => {
  it("receives every field of an act, with images as bytes and without their addresses", async () => {
    await serve();
    server.behave({ kind: "steps", steps: STEPS });
    const { given, seen } = await fullObservations();
    const goal = create(FrameSchema, { camera: "goal", data: await png(99) });
    const agent = guardedAgent({ allowPrivate: true });
    const frames = new FrameSet(frameSources(given, goal), { agent, allowPrivate: true });
    const leftOver = [{ $typeName: "limber.v1.ActionStep" as const, values: [3, 4] }];
    const said = { seed: 0, temperature: 0, sessionId: "s1", returnPrediction: true, inferenceDelay: 2 };
    const more = { ...said, observations: given, leftOver };
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
          ...said,
          prevChunkLeftOver: leftOver,
          requestId: "req_1",
          budgetMs: 10_000,
        },
      },
    });
    expect(equals(ActRequestSchema, fromBinary(ActRequestSchema, server.requests[0]!), expected)).toBe(true);
    await agent.close();
  });

  it("receives every field of a prediction and of a grounding, with the remaining time and the request id", async () => {
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

  it("receives no message above 64 MiB", async () => {
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

describe("a prediction over limber-policy", () => {
  it("passes on each frame as it arrives, not after the last", async () => {
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

  it.each(["leaves the loop", "cancels it"])("is canceled at the server if the reader %s", async (how) => {
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

  it("without a reader neither fills memory nor delays an act", async () => {
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
  ])("that ends with gRPC status %i after a frame fails with %s, and the frame was passed on", async (status, name) => {
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

describe("a unary answer over limber-policy", () => {
  const answer = toBinary(GroundResponseSchema, create(GroundResponseSchema, { points: [{ x: 0.5 }], inputTokens: 2 }));

  it("arrives as the server wrote it", async () => {
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
    ["bytes that are no message", "MALFORMED_ANSWER", ({ send, end }) => [send(Buffer.alloc(20, 0xff)), end()]],
    [
      "a compressed message",
      "MALFORMED_ANSWER",
      ({ stream, end }) => [stream.write(prefixed(answer, { flag: 1 })), end()],
    ],
    ["an unknown flag", "MALFORMED_ANSWER", ({ stream, end }) => [stream.write(prefixed(answer, { flag: 9 })), end()]],
    ["100 MB", "ANSWER_TOO_LARGE", ({ stream }) => stream.write(prefixed(answer, { length: 100 * 2 ** 20 }))],
    [
      "half a message",
      "CONNECTION_LOST",
      ({ stream, end }) => [stream.write(prefixed(answer, { length: 900 })), end()],
    ],
    ["a reset", "CONNECTION_LOST", ({ stream }) => stream.close(constants.NGHTTP2_INTERNAL_ERROR)],
    ["a refused stream", "UPSTREAM_BUSY", ({ stream }) => stream.close(constants.NGHTTP2_REFUSED_STREAM)],
    ["an ENHANCE_YOUR_CALM error", "UPSTREAM_BUSY", ({ stream }) => stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM)],
  ])("that is %s fails with %s", async (_, name, misbehave) => {
    await serve({ Ground: (served) => misbehave(served) });
    expect(nameOf(await failureIn(ground()))).toBe(name);
  });
});

describe("a proxy before a limber-policy server", () => {
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
  ])("that answers %i with %o causes %s, for acts and for other calls", async (status, more, name) => {
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

it("passes on the server's description", async () => {
  await serve();
  expect(await upstream.native.describe(targetAt(server.endpoint), callWith())).toMatchObject([{ slug: "test/model" }]);
});

it("relies on an observation schema whose only images are frames and depth", () => {
  const withFrames = ObservationSchema.fields.filter((field) => field.message === FrameSchema).map(({ name }) => name);
  expect(withFrames).toEqual(["frames", "depth"]);
});
