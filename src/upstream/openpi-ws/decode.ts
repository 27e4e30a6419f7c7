/** The messages of a server of the openpi wire, in any of its dialects. */
import type { PredictedFrame } from "../../../gen/limber/v1/prediction_pb.ts";
import { ServerDialect } from "../../../gen/limber/v1/supply_pb.ts";
import type { Unpacked, UnpackedMap } from "../../codecs/python/msgpack.ts";
import { decodeNumpy, NdArray } from "../../codecs/python/ndarray.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import { chunkOf, sideBySide, type Table, tableOf } from "../payload/chunk.ts";
import type { Profile } from "../payload/profile.ts";
import { framesIn } from "../pictures/video.ts";
import { failureOf, malformed, toldFailure } from "../transport/failures.ts";

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
export interface Expected {
  readonly profile: Pick<Profile, "actionKeys" | "actionDims">;
  readonly horizon: number;
  /** Numbers of the whole action, where they are declared. */
  readonly dim?: number | undefined;
  /** The answer must name it, where it names any request. */
  readonly requestId: string;
  /** In which it was asked. */
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
    throw malformed("the answer is to another request");
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
