/** Pictures as robots hold them, rows of red, green and blue, made into files that every wire takes. */
import sharp from "sharp";
import type { Signal } from "../../cancellation.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { SideNote } from "../../side-note.ts";
import { inSlices, type Sliced } from "../../slices.ts";
import { NdArray } from "../python/ndarray.ts";
import { readImageHeader } from "./image.ts";
import { type Asker, pictureTurns } from "./turns.ts";

const MOST_PIXELS = 4096 * 4096;

/** Three channels first or last, in bytes or in parts of one. */
export const isPicture = ({ shape }: NdArray): boolean => shape.length === 3 && (shape[2] === 3 || shape[0] === 3);

/** What a picture is encoded for: who asks, and until when. */
export interface EncodeOptions {
  readonly asker: Asker;
  /** Rejects with its reason where the picture's turn has not come by then. */
  readonly signal?: Signal;
  /** It was turned by half a turn before. */
  readonly turned?: boolean;
}

/** Red, green and blue bytes, row by row from the top left. They must not be written to. */
export interface RgbPixels {
  readonly data: Buffer;
  readonly width: number;
  readonly height: number;
}

/** What files were packed from, where it came as it is needed: a view of the message that it came with, and no copy. */
const packedFrom = new SideNote<Uint8Array, RgbPixels>("pixels");

/** The pixels that a file was packed from by `encoded`, where they are at hand: to unpack it would give the same. */
export const pixelsIn = (file: Uint8Array): RgbPixels | undefined => packedFrom.of(file);

/** The picture as a PNG file. Refuses what is no picture, by its key. */
export async function encoded(array: NdArray, key: string, options: EncodeOptions): Promise<Uint8Array> {
  if (!isPicture(array)) throw unfit(key, "a picture is [height, width, 3] or [3, height, width]");
  const { shape } = array;
  const last = shape[2] === 3;
  const [height = 0, width = 0] = last ? shape : shape.slice(1);
  if (height < 1 || width < 1 || height * width > MOST_PIXELS)
    throw unfit(key, `a picture has from 1 to ${MOST_PIXELS} pixels, not ${height} times ${width}`);
  const { asker, signal, turned = false } = options;
  const work = async (): Promise<Uint8Array> => {
    const pixels = await bytesOf(array, key);
    const raw = last ? pixels : await inSlices(interleaved(pixels, height * width));
    const picture = sharp(raw, { raw: { width, height, channels: 3 } });
    const png = turned ? picture.rotate(180) : picture;
    const file = await png.png({ compressionLevel: 1, adaptiveFiltering: false }).toBuffer();
    if (raw === array.data && !turned)
      packedFrom.set(file, { data: Buffer.from(raw.buffer, raw.byteOffset, raw.length), width, height });
    return file;
  };
  return pictureTurns.run(asker, height * width, work, signal);
}

/** Decoding may take eight bytes for each of them at once. */
const MOST_PIXELS_OF_A_FILE = 3840 * 2160;

/** A picture's file turned by half a turn, as a PNG. Refuses what is none, or is larger than 4K, by its key. */
export async function turnedFile(file: Buffer, key: string, { asker, signal }: EncodeOptions): Promise<Uint8Array> {
  const header = readImageHeader(file);
  if (header === undefined || header.width * header.height > MOST_PIXELS_OF_A_FILE)
    throw unfit(key, "a picture's file is a PNG or a JPEG of 4K at most");
  const work = async (): Promise<Uint8Array> => {
    try {
      const picture = sharp(file, { failOn: "error", limitInputPixels: MOST_PIXELS_OF_A_FILE });
      return await picture.rotate(180).png({ compressionLevel: 1, adaptiveFiltering: false }).toBuffer();
    } catch (cause) {
      throw unfit(key, "the picture's file cannot be decoded", cause);
    }
  };
  return pictureTurns.run(asker, header.width * header.height, work, signal);
}

/** openpi takes floats from 0 to 1 for pictures too. */
async function bytesOf(array: NdArray, key: string): Promise<Uint8Array> {
  if (array.dtype === "|u1") return array.data;
  if (!/f[248]$/.test(array.dtype)) throw unfit(key, "a picture is made of bytes, or of floats from 0 to 1");
  return inSlices(quantized(array));
}

/** Numbers of one slice: a picture of floats may have 50 million. */
const SLICE = 1 << 15;

function* quantized({ dtype, data }: NdArray): Sliced<Uint8Array> {
  const size = Number(dtype.at(-1));
  const count = data.length / size;
  const out = new Uint8Array(count);
  for (let from = 0; from < count; from += SLICE) {
    const to = Math.min(count, from + SLICE);
    const values = new NdArray(dtype, [to - from], data.subarray(from * size, to * size)).toFloat64();
    // Stored as a byte, what is no number is 0.
    for (let i = 0; i < values.length; i++) out[from + i] = Math.max(0, Math.min(255, Math.round(values[i]! * 255)));
    yield;
  }
  return out;
}

function* interleaved(planes: Uint8Array, pixels: number): Sliced<Uint8Array> {
  const out = new Uint8Array(pixels * 3);
  for (let from = 0; from < pixels; from += SLICE) {
    const to = Math.min(pixels, from + SLICE);
    for (let channel = 0; channel < 3; channel++)
      for (let i = from; i < to; i++) out[3 * i + channel] = planes[channel * pixels + i]!;
    yield;
  }
  return out;
}

/** The refusal of what stands under a key. */
export const unfit = (key: string, text: string, cause?: unknown): Refusal =>
  refuse(Reason.VALIDATION_FAILED, key ? `${key}: ${text}` : text, {}, { ...(key && { param: key }), cause });
