/** Messages to and from a server of the openpi wire, in its dialect. */
import type { PredictedFrame } from "../../../gen/limber/v1/prediction_pb.ts";
import { ServerDialect } from "../../../gen/limber/v1/supply_pb.ts";
import type { MsgpackBudget, Packable, Unpacked, UnpackedMap } from "../../codecs/python/msgpack.ts";
import { decodeNumpy, encodeNumpy, NdArray } from "../../codecs/python/ndarray.ts";
import type { ActAnswer, ActInput } from "../../contracts/contract.ts";
import { chunkOf, sideBySide, type Table, tableOf } from "../payload/actions.ts";
import { arrayOf, type ObservationPart } from "../payload/observe.ts";
import { instructionIn, type Profile } from "../payload/profile.ts";
import { framesIn } from "../pictures/video.ts";
import { failureOf, malformed, toldFailure } from "../transport/failures.ts";

/** A map of the observation while it's being filled. */
export type OpenpiFields = Map<string, Packable<NdArray>>;

/** All that goes into one request. */
interface OpenpiMessage {
  readonly profile: Profile;
  /** From partsOf, with the same profile. */
  readonly parts: readonly ObservationPart[];
  readonly input: Pick<ActInput, "instruction" | "seed">;
  /** From episodeOf. */
  readonly episode: string | undefined;
  readonly requestId: string;
}

/** The request in a server's dialect. Throws an UpstreamFailure when the profile puts files where the dialect has pixels. */
export function encodeRequest(outgoing: OpenpiMessage, dialect: ServerDialect, room?: MsgpackBudget): Buffer {
  return encodeNumpy((WRITERS[dialect] ?? plain)(outgoing), room);
}

/** The message by which an episode begins, where the dialect has one. */
export const encodeReset = (episode: string | undefined): Buffer =>
  encodeNumpy(new Map([["endpoint", "reset"], ...(episode === undefined ? [] : [["session_id", episode] as const])]));

const plain = ({ profile, parts, input }: OpenpiMessage): OpenpiFields => {
  const fields: OpenpiFields = new Map();
  for (const part of parts) place(fields, part.key, arrayOf(part));
  for (const [key, text] of instructionIn(profile, input.instruction)) place(fields, key, text);
  return withConstants(fields, profile);
};

/** `endpoint`, a session, a seed. Where a call is of no episode it is one: servers that keep state would share theirs. */
const addressed = (outgoing: OpenpiMessage): OpenpiFields => {
  const { input, episode, requestId } = outgoing;
  const fields = plain(outgoing)
    .set("endpoint", "infer")
    .set("session_id", episode ?? requestId);
  return input.seed === undefined ? fields : fields.set("seed", input.seed);
};

/** Keys with dots that stand as they are. */
const flat = ({ profile, parts, input }: OpenpiMessage): OpenpiFields => {
  const fields: OpenpiFields = new Map(parts.map((part) => [part.key, arrayOf(part)]));
  for (const [key, text] of instructionIn(profile, input.instruction)) fields.set(key, text);
  for (const { key, value } of profile.constants) fields.set(key, value);
  return fields;
};

/** Proprioception has an axis of time. */
const timed = (outgoing: OpenpiMessage): OpenpiFields => {
  const parts = outgoing.parts.map((part) => {
    const array = arrayOf(part);
    return part.kind === "frame" ? part : { ...part, value: new NdArray(array.dtype, [1, ...array.shape], array.data) };
  });
  return plain({ ...outgoing, parts });
};

/** One example of pictures in order, text, and perhaps state, in an envelope that names the request. */
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

/** Sets a value under a key whose dots open maps. */
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
  /** Numbers per step, where it is given. */
  readonly actionDim: number | undefined;
  /** Steps in a chunk, where it is given. */
  readonly chunk: number | undefined;
  /** The size of the pictures that it takes, where it is given. */
  readonly imageSize: ImageSize | undefined;
}

/** In pixels. */
export interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/** Reads the first frame of a connection: the server's metadata, which show its dialect. Throws an UpstreamFailure when it isn't a map. */
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

/** What vLLM-Omni's models say beside the fields that RoboArena's servers have too. */
const VLLM_OMNI_KEYS = ["action_horizon", "max_action_horizon", "action_dim", "action_keys", "embodiment_tag"];

/**
 * Metadata that only servers of one dialect have. vLLM-Omni's are its model's `policy_server_config`, with that name around them or
 * without (vllm-project/vllm-omni, entrypoints/openpi/serving.py at 0a2c951, deploy/Gr00tN1d7.yaml at 4b9dc92).
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

/** What an answer is read by. */
interface Expected {
  readonly profile: Pick<Profile, "actionKeys" | "actionDims">;
  readonly horizon: number;
  /** Numbers of the whole action, where they are declared. */
  readonly dim?: number | undefined;
  /** The answer must name it, where it names any request. */
  readonly requestId: string;
  /** The episode of the request. */
  readonly dialect: ServerDialect;
}

/**
 * The first `horizon` rows of the answer's action, each as long as the answer has it. Throws an UpstreamFailure: the server's own
 * error, no action, fewer rows than asked for, an answer to another request.
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

/** The video beside an action, where the answer has one (cosmos-framework), as pictures `dtMs` apart. Throws an UpstreamFailure. */
export async function readPrediction(bytes: Buffer, dtMs: number): Promise<PredictedFrame[]> {
  const answer = decode(bytes);
  const video = answer instanceof Map ? answer.get("video") : undefined;
  return video instanceof NdArray ? framesIn(video, dtMs) : [];
}

/** Whether a frame confirms a new episode: as a text (RoboArena) or in a map (vLLM-Omni). */
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

/** Errors that dialects put into a map: `{type: "error", message}` and `{ok: false, error: {message}}`. */
function throwIfError(answer: OpenpiAnswer): void {
  if (answer.get("type") !== "error" && answer.get("ok") !== false) return;
  const inner = answer.get("error");
  const message = answer.get("message") ?? (inner instanceof Map ? inner.get("message") : inner);
  throw toldFailure(String(message ?? ""));
}

/**
 * Where openpi (`actions`), cosmos (`action`), vLLM-Omni (the answer itself, or the only array of it) and starVLA (`data.actions`) put the
 * action. Several named arrays have no order of their own, and a wrong one passes every check: the offering declares it.
 */
function actionIn(answer: OpenpiValue, dialect: ServerDialect): OpenpiValue | undefined {
  if (!(answer instanceof Map)) return answer;
  const action = answer.get("actions") ?? answer.get("action") ?? mapAt(answer, "data")?.get("actions");
  if (dialect !== ServerDialect.VLLM_OMNI || action instanceof NdArray) return action;
  return onlyIn(action instanceof Map ? action : answer) ?? action;
}

/** The array of a map that holds nothing else. */
function onlyIn(map: OpenpiAnswer): NdArray | undefined {
  const [first, ...others] = map.values();
  return others.length === 0 && first instanceof NdArray ? first : undefined;
}

/** The named arrays, of the answer itself or of the map that stands for its action. */
function namedIn(answer: OpenpiValue, action: OpenpiValue | undefined, keys: readonly string[]): Table[] {
  const holder = action instanceof Map ? action : answer;
  return keys.map((key) => tableAt(holder instanceof Map ? holder.get(key) : undefined));
}

function tableAt(value: OpenpiValue | undefined): Table {
  if (!(value instanceof NdArray))
    throw malformed(
      "there is no array of actions: where it has several named ones, declare their order as action_keys",
    );
  return tableOf(value);
}

/** What the server measured of its own work, if it did. */
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

/** Rows, then columns, as numpy has a picture's shape; no more of either than a declaration may have. */
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
