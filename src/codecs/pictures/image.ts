/**
 * Reads an encoded image's format and size from its first bytes and structure, without decoding pixels. Sources: PNG (W3C), sections 5 and
 * 11.3.4.5; JPEG (ITU-T T.81), annex B; WebP (RFC 9649), section 2; Exif 2.32 (JEITA CP-3451E), section 4.6.
 */
import sharp, { type Sharp } from "sharp";

/** The three encodings that cameras and model servers exchange. */
export type ImageFormat = "png" | "jpeg" | "webp";

/** An image's format and size, and the cost of decoding it. */
export interface ImageHeader {
  readonly format: ImageFormat;
  /** Width of the upright image, in pixels, above zero. */
  readonly width: number;
  /** Height of the upright image, in pixels, above zero. */
  readonly height: number;
  /** The stored orientation; undefined if these bytes end before it could appear. */
  readonly orientation: Orientation | undefined;
  /** 16 bits of gray per pixel: a depth image. */
  readonly isDepth: boolean;
  /** False if the file ends before its image does. */
  readonly complete: boolean;
  /** Rows are stored in order, so a decoder need not hold the entire image. False for WebP, interlaced PNG, and JPEG with several scans. */
  readonly rowByRow: boolean;
}

/** Reads the header of a PNG, JPEG or WebP; undefined for other bytes. The pixels can still be damaged. */
export function readImageHeader(bytes: Buffer): ImageHeader | undefined {
  const header = readPng(bytes) ?? readJpeg(bytes) ?? readWebp(bytes);
  if (header === undefined || header.width <= 0 || header.height <= 0) return undefined;
  const { orientation = 1, width, height } = header;
  return orientation < LIES_ON_ITS_SIDE ? header : { ...header, width: height, height: width };
}

/** From this orientation on, rows and columns are swapped. */
const LIES_ON_ITS_SIDE = 5;

/** The number of bytes before a PNG's width. */
export const PNG_START: Buffer = Buffer.from("89504e470d0a1a0a0000000d49484452", "hex");
/** The end of a PNG's header: after its size and pixel type. */
export const PNG_HEADER_END = 33;

function readPng(bytes: Buffer): ImageHeader | undefined {
  if (bytes.length < PNG_HEADER_END || !startsWith(bytes, PNG_START)) return undefined;
  let orientation: Orientation | undefined;
  let complete = false;
  // Each chunk: length, type, data, checksum.
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
/** The chunk names eXIf and IEND as numbers. */
const PNG_EXIF = 0x65584966;
const PNG_END = 0x49454e44;

const JPEG = { start: 0xd8, end: 0xd9, scan: 0xda, fill: 0xff, temporary: 0x01, sequential: 0xc1, app1: 0xe1 } as const;

/** The limit of markers and fill bytes before the first scan: cameras write a few dozen, a hostile file has millions. */
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

/** The first scan shows whether it contains all components, and whether an end marker follows; scan data never contain the marker's bytes. */
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
/** The number of last bytes that are searched for the end marker: searching 16 MB of near matches takes 0.1 s. */
const MOST_BEHIND = 1 << 18;

/** SOF0 to SOF15; three codes in that range have other meanings (DHT, JPG, DAC). */
const isJpegFrame = (marker: number): boolean =>
  marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;

const WEBP_HEADER_END = 30;

/** The position of the size in each WebP type, after the name of its first chunk. */
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

/** The limit of searched WebP chunks: a long animation has some thousand. */
const MOST_CHUNKS = 1 << 14;

/** Returns the orientation of the EXIF chunk, which follows the pixels. Its data can begin with JPEG's EXIF name. */
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

/** Whether the four-letter name is at this position. */
function isAt(bytes: Buffer, at: number, name: string): boolean {
  for (let i = 0; i < 4; i++) if (bytes[at + i] !== name.charCodeAt(i)) return false;
  return true;
}

/** An image's orientation by its EXIF data. Source: Exif 2.32 (JEITA CP-3451E), sections 4.6.2 and 4.6.4; TIFF 6.0, section 2. */

/** 1 is upright; the others are mirrored, rotated, or both. */
export type Orientation = 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8;

/** The operations that make a stored image upright: mirror first, then rotate clockwise. */
interface Uprighting {
  /** Top to bottom. */
  readonly flip: boolean;
  /** Left to right. */
  readonly flop: boolean;
  readonly degrees: 0 | 90 | 180 | 270;
}

/** The operations for each orientation. */
export const UPRIGHTING: Readonly<Record<Orientation, Uprighting>> = {
  1: { flip: false, flop: false, degrees: 0 },
  2: { flip: false, flop: true, degrees: 0 },
  3: { flip: false, flop: false, degrees: 180 },
  4: { flip: true, flop: false, degrees: 0 },
  5: { flip: true, flop: false, degrees: 90 },
  6: { flip: false, flop: false, degrees: 90 },
  7: { flip: false, flop: true, degrees: 90 },
  8: { flip: false, flop: false, degrees: 270 },
};

const LITTLE_ENDIAN = 0x4949;
const BIG_ENDIAN = 0x4d4d;
const TIFF = 42;
const ORIENTATION = 0x0112;
/** TIFF types of the orientation: SHORT by the standard, BYTE and LONG by some cameras. */
const [BYTE, SHORT, LONG] = [1, 3, 4];
const ENTRY_BYTES = 12;
/** The limit of TIFF entries: cameras write a few dozen. */
const MOST_ENTRIES = 512;

/** Returns the orientation in the TIFF data between `from` and `to`; undefined if it is missing or damaged. */
function orientationIn(bytes: Buffer, from: number, to: number): Orientation | undefined {
  const end = Math.min(to, bytes.length);
  if (from + 8 > end) return undefined;
  const order = bytes.readUInt16BE(from);
  if (order !== LITTLE_ENDIAN && order !== BIG_ENDIAN) return undefined;
  const isLittle = order === LITTLE_ENDIAN;
  const short = (at: number): number => (isLittle ? bytes.readUInt16LE(at) : bytes.readUInt16BE(at));
  const long = (at: number): number => (isLittle ? bytes.readUInt32LE(at) : bytes.readUInt32BE(at));
  if (short(from + 2) !== TIFF) return undefined;
  const directory = from + long(from + 4);
  if (directory + 2 > end) return undefined;
  const count = Math.min(short(directory), MOST_ENTRIES);
  for (let at = directory + 2, i = 0; i < count && at + ENTRY_BYTES <= end; i++, at += ENTRY_BYTES) {
    if (short(at) !== ORIENTATION) continue;
    const type = short(at + 2);
    const value = type === SHORT ? short(at + 8) : type === LONG ? long(at + 8) : type === BYTE ? bytes[at + 8] : 0;
    return isOrientation(value) ? value : undefined;
  }
  return undefined;
}

const isOrientation = (value: number | undefined): value is Orientation =>
  value !== undefined && Object.hasOwn(UPRIGHTING, value);

/** Returns the picture upright, then turned clockwise by `degrees`. Use it only if no other step follows: sharp may reorder steps. */
export function uprighted(picture: Sharp, orientation: Orientation, degrees: 0 | 180 = 0): Sharp {
  const { flip, flop, degrees: own } = UPRIGHTING[orientation];
  const turn = (own + degrees) % 360;
  return turn === 0 ? picture.flip(flip).flop(flop) : picture.flip(flip).flop(flop).rotate(turn);
}

/**
 * Returns the same image upright and without metadata, in its own format. This needs memory for all pixels and one of Node's threads, so call it
 * within `pictureTurns`. Rejects with sharp's error.
 */
export async function uprightFile(
  file: Buffer,
  { format, orientation = 1, width, height, isDepth }: ImageHeader,
  timeoutS: number,
): Promise<Buffer> {
  const opened = sharp(file, { failOn: "error", limitInputPixels: width * height }).timeout({ seconds: timeoutS });
  const picture = uprighted(isDepth ? opened.toColourspace("grey16") : opened, orientation);
  return WRITE[format](picture).toBuffer();
}

/** Colors keep their full resolution, because models locate points in these pixels. */
const WRITE: Readonly<Record<ImageFormat, (picture: Sharp) => Sharp>> = {
  jpeg: (picture) => picture.jpeg({ quality: 95, chromaSubsampling: "4:4:4" }),
  png: (picture) => picture.png({ compressionLevel: 1, adaptiveFiltering: false }),
  webp: (picture) => picture.webp({ quality: 95, effort: 0 }),
};
