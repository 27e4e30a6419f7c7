import { once } from "node:events";
import * as http2 from "node:http2";
import { gzipSync } from "node:zlib";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { describe, expect, it } from "vitest";
import {
  type ActRequest,
  ActRequestSchema,
  ActResponseSchema,
  PredictStreamResponseSchema,
} from "../../gen/limber/v1/inference_service_pb.ts";
import type { Signal } from "../../src/cancellation.ts";
import { sleep } from "../../src/clock.ts";
import type { CallContext } from "../../src/edge/gate/authenticate.ts";
import { Reason, refuse } from "../../src/errors.ts";
import { setClock } from "../support/clocks.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { type HouseOptions, message, openForTest as open, openOwn, shareGateways, until } from "./gateway.ts";
import {
  ACT,
  aborted,
  begin,
  CHUNK,
  call,
  codeOf,
  envelope,
  frame,
  LARGE,
  outcomeOf,
  REQUEST,
  reasonOf,
  STREAM,
  STREAM_REQUEST,
} from "./grpc-caller.ts";

shareGateways();

describe.each([
  ["by Connect", true],
  ["by the gateway's own transport", false],
])("gRPC %s", (_, byConnect) => {
  const openWith = (rpcs: NonNullable<HouseOptions["rpcs"]>) => open({ rpcs, byConnect });

  it("returns one message, status 0 in the trailers, and remaining limits in the headers", async () => {
    const gateway = await openWith({ Act: () => CHUNK });
    const outcome = await call(gateway, ACT, envelope(REQUEST));
    expect(outcome.head).toMatchObject({ ":status": 200, ratelimit: '"key";r=5;t=1', "x-api-version": "0.1.0" });
    expect(outcome.head["content-type"]).toMatch(/^application\/grpc/);
    expect(outcome.head["x-request-id"]).toMatch(/^req_/);
    expect(outcome.status["grpc-status"]).toBe("0");
    expect(outcome.body[0]).toBe(0);
    expect(fromBinary(ActResponseSchema, outcome.body.subarray(5))).toEqual(CHUNK);
    expect(gateway.lines).toMatchObject([{ transport: "grpc", rpc: ACT.slice(1), status: 200, keyId: "key_1" }]);
    expect(gateway.inside()).toBe(0);
  });

  it("forwards deadline, idempotency key and address", async () => {
    let seen: CallContext | undefined;
    const gateway = await openWith({
      Act: (_request, context) => {
        seen = context;
        return CHUNK;
      },
    });
    const clock = new ManualClock();
    setClock(clock);
    await call(gateway, ACT, envelope(REQUEST), { "grpc-timeout": "60S", "idempotency-key": "k1" });
    expect(seen?.idempotencyKey).toBe("k1");
    // Connect counts from when it read the head, by its own clock.
    expect(seen?.deadline).toBeGreaterThan(clock.steady());
    expect(seen?.deadline).toBeLessThanOrEqual(clock.steady() + 60_000);
    expect(gateway.heads[0]?.remoteAddress).toBe("127.0.0.1");
  });

  it("refuses unauthorized callers before the message is read", async () => {
    const gateway = await openWith({});
    const stream = begin(gateway, ACT, { authorization: "Bearer no" });
    const outcome = await outcomeOf(stream);
    expect([codeOf(outcome), reasonOf(outcome)]).toEqual([Code.Unauthenticated, "invalid_api_key"]);
    expect(outcome.head).toMatchObject({ ":status": 200 });
    expect(outcome.body).toHaveLength(0);
  });

  it("returns a refusal's code, text and details", async () => {
    const gateway = await openWith({
      Act: () => {
        throw refuse(Reason.RATE_LIMIT_EXCEEDED, "später", { near: ["x"] }, { retryAfter: 2 });
      },
    });
    const outcome = await call(gateway, ACT, envelope(REQUEST));
    expect([codeOf(outcome), reasonOf(outcome)]).toEqual([Code.ResourceExhausted, "rate_limit_exceeded"]);
    expect(decodeURIComponent(String(outcome.status["grpc-message"]))).toBe("später");
    expect(gateway.inside()).toBe(0);
  });

  it("masks an internal error and logs it", async () => {
    const gateway = await openWith({
      Act: () => {
        throw new Error("hunter2");
      },
    });
    const outcome = await call(gateway, ACT, envelope(REQUEST));
    expect([codeOf(outcome), reasonOf(outcome)]).toEqual([Code.Internal, "internal_error"]);
    expect(JSON.stringify(outcome.status)).not.toContain("hunter2");
    expect(gateway.lines).toMatchObject([{ status: 500, cause: { message: "hunter2" } }]);
  });

  it("lists all violations of a message", async () => {
    const gateway = await openWith({});
    const outcome = await call(gateway, ACT, envelope(new Uint8Array()));
    expect([codeOf(outcome), reasonOf(outcome)]).toEqual([Code.InvalidArgument, "validation_failed"]);
  });

  it("refuses to stream unary calls", async () => {
    const gateway = await openWith({});
    const request = create(ActRequestSchema, { model: "m", observations: [{}], stream: true });
    const outcome = await call(gateway, ACT, envelope(toBinary(ActRequestSchema, request)));
    expect([codeOf(outcome), reasonOf(outcome)]).toEqual([Code.InvalidArgument, "stream_unsupported"]);
  });

  it.each([
    ["bytes that are no message", envelope(Buffer.from([0x0a, 0xff, 0xff]))],
    ["half a message", envelope(REQUEST).subarray(0, 12)],
    ["half an envelope", Buffer.from([0, 0])],
    ["a gzip flag without gzip", envelope(REQUEST, 1)],
  ])("reports %s as the caller's error", async (_name, body) => {
    const gateway = await openWith({ Act: () => CHUNK });
    const outcome = await call(gateway, ACT, body);
    expect([codeOf(outcome), reasonOf(outcome)]).toEqual([Code.InvalidArgument, "malformed_body"]);
    expect(gateway.lines).toMatchObject([{ status: 400 }]);
    expect(gateway.inside()).toBe(0);
  });

  it.each([
    ["no message", Buffer.alloc(0)],
    ["two messages", Buffer.concat([envelope(REQUEST), envelope(REQUEST)])],
  ])("treats %s as an unimplemented call", async (_name, body) => {
    const gateway = await openWith({ Act: () => CHUNK });
    expect(codeOf(await call(gateway, ACT, body))).toBe(Code.Unimplemented);
  });

  it("reads compressed messages and refuses wrongly declared ones", async () => {
    const gateway = await openWith({ Act: () => CHUNK });
    const gzip = { "grpc-encoding": "gzip" };
    expect(codeOf(await call(gateway, ACT, envelope(gzipSync(REQUEST), 1), gzip))).toBe(0);
    expect(codeOf(await call(gateway, ACT, envelope(REQUEST), gzip))).toBe(0);
    const broken = await call(gateway, ACT, envelope(Buffer.from("no gzip"), 1), gzip);
    expect([codeOf(broken), reasonOf(broken)]).toEqual([Code.InvalidArgument, "malformed_body"]);
    const cut = await call(gateway, ACT, envelope(gzipSync(REQUEST).subarray(0, 12), 1), gzip);
    expect(codeOf(cut)).toBe(Code.InvalidArgument);
    const unknown = await call(gateway, ACT, envelope(REQUEST, 1), { "grpc-encoding": "lzma" });
    expect(codeOf(unknown)).toBe(Code.Unimplemented);
  });

  it("refuses messages above 32 MiB, declared or decompressed", async () => {
    const gateway = await openWith({ Act: () => CHUNK });
    const announced = Buffer.alloc(10);
    announced.writeUInt32BE((32 << 20) + 1, 1);
    const stream = begin(gateway, ACT);
    stream.write(announced);
    const outcome = await outcomeOf(stream);
    expect([codeOf(outcome), reasonOf(outcome)]).toEqual([Code.ResourceExhausted, "payload_too_large"]);
    const bomb = envelope(gzipSync(Buffer.alloc((32 << 20) + 1)), 1);
    const unpacked = await call(gateway, ACT, bomb, { "grpc-encoding": "gzip" });
    expect([codeOf(unpacked), reasonOf(unpacked)]).toEqual([Code.ResourceExhausted, "payload_too_large"]);
  });

  it("does not compress control loop messages even if the client accepts it", async () => {
    const gateway = await openWith({ Act: () => LARGE });
    const outcome = await call(gateway, ACT, envelope(REQUEST), { "grpc-accept-encoding": "gzip" });
    expect(outcome.body[0]).toBe(0);
    expect(outcome.body.length).toBe(5 + toBinary(ActResponseSchema, LARGE).length);
  });

  it("ends and cancels a call at its timeout", async () => {
    let reason: unknown;
    const gateway = await openWith({
      Act: async (_request, { signal }) => {
        try {
          return await aborted(signal);
        } catch (thrown) {
          reason = thrown;
          throw thrown;
        }
      },
    });
    const outcome = await call(gateway, ACT, envelope(REQUEST), { "grpc-timeout": "300m" });
    expect([codeOf(outcome), reasonOf(outcome)]).toEqual([Code.DeadlineExceeded, "deadline_exceeded"]);
    await until(() => reason !== undefined);
    expect(reason).toMatchObject({ reason: Reason.DEADLINE_EXCEEDED });
    expect(gateway.inside()).toBe(0);
  });

  it("treats a timeout beyond any timer as none, and refuses an invalid one", async () => {
    // Node makes a millisecond of a time that is too long: a timer of as much that is set later ends later.
    const gateway = await openWith({ Act: () => sleep(1).then(() => CHUNK) });
    expect(codeOf(await call(gateway, ACT, envelope(REQUEST), { "grpc-timeout": "99999999H" }))).toBe(0);
    const outcome = await call(gateway, ACT, envelope(REQUEST), { "grpc-timeout": "soon" });
    expect(codeOf(outcome)).toBe(Code.InvalidArgument);
  });

  it("cancels a call when the caller leaves", async () => {
    const called = Promise.withResolvers<CallContext>();
    const gateway = await openWith({
      Act: (_request: ActRequest, context: CallContext) => {
        called.resolve(context);
        return aborted(context.signal);
      },
    });
    const stream = begin(gateway, ACT);
    stream.on("error", () => undefined);
    stream.end(envelope(REQUEST));
    const { signal } = await called.promise;
    stream.close(http2.constants.NGHTTP2_CANCEL);
    await until(() => signal.aborted && gateway.inside() === 0 && gateway.lines.length === 1);
    expect(signal.reason).toMatchObject({ reason: Reason.CLIENT_CLOSED_REQUEST });
    expect(gateway.lines).toMatchObject([{ code: "client_closed_request" }]);
  });

  it("does not cancel an answered call", async () => {
    let seen: Signal | undefined;
    const gateway = await openWith({
      Act: (_request: ActRequest, { signal }: CallContext) => {
        seen = signal;
        return CHUNK;
      },
    });
    await call(gateway, ACT, envelope(REQUEST));
    await until(() => gateway.lines.length === 1);
    expect(seen?.aborted).toBe(false);
  });

  it("streams messages and ends with the final status", async () => {
    const gateway = await openWith({
      PredictStream: async function* () {
        yield* [frame(0), frame(1)];
        throw refuse(Reason.ALL_ATTEMPTS_FAILED, "it broke");
      },
    });
    const outcome = await call(gateway, STREAM, envelope(STREAM_REQUEST));
    expect(outcome.body).toEqual(
      Buffer.concat([frame(0), frame(1)].map((each) => envelope(toBinary(PredictStreamResponseSchema, each)))),
    );
    expect([codeOf(outcome), reasonOf(outcome)]).toEqual([Code.Unavailable, "all_attempts_failed"]);
    expect(outcome.head["grpc-status"]).toBeUndefined();
  });

  it("returns status 0 for an empty stream", async () => {
    const gateway = await openWith({ PredictStream: async function* () {} });
    const outcome = await call(gateway, STREAM, envelope(STREAM_REQUEST));
    expect([codeOf(outcome), outcome.body.length]).toEqual([0, 0]);
  });

  it("produces no more of a stream than is read, and nothing after the reader left", async () => {
    let made = 0;
    let closed = false;
    const picture = message(PredictStreamResponseSchema, {
      event: { case: "frame", value: { data: new Uint8Array(1 << 18) } },
    });
    const gateway = await openWith({
      PredictStream: async function* () {
        try {
          for (;;) {
            made++;
            yield picture;
          }
        } finally {
          closed = true;
        }
      },
    });
    const stream = begin(gateway, STREAM);
    stream.on("error", () => undefined);
    stream.end(envelope(STREAM_REQUEST));
    await once(stream, "response");
    let before = -1;
    while (made !== before) {
      before = made;
      for (let turn = 0; turn < 2000; turn++) await new Promise((resolve) => setImmediate(resolve));
    }
    expect(made).toBeLessThan(200);
    stream.close(http2.constants.NGHTTP2_CANCEL);
    await until(() => closed && gateway.inside() === 0);
  });

  it("ends calls that outlast a closing gateway as unavailable", async () => {
    let started = 0;
    const rpcs = {
      Act: (_request: ActRequest, { signal }: CallContext) => {
        started++;
        return aborted(signal);
      },
      PredictStream: async function* () {
        yield frame(0);
        started++;
        await new Promise(() => undefined); // deaf to every signal
      },
    };
    const gateway = await openOwn({ rpcs, byConnect });
    const whole = call(gateway, ACT, envelope(REQUEST));
    const streamed = call(gateway, STREAM, envelope(STREAM_REQUEST));
    await until(() => started === 2);
    await gateway.server.drain(10);
    expect([codeOf(await whole), reasonOf(await whole)]).toEqual([Code.Unavailable, "not_ready"]);
    expect([codeOf(await streamed), reasonOf(await streamed)]).toEqual([Code.Unavailable, "not_ready"]);
    expect(gateway.inside()).toBe(0);
  });
});
