import { expect, it } from "vitest";
import { FrameReader } from "../../../src/fast/http2-frames/frames.ts";
import { frame } from "../../support/wire-client.ts";
import { seeded } from "../../unit/codecs/fuzz.ts";

/** What a reader tells, pieces of one DATA frame together. */
function eventsOf(chunks: Iterable<Buffer>): string[] {
  const events: string[] = [];
  let data = "";
  const reader = new FrameReader({
    dataBegins: (stream, length) => {
      events.push(`data ${stream} ${length}`);
      data = "";
    },
    data: (stream, bytes) => {
      data += `${stream}:${bytes.toString("hex")}`.slice(data === "" ? 0 : String(stream).length + 1);
    },
    dataEnds: (stream, flags, padding) => events.push(`${data} ends ${stream} ${flags} ${padding}`),
    frame: (type, flags, stream, payload) => events.push(`${type} ${flags} ${stream} ${payload.toString("hex")}`),
  });
  for (const chunk of chunks) reader.push(chunk);
  return events;
}

it("tells the same of the same bytes, however they are cut", () => {
  const random = seeded(11);
  const upTo = (limit: number): number => Math.floor(random() * limit);
  for (let round = 0; round < 200; round++) {
    const frames = Array.from({ length: 1 + upTo(10) }, () => {
      const payload = Buffer.from(
        Uint8Array.from({ length: upTo(5) === 0 ? upTo(16_000) : upTo(40) }, () => upTo(256)),
      );
      if (upTo(3) > 0) return frame(upTo(10), upTo(256), upTo(2 ** 31), payload);
      const padding = upTo(Math.min(256, payload.length + 1));
      return frame(0, 8 | upTo(2), upTo(9), Buffer.concat([Buffer.of(padding), payload]));
    }).filter((bytes) => bytes[3] !== 0 || (bytes[4]! & 8) === 0 || (bytes[9] ?? 1e9) < bytes.readUIntBE(0, 3));
    const all = Buffer.concat(frames);
    const whole = eventsOf([all]);
    const cuts: Buffer[] = [];
    const most = [1, 3, 20, 2_000, 20_000][upTo(5)]!;
    for (let at = 0; at < all.length; ) {
      const next = at + 1 + upTo(most);
      cuts.push(all.subarray(at, next));
      at = next;
    }
    expect(eventsOf(cuts)).toEqual(whole);
    expect(eventsOf(frames)).toEqual(whole);
  }
});

it("hands on what a DATA frame carries without copying it", () => {
  const chunk = Buffer.concat([frame(0, 0, 1, Buffer.from("abc")), frame(0, 8, 1, Buffer.from("\x02dexy"))]);
  const seen: Buffer[] = [];
  const nothing = (): void => undefined;
  const reader = new FrameReader({
    dataBegins: nothing,
    dataEnds: nothing,
    frame: nothing,
    data: (_, b) => seen.push(b),
  });
  reader.push(chunk);
  expect(seen.map(String)).toEqual(["abc", "de"]);
  for (const bytes of seen) expect(bytes.buffer).toBe(chunk.buffer);
});

it("tells nothing after it was stopped, not even of what is in hand", () => {
  const told: number[] = [];
  const nothing = (): void => undefined;
  const reader = new FrameReader({
    dataBegins: nothing,
    data: () => reader.stop(),
    dataEnds: (stream) => told.push(stream),
    frame: (type) => told.push(type),
  });
  reader.push(Buffer.concat([frame(6, 0, 0, Buffer.alloc(8)), frame(0, 1, 1, Buffer.alloc(2)), frame(6, 0, 0)]));
  expect(told).toEqual([6]);
});
