/**
 * safetensors: named arrays after a JSON header, which LeRobot sends instead of pickles. Numpy's element types and bfloat16 are supported, 8-bit
 * floats are not. Source: the format's description in huggingface/safetensors, README.md, and its reader, safetensors/src/tensor.rs.
 */
import { CodecError } from "../error.ts";
import { type DType, fromBfloat16, NdArray } from "./ndarray.ts";

/** Size of the header's length, in bytes. */
const LENGTH = 8;
/** The header of an observation or a chunk has some kilobytes; the format's own reader accepts 100 MB. */
const MAX_HEADER = 1 << 20;
/** Arrays per message. */
const MAX_ARRAYS = 4_096;
/** The alignment of the arrays' start, as in the format's own writer. */
const ALIGNMENT = 8;

const DTYPES: Readonly<Record<string, DType>> = {
  BOOL: "|b1",
  U8: "|u1",
  I8: "|i1",
  U16: "<u2",
  I16: "<i2",
  F16: "<f2",
  U32: "<u4",
  I32: "<i4",
  F32: "<f4",
  U64: "<u8",
  I64: "<i8",
  F64: "<f8",
};
const NAMES: Readonly<Partial<Record<DType, string>>> = Object.fromEntries(
  Object.entries(DTYPES).map(([name, dtype]) => [dtype, name]),
);

/** The upper halves of 32-bit floats, which become those. */
const BFLOAT16 = "BF16";

/** An array's position after the header. */
interface Placed {
  readonly name: string;
  readonly dtype: DType | typeof BFLOAT16;
  readonly shape: readonly number[];
  readonly start: number;
  readonly end: number;
}

/**
 * Writes the arrays, those with the widest numbers first, so that each is aligned. Throws CodecError `unsupported` for big-endian numbers, which
 * the format does not have.
 */
export function writeSafetensors(arrays: ReadonlyMap<string, NdArray>): Buffer {
  const ordered = [...arrays].sort(([, a], [, b]) => Number(b.dtype[2]) - Number(a.dtype[2]));
  let end = 0;
  const header: [string, object][] = [];
  for (const [name, { dtype, shape, data }] of ordered) {
    const start = end;
    end += data.length;
    const named = NAMES[dtype];
    if (named === undefined) throw new CodecError("unsupported");
    header.push([name, { dtype: named, shape, data_offsets: [start, end] }]);
  }
  const text = Buffer.from(JSON.stringify(Object.fromEntries(header)));
  const length = Math.ceil(text.length / ALIGNMENT) * ALIGNMENT;
  const bytes = Buffer.alloc(LENGTH + length + end, " ");
  bytes.writeBigUInt64LE(BigInt(length));
  text.copy(bytes, LENGTH);
  let at = LENGTH + length;
  for (const [, { data }] of ordered) {
    bytes.set(data, at);
    at += data.length;
  }
  return bytes;
}

/**
 * Returns the arrays by name, each a view of `bytes` unless it is bfloat16, without the header's metadata. Throws CodecError: `truncated`, `too_large` (a header above
 * 1 MiB), `too_many_values` (more than 4,096 arrays), `bad_dtype`, `bad_shape`, `trailing_bytes`, and `malformed` for an invalid header and for
 * arrays with gaps or overlaps.
 */
export function readSafetensors(bytes: Buffer): Map<string, NdArray> {
  if (bytes.length < LENGTH) throw new CodecError("truncated");
  const length = bytes.readBigUInt64LE();
  if (length > MAX_HEADER) throw new CodecError("too_large");
  const start = LENGTH + Number(length);
  if (start > bytes.length) throw new CodecError("truncated");
  const placed = placesIn(bytes.toString("utf8", LENGTH, start)).sort((a, b) => a.start - b.start || a.end - b.end);
  let at = 0;
  for (const { start: from, end } of placed) {
    if (from !== at || end < from) throw new CodecError("malformed");
    at = end;
  }
  if (start + at > bytes.length) throw new CodecError("truncated");
  if (start + at < bytes.length) throw new CodecError("trailing_bytes");
  return new Map(
    placed.map(({ name, dtype, shape, start: from, end }) => {
      const data = bytes.subarray(start + from, start + end);
      return [name, dtype === BFLOAT16 ? fromBfloat16(data, shape) : new NdArray(dtype, shape, data)];
    }),
  );
}

function placesIn(text: string): Placed[] {
  const header = parsed(text);
  const entries = Object.entries(header).filter(([name]) => name !== "__metadata__");
  if (entries.length > MAX_ARRAYS) throw new CodecError("too_many_values");
  return entries.map(([name, entry]) => {
    if (!isRecord(entry)) throw new CodecError("malformed");
    const { dtype, shape, data_offsets: offsets } = entry;
    const plain = typeof dtype === "string" && Object.hasOwn(DTYPES, dtype) ? DTYPES[dtype] : undefined;
    const known = dtype === BFLOAT16 ? dtype : plain;
    if (known === undefined) throw new CodecError("bad_dtype");
    if (!isWhole(shape)) throw new CodecError("bad_shape");
    if (!isWhole(offsets) || offsets.length !== 2) throw new CodecError("malformed");
    const [start = 0, end = 0] = offsets;
    return { name, dtype: known, shape, start, end };
  });
}

function parsed(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    if (isRecord(value)) return value;
  } catch {
    // Reported below, like any other invalid header.
  }
  throw new CodecError("malformed");
}

const isWhole = (value: unknown): value is number[] => Array.isArray(value) && value.every(Number.isSafeInteger);

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
