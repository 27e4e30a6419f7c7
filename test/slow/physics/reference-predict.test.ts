import { existsSync, readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { blankImage, decodeImage, type RgbFrame, type RgbImage } from "../../../src/reference/image.ts";
import { predict } from "../../../src/reference/predict.ts";
import { UnsupportedObservation } from "../../../src/reference/unsupported.ts";
import { runs } from "../../support/runs.ts";
import { addNoise, movingShapes, psnr, seeded } from "../../support/scenes.ts";

/** Mean gain in PSNR (dB) over repeating the last frame, at each of `horizon` steps, over every place in the sequences that has a past and a future. */
function gains(sequences: readonly (readonly RgbFrame[])[], past: number, horizon: number): number[] {
  const sums = new Array<number>(horizon).fill(0);
  let count = 0;
  for (const sequence of sequences) {
    for (let now = past - 1; now + horizon < sequence.length; now++) {
      count++;
      const made = [...predict(sequence.slice(now - past + 1, now + 1), { horizon }).frames];
      made.forEach((image, i) => {
        const truth = sequence[now + 1 + i]!.image;
        sums[i]! += psnr(image, truth) - psnr(sequence[now]!.image, truth);
      });
    }
  }
  return sums.map((sum) => sum / count);
}

async function realSequence(): Promise<RgbFrame[] | undefined> {
  const folder = new URL("../../../../shared/frames/", import.meta.url);
  if (!existsSync(new URL("umi_30.jpg", folder))) return undefined;
  const names = Array.from({ length: 20 }, (_, i) => `umi_${30 + i}.jpg`);
  const images = await Promise.all(names.map((name) => decodeImage(readFileSync(new URL(name, folder)))));
  return images.map((image) => ({ camera: "front", image }));
}

describe("the reference predict", () => {
  it("beats repeating the last frame by at least 1.5 dB on moving shapes, one and three frames ahead", () => {
    const sequences = Array.from({ length: 8 }, (_, i) => movingShapes(i + 1, 8));
    const [first, , third] = gains(sequences, 3, 3);
    expect(first).toBeGreaterThanOrEqual(1.5);
    expect(third).toBeGreaterThanOrEqual(1.5);
  });

  it("beats repeating the last frame by at least 2 dB one frame ahead and 1 dB three frames ahead on a real camera sequence", async () => {
    const [first, , third] = gains([(await realSequence()) ?? movingShapes(99, 12)], 3, 3);
    expect(first).toBeGreaterThanOrEqual(2);
    expect(third).toBeGreaterThanOrEqual(1);
  });

  it("beats repetition with two frames alone, and reports that the motion is untested", () => {
    const sequence = movingShapes(4, 6);
    expect(gains([sequence], 2, 1)[0]).toBeGreaterThanOrEqual(1.5);
    expect(predict(sequence.slice(0, 2), { horizon: 1 }).note).toMatch(/third frame/);
  });

  it("falls back to the last frame if the last frames disprove constant velocity", () => {
    const [a, b] = movingShapes(5, 2) as [RgbFrame, RgbFrame];
    const turned = predict([a, b, a], { horizon: 1 });
    const [still] = [...turned.frames];
    const blind = [...predict([b, a], { horizon: 1 }).frames][0]!;
    expect(psnr(still!, a.image)).toBeGreaterThan(psnr(blind, a.image) + 3);
  });

  it("moves under noise alone by less than the noise itself", () => {
    const random = seeded(6);
    const still = Array.from({ length: 3 }, () => {
      const image = { ...movingShapes(7, 1)[0]!.image };
      const copy = { ...image, data: new Uint8Array(image.data) };
      addNoise(copy, random, 3);
      return { camera: "front", image: copy };
    });
    const [next] = [...predict(still, { horizon: 1 }).frames];
    expect(psnr(next!, still[2]!.image)).toBeGreaterThan(psnr(still[1]!.image, still[2]!.image));
  });

  it("repeats a single frame and reports it", () => {
    const [frame] = movingShapes(8, 1) as [RgbFrame];
    const { note, frames } = predict([frame], { horizon: 3 });
    expect([...frames]).toEqual([frame.image, frame.image, frame.image]);
    expect(note).toMatch(/repeated/);
  });

  it("reports that given actions were not used", () => {
    expect(predict(movingShapes(8, 2), { horizon: 1, actions: [[0, 0]] }).note).toMatch(/not action-conditioned/);
  });

  it("returns the same frames for the same input, whatever the seed, and does not change the input", () => {
    const frames = movingShapes(9, 3);
    const before = frames.map(({ image }) => new Uint8Array(image.data));
    const once = [...predict(frames, { horizon: 2, seed: 1 }).frames];
    expect([...predict(frames, { horizon: 2, seed: 2 }).frames]).toEqual(once);
    expect(frames.map(({ image }) => image.data)).toEqual(before);
  });

  it("computes a frame only when it is read", () => {
    const iterator = predict(movingShapes(10, 3), { horizon: 256 }).frames[Symbol.iterator]();
    expect(iterator.next().done).toBe(false);
  });

  it("fills every pixel when shapes leave the image and uncover ground", () => {
    const marked = movingShapes(11, 3);
    for (const { image } of marked) image.data.set(image.data.map((level) => Math.max(level, 40)));
    for (const image of predict(marked, { horizon: 40 }).frames) {
      expect(image.data.reduce((least, level) => Math.min(least, level), 255)).toBeGreaterThanOrEqual(40);
    }
  });

  it("returns exactly horizon frames of the input's size for any small images", () => {
    const picture = (width: number, height: number, seed: number): RgbImage => {
      const image = blankImage(width, height);
      addNoise(image, seeded(seed), 255);
      return image;
    };
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 40 }),
        fc.integer({ min: 1, max: 40 }),
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 1, max: 5 }),
        fc.nat(),
        (width, height, count, horizon, seed) => {
          const frames = Array.from({ length: count }, (_, i) => ({
            camera: "a",
            image: picture(width, height, seed + i),
          }));
          const made = [...predict(frames, { horizon }).frames];
          expect(made).toHaveLength(horizon);
          for (const image of made) {
            expect([image.width, image.height, image.data.length]).toEqual([width, height, width * height * 3]);
          }
        },
      ),
      { numRuns: runs(20) },
    );
  });

  it("refuses missing frames, mixed cameras, mixed sizes and a horizon out of range before it computes anything", () => {
    const [a, b] = movingShapes(12, 2) as [RgbFrame, RgbFrame];
    const small = { camera: "front", image: blankImage(8, 8) };
    for (const [frames, horizon] of [
      [[], 1],
      [[a, { ...b, camera: "wrist" }], 1],
      [[small, a], 1],
      [[a], 0],
      [[a], 257],
      [[a], 1.5],
    ] as const) {
      expect(() => predict(frames, { horizon })).toThrow(UnsupportedObservation);
    }
  });
});
