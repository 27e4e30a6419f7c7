/** What LeRobot's asynchronous inference server answers: pickled actions whose tensors are views of one storage, read without running any. */
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { type DType, NdArray } from "../../codecs/python/ndarray.ts";
import { PERSISTENT_ID, PyObject, type PyValue, readPickle } from "../../codecs/python/pickle.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import { chunkOf } from "../payload/chunk.ts";
import { failureOf, malformed } from "../transport/failures.ts";

const TENSOR = "torch._utils._rebuild_tensor_v2";
const STORAGE = "torch.storage._load_from_bytes";

/** All that an answer may name; the module of the classes moved with 0.4.0. */
const ALLOWED: ReadonlySet<string> = new Set([
  "lerobot.async_inference.helpers.TimedAction",
  "lerobot.scripts.server.helpers.TimedAction",
  TENSOR,
  STORAGE,
  "collections.OrderedDict",
]);

/** What a storage's own stream may name. */
const STORAGES: Readonly<Record<string, DType>> = {
  "torch.FloatStorage": "<f4",
  "torch.DoubleStorage": "<f8",
  "torch.HalfStorage": "<f2",
};
const STORAGE_NAMES: ReadonlySet<string> = new Set(Object.keys(STORAGES));

const MAX_STEPS = 1_024;
const MAX_DIM = 1_024;

/** The bytes inside an Actions message; empty when the server has no actions. Throws an UpstreamFailure. */
export function readActions(message: Buffer): Buffer {
  try {
    const reader = new BinaryReader(message);
    let data: Uint8Array = new Uint8Array();
    while (reader.pos < reader.len) {
      const [field, type] = reader.tag();
      if (field === 1 && type === WireType.LengthDelimited) data = reader.bytes();
      else reader.skip(type, field);
    }
    return Buffer.from(data.buffer, data.byteOffset, data.length);
  } catch (error) {
    throw malformed("a message that the protocol can't have", error);
  }
}

/**
 * The first `horizon` rows of a pickled chunk. Throws an UpstreamFailure: a pickle of anything else, tensors that reach beyond their storage, and
 * steps that don't go on from `timestep`, which belong to an earlier observation.
 */
export function readChunk(pickle: Buffer, timestep: number, horizon: number): ActAnswer {
  const actions = unpickled(pickle, ALLOWED, 0).value;
  if (!Array.isArray(actions) || actions.length > MAX_STEPS) throw malformed("the answer is no list of actions");
  const storages = new Map<string, Float64Array>();
  const rows = actions.map((action, i) => {
    const fields = action instanceof PyObject && action.state instanceof Map ? action.state : undefined;
    if (fields?.get("timestep") !== timestep + i) throw malformed("the steps are those of another observation");
    return rowOf(fields.get("action"), storages);
  });
  const columns = rows[0]?.length ?? 0;
  if (rows.some(({ length }) => length !== columns)) throw malformed("the rows differ in length");
  const values = new Float64Array(rows.length * columns);
  for (const [i, row] of rows.entries()) values.set(row, i * columns);
  return chunkOf({ rows: rows.length, columns, values }, horizon, { dtMs: intervalOf(actions) });
}

/** Between the first two steps, as their timestamps have it; 0 when there is one step. */
function intervalOf(actions: readonly PyValue[]): number {
  const [first, second] = actions.slice(0, 2).map((action) => {
    const state = action instanceof PyObject ? action.state : undefined;
    const timestamp = state instanceof Map ? state.get("timestamp") : undefined;
    return typeof timestamp === "number" ? timestamp : Number.NaN;
  });
  const ms = Math.round(1_000 * ((second ?? Number.NaN) - (first ?? Number.NaN)));
  return ms > 0 && ms <= 60_000 ? ms : 0;
}

/** A tensor of one axis: its part of the storage, by offset and stride. */
function rowOf(tensor: PyValue | undefined, storages: Map<string, Float64Array>): Float64Array {
  if (!(tensor instanceof PyObject) || tensor.name !== TENSOR) throw malformed("an action is no tensor");
  const [storage, offset, size, stride] = tensor.args;
  const bytes = storage instanceof PyObject && storage.name === STORAGE ? storage.args[0] : undefined;
  if (!Buffer.isBuffer(bytes)) throw malformed("a tensor without a storage");
  const [length, step] = [onlyOf(size), onlyOf(stride)];
  if (typeof offset !== "number" || length === undefined || step === undefined || length > MAX_DIM)
    throw malformed("an action isn't one row of numbers");
  const key = bytes.toString("latin1"); // the whole chunk's storage is in every row
  const numbers = storages.get(key) ?? storageOf(bytes);
  storages.set(key, numbers);
  const last = offset + (length - 1) * step;
  if (offset < 0 || step < 1 || length < 1 || !(last < numbers.length))
    throw malformed("a tensor reaches beyond its storage");
  return Float64Array.from({ length }, (_, i) => numbers[offset + i * step]!);
}

const onlyOf = (value: PyValue | undefined): number | undefined =>
  Array.isArray(value) && value.length === 1 && Number.isInteger(value[0]) ? Number(value[0]) : undefined;

/** `torch.save`'s older form: magic, protocol, system, the storage's kind and size, its key; then how many numbers, and they. */
function storageOf(bytes: Buffer): Float64Array {
  let at = 0;
  const parts: PyValue[] = [];
  for (let i = 0; i < 5; i++) {
    const { value, end } = unpickled(bytes, STORAGE_NAMES, at);
    parts.push(value);
    at = end;
  }
  const id = parts[3];
  const told = id instanceof PyObject && id.name === PERSISTENT_ID ? id.args[0] : undefined;
  const kind = Array.isArray(told) ? told[1] : undefined;
  const dtype = kind instanceof PyObject ? STORAGES[kind.name] : undefined;
  if (dtype === undefined || bytes.length < at + 8) throw malformed("a storage of an unknown kind");
  const count = Number(bytes.readBigUInt64LE(at));
  try {
    return new NdArray(dtype, [count], bytes.subarray(at + 8)).toFloat64();
  } catch (error) {
    throw failureOf(error);
  }
}

function unpickled(bytes: Buffer, allowed: ReadonlySet<string>, start: number): { value: PyValue; end: number } {
  try {
    return readPickle(bytes, allowed, start);
  } catch (error) {
    throw failureOf(error);
  }
}
