import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { create } from "@bufbuild/protobuf";
import sharp, { type Sharp } from "sharp";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { FrameSchema } from "../../gen/limber/v1/observation_pb.ts";
import { steadyNow } from "../../src/ambient.ts";
import { Reason, Refusal } from "../../src/refusal.ts";
import { type FrameOptions, FrameRefused, FrameSet, type FrameSource } from "../../src/upstream/frames.ts";
import { guardedAgent } from "../../src/upstream/guard.ts";
import { mutations, seeded } from "../unit/codecs/fuzz.ts";

const publicAgent = guardedAgent({ allowPrivate: false, resolve: async () => [{ address: "127.0.0.1", family: 4 }] });
const privateAgent = guardedAgent({ allowPrivate: true });
afterAll(() => Promise.all([publicAgent.destroy(), privateAgent.destroy()]));

const open: (() => void)[] = [];
afterEach(() => {
  for (const close of open.splice(0)) close();
});

/** A web server of ours; counts the requests it gets. */
async function serve(listener: RequestListener): Promise<{ url: string; requests(): number }> {
  let requests = 0;
  const server = createServer((incoming, response) => {
    requests++;
    listener(incoming, response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  open.push(() => server.close().closeAllConnections());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/frame.png`, requests: () => requests };
}

const WIDTH = 64;
const HEIGHT = 48;

/** A picture without a straight edge or a flat spot, so that any wrong pixel shows. */
function landscape(width: number, height: number): Buffer {
  const pixels = Buffer.alloc(width * height * 3);
  for (let i = 0; i < pixels.length; i++) {
    const x = Math.floor(i / 3) % width;
    const y = Math.floor(i / 3 / width);
    pixels[i] = 128 + 60 * Math.sin((9 * x) / width + (i % 3)) + 60 * Math.cos((9 * y) / height - (i % 3));
  }
  return pixels;
}

const pixels = landscape(WIDTH, HEIGHT);
const picture = (width = WIDTH, height = HEIGHT, data = pixels): Sharp =>
  sharp(data, { raw: { width, height, channels: 3 } });
const png = await picture().png().toBuffer();
const jpeg = await picture().jpeg({ quality: 95 }).toBuffer();
const webp = await picture().webp({ lossless: true }).toBuffer();

const gif = await picture().gif().toBuffer();

const dataUrl = (bytes: Buffer, type = "image/png"): string => `data:${type};base64,${bytes.toString("base64")}`;
const frameAt = (url: string, path = "observations.0.frames.0"): FrameSource => ({ path, camera: "front", url });
const setOf = (url: string, options: Partial<FrameOptions> = {}): FrameSet =>
  new FrameSet([frameAt(url)], { agent: publicAgent, allowPrivate: false, ...options });
const openly = { agent: privateAgent, allowPrivate: true };
const WHOLE = { width: WIDTH, height: HEIGHT, fit: "pad" } as const;

async function refusalOf(attempt: unknown): Promise<FrameRefused> {
  const error = await Promise.resolve(attempt).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof FrameRefused)) throw new Error("was not refused as a frame", { cause: error });
  return error;
}

describe("FrameSet.bytes", () => {
  it.each([
    ["png", png],
    ["jpeg", jpeg],
    ["webp", webp],
  ] as const)("gives a %s as it was sent, whether inline, as bytes or behind an address", async (format, bytes) => {
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

  it("takes the request's own frame messages", async () => {
    const message = create(FrameSchema, { camera: "wrist", data: png });
    const frames = new FrameSet([{ ...message, path: "goal_image" }], openly);
    expect(frames.cameras).toEqual(["wrist"]);
    expect((await frames.bytes(0)).format).toBe("png");
  });

  it("doesn't decode the pixels, so a picture with a broken middle is handed on as it is", async () => {
    const broken = Buffer.from(jpeg).fill(0xaa, 700, 720);
    expect((await setOf(dataUrl(broken)).bytes(0)).bytes.equals(broken)).toBe(true);
  });

  it("fetches a frame once however often, and however much at once, it's asked for", async () => {
    const { url, requests } = await serve((_, response) => response.end(png));
    const frames = setOf(url, openly);
    await Promise.all([frames.bytes(0), frames.bytes(0), frames.rgb(0, WHOLE), frames.ready()]);
    await frames.bytes(0);
    expect(requests()).toBe(1);
  });

  it("fetches a frame that failed once only, and says the same again", async () => {
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
  ])("gives the pixels of %s, rows from the top, red first", async (_what, bytes, tolerance) => {
    const rgb = await setOf(dataUrl(bytes)).rgb(0, WHOLE);
    expect(rgb).toMatchObject({ width: WIDTH, height: HEIGHT });
    expect(rgb.data.length).toBe(pixels.length);
    expect(difference(rgb.data, pixels)).toBeLessThanOrEqual(tolerance);
  });

  it.each([
    ["grey", picture().greyscale().png()],
    ["grey of 16 bits", picture().toColourspace("grey16").png()],
    ["16 bits", picture().toColourspace("rgb16").png()],
    ["with a palette", picture().png({ palette: true })],
    ["with transparency", picture().ensureAlpha(0.3).png()],
    ["CMYK", picture().toColourspace("cmyk").jpeg()],
  ])("gives three bytes a pixel for a picture that is %s", async (_what, image) => {
    const rgb = await setOf(dataUrl(await image.toBuffer())).rgb(0, WHOLE);
    expect(rgb.data.length).toBe(WIDTH * HEIGHT * 3);
  });

  it("drops transparency and keeps the colour under it, as the clients of models do", async () => {
    const glass = await picture().ensureAlpha(0).png().toBuffer();
    expect((await setOf(dataUrl(glass)).rgb(0, WHOLE)).data.equals(pixels)).toBe(true);
  });

  it("keeps the ratio and centres on black, with the remainder below and to the right, as resize_with_pad does", async () => {
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

  it("fills the whole size when asked to stretch", async () => {
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

  it("makes each size once, and the sizes of a fallback from the same decoded picture", async () => {
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

  it("resizes a large picture without holding it decoded, to the same pixels", async () => {
    const [width, height] = [2400, 1000];
    const scene = landscape(width, height);
    const large = await picture(width, height, scene).png({ compressionLevel: 1 }).toBuffer();
    const { data } = await setOf(dataUrl(large)).rgb(0, { width: 240, height: 100, fit: "stretch" });
    expect(difference(data, bilinear(scene, width, height, 240, 100))).toBeLessThan(1);
  });
});

describe("FrameSet refuses", () => {
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
    ["no URL at all", "front.png", "frame_address_refused"],
  ] as const)("%s", async (_what, url, frameReason) => {
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
  ] as const)("%s where a picture should be", async (_what, listener, frameReason) => {
    const { url } = await serve(listener as RequestListener);
    expect((await refusalOf(setOf(url, openly).bytes(0))).frameReason).toBe(frameReason);
  });

  it("more than 16 MiB from an address, without taking them in", async () => {
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

  it("a picture whose middle is broken, when its pixels are wanted", async () => {
    const broken = Buffer.from(png).fill(0xaa, 200, 400);
    expect((await refusalOf(setOf(dataUrl(broken)).rgb(0, WHOLE))).frameReason).toBe("frame_not_an_image");
  });

  it("a picture that isn't the one that the request names by its sum", async () => {
    const sha256 = createHash("sha256").update(png).digest("hex");
    const frames = (url: string): FrameSet => new FrameSet([{ ...frameAt(url), sha256 }], openly);
    await frames(dataUrl(png)).ready();
    expect((await refusalOf(frames(dataUrl(jpeg)).ready())).frameReason).toBe("frame_hash_mismatch");
  });

  it("with the frame's place, a word and a sentence that gives nothing of the address away", async () => {
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

  it("an index that no frame has, as the bug that it is", () => {
    expect(() => setOf(dataUrl(png)).bytes(1)).toThrow(RangeError);
  });
});

describe("FrameSet ends its waits", () => {
  it("with the caller's reason when the caller leaves", async () => {
    const gone = new Error("the caller left");
    const caller = new AbortController();
    const { url } = await serve(() => caller.abort(gone));
    await expect(setOf(url, { ...openly, signal: caller.signal }).bytes(0)).rejects.toBe(gone);
    const decoding = setOf(dataUrl(png), { signal: caller.signal });
    await expect(decoding.rgb(0, WHOLE)).rejects.toBe(gone);
  });

  it("with the caller's reason when the caller leaves while a picture is decoded", async () => {
    const gone = new Error("the caller left");
    const caller = new AbortController();
    const decoding = setOf(dataUrl(png), { signal: caller.signal }).rgb(0, WHOLE);
    caller.abort(gone);
    await expect(decoding).rejects.toBe(gone);
  });

  it("at the deadline, whether it fetches or decodes", async () => {
    const { url } = await serve(() => {});
    const soon = await refusalOf(setOf(url, { ...openly, deadline: steadyNow() + 50 }).bytes(0));
    expect(soon.frameReason).toBe("frame_timed_out");
    const { url: never, requests } = await serve(() => {});
    const late = await refusalOf(setOf(never, { ...openly, deadline: steadyNow() - 1 }).bytes(0));
    expect(late.frameReason).toBe("frame_timed_out");
    expect(requests()).toBe(0);
    const large = await picture(6000, 6000, Buffer.alloc(6000 * 6000 * 3, 9))
      .png({ compressionLevel: 1 })
      .toBuffer();
    const slow = await refusalOf(setOf(dataUrl(large), { deadline: steadyNow() + 5 }).rgb(0, WHOLE));
    expect(slow.frameReason).toBe("frame_timed_out");
  });
});

describe("FrameSet holds", () => {
  it("against 10,000 damaged pictures: pixels of the size asked for, or a FrameRefused", async () => {
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
    for (const bytes of mutations(small, 10_000, 11)) {
      const work: Promise<void> = one(bytes).finally(() => inFlight.delete(work));
      inFlight.add(work);
      if (inFlight.size >= 8) await Promise.race(inFlight);
    }
    await Promise.all(inFlight);
    expect(refused).toBeGreaterThan(2_000);
    expect(decoded).toBeGreaterThan(200);
  });

  it("real camera frames, or noise where they aren't at hand", async () => {
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
