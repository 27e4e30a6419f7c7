/** The messages of robots' own clients: their memory is bounded, by key and in all, and comes back. */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { WebSocket } from "ws";
import { encodeGr00t } from "../../../src/codecs/python/gr00t.ts";
import { encodeMsgpack } from "../../../src/codecs/python/msgpack.ts";
import { GREETING, READY, requestHead } from "../../../src/codecs/zmtp.ts";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { ownGateway } from "../../support/world.ts";

const MIB = 1 << 20;

let app: App;
let caller: Caller;

beforeAll(async () => {
  app = await ownGateway({ gr00tPort: 0, bodyMemory: { all: 6 * MIB, perKey: 4 * MIB } });
  caller = await app.caller(1);
});

/** Bytes that running calls hold, as the gateway's metrics have it. */
async function held(): Promise<number> {
  const { text } = await app.call("/metrics", undefined, { admin: ADMIN_TOKEN });
  return Number(/^limber_body_bytes_held (\d+)$/m.exec(text)?.[1]);
}

const holds = (least: number): Promise<void> => eventually(async () => expect(await held()).toBeGreaterThan(least));
const holdsNothing = (): Promise<void> => eventually(async () => expect(await held()).toBe(0));

/** The status of a call of 3 MiB by REST: 422 where there was room to look at it. */
async function asked(): Promise<number> {
  const body = JSON.stringify({ model: "no/model", instruction: "x".repeat(3 * MIB) });
  const headers = { "content-type": "application/json" };
  return (await app.call("/v1/act", body, { key: caller.key, headers })).status;
}

describe("openpi", () => {
  async function open(): Promise<WebSocket> {
    const socket = new WebSocket(`${app.url.replace("http", "ws")}/v1/openpi/no/model`, {
      headers: { authorization: `Api-Key ${caller.key}` },
      perMessageDeflate: false,
    });
    onTestFinished(() => socket.terminate());
    socket.on("error", () => undefined);
    await once(socket, "message");
    return socket;
  }

  /** A part of a message that does not end. */
  const begin = (socket: WebSocket, bytes: number): void =>
    socket.send(Buffer.alloc(bytes), { binary: true, fin: false });

  it("incomplete messages count for their key; beyond its memory the connection is told to retry later", async () => {
    const [first, second] = [await open(), await open()];
    begin(first, 3 * MIB);
    await holds(3 * MIB);
    expect(await asked()).toBe(429);
    begin(second, 3 * MIB);
    const [code, reason] = await once(second, "close");
    expect([code, String(reason)]).toEqual([1013, "body_memory_limit_exceeded"]);
    // The other one is served on, and what it held comes back with it.
    expect(await held()).toBeGreaterThan(3 * MIB);
    first.terminate();
    await holdsNothing();
    expect(await asked()).toBe(422);
  });

  it("small messages and pings use none of the memory", async () => {
    const socket = await open();
    const answers: string[] = [];
    socket.on("message", (data) => answers.push(String(data)));
    for (let i = 0; i < 50; i++) {
      socket.send(Buffer.alloc(100 << 10, 0xc1));
      for (let j = 0; j < 50; j++) socket.ping(Buffer.alloc(100));
      await eventually(() => expect(answers).toHaveLength(i + 1));
    }
    expect(answers.every((text) => text.startsWith("malformed_body"))).toBe(true);
    await holdsNothing();
  });

  it("too many values end the message, not the connection", async () => {
    const socket = await open();
    socket.send(encodeMsgpack({ a: Array.from({ length: 100_001 }, () => new Map()) }));
    const [text] = await once(socket, "message");
    expect(String(text)).toContain("malformed_body");
    await holdsNothing();
  });
});

describe("GR00T", () => {
  async function open(): Promise<Socket> {
    const socket = connect(app.gateway.gr00tPort!, "127.0.0.1");
    onTestFinished(() => void socket.destroy());
    socket.on("error", () => undefined);
    socket.write(Buffer.concat([GREETING, READY]));
    await once(socket, "data");
    socket.resume();
    return socket;
  }

  const begin = (socket: Socket, bytes: number): void => {
    socket.write(Buffer.concat([requestHead(60 * MIB), Buffer.alloc(bytes)]));
  };

  it("peers without a key share one key's memory, and those with a key are served", async () => {
    const peers = [await open(), await open(), await open()];
    const closed = peers.map((peer) => new Promise((resolve) => peer.once("close", resolve)));
    for (const peer of peers) begin(peer, 3 * MIB);
    // One of them has room, wherever it stands.
    await eventually(() => expect(peers.filter(({ destroyed }) => destroyed)).toHaveLength(2));
    await holds(3 * MIB);
    expect((await app.call("/v1/key", undefined, { key: caller.key })).status).toBe(200);
    const last = peers.find(({ destroyed }) => !destroyed)!;
    last.destroy();
    await Promise.all(closed);
    await holdsNothing();
  });

  it("pings use none of the memory", async () => {
    const socket = await open();
    const context = Buffer.alloc(10);
    const ping = Buffer.concat([Buffer.from([4, 7 + context.length, 4]), Buffer.from("PING\0\0"), context]);
    const pongBytes = ping.length - 2;
    let answered = 0;
    socket.on("data", (chunk: Buffer) => {
      answered += chunk.length;
    });
    for (let i = 1; i <= 100; i++) {
      socket.write(Buffer.concat(Array.from({ length: 100 }, () => ping)));
      await eventually(() => expect(answered).toBeGreaterThanOrEqual(i * 100 * pongBytes), { interval: 1 });
    }
    await holdsNothing();
  });

  it("too many values are refused with an answer", async () => {
    const socket = await open();
    const body = encodeGr00t({ endpoint: "get_action", data: Array.from({ length: 100_001 }, () => new Map()) });
    const answers: Buffer[] = [];
    socket.on("data", (chunk: Buffer) => answers.push(chunk));
    socket.write(Buffer.concat([requestHead(body.length), body]));
    await eventually(() => expect(Buffer.concat(answers).toString("latin1")).toContain("malformed_body"));
  });
});
