/** Images of the reference models: 8-bit RGB, rows from the top, decoded from and encoded to files. */
import sharp, { type OutputInfo } from "sharp";

/** An image of `width` by `height` pixels; `data` has 3 bytes (red, green, blue) per pixel, row by row from the top left. */
export interface RgbImage {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array;
}

/** An image and its camera's name. */
export interface RgbFrame {
  readonly camera: string;
  readonly image: RgbImage;
}

/** The supported file formats. */
export type ImageFormat = "png" | "jpeg" | "webp";

/** The bytes are not a complete PNG, JPEG or WebP image of at most 64 megapixels. The message is for the caller. */
export class UnreadableImage extends Error {
  override readonly name = "UnreadableImage";
}

const MAX_PIXELS = 64_000_000;
const FORMATS: ReadonlySet<string> = new Set<ImageFormat>(["png", "jpeg", "webp"]);

/** Returns a black image of the given size. */
export const blankImage = (width: number, height: number): RgbImage => ({
  width,
  height,
  data: new Uint8Array(width * height * 3),
});

/** Returns the image averaged over squares of `factor` pixels, without partial squares at the right or bottom edge. */
export function shrink(image: RgbImage, factor: number): RgbImage {
  if (factor <= 1) return image;
  const small = blankImage(
    Math.max(1, Math.floor(image.width / factor)),
    Math.max(1, Math.floor(image.height / factor)),
  );
  const across = Math.min(factor, image.width);
  const down = Math.min(factor, image.height);
  for (let i = 0; i < small.data.length; i++) {
    const pixel = Math.floor(i / 3);
    const left = (pixel % small.width) * factor;
    const top = Math.floor(pixel / small.width) * factor;
    let sum = 0;
    for (let y = top; y < top + down; y++) {
      for (let x = left; x < left + across; x++) sum += image.data[(y * image.width + x) * 3 + (i % 3)]!;
    }
    small.data[i] = Math.round(sum / (across * down));
  }
  return small;
}

/**
 * Decodes a PNG, JPEG or WebP file to RGB, with transparency over black. Throws `UnreadableImage` for other formats, truncated or damaged files,
 * and more than 64 megapixels.
 */
export async function decodeImage(bytes: Uint8Array): Promise<RgbImage> {
  const { data, info } = await decodePixels(bytes).catch((cause: unknown) => {
    if (cause instanceof UnreadableImage) throw cause;
    throw new UnreadableImage("the image is damaged, truncated or too large", { cause });
  });
  return { width: info.width, height: info.height, data: new Uint8Array(data) };
}

async function decodePixels(bytes: Uint8Array): Promise<{ data: Buffer; info: OutputInfo }> {
  const picture = sharp(bytes, { limitInputPixels: MAX_PIXELS, failOn: "error" });
  const { format } = await picture.metadata();
  if (!FORMATS.has(format)) throw new UnreadableImage("the image must be a PNG, JPEG or WebP file");
  return picture.flatten().toColourspace("srgb").removeAlpha().raw().toBuffer({ resolveWithObject: true });
}

/** Encodes an image as a file; PNG is exact, JPEG and WebP at quality 90. */
export function encodeImage(image: RgbImage, format: ImageFormat): Promise<Buffer> {
  const { width, height, data } = image;
  const picture = sharp(data, { raw: { width, height, channels: 3 } });
  return picture.toFormat(format, format === "png" ? { compressionLevel: 3 } : { quality: 90 }).toBuffer();
}
