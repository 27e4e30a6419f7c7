/** The contents of LeRobot's messages: pickles of its own classes, which are read as inert data, or JSON and safetensors. */
import { type LerobotMessage, mapOf, readLerobotMessage, writeLerobotMessage } from "../../codecs/python/lerobot.ts";
import { type DType, NdArray } from "../../codecs/python/ndarray.ts";
import { PERSISTENT_ID, PyObject, type PyValue, readPickle } from "../../codecs/python/pickle.ts";
import { type Picklable, PyFloat, writePickle } from "../../codecs/python/pickle-write.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import { chunkOf, type Table } from "../payload/actions.ts";
import { arrayOf, type ObservationPart } from "../payload/observe.ts";
import type { Constant, Profile } from "../payload/profile.ts";
import { failureOf, malformed } from "../transport/failures.ts";

/** An encoding of messages. */
export interface LerobotDialect {
  /** The offering's policy, and its inputs. */
  writeSetup(profile: Profile): Buffer;
  /** One observation that the server must process; `timestamp` in Unix seconds. Throws an UpstreamFailure for files in place of pixels. */
  writeObservation(parts: readonly ObservationPart[], task: string, timestep: number, timestamp: number): Buffer;
  /**
   * Returns the first `horizon` rows of a chunk. Throws an UpstreamFailure for anything else, and for steps that do not continue from
   * `timestep`.
   */
  readChunk(bytes: Buffer, timestep: number, horizon: number): ActAnswer;
}

/** Steps of a chunk, and numbers of a step. */
const MAX_STEPS = 1_024;
const MAX_DIM = 1_024;

/** The policy to load, from an offering's constants. */
function loadedBy(constants: readonly Constant[]): {
  policyType: string | number;
  path: string | number;
  actionsPerChunk: string | number;
  device: string | number;
} {
  const constant = new Map(constants.map(({ key, value }) => [key, value]));
  return {
    policyType: constant.get("policy_type") ?? "",
    path: constant.get("pretrained_name_or_path") ?? "",
    actionsPerChunk: constant.get("actions_per_chunk") ?? 50,
    device: constant.get("device") ?? "cuda",
  };
}

/** Milliseconds between the first two steps, by their timestamps in seconds; 0 for one step, or without times. */
const intervalOf = ([first, second]: readonly unknown[]): number =>
  typeof first === "number" && typeof second === "number" ? Math.round(1_000 * (second - first)) : 0;

/** Stacks rows. Throws an UpstreamFailure if they differ in length. */
function tableOf(rows: readonly Float64Array[]): Table {
  const columns = rows[0]?.length ?? 0;
  if (rows.some(({ length }) => length !== columns)) throw malformed("the rows differ in length");
  const values = new Float64Array(rows.length * columns);
  for (const [i, row] of rows.entries()) values.set(row, i * columns);
  return { rows: rows.length, columns, values };
}

/** The module of its classes since 0.4.0. */
const HELPERS = "lerobot.async_inference.helpers";
const TENSOR = "torch._utils._rebuild_tensor_v2";
const STORAGE = "torch.storage._load_from_bytes";

/** The names permitted in an answer; the module of the classes moved with 0.4.0. */
const ALLOWED: ReadonlySet<string> = new Set([
  "lerobot.async_inference.helpers.TimedAction",
  "lerobot.scripts.server.helpers.TimedAction",
  TENSOR,
  STORAGE,
  "collections.OrderedDict",
]);

/** The names permitted in a storage's own stream. */
const STORAGES: Readonly<Record<string, DType>> = {
  "torch.FloatStorage": "<f4",
  "torch.DoubleStorage": "<f8",
  "torch.HalfStorage": "<f2",
};
const STORAGE_NAMES: ReadonlySet<string> = new Set(Object.keys(STORAGES));

/** The offering's policy, and its inputs. */
function writePickledSetup({ frames, proprio, constants }: Profile): Buffer {
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

/** One observation that the server must process. Throws an UpstreamFailure for files in place of pixels. */
function writePickledObservation(
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

/** A motor is a float by its name; an image is a numpy array. */
function pickled({ kind }: ObservationPart, array: NdArray): Picklable {
  const { shape, dtype, data } = array;
  if (kind === "frame") return { call: ["numpy", "ndarray"], args: [{ tuple: shape }, dtype, data] };
  return new PyFloat(array.toFloat64()[0]);
}

/**
 * Returns the first `horizon` rows of a pickled chunk. Throws an UpstreamFailure for other pickles, for tensors beyond their storage, and for
 * steps that do not continue from `timestep`, which belong to an earlier observation.
 */
export function readPickledChunk(pickle: Buffer, timestep: number, horizon: number): ActAnswer {
  const actions = unpickled(pickle, ALLOWED, 0).value;
  if (!Array.isArray(actions) || actions.length > MAX_STEPS) throw malformed("the response is not a list of actions");
  const storages = new Map<string, Float64Array>();
  const rows = actions.map((action, i) => {
    const fields = action instanceof PyObject && action.state instanceof Map ? action.state : undefined;
    if (fields?.get("timestep") !== timestep + i) throw malformed("the steps are for another observation");
    return pickledRow(fields.get("action"), storages);
  });
  return chunkOf(tableOf(rows), horizon, { dtMs: intervalOf(actions.map(timeOf)) });
}

function timeOf(action: PyValue): unknown {
  const state = action instanceof PyObject ? action.state : undefined;
  return state instanceof Map ? state.get("timestamp") : undefined;
}

/** A tensor with one axis: its part of the storage, by offset and stride. */
function pickledRow(tensor: PyValue | undefined, storages: Map<string, Float64Array>): Float64Array {
  if (!(tensor instanceof PyObject) || tensor.name !== TENSOR) throw malformed("an action is not a tensor");
  const [storage, offset, size, stride] = tensor.args;
  const bytes = storage instanceof PyObject && storage.name === STORAGE ? storage.args[0] : undefined;
  if (!Buffer.isBuffer(bytes)) throw malformed("a tensor has no storage");
  const [length, step] = [onlyOf(size), onlyOf(stride)];
  if (typeof offset !== "number" || length === undefined || step === undefined || length > MAX_DIM)
    throw malformed("an action is not one row of numbers");
  const key = bytes.toString("latin1"); // every row contains the storage of the complete chunk
  const numbers = storages.get(key) ?? storageOf(bytes);
  storages.set(key, numbers);
  const last = offset + (length - 1) * step;
  if (offset < 0 || step < 1 || length < 1 || !(last < numbers.length))
    throw malformed("a tensor reaches beyond its storage");
  return Float64Array.from({ length }, (_, i) => numbers[offset + i * step]!);
}

const onlyOf = (value: PyValue | undefined): number | undefined =>
  Array.isArray(value) && value.length === 1 && Number.isInteger(value[0]) ? Number(value[0]) : undefined;

/** `torch.save`'s older format: magic, protocol, system, the storage's type and size, its key; then the number of elements, and the elements. */
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
  if (dtype === undefined || bytes.length < at + 8) throw malformed("a storage has an unknown type");
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

/** The offering's policy, and its inputs. */
function writeTensorSetup({ frames, proprio, constants }: Profile): Buffer {
  const loaded = loadedBy(constants);
  const names = proprio.map(({ key }) => key);
  const cameras = frames.map(({ key, width, height }): [string, object] => [
    `observation.images.${key}`,
    { dtype: "image", shape: [height, width, 3], names: ["height", "width", "channels"] },
  ]);
  return writeLerobotMessage({
    type: "RemotePolicyConfig",
    policy_type: loaded.policyType,
    pretrained_name_or_path: loaded.path,
    lerobot_features: {
      "observation.state": { dtype: "float32", shape: [names.length], names },
      ...Object.fromEntries(cameras),
    },
    actions_per_chunk: loaded.actionsPerChunk,
    device: loaded.device,
    rename_map: {},
  });
}

/** One observation that the server must process. Throws an UpstreamFailure for files in place of pixels. */
function writeTensorObservation(
  parts: readonly ObservationPart[],
  task: string,
  timestep: number,
  timestamp: number,
): Buffer {
  const arrays = new Map<string, NdArray>();
  const scalars: [string, string | number][] = [];
  for (const part of parts) {
    const array = arrayOf(part);
    if (part.kind === "frame") arrays.set(part.key, array);
    else scalars.push([part.key, array.toFloat64()[0]!]); // a motor has one number, which the profile's check ensures
  }
  scalars.push(["task", task]);
  return writeLerobotMessage(
    {
      type: "TimedObservation",
      timestamp,
      timestep,
      must_go: true,
      scalar_data: Object.fromEntries(scalars),
      numpy_keys: [...arrays.keys()],
    },
    arrays,
  );
}

/**
 * Returns the first `horizon` rows of a chunk. Throws an UpstreamFailure for anything else, and for steps that do not continue from `timestep`.
 */
export function readTensorChunk(bytes: Buffer, timestep: number, horizon: number): ActAnswer {
  const { told, arrays } = messageOf(bytes);
  const actions = told.get("actions");
  if (told.get("type") !== "TimedActions" || !Array.isArray(actions) || actions.length > MAX_STEPS)
    throw malformed("the response is not a list of actions");
  const times = actions.map((action: unknown) => mapOf(action));
  const rows = times.map((time, i) => {
    if (time?.get("timestep") !== timestep + i) throw malformed("the steps are for another observation");
    return tensorRow(arrays.get(`action_${i}`));
  });
  return chunkOf(tableOf(rows), horizon, { dtMs: intervalOf(times.map((time) => time?.get("timestamp"))) });
}

function tensorRow(array: NdArray | undefined): Float64Array {
  if (array === undefined) throw malformed("a step has no action");
  const [length = 0, ...more] = array.shape;
  if (more.length > 0 || length < 1 || length > MAX_DIM) throw malformed("an action is not one row of numbers");
  if (!/^<f/.test(array.dtype)) throw malformed(`actions of ${array.dtype}`);
  return array.toFloat64();
}

function messageOf(bytes: Buffer): LerobotMessage {
  try {
    return readLerobotMessage(bytes);
  } catch (error) {
    throw failureOf(error);
  }
}

/** Pickles of LeRobot's own classes. */
export const PICKLES: LerobotDialect = {
  writeSetup: writePickledSetup,
  writeObservation: writePickledObservation,
  readChunk: readPickledChunk,
};

/** JSON and safetensors. */
export const TENSORS: LerobotDialect = {
  writeSetup: writeTensorSetup,
  writeObservation: writeTensorObservation,
  readChunk: readTensorChunk,
};
