/** Images as pixel arrays, and their encoding as files that every wire accepts. */
import sharp from "sharp";
import type { Signal } from "../../cancellation.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { SideNote } from "../../side-note.ts";
import { inSlices, type Sliced } from "../../slices.ts";
import { NdArray } from "../python/ndarray.ts";
import { PNG_HEADER_END, PNG_START, readImageHeader, uprighted } from "./image.ts";
import { type Asker, pictureTurns } from "./turns.ts";

const MOST_PIXELS = 4096 * 4096;

/** Whether the array has three channels, first or last. */
export const isPicture = ({ shape }: NdArray): boolean => shape.length === 3 && (shape[2] === 3 || shape[0] === 3);

/** The caller of an encoding, and its cancellation. */
export interface EncodeOptions {
  readonly asker: Asker;
  /** Rejects with its reason if it is aborted before the image's turn. */
  readonly signal?: Signal;
  /** Whether the image was rotated by 180° before. */
  readonly turned?: boolean;
}

/** RGB bytes, row by row from the top left. Do not write to them. */
export interface RgbPixels {
  readonly data: Buffer;
  readonly width: number;
  readonly height: number;
}

const pixelsOf = new SideNote<Uint8Array, RgbPixels>("pixels");

/** Returns the pixels behind a placeholder of `headOf`; undefined for a file. */
export const pixelsIn = (data: Uint8Array): RgbPixels | undefined => pixelsOf.of(data);

/**
 * Returns a placeholder for an image that came as pixels, until its file is needed: a PNG header, from which contracts read format and
 * size, with the pixels attached, as a view of their message if possible. Decoded as a file, it is truncated. Refuses data that is not an
 * image, by its key.
 */
export async function headOf(array: NdArray, key: string, options: EncodeOptions): Promise<Uint8Array> {
  const pixels = await rgbOf(array, key, options);
  const head = pngHead(pixels);
  pixelsOf.set(head, pixels);
  return head;
}

/** Encodes pixels as a PNG file. This takes milliseconds of one of Node's threads, so call it within `pictureTurns`. */
export const packed = ({ data, width, height }: RgbPixels): Promise<Buffer> =>
  sharp(data, { raw: { width, height, channels: 3 } })
    .png(PACKED)
    .toBuffer();

/** Fast rather than small: the file goes only to a model server. */
const PACKED = { compressionLevel: 1, adaptiveFiltering: false } as const;

/** Returns the image as a PNG file. Refuses arrays that are not images, by key. */
export async function encoded(array: NdArray, key: string, options: EncodeOptions): Promise<Uint8Array> {
  const pixels = await rgbOf(array, key, options);
  return pictureTurns.run(options.asker, pixels.width * pixels.height, () => packed(pixels), options.signal);
}

/** Eight bits of red, green and blue. */
const PNG_COLOURS = [8, 2] as const;

function pngHead({ width, height }: RgbPixels): Buffer {
  const head = Buffer.alloc(PNG_HEADER_END);
  PNG_START.copy(head);
  head.writeUInt32BE(width, PNG_START.length);
  head.writeUInt32BE(height, PNG_START.length + 4);
  head.set(PNG_COLOURS, PNG_START.length + 8);
  return head;
}

async function rgbOf(array: NdArray, key: string, options: EncodeOptions): Promise<RgbPixels> {
  if (!isPicture(array))
    throw unfit(key, `must have the shape [height, width, 3] or [3, height, width], got [${array.shape.join(", ")}]`);
  const { shape, dtype, data } = array;
  const last = shape[2] === 3;
  const [height = 0, width = 0] = last ? shape : shape.slice(1);
  if (height < 1 || width < 1 || height * width > MOST_PIXELS)
    throw unfit(key, `must have between 1 and ${MOST_PIXELS} pixels, got ${height} times ${width}`);
  const { asker, signal, turned = false } = options;
  if (last && dtype === "|u1" && !turned) return { data: bufferOf(data), width, height };
  const work = async (): Promise<RgbPixels> => {
    const pixels = await bytesOf(array, key);
    const rows = last ? pixels : await inSlices(interleaved(pixels, height * width));
    return { data: bufferOf(turned ? await inSlices(turnedRows(rows)) : rows), width, height };
  };
  return pictureTurns.run(asker, height * width, work, signal);
}

const bufferOf = ({ buffer, byteOffset, length }: Uint8Array): Buffer => Buffer.from(buffer, byteOffset, length);

/** Decoding can need eight bytes per pixel at once. */
const MOST_PIXELS_OF_A_FILE = 3840 * 2160;

/** Returns the image file upright, rotated by 180°, as a PNG. Refuses files that are not images or are larger than 4K, by key. */
export async function turnedFile(file: Buffer, key: string, { asker, signal }: EncodeOptions): Promise<Uint8Array> {
  const header = readImageHeader(file);
  if (header === undefined || header.width * header.height > MOST_PIXELS_OF_A_FILE)
    throw unfit(key, "must be a PNG or JPEG file of 4K at most");
  const work = async (): Promise<Uint8Array> => {
    try {
      const picture = sharp(file, { failOn: "error", limitInputPixels: MOST_PIXELS_OF_A_FILE });
      return await uprighted(picture, header.orientation ?? 1, 180)
        .png(PACKED)
        .toBuffer();
    } catch (cause) {
      throw unfit(key, "is an image file that cannot be decoded", cause);
    }
  };
  return pictureTurns.run(asker, header.width * header.height, work, signal);
}

/** openpi also accepts floats from 0 to 1 for images. */
async function bytesOf(array: NdArray, key: string): Promise<Uint8Array> {
  if (array.dtype === "|u1") return array.data;
  if (!/f[248]$/.test(array.dtype)) throw unfit(key, `must consist of uint8 or floats from 0 to 1, got ${array.dtype}`);
  return inSlices(quantized(array, key));
}

/** Half floats and resizing can slightly leave 0 to 1; larger values were never divided by 255. */
const BRIGHTNESS = { least: -0.001, most: 1.001 } as const;

/** Numbers per slice: a float image can have 50 million. */
const SLICE = 1 << 15;

function* quantized({ dtype, data }: NdArray, key: string): Sliced<Uint8Array> {
  const size = Number(dtype.at(-1));
  const count = data.length / size;
  const out = new Uint8Array(count);
  for (let from = 0; from < count; from += SLICE) {
    const to = Math.min(count, from + SLICE);
    const values = new NdArray(dtype, [to - from], data.subarray(from * size, to * size)).toFloat64();
    for (let i = 0; i < values.length; i++) {
      const value = values[i]!;
      if (!(value >= BRIGHTNESS.least && value <= BRIGHTNESS.most))
        throw unfit(key, `must consist of uint8 or floats from 0 to 1, got ${value}`);
      out[from + i] = Math.min(255, Math.max(0, Math.round(value * 255)));
    }
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

/** Rotates by 180°: the last pixel becomes the first. */
function* turnedRows(rows: Uint8Array): Sliced<Uint8Array> {
  const out = new Uint8Array(rows.length);
  for (let from = 0; from < rows.length; from += 3 * SLICE) {
    const end = Math.min(rows.length, from + 3 * SLICE);
    for (let at = from, to = rows.length - 3 - from; at < end; at += 3, to -= 3) {
      out[to] = rows[at]!;
      out[to + 1] = rows[at + 1]!;
      out[to + 2] = rows[at + 2]!;
    }
    yield;
  }
  return out;
}

/** Returns the refusal of the value under `key`; `text` continues the sentence that the key begins. */
export const unfit = (key: string, text: string, cause?: unknown): Refusal =>
  refuse(Reason.VALIDATION_FAILED, key ? `\`${key}\` ${text}` : text, {}, { ...(key && { param: key }), cause });
