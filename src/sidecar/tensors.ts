/** What LeRobot's client says and hears where its messages are JSON and safetensors. */
import { type LerobotMessage, mapOf, readLerobotMessage, writeLerobotMessage } from "../codecs/python/lerobot.ts";
import { NdArray } from "../codecs/python/ndarray.ts";
import { camerasIn, type LerobotObservation, type LerobotSetup, onlyOf } from "./messages.ts";

/** The setup in a message. Throws an error that says what it lacks. */
export function readSetup(bytes: Buffer): LerobotSetup {
  const { told } = messageOf(bytes, "RemotePolicyConfig");
  const [model, chunk] = [told.get("pretrained_name_or_path"), told.get("actions_per_chunk")];
  const features = mapOf(told.get("lerobot_features"));
  if (typeof model !== "string" || features === undefined || typeof chunk !== "number")
    throw new TypeError("the setup names no policy, no features or no chunk");
  const names = mapOf(features.get("observation.state"))?.get("names");
  return {
    model,
    motors: Array.isArray(names) ? names.map(String) : [],
    cameras: camerasIn([...features].map(([key, feature]) => [key, mapOf(feature)?.get("shape")])),
    chunk,
    actions: writeActions,
  };
}

/** The observation in a message. Throws an error that says what it lacks. */
export function readObservation(bytes: Buffer): LerobotObservation {
  const { told, arrays } = messageOf(bytes, "TimedObservation");
  const [timestamp, timestep] = [told.get("timestamp"), told.get("timestep")];
  const scalars = mapOf(told.get("scalar_data"));
  if (typeof timestamp !== "number" || typeof timestep !== "number" || scalars === undefined)
    throw new TypeError("the observation has no time, no step or nothing in it");
  const task = scalars.get("task") ?? "";
  if (typeof task !== "string") throw new TypeError("the observation's task is not text");
  return {
    timestamp,
    timestep,
    task,
    number: (name) => numberOf(scalars.get(name)) ?? onlyOf(arrays.get(name)),
    array: (name) => arrays.get(name),
  };
}

function writeActions(
  { timestamp, timestep }: LerobotObservation,
  steps: readonly (readonly number[])[],
  dtMs: number,
): Buffer {
  const actions = steps.map((_, i) => ({ timestamp: timestamp + (i * dtMs) / 1000, timestep: timestep + i }));
  const arrays = new Map(steps.map((step, i) => [`action_${i}`, NdArray.float32(step)]));
  return writeLerobotMessage({ type: "TimedActions", actions }, arrays);
}

function messageOf(bytes: Buffer, kind: string): LerobotMessage {
  const message = readLerobotMessage(bytes);
  if (message.told.get("type") !== kind) throw new TypeError(`the message is not a ${kind}`);
  return message;
}

/** Python's booleans count as numbers, as they do there. */
const numberOf = (value: unknown): number | undefined =>
  typeof value === "number" || typeof value === "boolean" ? Number(value) : undefined;
