import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { decodeImage, encodeImage, shrink, UnreadableImage } from "../../../src/reference/image.ts";
import { psnr, tableScene } from "../../support/scenes.ts";

const { image } = tableScene(1, "green", "square").frame;

describe("the image codec", () => {
  it("preserves pixels through PNG", async () => {
    expect(await decodeImage(await encodeImage(image, "png"))).toEqual(image);
  });

  it.each(["jpeg", "webp"] as const)("preserves pixels nearly through %s", async (format) => {
    const back = await decodeImage(await encodeImage(image, format));
    expect([back.width, back.height]).toEqual([image.width, image.height]);
    expect(psnr(image, back)).toBeGreaterThan(28);
  });

  it.each(["png", "jpeg", "webp"] as const)("refuses a truncated %s, wherever it is cut", async (format) => {
    const whole = await encodeImage(image, format);
    for (const share of [0, 0.01, 0.3, 0.6, 0.9]) {
      await expect(decodeImage(whole.subarray(0, Math.floor(whole.length * share)))).rejects.toThrow(UnreadableImage);
    }
  });

  it("refuses other formats and non-images", async () => {
    const gif = await sharp(await encodeImage(image, "png"))
      .gif()
      .toBuffer();
    const svg = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>');
    for (const bytes of [gif, svg, Buffer.from("not a picture"), Buffer.alloc(0)]) {
      await expect(decodeImage(bytes)).rejects.toThrow(UnreadableImage);
    }
  });

  it("refuses more than 64 megapixels before it decodes them", async () => {
    const bomb = await sharp({ create: { width: 9000, height: 8000, channels: 3, background: "black" } })
      .png()
      .toBuffer();
    await expect(decodeImage(bomb)).rejects.toThrow(UnreadableImage);
  });

  it("decodes gray, 16-bit and transparent images to three 8-bit channels", async () => {
    const grey = await sharp({ create: { width: 4, height: 3, channels: 3, background: "#808080" } })
      .toColourspace("b-w")
      .png()
      .toBuffer();
    const deep = await sharp({ create: { width: 4, height: 3, channels: 3, background: "#808080" } })
      .toColourspace("rgb16")
      .png()
      .toBuffer();
    const clear = await sharp({ create: { width: 4, height: 3, channels: 4, background: "#ffffff00" } })
      .png()
      .toBuffer();
    for (const [bytes, level] of [
      [grey, 128],
      [deep, 128],
      [clear, 0],
    ] as const) {
      const back = await decodeImage(bytes);
      expect(back).toEqual({ width: 4, height: 3, data: new Uint8Array(36).fill(level) });
    }
  });

  it("shrinks by averaging squares", () => {
    const data = new Uint8Array(4 * 2 * 3).map((_, i) => (Math.floor(i / 3) % 4) * 10);
    expect(shrink({ width: 4, height: 2, data }, 2)).toEqual({
      width: 2,
      height: 1,
      data: Uint8Array.from([5, 5, 5, 25, 25, 25]),
    });
  });
});
