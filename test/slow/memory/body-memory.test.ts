/** The memory of bodies: what running calls hold is bounded, refused before it is read, and comes back. */
import { once } from "node:events";
import * as http from "node:http";
import * as http2 from "node:http2";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { create, toBinary } from "@bufbuild/protobuf";
import { describe, expect, it, onTestFinished } from "vitest";
import { ActRequestSchema, ActResponseSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import type { StreamWriter } from "../../../src/call.ts";
import { frameMessage } from "../../../src/codecs/grpc.ts";
import { BodyMemory, type BodyMemoryLimits } from "../../../src/edge/body-memory.ts";
import { KEY, message, openForTest, type TestGateway } from "../../edge/gateway.ts";
import { eventually } from "../../support/eventually.ts";

const MIB = 1 << 20;
const ACT = "/limber.v1.InferenceService/Act";
const BODY = 3 * MIB;

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

async function inUse(): Promise<number> {
  for (let i = 0; i < 4; i++) {
    collect();
    await new Promise(setImmediate);
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

const open = (memory: BodyMemoryLimits, byConnect = false): Promise<TestGateway> =>
  openForTest({
    byConnect,
    memory,
    rpcs: {
      Act: () => message(ActResponseSchema, { id: "act_1" }),
      ActStream: (speaker: StreamWriter<never>) => ({
        hear: () => undefined,
        room: () => undefined,
        close: () => speaker.end(),
        cut: (refusal: unknown) => speaker.end(refusal),
      }),
    },
  });

/** How a call was answered: a status and its code, and whether it may come again. */
interface Told {
  readonly said: string;
  readonly retryAfter: string | undefined;
}

/** A call whose body does not end. */
interface Half {
  readonly answer: Promise<Told>;
  /** Sends the rest. */
  finish(): void;
  leave(): void;
}

type Begin = (gateway: TestGateway, body: Buffer, sent: number) => Half;

/** HTTP/1.1 with the size in its head, or in chunks. */
const http1 =
  (path: string, headers: Record<string, string>, isSized: boolean): Begin =>
  (gateway, body, sent) => {
    const request = http.request(gateway.base + path, {
      method: "POST",
      headers: { authorization: `Bearer ${KEY}`, ...headers, ...(isSized && { "content-length": body.length }) },
    });
    request.on("error", () => undefined).flushHeaders();
    request.write(body.subarray(0, sent));
    const answer = once(request, "response").then(async ([response]) => {
      const text = Buffer.concat(await response.toArray()).toString("latin1");
      const code = /"code":"(\w+)"/.exec(text)?.[1] ?? /grpc-status: (\d+)/.exec(text)?.[1] ?? "ok";
      const retryAfter = response.headers["retry-after"] ?? /retry-after: (\d+)/.exec(text)?.[1];
      return { said: `${response.statusCode} ${code}`, retryAfter };
    });
    answer.catch(() => undefined);
    return { answer, finish: () => void request.end(body.subarray(sent)), leave: () => void request.destroy() };
  };

const grpc: Begin = (gateway, body, sent) => {
  const session = http2.connect(gateway.base, { maxSessionMemory: 256 });
  onTestFinished(() => session.destroy());
  session.on("error", () => undefined);
  const head = { "content-type": "application/grpc", te: "trailers", authorization: `Bearer ${KEY}` };
  const stream = session.request({ ":method": "POST", ":path": ACT, ...head }, { endStream: false });
  stream.on("error", () => undefined).resume();
  stream.write(body.subarray(0, sent));
  const answer = new Promise<Told>((resolve) => {
    const tell = (fields: http2.IncomingHttpHeaders): void => {
      if (fields["grpc-status"] !== undefined)
        resolve({ said: `grpc ${fields["grpc-status"]}`, retryAfter: fields["retry-after"] });
    };
    stream.on("response", tell).on("trailers", tell);
  });
  return { answer, finish: () => void stream.end(body.subarray(sent)), leave: () => session.destroy() };
};

const data = Buffer.alloc(BODY - 100, 7);
const BINARY = Buffer.from(
  toBinary(ActRequestSchema, create(ActRequestSchema, { model: "o/n", observations: [{ frames: [{ data }] }] })),
);
const JSON_BODY = Buffer.from(
  JSON.stringify({
    model: "o/n",
    observations: [{ frames: [{ url: `data:image/png;base64,${"a".repeat(BODY - 1000)}` }] }],
  }),
);
const FRAMED = frameMessage(BINARY);

interface Face {
  readonly name: string;
  readonly begin: Begin;
  readonly body: Buffer;
  /** How much of a body is sent ahead: what tells its size, or more than there is room for twice. */
  readonly ahead: number;
  readonly byConnect?: boolean;
  /** The answers: served, the key's limit, the limit of all. */
  readonly says: readonly [served: string, perKey: string, all: string];
}

const REST = { "content-type": "application/json" };
const GRPC = ["grpc 0", "grpc 8", "grpc 14"] as const;
const OF_REST = ["200 ok", "429 body_memory_limit_exceeded", "503 body_memory_exhausted"] as const;
const OF_CONNECT = ["200 ok", "429 resource_exhausted", "503 unavailable"] as const;
const FACES: readonly Face[] = [
  { name: "REST", begin: http1("/v1/act", REST, true), body: JSON_BODY, ahead: 0, says: OF_REST },
  {
    name: "REST in chunks",
    begin: http1("/v1/act", REST, false),
    body: JSON_BODY,
    ahead: 2.5 * MIB,

    says: OF_REST,
  },
  {
    name: "Connect",
    begin: http1(ACT, { "content-type": "application/proto" }, true),
    body: BINARY,
    ahead: 0,

    says: OF_CONNECT,
  },
  {
    name: "Connect in chunks",
    begin: http1(ACT, { "content-type": "application/json" }, false),
    body: JSON_BODY,
    ahead: 2.5 * MIB,

    says: OF_CONNECT,
  },
  {
    name: "gRPC-Web",
    begin: http1(ACT, { "content-type": "application/grpc-web+proto" }, true),
    body: FRAMED,
    ahead: 5,

    says: ["200 0", "200 8", "200 14"],
  },
  { name: "gRPC", begin: grpc, body: FRAMED, ahead: 5, says: GRPC },
  { name: "gRPC by Connect", begin: grpc, body: FRAMED, ahead: 5, byConnect: true, says: GRPC },
];

describe.each(FACES)("$name", ({ begin, body, ahead, byConnect, says }) => {
  it.each([
    ["its key's", { all: 64 * MIB, perKey: 4 * MIB }, says[1]],
    ["all", { all: 4 * MIB, perKey: 4 * MIB }, says[2]],
  ] as const)(
    "refuses a body beyond %s memory before it is read, and takes it when there is room",
    async (_, limits, said) => {
      const gateway = await open(said === says[2] ? { all: limits.all, perKey: 64 * MIB } : limits, byConnect);
      // What is sent of the first is held, whether its size was told or not.
      const first = begin(gateway, body, ahead);
      await eventually(() => expect(gateway.memory.held).toBeGreaterThanOrEqual(2.5 * MIB));
      const second = begin(gateway, body, ahead);
      const refused = await second.answer;
      expect(refused.said).toBe(said);
      expect(refused.retryAfter).toBe("1");
      second.leave();
      first.finish();
      expect((await first.answer).said).toBe(says[0]);
      await eventually(() => expect(gateway.memory.held).toBe(0));
      const third = begin(gateway, body, 0);
      third.finish();
      expect((await third.answer).said).toBe(says[0]);
      await eventually(() => expect([gateway.memory.held, gateway.inside()]).toEqual([0, 0]));
    },
  );

  it("releases the memory of a caller that left", async () => {
    const gateway = await open({ all: 4 * MIB, perKey: 4 * MIB }, byConnect);
    const before = await inUse();
    for (let i = 0; i < 8; i++) {
      const half = begin(gateway, body, body.length - 1);
      await eventually(() => expect(gateway.memory.held).toBeGreaterThanOrEqual(2.5 * MIB));
      half.leave();
      await eventually(() => expect([gateway.memory.held, gateway.inside()]).toEqual([0, 0]));
    }
    expect(await inUse()).toBeLessThan(before * 1.1);
  });
});

it("32 open calls of 60 MB hold one key's memory, other calls are served, and all of it is released", async () => {
  const limits = { all: 256 * MIB, perKey: 128 * MIB };
  const gateway = await open(limits);
  const before = await inUse();
  const piece = Buffer.alloc(256 << 10, 1);
  const head = frameMessage(piece);
  head.writeUInt32BE(60_000_000, 1);
  const codes: string[] = [];
  const sessions: http2.ClientHttp2Session[] = [];
  let sent = 0;
  for (let i = 0; i < 32; i++) {
    const session = http2.connect(gateway.base);
    session.on("error", () => undefined);
    sessions.push(session);
    const stream = session.request(
      {
        ":method": "POST",
        ":path": "/limber.v1.InferenceService/ActStream",
        "content-type": "application/grpc",
        authorization: `Bearer ${KEY}`,
      },
      { endStream: false },
    );
    stream.on("error", () => undefined).resume();
    let left = 59_000_000;
    let isOver = false;
    const tell = (fields: http2.IncomingHttpHeaders): void => {
      if (fields["grpc-status"] === undefined) return;
      isOver = true;
      codes.push(String(fields["grpc-status"]));
    };
    stream.on("response", tell).on("trailers", tell);
    const more = (): void => {
      if (left <= 0) sent++;
      if (left <= 0 || isOver || stream.destroyed) return;
      left -= piece.length;
      stream.write(piece, more);
    };
    stream.write(head, more);
  }
  await eventually(() => expect(codes).toHaveLength(30));
  expect(new Set(codes)).toEqual(new Set(["8"]));
  await eventually(() => expect(sent).toBe(2));
  expect(gateway.memory.held).toBe(120_000_000);
  expect(await inUse()).toBeLessThan(before + 1.5 * limits.perKey);
  const served = await fetch(`${gateway.base}/v1/act`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${KEY}` },
    body: '{"model":"o/n","observations":[{"proprio":[1]}]}',
  });
  expect(served.status).toBe(200);
  await served.arrayBuffer();
  for (const session of sessions) session.destroy();
  await eventually(() => expect([gateway.memory.held, gateway.inside()]).toEqual([0, 0]));
  expect(await inUse()).toBeLessThan(before * 1.1);
});

describe("the memory of bodies", () => {
  it("counts no small bodies, separates owners, and never exceeds its limit", () => {
    const memory = new BodyMemory({ all: 3 * MIB, perKey: 2 * MIB });
    const [one, two] = [memory.open("a"), memory.open("a")];
    one.to(64 << 10);
    expect(memory.held).toBe(0);
    one.to(MIB);
    two.to(MIB);
    expect(() => two.to(MIB + 1)).toThrow("of this key's running calls");
    const other = memory.open("b");
    expect(() => other.to(MIB + 1)).toThrow("as many bodies as it has memory for");
    other.to(MIB);
    expect(memory.held).toBe(3 * MIB);
    one.release();
    one.to(MIB);
    expect(memory.held).toBe(2 * MIB);
    two.to(2 * MIB);
    for (const held of [two, other]) held.release();
    expect(memory.held).toBe(0);
  });
});
