/** What a client of Isaac-GR00T asks, as an act request: N1.5 sends a flat observation, N1.6 and later one map for each modality. */

import { create } from "@bufbuild/protobuf";
import { ActRequestSchema } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { ALIAS_PREFIX } from "../../../brand.ts";
import { type EncodeOptions, headOf, unfit } from "../../../codecs/pictures/raw-pictures.ts";
import type { Packable, Unpacked } from "../../../codecs/python/msgpack.ts";
import { NdArray } from "../../../codecs/python/ndarray.ts";
import { numbersIn, textIn } from "../../../codecs/python/values.ts";
import { Reason, refuse } from "../../../errors.ts";
import type { Embodiment, StatePart } from "../../../inference/robot-check.ts";
import type { OwnRequest } from "../own-keys.ts";

type Gr00tValue = Unpacked<NdArray>;

/** A request, and how its answer is to be written. */
export interface AskedAction extends OwnRequest {
  /** Parts are named `action.<name>`, as who sends a flat observation expects them. */
  readonly dotted: boolean;
  /** N1.5: the answer is a map of [T, D], nothing beside it. */
  readonly bare: boolean;
  /** Names of the parts of an action that the client wants, and how many numbers each has; empty where it names none. */
  readonly parts: readonly (readonly [name: string, dim: number])[];
  /** The same by the model itself, where its server has parts. */
  readonly usualParts: readonly (readonly [name: string, dim: number])[];
}

/** Whom an observation is for. */
interface AskedOf {
  readonly model: string;
  /** How the model acts, where it is known. */
  readonly embodiment: Embodiment | undefined;
  readonly session: string;
  /** Number of the episode in it. */
  readonly episode: number;
  /** Whose pictures they are. */
  readonly by: EncodeOptions;
}

/** The model that `options` of the client name. */
export function modelAsked(data: Gr00tValue | undefined): string | undefined {
  const options = data instanceof Map ? data.get("options") : undefined;
  const model = options instanceof Map ? options.get("model") : undefined;
  if (model !== undefined && typeof model !== "string") throw unfit("options.model", "must be text");
  return model;
}

/** The request in `data`. `options` of the client may name `model`, `preset`, `action_space`, `horizon`, `robot_id` and `action_keys`. */
export async function actionAsked(
  data: Gr00tValue | undefined,
  { model, embodiment, session, episode, by }: AskedOf,
): Promise<AskedAction> {
  if (!(data instanceof Map)) throw unfit("data", "must be a map");
  const nested = data.get("observation");
  const bare = !(nested instanceof Map);
  // Since N1.6 a client may be wrapped (Gr00tSimPolicyWrapper): its observation is flat as that of N1.5, in the frame of later ones.
  const dotted = bare || [...nested.keys()].some((key) => String(key).includes("."));
  const fields = dotted ? groupedByModality(bare ? data : nested) : nested;
  const options = data.get("options");
  const option = (name: string): Gr00tValue | undefined => (options instanceof Map ? options.get(name) : undefined);
  const text = (name: string): string | undefined => {
    const value = option(name);
    if (value !== undefined && typeof value !== "string") throw unfit(`options.${name}`, "must be text");
    return value;
  };
  const horizon = option("horizon");
  if (horizon !== undefined && !(typeof horizon === "number" && Number.isInteger(horizon)))
    throw unfit("options.horizon", "must be a whole number");
  const [preset, robotId] = [text("preset"), text("robot_id")];
  const actionSpace = text("action_space") ?? (preset === undefined ? embodiment?.actionSpace : undefined);
  const moments = await momentsIn(fields.get("video"), by);
  const proprio = proprioIn(fields.get("state"), embodiment?.layout.state ?? []);
  const instruction = instructionIn(fields.get("language"));
  const keys = {
    cameras: new Map([...entriesOf(fields.get("video"))].map(([camera]) => [camera, `video.${camera}`])),
    frames: "video",
    proprio: "state",
    instruction: instructionKeyOf(fields.get("language"), dotted),
  };
  const request = create(ActRequestSchema, {
    model,
    observations: [...moments.slice(0, -1).map((frames) => ({ frames })), { frames: moments.at(-1) ?? [], proprio }],
    provider: { sessionId: session },
    episode,
    ...(instruction !== "" && { instruction }),
    ...(preset !== undefined && { preset }),
    ...(robotId !== undefined && { robotId }),
    ...(actionSpace !== undefined && { actionSpace }),
    // The client carries out what its model answers at a time.
    ...(horizon === undefined ? { wholeChunk: true } : { horizon: horizon >>> 0 }),
  });
  const usualParts = embodiment?.layout.action ?? [];
  return { request, keys, dotted, bare, parts: partsOf(option("action_keys")), usualParts };
}

/** As many as `proprio` may have. */
const MOST_NUMBERS = 4096;

/** As many as an observation may have. */
const MOST_CAMERAS = 16;

/** Moments of a video that are looked at. */
const MOST_MOMENTS = 16;

/** The pictures of each moment, oldest first: of cameras that show fewer moments than others in the last ones. */
async function momentsIn(
  video: Gr00tValue | undefined,
  by: EncodeOptions,
): Promise<{ camera: string; data: Uint8Array }[][]> {
  const cameras = [...entriesOf(video)];
  // Refused before any of their pictures is worked on.
  if (cameras.length > MOST_CAMERAS)
    throw unfit("video", `must have at most ${MOST_CAMERAS} cameras, got ${cameras.length}`);
  const films = cameras.map(([camera, value]) => {
    if (!(value instanceof NdArray)) throw unfit(camera, "must be an array");
    return { camera, pictures: picturesOf(value, camera) };
  });
  const most = Math.max(0, ...films.map(({ pictures }) => pictures.length));
  return Promise.all(
    Array.from({ length: most }, (_, moment) =>
      Promise.all(
        films.flatMap(({ camera, pictures }) => {
          const picture = pictures[moment - most + pictures.length];
          return picture ? [headOf(picture, camera, by).then((data) => ({ camera, data }))] : [];
        }),
      ),
    ),
  );
}

/** The newest values of all parts: in the order of the model where the client has the parts of that, else in the client's own. */
function proprioIn(state: Gr00tValue | undefined, layout: readonly StatePart[]): number[] {
  const parts = new Map<string, number[]>();
  for (const [name, value] of entriesOf(state)) {
    const state = numbersIn(value);
    if (state === undefined) throw unfit(name, "must be an array, a number or a list of numbers");
    assertOneRobot(state, name, STATE_AXES);
    const dim = state.shape.at(-1) ?? 1;
    if (dim > MOST_NUMBERS) throw unfit(name, `must have at most ${MOST_NUMBERS} numbers, got ${dim}`);
    parts.set(name, dim > 0 ? [...newestOf(state, dim).toFloat64()] : []);
  }
  const has = layout.filter(({ name }) => parts.has(name)).sort((a, b) => a.start - b.start);
  if (has.length === 0 || layout.some(({ name, optional }) => !optional && !parts.has(name)))
    return [...parts.values()].flat();
  const proprio: number[] = [];
  for (const { name, start, end } of has) {
    const values = parts.get(name)!;
    // A part behind one that the client lacks has no place.
    if (start !== proprio.length) break;
    if (end !== undefined && values.length !== end - start)
      throw unfit(name, `must have the ${end - start} numbers that the model reads, got ${values.length}`);
    proprio.push(...values);
  }
  return proprio;
}

/** `video.ego_view` and its like, by modality. */
function groupedByModality(flat: ReadonlyMap<unknown, Gr00tValue>): Map<string, Map<string, Gr00tValue>> {
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

/** The numbers of the last moment. */
function newestOf({ dtype, shape, data }: NdArray, dim: number): NdArray {
  const moments = shape.slice(0, -1).reduce((product, size) => product * size, 1);
  return moments > 0 ? new NdArray(dtype, [dim], data.subarray(-data.length / moments)) : new NdArray(dtype, [0], data);
}

/** Axes of an array that has one for the batch: [batch, time, dim] and [batch, time, height, width, 3]. */
const STATE_AXES = 3;
const VIDEO_AXES = 5;

/** Refuses what is of several robots: an answer is for one. */
function assertOneRobot({ shape }: NdArray, key: string, axes: number): void {
  if (shape.length > axes) throw unfit(key, `must have at most ${axes} axes, got ${shape.length}`);
  if (shape.length === axes && shape[0] !== 1)
    throw unfit(key, `must be of one robot, with a first axis of 1, got a batch of ${shape[0]}`);
}

/** The last pictures of [batch, time, height, width, 3] or [time, height, width, 3], oldest first. */
function picturesOf(array: NdArray, key: string): NdArray[] {
  const { dtype, shape, data } = array;
  assertOneRobot(array, key, VIDEO_AXES);
  if (shape.length < 3) throw unfit(key, "must have images");
  const picture = shape.slice(-3);
  if (picture[2] !== 3) throw unfit(key, "must have images of shape [height, width, 3]: red, green and blue");
  const count = shape.slice(0, -3).reduce((product, size) => product * size, 1);
  const bytes = data.length / count;
  if (!(bytes > 0)) throw unfit(key, "must have images");
  const length = Math.min(count, MOST_MOMENTS);
  const first = data.length - length * bytes;
  return Array.from(
    { length },
    (_, i) => new NdArray(dtype, picture, data.subarray(first + i * bytes, first + (i + 1) * bytes)),
  );
}

/** The first text of a language; annotations of other kinds, such as whether a step is valid, stand beside it. */
function instructionIn(language: Gr00tValue | Map<string, Gr00tValue> | undefined): string {
  const given = [...entriesOf(language)].filter(([, value]) => value !== null);
  for (const [, value] of given) {
    const text = textIn(value);
    if (text !== undefined) return text;
  }
  const [first] = given;
  if (first === undefined) return "";
  throw unfit(first[0], "must be one text, also in lists or arrays of one");
}

/** Where the instruction stands, or would: N1.5 and its like have it among annotations. */
function instructionKeyOf(language: Gr00tValue | Map<string, Gr00tValue> | undefined, dotted: boolean): string {
  const [name] = [...entriesOf(language)].map(([name]) => name);
  const key = name ?? (dotted ? "human.task_description" : "annotation.human.task_description");
  return `${dotted ? "annotation" : "language"}.${key}`;
}

function partsOf(value: Gr00tValue | undefined): [string, number][] {
  if (!(value instanceof Map)) return [];
  return [...value].map(([name, dim]) => {
    if (typeof dim !== "number" || !Number.isInteger(dim) || dim < 1)
      throw unfit("options.action_keys", "must map each part to its number of numbers");
    return [String(name), dim];
  });
}

/** Where names are the caller's own: clients take no empty list. */
const ANY = { video: ["image"], state: ["state"], action: ["action"], language: "annotation.human.task_description" };
/** Steps of a chunk, where the router chooses the model. */
const USUAL_STEPS = 16;

/** The four modalities of a model. One picture of each camera is enough: the gateway keeps those that a model looks back to. */
export function modalitiesOf(model: string, embodiment: Embodiment | undefined): Packable {
  // Of an alias of the router it is found out with each call.
  if (!embodiment && !model.startsWith(ALIAS_PREFIX))
    throw refuse(Reason.NO_LIVE_DEPLOYMENT, `no live deployment serves ${model}`);
  const { video = [], state = [], action = [], language = "" } = embodiment?.layout ?? {};
  const steps = Array.from({ length: embodiment?.chunk ?? USUAL_STEPS }, (_, step) => step);
  const wanted = state.map(({ name }) => name);
  return {
    video: modality([0], video.length > 0 ? video : ANY.video),
    state: modality([0], wanted.length > 0 ? wanted : ANY.state),
    action: modality(steps, action.length > 0 ? action.map(([name]) => name) : ANY.action),
    language: modality([0], [language || ANY.language]),
  };
}

/** Under the tags of both generations: a client looks for its own. */
const modality = (deltas: readonly number[], keys: readonly string[]): Packable => ({
  __ModalityConfig_class__: true,
  __ModalityConfig__: true,
  as_json: {
    delta_indices: deltas,
    modality_keys: keys,
    sin_cos_embedding_keys: null,
    mean_std_embedding_keys: null,
    action_configs: null,
  },
});
