/** Clients that break the rules of HTTP/2, byte by byte, on sessions of our own: none harms another. */
import { describe, expect, it, onTestFinished } from "vitest";
import { saying } from "../../edge/port-caller.ts";
import { replaceAmbient } from "../../support/ambient.ts";
import { eventually } from "../../support/eventually.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import {
  endOf,
  FLAG,
  FRAME,
  fieldBlock,
  frame,
  framesIn,
  goawayIn,
  HELLO,
  PREFACE,
  request,
  uint32,
} from "../../support/wire-client.ts";
import { callBlock, callHead, openEcho, post, sessionTo } from "./echo.ts";

const CODE = { protocol: 1, flow: 3, closed: 5, frameSize: 6, refused: 7, compression: 9, calm: 11 };
const PADDED = 8;
const PRIORITY = 32;
const END = FLAG.endHeaders | FLAG.endStream;
const setting = (id: number, value: number): Buffer =>
  frame(FRAME.settings, 0, 0, Buffer.concat([Buffer.from([0, id]), uint32(value)]));
const many = (count: number, bytes: Buffer): Buffer => Buffer.concat(Array.from({ length: count }, () => bytes));
const hex = (text: string): Buffer => Buffer.from(text, "hex");
const both = (...parts: readonly Buffer[]): Buffer => Buffer.concat(parts);
/** A field that the table keeps, as its newest. */
function literalKept(name: string, value: string): Buffer {
  const block = fieldBlock({ [name]: value });
  block[0] = 0x40;
  return block;
}
const block = (bytes: Buffer): Buffer => frame(FRAME.headers, END, 1, bytes);

describe("a client loses its connection that", () => {
  it.each<[string, number, Buffer]>([
    ["sends a frame larger than 16 KiB", CODE.frameSize, frame(FRAME.data, 0, 1, Buffer.alloc(16_385))],
    ["sends data on a stream that never began", CODE.protocol, frame(FRAME.data, 0, 3, Buffer.alloc(1))],
    ["resets a stream that never began", CODE.protocol, frame(FRAME.reset, 0, 3, uint32(8))],
    ["grows the window of a stream that never began", CODE.protocol, frame(FRAME.windowUpdate, 0, 3, uint32(1))],
    ["asks on an even stream", CODE.protocol, request(2, "/")],
    ["pushes", CODE.protocol, frame(5, FLAG.endHeaders, 1, Buffer.concat([uint32(2), callBlock()]))],
    ["lets pushes be what they can't be", CODE.protocol, setting(2, 2)],
    ["sends data of no stream", CODE.protocol, frame(FRAME.data, 0, 0, Buffer.alloc(1))],
    ["sends a head of no stream", CODE.protocol, callHead(0)],
    ["resets no stream", CODE.protocol, frame(FRAME.reset, 0, 0, uint32(8))],
    ["sends settings of a stream", CODE.protocol, frame(FRAME.settings, 0, 1)],
    ["sends settings of a broken size", CODE.frameSize, frame(FRAME.settings, 0, 0, Buffer.alloc(7))],
    ["sends settings in an acknowledgement", CODE.frameSize, frame(FRAME.settings, FLAG.ack, 0, Buffer.alloc(6))],
    ["sets a window that is too large", CODE.flow, setting(4, 2 ** 31)],
    [
      "grows a window by settings until it is too large",
      CODE.flow,
      both(callHead(1), frame(FRAME.windowUpdate, 0, 1, uint32(2 ** 31 - 1 - 65_535)), setting(4, 65_536)),
    ],
    ["sets frames that are too small", CODE.protocol, setting(5, 16_383)],
    ["sets frames that are too large", CODE.protocol, setting(5, 2 ** 24)],
    ["sends a ping of a broken size", CODE.frameSize, frame(FRAME.ping, 0, 0, Buffer.alloc(7))],
    ["sends a ping of a stream", CODE.protocol, frame(FRAME.ping, 0, 1, Buffer.alloc(8))],
    ["sends a reset of a broken size", CODE.frameSize, both(callHead(1), frame(FRAME.reset, 0, 1, Buffer.alloc(3)))],
    ["sends a window of a broken size", CODE.frameSize, frame(FRAME.windowUpdate, 0, 0, Buffer.alloc(5))],
    ["sends a priority of a broken size", CODE.frameSize, frame(FRAME.priority, 0, 1, Buffer.alloc(4))],
    ["goes away in too few bytes", CODE.frameSize, frame(FRAME.goaway, 0, 0, Buffer.alloc(7))],
    ["grows the connection's window by nothing", CODE.protocol, frame(FRAME.windowUpdate, 0, 0, uint32(0))],
    ["grows the connection's window too far", CODE.flow, frame(FRAME.windowUpdate, 0, 0, uint32(2 ** 31 - 1))],
    [
      "pads a frame with more than there is",
      CODE.protocol,
      both(callHead(1), frame(FRAME.data, PADDED, 1, hex("09aabbccdd"))),
    ],
    ["pads a head with more than there is", CODE.protocol, frame(FRAME.headers, PADDED | END, 1, hex("09aabbccdd"))],
    ["pads a frame of no bytes", CODE.frameSize, both(callHead(1), frame(FRAME.data, PADDED, 1))],
    ["sends a head without its priority", CODE.frameSize, frame(FRAME.headers, PRIORITY | END, 1, Buffer.alloc(4))],
    ["goes on with a head that never began", CODE.protocol, frame(FRAME.continuation, FLAG.endHeaders, 1, callBlock())],
    [
      "sends something else in the middle of a head",
      CODE.protocol,
      both(callHead(1, {}, 0), frame(FRAME.ping, 0, 0, Buffer.alloc(8))),
    ],
    [
      "sends data in the middle of a head",
      CODE.protocol,
      both(callHead(1, {}, 0), frame(FRAME.data, 0, 1, Buffer.alloc(8))),
    ],
    [
      "goes on with the head of another stream",
      CODE.protocol,
      both(callHead(1, {}, 0), frame(FRAME.continuation, FLAG.endHeaders, 3, callBlock())),
    ],
    ["goes on with a head without end", CODE.calm, both(callHead(1, {}, 0), many(50, frame(FRAME.continuation, 0, 1)))],
    ["names index 0", CODE.compression, block(Buffer.of(0x80))],
    ["names an index of nothing", CODE.compression, block(Buffer.of(0xbe))],
    ["sends a number that is too long", CODE.compression, block(hex("ffffffffffffffffff7f"))],
    ["sends a text longer than its block", CODE.compression, block(hex("000561"))],
    ["ends a block in a field", CODE.compression, block(hex("0001"))],
    ["sends a text that ends in no padding", CODE.compression, block(hex("08811e"))],
    ["sends a text that holds its end", CODE.compression, block(hex("0884ffffffff"))],
    ["makes the table too large", CODE.compression, block(hex("3fe21f"))],
    ["changes the table in the middle of a block", CODE.compression, block(hex("8820"))],
    ["sends empty data without end", CODE.calm, both(callHead(1), many(1_100, frame(FRAME.data, 0, 1)))],
    [
      "sends data of padding alone without end",
      CODE.calm,
      both(callHead(1), many(1_100, frame(FRAME.data, PADDED, 1, hex("020000")))),
    ],
    ["sends priorities without end", CODE.calm, many(30_000, frame(FRAME.priority, 0, 1, Buffer.alloc(5)))],
    ["sends frames of no type without end", CODE.calm, many(30_000, frame(77, 0, 1))],
    [
      "grows windows without end",
      CODE.calm,
      both(callHead(1), many(30_000, frame(FRAME.windowUpdate, 0, 1, uint32(1)))),
    ],
    ["acknowledges without end", CODE.calm, many(30_000, frame(FRAME.settings, FLAG.ack, 0))],
    [
      "answers pings that nobody sent without end",
      CODE.calm,
      many(30_000, frame(FRAME.ping, FLAG.ack, 0, Buffer.alloc(8))),
    ],
    [
      "speaks without end of a stream that is gone",
      CODE.calm,
      both(callHead(1), frame(FRAME.reset, 0, 1, uint32(8)), many(30_000, frame(FRAME.windowUpdate, 0, 1, uint32(1)))),
    ],
    [
      "calls and resets without end",
      CODE.calm,
      both(
        ...Array.from({ length: 300 }, (_, i) =>
          both(callHead(2 * i + 1), frame(FRAME.reset, 0, 2 * i + 1, uint32(8))),
        ),
      ),
    ],
    [
      "makes us reset its calls without end",
      CODE.calm,
      both(
        ...Array.from({ length: 300 }, (_, i) =>
          both(callHead(2 * i + 1), frame(FRAME.windowUpdate, 0, 2 * i + 1, uint32(0))),
        ),
      ),
    ],
  ])("%s", async (_, code, bytes) => {
    onTestFinished(replaceAmbient({ clock: new ManualClock() }));
    const { port, taken } = await openEcho();
    const good = sessionTo(port);
    expect((await post(good, "/echo", Buffer.from("before"))).body.toString()).toBe("before");
    const wire = await saying(port, both(HELLO, bytes));
    expect(goawayIn(await wire.closed)).toBe(code);
    expect((await post(good, "/echo", Buffer.from("after"))).body.toString()).toBe("after");
    await eventually(() => expect(taken.closed).toBe(taken.streams.length));
  });

  it.each<[string, Buffer]>([
    ["speaks before it has told its settings", both(PREFACE, frame(FRAME.ping, 0, 0, Buffer.alloc(8)))],
    ["acknowledges settings before it has told its own", both(PREFACE, frame(FRAME.settings, FLAG.ack, 0))],
  ])("%s", async (_, bytes) => {
    const { port } = await openEcho();
    expect(goawayIn(await (await saying(port, bytes)).closed)).toBe(CODE.protocol);
  });

  it("resets without end what was answered", async () => {
    onTestFinished(replaceAmbient({ clock: new ManualClock() }));
    const { port } = await openEcho();
    const wire = await saying(port, HELLO);
    let id = 1;
    let open = true;
    void wire.closed.finally(() => {
      open = false;
    });
    for (let i = 0; i < 300 && open; i++, id += 2) {
      wire.send(both(callHead(id), frame(FRAME.data, 0, id, Buffer.from("x"))));
      const answered = (bytes: Buffer) =>
        framesIn(bytes).find(({ type, stream }) => type === FRAME.data && stream === id);
      await wire.until(answered).catch(() => undefined);
      wire.send(frame(FRAME.reset, 0, id, uint32(8)));
    }
    expect(goawayIn(await wire.closed)).toBe(CODE.calm);
    expect(id).toBeGreaterThan(2 * 190);
  });
});

describe("a client loses the call, and not its connection, that", () => {
  it.each<[string, number, Buffer]>([
    [
      "sends more than the stream's window",
      CODE.flow,
      both(callHead(1), many(65, frame(FRAME.data, 0, 1, Buffer.alloc(16_384)))),
    ],
    [
      "grows the stream's window by nothing",
      CODE.protocol,
      both(callHead(1), frame(FRAME.windowUpdate, 0, 1, uint32(0))),
    ],
    [
      "grows the stream's window too far",
      CODE.flow,
      both(callHead(1), frame(FRAME.windowUpdate, 0, 1, uint32(2 ** 31 - 1))),
    ],
    ["sends data behind its end", CODE.closed, both(callHead(1, {}, END), frame(FRAME.data, 0, 1, Buffer.alloc(1)))],
    ["sends trailers behind its end", CODE.closed, both(callHead(1, {}, END), callHead(1, {}, END))],
    [
      "has trailers that end nothing",
      CODE.protocol,
      both(callHead(1), frame(FRAME.headers, FLAG.endHeaders, 1, fieldBlock({ a: "b" }))),
    ],
    ["has a path in its trailers", CODE.protocol, both(callHead(1), callHead(1, {}, END))],
    [
      "sends more than 64 KiB of fields in a few bytes",
      CODE.calm,
      block(both(literalKept("a", "b".repeat(3_000)), many(100, Buffer.of(0xbe)))),
    ],
    ["asks for nothing", CODE.protocol, block(fieldBlock({ ":method": "GET", ":scheme": "http" }))],
    ["shouts", CODE.protocol, callHead(1, { "X-Loud": "1" }, END)],
    ["speaks of connections", CODE.protocol, callHead(1, { "transfer-encoding": "chunked" }, END)],
    ["sends less than it promised", CODE.protocol, callHead(1, { "content-length": "5" }, END)],
  ])("%s", async (_, code, bytes) => {
    const { port } = await openEcho({ deaf: true });
    const wire = await saying(port, both(HELLO, bytes));
    const reset = await wire.until((got) => framesIn(got).find(({ type }) => type === FRAME.reset));
    expect([reset.stream, reset.payload.readUInt32BE(0)]).toEqual([1, code]);
    // What it says after that on the stream that is gone reaches nobody, and harms nobody.
    wire.send(
      both(
        frame(FRAME.data, 0, 1, Buffer.alloc(100)),
        frame(FRAME.windowUpdate, 0, 1, uint32(1)),
        callHead(1, {}, END),
      ),
    );
    wire.send(both(frame(FRAME.reset, 0, 1, uint32(8)), request(3, "/next")));
    await wire.until((got) => endOf(got, 3));
    expect(framesIn(wire.received()).find(({ stream }) => stream === 3)?.type).toBe(FRAME.headers);
    expect(goawayIn(wire.received())).toBeUndefined();
  });
});

it("forgets nothing of the table that blocks of gone, refused and late streams have changed", async () => {
  const { port, taken } = await openEcho({ maxSessionStreams: 1, deaf: true });
  const kept = (name: string, value: string): Buffer => both(callBlock(), literalKept(name, value));
  const wire = await saying(
    port,
    both(
      HELLO,
      frame(FRAME.headers, END, 1, kept("x-a", "one")),
      frame(FRAME.headers, END, 3, kept("x-b", "refused")),
      frame(FRAME.headers, END, 1, both(literalKept("x-a", "two"))),
      frame(FRAME.reset, 0, 1, uint32(8)),
    ),
  );
  await wire.until((got) => framesIn(got).find(({ type, stream }) => type === FRAME.reset && stream === 3));
  // The newest is "x-a: two", of trailers that came too late.
  wire.send(frame(FRAME.headers, END, 5, both(callBlock(), Buffer.of(0xbe))));
  await eventually(() => expect(taken.events).toContain("1 head two"));
});
