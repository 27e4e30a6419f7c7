/** Messages of an openpi server, in its dialect. */
import type { PredictedFrame } from "../../../gen/limber/v1/prediction_pb.ts";
import { ServerDialect } from "../../../gen/limber/v1/supply_pb.ts";
import type { MsgpackBudget, Packable, Unpacked, UnpackedMap } from "../../codecs/python/msgpack.ts";
import { decodeNumpy, encodeNumpy, NdArray } from "../../codecs/python/ndarray.ts";
import type { ActAnswer, ActInput } from "../../contracts/contract.ts";
import { chunkOf, sideBySide, type Table, tableIn } from "../payload/actions.ts";
import { arrayOf, type ObservationPart } from "../payload/observe.ts";
import { instructionIn, type Profile } from "../payload/profile.ts";
import { framesIn } from "../pictures/video.ts";
import { failureOf, malformed, reportedError } from "../transport/failures.ts";

/** An observation's map under construction. */
export type OpenpiFields = Map<string, Packable<NdArray>>;

/** The inputs of one request. */
interface OpenpiMessage {
  readonly profile: Profile;
  /** From partsOf, with the same profile. */
  readonly parts: readonly ObservationPart[];
  readonly input: Pick<ActInput, "instruction" | "seed">;
  /** From episodeOf. */
  readonly episode: string | undefined;
  readonly requestId: string;
}

/** Builds the request in a server's dialect. Throws an UpstreamFailure if the profile specifies files, while the dialect has pixels. */
export function encodeRequest(outgoing: OpenpiMessage, dialect: ServerDialect, room?: MsgpackBudget): Buffer {
  return encodeNumpy((WRITERS[dialect] ?? plain)(outgoing), room);
}

/** The message that starts an episode, if the dialect has one. */
export const encodeReset = (episode: string | undefined): Buffer =>
  encodeNumpy(new Map([["endpoint", "reset"], ...(episode === undefined ? [] : [["session_id", episode] as const])]));

const plain = ({ profile, parts, input }: OpenpiMessage): OpenpiFields => {
  const fields: OpenpiFields = new Map();
  for (const part of parts) place(fields, part.key, arrayOf(part));
  for (const [key, text] of instructionIn(profile, input.instruction)) place(fields, key, text);
  return withConstants(fields, profile);
};

/** `endpoint`, a session, a seed. A call without an episode gets its own, because servers with state would share it otherwise. */
const addressed = (outgoing: OpenpiMessage): OpenpiFields => {
  const { input, episode, requestId } = outgoing;
  const fields = plain(outgoing)
    .set("endpoint", "infer")
    .set("session_id", episode ?? requestId);
  return input.seed === undefined ? fields : fields.set("seed", input.seed);
};

/** Keys with dots that are not split. */
const flat = ({ profile, parts, input }: OpenpiMessage): OpenpiFields => {
  const fields: OpenpiFields = new Map(parts.map((part) => [part.key, arrayOf(part)]));
  for (const [key, text] of instructionIn(profile, input.instruction)) fields.set(key, text);
  for (const { key, value } of profile.constants) fields.set(key, value);
  return fields;
};

/** Proprioception with a time axis. */
const timed = (outgoing: OpenpiMessage): OpenpiFields => {
  const parts = outgoing.parts.map((part) => {
    const array = arrayOf(part);
    return part.kind === "frame" ? part : { ...part, value: new NdArray(array.dtype, [1, ...array.shape], array.data) };
  });
  return plain({ ...outgoing, parts });
};

/** One example with images in order, text, and optionally a state, in an envelope with the request's id. */
const enveloped = ({ profile, parts, input, requestId }: OpenpiMessage): OpenpiFields => {
  const example: OpenpiFields = new Map();
  const frames = parts.filter(({ kind }) => kind === "frame").map(arrayOf);
  example.set("image", frames);
  for (const [key, text] of instructionIn(profile, input.instruction)) example.set(key, text);
  for (const part of parts) {
    if (part.kind === "frame") continue;
    const array = arrayOf(part);
    place(example, part.key, new NdArray(array.dtype, [1, ...array.shape], array.data));
  }
  const payload = withConstants(new Map<string, Packable<NdArray>>([["examples", [example]]]), profile);
  return new Map<string, Packable<NdArray>>([
    ["type", "infer"],
    ["request_id", requestId],
    ["payload", payload],
  ]);
};

const WRITERS: Readonly<Partial<Record<ServerDialect, (outgoing: OpenpiMessage) => OpenpiFields>>> = {
  [ServerDialect.ROBOARENA]: addressed,
  [ServerDialect.VLLM_OMNI]: addressed,
  [ServerDialect.SGLANG]: flat,
  [ServerDialect.COSMOS_ROBOLAB]: timed,
  [ServerDialect.STARVLA]: enveloped,
};

function withConstants(fields: OpenpiFields, { constants }: Profile): OpenpiFields {
  for (const { key, value } of constants) place(fields, key, value);
  return fields;
}

/** Sets a value under a key whose dots create nested maps. */
export function place(into: OpenpiFields, key: string, value: Packable<NdArray>): void {
  const [head = "", ...rest] = key.split(".");
  if (rest.length === 0) {
    into.set(head, value);
    return;
  }
  const inner = into.get(head);
  const map: OpenpiFields = inner instanceof Map ? inner : new Map();
  into.set(head, map);
  place(map, rest.join("."), value);
}

type OpenpiValue = Unpacked<NdArray>;
type OpenpiAnswer = UnpackedMap<NdArray>;

/** The first frame of a connection. */
export interface Metadata {
  readonly dialect: ServerDialect;
  /** Numbers per step, if stated. */
  readonly actionDim: number | undefined;
  /** Steps in a chunk, if stated. */
  readonly chunk: number | undefined;
  /** The required image size, if stated. */
  readonly imageSize: ImageSize | undefined;
}

/** In pixels. */
export interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/** Reads the first frame of a connection: the server's metadata, which identify its dialect. Throws an UpstreamFailure if it is not a map. */
export function readMetadata(bytes: Buffer): Metadata {
  const metadata = decode(bytes);
  if (!(metadata instanceof Map)) throw malformed("the metadata are not a map");
  const config = mapAt(metadata, "policy_server_config") ?? mapAt(metadata, "output") ?? metadata;
  return {
    dialect: TOLD_BY.find(({ tells }) => tells(metadata))?.dialect ?? ServerDialect.OPENPI,
    actionDim: countAt(config, "action_dim"),
    chunk: countAt(config, "action_horizon") ?? countAt(metadata, "action_chunk_size"),
    imageSize: sizeAt(config, "image_resolution"),
  };
}

/** The metadata of vLLM-Omni's models besides the fields in common with RoboArena's servers. */
const VLLM_OMNI_KEYS = ["action_horizon", "max_action_horizon", "action_dim", "action_keys", "embodiment_tag"];

/**
 * Metadata that identify a dialect. vLLM-Omni's are its model's `policy_server_config`, with or without that key (vllm-project/vllm-omni,
 * entrypoints/openpi/serving.py at 0a2c951, deploy/Gr00tN1d7.yaml at 4b9dc92).
 */
const TOLD_BY: readonly { dialect: ServerDialect; tells: (metadata: OpenpiAnswer) => boolean }[] = [
  { dialect: ServerDialect.VLLM_OMNI, tells: (metadata) => metadata.has("policy_server_config") },
  {
    dialect: ServerDialect.VLLM_OMNI,
    tells: (metadata) => metadata.has("image_resolution") && VLLM_OMNI_KEYS.some((key) => metadata.has(key)),
  },
  { dialect: ServerDialect.ROBOARENA, tells: (metadata) => metadata.has("needs_session_id") },
  { dialect: ServerDialect.SGLANG, tells: (metadata) => metadata.get("object") === "action.metadata" },
  { dialect: ServerDialect.STARVLA, tells: (metadata) => metadata.has("available_unnorm_keys") },
];

/** The parameters for reading an answer. */
interface Expected {
  readonly profile: Pick<Profile, "actionKeys" | "actionDims">;
  readonly horizon: number;
  /** Numbers of the entire action, if declared. */
  readonly dim?: number | undefined;
  /** The request's id, which the answer must repeat if it names any. */
  readonly requestId: string;
  /** The episode of the request. */
  readonly dialect: ServerDialect;
}

/**
 * Returns the first `horizon` rows of the answer's action, in their original length. Throws an UpstreamFailure for the server's own error, no
 * action, fewer rows than requested, or an answer to another request.
 */
export function readAnswer(bytes: Buffer, { profile, horizon, dim, requestId, dialect }: Expected): ActAnswer {
  const answer = decode(bytes);
  if (answer instanceof Map) throwIfError(answer);
  if (answer instanceof Map && (answer.get("request_id") ?? requestId) !== requestId) {
    throw malformed("the response is for another request");
  }
  const action = actionIn(answer, dialect);
  const tables = profile.actionKeys.length > 0 ? namedIn(answer, action, profile.actionKeys) : [tableAt(action)];
  return chunkOf(sideBySide(tables, { dims: profile.actionDims, dim }), horizon, { gpuSeconds: gpuSecondsOf(answer) });
}

/** Returns the video beside an action, if the answer has one (cosmos-framework), as images `dtMs` apart. Throws an UpstreamFailure. */
export async function readPrediction(bytes: Buffer, dtMs: number): Promise<PredictedFrame[]> {
  const answer = decode(bytes);
  const video = answer instanceof Map ? answer.get("video") : undefined;
  return video instanceof NdArray ? framesIn(video, dtMs) : [];
}

/** Whether a frame confirms a new episode, as text (RoboArena) or in a map (vLLM-Omni). */
export function isResetDone(frame: Buffer, isBinary: boolean): boolean {
  if (!isBinary) return frame.length < 200 && frame.toString("utf8").startsWith("reset successful");
  const answer = decode(frame);
  if (!(answer instanceof Map)) return false;
  throwIfError(answer);
  return answer.get("status") === "reset successful";
}

function decode(bytes: Buffer): OpenpiValue {
  try {
    return decodeNumpy(bytes);
  } catch (error) {
    throw failureOf(error);
  }
}

/** Throws the error that an answer reports: `{type: "error", message}`, `{ok: false, error: {message}}`, `{error}`. */
function throwIfError(answer: OpenpiAnswer): void {
  const error = reportedError(answer);
  if (error) throw error;
}

/**
 * Finds the action of openpi (`actions`), cosmos (`action`), vLLM-Omni (the answer itself, or its only array) and starVLA (`data.actions`).
 * Several named arrays have no defined order, and a wrong one would pass every check, so the offering must declare it.
 */
function actionIn(answer: OpenpiValue, dialect: ServerDialect): OpenpiValue | undefined {
  if (!(answer instanceof Map)) return answer;
  const action = answer.get("actions") ?? answer.get("action") ?? mapAt(answer, "data")?.get("actions");
  if (dialect !== ServerDialect.VLLM_OMNI || action instanceof NdArray) return action;
  return onlyIn(action instanceof Map ? action : answer) ?? action;
}

/** The only array of a map. */
function onlyIn(map: OpenpiAnswer): NdArray | undefined {
  const [first, ...others] = map.values();
  return others.length === 0 && first instanceof NdArray ? first : undefined;
}

/** The named arrays, of the answer itself or of the map in place of its action. */
function namedIn(answer: OpenpiValue, action: OpenpiValue | undefined, keys: readonly string[]): Table[] {
  const holder = action instanceof Map ? action : answer;
  return keys.map((key) => tableAt(holder instanceof Map ? holder.get(key) : undefined));
}

const NO_ACTIONS = "there is no array of actions: where it has several named ones, declare their order as action_keys";
const tableAt = (value: OpenpiValue | undefined): Table => tableIn(value, NO_ACTIONS);

/** The server's own time measurement, if any. */
function gpuSecondsOf(answer: OpenpiValue): number {
  if (!(answer instanceof Map)) return 0;
  for (const key of ["policy_timing", "server_timing"]) {
    const ms = mapAt(answer, key)?.get("infer_ms");
    if (typeof ms === "number") return ms / 1000;
  }
  return 0;
}

function mapAt(map: OpenpiAnswer, key: string): OpenpiAnswer | undefined {
  const value = map.get(key);
  return value instanceof Map ? value : undefined;
}

/** Rows, then columns, as in numpy's image shapes; neither exceeds the limit of a declaration. */
function sizeAt(map: OpenpiAnswer, key: string): ImageSize | undefined {
  const value = map.get(key);
  const [height, width, ...others] = Array.isArray(value) ? value : [];
  return isSide(height) && isSide(width) && others.length === 0 ? { width, height } : undefined;
}

const MOST_PIXELS_A_SIDE = 4_096;
const isSide = (value: OpenpiValue | undefined): value is number =>
  typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= MOST_PIXELS_A_SIDE;

function countAt(map: OpenpiAnswer, key: string): number | undefined {
  const value = map.get(key);
  return typeof value === "number" && Number.isInteger(value) && value > 0 ? value : undefined;
}
