import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { readImageHeader } from "../../../../src/codecs/pictures/image.ts";
import { encoded, headOf, pixelsIn } from "../../../../src/codecs/pictures/raw-pictures.ts";
import { NdArray } from "../../../../src/codecs/python/ndarray.ts";

const [WIDTH, HEIGHT] = [61, 47];
const pixels = Uint8Array.from({ length: WIDTH * HEIGHT * 3 }, (_, i) => (i * 37 + (i >> 8)) % 256);
const by = { asker: { key: "key", robot: "robot" } };
const SHAPE = [HEIGHT, WIDTH, 3];

const pixelsOf = async (array: NdArray, turned = false): Promise<Buffer> =>
  sharp(await encoded(array, "front", { ...by, turned }))
    .raw()
    .toBuffer();

/** Channels first. */
const planes = (from: Uint8Array): Uint8Array =>
  Uint8Array.from(from, (_, i) => from[3 * (i % (WIDTH * HEIGHT)) + Math.floor(i / (WIDTH * HEIGHT))]!);

describe("an image in an array", () => {
  it("is the same as bytes, as floats, with channels first, and turned", async () => {
    const expected = Buffer.from(pixels);
    expect(await pixelsOf(NdArray.uint8(pixels, SHAPE))).toEqual(expected);
    const parts = Array.from(pixels, (byte) => byte / 255);
    expect(await pixelsOf(NdArray.float32(parts, SHAPE))).toEqual(expected);
    expect(await pixelsOf(NdArray.float64(parts, SHAPE))).toEqual(expected);
    expect(await pixelsOf(NdArray.uint8(planes(pixels), [3, HEIGHT, WIDTH]))).toEqual(expected);
    const turned = Buffer.from(
      Uint8Array.from(pixels, (_, i) => pixels[pixels.length - 3 - 3 * Math.floor(i / 3) + (i % 3)]!),
    );
    expect(await pixelsOf(NdArray.uint8(pixels, SHAPE), true)).toEqual(turned);
  });

  it.each([
    ["is a view of its message", NdArray.uint8(pixels, SHAPE), false],
    ["is a copy if it was turned", NdArray.uint8(Uint8Array.from(pixels).reverse(), SHAPE), true],
  ])("has only a header with its size until its file is read, and its pixels %s", async (_, array, turned) => {
    const head = await headOf(array, "front", { ...by, turned });
    const told = { format: "png", width: WIDTH, height: HEIGHT, complete: false };
    expect(readImageHeader(Buffer.from(head))).toMatchObject(told);
    const { data, width, height } = pixelsIn(head)!;
    expect([width, height, data.buffer === array.data.buffer]).toEqual([WIDTH, HEIGHT, !turned]);
    // Backwards, the bytes of a pixel are turned too.
    const expected = turned ? Uint8Array.from(pixels, (_, i) => pixels[i - (i % 3) + 2 - (i % 3)]!) : pixels;
    expect(data.equals(expected)).toBe(true);
    expect(pixelsIn(await encoded(array, "front", by))).toBeUndefined();
  });

  it.each([-1, 2, 255, Number.NaN, Number.POSITIVE_INFINITY])(
    "is refused with its key if a float is %d",
    async (odd) => {
      const array = NdArray.float64([0, 0.5, 1, 1.0005, 0.5, odd], [1, 2, 3]);
      await expect(pixelsOf(array)).rejects.toThrow(/`front` must consist of uint8 or floats from 0 to 1/);
    },
  );

  it("of 12 million floats yields the event loop during conversion", async () => {
    const side = 2048;
    const large = new NdArray("<f4", [3, side, side], new Uint8Array(3 * side * side * 4));
    let turns = 0;
    let isRead = false;
    const count = (): void => {
      turns += 1;
      if (!isRead) setImmediate(count);
    };
    setImmediate(count);
    await encoded(large, "front", by);
    isRead = true;
    // 768 slices: of a machine of any speed each is long enough for some turns between them.
    expect(turns).toBeGreaterThan(5);
  });
});
