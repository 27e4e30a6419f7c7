/** What a caller sends while its call waits: held in few pieces, whole and in order. */
import { constants } from "node:http2";
import { describe, expect, it } from "vitest";
import type { PortOptions } from "../../../src/edge/server/port.ts";
import type { CallStream } from "../../../src/fast/http2/call.ts";
import { fastHttp2 } from "../../../src/fast/http2/server.ts";
import { open, saying } from "../../edge/port-caller.ts";
import { eventually } from "../../support/eventually.ts";
import { endOf, FLAG, FRAME, frame, HELLO, request } from "../../support/wire-client.ts";
import { seeded } from "../../unit/codecs/fuzz.ts";
import { callHead } from "./echo.ts";

/** Sends frames of these sizes to a call that is paused, resumes it for `perTurn` pieces at a time, and tells what it received. */
async function heldBy(sizes: readonly number[], perTurn: number): Promise<{ pieces: Buffer[]; sent: Buffer }> {
  const pieces: Buffer[] = [];
  let stream: CallStream | undefined;
  const { port } = await open((_, response) => response.end(), {
    http2: fastHttp2({
      find: () => ({
        endless: true,
        open(opened) {
          stream = opened;
          opened.pause();
          const hearer = { end() {}, room() {}, closed() {} };
          return {
            ...hearer,
            data(bytes) {
              pieces.push(Buffer.from(bytes));
              if (pieces.length % perTurn === 0) opened.pause();
            },
          };
        },
      }),
    }),
  });
  const random = seeded(3);
  const sent = Buffer.from(
    Uint8Array.from({ length: sizes.reduce((sum, size) => sum + size, 0) }, () => random() * 256),
  );
  const wire = await saying(port, "");
  let at = 0;
  const frames = sizes.map((size) => {
    at += size;
    return frame(FRAME.data, 0, 1, sent.subarray(at - size, at));
  });
  wire.send(Buffer.concat([HELLO, callHead(1), ...frames, frame(FRAME.data, FLAG.endStream, 1)]));
  await eventually(() => expect(stream?.isWhole).toBe(true));
  await eventually(() => {
    stream?.resume();
    expect(pieces.reduce((sum, { length }) => sum + length, 0)).toBe(sent.length);
  });
  return { pieces, sent };
}

it("holds twenty thousand frames of one byte in two pieces while a call is paused", async () => {
  const { pieces, sent } = await heldBy(Array<number>(20_000).fill(1), 1);
  expect(Buffer.concat(pieces).equals(sent)).toBe(true);
  expect(pieces).toHaveLength(2);
});

it("keeps the order of small and large frames that came while a call was paused", async () => {
  const random = seeded(7);
  const sizes = Array.from({ length: 400 }, (_, i) =>
    i % 3 === 0 ? 1_000 + Math.floor(random() * 5_000) : 1 + (i % 7),
  );
  const { pieces, sent } = await heldBy(sizes, 3);
  expect(Buffer.concat(pieces).equals(sent)).toBe(true);
});

/** Without it node:http2 holds a client to the first window. */
const SETTINGS_ACK = frame(FRAME.settings, FLAG.ack, 0);

/** Sends a body in frames of so many bytes to a port whose handler does not read it, and a request behind it. */
async function unread(options: PortOptions, bytes: number, frames: number) {
  const { port } = await open((asked, response) => {
    if (asked.url === "/next") response.end();
  }, options);
  const wire = await saying(port, "");
  const head = request(1, "/held", { method: "POST", end: false });
  const body = Buffer.concat(Array<Buffer>(frames).fill(frame(FRAME.data, 0, 1, Buffer.alloc(bytes))));
  wire.send(Buffer.concat([HELLO, SETTINGS_ACK, head, body, request(3, "/next")]));
  return wire;
}

describe.each<[string, PortOptions]>([
  ["node:http2", {}],
  ["node:http2 behind the bridge", { http2: fastHttp2({ find: () => undefined }) }],
])("a body that nothing reads, by %s", (_, options) => {
  it("is ended with ENHANCE_YOUR_CALM when it comes in too many tiny frames", async () => {
    for (const bytes of [1, 10]) {
      const wire = await unread(options, bytes, 90_000);
      const { type, payload } = await wire.until((received) => endOf(received, 1));
      expect(type).toBe(FRAME.reset);
      expect(payload.readUInt32BE(0)).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    }
  });

  it("waits where its window is full of larger frames", async () => {
    const wire = await unread(options, 1_000, 1_000);
    await wire.until((received) => endOf(received, 3));
    expect(endOf(wire.received(), 1)).toBeUndefined();
  });
});

it("takes a body of many tiny frames that is read", async () => {
  let read = 0;
  const { port } = await open((asked, response) => {
    asked.on("data", (bytes: Buffer) => {
      read += bytes.length;
    });
    asked.once("end", () => response.end());
  }, {});
  const wire = await saying(port, "");
  const head = request(1, "/read", { method: "POST", end: false });
  wire.send(
    Buffer.concat([HELLO, SETTINGS_ACK, head, ...Array<Buffer>(40_000).fill(frame(FRAME.data, 0, 1, Buffer.alloc(1)))]),
  );
  wire.send(frame(FRAME.data, FLAG.endStream, 1));
  const end = await wire.until((received) => endOf(received, 1));
  expect({ isReset: end.type === FRAME.reset, read }).toEqual({ isReset: false, read: 40_000 });
});
