/** The Connect and gRPC-Web faces: the same road as REST and gRPC, for clients of three protocols on both HTTPs. */
import { once } from "node:events";
import * as http from "node:http";
import * as http2 from "node:http2";
import { type AddressInfo, connect } from "node:net";
import { gzipSync } from "node:zlib";
import { create, type Message, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import fc from "fast-check";
import Fastify from "fastify";
import { afterEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import {
  type ActRequest as PolicyActRequest,
  ActResponseSchema as PolicyActResponseSchema,
  PolicyService,
} from "../../gen/limber/policy/v1/policy_service_pb.ts";
import { ErrorDetailsSchema } from "../../gen/limber/v1/error_pb.ts";
import {
  type ActRequest,
  ActRequestSchema,
  ActResponseSchema,
  InferenceService,
  PredictStreamResponseSchema,
  PreviewRoutesResponseSchema,
} from "../../gen/limber/v1/inference_service_pb.ts";
import { serveConnect } from "../../src/edge/connect.ts";
import type { CallContext, Gate } from "../../src/edge/gate.ts";
import type { LogLine } from "../../src/edge/log.ts";
import { onePort, type PortHandler } from "../../src/edge/port.ts";
import { Reason, refuse } from "../../src/refusal.ts";
import type { Listener, Speaker } from "../../src/services/call.ts";
import type { Signal } from "../../src/signal.ts";
import { type House, type HouseOptions, KEY, message, openHouse } from "./house.ts";

const houses: House[] = [];

afterEach(async () => {
  for (const house of houses.splice(0)) await house[Symbol.asyncDispose]();
  vi.restoreAllMocks();
});

async function open(rpcs: HouseOptions["rpcs"] = {}): Promise<House> {
  const house = await openHouse({ rpcs });
  houses.push(house);
  return house;
}

const AUTH = { authorization: `Bearer ${KEY}` };
const SOUND = { model: "o/n", observations: [{ proprio: [1] }] };
const ACT = "/limber.v1.InferenceService/Act";
const CHUNK = message(ActResponseSchema, { id: "act_1", validUntilMs: 5, action: { steps: [{ values: [1] }] } });
const frame = (index: number) => message(PredictStreamResponseSchema, { event: { case: "frame", value: { index } } });

async function until(check: () => boolean): Promise<void> {
  while (!check()) await new Promise((resolve) => setImmediate(resolve));
}

const TRANSPORTS: readonly (readonly [string, (baseUrl: string) => Transport])[] = [
  ["Connect over HTTP/1.1", (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "1.1" })],
  ["Connect over HTTP/2", (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "2" })],
  ["Connect in JSON", (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "1.1", useBinaryFormat: false })],
  ["Connect by GET", (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "1.1", useHttpGet: true })],
  ["gRPC", (baseUrl) => createGrpcTransport({ baseUrl })],
  ["gRPC-Web over HTTP/1.1", (baseUrl) => createGrpcWebTransport({ baseUrl, httpVersion: "1.1" })],
  [
    "gRPC-Web in JSON over HTTP/2",
    (baseUrl) => createGrpcWebTransport({ baseUrl, httpVersion: "2", useBinaryFormat: false }),
  ],
];

describe.each(TRANSPORTS)("%s", (name, transport) => {
  const clientOf = (house: House) => createClient(InferenceService, transport(house.base));
  const face = name.startsWith("Connect") ? "connect" : name.startsWith("gRPC-Web") ? "grpc-web" : "grpc";

  it("answers calls, with the request's id and what the limits leave", async () => {
    const house = await open({
      Act: () => CHUNK,
      PreviewRoutes: () => message(PreviewRoutesResponseSchema, { considered: 3 }),
    });
    let head = new Headers();
    const answer = await clientOf(house).act(SOUND, { headers: AUTH, onHeader: (headers) => (head = headers) });
    expect(answer).toEqual(CHUNK);
    expect(head.get("x-request-id")).toMatch(/^req_/);
    expect(head.get("x-api-version")).toBe("0.1.0");
    expect(head.get("ratelimit")).toBe('"key";r=5;t=1');
    const preview = await clientOf(house).previewRoutes({ request: { model: "m" } }, { headers: AUTH });
    expect(preview.considered).toBe(3);
    await until(() => house.lines.length === 2);
    expect(house.lines).toMatchObject([{ face, status: 200, keyId: "key_1" }, { face }]);
    expect(house.inside()).toBe(0);
  });

  it("hands on deadline and idempotency key", async () => {
    let seen: CallContext | undefined;
    const house = await open({
      Act: (_, context) => {
        seen = context;
        return CHUNK;
      },
    });
    await clientOf(house).act(SOUND, { headers: { ...AUTH, "idempotency-key": "k" }, timeoutMs: 10_000 });
    expect(seen?.idempotencyKey).toBe("k");
    expect(seen?.deadline).toBeGreaterThan(performance.now());
    expect(seen?.deadline).toBeLessThan(performance.now() + 10_001);
  });

  it("gives a refusal the same reason as REST, with details", async () => {
    const house = await open({
      Act: () => {
        throw refuse(Reason.RATE_LIMIT_EXCEEDED, "später", { near: ["x"] }, { retryAfter: 2 });
      },
    });
    const error = ConnectError.from(
      await clientOf(house)
        .act(SOUND, { headers: AUTH })
        .catch((thrown) => thrown),
    );
    expect([error.code, error.rawMessage]).toEqual([Code.ResourceExhausted, "später"]);
    expect(error.findDetails(ErrorInfoSchema)).toMatchObject([{ reason: "rate_limit_exceeded", domain: "limber.dev" }]);
    expect(error.findDetails(RetryInfoSchema)).toMatchObject([{ retryDelay: { seconds: 2n } }]);
    expect(error.findDetails(ErrorDetailsSchema)).toMatchObject([{ near: ["x"] }]);
    expect(error.metadata.get("retry-after")).toBe("2");
    expect(error.metadata.get("x-request-id")).toBe(error.findDetails(ErrorInfoSchema)[0]?.metadata.request_id);
    await until(() => house.lines.length === 1);
    expect(house.lines).toMatchObject([{ status: 429, code: "rate_limit_exceeded" }]);
  });

  it("says who may not call, lists every broken rule, and masks bugs", async () => {
    const house = await open({
      Act: () => {
        throw new ConnectError("a provider's own words", Code.Unavailable);
      },
    });
    const client = clientOf(house);
    const errorOf = async (call: Promise<unknown>) => ConnectError.from(await call.catch((thrown) => thrown));
    expect(await errorOf(client.act(SOUND))).toMatchObject({ code: Code.Unauthenticated });
    const invalid = await errorOf(client.act({ horizon: 257 }, { headers: AUTH }));
    expect(invalid.code).toBe(Code.InvalidArgument);
    expect(
      invalid
        .findDetails(BadRequestSchema)[0]
        ?.fieldViolations.map(({ field }) => field)
        .sort(),
    ).toEqual(["horizon", "model", "observations"]);
    const streamed = await errorOf(client.act({ ...SOUND, stream: true }, { headers: AUTH }));
    expect(streamed.findDetails(ErrorInfoSchema)).toMatchObject([{ reason: "stream_unsupported" }]);
    const bug = await errorOf(client.act(SOUND, { headers: AUTH }));
    expect([bug.code, bug.rawMessage.includes("provider")]).toEqual([Code.Internal, false]);
    await until(() => house.lines.length === 4);
    expect(house.lines[3]).toMatchObject({ status: 500, cause: { rawMessage: "a provider's own words" } });
    expect(house.inside()).toBe(0);
  });

  it("streams, and tells what went wrong at the end", async () => {
    const house = await open({
      PredictStream: async function* () {
        yield* [frame(0), frame(1)];
        throw refuse(Reason.ALL_ATTEMPTS_FAILED, "it broke");
      },
    });
    const frames: number[] = [];
    const error = await (async () => {
      for await (const { event } of clientOf(house).predictStream({ predict: SOUND }, { headers: AUTH })) {
        if (event.case === "frame") frames.push(event.value.index);
      }
      return undefined;
    })().catch(ConnectError.from);
    expect(frames).toEqual([0, 1]);
    expect(error).toMatchObject({ code: Code.Unavailable });
    expect(error?.findDetails(ErrorInfoSchema)).toMatchObject([{ reason: "all_attempts_failed" }]);
    const keyed = { headers: { ...AUTH, "idempotency-key": "k" } };
    const stream = clientOf(house).predictStream({ predict: SOUND }, keyed)[Symbol.asyncIterator]();
    const refused = ConnectError.from(await stream.next().catch((thrown) => thrown));
    expect(refused.findDetails(ErrorInfoSchema)).toMatchObject([{ reason: "idempotency_unsupported" }]);
  });

  it("calls a call off when the caller leaves", async () => {
    const reasons: unknown[] = [];
    const house = await open({ Act: (_: ActRequest, { signal }: CallContext) => untilAborted(signal, reasons) });
    const caller = new AbortController();
    const left = clientOf(house).act(SOUND, { headers: AUTH, signal: caller.signal }).catch(ConnectError.from);
    await until(() => house.inside() === 1);
    caller.abort();
    await left;
    await until(() => house.inside() === 0);
    // A call that was let in and not yet begun has nothing to call off.
    for (const reason of reasons) expect(reason).toMatchObject({ reason: Reason.CLIENT_CLOSED_REQUEST });
    await until(() => house.lines.length === 1);
    expect(house.lines).toMatchObject([{ code: "client_closed_request" }]);
  });
});

/** Works on a call until it is called off, and notes why. */
function untilAborted(signal: Signal, reasons: unknown[]): Promise<never> {
  return new Promise((_, reject) =>
    signal.addEventListener("abort", () => {
      reasons.push(signal.reason);
      reject(new Error("aborted"));
    }),
  );
}

describe("Connect in JSON", () => {
  const post = (house: House, body: string | Uint8Array, headers: Record<string, string> = {}) =>
    fetch(house.base + ACT, {
      method: "POST",
      headers: { ...AUTH, "content-type": "application/json", ...headers },
      body: body as string,
    });

  it("is canonical, and takes the schema's own names too", async () => {
    let seen: ActRequest | undefined;
    const house = await open({
      Act: (request) => {
        seen = request;
        return CHUNK;
      },
    });
    const response = await post(house, '{"model":"m","observations":[{}],"action_space":"a","returnPrediction":true}');
    expect(await response.json()).toMatchObject({ validUntilMs: 5, action: { steps: [{ values: [1] }] } });
    expect(seen).toMatchObject({ actionSpace: "a", returnPrediction: true });
  });

  it.each([
    ["an unknown field", '{"model":"m","horizn":1}'],
    ["no JSON", "{"],
    ["deep nesting", "[".repeat(100_000)],
    ["a free-form value that nests too deep", `{"metadata":{"a":${"[".repeat(5000)}${"]".repeat(5000)}}}`],
    ["a number beyond its type", '{"horizon":-1}'],
  ])("blames the caller for %s", async (_, body) => {
    const house = await open({ Act: () => CHUNK });
    const response = await post(house, body);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({
      code: "invalid_argument",
      details: [{ type: "google.rpc.ErrorInfo" }],
    });
    expect(house.lines).toMatchObject([{ code: "malformed_body" }]);
    expect(house.inside()).toBe(0);
  });

  it("refuses who may not call before the body is read, with the headers of HTTP", async () => {
    const house = await open();
    const socket = connect(house.port, "127.0.0.1");
    socket.write(`POST ${ACT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n`);
    const [chunk] = await once(socket, "data");
    socket.destroy();
    expect(String(chunk)).toMatch(/^HTTP\/1\.1 401 /);
    expect(String(chunk).toLowerCase()).toContain("www-authenticate: bearer");
    expect(String(chunk)).toContain('"unauthenticated"');
  });

  it("ends a call whose time is over, and calls it off", async () => {
    const reasons: unknown[] = [];
    const house = await open({ Act: (_: ActRequest, { signal }: CallContext) => untilAborted(signal, reasons) });
    const response = await post(house, JSON.stringify(SOUND), { "connect-timeout-ms": "20" });
    expect(await response.json()).toMatchObject({
      code: "deadline_exceeded",
      details: [{ debug: { reason: "deadline_exceeded" } }],
    });
    expect(reasons).toMatchObject([{ reason: Reason.DEADLINE_EXCEEDED }]);
    expect(house.inside()).toBe(0);
  });

  it("takes a timeout that no timer can hold for none", async () => {
    const house = await open({ Act: () => new Promise((resolve) => setTimeout(resolve, 20, CHUNK)) });
    expect((await post(house, JSON.stringify(SOUND), { "connect-timeout-ms": "9999999999" })).status).toBe(200);
    expect((await post(house, JSON.stringify(SOUND), { "connect-timeout-ms": "soon" })).status).toBe(400);
  });

  it("compresses nothing that a control loop waits for", async () => {
    const action = { steps: Array.from({ length: 256 }, () => ({ values: Array.from({ length: 29 }, () => 1) })) };
    const house = await open({ Act: () => message(ActResponseSchema, { action }) });
    const response = await post(house, JSON.stringify(SOUND), { "accept-encoding": "gzip" });
    expect(response.headers.get("content-encoding")).toBeNull();
  });

  it("refuses bodies beyond 64 MiB, announced or unpacked", async () => {
    const house = await open();
    const bomb = gzipSync(Buffer.alloc((64 << 20) + 1));
    expect((await post(house, bomb, { "content-encoding": "gzip" })).status).toBe(429);
    const request = http.request(house.base + ACT, {
      method: "POST",
      headers: { ...AUTH, "content-type": "application/json", "content-length": (64 << 20) + 1 },
    });
    request.on("error", () => undefined);
    request.write("{");
    const [response] = await once(request, "response");
    let text = "";
    for await (const part of response) text += part;
    request.destroy();
    expect(JSON.parse(text)).toMatchObject({
      code: "resource_exhausted",
      details: [{ debug: { reason: "payload_too_large" } }],
    });
  });

  it.each(["HTTP/1.0\r\n", "HTTP/1.1\r\nhost: a:b:c\r\n", "HTTP/1.1\r\nhost: %zz\r\n"])(
    "answers a head with no host to make an address of: %j",
    async (head) => {
      const house = await open();
      for (const type of ["application/json", "application/grpc"]) {
        const socket = connect(house.port, "127.0.0.1");
        socket.write(`POST ${ACT} ${head}content-type: ${type}\r\ncontent-length: 2\r\n\r\n{}`);
        const [chunk] = await once(socket, "data");
        socket.destroy();
        expect(String(chunk)).toMatch(type === "application/grpc" ? /grpc-status: 3\r\n/ : /^HTTP\/1\.1 400 /);
      }
    },
  );

  it("takes other methods for what they are", async () => {
    const house = await open();
    expect((await fetch(house.base + ACT, { headers: AUTH })).status).toBe(405);
    expect((await fetch(`${house.base}/limber.v1.InferenceService/Nope`, { method: "POST" })).status).toBe(404);
  });
});

describe("whatever bytes come in", () => {
  it("the answer never blames the gateway", async () => {
    vi.spyOn(console, "error");
    const house = await open({ Act: () => CHUNK });
    const sound = toBinary(ActRequestSchema, create(ActRequestSchema, SOUND));
    const mutant = fc
      .tuple(
        fc.array(fc.tuple(fc.nat(sound.length - 1), fc.nat(255)), { maxLength: 4 }),
        fc.nat(sound.length),
        fc.uint8Array({ maxLength: 8 }),
      )
      .map(([changes, cut, tail]) => {
        const bytes = Buffer.concat([sound.subarray(0, cut), tail]);
        for (const [at, value] of changes) if (at < bytes.length) bytes[at] = value;
        return bytes;
      });
    const types = fc.constantFrom(
      "application/proto",
      "application/json",
      "application/grpc-web+proto",
      "application/grpc-web+json",
    );
    await fc.assert(
      fc.asyncProperty(mutant, types, fc.boolean(), async (bytes, type, whole) => {
        const head = Buffer.from([0, 0, 0, 0, bytes.length]);
        const body = type.includes("grpc") && whole ? Buffer.concat([head, bytes]) : bytes;
        const response = await fetch(house.base + ACT, {
          method: "POST",
          headers: { ...AUTH, "content-type": type },
          body: body as unknown as string,
        });
        const text = await response.text();
        expect(response.status).toBeLessThan(500);
        expect(text).not.toMatch(/grpc-status: (2|13)\b/);
      }),
      { numRuns: 300 },
    );
    expect(house.lines.filter(({ status }) => status >= 500)).toEqual([]);
    expect(house.inside()).toBe(0);
    expect(console.error).not.toHaveBeenCalled();
  });

  it("a caller who breaks off leaves nothing behind, and no word on the console", async () => {
    vi.spyOn(console, "error");
    const house = await open({
      Act: (_: ActRequest, { signal }: CallContext) =>
        new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
    });
    const request = `POST ${ACT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${KEY}\r\ncontent-type: application/json\r\ncontent-length: 60\r\n\r\n${JSON.stringify(SOUND).padEnd(60)}`;
    for (const sent of [request.length - 30, request.length]) {
      const socket = connect(house.port, "127.0.0.1");
      socket.write(request.slice(0, sent));
      await until(() => house.inside() === 1);
      socket.destroy();
      await until(() => house.inside() === 0);
    }
    expect(house.lines).toMatchObject([{ code: "client_closed_request" }, { code: "client_closed_request" }]);
    expect(console.error).not.toHaveBeenCalled();
  });
});

describe("a conversation", () => {
  type Request = PolicyActRequest;

  /** A server of the schema's one bidirectional RPC, whose gate hands the stream to `serve`. */
  async function openTalk(serve: (requests: AsyncIterable<Request>, context: CallContext) => AsyncIterable<Message>) {
    const closing = new AbortController();
    const lines: LogLine[] = [];
    let inside = 0;
    const leave = (): void => void inside--;
    const fastify = Fastify({
      serverFactory: (handler) => onePort(handler as PortHandler),
      forceCloseConnections: "idle",
    });
    const gate = {
      admit: () => {
        inside++;
        return { principal: { kind: "public" as const }, headers: [], leave };
      },
      conversation: (_method, _admission, speaker, context) => told(serve, speaker, context),
    } satisfies Partial<Gate> as unknown as Gate;
    const log = (line: LogLine): void => void lines.push(line);
    const unreadable = (): never => expect.unreachable();
    serveConnect(fastify, [PolicyService], { gate, readiness: () => true, log, closing: closing.signal, unreadable });
    await fastify.listen({ host: "127.0.0.1", port: 0 });
    const { port } = fastify.server.address() as AddressInfo;
    onTestFinished(async () => {
      fastify.server.closeAllConnections();
      await fastify.close();
    });
    return {
      client: createClient(PolicyService, createGrpcTransport({ baseUrl: `http://127.0.0.1:${port}` })),
      port,
      closing,
      lines,
      inside: () => inside,
    };
  }

  /** A service that is written as a generator. */
  function told(
    serve: (requests: AsyncIterable<Request>, context: CallContext) => AsyncIterable<Message>,
    speaker: Speaker<Message>,
    context: CallContext,
  ): Listener<Message> {
    const { readable, writable } = new TransformStream<Request, Request>(
      {},
      { highWaterMark: 100 },
      { highWaterMark: 100 },
    );
    const writer = writable.getWriter();
    const speak = async (): Promise<void> => {
      for await (const said of serve(readable as unknown as AsyncIterable<Request>, context)) speaker.say(said);
      speaker.end();
    };
    speak().catch((thrown) => speaker.end(thrown));
    return {
      hear: (request) => void writer.write(request as Request),
      room: () => undefined,
      close: () => void writer.close().catch(() => undefined),
      cut: (refusal) => speaker.end(refusal),
    };
  }

  const echo = async function* (requests: AsyncIterable<Request>) {
    for await (const { callId } of requests) yield message(PolicyActResponseSchema, { callId });
  };

  it("goes message by message, in both directions at once", async () => {
    const { client, lines, inside } = await openTalk(echo);
    const seen: number[] = [];
    const more: (() => void)[] = [];
    async function* asking() {
      for (let callId = 1; callId <= 3; callId++) {
        yield { callId };
        await new Promise<void>((resolve) => more.push(resolve));
      }
    }
    for await (const { callId } of client.act(asking())) {
      seen.push(callId);
      more.shift()?.();
    }
    expect(seen).toEqual([1, 2, 3]);
    await until(() => inside() === 0);
    expect(lines).toMatchObject([{ status: 200, rpc: "limber.policy.v1.PolicyService/Act" }]);
  });

  it("blames the caller for a message that cannot be read", async () => {
    const { port, lines, inside } = await openTalk(echo);
    const session = http2.connect(`http://127.0.0.1:${port}`);
    const stream = session.request({
      ":path": "/limber.policy.v1.PolicyService/Act",
      ":method": "POST",
      "content-type": "application/grpc",
      te: "trailers",
    });
    stream.end(Buffer.from([0, 0, 0, 0, 2, 8, 7, 0, 0, 0, 0, 1, 255]));
    stream.resume();
    const [trailers] = await once(stream, "trailers");
    session.destroy();
    expect(trailers["grpc-status"]).toBe(String(Code.InvalidArgument));
    await until(() => inside() === 0);
    expect(lines).toMatchObject([{ code: "malformed_body" }]);
  });

  it("ends as unavailable when the house closes, though both sides wait", async () => {
    const { client, closing, inside } = await openTalk(echo);
    const quiet = Promise.withResolvers<never>();
    const answers = client
      .act(
        (async function* () {
          yield { callId: 1 };
          await quiet.promise;
        })(),
      )
      [Symbol.asyncIterator]();
    expect((await answers.next()).value).toMatchObject({ callId: 1 });
    closing.abort(new ConnectError("closing", Code.Unavailable));
    expect(await answers.next().catch(ConnectError.from)).toMatchObject({ code: Code.Unavailable });
    await until(() => inside() === 0);
  });

  it("is called off when the caller leaves, and ends when it was listening", async () => {
    const reasons: unknown[] = [];
    const listened: string[] = [];
    const { client, inside } = await openTalk(async function* (requests, { signal }) {
      const calls = requests[Symbol.asyncIterator]();
      const { value } = await calls.next();
      yield message(PolicyActResponseSchema, { callId: value.callId });
      if (value.callId === 1) await untilAborted(signal, reasons);
      else listened.push((await calls.next()).done ? "end" : "more");
    });
    for (const callId of [1, 2]) {
      const caller = new AbortController();
      const asking = async function* () {
        yield { callId };
        await new Promise(() => undefined);
      };
      const answers = client.act(asking(), { signal: caller.signal })[Symbol.asyncIterator]();
      await answers.next();
      caller.abort();
      await answers.next().catch(() => undefined);
      await until(() => inside() === 0);
    }
    expect(reasons).toMatchObject([{ reason: Reason.CLIENT_CLOSED_REQUEST }]);
    expect(listened).toEqual(["end"]);
  });
});
