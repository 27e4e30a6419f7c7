/// <reference lib="esnext.float16" />
/**
 * Numpy arrays inside MessagePack, as openpi and its dialects write them: a map with the keys `__ndarray__`, `data`,
 * `dtype` and `shape`. Source: openpi-client's msgpack_numpy.py (Physical-Intelligence/openpi).
 */
import { CodecError } from "../error.ts";
import {
  decodeMsgpack,
  encodeMsgpack,
  type MsgpackBudget,
  type Packable,
  type Unpacked,
  type UnpackedMap,
  type UnpackLimits,
} from "./msgpack.ts";
import { isTextType, type Texts, textsIn } from "./texts.ts";

type ByteKind = "b1" | "u1" | "i1";
type WordKind = "u2" | "i2" | "f2" | "u4" | "i4" | "f4" | "u8" | "i8" | "f8";

/** Numpy's name of an element type, byte order first: bool, integers and floats; no objects, text or records. */
export type DType = `|${ByteKind}` | `${"<" | ">"}${WordKind}`;

/** Row-major numbers of one element type, such as an image, joint positions or actions. */
export class NdArray {
  readonly dtype: DType;
  /** Empty for a single number. */
  readonly shape: readonly number[];
  /** The elements in C order and in the dtype's byte order, without alignment. */
  readonly data: Uint8Array;

  /** Throws CodecError `bad_shape` unless `data` has exactly the number of elements in `shape`. */
  constructor(dtype: DType, shape: readonly number[], data: Uint8Array) {
    if (shape.length > MAX_RANK || !shape.every(isDimension)) throw new CodecError("bad_shape");
    // A product beyond a double's range never equals a length.
    const count = shape.reduce((product, dimension) => product * dimension, 1);
    if (count * itemSize(dtype) !== data.length) throw new CodecError("bad_shape");
    this.dtype = dtype;
    this.shape = shape;
    this.data = data;
  }

  /** From elements in Fortran's order: the first index varies fastest. Throws as the constructor does, and for more than eight axes. */
  static fromFortran(dtype: DType, shape: readonly number[], data: Uint8Array): NdArray {
    const array = new NdArray(dtype, shape, data);
    const axes = shape.filter((length) => length !== 1);
    if (axes.length > MAX_TURNED_RANK) throw new CodecError("unsupported");
    if (axes.length < 2 || data.length === 0) return array;
    const size = itemSize(dtype);
    const out = new Uint8Array(data.length);
    // The first axis varies fastest in the source and slowest in the result, so entire columns are placed one after the other.
    const [rows = 1, ...rest] = axes;
    const strides = axes.map((_, axis) => axes.slice(axis + 1).reduce((product, length) => product * length, size));
    const [down = size, ...across] = strides;
    const index = rest.map(() => 0);
    let start = 0;
    for (let from = 0; from < data.length; ) {
      let to = start;
      for (let row = 0; row < rows; row++, to += down)
        for (let byte = 0; byte < size; byte++) out[to + byte] = data[from++]!;
      for (let axis = 0; axis < rest.length; axis++) {
        start += across[axis]!;
        index[axis]! += 1;
        if (index[axis]! < rest[axis]!) break;
        start -= across[axis]! * rest[axis]!;
        index[axis] = 0;
      }
    }
    return new NdArray(dtype, shape, out);
  }

  /** `<f8` of the given numbers, one-dimensional unless a shape is given. */
  static float64(values: ArrayLike<number>, shape: readonly number[] = [values.length]): NdArray {
    return new NdArray("<f8", shape, bytesOf(Float64Array.from(values)));
  }

  /** `<f4` of the given numbers, one-dimensional unless a shape is given. */
  static float32(values: ArrayLike<number>, shape: readonly number[] = [values.length]): NdArray {
    return new NdArray("<f4", shape, bytesOf(Float32Array.from(values)));
  }

  /** `|u1` over the given bytes, which are not copied, such as an image of shape [height, width, 3]. */
  static uint8(data: Uint8Array, shape: readonly number[] = [data.length]): NdArray {
    return new NdArray("|u1", shape, data);
  }

  /** The elements as doubles, in C order. Booleans become 0 and 1; 64-bit integers beyond 2^53 lose their last digits. */
  toFloat64(): Float64Array {
    // A copy, because the view can be at any offset and typed arrays require alignment.
    const aligned = Buffer.from(new ArrayBuffer(this.data.length));
    aligned.set(this.data);
    if (this.dtype.startsWith(">")) SWAP[itemSize(this.dtype)]?.(aligned);
    return TO_FLOAT64[kindOf(this.dtype)](aligned.buffer);
  }
}

/** Writes one message, with arrays in openpi's form and bin keys, the only keys that openpi recognizes. */
export const encodeNumpy = (value: Packable<NdArray>, room?: MsgpackBudget): Buffer =>
  encodeMsgpack<NdArray>(value, toMap, room);

/** The same with str keys, which vla-evaluation-harness requires. */
export const encodeNumpyText = (value: Packable<NdArray>, room?: MsgpackBudget): Buffer =>
  encodeMsgpack<NdArray>(value, ({ data, dtype, shape }) => ({ __ndarray__: true, data, dtype, shape }), room);

/**
 * Reads one message as decodeMsgpack does. Maps with `__ndarray__` become an NdArray (a view) or texts, and maps with `__npgeneric__` their
 * number or text; keys can be bin or str. Throws CodecError, also `bad_dtype`, `bad_shape` and `bad_ndarray`.
 */
export const decodeNumpy = (bytes: Uint8Array, limits?: UnpackLimits): Unpacked<NdArray> =>
  decodeMsgpack<NdArray>(bytes, fromMap, limits);

/** More axes than any image or state has, and few enough that short axes cost no more than long ones. */
const MAX_TURNED_RANK = 8;
/** Numpy's own limit. */
const MAX_RANK = 64;
/** Larger than every supported message; prevents absurd dimensions beside a zero. */
const MAX_DIMENSION = 2 ** 26;

const TO_FLOAT64: Readonly<Record<ByteKind | WordKind, (aligned: ArrayBuffer) => Float64Array>> = {
  b1: (aligned) => Float64Array.from(new Uint8Array(aligned), (byte) => (byte === 0 ? 0 : 1)),
  u1: (aligned) => new Float64Array(new Uint8Array(aligned)),
  i1: (aligned) => new Float64Array(new Int8Array(aligned)),
  u2: (aligned) => new Float64Array(new Uint16Array(aligned)),
  i2: (aligned) => new Float64Array(new Int16Array(aligned)),
  f2: (aligned) => new Float64Array(new Float16Array(aligned)),
  u4: (aligned) => new Float64Array(new Uint32Array(aligned)),
  i4: (aligned) => new Float64Array(new Int32Array(aligned)),
  f4: (aligned) => new Float64Array(new Float32Array(aligned)),
  u8: (aligned) => Float64Array.from(new BigUint64Array(aligned), Number),
  i8: (aligned) => Float64Array.from(new BigInt64Array(aligned), Number),
  f8: (aligned) => new Float64Array(aligned),
};

const SWAP: Readonly<Record<number, (bytes: Buffer) => Buffer>> = {
  2: (bytes) => bytes.swap16(),
  4: (bytes) => bytes.swap32(),
  8: (bytes) => bytes.swap64(),
};

const DTYPES: ReadonlySet<unknown> = new Set(
  Object.keys(TO_FLOAT64).flatMap((kind) => (kind.endsWith("1") ? [`|${kind}`] : [`<${kind}`, `>${kind}`])),
);

const KEY = {
  ndarray: Buffer.from("__ndarray__"),
  data: Buffer.from("data"),
  dtype: Buffer.from("dtype"),
  shape: Buffer.from("shape"),
} as const;

function toMap(array: NdArray): Packable {
  return new Map<Uint8Array, Packable>([
    [KEY.ndarray, true],
    [KEY.data, array.data],
    [KEY.dtype, array.dtype],
    [KEY.shape, array.shape],
  ]);
}

function fromMap(map: UnpackedMap<NdArray>): Unpacked<NdArray> {
  if (map.has("__ndarray__")) return arrayFrom(map.get("data"), map.get("dtype"), map.get("shape"));
  if (map.has("__npgeneric__")) return scalarOf(map.get("data"), map.get("dtype"));
  return isMsgpackNumpy(map) ? fromMsgpackNumpy(map) : map;
}

/** Whether the map is an array or a number of the package msgpack_numpy. Source: lebedov/msgpack-numpy. */
export const isMsgpackNumpy = (map: UnpackedMap<NdArray>): boolean =>
  map.has("nd") && map.has("type") && map.has("data");

/** Returns the array of msgpack_numpy's map; its `nd` is false for a single number. Throws CodecError as arrayFrom does. */
export const fromMsgpackNumpy = (map: UnpackedMap<NdArray>): NdArray | Texts =>
  arrayFrom(map.get("data"), map.get("type"), map.get("nd") === true ? map.get("shape") : []);

/**
 * Builds an array from its description in a message; text arrays become nested lists of their shape. Throws CodecError: `bad_ndarray`,
 * `bad_dtype`, `bad_shape`, `bad_text`.
 */
export function arrayFrom(data: unknown, dtype: unknown, shape: unknown): NdArray | Texts {
  if (!(data instanceof Uint8Array)) throw new CodecError("bad_ndarray");
  if (plainName(dtype) === BFLOAT16 && Array.isArray(shape) && shape.every(isDimension))
    return fromBfloat16(data, shape);
  const type = dtypeOf(dtype);
  if (type === undefined && !isTextType(dtype)) throw new CodecError("bad_dtype");
  if (!Array.isArray(shape) || !shape.every(isDimension)) throw new CodecError("bad_shape");
  return type === undefined ? textsIn(String(dtype), shape, data) : new NdArray(type, shape, data);
}

function scalarOf(data: unknown, dtype: unknown): number | bigint | boolean | string {
  if (isTextType(dtype) && typeof data === "string") return data;
  if (dtypeOf(dtype) === undefined) throw new CodecError("bad_dtype");
  if (typeof data !== "number" && typeof data !== "bigint" && typeof data !== "boolean")
    throw new CodecError("bad_ndarray");
  return data;
}

// Node's hosts are little-endian, and so are the dtypes that are written.
const bytesOf = (values: Float32Array | Float64Array): Uint8Array =>
  new Uint8Array(values.buffer, values.byteOffset, values.byteLength);

/** numpy's other names of its element types in little-endian order: long names, C's names and characters. Its `int` and `long` have 64 bits. */
const OTHER_NAMES: ReadonlyMap<string, DType> = new Map<string, DType>(
  (
    [
      ["|b1", "bool bool_ ?"],
      ["|u1", "uint8 ubyte B"],
      ["|i1", "int8 byte b"],
      ["<u2", "uint16 ushort H"],
      ["<i2", "int16 short h"],
      ["<f2", "float16 half e"],
      ["<u4", "uint32 uintc I"],
      ["<i4", "int32 intc i"],
      ["<f4", "float32 single f"],
      ["<u8", "uint64 uint ulong ulonglong uintp L Q"],
      ["<i8", "int64 int long longlong intp l q"],
      ["<f8", "float64 double float float_ d"],
    ] as const
  ).flatMap(([dtype, names]) => names.split(" ").map((name) => [name, dtype] as const)),
);
/** A type without its byte order, with the machine's, or with one that has no meaning. */
const SHORT_NAME = /^(?:([<>=|]?)([iuf][248])|([<>=|]?)([biu]1))$/;
/** How Python prints a type: `torch.float32`, `<class 'numpy.float32'>`, `dtype('float32')`. */
const PRINTED = /^(?:<class '|dtype\(')?(?:(?:torch|numpy|np|jax\.numpy|jnp|ml_dtypes)\.)?([\w<>=|?]{1,20})(?:'[>)])?$/;
/** The upper half of a float32, which numpy does not have. Its `V2` could be anything else. */
const BFLOAT16 = "bfloat16";

/** Returns a type's name as numpy writes it; empty for values that are not names. */
function plainName(name: unknown): string {
  const text = name instanceof Uint8Array ? Buffer.from(name).toString("latin1") : name;
  return typeof text === "string" ? (PRINTED.exec(text)?.[1] ?? "") : "";
}

/** Returns the numeric element type for any of numpy's names; undefined for others. */
export function dtypeOf(name: unknown): DType | undefined {
  if (isDType(name)) return name;
  const plain = plainName(name);
  const [, order, wide, , single] = SHORT_NAME.exec(plain) ?? [];
  const dtype = single === undefined ? `${order === ">" ? ">" : "<"}${wide}` : `|${single}`;
  return isDType(dtype) ? dtype : OTHER_NAMES.get(plain);
}

/** Returns bfloat16 numbers as float32. Throws CodecError `bad_shape`. */
export function fromBfloat16(data: Uint8Array, shape: readonly number[]): NdArray {
  if (data.length % 2 > 0) throw new CodecError("bad_shape");
  const wide = new Uint8Array(2 * data.length);
  for (let at = 0; at < data.length; at += 2) wide.set(data.subarray(at, at + 2), 2 * at + 2);
  return new NdArray("<f4", shape, wide);
}

const isDType = (value: unknown): value is DType => DTYPES.has(value);

const isDimension = (value: unknown): value is number =>
  typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= MAX_DIMENSION;

// A DType consists of byte order and kind, as its type states.
const kindOf = (dtype: DType): ByteKind | WordKind => dtype.slice(1) as ByteKind | WordKind;

const itemSize = (dtype: DType): number => Number(dtype[2]);

const MAGIC = Buffer.from("934e554d5059", "hex");
const ALIGNMENT = 64;
/** numpy reads longer headers only if the caller raises `max_header_size`. */
const MAX_HEADER = 10_000;

/** Writes the exact bytes of `np.save`, version 1.0. */
export function writeNpy({ dtype, shape, data }: NdArray): Buffer {
  const tuple = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  const text = `{'descr': '${dtype}', 'fortran_order': False, 'shape': (${tuple}), }`;
  // Everything before the data, up to the end of the line, fills complete blocks.
  const before = MAGIC.length + 4;
  const length = ALIGNMENT * Math.ceil((before + text.length + 1) / ALIGNMENT) - before;
  const bytes = Buffer.allocUnsafe(before + length + data.length);
  MAGIC.copy(bytes);
  bytes.writeUInt16LE(1, MAGIC.length); // 1.0: major first
  bytes.writeUInt16LE(length, MAGIC.length + 2);
  bytes.write(`${text.padEnd(length - 1)}\n`, before, "latin1");
  bytes.set(data, before + length);
  return bytes;
}

/** The keys as numpy writes them, in its order. */
const HEADER =
  /^\{'descr': '([<>|=]?[a-zA-Z][^']{0,20})', 'fortran_order': (True|False), 'shape': \(([\d, ]{0,200})\),? ?\} {0,10000}\n?$/;

/**
 * Reads the array of one file, as a view if the file has it in C order; text arrays become texts. Throws CodecError: `malformed` (also for
 * records), `bad_dtype` (objects, times), `bad_shape`, `bad_text`, `unsupported` (a version above 3, texts in Fortran's order), `truncated`.
 */
export function readNpy(bytes: Buffer): NdArray | Texts {
  if (bytes.length < 12) throw new CodecError("truncated");
  if (!bytes.subarray(0, MAGIC.length).equals(MAGIC)) throw new CodecError("malformed");
  const major = bytes[MAGIC.length]!;
  if (major < 1 || major > 3) throw new CodecError("unsupported");
  const start = MAGIC.length + (major === 1 ? 4 : 6);
  const length = major === 1 ? bytes.readUInt16LE(MAGIC.length + 2) : bytes.readUInt32LE(MAGIC.length + 2);
  if (length > MAX_HEADER) throw new CodecError("too_large");
  if (start + length > bytes.length) throw new CodecError("truncated");
  const header = HEADER.exec(bytes.toString("latin1", start, start + length));
  if (header === null) throw new CodecError("malformed");
  const [, name = "", order, sizes = ""] = header;
  const dtype = dtypeOf(name);
  if (dtype === undefined && !isTextType(name)) throw new CodecError("bad_dtype");
  const shape = sizes.split(",").flatMap((size) => (size.trim() === "" ? [] : [Number(size)]));
  const data = bytes.subarray(start + length);
  if (dtype === undefined) {
    const isTurned = order === "True" && shape.filter((size) => size !== 1).length > 1;
    if (isTurned) throw new CodecError("unsupported");
    return textsIn(name, shape, data);
  }
  return order === "True" ? NdArray.fromFortran(dtype, shape, data) : new NdArray(dtype, shape, data);
}
