/** What a client of Isaac-GR00T asks, as an act request: N1.5 sends a flat observation, N1.6 and later one map for each modality. */
import { create } from "@bufbuild/protobuf";
import { type ActRequest, ActRequestSchema } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { encoded, unfit } from "../../../codecs/pictures/raw-pictures.ts";
import type { Unpacked } from "../../../codecs/python/msgpack.ts";
import { NdArray } from "../../../codecs/python/ndarray.ts";

type Gr00tValue = Unpacked<NdArray>;

/** A request, and how its answer is to be written. */
export interface AskedAction {
  readonly request: ActRequest;
  /** Parts are named `action.<name>`, as who sends a flat observation expects them. */
  readonly dotted: boolean;
  /** N1.5: the answer is a map of [T, D], nothing beside it. */
  readonly bare: boolean;
  /** Names of the parts of an action, and how many numbers each has; all of it as `action` when empty. */
  readonly parts: readonly (readonly [name: string, dim: number])[];
}

/** Without a word about it, a call goes to the router. */
const ANY_MODEL = "service/auto";

/** The request in `data`. `options` of the client may name `model`, `preset`, `action_space`, `horizon` and `action_keys`. */
export async function actionAsked(data: Gr00tValue | undefined, session: string): Promise<AskedAction> {
  if (!(data instanceof Map)) throw unfit("data", "is a map");
  const nested = data.get("observation");
  const bare = !(nested instanceof Map);
  // Since N1.6 a client may be wrapped (Gr00tSimPolicyWrapper): its observation is flat as that of N1.5, in the frame of later ones.
  const dotted = bare || [...nested.keys()].some((key) => String(key).includes("."));
  const fields = dotted ? modalitiesOf(bare ? data : nested) : nested;
  const options = data.get("options");
  const option = (name: string): Gr00tValue | undefined => (options instanceof Map ? options.get(name) : undefined);
  const text = (name: string): string | undefined => {
    const value = option(name);
    if (value !== undefined && typeof value !== "string") throw unfit(`options.${name}`, "is a text");
    return value;
  };
  const horizon = option("horizon");
  if (horizon !== undefined && !(typeof horizon === "number" && Number.isInteger(horizon)))
    throw unfit("options.horizon", "is a whole number");
  const [preset, actionSpace] = [text("preset"), text("action_space")];
  const frames = [...entriesOf(fields.get("video"))].map(async ([camera, value]) => {
    if (!(value instanceof NdArray)) throw unfit(camera, "a video is an array");
    return { camera, data: await encoded(lastPicture(value, camera), camera, false) };
  });
  const proprio: number[] = [];
  for (const [name, value] of entriesOf(fields.get("state"))) {
    if (!(value instanceof NdArray)) throw unfit(name, "a state is an array");
    assertOneRobot(value, name, STATE_AXES);
    const dim = value.shape.at(-1) ?? 1;
    if (dim > 0) proprio.push(...value.toFloat64().slice(-dim));
  }
  const [instruction] = [...entriesOf(fields.get("language"))].map(([key, value]) => firstText(key, value));
  const request = create(ActRequestSchema, {
    model: text("model") ?? ANY_MODEL,
    observations: [{ frames: await Promise.all(frames), proprio }],
    provider: { sessionId: session },
    ...(instruction !== undefined && { instruction }),
    ...(preset !== undefined && { preset }),
    ...(actionSpace !== undefined && { actionSpace }),
    // The client carries out what its model answers at a time.
    ...(horizon === undefined ? { wholeChunk: true } : { horizon: horizon >>> 0 }),
  });
  return { request, dotted, bare, parts: partsOf(option("action_keys")) };
}

/** `video.ego_view` and its like, by modality. */
function modalitiesOf(flat: ReadonlyMap<unknown, Gr00tValue>): Map<string, Map<string, Gr00tValue>> {
  const modalities = new Map<string, Map<string, Gr00tValue>>();
  for (const [key, value] of flat) {
    const [head = "", ...rest] = String(key).split(".");
    const modality = head === "annotation" ? "language" : head;
    modalities.set(modality, (modalities.get(modality) ?? new Map<string, Gr00tValue>()).set(rest.join("."), value));
  }
  return modalities;
}

function* entriesOf(value: Gr00tValue | Map<string, Gr00tValue> | undefined): IterableIterator<[string, Gr00tValue]> {
  if (value instanceof Map) for (const [key, inner] of value) yield [String(key), inner as Gr00tValue];
}

/** Axes of an array that has one for the batch: [batch, time, dim] and [batch, time, height, width, 3]. */
const STATE_AXES = 3;
const VIDEO_AXES = 5;

/** Refuses what is of several robots: an answer is for one. */
function assertOneRobot({ shape }: NdArray, key: string, axes: number): void {
  if (shape.length > axes) throw unfit(key, `has ${shape.length} axes, and no more than ${axes} mean something`);
  if (shape.length === axes && shape[0] !== 1)
    throw unfit(key, `is a batch of ${shape[0]}; a call is of one robot, so that its first axis is 1`);
}

/** The newest picture of [batch, time, height, width, 3] or [time, height, width, 3]. */
function lastPicture(array: NdArray, key: string): NdArray {
  const { dtype, shape, data } = array;
  assertOneRobot(array, key, VIDEO_AXES);
  if (shape.length < 3) throw unfit(key, "a video has pictures");
  const picture = shape.slice(-3);
  if (picture[2] !== 3) throw unfit(key, "a picture of a video is [height, width, 3]: red, green and blue");
  const bytes = data.length / shape.slice(0, -3).reduce((product, size) => product * size, 1);
  if (!(bytes > 0)) throw unfit(key, "a video has pictures");
  return new NdArray(dtype, picture, data.subarray(data.length - bytes));
}

function firstText(key: string, value: Gr00tValue): string {
  if (Array.isArray(value) && value.length === 1) return firstText(key, value[0] as Gr00tValue);
  if (typeof value !== "string") throw unfit(key, "a language is one text, in lists of one");
  return value;
}

function partsOf(value: Gr00tValue | undefined): [string, number][] {
  if (!(value instanceof Map)) return [];
  return [...value].map(([name, dim]) => {
    if (typeof dim !== "number" || !Number.isInteger(dim) || dim < 1)
      throw unfit("options.action_keys", "names each part with how many numbers it has");
    return [String(name), dim];
  });
}
