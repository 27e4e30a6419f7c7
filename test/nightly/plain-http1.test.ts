/** The fast lane of HTTP/1: nobody can tell it from node:http, and what it does not surely understand is node:http's. */

import { once } from "node:events";
import * as http from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { ActResponseSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { GetHealthResponseSchema } from "../../gen/limber/v1/operations_service_pb.ts";
import type { CallContext } from "../../src/edge/gate/authenticate.ts";
import { readPlainHead } from "../../src/edge/server/plain-http1.ts";
import type { PortOptions } from "../../src/edge/server/port.ts";
import type { UpgradeTaker } from "../../src/edge/server/whole-requests.ts";
import { Reason, refuse } from "../../src/errors.ts";
import { type HouseOptions, KEY, message, openGateway, type TestGateway } from "../edge/gateway.ts";
import { eventually } from "../support/eventually.ts";

const houses: TestGateway[] = [];
const sockets: Socket[] = [];

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const gateway of houses.splice(0)) await gateway[Symbol.asyncDispose]();
});

const CHUNK = message(ActResponseSchema, {
  id: "act_1",
  object: "world.action",
  model: "o/n",
  action: { space: "joint_pos_7", steps: [{ values: [1, 2] }], dtMs: 20, note: "größer" },
});
const RPCS: NonNullable<HouseOptions["rpcs"]> = {
  Act: ({ model }: { model: string }) => {
    if (model === "o/none") throw refuse(Reason.MODEL_NOT_FOUND, "there is no such model");
    return CHUNK;
  },
  GetHealth: () => message(GetHealthResponseSchema, {}),
};

async function open(port: PortOptions = {}, rpcs = RPCS): Promise<TestGateway> {
  const gateway = await openGateway({ rpcs, port });
  houses.push(gateway);
  return gateway;
}

async function dial(port: number): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  sockets.push(socket);
  socket.on("error", () => undefined).setNoDelay();
  await once(socket, "connect");
  return socket;
}

const SOUND = JSON.stringify({ model: "o/n", observations: [{ proprio: [1, 2] }] });
const head = (body: string, ...lines: string[]): string =>
  [
    "POST /v1/act HTTP/1.1",
    "Host: localhost",
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(body)}`,
    ...lines,
    "",
    "",
  ].join("\r\n");
const AUTH = `Authorization: Bearer ${KEY}`;
const act = (body: string, ...lines: string[]): string => head(body, AUTH, ...lines) + body;
/** Not plain, so that every dialogue ends with a connection that was handed over, and is closed by the server. */
const LAST = "GET /v1/nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/** A connection that has had an answer: from then on the lane reads it another way. */
async function answered(port: number): Promise<Socket> {
  const socket = await dial(port);
  socket.write(act(SOUND));
  await once(socket, "data");
  return socket;
}

/** What the server says to these parts, each its own segment, until it closes. */
async function said(port: number, parts: readonly string[], begin = dial): Promise<string> {
  const socket = await begin(port);
  let text = "";
  socket.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
  const closed = once(socket, "close");
  for (const part of parts) {
    socket.write(part);
    await new Promise((resolve) => setImmediate(resolve));
  }
  await closed;
  return text;
}

const masked = (text: string): string =>
  text
    .replaceAll(/^Date: .*$/gim, "Date: then")
    .replaceAll(/req_\w+/g, "req_1")
    // Node counts the chunks of a stream as it likes.
    .replaceAll(/\r\n[0-9a-f]+\r\n(?=event:|\r\n)/g, "\r\n");

const STREAM = JSON.stringify({ ...JSON.parse(SOUND), stream: true });

describe.each([
  ["from the first byte", dial],
  ["after an answer", answered],
])("the plain HTTP/1.1 server and node:http respond byte-identically, %s", (_, begin) => {
  it.each<[string, string[]]>([
    ["a call", [act(SOUND)]],
    ["three calls, one after the other", [act(SOUND), act(SOUND), act(SOUND)]],
    ["three calls in one segment", [act(SOUND) + act(SOUND) + act(SOUND)]],
    ["a call whose head and body come apart", [head(SOUND, AUTH), SOUND]],
    ["a call that is cut in its head", [act(SOUND).slice(0, 30), act(SOUND).slice(30)]],
    [
      "a call whose body comes in three parts",
      [head(SOUND, AUTH), SOUND.slice(0, 9), SOUND.slice(9, 20), SOUND.slice(20)],
    ],
    ["half a second call behind the first", [act(SOUND) + act(SOUND).slice(0, 200), act(SOUND).slice(200)]],
    ["a refusal with letters beyond ASCII", [act(SOUND.replace("o/n", "größer"))]],
    ["a refusal by the service, then a call", [act(SOUND.replace("o/n", "o/none")), act(SOUND)]],
    ["no key", [head(SOUND) + SOUND, act(SOUND)]],
    ["no JSON", [act("{"), act(SOUND)]],
    ["no body", [act(""), act(SOUND)]],
    ["a body of another type", [act(SOUND).replace("application/json", "text/plain"), act(SOUND)]],
    ["a compressed body", [act(SOUND, "Content-Encoding: gzip"), act(SOUND)]],
    ["the caller's own request id", [act(SOUND, "X-Request-Id: mine")]],
    ["a stream of events, then a call", [act(STREAM), act(SOUND)]],
    ["an unknown path", [act(SOUND).replace("/v1/act", "/v1/acts"), act(SOUND)]],
    ["another verb", [act(SOUND).replace("POST", "PUT"), act(SOUND)]],
    ["a query", [act(SOUND).replace("/v1/act", "/v1/act?x=1")]],
    [
      "chunks",
      [
        act("", "Transfer-Encoding: chunked").replace(/Content-Length.*\r\n/, "") +
          `${SOUND.length.toString(16)}\r\n${SOUND}\r\n0\r\n\r\n`,
      ],
    ],
    ["chunks and a length", [act(SOUND, "Transfer-Encoding: chunked")]],
    ["two lengths", [act(SOUND, "Content-Length: 5")]],
    ["a negative length", [act(SOUND).replace(/Content-Length: \d+/, "Content-Length: -1")]],
    ["a length with a sign", [act(SOUND).replace(/Content-Length: /, "Content-Length: +")]],
    ["two hosts", [act(SOUND, "Host: elsewhere")]],
    ["no host", [act(SOUND).replace("Host: localhost\r\n", "")]],
    ["an invalid host", [act(SOUND).replace("localhost", "a b")]],
    ["a folded header", [act(SOUND, "X-A: 1\r\n 2")]],
    ["a space before the colon", [act(SOUND, "X-A : 1")]],
    ["a header without a name", [act(SOUND, ": 1")]],
    ["bare line feeds", [act(SOUND).replaceAll("\r\n", "\n")]],
    ["HTTP/1.0", [act(SOUND).replace("HTTP/1.1", "HTTP/1.0")]],
    ["an expectation", [act(SOUND, "Expect: 100-continue")]],
    ["a wish to close", [act(SOUND, "Connection: close")]],
    ["a header of __proto__", [act(SOUND, "__proto__: 1")]],
    ["no HTTP at all", ["POST /v1/act HTTP/1.1\r\n\r\n\0\0\0"]],
  ])("to %s", async (_, parts) => {
    const [lane, plain] = [await open(), await open({ whole: undefined })];
    const [mine, nodes] = await Promise.all([lane, plain].map(({ port }) => said(port, [...parts, LAST], begin)));
    expect(masked(mine!)).toBe(masked(nodes!));
    const told = ({ lines }: TestGateway) => lines.map(({ requestId: _, latencyMs: __, trail: ___, ...line }) => line);
    expect(told(lane)).toEqual(told(plain));
    expect(lane.inside()).toBe(0);
  });
});

describe("the plain HTTP/1.1 server", () => {
  it("cancels a running call if its caller leaves, and frees its slot", async () => {
    let seen: CallContext | undefined;
    const wait = (_: unknown, context: CallContext) =>
      new Promise((_, reject) => {
        seen = context;
        context.signal.addEventListener("abort", () => reject(context.signal.reason));
      });
    const gateway = await open({}, { ...RPCS, Act: wait });
    const socket = await dial(gateway.port);
    socket.write(act(SOUND));
    await eventually(() => expect(seen).toBeDefined());
    socket.destroy();
    await eventually(() => expect(gateway.lines).toMatchObject([{ code: "client_closed_request" }]));
    expect(gateway.inside()).toBe(0);
  });

  it("leaves a stalled body to node:http, which answers 408", async () => {
    const gateway = await open({ headersTimeoutMs: 200, requestTimeoutMs: 400 });
    const socket = await dial(gateway.port);
    socket.write(head(SOUND, AUTH));
    const [chunk] = (await once(socket, "data")) as [Buffer];
    expect(chunk.toString()).toMatch(/^HTTP\/1.1 408 /);
  });

  it("closes a connection that is idle too long, and none in use", async () => {
    const gateway = await open({ idleTimeoutMs: 100 });
    const socket = await dial(gateway.port);
    socket.write(act(SOUND));
    socket.resume();
    await once(socket, "close");
    expect(gateway.lines).toHaveLength(1);
  });

  it("answers running calls when the port closes, announces the close, and ends", async () => {
    const answer = Promise.withResolvers<unknown>();
    const gateway = await open({}, { ...RPCS, Act: () => answer.promise });
    const dialogue = said(gateway.port, [act(SOUND)]);
    await eventually(() => expect(gateway.inside()).toBe(1));
    const idle = await dial(gateway.port);
    const drained = gateway.server.drain(5_000);
    if (!idle.destroyed) await once(idle, "close");
    answer.resolve(CHUNK);
    expect(await dialogue).toMatch(/^HTTP\/1.1 200 OK\r\n[\s\S]*Connection: close\r\n\r\n/);
    await drained;
  });

  it("pauses reading while the caller does not read the responses", async () => {
    const big = message(ActResponseSchema, { ...CHUNK, id: "x".repeat(1 << 20) });
    let calls = 0;
    const gateway = await open(
      {},
      {
        ...RPCS,
        Act: () => {
          calls++;
          return big;
        },
      },
    );
    const socket = await dial(gateway.port);
    socket.pause();
    const many = act(SOUND).repeat(100);
    socket.write(many);
    await eventually(() => expect(calls).toBeGreaterThan(0));
    for (let i = 0; i < 50; i++) await new Promise((resolve) => setImmediate(resolve));
    expect(calls).toBeLessThan(50);
    socket.resume();
    await eventually(() => expect(calls).toBe(100));
  });
});

describe("a plain HTTP/1.1 connection after its first response", () => {
  it("accepts bodies of many reads while others are read concurrently", async () => {
    const gateway = await open(
      {},
      { ...RPCS, Act: ({ instruction }: { instruction: string }) => ({ ...CHUNK, id: instruction }) },
    );
    const say = (letter: string): string => JSON.stringify({ ...JSON.parse(SOUND), instruction: letter.repeat(3_000) });
    const long = (letter: string): string => " ".repeat(200_000) + say(letter);
    const letters = [..."abcdefgh"];
    const told = await Promise.all(
      letters.map((letter) => said(gateway.port, [head(long(letter), AUTH), long(letter), LAST], answered)),
    );
    expect(told.map((text, i) => text.includes(letters[i]!.repeat(3_000)))).toEqual(letters.map(() => true));
  });

  it("is handed to node:http for a stalled body, which answers 408", async () => {
    const gateway = await open({ headersTimeoutMs: 200, requestTimeoutMs: 400 });
    const socket = await answered(gateway.port);
    socket.write(head(SOUND, AUTH));
    const [chunk] = (await once(socket, "data")) as [Buffer];
    expect(chunk.toString()).toMatch(/^HTTP\/1.1 408 /);
  });

  it("is closed when its peer closes or disappears", async () => {
    const gateway = await open();
    const [polite, rude] = [await answered(gateway.port), await answered(gateway.port)];
    polite.end();
    rude.resetAndDestroy();
    await once(polite, "close");
    const count = (): Promise<number> =>
      new Promise((tell) => gateway.server.fastify.server.getConnections((_, n) => tell(n)));
    await eventually(async () => expect(await count()).toBe(0));
  });

  it("can switch to another protocol, which then receives every byte", async () => {
    const take: UpgradeTaker["take"] = (_, stream, first) => {
      stream.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
      if (first.length > 0) stream.write(first);
      stream.pipe(stream);
    };
    const gateway = await open({ upgrade: { wants: () => true, take, drain: () => undefined } });
    const socket = await answered(gateway.port);
    let heard = "";
    socket.setEncoding("latin1").on("data", (text: string) => (heard += text));
    socket.write("GET /v1/echo HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    await eventually(() => expect(heard).toContain("101"));
    socket.end("x".repeat(300_000));
    await once(socket, "close");
    expect(heard.split("\r\n\r\n")[1]).toBe("x".repeat(300_000));
  });

  it("ends when the port closes, and leaves nothing open", async () => {
    const gateway = await open();
    const socket = await answered(gateway.port);
    const closed = once(socket, "close");
    await gateway.server.drain(5_000);
    await closed;
  });
});

describe("a head for the plain HTTP/1.1 server", () => {
  it.each([
    "Expect: 100-continue",
    "Upgrade: websocket",
    "Connection: upgrade",
    "Trailer: x",
    "Transfer-Encoding: chunked",
  ])("never contains %s", (line) => expect(readPlainHead(Buffer.from(act(SOUND, line)))).toBeUndefined());

  it("is short, and so is its body", () => {
    expect(readPlainHead(Buffer.from(act(SOUND, `X-A: ${"a".repeat(8 << 10)}`)))).toBeUndefined();
    expect(readPlainHead(Buffer.from(act("x".repeat((1 << 20) + 1))))).toBeUndefined();
    expect(readPlainHead(Buffer.from(act("x".repeat(1 << 20))))).toMatchObject({ path: "/v1/act", bodyBytes: 1 << 20 });
  });

  /** Small and large changes, from a seed. */
  function* mutations(seed: number, count: number): Generator<string> {
    let state = seed;
    const next = (below: number): number => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
      return Math.floor((state / 2 ** 32) * below);
    };
    const spice = [
      "\r",
      "\n",
      "\r\n",
      " ",
      "\t",
      ":",
      "\0",
      "\x7f",
      "é",
      ",",
      "chunked",
      "Host: b\r\n",
      "0",
      "-",
      "_",
      "%",
      "X:1\r\n",
    ];
    for (let i = 0; i < count; i++) {
      let text = head(SOUND, AUTH, "X-A: b");
      for (let edits = 1 + next(2); edits > 0; edits--) {
        const at = next(text.length);
        const cut = next(3) === 0 ? next(4) : 0;
        text = text.slice(0, at) + (next(4) === 0 ? "" : spice[next(spice.length)]) + text.slice(at + cut);
      }
      yield text;
    }
  }

  it("is read identically by node:http for any mutation", async () => {
    const seen: { url?: string | undefined; headers: Record<string, unknown> }[] = [];
    const server = http.createServer((request, response) => {
      seen.push({ url: request.url, headers: { ...request.headers } });
      response.end();
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    const { port } = server.address() as AddressInfo;
    let taken = 0;
    for (const text of mutations(7, 4_000)) {
      const bytes = Buffer.from(text, "latin1");
      const plain = readPlainHead(bytes);
      if (plain === undefined) continue;
      taken++;
      seen.length = 0;
      const socket = await dial(port);
      socket.end(Buffer.concat([bytes.subarray(0, plain.bodyAt), Buffer.alloc(plain.bodyBytes)]));
      socket.resume();
      await once(socket, "close");
      expect(seen[0], JSON.stringify(text)).toEqual({ url: plain.path, headers: { ...plain.headers } });
    }
    expect(taken).toBeGreaterThan(100);
    server.close();
  });
});
