/** LeRobot's messages as pickles of its own classes: written for them, and read without running any; tensors are views of one storage. */
import { type DType, NdArray } from "../../codecs/python/ndarray.ts";
import { PERSISTENT_ID, PyObject, type PyValue, readPickle } from "../../codecs/python/pickle.ts";
import { type Picklable, PyFloat, writePickle } from "../../codecs/python/pickle-write.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import { chunkOf } from "../payload/chunk.ts";
import { arrayOf, type ObservationPart } from "../payload/observe.ts";
import type { Profile } from "../payload/profile.ts";
import { failureOf, malformed } from "../transport/failures.ts";
import { intervalOf, loadedBy, MAX_DIM, MAX_STEPS, tableOf } from "./dialect.ts";

/** Where its classes live since 0.4.0. */
const HELPERS = "lerobot.async_inference.helpers";
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

/** The policy that the offering names, and what it will be shown. */
export function writeSetup({ frames, proprio, constants }: Profile): Buffer {
  const loaded = loadedBy(constants);
  const names = proprio.map(({ key }) => key);
  const state: [string, Picklable] = [
    "observation.state",
    new Map<string, Picklable>([
      ["dtype", "float32"],
      ["shape", { tuple: [names.length] }],
      ["names", names],
    ]),
  ];
  const cameras = frames.map(({ key, width, height }): [string, Picklable] => [
    `observation.images.${key}`,
    new Map<string, Picklable>([
      ["dtype", "image"],
      ["shape", { tuple: [height, width, 3] }],
      ["names", ["height", "width", "channels"]],
    ]),
  ]);
  const fields = new Map<string, Picklable>([
    ["policy_type", loaded.policyType],
    ["pretrained_name_or_path", loaded.path],
    ["lerobot_features", new Map([state, ...cameras])],
    ["actions_per_chunk", loaded.actionsPerChunk],
    ["device", loaded.device],
    ["rename_map", new Map()],
  ]);
  return writePickle({ instance: [HELPERS, "RemotePolicyConfig"], fields });
}

/** One observation that the server has to look at. Throws an UpstreamFailure for files in a picture's place. */
export function writeObservation(
  parts: readonly ObservationPart[],
  task: string,
  timestep: number,
  timestamp: number,
): Buffer {
  const observation = new Map<string, Picklable>(parts.map((part) => [part.key, pickled(part, arrayOf(part))]));
  observation.set("task", task);
  const fields = new Map<string, Picklable>([
    ["timestamp", new PyFloat(timestamp)],
    ["timestep", timestep],
    ["observation", observation],
    ["must_go", true],
  ]);
  return writePickle({ instance: [HELPERS, "TimedObservation"], fields });
}

/** A motor is a float by its name; a picture is an array of numpy's. */
function pickled({ kind }: ObservationPart, array: NdArray): Picklable {
  const { shape, dtype, data } = array;
  if (kind === "frame") return { call: ["numpy", "ndarray"], args: [{ tuple: shape }, dtype, data] };
  return new PyFloat(array.toFloat64()[0]);
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
  return chunkOf(tableOf(rows), horizon, { dtMs: intervalOf(actions.map(timeOf)) });
}

function timeOf(action: PyValue): unknown {
  const state = action instanceof PyObject ? action.state : undefined;
  return state instanceof Map ? state.get("timestamp") : undefined;
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
