/** Pixels of a request: made once for all who ask, in turns, never for nobody, and no more of them than a request may have. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Cancel } from "../../src/cancellation.ts";
import { pictureTurns } from "../../src/codecs/pictures/turns.ts";
import { type FrameOptions, FrameSet, KeptPixels } from "../../src/upstream/pictures/frames.ts";
import {
  closeEach,
  dataUrl,
  frameAt,
  holdTurns,
  openly,
  picture,
  png,
  refusalOf,
  setOf,
  WHOLE,
} from "../support/pictures.ts";

// Turns are counted for the process, in which other files ran before.
beforeEach(async () => (await holdTurns())());
afterEach(closeEach);

const HALF = { width: 32, height: 24, fit: "pad" } as const;
const source = frameAt(dataUrl(png));
const sharing = (pixels: KeptPixels, options: Partial<FrameOptions> = {}): FrameSet =>
  new FrameSet([source], { ...openly, pixels, ...options });

/** How many pictures were worked on meanwhile. */
async function begunBy(work: () => Promise<unknown>): Promise<number> {
  const before = pictureTurns.figures.begun;
  await work();
  return pictureTurns.figures.begun - before;
}

describe("a frame's pixels", () => {
  it("are decoded once and resized once, for a hedge and for the next offering of another size", async () => {
    const pixels = new KeptPixels();
    const [first, hedge, next] = [sharing(pixels), sharing(pixels), sharing(pixels)];
    expect(await begunBy(() => Promise.all([first.rgb(0, HALF), hedge.rgb(0, HALF), first.rgb(0, HALF)]))).toBe(2);
    expect((await hedge.rgb(0, HALF)).data).toBe((await first.rgb(0, HALF)).data);
    expect(await begunBy(() => next.rgb(0, { ...HALF, width: 16 }))).toBe(1);
    expect(await begunBy(() => next.rgb(0, WHOLE))).toBe(0);
  });

  it("are still decoded for remaining callers if one leaves", async () => {
    const pixels = new KeptPixels();
    const gone = new Error("gone");
    const leaving = new Cancel();
    const free = await holdTurns();
    const left = sharing(pixels, { signal: leaving }).rgb(0, HALF);
    const stayed = sharing(pixels).rgb(0, HALF);
    await new Promise(setImmediate);
    leaving.abort(gone);
    await expect(left).rejects.toBe(gone);
    await free();
    expect((await stayed).data).toHaveLength(32 * 24 * 3);
  });

  it("are not decoded for a caller that left before its turn, but for the next", async () => {
    const pixels = new KeptPixels();
    const leaving = new Cancel();
    const free = await holdTurns();
    const calls = Array.from({ length: 50 }, () => sharing(new KeptPixels(), { signal: leaving }).rgb(0, HALF));
    calls.push(sharing(pixels, { signal: leaving }).rgb(0, HALF));
    for (const call of calls) call.catch(() => undefined);
    await new Promise(setImmediate);
    expect(pictureTurns.figures.waiting).toBe(51);
    leaving.abort(new Error("gone"));
    expect(pictureTurns.figures.waiting).toBe(0);
    expect(await begunBy(free)).toBe(0);
    expect(await begunBy(() => sharing(pixels).rgb(0, HALF))).toBe(2);
  });

  it("occupy at most 64 MiB per request, of which at most 16 are cached decoded images", async () => {
    const large = await picture(1280, 960, Buffer.alloc(1280 * 960 * 3, 9))
      .png()
      .toBuffer();
    const many = new FrameSet(
      Array.from({ length: 8 }, (_, i) => frameAt(dataUrl(large), `observations.0.frames.${i}`)),
      openly,
    );
    // 3.7 MB decoded, each: four of them are kept, and the other four are decoded for each size anew.
    const all = (size: typeof HALF | typeof WHOLE) => () =>
      Promise.all(Array.from({ length: 8 }, (_, i) => many.rgb(i, size)));
    expect(await begunBy(all(HALF))).toBe(4 * 2 + 4);
    expect(await begunBy(all(WHOLE))).toBe(8);
    const wide = { width: 4096, height: 4096, fit: "pad" } as const;
    await many.rgb(0, wide);
    const refused = await refusalOf(many.rgb(1, wide));
    expect(refused.frameReason).toBe("frames_too_many_pixels");
    expect(refused.param).toBe("observations.0.frames.1");
    // What was made is there still.
    expect(await begunBy(() => many.rgb(0, wide))).toBe(0);
  });

  it("are decoded once, even if that fails", async () => {
    const broken = Buffer.from(png).fill(0xaa, 200, 400);
    const frames = setOf(dataUrl(broken));
    const tries = () => Promise.allSettled([frames.rgb(0, HALF), frames.rgb(0, HALF)]);
    expect(await begunBy(tries)).toBe(1);
    expect(await begunBy(tries)).toBe(0);
  });
});
