/**
 * The same requests to two gateways, one with its hand-written paths and one without: what they answer must be the same in status,
 * headers, trailers and the shape of the body. Requests are made from a seed, sound ones and hostile ones; those that once told the two
 * apart are kept in `corpus/`.
 */
import { readdirSync, readFileSync } from "node:fs";
import { type ClientHttp2Session, connect } from "node:http2";
import { gzipSync } from "node:zlib";
import { fromBinary, toJson } from "@bufbuild/protobuf";
import { ActResponseSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import { frameMessage } from "../../../src/codecs/grpc.ts";
import { callRest } from "../../support/app.ts";
import { type Attack, type AttackContext, attackerAddress, closeOf, dial, spread } from "./attack.ts";
import { actFrame, actJson, BAD_ASK, GOOD_ASK } from "./good.ts";
import type { Target } from "./target.ts";

/** The plain path alone. */
export const PLAIN = { LIMBER_FAST: "off" };

/** A request of either kind; `<key>` stands for the key of an attacker, which differs from gateway to gateway. */
export type Case = { readonly note: string } & (
  | { readonly kind: "http1"; readonly text: string; readonly splitAt?: number }
  | {
      readonly kind: "grpc";
      readonly headers: Readonly<Record<string, string>>;
      /** Parts of the body in base64; the stream ends with the last one unless `open`. */
      readonly body: readonly string[];
      readonly open?: boolean;
    }
);

/** What differs from call to call. */
const OF_THE_MOMENT = /^(date|x-request-id|ratelimit.*|x-ratelimit.*|retry-after|grpc-status-details-bin)$/;

type Shape = unknown;

/** What one server of a model says and another one does not. */
const OF_A_SERVER = new Set(["note", "gpuSeconds", "gpu_seconds"]);

/** A value without what differs from call to call: names and words stay, numbers and ids don't. */
function shapeOf(value: unknown, name = ""): Shape {
  // Who was tried differs by chance.
  if (name === "route") return name;
  // Details of Connect in base64, which hold the request's id.
  if (name === "value" && typeof value === "string") return name;
  if (Array.isArray(value)) return name === "values" || name === "steps" ? "list" : value.map((each) => shapeOf(each));
  if (typeof value === "object" && value !== null)
    return Object.fromEntries(
      Object.entries(value)
        .filter(([key]) => !OF_A_SERVER.has(key))
        .sort(([a], [b]) => a.localeCompare(b))
        .map(([key, each]) => [key, shapeOf(each, key)]),
    );
  if (typeof value === "number") return name === "status" ? value : "number";
  return typeof value === "string"
    ? value
        .replace(/\b[a-z]+_[0-9A-Z]{26}\b/g, "<id>")
        .replace(/\d+(\.\d+)? ms/g, "<n> ms")
        .replace(/127\.0\.0\.1:\d+/g, "<address>")
    : value;
}

function bodyShape(text: string): Shape {
  try {
    return shapeOf(JSON.parse(text));
  } catch {
    if (/^(event|data|:)/m.test(text)) return [...text.matchAll(/^event: (\w+)/gm)].map(([, event]) => event);
    return text.length > 400 ? `${text.length} letters` : text;
  }
}

const headersShape = (headers: readonly (readonly [string, string])[]): string[] =>
  headers
    .filter(([name]) => !OF_THE_MOMENT.test(name))
    // A length tells of ids and figures, which differ.
    .map(([name, value]) => (name === "content-length" ? name : `${name}: ${value}`))
    .sort();

/** The answers of HTTP/1 in what was received. */
function answersIn(received: string): Shape[] {
  const answers: Shape[] = [];
  for (let rest = received; rest !== ""; ) {
    const end = rest.indexOf("\r\n\r\n");
    const [line = "", ...fields] = rest.slice(0, end < 0 ? undefined : end).split("\r\n");
    const headers = fields.map((field): [string, string] => {
      const colon = field.indexOf(":");
      return [field.slice(0, colon).toLowerCase(), field.slice(colon + 1).trim()];
    });
    const facts = Object.fromEntries(headers);
    rest = end < 0 ? "" : rest.slice(end + 4);
    let body = "";
    if (facts["transfer-encoding"] === "chunked") {
      for (;;) {
        const at = rest.indexOf("\r\n");
        const size = Number.parseInt(rest.slice(0, at), 16);
        if (at < 0 || Number.isNaN(size)) break;
        body += rest.slice(at + 2, at + 2 + size);
        rest = rest.slice(at + 2 + size + 2);
        if (size === 0) break;
      }
    } else if (/^HTTP\/1\.1 1\d\d/.test(line)) body = "";
    else {
      // Without a length a body goes on to the end of the connection.
      const length = Number(facts["content-length"] ?? rest.length);
      body = rest.slice(0, length);
      rest = rest.slice(length);
    }
    answers.push([line, headersShape(headers), bodyShape(body)]);
  }
  return answers;
}

/** After a GET a connection of HTTP/1 is node:http's; its answer is none of the case's. */
const TO_PLAIN = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
/** Nothing more comes of a request that waits for more of itself: nothing came for so long, and others were served meanwhile. */
const QUIET_MS = 400;
const QUIET_CALLS = 6;

const GOOD_JSON = actJson(GOOD_ASK);

/** Calls of a gateway, one after the other, for as long as requests are compared: a clock that slows down with the machine. */
class Pulse {
  calls = 0;
  readonly #target: Target;
  #stopping = false;
  readonly #beating: Promise<void>;

  constructor(target: Target) {
    this.#target = target;
    this.#beating = this.#beat();
  }

  async #beat(): Promise<void> {
    while (!this.#stopping && this.#target.end() === undefined) {
      const { url, good } = this.#target;
      await callRest(url, "/v1/act", GOOD_JSON, { key: good.key }).catch(() => undefined);
      this.calls++;
    }
  }

  stop(): Promise<void> {
    this.#stopping = true;
    return this.#beating;
  }
}

async function overHttp1(
  target: Target,
  pulse: Pulse,
  text: string,
  isPlain: boolean,
  splitAt?: number,
): Promise<Shape> {
  const socket = await dial(target.port);
  let received = "";
  let at = 0;
  let calls = 0;
  let wake = (): void => {};
  socket.setEncoding("latin1").on("data", (part: string) => {
    received += part;
    at = performance.now();
    calls = pulse.calls;
    wake();
  });
  const closed = closeOf(socket).then(() => true);
  socket.on("end", () => socket.end());
  let skip = 0;
  if (isPlain) {
    socket.write(TO_PLAIN);
    while (!/"status":/.test(received) && !socket.destroyed)
      await Promise.race([new Promise<void>((resolve) => (wake = resolve)), closed]);
    skip = received.length;
  }
  const bytes = Buffer.from(text.replaceAll("<key>", target.bad.key), "latin1");
  socket.write(bytes.subarray(0, splitAt ?? bytes.length));
  if (splitAt !== undefined) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    socket.write(bytes.subarray(splitAt));
  }
  at = performance.now();
  calls = pulse.calls;
  let hasClosed = false;
  while (!hasClosed && (performance.now() - at < QUIET_MS || pulse.calls - calls < QUIET_CALLS) && !target.end()) {
    const pause = new Promise<false>((resolve) => setTimeout(resolve, QUIET_MS / 8, false));
    hasClosed = await Promise.race([closed, pause]);
  }
  socket.destroy();
  return { answers: answersIn(received.slice(skip)), closed: hasClosed };
}

/** The connections to one gateway: a case that ends one leaves the next to a new one, or what follows would fail on both alike. */
class Sessions {
  readonly #of: Target;
  #last: ClientHttp2Session | undefined;

  constructor(of: Target) {
    this.#of = of;
  }

  current(): ClientHttp2Session {
    if (this.#last === undefined || this.#last.destroyed || this.#last.closed) {
      this.#last = connect(`http://127.0.0.1:${this.#of.port}`, { localAddress: attackerAddress() } as object);
      this.#last.on("error", () => undefined);
    }
    return this.#last;
  }

  end(): void {
    this.#last?.destroy();
  }
}

function overGrpc(session: ClientHttp2Session, target: Target, each: Extract<Case, { kind: "grpc" }>): Promise<Shape> {
  const headers = Object.fromEntries(
    Object.entries(each.headers).map(([name, value]) => [name, value.replaceAll("<key>", target.bad.key)]),
  );
  // gRPC-Web ends in its body.
  const inNoTime = SHORT.has(headers["grpc-timeout"] ?? "");
  return new Promise((resolve) => {
    const told: Shape[] = [];
    const chunks: Buffer[] = [];
    let failed: string | undefined;
    const stream = session.request(headers);
    const hear =
      (what: string) =>
      (fields: object): void => {
        const pairs = Object.entries(fields).map(([name, value]): [string, string] => [name, String(value)]);
        told.push([what, headersShape(endShape(pairs, each.headers["grpc-timeout"]))]);
      };
    stream.on("response", hear("head")).on("trailers", hear("trailers"));
    stream.on("data", (chunk: Buffer) => chunks.push(chunk));
    stream.on("error", (error) => {
      failed = "code" in error ? String(error.code) : error.message;
    });
    stream.once("close", () =>
      resolve({ told, messages: inNoTime ? [] : messagesShape(Buffer.concat(chunks)), failed, reset: stream.rstCode }),
    );
    for (const [i, part] of each.body.entries()) {
      const bytes = Buffer.from(part, "base64");
      if (i === each.body.length - 1 && !each.open) stream.end(bytes);
      else stream.write(bytes);
    }
    if (each.body.length === 0 && !each.open) stream.end();
    // An open stream is looked at while it waits.
    if (each.open) setTimeout(() => stream.close(), QUIET_MS);
  });
}

/** Where two things are wrong with a body, either may be named. */
const MALFORMED =
  /^(?:the message cannot be read|protocol error: (?:incomplete envelope|received extra input message .*|missing input message .*))$/;

/** Times that end while a request is read: it may be late, or what is wrong with it. */
const SHORT = new Set(["1n", "1u", "0S"]);
/** Codes that say that the gateway has a fault: UNKNOWN and INTERNAL. */
const FAULTS = new Set(["2", "13"]);

/** The end of a gRPC call without what hangs on time: whether a deadline ended it, or the plan, and which of two faults was named. */
function endShape(pairs: [string, string][], timeout = ""): [string, string][] {
  const fields = Object.fromEntries(pairs);
  const text = decodeURIComponent(fields["grpc-message"] ?? "");
  const status = fields["grpc-status"];
  if (SHORT.has(timeout) && status !== undefined && !FAULTS.has(status)) return [["refused", "in no time"]];
  if (fields["grpc-status"] === "4")
    return pairs.map(([name, value]) => [name, name === "grpc-message" ? "late" : value]);
  if (!MALFORMED.test(text)) return pairs;
  return pairs.map(([name, value]) => [name, /^grpc-(?:message|status)$/.test(name) ? "malformed" : value]);
}

function messagesShape(bytes: Buffer): Shape {
  const messages: Shape[] = [];
  for (let at = 0; at + 5 <= bytes.length; ) {
    const length = bytes.readUInt32BE(at + 1);
    const message = bytes.subarray(at + 5, at + 5 + length);
    try {
      messages.push(shapeOf(toJson(ActResponseSchema, fromBinary(ActResponseSchema, message))));
    } catch {
      messages.push(`${length} bytes`);
    }
    at += 5 + length;
  }
  return messages;
}

/** Chances for one of several; the first is the sound one, and the likeliest. */
function mostly<T>({ roll, pick }: AttackContext, of: readonly T[]): T {
  return roll(3) > 0 ? of[0]! : pick(of);
}

const ACT_JSON = actJson(BAD_ASK);
const ACT_FRAME = actFrame(BAD_ASK);

const LINES = [
  "POST /v1/act HTTP/1.1",
  "POST /v1/act?x=1 HTTP/1.1",
  "POST /v1/act/ HTTP/1.1",
  "POST //v1/act HTTP/1.1",
  "POST /v1/%61ct HTTP/1.1",
  "POST /v1/Act HTTP/1.1",
  "POST /v1/ground HTTP/1.1",
  "POST /v1/predict HTTP/1.1",
  "POST /v1/routes/preview HTTP/1.1",
  "POST /v1/batch HTTP/1.1",
  "POST /v1/nothing HTTP/1.1",
  "POST http://localhost/v1/act HTTP/1.1",
  "POST * HTTP/1.1",
  "PUT /v1/act HTTP/1.1",
  "GET /v1/act HTTP/1.1",
  "post /v1/act HTTP/1.1",
  "POST /v1/act HTTP/1.0",
  "POST /v1/act HTTP/1.2",
  "POST  /v1/act HTTP/1.1",
  "POST /v1/act\t HTTP/1.1",
  "POST /v1/act#x HTTP/1.1",
  "POST /limber.v1.InferenceService/Act HTTP/1.1",
];
const HOSTS = [
  "Host: localhost",
  "",
  "Host:",
  "Host: a b",
  "host: localhost:80",
  "Host: localhost\r\nHost: localhost",
  "Host: [::1]",
  "Host: a/b",
  "Host : localhost",
];
const KEYS = [
  "Authorization: Bearer <key>",
  "",
  "Authorization: Bearer lmb_sk_nobody",
  "Authorization: <key>",
  "authorization:Bearer <key>  ",
  "Authorization: bearer <key>",
  "Authorization: Bearer <key>\r\nAuthorization: Bearer <key>",
  "Authorization: Bearer \xff",
  "Authorization: Basic eDp5",
  "X-API-Key: <key>",
];
const TYPES = [
  "Content-Type: application/json",
  "",
  "Content-Type: application/json; charset=utf-8",
  "Content-Type: text/plain",
  "content-type: APPLICATION/JSON",
  "Content-Type:",
  "Content-Type: application/proto",
  "Content-Type: application/json\r\nContent-Type: application/json",
  "Content-Type: application/json; charset=latin1",
  "Content-Type: application/connect+json",
];
const OTHERS = [
  "",
  "Connection: keep-alive",
  "Connection: close",
  "Connection: Keep-Alive, x",
  "Accept: text/event-stream",
  "Accept-Encoding: gzip",
  "Content-Encoding: gzip",
  "Content-Encoding: identity",
  "Expect: 100-continue",
  "Expect: x",
  "Upgrade: h2c",
  "X: \xe4",
  "X: a\0b",
  "X",
  ": x",
  "X y: z",
  " folded",
  "X:\ty",
  "Trailer: x",
  `X: ${"y".repeat(9_000)}`,
  `X: ${"y".repeat(20_000)}`,
  "Cookie: a=b",
  "X-Request-Id: mine",
  "Idempotency-Key: \x7f",
  "Idempotency-Key: ",
  "traceparent: 00-x",
  "Deadline-Ms: 5",
  "X-Service-Admin-Token: wrong-wrong-wrong",
  "TE: trailers",
];
const BODIES = [
  ACT_JSON,
  "",
  "{}",
  "null",
  "[]",
  "{",
  ACT_JSON.slice(0, -1),
  `${ACT_JSON} `,
  `${ACT_JSON}x`,
  `\ufeff${ACT_JSON}`,
  `${ACT_JSON.slice(0, -1)},"x":1}`,
  `${ACT_JSON.slice(0, -1)},"model":"a/b"}`,
  ACT_JSON.replace("0.1", "1e999"),
  ACT_JSON.replace("0.1", '"0.1"'),
  ACT_JSON.replace("0.1", "01"),
  ACT_JSON.replace("0.1", "-0.0"),
  ACT_JSON.replace("0.1", "null"),
  ACT_JSON.replace(BAD_ASK.model, "reference/nobody"),
  ACT_JSON.replace(BAD_ASK.model, "\\ud800"),
  ACT_JSON.replace(BAD_ASK.model, "a\\u0000b"),
  ACT_JSON.replace(BAD_ASK.model, "\xff"),
  ACT_JSON.replace("continuous_nd", "joint_pos_7"),
  ACT_JSON.replace('"horizon":4', '"horizon":0'),
  ACT_JSON.replace('"horizon":4', '"horizon":4.0'),
  ACT_JSON.replace('"horizon":4', '"horizon":4e0'),
  ACT_JSON.replace('"horizon":4', '"horizon":"4"'),
  ACT_JSON.replace('"horizon":4', '"horizon":-1'),
  ACT_JSON.replace('"horizon":4', '"horizon":4294967296'),
  ACT_JSON.replace("{", '{"stream":true,'),
  ACT_JSON.replace("{", '{"stream":null,'),
  ACT_JSON.replace("{", '{"metadata":{"a":{"b":[1,2]}},'),
  ACT_JSON.replace("{", '{"provider":{"deadline_ms":5000},'),
  ACT_JSON.replace("{", '{"provider":{"deadline_ms":0},'),
  ACT_JSON.replace("{", '{"provider":{"only":["nobody"]},'),
  ACT_JSON.replace("{", '{"__proto__":{},'),
  ACT_JSON.replace("{", '{"actionSpace":"continuous_nd",'),
  ACT_JSON.replace('"proprio":[', '"proprio":[[],'),
  ACT_JSON.replace("[{", "[".repeat(200)),
];

/** How the length of a body is told, by the body that follows. */
const FRAMINGS: readonly ((body: string) => string)[] = [
  (body) => `Content-Length: ${body.length}\r\n\r\n${body}`,
  (body) => `content-length:${body.length}\r\n\r\n${body}`,
  (body) => `Content-Length: 0${body.length}\r\n\r\n${body}`,
  (body) => `Content-Length: +${body.length}\r\n\r\n${body}`,
  (body) => `Content-Length: ${body.length}, ${body.length}\r\n\r\n${body}`,
  (body) => `Content-Length: ${body.length}\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  (body) => `Content-Length: ${body.length - 1}\r\n\r\n${body}`,
  (body) => `Content-Length: ${body.length + 9}\r\n\r\n${body}`,
  (body) => `Content-Length: -1\r\n\r\n${body}`,
  (body) => `Content-Length: 99999999999999999999\r\n\r\n${body}`,
  (body) => `Content-Length: 40000000\r\n\r\n${body}`,
  (body) => `Content-Length: 0x2\r\n\r\n${body}`,
  (body) => `\r\n${body}`,
  (body) => `Transfer-Encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`,
  (body) => `Transfer-Encoding: chunked\r\n\r\n${body.length.toString(16)};a=b\r\n${body}\r\n0\r\nX: y\r\n\r\n`,
  (body) => `Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n${body}`,
  (body) => `Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n${body}`,
  (body) => `Content-Length: ${body.length}\n\n${body}`,
];

function http1Case(context: AttackContext): Case {
  const { roll } = context;
  const one = (): string => {
    const headers = [HOSTS, KEYS, TYPES]
      .map((of) => mostly(context, of))
      .concat(roll(2) === 0 ? [mostly(context, OTHERS)] : [context.pick(OTHERS)]);
    if (roll(8) === 0) headers.reverse();
    const lines = [mostly(context, LINES), ...headers.filter((line) => line !== "")];
    return `${lines.join("\r\n")}\r\n${mostly(context, FRAMINGS)(mostly(context, BODIES))}`;
  };
  const text = Array.from({ length: 1 + (roll(4) === 0 ? roll(3) : 0) }, one).join("");
  return { note: "", kind: "http1", text, ...(roll(3) === 0 && { splitAt: roll(text.length) }) };
}

const b64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");
const GRPC_BODIES: readonly Buffer[] = [
  ACT_FRAME,
  Buffer.alloc(0),
  ACT_FRAME.subarray(0, -1),
  ACT_FRAME.subarray(0, 3),
  Buffer.concat([ACT_FRAME, ACT_FRAME]),
  Buffer.concat([ACT_FRAME, Buffer.of(0)]),
  frameMessage(Buffer.alloc(0)),
  frameMessage(Buffer.from([0x08, 0x01])),
  frameMessage(Buffer.from([0x0a, 0xff])),
  frameMessage(Buffer.from([0x0a, 0x01, 0xff])),
  frameMessage(Buffer.from([0x12, 0x00, 0x12, 0x00])),
  frameMessage(Buffer.from([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01])),
  frameMessage(Buffer.concat([ACT_FRAME.subarray(5), Buffer.from([0xfa, 0x3f, 0x01, 0x00])])),
  frameMessage(Buffer.concat([ACT_FRAME.subarray(5), Buffer.from([0x70, 0x00])])),
  frameMessage(Buffer.concat([ACT_FRAME.subarray(5), Buffer.from([0x70, 0x81, 0x80, 0x80, 0x80, 0x10])])),
  frameMessage(Buffer.concat([ACT_FRAME.subarray(5), Buffer.from([0x0b, 0x0c])])),
  frameMessage(gzipSync(ACT_FRAME.subarray(5)), true),
  frameMessage(ACT_FRAME.subarray(5), true),
  Buffer.concat([Buffer.of(2), ACT_FRAME.subarray(1)]),
  Buffer.concat([Buffer.from([0, 0xff, 0xff, 0xff, 0xff]), ACT_FRAME.subarray(5)]),
  Buffer.concat([Buffer.from([0, 5, 0, 0, 0]), ACT_FRAME.subarray(5)]),
];
const GRPC_FIELDS: Readonly<Record<string, readonly (string | undefined)[]>> = {
  ":path": [
    "/limber.v1.InferenceService/Act",
    "/limber.v1.InferenceService/Predict",
    "/limber.v1.InferenceService/PredictStream",
    "/limber.v1.InferenceService/ActStream",
    "/limber.v1.InferenceService/Act?x=1",
    "/limber.v1.InferenceService/act",
    "/limber.v1.InferenceService/Act/",
  ],
  ":method": ["POST", "GET", "PUT"],
  "content-type": [
    "application/grpc",
    "application/grpc+proto",
    "application/grpc+json",
    "application/grpc;x=y",
    "APPLICATION/GRPC",
    undefined,
    "application/grpc-web",
    "application/json",
    "application/grpc+unknown",
  ],
  te: ["trailers", undefined],
  authorization: ["Bearer <key>", undefined, "Bearer lmb_sk_nobody", "<key>", "bearer <key>", "Bearer  <key>"],
  "grpc-timeout": [undefined, "10S", "1n", "0S", "99999999H", "100000000S", "x", "-1S", "5", "1u"],
  "grpc-encoding": [undefined, "identity", "gzip", "br", "deflate", "unknown", ""],
  "grpc-accept-encoding": [undefined, "gzip", "identity", "br,gzip", "x", ""],
  "idempotency-key": [undefined, "", " ", "\u00e4"],
  "x-service-admin-token": [undefined, "wrong-wrong-wrong-wrong"],
  "x-a-bin": [undefined, "%%", "AAAA"],
  host: [undefined, "elsewhere"],
};

function grpcCase(context: AttackContext): Case {
  const { roll } = context;
  const headers: Record<string, string> = {};
  for (const [name, values] of Object.entries(GRPC_FIELDS)) {
    const value = roll(3) > 0 ? mostly(context, values) : values[0];
    if (value !== undefined) headers[name] = value;
  }
  // Of two things that are wrong with a head either may be named.
  if (headers["grpc-encoding"] !== undefined || headers["grpc-timeout"] !== undefined)
    delete headers["idempotency-key"];
  const whole = roll(4) === 0 ? context.pick(GRPC_BODIES) : mostly(context, GRPC_BODIES);
  // Of another length is not compared: Node ends the whole connection then, the fast layer that call alone.
  if (roll(3) === 0) headers["content-length"] = String(whole.length);
  const cut = roll(whole.length + 1);
  const body = roll(3) === 0 ? [whole.subarray(0, cut), whole.subarray(cut)] : [whole];
  return { note: "", kind: "grpc", headers, body: body.map(b64), ...(roll(12) === 0 && { open: true }) };
}

/** What once told the two gateways apart, or did harm. */
export function corpus(): Case[] {
  const folder = new URL("corpus/", import.meta.url);
  return readdirSync(folder)
    .filter((name) => name.endsWith(".json"))
    .sort()
    .map((name) => JSON.parse(readFileSync(new URL(name, folder), "utf8")) as Case);
}

const COUNT = { short: 250, whole: 3_000 } as const;
const WIDTH = 12;
const TIMES = 3;

/** More of a case is told by its seed. */
const MOST_TOLD = 1_200;

/** Where two answers part. */
function apart(fast: string, plain: string): string {
  let at = 0;
  while (at < fast.length && fast[at] === plain[at]) at++;
  const from = Math.max(0, at - 100);
  return `the fast one answered …${fast.slice(from, at + 200)}, the plain one …${plain.slice(from, at + 200)}`;
}

/** The two gateways side by side: the one that is attacked, and one of the same kind without its hand-written paths. */
export function differAttacks(plainOf: () => Promise<Target>): Attack[] {
  const compare = async (context: AttackContext, cases: readonly Case[]): Promise<void> => {
    const { target } = context;
    const plain = await plainOf();
    const sessions = [target, plain].map((of) => new Sessions(of));
    const pulses = [target, plain].map((of) => new Pulse(of));
    const ask = async (each: Case): Promise<readonly string[]> => {
      const answers =
        each.kind === "http1"
          ? [
              overHttp1(target, pulses[0]!, each.text, false, each.splitAt),
              overHttp1(plain, pulses[1]!, each.text, true, each.splitAt),
            ]
          : [target, plain].map((of, i) => overGrpc(sessions[i]!.current(), of, each));
      return (await Promise.all(answers)).map((answer) => JSON.stringify(answer));
    };
    const different: string[] = [];
    await spread(context, cases, WIDTH, async (each) => {
      context.count("compared");
      let answers: readonly string[] = [];
      // What differs by chance doesn't differ each time.
      for (let time = 0; time < TIMES; time++) {
        answers = await ask(each);
        if (answers[0] === answers[1] || context.isOver()) return;
        // When a request is answered that never ends is left to each.
        if (each.kind === "grpc" && each.open && answers.some((answer) => answer.includes('"told":[]'))) return;
      }
      different.push(`${JSON.stringify(each).slice(0, MOST_TOLD)}: ${apart(answers[0]!, answers[1]!)}`);
    });
    // Of a gateway that has died nothing can be compared.
    await context.target.vitals(false).catch(() => undefined);
    if (!context.isOver()) for (const each of different) context.find(each);
    for (const session of sessions) session.end();
    await Promise.all(pulses.map((pulse) => pulse.stop()));
  };
  const made = (context: AttackContext, make: (context: AttackContext) => Case): Case[] =>
    Array.from({ length: context.whole ? COUNT.whole : COUNT.short }, () => make(context));
  return [
    { name: "fast against plain: the corpus", run: (context) => compare(context, corpus()) },
    { name: "fast against plain: HTTP/1.1", run: (context) => compare(context, made(context, http1Case)) },
    { name: "fast against plain: gRPC", run: (context) => compare(context, made(context, grpcCase)) },
  ];
}
