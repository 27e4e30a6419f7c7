/** LeRobot's messages as JSON and safetensors. */
import { type LerobotMessage, mapOf, readLerobotMessage, writeLerobotMessage } from "../../codecs/python/lerobot.ts";
import type { NdArray } from "../../codecs/python/ndarray.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import { chunkOf } from "../payload/chunk.ts";
import { arrayOf, type ObservationPart } from "../payload/observe.ts";
import type { Profile } from "../payload/profile.ts";
import { failureOf, malformed } from "../transport/failures.ts";
import { intervalOf, loadedBy, MAX_DIM, MAX_STEPS, tableOf } from "./dialect.ts";

/** The policy that the offering names, and what it will be shown. */
export function writeSetup({ frames, proprio, constants }: Profile): Buffer {
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

/** One observation that the server has to look at. Throws an UpstreamFailure for files in a picture's place. */
export function writeObservation(
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
    else scalars.push([part.key, array.toFloat64()[0]!]); // a motor has one number, as the profile was checked for
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

/** The first `horizon` rows of a chunk. Throws an UpstreamFailure for anything else, and for steps that don't go on from `timestep`. */
export function readChunk(bytes: Buffer, timestep: number, horizon: number): ActAnswer {
  const { told, arrays } = messageOf(bytes);
  const actions = told.get("actions");
  if (told.get("type") !== "TimedActions" || !Array.isArray(actions) || actions.length > MAX_STEPS)
    throw malformed("the answer is no list of actions");
  const times = actions.map((action: unknown) => mapOf(action));
  const rows = times.map((time, i) => {
    if (time?.get("timestep") !== timestep + i) throw malformed("the steps are those of another observation");
    return rowOf(arrays.get(`action_${i}`));
  });
  return chunkOf(tableOf(rows), horizon, { dtMs: intervalOf(times.map((time) => time?.get("timestamp"))) });
}

function rowOf(array: NdArray | undefined): Float64Array {
  if (array === undefined) throw malformed("a step without its action");
  const [length = 0, ...more] = array.shape;
  if (more.length > 0 || length < 1 || length > MAX_DIM) throw malformed("an action isn't one row of numbers");
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
