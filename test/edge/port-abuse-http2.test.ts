import { constants } from "node:http2";
import { describe, expect, it } from "vitest";
import { ioClock } from "../../src/clock.ts";
import { setClock } from "../support/clocks.ts";
import { eventually } from "../support/eventually.ts";
import { ManualClock } from "../support/manual-clock.ts";
import {
  answersIn,
  endOf,
  FLAG,
  FRAME,
  fieldBlock,
  frame,
  framesIn,
  goawayIn,
  HELLO,
  request,
  uint32,
  type Wire,
} from "../support/wire-client.ts";
import { GET, goodClient, listen, saying, start } from "./port-caller.ts";

describe("an HTTP/2 session that costs more than it asks", () => {
  const CALM = constants.NGHTTP2_ENHANCE_YOUR_CALM;
  const HEADERS_ONLY = frame(FRAME.headers, FLAG.endStream, 1, fieldBlock({ ":method": "GET" }));
  const times = (count: number, make: (nth: number) => Buffer): Buffer =>
    Buffer.concat(Array.from({ length: count }, (_, i) => make(i)));
  const reset = (stream: number): Buffer => frame(FRAME.reset, 0, stream, uint32(constants.NGHTTP2_CANCEL));

  it.each<[string, number | undefined, Buffer]>([
    [
      "opens and resets streams",
      undefined,
      times(2000, (i) => Buffer.concat([request(2 * i + 1, "/"), reset(2 * i + 1)])),
    ],
    [
      "opens streams and makes us reset them",
      undefined,
      times(2000, (i) =>
        Buffer.concat([
          request(2 * i + 1, "/", { method: "POST", end: false, more: { "content-length": "1" } }),
          frame(FRAME.data, 0, 2 * i + 1, Buffer.from("two")),
        ]),
      ),
    ],
    ["pings without end", CALM, times(2000, () => frame(FRAME.ping, 0, 0, Buffer.alloc(8)))],
    ["sends settings without end", CALM, times(2000, () => frame(FRAME.settings, 0, 0))],
    [
      "continues its headers without end",
      undefined,
      Buffer.concat([HEADERS_ONLY, times(2000, () => frame(FRAME.continuation, 0, 1, fieldBlock({ x: "y" })))]),
    ],
    [
      "sends empty data without end",
      undefined,
      Buffer.concat([request(1, "/", { method: "POST", end: false }), times(3000, () => frame(FRAME.data, 0, 1))]),
    ],
    ["sends frames of no sense", undefined, frame(FRAME.data, 0, 0, Buffer.alloc(5))],
  ])("is closed when it %s, while a good client is served", async (_name, code, bytes) => {
    const { port } = await start();
    const good = await goodClient(port);
    expect(await good()).toBe("ok");
    const wire = await saying(port, Buffer.concat([HELLO, bytes]));
    let open = true;
    const goaway = wire.closed.then(goawayIn).finally(() => {
      open = false;
    });
    while (open) expect(await good()).toBe("ok");
    if (code !== undefined) expect(await goaway).toBe(code);
    expect(await good()).toBe("ok");
  });

  it("is stopped within a read that exceeds its reset budget", async () => {
    const { port, paths } = await start({ patience: { burst: 50, perSecond: 1 } });
    const flood = times(500, (i) => Buffer.concat([request(2 * i + 1, "/"), reset(2 * i + 1)]));
    const wire = await saying(port, Buffer.concat([HELLO, flood]));
    const goaway = framesIn(await wire.closed).find(({ type }) => type === FRAME.goaway);
    expect(goaway?.payload.readUInt32BE(0)).toBeLessThanOrEqual(2 * 50 + 1);
    expect(paths).toEqual([]);
  });

  /** Connections that are cut off one after the other. */
  async function cutOff(port: number, count: number): Promise<void> {
    const flood = times(500, (i) => Buffer.concat([request(2 * i + 1, "/"), reset(2 * i + 1)]));
    for (let i = 0; i < count; i++) await (await saying(port, Buffer.concat([HELLO, flood]))).closed;
  }
  const answered = (wire: Wire) => wire.until((bytes) => (bytes.length > 0 ? answersIn(bytes)[0] : undefined));

  it("does not delay its address after the first cuts", async () => {
    setClock(new ManualClock());
    const { port } = await start();
    await cutOff(port, 3);
    expect(await answered(await saying(port, GET))).toMatchObject({ status: 200 });
  });

  it("delays its address after repeated cuts, while open connections are served", async () => {
    const clock = new ManualClock();
    setClock(clock);
    const { port } = await start();
    const good = await goodClient(port);
    expect(await good()).toBe("ok");
    await cutOff(port, 4);
    const [first, second] = [await saying(port, GET), await saying(port, GET)];
    expect(await good()).toBe("ok");
    expect(await good()).toBe("ok");
    expect(first.received()).toHaveLength(0);
    await clock.advance(50);
    expect(await answered(first)).toMatchObject({ status: 200 });
    expect(second.received()).toHaveLength(0);
    await clock.advance(50);
    expect(await answered(second)).toMatchObject({ status: 200 });
  });

  it("delays its address by at most 0.5 s, and not after a while", async () => {
    const clock = new ManualClock();
    setClock(clock);
    const { port } = await start();
    await cutOff(port, 4);
    const many = await Promise.all(Array.from({ length: 40 }, () => saying(port, GET)));
    const heard = many.map(answered);
    await eventually(async () => {
      await clock.advance(500);
      expect(many.every((wire) => wire.received().length > 0)).toBe(true);
    });
    await Promise.all(heard);
    await clock.advance(20_000);
    expect(await answered(await saying(port, GET))).toMatchObject({ status: 200 });
  });

  it("does not delay an address shared by all callers", async () => {
    setClock(new ManualClock());
    const { port } = await start({ chargedAs: () => undefined });
    await cutOff(port, 6);
    expect(await answered(await saying(port, GET))).toMatchObject({ status: 200 });
  });

  it("does not delay its address at an allowed pace", async () => {
    const clock = new ManualClock();
    setClock(clock);
    const { port } = await start();
    const pongs = (count: number) => (bytes: Buffer) =>
      framesIn(bytes).filter(({ type, flags }) => type === FRAME.ping && flags === FLAG.ack)[count - 1];
    for (let session = 0; session < 6; session++) {
      const wire = await saying(port, Buffer.concat([HELLO, frame(FRAME.settings, FLAG.ack, 0)]));
      for (let i = 1; i <= 110; i++) {
        wire.send(frame(FRAME.ping, 0, 0, Buffer.alloc(8)));
        await wire.until(pongs(i));
        await clock.advance(20);
      }
      wire.socket.end();
      await wire.closed;
    }
    expect(await answered(await saying(port, GET))).toMatchObject({ status: 200 });
  });

  it("runs nothing for a stream reset in the same read", async () => {
    const { port, paths } = await start();
    const good = await saying(port, Buffer.concat([HELLO, request(1, "/reset"), reset(1), request(3, "/kept")]));
    await good.until((bytes) => endOf(bytes, 3));
    expect(paths).toEqual(["/kept"]);
  });

  it("is served while canceled calls and pings stay within the budget", async () => {
    const { port } = await start({ patience: { burst: 100, perSecond: 1 } });
    const costly = times(40, (i) =>
      Buffer.concat([request(2 * i + 1, "/"), reset(2 * i + 1), frame(FRAME.ping, 0, 0, Buffer.alloc(8))]),
    );
    const wire = await saying(port, Buffer.concat([HELLO, costly, request(1001, "/")]));
    expect(await wire.until((bytes) => endOf(bytes, 1001))).toMatchObject({ type: FRAME.data });
    expect(goawayIn(wire.received())).toBeUndefined();
  });

  it("shares one budget for canceled calls and pings", async () => {
    const { port } = await start({ patience: { burst: 100, perSecond: 1 } });
    const costly = times(60, (i) =>
      Buffer.concat([request(2 * i + 1, "/"), reset(2 * i + 1), frame(FRAME.ping, 0, 0, Buffer.alloc(8))]),
    );
    const wire = await saying(port, Buffer.concat([HELLO, costly]));
    expect(goawayIn(await wire.closed)).toBe(CALM);
  });

  it("regains its budget over time", async () => {
    let steady = 0;
    setClock({ wall: () => 0, steady: () => steady, after: () => () => undefined });
    const { port } = await start({ patience: { burst: 10, perSecond: 10 } });
    const pings = times(9, () => frame(FRAME.ping, 0, 0, Buffer.alloc(8)));
    const pongs = (count: number) => (bytes: Buffer) =>
      framesIn(bytes).filter(({ type }) => type === FRAME.ping)[count - 1];
    const wire = await saying(port, Buffer.concat([HELLO, pings]));
    await wire.until(pongs(9));
    steady += 1000;
    wire.send(pings);
    await wire.until(pongs(18));
    wire.send(pings);
    expect(goawayIn(await wire.closed)).toBe(CALM);
  });

  it("is closed for thousands of frames of a few bytes, and not for as many of useful size", async () => {
    setClock({ wall: () => 0, steady: () => 0, after: (ms, run) => ioClock.after(ms, run) });
    const { port } = await start();
    const opening = Buffer.concat([HELLO, request(1, "/", { method: "POST", end: false })]);
    const ping = frame(FRAME.ping, 0, 0, Buffer.alloc(8));
    const isPong = ({ type, flags }: { type: number; flags: number }) => type === FRAME.ping && flags === FLAG.ack;
    const sendPieces = async (size: number) => {
      const wire = await saying(port, opening);
      const pieces = times(13_000, () => frame(FRAME.data, 0, 1, Buffer.alloc(size)));
      for (let i = 1; i <= 2; i++) {
        wire.send(Buffer.concat([pieces, ping]));
        await Promise.race([wire.closed, wire.until((bytes) => framesIn(bytes).filter(isPong)[i - 1])]);
      }
      return wire;
    };
    expect(goawayIn(await (await sendPieces(15)).closed)).toBe(CALM);
    const useful = await sendPieces(16);
    useful.send(frame(FRAME.data, FLAG.endStream, 1));
    expect(await useful.until((bytes) => endOf(bytes, 1))).toMatchObject({ type: FRAME.data });
  });

  it("has a stream with oversized headers refused and others served", async () => {
    const { port, paths } = await start();
    const more = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`x-${i}`, "y".repeat(140)]));
    const wire = await saying(port, Buffer.concat([HELLO, request(1, "/big", { more }), request(3, "/small")]));
    await wire.until((bytes) => endOf(bytes, 3));
    const { payload } = await wire.until((bytes) => endOf(bytes, 1));
    expect(JSON.parse(payload.toString())).toMatchObject({ error: { status: 431, code: "headers_too_large" } });
    expect(paths).toEqual(["/small"]);
  });

  it("has streams above its limit refused for retry, and others served", async () => {
    const ends: (() => unknown)[] = [];
    const port = await listen((_request, response) => void ends.push(() => response.end("ok")), {
      maxSessionStreams: 2,
    });
    const wire = await saying(port, Buffer.concat([HELLO, times(3, (i) => request(2 * i + 1, "/"))]));
    const refused = await wire.until((bytes) => endOf(bytes, 5));
    expect(refused).toMatchObject({ type: FRAME.reset, payload: uint32(constants.NGHTTP2_REFUSED_STREAM) });
    await expect.poll(() => ends.length).toBe(2);
    for (const end of ends) end();
    for (const stream of [1, 3])
      expect(await wire.until((bytes) => endOf(bytes, stream))).toMatchObject({ type: FRAME.data });
  });

  it("is closed if it never acknowledges settings", async () => {
    const clock = new ManualClock();
    setClock(clock);
    const { port } = await start({ headersTimeoutMs: 500 });
    const wire = await saying(port, Buffer.concat([HELLO, request(1, "/")]));
    expect(await wire.until((bytes) => endOf(bytes, 1))).toMatchObject({ type: FRAME.data });
    await clock.advance(500);
    await wire.closed;
  });
});
