/** What LeRobot's client says and hears: pickles of its own few classes, read without running any of them. */
import { type DType, isDType, NdArray } from "../codecs/python/ndarray.ts";
import { PyObject, type PyValue, readPickle } from "../codecs/python/pickle.ts";
import { type Picklable, PyFloat, writePickle } from "../codecs/python/pickle-write.ts";

/** Where the client's classes live: since 0.4.0, and before. */
const HELPERS = ["lerobot.async_inference.helpers", "lerobot.scripts.server.helpers"] as const;
/** How numpy writes an array, one in protocol 5, and one number, by its second major version and by its first. */
const [RECONSTRUCT, FROM_BUFFER, SCALAR] = ["multiarray._reconstruct", "numeric._frombuffer", "multiarray.scalar"].map(
  (name) => new Set([`numpy._core.${name}`, `numpy.core.${name}`]),
) as [Set<string>, Set<string>, Set<string>];

/** What a client asks for before it begins. */
export interface LerobotSetup {
  /** The module of its classes, for the answers. */
  readonly module: string;
  /** `pretrained_name_or_path`: here the slug of a model, or an alias. */
  readonly model: string;
  /** Names of the numbers of its state, in order. */
  readonly motors: readonly string[];
  readonly cameras: readonly string[];
  readonly chunk: number;
}

/** One observation, of which only what the setup names is read: a robot may send whatever else it knows. */
export interface LerobotObservation {
  /** Unix seconds by the robot's clock. */
  readonly timestamp: number;
  readonly timestep: number;
  readonly task: string;
  /** By the robot's own names. */
  readonly values: ReadonlyMap<PyValue, PyValue>;
}

const IMAGES = "observation.images.";

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
  const cameras = [...features].flatMap(([key, feature]) => (hasColours(feature) ? [String(key)] : []));
  return {
    module: name.slice(0, name.lastIndexOf(".")),
    model,
    motors: Array.isArray(names) ? names.map(String) : [],
    cameras: cameras.filter((key) => key.startsWith(IMAGES)).map((key) => key.slice(IMAGES.length)),
    chunk,
  };
}

/** The observation in a pickle. Throws an error that says what it lacks. */
export function readObservation(pickle: Buffer): LerobotObservation {
  const { fields } = instance(pickle, "TimedObservation");
  const [timestamp, timestep] = ["timestamp", "timestep"].map((key) => numberIn(fields.get(key)));
  const observation = fields.get("observation");
  if (timestamp === undefined || timestep === undefined || !(observation instanceof Map))
    throw new TypeError("the observation has no time, no step or nothing in it");
  const task = observation.get("task");
  return { timestamp, timestep, task: typeof task === "string" ? task : "", values: observation };
}

/** A number of a robot: Python's own, one of numpy's, or an array of none but one. Throws an error that names it where there is none. */
export function readNumber({ values }: LerobotObservation, name: string): number {
  const value = numberIn(values.get(name));
  if (value === undefined) throw new TypeError(`the observation has no number ${name}`);
  return value;
}

/**
 * A picture in bytes, of whatever numbers the camera's driver makes: LeRobot's server divides all of them by 255, so each is a brightness
 * from 0 to 255. Throws an error that names the camera where there is no picture.
 */
export function readPicture({ values }: LerobotObservation, camera: string): NdArray {
  const picture = arrayIn(values.get(camera));
  if (picture === undefined) throw new TypeError(`the observation has no picture ${camera}`);
  if (picture.dtype === "|u1") return picture;
  const bytes = Uint8Array.from(picture.toFloat64(), (value) => Math.max(0, Math.min(255, Math.round(value))));
  return NdArray.uint8(bytes, picture.shape);
}

/** Actions as the client takes them: one for each step, from the observation's on. */
export function writeActions(
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
    throw new TypeError(`it is no ${kind}`);
  if (!(value.state instanceof Map)) throw new TypeError(`the ${kind} has no fields`);
  return { name: value.name, fields: value.state };
}

/** Whether a feature is a picture that a model of colours reads. Depth is one channel, and LeRobot's server shows it to no policy. */
function hasColours(feature: PyValue): boolean {
  const shape = feature instanceof Map ? feature.get("shape") : undefined;
  return !Array.isArray(shape) || (shape.length === 3 && shape[2] !== 1);
}

function numberIn(value: PyValue | undefined): number | undefined {
  if (typeof value === "number") return value;
  if (typeof value === "bigint" || typeof value === "boolean") return Number(value);
  if (!(value instanceof PyObject)) return undefined;
  const [type, data] = value.args;
  const array = SCALAR.has(value.name) ? numbersOf([], type, "C", data) : arrayIn(value);
  return array?.shape.length === 0 ? array.toFloat64()[0] : undefined;
}

/** An array as numpy rebuilds it: from its state, or from a buffer with its type, shape and order. */
function arrayIn(value: PyValue | undefined): NdArray | undefined {
  if (!(value instanceof PyObject)) return undefined;
  if (FROM_BUFFER.has(value.name)) {
    const [data, type, shape, order] = value.args;
    return numbersOf(shape, type, order, data);
  }
  if (!RECONSTRUCT.has(value.name) || !Array.isArray(value.state)) return undefined;
  const [, shape, type, isFortran, data] = value.state;
  return numbersOf(shape, type, isFortran === true ? "F" : "C", data);
}

/** None for what holds no numbers: texts, objects, records, an order that is no order. */
function numbersOf(shape: Unread, type: Unread, order: Unread, data: Unread): NdArray | undefined {
  const dtype = typeIn(type);
  if (dtype === undefined || !Array.isArray(shape) || !Buffer.isBuffer(data)) return undefined;
  if (order === "F") return NdArray.fromFortran(dtype, shape.map(Number), data);
  return order === "C" ? new NdArray(dtype, shape.map(Number), data) : undefined;
}

type Unread = PyValue | undefined;

/** `f4` and a byte order that was given to it; a single byte has none. */
function typeIn(type: Unread): DType | undefined {
  if (!(type instanceof PyObject) || type.name !== "numpy.dtype") return undefined;
  const [kind] = type.args;
  const order = Array.isArray(type.state) ? type.state[1] : undefined;
  const dtype = `${String(order)}${String(kind)}`;
  return isDType(dtype) ? dtype : undefined;
}
