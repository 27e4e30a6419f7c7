import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { STREAM_WINDOW } from "../../../../src/fast/http2-client/stream.ts";
import { eventually } from "../../../support/eventually.ts";
import { SERVER_HELLO, startBareServer } from "../../../support/h2-server.ts";
import { FRAME, frame, uint32 } from "../../../support/wire-client.ts";
import { beginEach, connectTo, echo, endEach, link, listen, noise, open, settings } from "./caller.ts";

beforeEach(beginEach);
afterEach(endEach);

describe("flow control", () => {
  it("sends byte by byte to a server whose windows hold one byte", async () => {
    link.serve = echo;
    await listen({ initialWindowSize: 1 });
    const heard = open();
    heard.stream?.end(noise(1));
    await heard.closed; // its settings are known now
    const slow = open();
    slow.stream?.write(noise(150, 2));
    slow.stream?.end(noise(150, 3));
    await slow.closed;
    expect(slow.bytes.equals(Buffer.concat([noise(150, 2), noise(150, 3)]))).toBe(true);
  });

  it.each([1, 7, 5_000, 1 << 20])(
    "sends messages in pieces whole where the window has %i bytes, beside streams that are given up",
    async (initialWindowSize) => {
      link.serve = echo;
      await listen({ initialWindowSize });
      const sizes = initialWindowSize < 100 ? [40, 1, 90, 3] : [150, 6_000, 1, 20_000, 4_097, 16_384];
      const message = (seed: number): Buffer[] => sizes.map((size, i) => noise(size, seed + i));
      const heard = Array.from({ length: 6 }, () => open());
      for (const [i, { stream }] of heard.entries()) {
        stream?.write(message(i));
        if (i % 3 === 2) stream?.cancel();
        else {
          stream?.write(message(i + 10));
          stream?.end(noise(5, i));
        }
      }
      for (const [i, each] of heard.entries()) {
        if (i % 3 === 2) continue;
        await each.closed;
        expect(each.bytes.equals(Buffer.concat([...message(i), ...message(i + 10), noise(5, i)]))).toBe(true);
      }
    },
  );

  it("follows windows that the server changes in mid-stream, below zero too", async () => {
    const bare = await startBareServer((heard, { type, flags, stream }, index) => {
      if (index === 0) heard.send(settings(4, 100), frame(FRAME.settings, 1, 0));
      if (type === FRAME.settings && (flags & 1) === 1 && index > 3) marks.push(sent());
      if (type === FRAME.headers) streams.push(stream);
    });
    const streams: number[] = [];
    const marks: number[] = [];
    const sent = (): number =>
      bare.connections[0]!.frames()
        .filter(({ type }) => type === FRAME.data)
        .reduce((sum, { payload }) => sum + payload.length, 0);
    link.connection = connectTo(Number(bare.url.port));
    const heard = open();
    heard.stream?.end(noise(1_000));
    await eventually(() => expect(sent()).toBe(1_000)); // what was sent before the settings came counts
    await eventually(() =>
      expect(bare.connections[0]?.frames()).toContainEqual(expect.objectContaining({ type: FRAME.settings, flags: 1 })),
    );
    const second = open();
    second.stream?.write(noise(1_000));
    await eventually(() => expect(sent()).toBe(1_100));
    const [server] = bare.connections;
    server?.send(settings(4, 40)); // sixty below zero
    server?.send(frame(FRAME.windowUpdate, 0, 3, uint32(60)), frame(FRAME.ping, 0, 0, Buffer.alloc(8)));
    await eventually(() => expect(server?.frames().at(-1)?.type).toBe(FRAME.ping));
    expect(sent()).toBe(1_100);
    server?.send(frame(FRAME.windowUpdate, 0, 3, uint32(5)));
    await eventually(() => expect(sent()).toBe(1_105));
    server?.send(settings(4, 10_000));
    await eventually(() => expect(sent()).toBe(2_000));
    expect(streams).toEqual([1, 3]);
    await bare.close();
  });

  it("sends large messages in frames no larger than the server takes, and shares the way among streams", async () => {
    const largest: number[] = [];
    const order: number[] = [];
    const bare = await startBareServer((heard, { type, stream, payload }, index) => {
      if (index === 0) heard.send(Buffer.concat([settings(5, 20_000), settings(4, 2 ** 20)]));
      if (type !== FRAME.data) return;
      largest.push(payload.length);
      order.push(stream);
      heard.send(frame(FRAME.windowUpdate, 0, 0, uint32(payload.length)));
    });
    link.connection = connectTo(Number(bare.url.port));
    const probe = open();
    await eventually(() =>
      expect(bare.connections[0]?.frames().some(({ flags, type }) => type === FRAME.settings && flags === 1)).toBe(
        true,
      ),
    );
    const both = [open(), open()];
    for (const heard of both) heard.stream?.end(noise(400_000));
    await eventually(() => expect(largest.reduce((sum, bytes) => sum + bytes, 0)).toBe(800_000));
    expect(Math.max(...largest)).toBe(20_000);
    const turns = order.filter((stream, i) => stream !== order[i - 1]).length;
    expect(turns).toBeGreaterThan(10);
    probe.stream?.cancel();
    await bare.close();
  });

  it("lets a stalled reader hold its window and no more, while others go on", async () => {
    link.serve = (stream, headers) => {
      if (headers[":path"] !== "/much") return echo(stream);
      stream.respond({ ":status": 200 });
      const more = (): void => {
        if (!stream.destroyed) stream.write(Buffer.alloc(65_536), more);
      };
      more();
    };
    await listen();
    const stalled = open("/much");
    stalled.reads = false;
    await eventually(() => expect(stalled.bytes.length).toBe(STREAM_WINDOW));
    for (let i = 0; i < 3; i++) {
      const other = open();
      other.stream?.end(noise(2_000_000));
      await other.closed;
      expect(other.bytes.length).toBe(2_000_000);
    }
    expect(stalled.bytes.length).toBe(STREAM_WINDOW);
    stalled.stream?.release(STREAM_WINDOW);
    await eventually(() => expect(stalled.bytes.length).toBe(2 * STREAM_WINDOW));
    stalled.stream?.cancel();
  });

  it("gives room back for padding", async () => {
    const bare = await startBareServer((heard, { type }, index) => {
      if (index === 0) heard.send(SERVER_HELLO);
      if (type !== FRAME.headers) return;
      heard.send(frame(FRAME.headers, 4, 1, Buffer.of(0x88)));
      const padded = frame(FRAME.data, 8, 1, Buffer.concat([Buffer.of(255), Buffer.alloc(256)]));
      for (let i = 0; i < 6_000; i++) heard.send(padded);
    });
    link.connection = connectTo(Number(bare.url.port));
    const heard = open();
    await eventually(() => expect(heard.bytes.length).toBe(6_000));
    await bare.close();
  });
});
