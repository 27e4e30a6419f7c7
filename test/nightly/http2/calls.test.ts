/** Calls on sessions of our own, against node's client and byte by byte: every shape, flow control both ways, and every kind of end. */
import { constants } from "node:http2";
import { describe, expect, it, onTestFinished } from "vitest";
import { saying } from "../../edge/port-caller.ts";
import { replaceAmbient } from "../../support/ambient.ts";
import { eventually } from "../../support/eventually.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import {
  endOf,
  FLAG,
  FRAME,
  frame,
  framesIn,
  goawayIn,
  HELLO,
  lastStreamsIn,
  pongTo,
  uint32,
} from "../../support/wire-client.ts";
import { seeded } from "../../unit/codecs/fuzz.ts";
import { callHead, openEcho, post, sessionTo } from "./echo.ts";

const noise = (bytes: number, seed = 1): Buffer => {
  const random = seeded(seed);
  return Buffer.from(Uint8Array.from({ length: bytes }, () => Math.floor(random() * 256)));
};
const END = FLAG.endHeaders | FLAG.endStream;
const setting = (id: number, value: number): Buffer =>
  frame(FRAME.settings, 0, 0, Buffer.concat([Buffer.from([0, id]), uint32(value)]));

it("sends back what comes, of every size, with a head and trailers", async () => {
  const { port, taken } = await openEcho();
  const session = sessionTo(port);
  for (const size of [0, 1, 5_000, 16_384, 300_000, 3_000_000]) {
    const heard = await post(session, "/echo", noise(size, size + 1));
    expect(heard.head).toMatchObject({ ":status": 200, "x-kind": "echo" });
    expect(heard.trailers).toEqual(expect.objectContaining({ "x-last": "yes" }));
    expect(heard.body.equals(noise(size, size + 1))).toBe(true);
  }
  expect(taken.closed).toBe(6);
});

it("carries a thousand calls on one connection, each with its own answer", async () => {
  const { port, taken } = await openEcho();
  const session = sessionTo(port);
  await post(session, "/echo", noise(1));
  const all = await Promise.all(Array.from({ length: 1_000 }, (_, i) => post(session, "/echo", noise(i, i + 1))));
  for (const [i, { body }] of all.entries()) expect(body.equals(noise(i, i + 1))).toBe(true);
  expect(taken.closed).toBe(1_001);
});

it("holds sixty-four conversations open on one connection, and answers each as it is asked", async () => {
  const { port } = await openEcho();
  const session = sessionTo(port);
  const loops = Array.from({ length: 64 }, () =>
    session.request({ ":method": "POST", ":path": "/echo" }, { endStream: false }),
  );
  const heard = loops.map(() => "");
  loops.forEach((loop, i) => {
    loop.on("data", (bytes) => {
      heard[i] += bytes;
    });
  });
  for (let round = 0; round < 20; round++) {
    loops.forEach((loop, i) => {
      loop.write(`${i}:${round} `);
    });
    await eventually(() => expect(heard.every((text, i) => text.endsWith(`${i}:${round} `))).toBe(true));
  }
  for (const loop of loops) loop.end();
  await Promise.all(loops.map((loop) => new Promise((resolve) => loop.once("close", resolve))));
});

it("tells the same of the same bytes, however they are cut", async () => {
  const random = seeded(5);
  const upTo = (limit: number): number => Math.floor(random() * limit);
  const padded = (id: number, bytes: Buffer, flags = 0): Buffer =>
    frame(FRAME.data, 8 | flags, id, Buffer.concat([Buffer.of(3), bytes, Buffer.alloc(3)]));
  const parts: Buffer[] = [HELLO, frame(FRAME.settings, FLAG.ack, 0)];
  for (let id = 1; id < 40; id += 2) {
    parts.push(callHead(id, { "x-a": `v${id}` }), frame(77, 0, id, noise(upTo(30))));
    parts.push(frame(FRAME.data, 0, id, Buffer.from(`a${id}`.padEnd(upTo(3_000), "."))));
    parts.push(frame(FRAME.priority, 0, id, Buffer.alloc(5)), padded(id, Buffer.from(`b${id}`)));
    if (upTo(3) === 0) parts.push(frame(FRAME.reset, 0, id, uint32(8)));
    else
      parts.push(upTo(2) === 0 ? padded(id, Buffer.alloc(0), FLAG.endStream) : frame(FRAME.data, FLAG.endStream, id));
  }
  const all = Buffer.concat(parts);
  const joined = (events: readonly string[]): string[] => {
    // Bytes come in whatever pieces they arrived.
    const calls = new Map<string, string>();
    for (const event of events) {
      const [id = ""] = event.split(" ");
      const rest = event.slice(id.length + 1);
      const isMark = /^(?:head|end$|closed$)/.test(rest);
      calls.set(id, `${calls.get(id) ?? ""}${isMark ? `|${rest}|` : rest.replaceAll(".", "")}`);
    }
    return [...calls.values()];
  };
  const seen: string[][] = [];
  for (const most of [all.length, 1, 7, 100, 5_000]) {
    const { port, taken } = await openEcho({ deaf: false, patience: { burst: 1_000, perSecond: 1 } });
    const wire = await saying(port, "");
    wire.socket.setNoDelay(true);
    for (let at = 0; at < all.length; ) {
      const end = at + (most === all.length ? most : 1 + upTo(most));
      wire.send(all.subarray(at, end));
      at = end;
      if (most < 5_000 && upTo(most === 1 ? 8 : 2) === 0) await new Promise(setImmediate);
    }
    await eventually(() => expect(taken.closed).toBe(20));
    seen.push(joined(taken.events));
  }
  expect(seen[0]).toHaveLength(20);
  for (const each of seen) expect(each).toEqual(seen[0]);
});

describe("a length that the head names", () => {
  const padded = (id: number, text: string, flags = 0): Buffer =>
    frame(FRAME.data, 8 | flags, id, Buffer.concat([Buffer.of(3), Buffer.from(text), Buffer.alloc(3)]));
  const call = async (length: string, ...parts: Buffer[]): Promise<string> => {
    const { port, taken } = await openEcho();
    const wire = await saying(port, Buffer.concat([HELLO, callHead(1, { "content-length": length }), ...parts]));
    const { type, payload } = await wire.until((bytes) => endOf(bytes, 1));
    await eventually(() => expect(taken.closed).toBe(1));
    return type === FRAME.reset ? `reset ${payload.readUInt32BE()}` : "answered";
  };

  it("is held against the body without its padding", async () => {
    expect(await call("5", padded(1, "ab"), padded(1, "cde", FLAG.endStream))).toBe("answered");
    expect(await call("0", frame(FRAME.data, FLAG.endStream, 1))).toBe("answered");
  });

  it("resets a call whose body is longer or shorter", async () => {
    const wrong = `reset ${constants.NGHTTP2_PROTOCOL_ERROR}`;
    expect(await call("4", padded(1, "ab"), padded(1, "cde"))).toBe(wrong);
    expect(await call("6", padded(1, "ab"), padded(1, "cde", FLAG.endStream))).toBe(wrong);
    expect(await call("1", frame(FRAME.data, FLAG.endStream, 1))).toBe(wrong);
  });
});

describe("flow control", () => {
  it("sends byte by byte to a client whose windows hold one byte", async () => {
    const { port } = await openEcho();
    const session = sessionTo(port, { initialWindowSize: 1 });
    const heard = await post(session, "/echo", noise(300));
    expect([heard.body.equals(noise(300)), heard.trailers["x-last"]]).toEqual([true, "yes"]);
  });

  it("follows windows that the client changes in mid-stream, below zero too", async () => {
    const { port } = await openEcho();
    const sent = (bytes: Buffer): number =>
      framesIn(bytes).reduce((sum, { type, payload }) => sum + (type === FRAME.data ? payload.length : 0), 0);
    const wire = await saying(
      port,
      Buffer.concat([HELLO, setting(4, 100), callHead(1), frame(FRAME.data, 0, 1, noise(1_000))]),
    );
    const reached = (count: number) => wire.until((bytes) => (sent(bytes) >= count ? sent(bytes) : undefined));
    const answered = (id: number) =>
      wire.until((bytes) => framesIn(bytes).find(({ type, payload }) => type === FRAME.ping && payload[0] === id));
    expect(await reached(100)).toBe(100);
    wire.send(
      Buffer.concat([
        setting(4, 40),
        frame(FRAME.windowUpdate, 0, 1, uint32(60)),
        frame(FRAME.ping, 0, 0, Buffer.alloc(8, 1)),
      ]),
    );
    await answered(1);
    expect(sent(wire.received())).toBe(100);
    wire.send(frame(FRAME.windowUpdate, 0, 1, uint32(5)));
    expect(await reached(105)).toBe(105);
    wire.send(setting(4, 10_000));
    expect(await reached(1_000)).toBe(1_000);
  });

  it("holds no more than a window for a caller who reads nothing, and serves the others of his connection", async () => {
    const { port, taken } = await openEcho();
    const session = sessionTo(port, { initialWindowSize: 65_535 });
    const stalled = session.request({ ":method": "POST", ":path": "/echo" }, { endStream: false });
    stalled.on("error", () => undefined).pause();
    let unsent = 0;
    const block = Buffer.alloc(65_536);
    while (stalled.write(block) && unsent < 64) unsent++;
    const push = (): void => {
      if (!stalled.destroyed && stalled.write(block)) setImmediate(push);
    };
    stalled.on("drain", push);
    // It stands still, with its request stopped by its own window.
    let before = -1;
    const heard = (): number => taken.streams[0]?.queued ?? 0;
    await eventually(() => {
      const now = heard();
      const isSame = now === before;
      before = now;
      expect([isSame, now > 0]).toEqual([true, true]);
    });
    expect(heard()).toBeLessThan(1 << 20);
    for (let i = 0; i < 3; i++) expect((await post(session, "/echo", noise(40_000))).body).toHaveLength(40_000);
    let got = 0;
    stalled.on("data", (bytes) => {
      got += bytes.length;
    });
    stalled.resume();
    await eventually(() => expect(got).toBeGreaterThan(1 << 20));
    stalled.close(8);
  });

  it("gives room back for padding", async () => {
    const { port, taken } = await openEcho({ deaf: false });
    const padded = frame(FRAME.data, 8, 1, Buffer.concat([Buffer.of(255), Buffer.from("x"), Buffer.alloc(255)]));
    const wire = await saying(port, Buffer.concat([HELLO, callHead(1)]));
    for (let i = 0; i < 6_000; i++) wire.send(padded);
    wire.send(frame(FRAME.data, FLAG.endStream, 1));
    expect((await wire.until((bytes) => endOf(bytes, 1))).type).toBe(FRAME.headers);
    expect(taken.events.filter((event) => event === "0 x").length).toBe(6_000);
  });
});

describe("an end", () => {
  it("by the drain of the port lets open calls finish, and begins none that its farewell has not named", async () => {
    const { port, taken, close } = await openEcho();
    const wire = await saying(
      port,
      Buffer.concat([HELLO, callHead(1), callHead(3), frame(FRAME.data, 0, 1, Buffer.from("a"))]),
    );
    await eventually(() => expect(taken.streams).toHaveLength(2));
    const closed = close();
    wire.send(await wire.until(pongTo));
    await wire.until((bytes) => lastStreamsIn(bytes).includes(3) || undefined);
    wire.send(Buffer.concat([callHead(5, { "x-a": "late" }), frame(FRAME.data, 0, 5, Buffer.from("z"))]));
    wire.send(
      Buffer.concat([frame(FRAME.data, FLAG.endStream, 1, Buffer.from("b")), frame(FRAME.data, FLAG.endStream, 3)]),
    );
    const bytes = await wire.closed;
    const frames = framesIn(bytes);
    expect([lastStreamsIn(bytes), goawayIn(bytes)]).toEqual([[2 ** 31 - 1, 3], 0]);
    for (const id of [1, 3])
      expect(frames.findLast(({ stream }) => stream === id)).toMatchObject({ type: FRAME.headers, flags: END });
    expect(frames.filter(({ stream }) => stream === 5)).toEqual([]);
    expect(taken.closed).toBe(2);
    await closed;
  });

  it.each<[string, Buffer]>([
    ["in a preface", HELLO.subarray(0, 10)],
    ["in settings", HELLO.subarray(0, 30)],
    ["behind its hello", HELLO],
    ["in a head", Buffer.concat([HELLO, callHead(1).subarray(0, 20)])],
    ["between the pieces of a head", Buffer.concat([HELLO, callHead(1, {}, 0)])],
    ["behind a head", Buffer.concat([HELLO, callHead(1)])],
    ["in data", Buffer.concat([HELLO, callHead(1), frame(FRAME.data, 0, 1, Buffer.alloc(100)).subarray(0, 50)])],
    ["behind data", Buffer.concat([HELLO, callHead(1), frame(FRAME.data, 0, 1, Buffer.alloc(100))])],
  ])("of the connection %s leaves nothing open", async (_, bytes) => {
    const { port, taken, close } = await openEcho();
    for (const how of ["destroy", "end", "reset"] as const) {
      const wire = await saying(port, bytes);
      await eventually(() => expect(wire.socket.bytesWritten).toBe(bytes.length));
      if (how === "end") wire.socket.end();
      else if (how === "reset") wire.socket.resetAndDestroy();
      else wire.socket.destroy();
    }
    await close();
    expect(taken.closed).toBe(taken.streams.length);
  });

  it("by the caller is heard once, and nothing behind it", async () => {
    const { port, taken } = await openEcho();
    const wire = await saying(port, Buffer.concat([HELLO, callHead(1), frame(FRAME.data, 0, 1, Buffer.from("a"))]));
    await wire.until((bytes) => framesIn(bytes).find(({ type }) => type === FRAME.data));
    wire.send(Buffer.concat([frame(FRAME.reset, 0, 1, uint32(8)), frame(FRAME.data, 0, 1, Buffer.from("b"))]));
    await eventually(() => expect(taken.events).toEqual(["0 head ", "0 a", "0 closed"]));
    taken.streams[0]?.write(Buffer.from("x"));
    taken.streams[0]?.reset(8);
    wire.send(callHead(3, {}, END));
    await wire.until((bytes) => endOf(bytes, 3));
    expect(taken.events.slice(3)).toEqual(["1 head ", "1 end", "1 closed"]);
  });

  it("by a clock: a request that does not come is answered and reset, a conversation is left alone", async () => {
    const clock = new ManualClock();
    onTestFinished(replaceAmbient({ clock }));
    const late = await openEcho({ requestTimeoutMs: 1_000, endless: () => false });
    const free = await openEcho({ requestTimeoutMs: 1_000 });
    const [wire, other] = [
      await saying(late.port, Buffer.concat([HELLO, callHead(1, { "content-type": "application/grpc" })])),
      await saying(free.port, Buffer.concat([HELLO, callHead(1)])),
    ];
    await eventually(() => expect([late.taken.streams.length, free.taken.streams.length]).toEqual([1, 1]));
    await clock.advance(899);
    expect(endOf(wire.received(), 1)).toBeUndefined();
    await clock.advance(201);
    expect(await wire.until((bytes) => endOf(bytes, 1))).toMatchObject({ type: FRAME.headers, flags: END });
    await clock.advance(100);
    const reset = await wire.until((bytes) => framesIn(bytes).find(({ type }) => type === FRAME.reset));
    expect(reset.payload).toEqual(uint32(0));
    await clock.advance(5_000);
    expect([late.taken.closed, free.taken.closed, goawayIn(other.received())]).toEqual([1, 0, undefined]);
  });

  it("by rest comes with a farewell that blames nobody", async () => {
    const clock = new ManualClock();
    onTestFinished(replaceAmbient({ clock }));
    const { port } = await openEcho({ idleTimeoutMs: 5_000 });
    const wire = await saying(port, Buffer.concat([HELLO, frame(FRAME.settings, FLAG.ack, 0), callHead(1, {}, END)]));
    await wire.until((bytes) => endOf(bytes, 1));
    await clock.advance(11_000);
    expect(goawayIn(await wire.closed)).toBe(constants.NGHTTP2_NO_ERROR);
  });
});

it("says everything of one turn in one piece, be it of a hundred calls", async () => {
  const { port, taken } = await openEcho();
  const wire = await saying(
    port,
    Buffer.concat([HELLO, ...Array.from({ length: 100 }, (_, i) => callHead(2 * i + 1))]),
  );
  await eventually(() => expect(taken.streams).toHaveLength(100));
  let pieces = 0;
  wire.socket.on("data", () => pieces++);
  for (const stream of taken.streams) for (let i = 0; i < 3; i++) stream.write(Buffer.alloc(30));
  await wire.until((bytes) => framesIn(bytes).filter(({ type }) => type === FRAME.data).length === 300 || undefined);
  expect(pieces).toBe(1);
});
