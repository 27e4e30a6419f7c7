/** Servers that break the rules of HTTP/2, byte by byte: each fails its calls with a failure of ours, and none harms another. */
import { afterEach, describe, expect, it } from "vitest";
import { GrpcClient } from "../../src/upstream/transport/grpc.ts";
import { guardedLookup } from "../../src/upstream/transport/guard.ts";
import { replaceAmbient } from "../support/ambient.ts";
import { eventually } from "../support/eventually.ts";
import { type BareServer, type Heard, SERVER_HELLO, startBareServer } from "../support/h2-server.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { failureIn, nameOf } from "../support/wire-calls.ts";
import { FLAG, FRAME, fieldBlock, frame, goawayIn, uint32 } from "../support/wire-client.ts";

const lookup = guardedLookup({ allowPrivate: true });
const exchange = (signal = new AbortController().signal) => ({
  path: "/a/b",
  signal,
  budgetMs: 10_000,
  requestId: "r",
});

let server: BareServer;
let calls: GrpcClient;
afterEach(async () => {
  calls.close();
  await server.close();
});

/** A server that says this once it has heard a request. */
async function serve(misbehave: (heard: Heard) => void, hello: Buffer = SERVER_HELLO): Promise<void> {
  server = await startBareServer((heard, { type, stream }, index) => {
    if (index === 0) heard.send(hello);
    if (type === FRAME.headers && stream === 1) misbehave(heard);
  });
  calls = new GrpcClient({ url: server.url, lookup, authorization: undefined });
}

const failed = async (): Promise<string | undefined> =>
  nameOf(await failureIn(calls.unary(exchange(), Buffer.alloc(9))));

const OK = fieldBlock({ ":status": "200", "content-type": "application/grpc" });
const HEAD = frame(FRAME.headers, FLAG.endHeaders, 1, OK);
const PADDED = 8;
const PRIORITY = 32;
const END = FLAG.endHeaders | FLAG.endStream;
const head = (fields: Record<string, string>, flags: number = FLAG.endHeaders, id = 1): Buffer =>
  frame(FRAME.headers, flags, id, fieldBlock(fields));
const setting = (id: number, value: number): Buffer =>
  frame(FRAME.settings, 0, 0, Buffer.concat([Buffer.from([0, id]), uint32(value)]));
const many = (count: number, bytes: Buffer): Buffer => Buffer.concat(Array.from({ length: count }, () => bytes));

const CODE = { protocol: 1, internal: 2, flow: 3, frameSize: 6, compression: 9, calm: 11 };

describe("a server loses its connection if it", () => {
  it.each<[string, number, Buffer]>([
    ["sends a frame larger than 16 KiB", CODE.frameSize, frame(FRAME.data, 0, 1, Buffer.alloc(16_385))],
    ["sends a frame on a stream that never began", CODE.protocol, frame(FRAME.data, 0, 3, Buffer.alloc(1))],
    ["resets a stream that never began", CODE.protocol, frame(FRAME.reset, 0, 3, uint32(8))],
    ["answers on a stream that never began", CODE.protocol, head({ ":status": "200" }, END, 7)],
    ["grows the window of a stream that never began", CODE.protocol, frame(FRAME.windowUpdate, 0, 3, uint32(1))],
    ["uses an even stream", CODE.protocol, head({ ":status": "200" }, END, 2)],
    ["pushes", CODE.protocol, frame(5, FLAG.endHeaders, 1, Buffer.concat([uint32(2), OK]))],
    ["enables push", CODE.protocol, setting(2, 1)],
    ["sends data of no stream", CODE.protocol, frame(FRAME.data, 0, 0, Buffer.alloc(1))],
    ["sends a head of no stream", CODE.protocol, head({ ":status": "200" }, END, 0)],
    ["resets no stream", CODE.protocol, frame(FRAME.reset, 0, 0, uint32(8))],
    ["sends settings of a stream", CODE.protocol, frame(FRAME.settings, 0, 1)],
    ["sends settings of a broken size", CODE.frameSize, frame(FRAME.settings, 0, 0, Buffer.alloc(7))],
    ["sends settings in an acknowledgement", CODE.frameSize, frame(FRAME.settings, FLAG.ack, 0, Buffer.alloc(6))],
    ["sets a window that is too large", CODE.flow, setting(4, 2 ** 31)],
    ["sets frames that are too small", CODE.protocol, setting(5, 16_383)],
    ["sets frames that are too large", CODE.protocol, setting(5, 2 ** 24)],
    ["sends a ping of a broken size", CODE.frameSize, frame(FRAME.ping, 0, 0, Buffer.alloc(7))],
    ["sends a ping of a stream", CODE.protocol, frame(FRAME.ping, 0, 1, Buffer.alloc(8))],
    ["sends a reset of a broken size", CODE.frameSize, frame(FRAME.reset, 0, 1, Buffer.alloc(3))],
    ["sends a window of a broken size", CODE.frameSize, frame(FRAME.windowUpdate, 0, 0, Buffer.alloc(5))],
    ["sends a priority of a broken size", CODE.frameSize, frame(FRAME.priority, 0, 1, Buffer.alloc(4))],
    ["sends a GOAWAY that is too short", CODE.frameSize, frame(FRAME.goaway, 0, 0, Buffer.alloc(7))],
    ["grows the connection's window by nothing", CODE.protocol, frame(FRAME.windowUpdate, 0, 0, uint32(0))],
    ["grows the connection's window too far", CODE.flow, frame(FRAME.windowUpdate, 0, 0, uint32(2 ** 31 - 1))],
    ["revokes its GOAWAY", CODE.protocol, Buffer.concat([goaway(1), goaway(5)])],
    ["pads a frame with more than its length", CODE.protocol, padded(FRAME.data, 9, 4)],
    ["pads a head with more than its length", CODE.protocol, padded(FRAME.headers, 9, 4)],
    ["pads a frame of no bytes", CODE.protocol, Buffer.concat([HEAD, frame(FRAME.data, PADDED, 1)])],
    ["sends a head without its priority", CODE.frameSize, frame(FRAME.headers, PRIORITY | END, 1, Buffer.alloc(4))],
    ["continues a head that never began", CODE.protocol, frame(FRAME.continuation, FLAG.endHeaders, 1, OK)],
    [
      "sends something else in the middle of a head",
      CODE.protocol,
      Buffer.concat([frame(FRAME.headers, 0, 1, OK), frame(FRAME.ping, 0, 0, Buffer.alloc(8))]),
    ],
    [
      "sends data in the middle of a head",
      CODE.protocol,
      Buffer.concat([frame(FRAME.headers, 0, 1, OK), frame(FRAME.data, 0, 1, Buffer.alloc(8))]),
    ],
    [
      "continues the head of another stream",
      CODE.protocol,
      Buffer.concat([frame(FRAME.headers, 0, 1, OK), frame(FRAME.continuation, FLAG.endHeaders, 3, OK)]),
    ],
    [
      "continues a head endlessly",
      CODE.internal,
      Buffer.concat([frame(FRAME.headers, 0, 1, OK), many(50, frame(FRAME.continuation, 0, 1))]),
    ],
    ["names index 0", CODE.compression, frame(FRAME.headers, END, 1, Buffer.of(0x80))],
    ["uses an unknown index", CODE.compression, frame(FRAME.headers, END, 1, Buffer.of(0xbe))],
    ["sends a number that is too long", CODE.compression, frame(FRAME.headers, END, 1, hex("ffffffffffffffffff7f"))],
    ["sends a text longer than its block", CODE.compression, frame(FRAME.headers, END, 1, hex("000561"))],
    ["ends a block in a field", CODE.compression, frame(FRAME.headers, END, 1, hex("0001"))],
    ["sends a string without valid padding", CODE.compression, frame(FRAME.headers, END, 1, hex("08811e"))],
    [
      "sends a text with eight bits of padding",
      CODE.compression,
      frame(FRAME.headers, END, 1, hex("08860000000000ff")),
    ],
    [
      "sends a string that contains its end marker",
      CODE.compression,
      frame(FRAME.headers, END, 1, hex("0884ffffffff")),
    ],
    ["makes the table too large", CODE.compression, frame(FRAME.headers, END, 1, hex("3fe21f"))],
    ["changes the table in the middle of a block", CODE.compression, frame(FRAME.headers, END, 1, hex("8820"))],
    ["sends endless pings", CODE.internal, many(30_000, frame(FRAME.ping, FLAG.ack, 0, Buffer.alloc(8)))],
    ["sends endless priorities", CODE.calm, many(30_000, frame(FRAME.priority, 0, 1, Buffer.alloc(5)))],
    ["sends endless frames of an unknown type", CODE.calm, many(30_000, frame(77, 0, 1))],
  ])("%s", async (_, code, bytes) => {
    const restore = replaceAmbient({ clock: new ManualClock() });
    await serve((heard) => heard.send(bytes));
    expect(await failed()).toBe("MALFORMED_ANSWER");
    await eventually(() => expect(server.connections[0]?.socket.destroyed).toBe(true));
    expect(
      goawayIn(Buffer.concat(server.connections[0]!.frames().map((f) => frame(f.type, f.flags, f.stream, f.payload)))),
    ).toBe(code);
    restore();
  });

  it.each<[string, Buffer]>([
    ["sends data before its settings", frame(FRAME.ping, 0, 0, Buffer.alloc(8))],
    ["acknowledges settings before its own", frame(FRAME.settings, FLAG.ack, 0)],
    ["is not an HTTP/2 server", Buffer.from("HTTP/1.1 400 Bad Request\r\n\r\n")],
  ])("%s", async (_, hello) => {
    await serve(() => undefined, hello);
    expect(await failed()).toBe("MALFORMED_ANSWER");
  });

  it("sends pings and does not read", async () => {
    const restore = replaceAmbient({ clock: new ManualClock() });
    await serve(({ socket, send }) => {
      socket.pause();
      const again = (): void => {
        if (!socket.destroyed)
          socket.write(many(2_000, frame(FRAME.ping, 0, 0, Buffer.alloc(8))), () => setImmediate(again));
        send();
      };
      again();
    });
    expect(await failed()).toBe("MALFORMED_ANSWER");
    restore();
  });

  it("sends endless settings", async () => {
    const restore = replaceAmbient({ clock: new ManualClock() });
    await serve((heard) => heard.send(many(30_000, setting(3, 100))));
    expect(await failed()).toBe("MALFORMED_ANSWER");
    restore();
  });

  it("exceeds the connection's window", async () => {
    await serve(({ socket, send }) => {
      send(HEAD);
      const block = many(64, frame(FRAME.data, 0, 1, Buffer.alloc(16_384)));
      socket.write(block);
      socket.write(block);
    });
    // The stream's window is smaller: it goes first.
    expect(await failed()).toBe("MALFORMED_ANSWER");
  });
});

describe("a server loses the call, and not its connection, if it", () => {
  it.each<[string, number, Buffer]>([
    ["answers without a status", CODE.protocol, head({ "content-type": "application/grpc" })],
    ["answers with an invalid status", CODE.protocol, head({ ":status": "2000" })],
    ["answers with two statuses", CODE.protocol, frame(FRAME.headers, END, 1, hex("8888"))],
    ["sends a request instead of an answer", CODE.protocol, head({ ":status": "200", ":path": "/" })],
    ["has a status after other fields", CODE.protocol, head({ "content-type": "application/grpc", ":status": "200" })],
    ["shouts", CODE.protocol, head({ ":status": "200", "Content-Type": "application/grpc" })],
    ["sends connection headers", CODE.protocol, head({ ":status": "200", "transfer-encoding": "chunked" })],
    ["delays the end of its answer", CODE.protocol, head({ ":status": "100" }, END)],
    ["has a status in its trailers", CODE.protocol, Buffer.concat([HEAD, head({ ":status": "200" }, END)])],
    ["has trailers that do not end the stream", CODE.protocol, Buffer.concat([HEAD, head({ "grpc-status": "0" })])],
  ])("%s", async (_, code, bytes) => {
    await serve((heard) => heard.send(bytes));
    expect(await failed()).toBe("MALFORMED_ANSWER");
    const [connection] = server.connections;
    await eventually(() => {
      const reset = connection!.frames().find(({ type }) => type === FRAME.reset);
      expect(reset && [reset.stream, reset.payload.readUInt32BE(0)]).toEqual([1, code]);
    });
    expect(connection?.socket.destroyed).toBe(false);
    // What it says after that to the stream that is gone reaches nobody, and harms nobody.
    connection?.send(HEAD, frame(FRAME.data, 0, 1, Buffer.alloc(100)), frame(FRAME.windowUpdate, 0, 1, uint32(1)));
    connection?.send(frame(FRAME.reset, 0, 1, uint32(8)), frame(FRAME.ping, 0, 0, Buffer.alloc(8)));
    await eventually(() => expect(connection?.frames().at(-1)?.type).toBe(FRAME.ping));
  });
});

it("leaves out fields in an invalid way", async () => {
  const bad = { "a b": "1", "": "2", x: "3\n4", "grpc-status": "0" };
  await serve((heard) => heard.send(HEAD, frame(FRAME.data, 0, 1, Buffer.from("000000000161", "hex")), head(bad, END)));
  expect((await calls.unary(exchange(), Buffer.alloc(5))).toString()).toBe("a");
});

function goaway(last: number): Buffer {
  return frame(FRAME.goaway, 0, 0, Buffer.concat([uint32(last), uint32(0)]));
}

function padded(type: number, padding: number, bytes: number): Buffer {
  const bad = frame(type, PADDED | FLAG.endHeaders, 1, Buffer.concat([Buffer.of(padding), Buffer.alloc(bytes)]));
  return type === FRAME.data ? Buffer.concat([HEAD, bad]) : bad;
}

function hex(text: string): Buffer {
  return Buffer.from(text, "hex");
}
