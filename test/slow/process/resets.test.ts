/** Connections that are cut at every byte of what they say: an error of one connection ends that one, and never the process. */
import { connect } from "node:net";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, callRest } from "../../support/app.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { type Gateway, startGateway, stillRunning } from "../../support/gateway.ts";
import { FLAG, FRAME, fieldBlock, frame, HELLO } from "../../support/wire-client.ts";

let database: FreshDatabase;
let gateway: Gateway | undefined;
let port: number;
let key: string;

beforeAll(async () => {
  database = await freshDatabase();
});

// A gateway that one attack ended is no fault of the next.
beforeEach(async () => {
  if (gateway !== undefined && stillRunning([gateway.pid]).length > 0) return;
  gateway = await startGateway({
    LOG_LEVEL: "error",
    DATABASE_URL: database.url,
    SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
    LIMBER_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
    LIMBER_REFERENCE_SUPPLY: "false",
  });
  port = Number(new URL(gateway.url).port);
  const org = await callRest(gateway.url, "/v1/orgs", { name: "test" }, { admin: ADMIN_TOKEN });
  const rate_limit = { requests: 1_000_000, window_s: 1, burst: 1_000_000, concurrency: 10_000 };
  const made = await callRest(gateway.url, `/v1/orgs/${org.body.id}/keys`, { rate_limit }, { admin: ADMIN_TOKEN });
  key = made.body.key;
});

afterAll(async () => {
  await gateway?.end("SIGKILL");
  await database?.close();
});

/** Fails when the gateway is gone, or when an error had no owner. */
async function expectUnharmed(): Promise<void> {
  expect(gateway?.stderr()).toBe("");
  const { text } = await callRest(gateway?.url ?? "", "/metrics", undefined, { admin: ADMIN_TOKEN });
  expect(text).toMatch(/^limber_unhandled_errors_total 0$/m);
}

/** When a connection is cut: in the turn that sent, a turn later, or when the first byte of an answer is here. */
type Cut = "at once" | "a turn later" | "at the answer";

/** Connects, sends, and resets. */
function sendAndReset(bytes: Buffer, cut: Cut): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    const reset = (): void => void socket.resetAndDestroy();
    socket.setNoDelay();
    socket.on("error", () => undefined).once("close", () => resolve());
    socket.once("connect", () => {
      socket.write(bytes, () => {
        if (cut === "at once") reset();
        else if (cut === "a turn later") setImmediate(() => setImmediate(reset));
      });
      if (cut === "at the answer") socket.once("data", reset).once("end", reset);
    });
  });
}

const AT_ONCE = 32;

/** Runs every piece of work, some at a time. */
async function all(works: readonly (() => Promise<void>)[]): Promise<void> {
  const rest = works.values();
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      for (const work of rest) await work();
    }),
  );
}

const http1 = (line: string, headers: readonly string[], body: string | Buffer = ""): Buffer => {
  const length = line.startsWith("POST") ? [`Content-Length: ${Buffer.byteLength(body)}`] : [];
  return Buffer.concat([
    Buffer.from([`${line} HTTP/1.1`, "Host: a", ...headers, ...length, "", ""].join("\r\n")),
    Buffer.from(body),
  ]);
};
const JSON_TYPE = "Content-Type: application/json";
const envelope = (text: string): Buffer => {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(text.length, 1);
  return Buffer.concat([head, Buffer.from(text)]);
};
const act = (): Buffer => http1("POST /v1/act", [JSON_TYPE], "{}");
const connectAct = (): Buffer => http1("POST /limber.v1.InferenceService/Act", [JSON_TYPE], "{}");
const connectStream = (): Buffer =>
  http1("POST /limber.v1.InferenceService/PredictStream", ["Content-Type: application/connect+json"], envelope("{}"));
const list = (): Buffer => http1("GET /v1/models?limit=1", []);
const chunked = (): Buffer =>
  Buffer.from(
    `POST /v1/act HTTP/1.1\r\nHost: a\r\n${JSON_TYPE}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
  );
const upgrade = (): Buffer =>
  http1("GET /v1/openpi/o/n", [
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    `Authorization: Bearer ${key}`,
  ]);
const socketFrame = Buffer.from([0x82, 0x81, 0, 0, 0, 0, 0xc0]);
const keyed = (bytes: Buffer): Buffer =>
  Buffer.from(bytes.toString("latin1").replace("Host: a\r\n", `Host: a\r\nAuthorization: Bearer ${key}\r\n`), "latin1");
const twice = (bytes: Buffer): Buffer => Buffer.concat([bytes, bytes]);
const call = (stream: number, path: string, type: string, more: Record<string, string> = {}): Buffer => {
  const pseudo = { ":method": "POST", ":scheme": "http", ":path": path, ":authority": "a" };
  return Buffer.concat([
    frame(FRAME.headers, FLAG.endHeaders, stream, fieldBlock({ ...pseudo, "content-type": type, ...more })),
    frame(FRAME.data, FLAG.endStream, stream, type.endsWith("json") ? Buffer.from("{}") : envelope("")),
  ]);
};
const authorization = (): Record<string, string> => ({ authorization: `Bearer ${key}` });
const grpc = (stream: number, more = {}): Buffer =>
  call(stream, "/limber.v1.InferenceService/Act", "application/grpc", { te: "trailers", ...more });

const SERVICE = "/limber.v1.InferenceService";
const SPOKEN: readonly [string, string][] = [
  [`${SERVICE}/Act`, "application/grpc"],
  [`${SERVICE}/ActStream`, "application/grpc"],
  [`${SERVICE}/PredictStream`, "application/grpc"],
  [`${SERVICE}/Ground`, "application/grpc"],
  [`${SERVICE}/Act`, "application/json"],
  [`${SERVICE}/ActStream`, "application/connect+proto"],
  [`${SERVICE}/PredictStream`, "application/connect+proto"],
  [`${SERVICE}/PredictStream`, "application/grpc-web"],
  ["/v1/act", "application/json"],
  ["/v1/predict/stream", "application/json"],
];
const RESET = Buffer.from([0, 0, 0, 8]);

/** Calls of every form on one connection: each is reset behind its head, in its body, and behind its end. */
function streamResets(more: Record<string, string>): Buffer {
  const parts = [HELLO, frame(FRAME.settings, FLAG.ack, 0)];
  let stream = 1;
  for (const [path, type] of SPOKEN)
    for (const cut of [1, 2, 3]) {
      const pseudo = { ":method": "POST", ":scheme": "http", ":path": path, ":authority": "a" };
      const fields = fieldBlock({ ...pseudo, "content-type": type, te: "trailers", ...more });
      parts.push(frame(FRAME.headers, FLAG.endHeaders, stream, fields));
      const body = type.endsWith("/json") ? Buffer.from("{}") : envelope("");
      if (cut === 2) parts.push(frame(FRAME.data, 0, stream, body.subarray(0, 1)));
      if (cut === 3) parts.push(frame(FRAME.data, FLAG.endStream, stream, body));
      parts.push(frame(FRAME.reset, 0, stream, RESET));
      stream += 2;
    }
  return Buffer.concat(parts);
}

describe("a gateway survives connections that are reset at every byte of", () => {
  it.each<[string, () => Buffer]>([
    ["an act over REST", act],
    ["an act over REST, pipelined", () => twice(act())],
    ["an act over REST, with a key, pipelined", () => twice(keyed(act()))],
    ["an act over REST, then a list", () => Buffer.concat([act(), list(), act()])],
    ["a list over REST", list],
    ["a chunked body, pipelined", () => twice(chunked())],
    ["a chunked body, with a key", () => keyed(chunked())],
    ["Connect over HTTP/1.1", connectAct],
    ["Connect over HTTP/1.1, pipelined", () => twice(connectAct())],
    ["Connect over HTTP/1.1, with a key, pipelined", () => twice(keyed(connectAct()))],
    ["a stream of Connect over HTTP/1.1, pipelined", () => twice(connectStream())],
    ["a stream of Connect over HTTP/1.1, with a key, pipelined", () => twice(keyed(connectStream()))],
    ["gRPC over HTTP/2", () => Buffer.concat([HELLO, grpc(1), grpc(3)])],
    ["gRPC over HTTP/2, with a key", () => Buffer.concat([HELLO, grpc(1, authorization())])],
    [
      "Connect over HTTP/2",
      () => Buffer.concat([HELLO, call(1, "/limber.v1.InferenceService/Act", "application/json")]),
    ],
    ["REST over HTTP/2", () => Buffer.concat([HELLO, call(1, "/v1/act", "application/json", authorization())])],
    ["WebSocket", () => Buffer.concat([upgrade(), socketFrame, socketFrame])],
    ["streams of HTTP/2 that are reset behind each part of a call", () => streamResets({})],
    ["streams of HTTP/2 that are reset behind each part of a call with a key", () => streamResets(authorization())],
  ])("%s", async (_name, make) => {
    const bytes = make();
    const works: (() => Promise<void>)[] = [];
    for (const cut of ["at once", "a turn later"] as const)
      for (let at = 1; at <= bytes.length; at += bytes.length > 1_000 ? 41 : 1)
        works.push(() => sendAndReset(bytes.subarray(0, at), cut));
    for (let i = 0; i < 100; i++) works.push(() => sendAndReset(bytes, "at the answer"));
    await all(works);
    await expectUnharmed();
  });

  // The end of an answer is written, and the connection reset, in one moment: many tries meet it.
  it.each<[string, () => Buffer]>([
    ["an act over REST", act],
    [
      "Connect over HTTP/1.1, its second request cut after a byte",
      () => twice(connectAct()).subarray(0, 1 + connectAct().length),
    ],
  ])("%s, a thousand times", async (_name, make) => {
    const bytes = make();
    await all(
      Array.from({ length: 1_000 }, (_, i) => () => sendAndReset(bytes, i % 2 === 0 ? "at once" : "a turn later")),
    );
    await expectUnharmed();
  });
});
