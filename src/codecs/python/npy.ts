/**
 * numpy's own file format, as GR00T puts it into messages: one array, never an object.
 * Source: numpy/lib/format.py, versions 1.0 to 3.0.
 */
import { CodecError } from "../error.ts";
import { dtypeOf, NdArray } from "./ndarray.ts";
import { isTextType, type Texts, textsIn } from "./texts.ts";

const MAGIC = Buffer.from("934e554d5059", "hex");
const ALIGNMENT = 64;
/** numpy itself reads no longer header without being told to. */
const MAX_HEADER = 10_000;

/** The bytes of `np.save`, version 1.0, to the byte. */
export function writeNpy({ dtype, shape, data }: NdArray): Buffer {
  const tuple = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  const text = `{'descr': '${dtype}', 'fortran_order': False, 'shape': (${tuple}), }`;
  // Up to the line's end everything before the data fills whole blocks.
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

/** As numpy writes it; the order of the three is its own. */
const HEADER =
  /^\{'descr': '([<>|=]?[a-zA-Z][^']{0,20})', 'fortran_order': (True|False), 'shape': \(([\d, ]{0,200})\),? ?\} {0,10000}\n?$/;

/**
 * The array of one file, its data a view where the file has it in C order; of texts the texts themselves. Throws CodecError: `malformed` (records
 * too), `bad_dtype` (objects, times), `bad_shape`, `bad_text`, `unsupported` (a version beyond 3, texts in Fortran's order), `truncated`.
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
