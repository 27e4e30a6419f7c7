/**
 * Numbers as JSON writes them, straight into bytes: what `String` says, at a third of its price for the figures that models answer,
 * most of which need sixteen or seventeen digits. Whatever is not surely right in plain doubles is left to `String`.
 */

/** The most bytes that a number takes: sign, digits, point, and three for an exponent with its sign. */
export const LONGEST_NUMBER = 26;

/** Writes a finite number at `at`, where `LONGEST_NUMBER` bytes have room; returns where it ends. */
export function writeNumber(bytes: Uint8Array, value: number, at: number): number {
  const size = Math.abs(value);
  if (size >= LEAST && size < MOST) {
    const start = value < 0 ? at + 1 : at;
    const parts = size * PARTS;
    const whole = Math.floor(parts);
    const end =
      parts === whole && whole / PARTS === size ? writeParts(bytes, whole, start) : writeFraction(bytes, size, start);
    if (end > 0) {
      if (value < 0) bytes[at] = MINUS;
      return end;
    }
  }
  if (value === 0) {
    bytes[at] = ZERO;
    return at + 1;
  }
  const text = String(value);
  for (let i = 0; i < text.length; i++) bytes[at + i] = text.charCodeAt(i);
  return at + text.length;
}

/** Within these no number has an exponent, and each has a power of ten that is a double to bring it to seventeen digits. */
const LEAST = 2e-6;
const MOST = 2 ** 31;

const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;

/** 10 ** i, exactly. */
const TENS = Float64Array.from({ length: 23 }, (_, i) => Number(`1e${i}`));

/** Both halves of each of them, whose products are exact. */
const HIGH_TENS = TENS.map((ten) => halfOf(ten));
const LOW_TENS = TENS.map((ten, i) => ten - HIGH_TENS[i]!);

/** Both digits of every number below a hundred, the first of them low. */
const PAIRS = Uint16Array.from({ length: 100 }, (_, i) => ((ZERO + (i % 10)) << 8) | (ZERO + Math.floor(i / 10)));

/** So many digits always tell a double from its neighbours. */
const DIGITS = 17;
/** The seventeen digits are held in two halves: nine, and eight. */
const LOW = 1e8;

/** What rounding may have left out below the last digit, with room to spare; nearer decisions are left to `String`. */
const UNSURE = 1e-6;

/** The upper half of a double, of 26 bits: products of halves are exact. */
function halfOf(value: number): number {
  const a = value * (2 ** 27 + 1);
  return a - (a - value);
}

const float = new Float64Array(1);
const words = new Uint32Array(float.buffer);

/** By the power of two from 2^-20 on: its power of ten or the one below, and half of the distance between doubles there. */
const LEAST_POWER = 20;
const POWERS = 52;
const DECIMAL = Int8Array.from({ length: POWERS }, (_, i) => Math.floor(Math.log10(2 ** (i - LEAST_POWER))));
const HALF_STEP = Float64Array.from({ length: POWERS }, (_, i) => 2 ** (i - LEAST_POWER - 53));

/** 10 ** (i - 5), of those below one the double next to it: a value that lies between the two is sent to `String` by its digits. */
const NEXT_TEN = Float64Array.from({ length: 16 }, (_, i) => Number(`1e${i - 5}`));

/**
 * Writes a positive fraction, or nothing and returns 0. Scaled so that seventeen digits stand before the point, its neighbours
 * lie between one and twenty-two units away: the shortest text is the roundest whole number within half of that.
 */
function writeFraction(bytes: Uint8Array, value: number, at: number): number {
  float[0] = value;
  const top = words[1]!;
  // A power of two has a nearer neighbour below than above.
  if ((top & 0xfffff) === 0 && words[0] === 0) return 0;
  const power = (top >>> 20) - 1023 + LEAST_POWER;
  let exponent = DECIMAL[power]!;
  if (value >= NEXT_TEN[exponent + 6]!) exponent++;
  const ten = DIGITS - 1 - exponent;
  const scale = TENS[ten]!;
  // The product and its error, exactly: Dekker's.
  const product = value * scale;
  const aHigh = halfOf(value);
  const aLow = value - aHigh;
  const bHigh = HIGH_TENS[ten]!;
  const bLow = LOW_TENS[ten]!;
  const error = aLow * bLow - (product - aHigh * bHigh - aLow * bHigh - aHigh * bLow);
  const high = Math.floor(product / LOW);
  const low = product - high * LOW + error;
  // Half of the distance to the next double, in units of the last digit.
  const reach = HALF_STEP[power]! * scale;

  let nearest = Math.floor(low + 0.5);
  if (Math.abs(Math.abs(low - nearest) - 0.5) < UNSURE) return 0;
  for (let wider = 10; ; wider *= 10) {
    const candidate = Math.floor(low * (1 / wider) + 0.5) * wider;
    const off = Math.abs(low - candidate);
    if (off > reach + UNSURE) break;
    if (off > reach - UNSURE || Math.abs(off - wider / 2) < UNSURE) return 0;
    nearest = candidate;
    if (wider === LOW) break; // nothing is left of the lower half
  }
  const carry = nearest === LOW ? 1 : 0;
  if (nearest < 0 || high + carry >= 1e9 || high < 1e8) return 0;
  return place(bytes, high + carry, nearest - carry * LOW, exponent, at);
}

/** Writes seventeen digits with the point behind the first and `exponent` more, without the zeros at their end. */
function place(bytes: Uint8Array, high: number, low: number, exponent: number, from: number): number {
  let digits = from;
  if (exponent < 0) {
    bytes[digits++] = ZERO;
    bytes[digits++] = POINT;
    for (let i = exponent + 1; i < 0; i++) bytes[digits++] = ZERO;
  } else digits++; // one place further, for the point: the digits before it are moved back
  const upper = high | 0;
  const lead = (upper / LOW) | 0;
  bytes[digits] = ZERO + lead;
  eight(bytes, (upper - lead * LOW) | 0, digits + 1);
  eight(bytes, low | 0, digits + 9);
  let end = digits + DIGITS;
  while (bytes[end - 1] === ZERO) end--;
  if (exponent < 0) return end;
  for (let i = 0; i <= exponent; i++) bytes[from + i] = bytes[digits + i]!;
  const point = from + exponent + 1;
  if (end <= point + 1) return point;
  bytes[point] = POINT;
  return end;
}

/** Writes eight digits. */
function eight(bytes: Uint8Array, value: number, at: number): void {
  if (bytes !== viewed) {
    viewed = bytes;
    view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }
  const to = view;
  const upper = (value / 10_000) | 0;
  const lower = (value - upper * 10_000) | 0;
  const first = (upper / 100) | 0;
  const third = (lower / 100) | 0;
  to.setUint16(at, PAIRS[first]!, true);
  to.setUint16(at + 2, PAIRS[(upper - first * 100) | 0]!, true);
  to.setUint16(at + 4, PAIRS[third]!, true);
  to.setUint16(at + 6, PAIRS[(lower - third * 100) | 0]!, true);
}

/** The bytes that were written last, and how two at once are. */
let viewed: Uint8Array | undefined;
let view: DataView;

/** Numbers of four decimals are written as so many of their last places. */
const PARTS = 10_000;

/** Writes a number of ten-thousandths: with so few digits no other decimal is the same double. */
function writeParts(bytes: Uint8Array, parts: number, at: number): number {
  const whole = Math.floor(parts / PARTS);
  let end = at;
  if (whole === 0) bytes[end++] = ZERO;
  else end = writeInteger(bytes, whole, at);
  const rest = (parts - whole * PARTS) | 0;
  if (rest === 0) return end;
  const first = (rest / 100) | 0;
  const pair = PAIRS[first]!;
  const last = PAIRS[(rest - first * 100) | 0]!;
  bytes[end] = POINT;
  bytes[end + 1] = pair;
  bytes[end + 2] = pair >> 8;
  bytes[end + 3] = last;
  bytes[end + 4] = last >> 8;
  end += 5;
  while (bytes[end - 1] === ZERO) end--;
  return end;
}

/** Writes a whole number above zero and below 2^31. */
function writeInteger(bytes: Uint8Array, value: number, at: number): number {
  let digits = 1;
  while (value >= TENS[digits]!) digits++;
  let rest = value;
  for (let i = at + digits - 1; i >= at; i--) {
    const next = (rest / 10) | 0;
    bytes[i] = ZERO + rest - next * 10;
    rest = next;
  }
  return at + digits;
}
