/** Pictures as robots hold them, rows of red, green and blue, made into files that every wire takes. */
import sharp from "sharp";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import type { NdArray } from "../python/ndarray.ts";
import { readImageHeader } from "./image.ts";

const MOST_PIXELS = 4096 * 4096;

/** Three channels first or last, in bytes or in parts of one. */
export const isPicture = ({ shape }: NdArray): boolean => shape.length === 3 && (shape[2] === 3 || shape[0] === 3);

/** The picture as a PNG file, turned by half a turn where it was before. Refuses what is none, by its key. */
export async function encoded(array: NdArray, key: string, turned: boolean): Promise<Uint8Array> {
  if (!isPicture(array)) throw unfit(key, "a picture is [height, width, 3] or [3, height, width]");
  const { shape } = array;
  const last = shape[2] === 3;
  const [height = 0, width = 0] = last ? shape : shape.slice(1);
  if (height < 1 || width < 1 || height * width > MOST_PIXELS)
    throw unfit(key, `a picture has from 1 to ${MOST_PIXELS} pixels, not ${height} times ${width}`);
  const pixels = bytesOf(array, key);
  const raw = last ? pixels : interleaved(pixels, height * width);
  const picture = sharp(raw, { raw: { width, height, channels: 3 } });
  const png = turned ? picture.rotate(180) : picture;
  return png.png({ compressionLevel: 1, adaptiveFiltering: false }).toBuffer();
}

/** Decoding may take eight bytes for each of them at once. */
const MOST_PIXELS_OF_A_FILE = 3840 * 2160;

/** A picture's file turned by half a turn, as a PNG. Refuses what is none, or is larger than 4K, by its key. */
export async function turnedFile(file: Buffer, key: string): Promise<Uint8Array> {
  const header = readImageHeader(file);
  if (header === undefined || header.width * header.height > MOST_PIXELS_OF_A_FILE)
    throw unfit(key, "a picture's file is a PNG or a JPEG of 4K at most");
  try {
    const picture = sharp(file, { failOn: "error", limitInputPixels: MOST_PIXELS_OF_A_FILE });
    return await picture.rotate(180).png({ compressionLevel: 1, adaptiveFiltering: false }).toBuffer();
  } catch (cause) {
    throw unfit(key, "the picture's file cannot be decoded", cause);
  }
}

/** openpi takes floats from 0 to 1 for pictures too. */
function bytesOf(array: NdArray, key: string): Uint8Array {
  if (array.dtype === "|u1") return array.data;
  if (!/f[248]$/.test(array.dtype)) throw unfit(key, "a picture is made of bytes, or of floats from 0 to 1");
  return Uint8Array.from(array.toFloat64(), (value) => Math.max(0, Math.min(255, Math.round(value * 255))));
}

function interleaved(planes: Uint8Array, pixels: number): Uint8Array {
  const out = new Uint8Array(pixels * 3);
  for (let channel = 0; channel < 3; channel++)
    for (let i = 0; i < pixels; i++) out[3 * i + channel] = planes[channel * pixels + i]!;
  return out;
}

/** The refusal of what stands under a key. */
export const unfit = (key: string, text: string, cause?: unknown): Refusal =>
  refuse(Reason.VALIDATION_FAILED, key ? `${key}: ${text}` : text, {}, { ...(key && { param: key }), cause });
