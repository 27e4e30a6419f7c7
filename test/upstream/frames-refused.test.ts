import { createHash } from "node:crypto";
import type { RequestListener } from "node:http";
import { afterEach, describe, expect, it } from "vitest";
import { steadyNow } from "../../src/clock.ts";
import { Reason, Refusal } from "../../src/errors.ts";
import { FrameSet } from "../../src/upstream/pictures/frames.ts";
import { setClock } from "../support/clocks.ts";
import { ManualClock } from "../support/manual-clock.ts";
import {
  closeEach,
  dataUrl,
  frameAt,
  gif,
  holdTurns,
  jpeg,
  openly,
  png,
  publicAgent,
  refusalOf,
  serve,
  setOf,
  WHOLE,
  webp,
} from "../support/pictures.ts";

afterEach(closeEach);

describe("a frame is refused", () => {
  const largeWebp = Buffer.concat([Buffer.from("RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0", "latin1"), Buffer.alloc(6)]);
  largeWebp.writeUIntLE(3840, 24, 3);
  largeWebp.writeUIntLE(2159, 27, 3);
  const bombHeader = Buffer.from(png);
  bombHeader.writeUInt32BE(30_000, 16);
  bombHeader.writeUInt32BE(30_000, 20);

  it.each([
    ["text", dataUrl(Buffer.from("there is no picture here, only a page of words")), "frame_not_an_image"],
    ["nothing", "data:image/png;base64,", "frame_not_an_image"],
    ["SVG", "data:image/svg+xml,<svg/>", "frame_not_an_image"],
    ["a GIF", dataUrl(gif), "frame_not_an_image"],
    ["a truncated PNG", dataUrl(png.subarray(0, -100)), "frame_truncated"],
    ["a truncated JPEG", dataUrl(jpeg.subarray(0, -100)), "frame_truncated"],
    ["a truncated WebP", dataUrl(webp.subarray(0, -100)), "frame_truncated"],
    ["a bomb of 900 megapixels", dataUrl(bombHeader), "frame_too_large"],
    ["a WebP beyond 4K, which can't be decoded row by row", dataUrl(largeWebp), "frame_too_large"],
    ["17 MiB", dataUrl(Buffer.concat([png, Buffer.alloc(17 * 2 ** 20)])), "frame_too_large"],
    ["broken base64", "data:image/png;base64,iVBO*", "frame_malformed"],
    ["a data URL without a comma", "data:image/png;base64", "frame_malformed"],
    ["a private address", "https://127.0.0.1/frame.png", "frame_address_refused"],
    ["a metadata address", "https://169.254.169.254/latest/meta-data/", "frame_address_refused"],
    ["a name that leads inside", "https://frames.example/frame.png", "frame_address_refused"],
    ["plain http", "http://frames.example/frame.png", "frame_address_refused"],
    ["a file", "file:///etc/passwd", "frame_address_refused"],
    ["no URL at all", "front.png", "frame_not_an_address"],
    ["bare base64", "iVBORw0KGgo=", "frame_not_an_address"],
    ["a port of another protocol", "https://frames.example:25/frame.png", "frame_port_refused"],
  ] as const)("for %s", async (_what, url, frameReason) => {
    const refusal = await refusalOf(setOf(url).ready());
    expect(refusal.frameReason).toBe(frameReason);
  });

  it.each([
    [
      "a status",
      (_: unknown, response: { writeHead(status: number): { end(): void } }) => response.writeHead(404).end(),
      "frame_unreachable",
    ],
    ["a reset", (incoming: { socket: { destroy(): void } }) => incoming.socket.destroy(), "frame_unreachable"],
  ] as const)("for %s instead of an image", async (_what, listener, frameReason) => {
    const { url } = await serve(listener as RequestListener);
    expect((await refusalOf(setOf(url, openly).bytes(0))).frameReason).toBe(frameReason);
  });

  it("for more than 16 MiB at an address, before they are read", async () => {
    let written = 0;
    const { url } = await serve((_, response) => {
      const more = (): void => {
        while (!response.destroyed && response.write(Buffer.alloc(2 ** 20))) written++;
      };
      response.on("drain", more);
      more();
    });
    expect((await refusalOf(setOf(url, openly).bytes(0))).frameReason).toBe("frame_too_large");
    expect(written).toBeLessThan(40);
  });

  it("for an image damaged in the middle, when its pixels are read", async () => {
    const broken = Buffer.from(png).fill(0xaa, 200, 400);
    expect((await refusalOf(setOf(dataUrl(broken)).rgb(0, WHOLE))).frameReason).toBe("frame_not_an_image");
  });

  it("for an image that does not match the request's checksum", async () => {
    const sha256 = createHash("sha256").update(png).digest("hex");
    const frames = (url: string): FrameSet => new FrameSet([{ ...frameAt(url), sha256 }], openly);
    await frames(dataUrl(png)).ready();
    expect((await refusalOf(frames(dataUrl(jpeg)).ready())).frameReason).toBe("frame_hash_mismatch");
  });

  it("with its path, a code and a sentence that reveals nothing of the address", async () => {
    const frames = new FrameSet(
      [
        frameAt(dataUrl(png), "observations.0.frames.0"),
        frameAt("https://10.0.0.8/secret-path", "observations.0.frames.1"),
      ],
      { agent: publicAgent, allowPrivate: false },
    );
    const refusal = await refusalOf(frames.ready());
    expect(refusal).toBeInstanceOf(Refusal);
    expect(refusal.reason).toBe(Reason.ADDRESS_REFUSED);
    expect(refusal.param).toBe("observations.0.frames.1");
    expect(refusal.details.violations).toMatchObject([
      { path: "observations.0.frames.1", type: "frame_address_refused", message: refusal.message },
    ]);
    expect(JSON.stringify([refusal.message, refusal.details])).not.toMatch(/10\.0\.0\.8|secret/);
    expect((await refusalOf(setOf("data:,x").ready())).reason).toBe(Reason.FRAME_REFUSED);
  });

  it("as a bug if no frame has the index", async () => {
    await expect(setOf(dataUrl(png)).bytes(1)).rejects.toThrow(RangeError);
  });
});

describe("a wait for a frame ends", () => {
  it("with the caller's reason if the caller leaves", async () => {
    const gone = new Error("the caller left");
    const caller = new AbortController();
    const { url } = await serve(() => caller.abort(gone));
    await expect(setOf(url, { ...openly, signal: caller.signal }).bytes(0)).rejects.toBe(gone);
    const decoding = setOf(dataUrl(png), { signal: caller.signal });
    await expect(decoding.rgb(0, WHOLE)).rejects.toBe(gone);
  });

  it("with the caller's reason if the caller leaves during decoding", async () => {
    const gone = new Error("the caller left");
    const caller = new AbortController();
    const decoding = setOf(dataUrl(png), { signal: caller.signal }).rgb(0, WHOLE);
    caller.abort(gone);
    await expect(decoding).rejects.toBe(gone);
  });

  it("at the deadline, during a fetch or decoding", async () => {
    const clock = new ManualClock();
    setClock(clock);
    const { promise: came, resolve: come } = Promise.withResolvers<void>();
    const { url } = await serve(() => come());
    const soon = refusalOf(setOf(url, { ...openly, deadline: steadyNow() + 50 }).bytes(0));
    await came;
    await clock.advance(50);
    expect((await soon).frameReason).toBe("frame_timed_out");
    const { url: never, requests } = await serve(() => {});
    const late = await refusalOf(setOf(never, { ...openly, deadline: steadyNow() - 1 }).bytes(0));
    expect(late.frameReason).toBe("frame_timed_out");
    expect(requests()).toBe(0);
    await holdTurns();
    const slow = refusalOf(setOf(dataUrl(png), { deadline: steadyNow() + 5 }).rgb(0, WHOLE));
    await clock.advance(5);
    expect((await slow).frameReason).toBe("frame_timed_out");
  });
});
