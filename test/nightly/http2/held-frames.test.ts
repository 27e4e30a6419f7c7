/** What a caller sends while its call waits: held in few pieces, whole and in order. */
import { expect, it } from "vitest";
import type { CallStream } from "../../../src/fast/http2/call.ts";
import { fastHttp2 } from "../../../src/fast/http2/server.ts";
import { eventually } from "../../support/eventually.ts";
import { FLAG, FRAME, frame, HELLO } from "../../support/wire-client.ts";
import { seeded } from "../../unit/codecs/fuzz.ts";
import { open, saying } from "../../edge/port-caller.ts";
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
