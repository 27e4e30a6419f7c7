/**
 * What an encoded picture says about itself, read from its first bytes and its outline without decoding a pixel.
 * Sources: PNG (W3C), sections 5 and 11.3.4.5; JPEG (ITU-T T.81), annex B; WebP (RFC 9649), section 2; Exif 2.32 (JEITA CP-3451E), section 4.6.
 */
import { type Orientation, orientationIn } from "./exif.ts";

/** The three encodings that cameras and model servers exchange. */
export type ImageFormat = "png" | "jpeg" | "webp";

/** Format and size of a picture, and what decoding it takes. */
export interface ImageHeader {
  readonly format: ImageFormat;
  /** Of the upright picture, in pixels, above zero. */
  readonly width: number;
  /** Of the upright picture, in pixels, above zero. */
  readonly height: number;
  /** How its pixels are stored; undefined where these bytes end before everything that could say so. */
  readonly orientation: Orientation | undefined;
  /** 16 bits of grey a pixel: depth, and no picture of colors. */
  readonly isDepth: boolean;
  /** False when the file ends before its picture does. */
  readonly complete: boolean;
  /** Rows come in order, so a decoder needn't hold the whole picture: not so for WebP, interlaced PNG, and JPEG in several scans. */
  readonly rowByRow: boolean;
}

/** Reads the header of a PNG, JPEG or WebP; undefined for all other bytes. Says nothing about the pixels: those may still be broken. */
export function readImageHeader(bytes: Buffer): ImageHeader | undefined {
  const header = readPng(bytes) ?? readJpeg(bytes) ?? readWebp(bytes);
  if (header === undefined || header.width <= 0 || header.height <= 0) return undefined;
  const { orientation = 1, width, height } = header;
  return orientation < LIES_ON_ITS_SIDE ? header : { ...header, width: height, height: width };
}

/** From this orientation on, rows are stored as columns. */
const LIES_ON_ITS_SIDE = 5;

/** The bytes ahead of a PNG's width. */
export const PNG_START: Buffer = Buffer.from("89504e470d0a1a0a0000000d49484452", "hex");
/** Where a PNG's head ends: behind its sizes and the kind of its pixels. */
export const PNG_HEADER_END = 33;

function readPng(bytes: Buffer): ImageHeader | undefined {
  if (bytes.length < PNG_HEADER_END || !startsWith(bytes, PNG_START)) return undefined;
  let orientation: Orientation | undefined;
  let complete = false;
  // From chunk to chunk: length, type, data, checksum.
  for (let at = PNG_HEADER_END; !complete && at + 12 <= bytes.length; at += 12 + bytes.readUInt32BE(at)) {
    const type = bytes.readUInt32BE(at + 4);
    if (type === PNG_EXIF) orientation ??= orientationIn(bytes, at + 8, at + 8 + bytes.readUInt32BE(at));
    complete = type === PNG_END;
  }
  return {
    format: "png",
    width: bytes.readUInt32BE(16),
    height: bytes.readUInt32BE(20),
    orientation: orientation ?? (complete ? 1 : undefined),
    isDepth: bytes[24] === 16 && (bytes[25] === PNG_GREY || bytes[25] === PNG_GREY_ALPHA),
    complete,
    rowByRow: bytes[28] === 0,
  };
}

const PNG_GREY = 0;
const PNG_GREY_ALPHA = 4;
/** The names of chunks as numbers: eXIf and IEND. */
const PNG_EXIF = 0x65584966;
const PNG_END = 0x49454e44;

const JPEG = { start: 0xd8, end: 0xd9, scan: 0xda, fill: 0xff, temporary: 0x01, sequential: 0xc1, app1: 0xe1 } as const;

/** Markers, and bytes that fill the space before them, ahead of a picture's first scan: cameras write a few dozen, a hostile file has millions. */
const MOST_MARKERS = 1 << 16;

function readJpeg(bytes: Buffer): ImageHeader | undefined {
  if (bytes[0] !== 0xff || bytes[1] !== JPEG.start) return undefined;
  let frame: JpegFrame | undefined;
  let orientation: Orientation | undefined;
  let left = MOST_MARKERS;
  for (let at = 2; at + 4 <= bytes.length; ) {
    if (bytes[at] !== 0xff || left-- === 0) return undefined;
    const marker = bytes[at + 1]!;
    if (marker === JPEG.fill) at += 1;
    else if (marker === JPEG.temporary || (marker >= 0xd0 && marker <= 0xd7)) at += 2;
    else if (marker === JPEG.scan) return frame && jpegHeader(frame, orientation ?? 1, bytes, at);
    else {
      if (isJpegFrame(marker) && at + 10 <= bytes.length) frame = jpegFrame(bytes, at);
      const length = Math.max(2, bytes.readUInt16BE(at + 2));
      if (marker === JPEG.app1 && isAt(bytes, at + 4, "Exif"))
        orientation ??= orientationIn(bytes, at + 10, at + 2 + length);
      at += 2 + length;
    }
  }
  return undefined;
}

interface JpegFrame {
  readonly width: number;
  readonly height: number;
  readonly components: number;
  readonly sequential: boolean;
}

const jpegFrame = (bytes: Buffer, at: number): JpegFrame => ({
  height: bytes.readUInt16BE(at + 5),
  width: bytes.readUInt16BE(at + 7),
  components: bytes[at + 9]!,
  sequential: bytes[at + 1]! <= JPEG.sequential,
});

/** The first scan shows the rest: whether it holds all components, and (it never contains the end marker's bytes) whether an end follows. */
const jpegHeader = (
  { width, height, components, sequential }: JpegFrame,
  orientation: Orientation,
  bytes: Buffer,
  scan: number,
): ImageHeader => ({
  format: "jpeg",
  width,
  height,
  orientation,
  isDepth: false,
  complete: bytes.subarray(Math.max(scan, bytes.length - MOST_BEHIND)).lastIndexOf(JPEG_END) >= 0,
  rowByRow: sequential && bytes[scan + 4] === components,
});

const JPEG_END = Buffer.from([0xff, JPEG.end]);
/** So many of the last bytes are looked through for the end: looking through 16 MB of bytes that are nearly it takes a tenth of a second. */
const MOST_BEHIND = 1 << 18;

/** SOF0 to SOF15; three codes of that range mean something else (DHT, JPG, DAC). */
const isJpegFrame = (marker: number): boolean =>
  marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;

const WEBP_HEADER_END = 30;

/** Where each kind of WebP keeps its size, behind the name of its first chunk. */
const WEBP_SIZE: Readonly<Record<string, (bytes: Buffer) => { width: number; height: number } | undefined>> = {
  "VP8 ": (bytes) =>
    bytes.readUIntBE(23, 3) === 0x9d012a
      ? { width: bytes.readUInt16LE(26) & 0x3fff, height: bytes.readUInt16LE(28) & 0x3fff }
      : undefined,
  VP8L: (bytes) => {
    const bits = bytes.readUInt32LE(21);
    return bytes[20] === 0x2f ? { width: 1 + (bits & 0x3fff), height: 1 + ((bits >>> 14) & 0x3fff) } : undefined;
  },
  VP8X: (bytes) => ({ width: 1 + bytes.readUIntLE(24, 3), height: 1 + bytes.readUIntLE(27, 3) }),
};

function readWebp(bytes: Buffer): ImageHeader | undefined {
  if (bytes.length < WEBP_HEADER_END || !isAt(bytes, 0, "RIFF") || !isAt(bytes, 8, "WEBP")) return undefined;
  const kind = bytes.toString("latin1", 12, 16);
  const size = WEBP_SIZE[kind]?.(bytes);
  if (size === undefined) return undefined;
  const complete = 8 + bytes.readUInt32LE(4) <= bytes.length;
  const orientation = kind === "VP8X" ? webpOrientation(bytes) : 1;
  return {
    format: "webp",
    ...size,
    orientation: orientation ?? (complete ? 1 : undefined),
    isDepth: false,
    complete,
    rowByRow: false,
  };
}

/** Chunks of a WebP that are looked through: a long animation has some thousand. */
const MOST_CHUNKS = 1 << 14;

/** The orientation in the EXIF chunk, which stands behind the pixels; its data may begin with the name that JPEG puts before them. */
function webpOrientation(bytes: Buffer): Orientation | undefined {
  let left = MOST_CHUNKS;
  for (let at = 12; at + 8 <= bytes.length && left-- > 0; ) {
    const length = bytes.readUInt32LE(at + 4);
    const from = at + 8;
    if (isAt(bytes, at, "EXIF"))
      return orientationIn(bytes, isAt(bytes, from, "Exif") ? from + 6 : from, from + length);
    at = from + length + (length & 1);
  }
  return undefined;
}

const startsWith = (bytes: Buffer, prefix: Buffer): boolean =>
  bytes.length >= prefix.length && bytes.compare(prefix, 0, prefix.length, 0, prefix.length) === 0;

/** Whether the four letters of a name stand there. */
function isAt(bytes: Buffer, at: number, name: string): boolean {
  for (let i = 0; i < 4; i++) if (bytes[at + i] !== name.charCodeAt(i)) return false;
  return true;
}
