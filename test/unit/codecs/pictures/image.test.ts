import sharp, { type Sharp } from "sharp";
import { describe, expect, it } from "vitest";
import { type ImageFormat, readImageHeader } from "../../../../src/codecs/pictures/image.ts";
import { runs } from "../../../support/runs.ts";
import { mutations, seeded } from "../fuzz.ts";

const random = seeded(5);
const noise = (width: number, height: number, channels: 3 | 4 = 3): Sharp =>
  sharp(Buffer.from(Uint8Array.from({ length: width * height * channels }, () => Math.floor(random() * 256))), {
    raw: { width, height, channels },
  });

/** One picture of 37 by 23 in every form that the three encodings have. */
const FORMS: readonly (readonly [string, ImageFormat, Buffer])[] = [
  ["a PNG", "png", await noise(37, 23).png().toBuffer()],
  ["an interlaced PNG with alpha", "png", await noise(37, 23, 4).png({ progressive: true }).toBuffer()],
  ["a PNG of 16 bits", "png", await noise(37, 23).toColourspace("rgb16").png().toBuffer()],
  ["a baseline JPEG", "jpeg", await noise(37, 23).jpeg().toBuffer()],
  ["a progressive JPEG", "jpeg", await noise(37, 23).jpeg({ progressive: true }).toBuffer()],
  [
    "a grey JPEG with metadata",
    "jpeg",
    await noise(37, 23)
      .greyscale()
      .withExif({ IFD0: { Copyright: "x".repeat(300) } })
      .jpeg()
      .toBuffer(),
  ],
  ["a lossy WebP", "webp", await noise(37, 23).webp().toBuffer()],
  ["a lossless WebP", "webp", await noise(37, 23).webp({ lossless: true }).toBuffer()],
  ["a WebP with alpha", "webp", await noise(37, 23, 4).webp().toBuffer()],
];

/** What a frame URL may answer with instead of a picture that we take. */
const OTHERS: readonly (readonly [string, Buffer])[] = [
  ["nothing", Buffer.alloc(0)],
  ["text", Buffer.from("<!doctype html><title>Not found</title><p>There is no such picture here")],
  [
    "SVG",
    Buffer.from(
      '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><image href="file:///etc/passwd"/></svg>',
    ),
  ],
  ["GIF", await noise(9, 9).gif().toBuffer()],
  ["TIFF", await noise(9, 9).tiff().toBuffer()],
  ["AVIF", await noise(9, 9).avif().toBuffer()],
  ["a PNG of no width", Buffer.concat([FORMS[0]![2].subarray(0, 16), Buffer.alloc(4), FORMS[0]![2].subarray(20)])],
  ["a WebP of an unknown kind", Buffer.concat([Buffer.from("RIFF\x20\0\0\0WEBPVP9 ", "latin1"), Buffer.alloc(40)])],
];

describe("readImageHeader", () => {
  it.each(FORMS)("reads format and size of %s", (_what, format, bytes) => {
    expect(readImageHeader(bytes)).toMatchObject({ format, width: 37, height: 23, complete: true });
  });

  it.each(FORMS)("reports %s cut anywhere as incomplete", (_what, _format, bytes) => {
    for (let length = 0; length < bytes.length; length += 1 + Math.floor(bytes.length / 200)) {
      expect(readImageHeader(bytes.subarray(0, length))?.complete ?? false).toBe(false);
    }
    expect(readImageHeader(bytes.subarray(0, -2))?.complete ?? false).toBe(false);
  });

  it("knows which images can be decoded row by row", () => {
    const rowByRow = FORMS.filter(([, , bytes]) => readImageHeader(bytes)?.rowByRow).map(([what]) => what);
    const severalScans = Buffer.from(FORMS[3]![2]);
    severalScans[severalScans.indexOf(Buffer.from("ffda", "hex")) + 4] = 1;
    expect(readImageHeader(severalScans)?.rowByRow).toBe(false);
    expect(rowByRow).toEqual(["a PNG", "a PNG of 16 bits", "a baseline JPEG", "a grey JPEG with metadata"]);
  });

  it("accepts bytes after the end, with which some cameras pad", () => {
    for (const [, , bytes] of FORMS) {
      expect(readImageHeader(Buffer.concat([bytes, Buffer.alloc(512)]))?.complete).toBe(true);
    }
  });

  it("accepts a few fill bytes before a marker, but not millions", () => {
    const [, , photo] = FORMS[3]!;
    const filled = (fills: number): Buffer =>
      Buffer.concat([photo.subarray(0, 2), Buffer.alloc(fills, 0xff), photo.subarray(2)]);
    expect(readImageHeader(filled(1_000))).toMatchObject({ width: 37, height: 23, complete: true });
    expect(readImageHeader(filled(1 << 16))).toBeUndefined();
  });

  it("searches for the end of a JPEG in its last 256 KiB", () => {
    const [, , photo] = FORMS[3]!;
    const padded = (bytes: number): Buffer => Buffer.concat([photo, Buffer.alloc(bytes)]);
    expect(readImageHeader(padded((1 << 18) - 2))?.complete).toBe(true);
    expect(readImageHeader(padded(1 << 18))?.complete).toBe(false);
  });

  it("detects a cut JPEG although its thumbnail is complete", async () => {
    const [, , photo] = FORMS[3]!;
    const thumbnail = Buffer.concat([Buffer.from("ffe10006", "hex"), Buffer.from("0000ffd9", "hex")]);
    const cut = Buffer.concat([photo.subarray(0, 2), thumbnail, photo.subarray(2, -40)]);
    expect(readImageHeader(cut)).toMatchObject({ format: "jpeg", width: 37, height: 23, complete: false });
  });

  it("reads a decompression bomb's declared size without decoding it", () => {
    const bomb = Buffer.from(FORMS[0]![2]);
    bomb.writeUInt32BE(60_000, 16);
    bomb.writeUInt32BE(60_000, 20);
    expect(readImageHeader(bomb)).toMatchObject({ width: 60_000, height: 60_000 });
  });

  it.each(OTHERS)("returns no header for %s", (_what, bytes) => {
    expect(readImageHeader(bytes)).toBeUndefined();
  });

  it("parses damaged images without an error", () => {
    const samples = FORMS.map(([, , bytes]) => bytes.subarray(0, 700));
    let unknown = 0;
    for (const bytes of mutations(samples, runs(4_000), 6)) {
      const header = readImageHeader(bytes);
      if (header === undefined) unknown++;
      else expect(header.width * header.height).toBeGreaterThan(0);
    }
    expect(unknown).toBeGreaterThan(200);
  });
});
