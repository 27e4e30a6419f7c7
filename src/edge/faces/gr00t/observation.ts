/** What a client of Isaac-GR00T asks, as an act request: N1.5 sends a flat observation, N1.6 and later one map for each modality. */
import { create } from "@bufbuild/protobuf";
import { type ActRequest, ActRequestSchema } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { encoded, unfit } from "../../../codecs/pictures/raw-pictures.ts";
import type { Unpacked } from "../../../codecs/python/msgpack.ts";
import { NdArray } from "../../../codecs/python/ndarray.ts";

type Value = Unpacked<NdArray>;

/** A request, and how its answer is to be written. */
export interface AskedAction {
  readonly request: ActRequest;
  /** N1.5: one flat map of `action.<name>`. */
  readonly flat: boolean;
  /** Names of the parts of an action, and how many numbers each has; all of it as `action` when empty. */
  readonly parts: readonly (readonly [name: string, dim: number])[];
}

/** Without a word about it, a call goes to the router. */
const ANY_MODEL = "service/auto";

/** The request in `data`. `options` of the client may name `model`, `preset`, `action_space`, `horizon` and `action_keys`. */
export async function actionAsked(data: Value | undefined, session: string): Promise<AskedAction> {
  if (!(data instanceof Map)) throw unfit("data", "is a map");
  const nested = data.get("observation");
  const flat = !(nested instanceof Map);
  const fields = flat ? modalitiesOf(data) : nested;
  const options = data.get("options");
  const option = (name: string): Value | undefined => (options instanceof Map ? options.get(name) : undefined);
  const text = (name: string): string | undefined => {
    const value = option(name);
    if (value !== undefined && typeof value !== "string") throw unfit(`options.${name}`, "is a text");
    return value;
  };
  const horizon = option("horizon");
  if (horizon !== undefined && typeof horizon !== "number") throw unfit("options.horizon", "is a number");
  const [preset, actionSpace] = [text("preset"), text("action_space")];
  const frames = [...entriesOf(fields.get("video"))].map(async ([camera, value]) => {
    if (!(value instanceof NdArray)) throw unfit(camera, "a video is an array");
    return { camera, data: await encoded(lastPicture(value, camera), camera, false) };
  });
  const proprio: number[] = [];
  for (const [name, value] of entriesOf(fields.get("state"))) {
    if (!(value instanceof NdArray)) throw unfit(name, "a state is an array");
    const dim = value.shape.at(-1) ?? 1;
    proprio.push(...value.toFloat64().slice(-dim));
  }
  const [instruction] = [...entriesOf(fields.get("language"))].map(([, value]) => firstText(value));
  const request = create(ActRequestSchema, {
    model: text("model") ?? ANY_MODEL,
    observations: [{ frames: await Promise.all(frames), proprio }],
    provider: { sessionId: session },
    ...(instruction !== undefined && { instruction }),
    ...(preset !== undefined && { preset }),
    ...(actionSpace !== undefined && { actionSpace }),
    ...(horizon !== undefined && { horizon: horizon >>> 0 }),
  });
  return { request, flat, parts: partsOf(option("action_keys")) };
}

/** `video.ego_view` and its like, by modality. */
function modalitiesOf(flat: ReadonlyMap<unknown, Value>): Map<string, Map<string, Value>> {
  const modalities = new Map<string, Map<string, Value>>();
  for (const [key, value] of flat) {
    const [head = "", ...rest] = String(key).split(".");
    const modality = head === "annotation" ? "language" : head;
    modalities.set(modality, (modalities.get(modality) ?? new Map<string, Value>()).set(rest.join("."), value));
  }
  return modalities;
}

function* entriesOf(value: Value | Map<string, Value> | undefined): IterableIterator<[string, Value]> {
  if (value instanceof Map) for (const [key, inner] of value) yield [String(key), inner as Value];
}

/** The newest picture of [batch, time, height, width, 3] or [time, height, width, 3]. */
function lastPicture({ dtype, shape, data }: NdArray, key: string): NdArray {
  if (shape.length < 3) throw unfit(key, "a video has pictures");
  const picture = shape.slice(-3);
  const bytes = data.length / shape.slice(0, -3).reduce((product, size) => product * size, 1);
  if (!(bytes > 0)) throw unfit(key, "a video has pictures");
  return new NdArray(dtype, picture, data.subarray(data.length - bytes));
}

const firstText = (value: Value): string | undefined =>
  Array.isArray(value) ? firstText(value[0] as Value) : typeof value === "string" ? value : undefined;

function partsOf(value: Value | undefined): [string, number][] {
  if (!(value instanceof Map)) return [];
  return [...value].map(([name, dim]) => {
    if (typeof dim !== "number" || !Number.isInteger(dim) || dim < 1)
      throw unfit("options.action_keys", "names each part with how many numbers it has");
    return [String(name), dim];
  });
}
