/** Generated images of an object at a known place, for the conformance probe. */
import sharp from "sharp";

/** Returns a red square on gray as a PNG of `size` by `size` pixels; its center at (`x`, `y`), normalized. */
export const redSquare = (x: number, y: number, size = 224): Promise<Buffer> =>
  redSquareAs({ x, y }, { width: size, height: size });

/** The same in another size and encoding. */
export function redSquareAs(
  { x, y }: { x: number; y: number },
  { width = 224, height = 224, format = "png" }: { width?: number; height?: number; format?: "png" | "jpeg" | "webp" },
): Promise<Buffer> {
  const side = Math.max(1, Math.round(Math.min(width, height) / 5));
  const square = { create: { width: side, height: side, channels: 3 as const, background: { r: 220, g: 20, b: 20 } } };
  const [left, top] = [x * width - side / 2, y * height - side / 2].map((at) => Math.max(0, Math.round(at)));
  return sharp({ create: { width, height, channels: 3, background: { r: 128, g: 128, b: 128 } } })
    .composite([{ input: square, left: left!, top: top! }])
    .toFormat(format)
    .toBuffer();
}

const LARGE = { width: 1_280, height: 720 } as const;
/** The number of generated noise rows; they are repeated far enough apart that the file does not become smaller. */
const GRAIN_ROWS = 32;
/** Sensor noise, in levels, equal for all colors. */
const GRAIN = 16;

let grainy: Promise<Buffer> | undefined;

/** Returns a red square as a camera of 1,280 by 720 sees it, with noise: a JPEG of about 350 kB, always the same one. */
export function grainyPicture(): Promise<Buffer> {
  grainy ??= makeGrainy();
  return grainy;
}

async function makeGrainy(): Promise<Buffer> {
  const grain = Buffer.alloc(LARGE.width * GRAIN_ROWS * 4);
  let state = 1;
  for (let i = 0; i < grain.length; i += 4) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    grain.fill(Math.floor((state / 2 ** 32) * GRAIN), i, i + 3);
    grain[i + 3] = 255;
  }
  const raw = { width: LARGE.width, height: GRAIN_ROWS, channels: 4 } as const;
  return sharp(await redSquare(0.75, 0.25))
    .resize(LARGE.width, LARGE.height, { fit: "contain", kernel: "nearest", background: "#808080" })
    .composite([{ input: grain, raw, tile: true, blend: "add" }])
    .removeAlpha()
    .jpeg({ quality: 95 })
    .toBuffer();
}
