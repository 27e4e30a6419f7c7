/** Services that do as the model's name says, and calls to them, sane and hostile. */

import type * as http2 from "node:http2";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import {
  ActRequestSchema,
  type ActResponse,
  ActResponseSchema,
  type ActStreamRequest,
  ActStreamRequestSchema,
  type ActStreamResponse,
  ActStreamResponseSchema,
  PredictStreamRequestSchema,
  type PredictStreamResponse,
  PredictStreamResponseSchema,
} from "../../gen/limber/v1/inference_service_pb.ts";
import type { StreamHandler, StreamWriter } from "../../src/call.ts";
import { frameMessage } from "../../src/codecs/grpc.ts";
import type { CallContext } from "../../src/edge/gate/authenticate.ts";
import { Reason, refuse } from "../../src/errors.ts";
import { message } from "./gateway.ts";

export const ACT = "/limber.v1.InferenceService/Act";
export const STREAM = "/limber.v1.InferenceService/PredictStream";

/** What a call comes to, by the model that it asks for. */
export const ACTS: Readonly<Record<string, (context: CallContext) => ActResponse | Promise<ActResponse>>> = {
  "o/chunk": () => message(ActResponseSchema, { id: "act_1", action: { steps: [{ values: [1, 2] }] } }),
  "o/empty": () => message(ActResponseSchema, {}),
  "o/large": () => message(ActResponseSchema, { action: { note: "n".repeat(3 << 20) } }),
  "o/refused": () => {
    const details = { near: ["o/chunk"], neededUsd: 1.5 };
    throw refuse(Reason.INSUFFICIENT_CREDITS, "zu wenig 💸 da: 100 %\n", details);
  },
  "o/later": () => {
    throw refuse(Reason.RATE_LIMIT_EXCEEDED, "later", {}, { retryAfter: 1.25, param: "model" });
  },
  "o/busy": () => {
    throw refuse(Reason.NOT_READY, "busy");
  },
  "o/bug": () => {
    throw new Error("hunter2");
  },
  "o/told": ({ idempotencyKey }) => message(ActResponseSchema, { id: String(idempotencyKey) }),
  "o/timed": ({ deadline }) => message(ActResponseSchema, { id: String(deadline === undefined) }),
  "o/waits": ({ signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
};

export const frame = (index: number): PredictStreamResponse =>
  message(PredictStreamResponseSchema, { event: { case: "frame", value: { index } } });

export const STREAMS: Readonly<Record<string, (context: CallContext) => AsyncIterable<PredictStreamResponse>>> = {
  async *"o/two"() {
    yield* [frame(0), frame(1)];
  },
  async *"o/none"() {},
  async *"o/large"() {
    yield message(PredictStreamResponseSchema, { event: { case: "frame", value: { data: new Uint8Array(3 << 20) } } });
  },
  async *"o/refused"({ signal }) {
    if (signal.aborted) yield frame(0);
    throw refuse(Reason.ALL_ATTEMPTS_FAILED, "niemand", {}, { retryAfter: 3 });
  },
  "o/at-once"() {
    throw refuse(Reason.PERMISSION_DENIED, "not you", { needed: ["x"] });
  },
  async *"o/broken"() {
    yield frame(0);
    throw refuse(Reason.DEADLINE_EXCEEDED, "zu spät");
  },
  async *"o/bug"() {
    yield frame(0);
    throw new Error("hunter2");
  },
  async *"o/deaf"() {
    yield frame(0);
    await new Promise(() => undefined);
  },
};

export type Voice = StreamWriter<ActStreamResponse>;
export const chunk = (startStep: number): ActStreamResponse =>
  message(ActStreamResponseSchema, { event: { case: "chunk", value: { startStep } } });

/** What is done with an observation, by the model that was opened. */
export const TALKS: Readonly<Record<string, (voice: Voice, step: number) => void>> = {
  "o/echo": (voice, step) => voice.say(chunk(step)),
  "o/last": (voice, step) => {
    voice.say(chunk(step));
    voice.end();
    voice.say(chunk(step + 1));
  },
  "o/refused": (voice, step) => {
    voice.say(chunk(step));
    voice.end(refuse(Reason.INSUFFICIENT_CREDITS, "nichts mehr", { needed: ["more"] }));
  },
  "o/throws": () => {
    throw refuse(Reason.ROBOT_STOPPED, "halt");
  },
  "o/bug": () => {
    throw new Error("hunter2");
  },
  "o/large": (voice) =>
    voice.say(message(ActStreamResponseSchema, { event: { case: "hold", value: { detail: "n".repeat(3 << 20) } } })),
};

export function talk(voice: Voice): StreamHandler<ActStreamRequest> {
  let model = "";
  return {
    hear({ message: { case: name, value } }) {
      if (name === "open") model = value.model;
      else if (name === "observation") TALKS[model]!(voice, value.step);
    },
    room: () => undefined,
    close: () => voice.end(),
    cut: (refusal) => voice.end(refusal),
  };
}

export const said = (value: MessageInitShape<typeof ActStreamRequestSchema>["message"]): Uint8Array =>
  toBinary(ActStreamRequestSchema, create(ActStreamRequestSchema, { message: value } as never));
export const opened = (model: string): Uint8Array => said({ case: "open", value: { model } });
export const seen = (step: number): Uint8Array => said({ case: "observation", value: { step, observations: [{}] } });
export const TALK = "/limber.v1.InferenceService/ActStream";
export const talked = (model: string, steps: readonly number[], headers: http2.OutgoingHttpHeaders = {}): Sent => ({
  path: TALK,
  headers,
  body: [frameMessage(opened(model)), ...steps.map((step) => frameMessage(seen(step)))],
});

export const act = (model: string, more: MessageInitShape<typeof ActRequestSchema> = {}): Uint8Array =>
  toBinary(ActRequestSchema, create(ActRequestSchema, { model, observations: [{ proprio: [1] }], ...more }));
export const stream = (model: string): Uint8Array =>
  toBinary(
    PredictStreamRequestSchema,
    create(PredictStreamRequestSchema, { predict: { model, observations: [{ proprio: [1] }] } }),
  );

export interface Sent {
  path?: string;
  headers?: http2.OutgoingHttpHeaders;
  /** What is sent, in the pieces it is sent in. */
  body?: readonly Uint8Array[];
  /** The caller goes on holding his side open. */
  open?: boolean;
}

export const asked = (model: string, headers: http2.OutgoingHttpHeaders = {}): Sent => ({
  headers,
  body: [frameMessage(act(model))],
});
export const streamed = (model: string, headers: http2.OutgoingHttpHeaders = {}): Sent => ({
  path: STREAM,
  headers,
  body: [frameMessage(stream(model))],
});

export const CHUNK = frameMessage(act("o/chunk"));
export const flagged = (flags: number): Buffer => Buffer.concat([Buffer.of(flags), CHUNK.subarray(1)]);
export const announced = (bytes: number): Buffer => {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(bytes, 1);
  return head;
};

export const CALLS: Readonly<Record<string, Sent>> = {
  "an answer": asked("o/chunk"),
  "an empty answer": asked("o/empty"),
  "an answer to a client that names the encoding of messages": asked("o/chunk", {
    "content-type": "application/grpc+proto",
  }),
  "an answer in JSON": {
    headers: { "content-type": "application/grpc+json" },
    body: [frameMessage(Buffer.from('{"model":"o/chunk","observations":[{"proprio":[1]}]}'))],
  },
  "an answer to a message in pieces": { body: [...CHUNK].map((byte) => Buffer.of(byte)) },
  "a refusal with details and letters of all kinds": asked("o/refused"),
  "a refusal with a time to wait": asked("o/later"),
  "a refusal that invites to come again": asked("o/busy"),
  "a bug": asked("o/bug"),
  "the idempotency key": asked("o/told", { "idempotency-key": "k 1" }),
  "a wish for a stream": { body: [frameMessage(act("o/chunk", { stream: true }))] },
  "a message that breaks rules": { body: [frameMessage(act("", { observations: [] }))] },
  "an empty message": { body: [frameMessage(new Uint8Array())] },
  "no key": asked("o/chunk", { authorization: "" }),
  "a wrong key": asked("o/chunk", { authorization: "Bearer no" }),
  "a wrong key, with the message still to come": { headers: { authorization: "Bearer no" }, open: true },
  "the caller's own request id": asked("o/chunk", { "x-request-id": "mine-1" }),

  "a short time": asked("o/waits", { "grpc-timeout": "30000u" }),
  "a long time": asked("o/timed", { "grpc-timeout": "20S" }),
  "a time that no timer can hold": asked("o/timed", { "grpc-timeout": "99999999H" }),
  "a time that is none": asked("o/chunk", { "grpc-timeout": "1s" }),
  "a time that is none, and no key": asked("o/chunk", { "grpc-timeout": "1s", authorization: "" }),
  "a short time of a stream": streamed("o/deaf", { "grpc-timeout": "300m" }),
  "no time at all": asked("o/waits", { "grpc-timeout": "0m" }),
  "no time at all for a quick answer": asked("o/chunk", { "grpc-timeout": "0n" }),
  "no time at all, and no key": asked("o/chunk", { "grpc-timeout": "0m", authorization: "" }),
  "no time at all for a stream": streamed("o/two", { "grpc-timeout": "0S" }),

  "a frame with a reserved flag": { body: [flagged(0b10)] },
  "a frame with the flag that ends streams of Connect": { body: [flagged(0b10), CHUNK] },
  "a frame with the flag that marks trailers of gRPC-Web": { body: [flagged(0x80)] },
  "a compressed frame with a reserved flag": { headers: { "grpc-encoding": "gzip" }, body: [flagged(0b101)] },
  "a stream whose request has a reserved flag": {
    path: STREAM,
    body: [Buffer.concat([Buffer.of(0b100), frameMessage(stream("o/two")).subarray(1)])],
  },

  "a message in gzip": { headers: { "grpc-encoding": "gzip" }, body: [frameMessage(gzipSync(act("o/chunk")), true)] },
  "a message in brotli": {
    headers: { "grpc-encoding": "br" },
    body: [frameMessage(brotliCompressSync(act("o/chunk")), true)],
  },
  "a plain message under gzip": asked("o/chunk", { "grpc-encoding": "gzip" }),
  "an empty message in gzip": { headers: { "grpc-encoding": "gzip" }, body: [frameMessage(new Uint8Array(), true)] },
  "what is no gzip": { headers: { "grpc-encoding": "gzip" }, body: [frameMessage(Buffer.from("no"), true)] },
  "gzip cut short": {
    headers: { "grpc-encoding": "gzip" },
    body: [frameMessage(gzipSync(act("o/chunk")).subarray(0, 12), true)],
  },
  "what is no brotli": { headers: { "grpc-encoding": "br" }, body: [frameMessage(Buffer.from("no"), true)] },
  "an encoding that is not known": asked("o/chunk", { "grpc-encoding": "snappy" }),
  "an encoding that is not known, and no key": asked("o/chunk", { "grpc-encoding": "snappy", authorization: "" }),
  "a compressed message without an encoding": { body: [frameMessage(act("o/chunk"), true)] },
  "a compressed message under identity": {
    headers: { "grpc-encoding": "identity" },
    body: [frameMessage(act("o/chunk"), true)],
  },
  "a client that takes gzip": asked("o/chunk", { "grpc-accept-encoding": "identity, deflate, gzip" }),
  "a large answer to a client that takes gzip": asked("o/large", { "grpc-accept-encoding": "gzip" }),
  "a large answer to a client that takes brotli first": asked("o/large", { "grpc-accept-encoding": "br,gzip" }),
  "a large answer to a client that takes nothing": asked("o/large", { "grpc-accept-encoding": "identity" }),
  "a large answer to a client that sends gzip": {
    headers: { "grpc-encoding": "gzip" },
    body: [frameMessage(gzipSync(act("o/large")), true)],
  },
  "a large answer to a client that says nothing": asked("o/large"),
  "a large message of a stream to a client that takes gzip": streamed("o/large", { "grpc-accept-encoding": "gzip" }),

  "bytes that are no message": { body: [frameMessage(Buffer.from([0x0a, 0xff, 0xff]))] },
  "a field of another type": { body: [frameMessage(Buffer.from([0x08, 0x01]))] },
  "text that is not UTF-8": { body: [frameMessage(Buffer.from([0x0a, 0x01, 0xff]))] },
  nothing: { body: [] },
  "half an envelope": { body: [Buffer.alloc(2)] },
  "half a message": { body: [CHUNK.subarray(0, 12)] },
  "two messages": { body: [CHUNK, CHUNK] },
  "a message and half a second": { body: [CHUNK, CHUNK.subarray(0, 7)] },
  "the announcement of too large a message": { body: [announced((64 << 20) + 1)], open: true },
  "a bomb": {
    headers: { "grpc-encoding": "gzip" },
    body: [frameMessage(gzipSync(Buffer.alloc((64 << 20) + 1)), true)],
  },

  "a stream": streamed("o/two"),
  "a stream of nothing": streamed("o/none"),
  "a refusal in place of a stream": streamed("o/refused"),
  "a refusal before a stream": streamed("o/at-once"),
  "a refusal after a message": streamed("o/broken"),
  "a bug after a message": streamed("o/bug"),
  "a stream with an idempotency key": streamed("o/two", { "idempotency-key": "k1" }),
  "a stream without a key": streamed("o/two", { authorization: "" }),
  "a stream of two requests": { path: STREAM, body: [frameMessage(stream("o/two")), frameMessage(stream("o/two"))] },
  "a stream of no request": { path: STREAM, body: [] },

  "a conversation": talked("o/echo", [1, 2]),
  "a conversation in one piece": {
    path: TALK,
    body: [Buffer.concat([opened("o/echo"), seen(1), seen(2)].map((each) => frameMessage(each)))],
  },
  "a conversation in small pieces": {
    path: TALK,
    body: [...Buffer.concat([opened("o/echo"), seen(1), seen(2)].map((each) => frameMessage(each)))].map((byte) =>
      Buffer.of(byte),
    ),
  },
  "a conversation that the service ends": talked("o/last", [1]),
  "a conversation that the service ends, with the caller still there": { ...talked("o/last", [1]), open: true },
  "a conversation that ends in a refusal": talked("o/refused", [1]),
  "a conversation whose listener refuses": talked("o/throws", [1]),
  "a bug in a conversation": talked("o/bug", [1]),
  "a conversation of nothing": { path: TALK, body: [] },
  "a conversation without a key": talked("o/echo", [1], { authorization: "" }),
  "a conversation with a time": talked("o/echo", [1], { "grpc-timeout": "20S" }),
  "a conversation whose time is over": { ...talked("o/echo", [], { "grpc-timeout": "30m" }), open: true },
  "a conversation in gzip": {
    path: TALK,
    headers: { "grpc-encoding": "gzip" },
    body: [
      frameMessage(gzipSync(opened("o/echo")), true),
      frameMessage(gzipSync(seen(1)), true),
      frameMessage(seen(2)),
    ],
  },
  "a large message of a conversation to a client that takes gzip": talked("o/large", [1], {
    "grpc-accept-encoding": "gzip",
  }),
  "a compressed message in a conversation without an encoding": {
    path: TALK,
    body: [frameMessage(gzipSync(opened("o/echo")), true)],
  },
  "bytes that are no message in a conversation": {
    path: TALK,
    body: [frameMessage(opened("o/echo")), frameMessage(Buffer.from([0x0a, 0xff, 0xff]))],
  },
  "half an envelope in a conversation": { path: TALK, body: [frameMessage(opened("o/echo")), Buffer.alloc(2)] },

  "a method that is not there": { path: "/limber.v1.InferenceService/Nope", body: [CHUNK] },
  "a service that is not there": { path: "/limber.v1.Nope/Act", body: [CHUNK] },
  "a content type that is none": { headers: { "content-type": "text/plain" }, body: [CHUNK] },
  GET: { headers: { ":method": "GET" }, open: true },
};
