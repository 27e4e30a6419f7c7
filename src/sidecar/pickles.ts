/** What LeRobot's client says and hears: pickles of its own few classes, read without running any of them. */
import { arrayFrom, dtypeOf, NdArray } from "../codecs/python/ndarray.ts";
import { PyObject, type PyValue, readPickle } from "../codecs/python/pickle.ts";
import { type Picklable, PyFloat, writePickle } from "../codecs/python/pickle-write.ts";
import { isTextType, type Texts } from "../codecs/python/texts.ts";
import { textIn } from "../codecs/python/values.ts";
import { camerasIn, type LerobotObservation, type LerobotSetup, onlyOf } from "./messages.ts";

/** Where the client's classes live: since 0.4.0, and before. */
const HELPERS = ["lerobot.async_inference.helpers", "lerobot.scripts.server.helpers"] as const;
/** How numpy writes an array, one in protocol 5, and one number, by its second major version and by its first. */
const [RECONSTRUCT, FROM_BUFFER, SCALAR] = ["multiarray._reconstruct", "numeric._frombuffer", "multiarray.scalar"].map(
  (name) => new Set([`numpy._core.${name}`, `numpy.core.${name}`]),
) as [Set<string>, Set<string>, Set<string>];

/** The setup in a pickle. Throws an error that says what it lacks. */
export function readSetup(pickle: Buffer): LerobotSetup {
  const { name, fields } = instance(pickle, "RemotePolicyConfig");
  const features = fields.get("lerobot_features");
  const model = fields.get("pretrained_name_or_path");
  const chunk = numberIn(fields.get("actions_per_chunk"));
  if (typeof model !== "string" || !(features instanceof Map) || chunk === undefined)
    throw new TypeError("the setup names no policy, no features or no chunk");
  const state = features.get("observation.state");
  const names = state instanceof Map ? state.get("names") : [];
  const module = name.slice(0, name.lastIndexOf("."));
  return {
    model,
    motors: Array.isArray(names) ? names.map(String) : [],
    cameras: camerasIn([...features].map(([key, feature]) => [String(key), shapeOf(feature)])),
    chunk,
    actions: (seen, steps, dtMs) => writeActions(module, seen, steps, dtMs),
  };
}

const shapeOf = (feature: PyValue): unknown => (feature instanceof Map ? feature.get("shape") : undefined);

/** The observation in a pickle. Throws an error that says what it lacks. */
export function readObservation(pickle: Buffer): LerobotObservation {
  const { fields } = instance(pickle, "TimedObservation");
  const [timestamp, timestep] = ["timestamp", "timestep"].map((key) => numberIn(fields.get(key)));
  const observation = fields.get("observation");
  if (timestamp === undefined || timestep === undefined || !(observation instanceof Map))
    throw new TypeError("the observation has no time, no step or nothing in it");
  const task = observation.get("task") ?? "";
  const text = typeof task === "string" ? task : textIn(readIn(task) ?? null);
  if (text === undefined) throw new TypeError("the observation's task is not text");
  return {
    timestamp,
    timestep,
    task: text,
    number: (name) => numberIn(observation.get(name)),
    array: (name) => arrayIn(observation.get(name)),
  };
}

/** Actions as the client takes them: one for each step, from the observation's on. */
function writeActions(
  module: string,
  { timestamp, timestep }: Pick<LerobotObservation, "timestamp" | "timestep">,
  steps: readonly (readonly number[])[],
  dtMs: number,
): Buffer {
  return writePickle(
    steps.map((step, i): Picklable => {
      const action = { call: ["torch", "tensor"] as const, args: [step.map((value) => new PyFloat(value))] };
      const fields = new Map<string, Picklable>([
        ["timestamp", new PyFloat(timestamp + (i * dtMs) / 1000)],
        ["timestep", timestep + i],
        ["action", action],
      ]);
      return { instance: [module, "TimedAction"], fields };
    }),
  );
}

function instance(pickle: Buffer, kind: string): { name: string; fields: Map<PyValue, PyValue> } {
  const { value } = readPickle(pickle);
  if (!(value instanceof PyObject) || !HELPERS.some((module) => value.name === `${module}.${kind}`))
    throw new TypeError(`the message is not a ${kind}`);
  if (!(value.state instanceof Map)) throw new TypeError(`the ${kind} has no fields`);
  return { name: value.name, fields: value.state };
}

function numberIn(value: PyValue | undefined): number | undefined {
  if (typeof value === "number") return value;
  if (typeof value === "bigint" || typeof value === "boolean") return Number(value);
  return onlyOf(arrayIn(value));
}

function arrayIn(value: PyValue | undefined): NdArray | undefined {
  const read = readIn(value);
  return read instanceof NdArray ? read : undefined;
}

/** An array or a scalar as numpy rebuilds it: from its state, or from a buffer with its type, shape and order. None for what holds neither numbers nor texts. */
function readIn(value: Unread): NdArray | Texts | undefined {
  if (!(value instanceof PyObject)) return undefined;
  if (SCALAR.has(value.name)) {
    const [type, data] = value.args;
    return arrayOf([], type, "C", data);
  }
  if (FROM_BUFFER.has(value.name)) {
    const [data, type, shape, order] = value.args;
    return arrayOf(shape, type, order, data);
  }
  if (!RECONSTRUCT.has(value.name) || !Array.isArray(value.state)) return undefined;
  const [, shape, type, isFortran, data] = value.state;
  return arrayOf(shape, type, isFortran === true ? "F" : "C", data);
}

/** None for objects, records, an order that is no order. */
function arrayOf(shape: Unread, type: Unread, order: Unread, data: Unread): NdArray | Texts | undefined {
  const name = typeIn(type);
  if (!Array.isArray(shape) || !Buffer.isBuffer(data)) return undefined;
  const dtype = dtypeOf(name);
  const sizes = shape.map(Number);
  if (order === "F") return dtype && NdArray.fromFortran(dtype, sizes, data);
  if (order !== "C") return undefined;
  return dtype !== undefined || isTextType(name) ? arrayFrom(data, name, sizes) : undefined;
}

type Unread = PyValue | undefined;

/** `f4` and a byte order that was given to it; a single byte has none. */
function typeIn(type: Unread): string {
  if (!(type instanceof PyObject) || type.name !== "numpy.dtype") return "";
  const [kind] = type.args;
  const order = Array.isArray(type.state) ? type.state[1] : undefined;
  return `${String(order)}${String(kind)}`;
}
