/** How a camera held a picture, as its EXIF data has it. Source: Exif 2.32 (JEITA CP-3451E), sections 4.6.2 and 4.6.4; TIFF 6.0, section 2. */

/** 1 is upright; the others are mirrored, turned, or both. */
export type Orientation = 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8;

/** What makes a stored picture upright: it is mirrored first, then turned clockwise. */
export interface Uprighting {
  /** Top to bottom. */
  readonly flip: boolean;
  /** Left to right. */
  readonly flop: boolean;
  readonly degrees: 0 | 90 | 180 | 270;
}

/** What each orientation needs. */
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
/** Types of TIFF in which the orientation is written: SHORT by the standard, BYTE and LONG by some cameras. */
const [BYTE, SHORT, LONG] = [1, 3, 4];
const ENTRY_BYTES = 12;
/** Cameras write a few dozen. */
const MOST_ENTRIES = 512;

/** The orientation in TIFF data that stands from `from` up to `to`; undefined where it states none, or is damaged. */
export function orientationIn(bytes: Buffer, from: number, to: number): Orientation | undefined {
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
