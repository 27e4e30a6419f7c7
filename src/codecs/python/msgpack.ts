/**
 * MessagePack as model servers use it: nil, bool, int, float, str, bin, array and map, without extensions. Source: the MessagePack
 * specification, https://github.com/msgpack/msgpack/blob/master/spec.md
 */
import { isUtf8 } from "node:buffer";
import { CodecError } from "../error.ts";

/**
 * A value that can be written. `X` is a class of the caller's that a `reduce` function converts to plain values. Keys of a Map may be bytes,
 * which are written as bin; keys of an object are written as str.
 */
export type Packable<X = never> =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | X
  | readonly Packable<X>[]
  | ReadonlyMap<string | Uint8Array, Packable<X>>
  | { readonly [key: string]: Packable<X> };

/** A map as read: str and bin keys are both text, so no key can reach a prototype. */
export type UnpackedMap<X = never> = Map<string, Unpacked<X>>;

/** A value as read. `X` is the result of a `revive` function for some maps. */
export type Unpacked<X = never> =
  | null
  | boolean
  | number
  | bigint
  | string
  | Buffer
  | X
  | Unpacked<X>[]
  | UnpackedMap<X>;

/** Limits for reading one message. */
export interface UnpackLimits {
  /** Bytes of the entire message. */
  readonly maxBytes: number;
  /** Nesting depth of containers. */
  readonly maxDepth: number;
  /** Elements of all arrays plus entries of all maps. */
  readonly maxValues: number;
}

/** 64 MiB, 64 deep, a million values: enough for any known observation or action chunk. */
export const UNPACK_LIMITS: UnpackLimits = { maxBytes: 64 * 2 ** 20, maxDepth: 64, maxValues: 1_000_000 };

/** Returns the buffer for a message of this many bytes; the message is a view of it. */
export type MsgpackBudget = (bytes: number) => Buffer;

const freshRoom: MsgpackBudget = (bytes) => Buffer.allocUnsafe(bytes);

/**
 * Writes `value` as one message of its exact size, in a new buffer or in that of `room`. Whole numbers become the shortest integer, others
 * float64. Throws CodecError: `too_deep` (also for a cycle), `too_large` (an integer beyond 64 bits), `unsupported`.
 */
export function encodeMsgpack<X = never>(
  value: Packable<X>,
  reduce?: (extension: X) => Packable,
  room: MsgpackBudget = freshRoom,
): Buffer {
  const measure = new Packer(undefined, reduce);
  measure.write(value, 0);
  const bytes = room(measure.at);
  new Packer(bytes, reduce).write(value, 0);
  return bytes;
}

/**
 * Reads the single value in `bytes`. Bin values are views into `bytes`; integers beyond 2^53 are bigint. `revive` receives every map, innermost
 * first, and returns its replacement. Throws CodecError for all other bytes: truncated, trailing, too deep, too many values, invalid UTF-8, keys
 * that are neither str nor bin or are duplicates, extensions.
 */
export function decodeMsgpack<X = never>(
  bytes: Uint8Array,
  revive?: (map: UnpackedMap<X>) => Unpacked<X>,
  limits: UnpackLimits = UNPACK_LIMITS,
): Unpacked<X> {
  if (bytes.length > limits.maxBytes) throw new CodecError("too_large");
  const unpacker = new Unpacker(bytes, revive, limits);
  const value = unpacker.read(0);
  unpacker.finish();
  return value;
}

const MAX_DEPTH = UNPACK_LIMITS.maxDepth;

/** The first byte of each form with a length or value in the following bytes. */
const HEAD = {
  nil: 0xc0,
  false: 0xc2,
  true: 0xc3,
  bin8: 0xc4,
  bin16: 0xc5,
  bin32: 0xc6,
  float32: 0xca,
  float64: 0xcb,
  uint8: 0xcc,
  uint16: 0xcd,
  uint32: 0xce,
  uint64: 0xcf,
  int8: 0xd0,
  int16: 0xd1,
  int32: 0xd2,
  int64: 0xd3,
  str8: 0xd9,
  str16: 0xda,
  str32: 0xdb,
  array16: 0xdc,
  array32: 0xdd,
  map16: 0xde,
  map32: 0xdf,
} as const;

const FIXMAP = 0x80;
const FIXARRAY = 0x90;
const FIXSTR = 0xa0;

/** The integers up to 32 bits that don't fit the first byte, shortest form first. */
const INTEGER_FORMS = [
  { from: 0, to: 2 ** 8, head: HEAD.uint8, width: 1 },
  { from: 0, to: 2 ** 16, head: HEAD.uint16, width: 2 },
  { from: 0, to: 2 ** 32, head: HEAD.uint32, width: 4 },
  { from: -(2 ** 7), to: 0, head: HEAD.int8, width: 1 },
  { from: -(2 ** 15), to: 0, head: HEAD.int16, width: 2 },
  { from: -(2 ** 31), to: 0, head: HEAD.int32, width: 4 },
] as const;

/** Traverses a value twice: without a buffer for the exact size, and then to fill it. The shared traversal keeps both equal. */
class Packer<X> {
  at = 0;
  readonly #bytes: Buffer | undefined;
  readonly #reduce: ((extension: X) => Packable) | undefined;

  constructor(bytes: Buffer | undefined, reduce: ((extension: X) => Packable) | undefined) {
    this.#bytes = bytes;
    this.#reduce = reduce;
  }

  write(value: Packable<X>, depth: number): void {
    if (typeof value === "string") this.#text(value);
    else if (typeof value === "number") this.#number(value);
    else if (typeof value === "boolean") this.#byte(value ? HEAD.true : HEAD.false);
    else if (typeof value === "bigint") this.#bigint(value);
    else if (value === null) this.#byte(HEAD.nil);
    else if (value instanceof Uint8Array) this.#bin(value);
    else if (typeof value === "object") this.#object(value, depth);
    else throw new CodecError("unsupported");
  }

  #object(value: object, depth: number): void {
    if (depth >= MAX_DEPTH) throw new CodecError("too_deep");
    if (Array.isArray(value)) {
      this.#head(value.length, FIXARRAY, 15, 0, HEAD.array16, HEAD.array32);
      for (const item of value) this.write(item, depth + 1);
    } else if (value instanceof Map) {
      this.#head(value.size, FIXMAP, 15, 0, HEAD.map16, HEAD.map32);
      for (const [key, item] of value) this.#entry(key, item, depth);
    } else if (isPlain(value)) {
      const entries = Object.entries(value);
      this.#head(entries.length, FIXMAP, 15, 0, HEAD.map16, HEAD.map32);
      for (const [key, item] of entries) this.#entry(key, item, depth);
    } else if (this.#reduce !== undefined) {
      // Packable allows no class but Uint8Array, Map, Array and X.
      this.write(this.#reduce(value as X), depth + 1);
    } else {
      throw new CodecError("unsupported");
    }
  }

  #entry(key: string | Uint8Array, item: Packable<X>, depth: number): void {
    if (typeof key === "string") this.#text(key);
    else if (key instanceof Uint8Array) this.#bin(key);
    else throw new CodecError("bad_key");
    this.write(item, depth + 1);
  }

  #text(text: string): void {
    const length = Buffer.byteLength(text);
    this.#head(length, FIXSTR, 31, HEAD.str8, HEAD.str16, HEAD.str32);
    this.#bytes?.write(text, this.at, length);
    this.at += length;
  }

  #bin(bytes: Uint8Array): void {
    this.#head(bytes.length, 0, -1, HEAD.bin8, HEAD.bin16, HEAD.bin32);
    this.#bytes?.set(bytes, this.at);
    this.at += bytes.length;
  }

  /** A length in its shortest form: inside the first byte up to `fixMax`, otherwise after it; `one` is 0 if there is no such form. */
  #head(length: number, fix: number, fixMax: number, one: number, two: number, four: number): void {
    if (length <= fixMax) this.#byte(fix | length);
    else if (one !== 0 && length < 2 ** 8) this.#uint(one, length, 1);
    else if (length < 2 ** 16) this.#uint(two, length, 2);
    else if (length < 2 ** 32) this.#uint(four, length, 4);
    else throw new CodecError("too_large");
  }

  #number(value: number): void {
    if (!Number.isSafeInteger(value) || Object.is(value, -0)) this.#float64(value);
    else if (value >= -(2 ** 5) && value < 2 ** 7) this.#byte(value & 0xff);
    else this.#integer(value);
  }

  #integer(value: number): void {
    const form = INTEGER_FORMS.find(({ from, to }) => value >= from && value < to);
    if (form === undefined) this.#int64(BigInt(value));
    else this.#uint(form.head, value >= 0 ? value : value + 2 ** (8 * form.width), form.width);
  }

  #bigint(value: bigint): void {
    if (value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER) this.#number(Number(value));
    else this.#int64(value);
  }

  #int64(value: bigint): void {
    if (value < -(2n ** 63n) || value >= 2n ** 64n) throw new CodecError("too_large");
    this.#byte(value < 0n ? HEAD.int64 : HEAD.uint64);
    this.#bytes?.writeBigUInt64BE(BigInt.asUintN(64, value), this.at);
    this.at += 8;
  }

  #float64(value: number): void {
    this.#byte(HEAD.float64);
    this.#bytes?.writeDoubleBE(value, this.at);
    this.at += 8;
  }

  #uint(head: number, value: number, width: 1 | 2 | 4): void {
    this.#byte(head);
    this.#bytes?.writeUIntBE(value, this.at, width);
    this.at += width;
  }

  #byte(value: number): void {
    if (this.#bytes !== undefined) this.#bytes[this.at] = value;
    this.at += 1;
  }
}

function isPlain(value: object): value is { readonly [key: string]: Packable } {
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

class Unpacker<X> {
  #at = 0;
  #valuesLeft: number;
  readonly #maxDepth: number;
  readonly #bytes: Buffer;
  readonly #revive: ((map: UnpackedMap<X>) => Unpacked<X>) | undefined;

  constructor(bytes: Uint8Array, revive: ((map: UnpackedMap<X>) => Unpacked<X>) | undefined, limits: UnpackLimits) {
    this.#bytes = Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    this.#revive = revive;
    this.#valuesLeft = limits.maxValues;
    this.#maxDepth = limits.maxDepth;
  }

  finish(): void {
    if (this.#at !== this.#bytes.length) throw new CodecError("trailing_bytes");
  }

  read(depth: number): Unpacked<X> {
    const head = this.#uint(1);
    if (head < FIXMAP) return head;
    if (head < FIXARRAY) return this.#map(head - FIXMAP, depth);
    if (head < FIXSTR) return this.#array(head - FIXARRAY, depth);
    if (head < HEAD.nil) return this.#text(head - FIXSTR);
    if (head > HEAD.map32) return head - 2 ** 8;
    switch (head) {
      case HEAD.nil:
        return null;
      case HEAD.false:
        return false;
      case HEAD.true:
        return true;
      case HEAD.bin8:
        return this.#bin(this.#uint(1));
      case HEAD.bin16:
        return this.#bin(this.#uint(2));
      case HEAD.bin32:
        return this.#bin(this.#uint(4));
      case HEAD.float32:
        return this.#bytes.readFloatBE(this.#take(4));
      case HEAD.float64:
        return this.#bytes.readDoubleBE(this.#take(8));
      case HEAD.uint8:
        return this.#uint(1);
      case HEAD.uint16:
        return this.#uint(2);
      case HEAD.uint32:
        return this.#uint(4);
      case HEAD.uint64:
        return narrow(this.#bytes.readBigUInt64BE(this.#take(8)));
      case HEAD.int8:
        return this.#bytes.readInt8(this.#take(1));
      case HEAD.int16:
        return this.#bytes.readInt16BE(this.#take(2));
      case HEAD.int32:
        return this.#bytes.readInt32BE(this.#take(4));
      case HEAD.int64:
        return narrow(this.#bytes.readBigInt64BE(this.#take(8)));
      case HEAD.str8:
        return this.#text(this.#uint(1));
      case HEAD.str16:
        return this.#text(this.#uint(2));
      case HEAD.str32:
        return this.#text(this.#uint(4));
      case HEAD.array16:
        return this.#array(this.#uint(2), depth);
      case HEAD.array32:
        return this.#array(this.#uint(4), depth);
      case HEAD.map16:
        return this.#map(this.#uint(2), depth);
      case HEAD.map32:
        return this.#map(this.#uint(4), depth);
      default:
        throw new CodecError(head === NEVER_USED ? "malformed" : "unsupported");
    }
  }

  #array(length: number, depth: number): Unpacked<X>[] {
    this.#enter(length, length, depth);
    const items: Unpacked<X>[] = [];
    for (let i = 0; i < length; i++) items.push(this.read(depth + 1));
    return items;
  }

  #map(size: number, depth: number): Unpacked<X> {
    this.#enter(size, 2 * size, depth);
    const map: UnpackedMap<X> = new Map();
    for (let i = 0; i < size; i++) {
      const key = this.#key();
      map.set(key, this.#valueOf(key, depth + 1));
    }
    if (map.size !== size) throw new CodecError("duplicate_key");
    return this.#revive === undefined ? map : this.#revive(map);
  }

  #valueOf(key: string, depth: number): Unpacked<X> {
    try {
      return this.read(depth);
    } catch (thrown) {
      if (thrown instanceof CodecError) thrown.under(key);
      throw thrown;
    }
  }

  #key(): string {
    const head = this.#uint(1);
    if (head >= FIXSTR && head < HEAD.nil) return this.#text(head - FIXSTR);
    if (head === HEAD.bin8 || head === HEAD.str8) return this.#text(this.#uint(1));
    if (head === HEAD.bin16 || head === HEAD.str16) return this.#text(this.#uint(2));
    throw new CodecError("bad_key");
  }

  /** Every value takes at least one byte, so a container that announces more than the remaining bytes is refused before it is built. */
  #enter(values: number, leastBytes: number, depth: number): void {
    if (depth >= this.#maxDepth) throw new CodecError("too_deep");
    if (leastBytes > this.#bytes.length - this.#at) throw new CodecError("truncated");
    this.#valuesLeft -= values;
    if (this.#valuesLeft < 0) throw new CodecError("too_many_values");
  }

  #text(length: number): string {
    const start = this.#take(length);
    const text = this.#bytes.toString("utf8", start, start + length);
    // A wrong byte becomes U+FFFD, so only text with that character needs the second check.
    if (text.includes("\ufffd") && !isUtf8(this.#bytes.subarray(start, start + length)))
      throw new CodecError("bad_text");
    return text;
  }

  #bin(length: number): Buffer {
    const start = this.#take(length);
    return this.#bytes.subarray(start, start + length);
  }

  #uint(width: 1 | 2 | 4): number {
    return this.#bytes.readUIntBE(this.#take(width), width);
  }

  /** Returns the start of the next `length` bytes, which are all present. */
  #take(length: number): number {
    const start = this.#at;
    if (length > this.#bytes.length - start) throw new CodecError("truncated");
    this.#at = start + length;
    return start;
  }
}

/** The one byte without a meaning in MessagePack. */
const NEVER_USED = 0xc1;

const narrow = (value: bigint): number | bigint =>
  value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
