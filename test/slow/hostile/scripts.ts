/** Valid conversations byte by byte, one for each transport: what an attack cuts short, repeats and bends. */
import { create, toBinary } from "@bufbuild/protobuf";
import { PredictStreamRequestSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import { frameMessage } from "../../../src/codecs/grpc.ts";
import { encodeGr00t } from "../../../src/codecs/python/gr00t.ts";
import type { Packable } from "../../../src/codecs/python/msgpack.ts";
import { encodeNumpy, encodeNumpyText, NdArray } from "../../../src/codecs/python/ndarray.ts";
import { GREETING, READY, requestHead } from "../../../src/codecs/zmtp.ts";
import { FLAG, FRAME, frame, HELLO, request } from "../../support/wire-client.ts";
import { actFrame, actJson, BAD_ASK, observationFrame, openFrame } from "./good.ts";
import type { Target } from "./target.ts";

/** A conversation as its caller's bytes. */
export interface Script {
  readonly name: string;
  readonly port: number;
  /** What opens the connection; empty where requests come at once. */
  readonly prelude: readonly Buffer[];
  /** One request after the other, each in its parts: head and body, frame and frame. */
  readonly requests: readonly (readonly Buffer[])[];
  /** What an answer to the whole conversation contains. */
  readonly sound: RegExp;
}

const ACT_JSON = actJson(BAD_ASK);
const ACT_FRAME = actFrame(BAD_ASK);
const OPEN_FRAME = openFrame(BAD_ASK);
const CRLF = "\r\n";
/** HEADERS that end the first stream. Their fields are packed. */
const TRAILERS = new RegExp(String.fromCharCode(FRAME.headers, FLAG.endHeaders | FLAG.endStream, 0, 0, 0, 1));
/** A tiny picture, for what needs one. */
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const PREDICT = {
  model: "service/auto",
  horizon: 1,
  observations: [{ frames: [{ camera: "front", url: `data:image/png;base64,${PIXEL}` }] }],
};
const PREDICT_FRAME = frameMessage(
  toBinary(PredictStreamRequestSchema, create(PredictStreamRequestSchema, { predict: PREDICT })),
);

/** A request of HTTP/1.1 in its head and its body, with a content length unless the headers say how the body comes. */
export function http1(
  line: string,
  headers: Readonly<Record<string, string>>,
  body?: string | Buffer,
): readonly Buffer[] {
  const framed = "Transfer-Encoding" in headers || body === undefined;
  const fields = {
    Host: "localhost",
    ...headers,
    ...(!framed && { "Content-Length": String(Buffer.byteLength(body)) }),
  };
  const head = [`${line} HTTP/1.1`, ...Object.entries(fields).map(([name, value]) => `${name}: ${value}`), "", ""];
  return [Buffer.from(head.join(CRLF)), ...(body === undefined ? [] : [Buffer.from(body)])];
}

/** A call over HTTP/2 on one stream: its head, and its body in one frame that ends the stream unless `open`. */
export function http2(
  stream: number,
  path: string,
  headers: Readonly<Record<string, string>>,
  bodies: readonly (Buffer | string)[],
  open = false,
): readonly Buffer[] {
  const frames = bodies.map((body, i) =>
    frame(FRAME.data, i === bodies.length - 1 && !open ? FLAG.endStream : 0, stream, Buffer.from(body)),
  );
  return [request(stream, path, { method: "POST", end: false, more: headers }), ...frames];
}

/** A message of WebSocket as clients mask theirs, in its head and its payload. */
export function webSocketFrame(payload: Buffer, opcode = 2): readonly Buffer[] {
  const mask = Buffer.from([1, 2, 3, 4]);
  const size = payload.length < 126 ? [0x80 | payload.length] : [0x80 | 126, payload.length >> 8, payload.length & 255];
  return [Buffer.from([0x80 | opcode, ...size, ...mask]), payload.map((byte, i) => byte ^ mask[i & 3]!) as Buffer];
}

const chunked = (body: string): string => `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
const INFERENCE = "/limber.v1.InferenceService";

/** Every transport, with a key and without where both make sense. */
export function scriptsOf(target: Target): readonly Script[] {
  const { port, gr00tPort } = target;
  const { key } = target.bad;
  const bearer = { Authorization: `Bearer ${key}` };
  const json = { "Content-Type": "application/json" };
  const grpc = { "content-type": "application/grpc", te: "trailers" };
  const small = { authorization: `Bearer ${key}` };
  const all: Script[] = [];
  /** Pipelined three times over HTTP/1.1. */
  const plain = (name: string, sound: RegExp, parts: readonly Buffer[]): void =>
    void all.push({ name, port, sound, prelude: [], requests: [parts, parts, parts] });
  /** Three streams of one connection of HTTP/2. */
  const streams = (name: string, sound: RegExp, of: (stream: number) => readonly Buffer[]): void =>
    void all.push({ name, port, sound, prelude: [HELLO], requests: [of(1), of(3), of(5)] });

  plain("REST act, keyless, in the lane", /^HTTP\/1\.1 401 /, http1("POST /v1/act", json, "{}"));
  plain("REST act in the lane", /^HTTP\/1\.1 200 /, http1("POST /v1/act", { ...json, ...bearer }, ACT_JSON));
  plain("REST get", /^HTTP\/1\.1 200 /, http1("GET /health", bearer));
  plain(
    "REST act in chunks",
    /^HTTP\/1\.1 200 /,
    http1("POST /v1/act", { ...json, ...bearer, "Transfer-Encoding": "chunked" }, chunked(ACT_JSON)),
  );
  plain(
    "REST act that expects to be told to go on",
    /^HTTP\/1\.1 (100|200) /,
    http1("POST /v1/act", { ...json, ...bearer, Expect: "100-continue" }, ACT_JSON),
  );
  plain(
    "act as server-sent events",
    /^HTTP\/1\.1 200 [\s\S]*event: route/,
    http1("POST /v1/act", { ...json, ...bearer }, ACT_JSON.replace("{", '{"stream":true,')),
  );
  plain(
    "predict as server-sent events",
    /^HTTP\/1\.1 200 [\s\S]*event: /,
    http1("POST /v1/predict/stream", { ...json, ...bearer }, JSON.stringify(PREDICT)),
  );
  plain(
    "Connect unary in JSON over HTTP/1.1, keyless",
    /^HTTP\/1\.1 401 /,
    http1(`POST ${INFERENCE}/Act`, { ...json, "Connect-Protocol-Version": "1" }, "{}"),
  );
  plain(
    "Connect unary in JSON over HTTP/1.1",
    /^HTTP\/1\.1 200 /,
    http1(`POST ${INFERENCE}/Act`, { ...json, ...bearer, "Connect-Protocol-Version": "1" }, ACT_JSON),
  );
  plain(
    "Connect unary in binary over HTTP/1.1",
    /^HTTP\/1\.1 200 /,
    http1(`POST ${INFERENCE}/Act`, { "Content-Type": "application/proto", ...bearer }, ACT_FRAME.subarray(5)),
  );
  plain(
    "gRPC-Web over HTTP/1.1",
    /^HTTP\/1\.1 200 /,
    http1(`POST ${INFERENCE}/Act`, { "Content-Type": "application/grpc-web+proto", ...bearer }, ACT_FRAME),
  );
  streams("gRPC Act, keyless", TRAILERS, (stream) => http2(stream, `${INFERENCE}/Act`, grpc, [ACT_FRAME]));
  streams("gRPC Act", /world\.action/, (stream) =>
    http2(stream, `${INFERENCE}/Act`, { ...grpc, ...small }, [ACT_FRAME]),
  );
  streams("gRPC ActStream, keyless", TRAILERS, (stream) =>
    http2(stream, `${INFERENCE}/ActStream`, grpc, [OPEN_FRAME], true),
  );
  streams("gRPC ActStream", /reference\//, (stream) =>
    http2(
      stream,
      `${INFERENCE}/ActStream`,
      { ...grpc, ...small },
      [OPEN_FRAME, observationFrame(BAD_ASK, 1), observationFrame(BAD_ASK, 2)],
      stream > 1,
    ),
  );
  streams("gRPC PredictStream", /reference\//, (stream) =>
    http2(stream, `${INFERENCE}/PredictStream`, { ...grpc, ...small }, [PREDICT_FRAME]),
  );
  streams("gRPC by the general handler", /openpi-ws/, (stream) =>
    http2(stream, "/limber.v1.RegistryService/ListRuntimes", grpc, [frameMessage(Buffer.from([]))]),
  );
  streams("Connect unary in JSON over HTTP/2", /world\.action/, (stream) =>
    http2(stream, `${INFERENCE}/Act`, { ...small, "content-type": "application/json" }, [ACT_JSON]),
  );
  streams("Connect stream over HTTP/2", /reference\//, (stream) =>
    http2(stream, `${INFERENCE}/PredictStream`, { ...small, "content-type": "application/connect+proto" }, [
      PREDICT_FRAME,
    ]),
  );
  streams("REST act over HTTP/2", /world\.action/, (stream) =>
    http2(stream, "/v1/act", { ...small, "content-type": "application/json" }, [ACT_JSON]),
  );
  const observed = encodeNumpy({ "observation/state": NdArray.float64([...BAD_ASK.proprio]) });
  const upgradeTo = (path: string): readonly Buffer[] =>
    http1(`GET ${path}`, {
      Upgrade: "websocket",
      Connection: "Upgrade",
      "Sec-WebSocket-Version": "13",
      "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
      Authorization: `Api-Key ${key}`,
    });
  const spoken = webSocketFrame(observed);
  all.push({
    name: "openpi over WebSocket",
    port,
    sound: /^HTTP\/1\.1 101 [\s\S]*actions/,
    prelude: upgradeTo(`/v1/openpi/${BAD_ASK.model}?action_space=${BAD_ASK.actionSpace}&horizon=4`),
    requests: [spoken, spoken, [...spoken, ...webSocketFrame(Buffer.from("ping"), 9)]],
  });
  const told = (type: string, payload: Packable<NdArray>): readonly Buffer[] =>
    webSocketFrame(encodeNumpyText({ type, payload, seq: 1, timestamp: 1.5 }));
  const seen = told("observation", { states: NdArray.float64([...BAD_ASK.proprio]) });
  all.push({
    name: "vla-evaluation-harness over WebSocket",
    port,
    sound: /^HTTP\/1\.1 101 [\s\S]*hello[\s\S]*actions/,
    prelude: upgradeTo(`/v1/vla-eval/${BAD_ASK.model}?action_space=${BAD_ASK.actionSpace}`),
    requests: [told("hello", { benchmark: "x" }), [...told("episode_start", {}), ...seen], seen],
  });
  const asked = encodeGr00t({
    endpoint: "get_action",
    api_token: key,
    data: {
      observation: { state: { arm: NdArray.float32([...BAD_ASK.proprio], [1, 1, BAD_ASK.proprio.length]) } },
      options: { model: BAD_ASK.model, action_space: BAD_ASK.actionSpace, horizon: 4 },
    },
  });
  const message = [requestHead(asked.length), asked];
  all.push({
    name: "GR00T over ZeroMQ",
    port: gr00tPort,
    sound: /^\xff[\s\S]*READY/,
    prelude: [GREETING, READY],
    requests: [message, message, message],
  });
  return all;
}
