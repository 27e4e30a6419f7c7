/** What LeRobot's client says and hears: pickles of its own few classes, read without running any of them. */
import { NdArray } from "../codecs/python/ndarray.ts";
import { PyObject, type PyValue, readPickle } from "../codecs/python/pickle.ts";
import { type Picklable, PyFloat, writePickle } from "../codecs/python/pickle-write.ts";

/** Where the client's classes live: since 0.4.0, and before. */
const HELPERS = ["lerobot.async_inference.helpers", "lerobot.scripts.server.helpers"] as const;
const RECONSTRUCT = ["numpy._core.multiarray._reconstruct", "numpy.core.multiarray._reconstruct"];
const ALLOWED: ReadonlySet<string> = new Set([
  ...HELPERS.flatMap((module) => [`${module}.RemotePolicyConfig`, `${module}.TimedObservation`]),
  ...RECONSTRUCT,
  "numpy.ndarray",
  "numpy.dtype",
]);

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

/** One observation. */
export interface LerobotObservation {
  /** Unix seconds by the robot's clock. */
  readonly timestamp: number;
  readonly timestep: number;
  readonly task: string;
  readonly numbers: ReadonlyMap<string, number>;
  readonly pictures: ReadonlyMap<string, NdArray>;
}

/** The setup in a pickle. Throws an error that says what it lacks. */
export function readSetup(pickle: Buffer): LerobotSetup {
  const { name, fields } = instance(pickle, "RemotePolicyConfig");
  const features = fields.get("lerobot_features");
  const model = fields.get("pretrained_name_or_path");
  const chunk = fields.get("actions_per_chunk");
  if (typeof model !== "string" || !(features instanceof Map) || typeof chunk !== "number")
    throw new TypeError("the setup names no policy, no features or no chunk");
  const state = features.get("observation.state");
  const names = state instanceof Map ? state.get("names") : [];
  const cameras = [...features.keys()].map(String).filter((key) => key.startsWith("observation.images."));
  return {
    module: name.slice(0, name.lastIndexOf(".")),
    model,
    motors: Array.isArray(names) ? names.map(String) : [],
    cameras: cameras.map((key) => key.slice("observation.images.".length)),
    chunk,
  };
}

/** The observation in a pickle. Throws an error that says what it lacks. */
export function readObservation(pickle: Buffer): LerobotObservation {
  const { fields } = instance(pickle, "TimedObservation");
  const [timestamp, timestep, observation] = ["timestamp", "timestep", "observation"].map((key) => fields.get(key));
  if (typeof timestamp !== "number" || typeof timestep !== "number" || !(observation instanceof Map))
    throw new TypeError("the observation has no time, no step or nothing in it");
  const numbers = new Map<string, number>();
  const pictures = new Map<string, NdArray>();
  for (const [key, value] of observation) {
    if (typeof value === "number") numbers.set(String(key), value);
    else if (value instanceof PyObject) pictures.set(String(key), arrayIn(value));
  }
  const task = observation.get("task");
  return { timestamp, timestep, task: typeof task === "string" ? task : "", numbers, pictures };
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
  const { value } = readPickle(pickle, ALLOWED);
  if (!(value instanceof PyObject) || !HELPERS.some((module) => value.name === `${module}.${kind}`))
    throw new TypeError(`it is no ${kind}`);
  if (!(value.state instanceof Map)) throw new TypeError(`the ${kind} has no fields`);
  return { name: value.name, fields: value.state };
}

/** An array of bytes, as numpy rebuilds it: version, shape, type, order, data. */
function arrayIn({ name, state }: PyObject): NdArray {
  const [, shape, type, isFortran, data] = Array.isArray(state) ? state : [];
  const isBytes = type instanceof PyObject && type.name === "numpy.dtype" && type.args[0] === "u1";
  if (!RECONSTRUCT.includes(name) || !isBytes || isFortran !== false || !Buffer.isBuffer(data) || !Array.isArray(shape))
    throw new TypeError("an array is no picture");
  return new NdArray("|u1", shape.map(Number), data);
}
