import { existsSync, readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { create } from "@bufbuild/protobuf";
import sharp from "sharp";
import { afterEach, describe, expect, it } from "vitest";
import { FrameSchema } from "../../gen/limber/v1/observation_pb.ts";
import { FrameRefused, FrameSet, type FrameSource } from "../../src/upstream/pictures/frames.ts";
import {
  closeEach,
  dataUrl,
  frameAt,
  HEIGHT,
  jpeg,
  landscape,
  openly,
  picture,
  pixels,
  png,
  refusalOf,
  serve,
  setOf,
  WHOLE,
  WIDTH,
  webp,
} from "../support/pictures.ts";
import { runs } from "../support/runs.ts";
import { mutations, seeded } from "../unit/codecs/fuzz.ts";

afterEach(closeEach);

describe("FrameSet.bytes", () => {
  it.each([
    ["png", png],
    ["jpeg", jpeg],
    ["webp", webp],
  ] as const)("returns a %s as sent, inline, as bytes or from an address", async (format, bytes) => {
    const { url } = await serve((_, response) => response.end(bytes));
    const sources: FrameSource[] = [
      frameAt(dataUrl(bytes, "application/octet-stream")),
      frameAt(`data:,${[...bytes].map((byte) => `%${byte.toString(16).padStart(2, "0")}`).join("")}`),
      { ...frameAt(""), data: new Uint8Array(bytes) },
      frameAt(url),
    ];
    const frames = new FrameSet(sources, openly);
    for (let i = 0; i < sources.length; i++) {
      expect(await frames.bytes(i)).toEqual({ bytes: Buffer.from(bytes), format, width: WIDTH, height: HEIGHT });
    }
  });

  it("accepts the request's own frame messages", async () => {
    const message = create(FrameSchema, { camera: "wrist", data: png });
    const frames = new FrameSet([{ ...message, path: "goal_image" }], openly);
    expect(frames.cameras).toEqual(["wrist"]);
    expect((await frames.bytes(0)).format).toBe("png");
  });

  it("does not decode pixels, so that an image damaged in the middle is passed on unchanged", async () => {
    const broken = Buffer.from(jpeg).fill(0xaa, 700, 720);
    expect((await setOf(dataUrl(broken)).bytes(0)).bytes.equals(broken)).toBe(true);
  });

  it("fetches a frame once for any number of sequential and concurrent reads", async () => {
    const { url, requests } = await serve((_, response) => response.end(png));
    const frames = setOf(url, openly);
    await Promise.all([frames.bytes(0), frames.bytes(0), frames.rgb(0, WHOLE), frames.ready()]);
    await frames.bytes(0);
    expect(requests()).toBe(1);
  });

  it("fetches a failed frame once, and repeats the error", async () => {
    const { url, requests } = await serve((_, response) => response.writeHead(500).end());
    const frames = setOf(url, openly);
    const first = await refusalOf(frames.bytes(0));
    expect(await refusalOf(frames.rgb(0, WHOLE))).toBe(first);
    expect(requests()).toBe(1);
  });
});

describe("FrameSet.rgb", () => {
  it.each([
    ["a PNG", png, 0],
    ["a lossless WebP", webp, 0],
    ["a JPEG", jpeg, 2],
  ])("returns the pixels of %s, rows from the top, red first", async (_what, bytes, tolerance) => {
    const rgb = await setOf(dataUrl(bytes)).rgb(0, WHOLE);
    expect(rgb).toMatchObject({ width: WIDTH, height: HEIGHT });
    expect(rgb.data.length).toBe(pixels.length);
    expect(difference(rgb.data, pixels)).toBeLessThanOrEqual(tolerance);
  });

  it.each([
    ["grey", picture().greyscale().png()],
    ["16 bits", picture().toColourspace("rgb16").png()],
    ["with a palette", picture().png({ palette: true })],
    ["with transparency", picture().ensureAlpha(0.3).png()],
    ["CMYK", picture().toColourspace("cmyk").jpeg()],
  ])("returns three bytes a pixel for an image that is %s", async (_what, image) => {
    const rgb = await setOf(dataUrl(await image.toBuffer())).rgb(0, WHOLE);
    expect(rgb.data.length).toBe(WIDTH * HEIGHT * 3);
  });

  it("drops transparency and keeps the color under it, as models' clients do", async () => {
    const glass = await picture().ensureAlpha(0).png().toBuffer();
    expect((await setOf(dataUrl(glass)).rgb(0, WHOLE)).data.equals(pixels)).toBe(true);
  });

  it("keeps the ratio and centers on black, with the remainder below and to the right, as resize_with_pad does", async () => {
    const white = await picture(60, 40, Buffer.alloc(60 * 40 * 3, 255))
      .png()
      .toBuffer();
    const frames = setOf(dataUrl(white));
    /** Requested size, then left, top, width and height of the picture in it. */
    const cases = [
      [224, 224, 0, 37, 224, 149],
      [30, 20, 0, 0, 30, 20],
      [31, 21, 0, 0, 31, 20],
      [90, 20, 30, 0, 30, 20],
      [91, 20, 30, 0, 30, 20],
      [7, 100, 0, 48, 7, 4],
      [60, 40, 0, 0, 60, 40],
    ] as const;
    for (const [width, height, left, top, inWidth, inHeight] of cases) {
      const { data, ...size } = await frames.rgb(0, { width, height, fit: "pad" });
      expect(size).toEqual({ width, height });
      const expected = Buffer.alloc(width * height * 3);
      for (let y = top; y < top + inHeight; y++)
        expected.fill(255, (y * width + left) * 3, (y * width + left + inWidth) * 3);
      expect(data.equals(expected), `${width}x${height}`).toBe(true);
    }
  });

  it("fills the entire size when requested to stretch", async () => {
    const white = await picture(60, 40, Buffer.alloc(60 * 40 * 3, 255))
      .png()
      .toBuffer();
    const { data } = await setOf(dataUrl(white)).rgb(0, { width: 33, height: 77, fit: "stretch" });
    expect(data.equals(Buffer.alloc(33 * 77 * 3, 255))).toBe(true);
  });

  it.each([
    [56, 42, 0],
    [32, 24, 0],
    [21, 16, 0],
    [40, 48, 0],
    [96, 72, 0.5],
    [640, 480, 0.5],
  ])(
    "resamples to %ix%i like the bilinear filter that openpi's clients use, %d output pixels off",
    async (width, height, shift) => {
      const { data } = await setOf(dataUrl(png)).rgb(0, { width, height, fit: "stretch" });
      expect(difference(data, bilinear(pixels, WIDTH, HEIGHT, width, height, shift))).toBeLessThan(1);
    },
  );

  it("produces each size once, and a fallback's sizes from the same decoded image", async () => {
    const { url, requests } = await serve((_, response) => response.end(png));
    const frames = setOf(url, openly);
    const [first, again] = await Promise.all([
      frames.rgb(0, { ...WHOLE, width: 32 }),
      frames.rgb(0, { ...WHOLE, width: 32 }),
    ]);
    expect(again.data).toBe(first.data);
    expect((await frames.rgb(0, { ...WHOLE, width: 32, fit: "stretch" })).data).not.toBe(first.data);
    expect((await frames.rgb(0, WHOLE)).data).toBe((await frames.rgb(0, { ...WHOLE, fit: "stretch" })).data);
    expect(requests()).toBe(1);
  });

  it("resizes a large image without holding it decoded, to the same pixels", async () => {
    const [width, height] = [2400, 1000];
    const scene = landscape(width, height);
    const large = await picture(width, height, scene).png({ compressionLevel: 1 }).toBuffer();
    const { data } = await setOf(dataUrl(large)).rgb(0, { width: 240, height: 100, fit: "stretch" });
    expect(difference(data, bilinear(scene, width, height, 240, 100))).toBeLessThan(1);
  });
});

describe("FrameSet", () => {
  it("decodes damaged images to pixels of the requested size, or throws a FrameRefused", async () => {
    const small = await Promise.all(
      [sharp(png).resize(9, 7).png(), sharp(png).resize(9, 7).jpeg(), sharp(png).resize(9, 7).webp()].map((image) =>
        image.toBuffer(),
      ),
    );
    let refused = 0;
    let decoded = 0;
    const one = async (bytes: Buffer): Promise<void> => {
      try {
        const rgb = await new FrameSet([{ ...frameAt(""), data: bytes, url: "data:," }], openly).rgb(0, {
          width: 8,
          height: 8,
          fit: "pad",
        });
        expect(rgb.data.length).toBe(192);
        decoded++;
      } catch (error) {
        if (!(error instanceof FrameRefused)) throw error;
        refused++;
      }
    };
    const inFlight = new Set<Promise<void>>();
    for (const bytes of mutations(small, runs(400), 11)) {
      const work: Promise<void> = one(bytes).finally(() => inFlight.delete(work));
      inFlight.add(work);
      if (inFlight.size >= 8) await Promise.race(inFlight);
    }
    await Promise.all(inFlight);
    expect(refused).toBeGreaterThan(80);
    expect(decoded).toBeGreaterThan(8);
  });

  it("decodes real camera frames, or noise if they are not available", async () => {
    const folder = fileURLToPath(new URL("../../../shared/frames/", import.meta.url));
    const files = existsSync(folder) ? readdirSync(folder).filter((name) => /\.(png|jpg)$/.test(name)) : [];
    const random = seeded(12);
    const noise = Buffer.from(Uint8Array.from({ length: 640 * 480 * 3 }, () => Math.floor(random() * 256)));
    const photos =
      files.length > 0
        ? files.map((name) => readFileSync(folder + name))
        : [await picture(640, 480, noise).jpeg().toBuffer()];
    for (const bytes of photos) {
      const { data } = await setOf(dataUrl(bytes)).rgb(0, { width: 224, height: 224, fit: "pad" });
      expect(data.length).toBe(224 * 224 * 3);
      expect(new Set(data.subarray(224 * 112 * 3, 224 * 113 * 3)).size).toBeGreaterThan(10);
    }
  });
});

/** How far two pictures are apart, in grey levels on average. */
const difference = (left: ArrayLike<number>, right: ArrayLike<number>): number =>
  Array.from(left).reduce((sum, value, i) => sum + Math.abs(value - right[i]!), 0) / left.length;

/** Pillow's BILINEAR from its definition: a triangle as wide as the scale, centred on each output pixel, one axis after the other. */
function bilinear(
  from: Buffer,
  fromWidth: number,
  fromHeight: number,
  width: number,
  height: number,
  shift = 0,
): Float64Array {
  const across = weights(fromWidth, width, shift);
  const down = weights(fromHeight, height, shift);
  const narrow = new Float64Array(width * fromHeight * 3);
  for (let i = 0; i < narrow.length; i++) {
    const [x, y] = [Math.floor(i / 3) % width, Math.floor(i / 3 / width)];
    for (const [at, weight] of across[x]!) narrow[i]! += weight * from[(y * fromWidth + at) * 3 + (i % 3)]!;
  }
  const result = new Float64Array(width * height * 3);
  for (let i = 0; i < result.length; i++) {
    const [x, y] = [Math.floor(i / 3) % width, Math.floor(i / 3 / width)];
    for (const [at, weight] of down[y]!) result[i]! += weight * narrow[(at * width + x) * 3 + (i % 3)]!;
  }
  return result;
}

/** For each output position, the input positions that it's made of and their shares. */
function weights(from: number, to: number, shift: number): (readonly [number, number])[][] {
  const scale = from / to;
  const support = Math.max(scale, 1);
  return Array.from({ length: to }, (_, position) => {
    const centre = Math.max(0, position + 0.5 - shift) * scale;
    const parts: [number, number][] = [];
    for (let at = Math.max(0, Math.floor(centre - support)); at < Math.min(from, centre + support); at++) {
      const weight = 1 - Math.abs(at + 0.5 - centre) / support;
      if (weight > 0) parts.push([at, weight]);
    }
    const total = parts.reduce((sum, [, weight]) => sum + weight, 0);
    return parts.map(([at, weight]) => [at, weight / total] as const);
  });
}
