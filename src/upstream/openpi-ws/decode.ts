/** The messages of a server of the openpi wire, in any of its dialects. */
import type { PredictedFrame } from "../../../gen/limber/v1/prediction_pb.ts";
import { ServerDialect } from "../../../gen/limber/v1/supply_pb.ts";
import type { Unpacked, UnpackedMap } from "../../codecs/python/msgpack.ts";
import { decodeNumpy, NdArray } from "../../codecs/python/ndarray.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { chunkOf, sideBySide, type Table, tableOf } from "../payload/chunk.ts";
import type { Profile } from "../payload/profile.ts";
import { framesIn } from "../pictures/video.ts";
import { failureOf, malformed, ownerText } from "../transport/failures.ts";

type OpenpiValue = Unpacked<NdArray>;
type OpenpiAnswer = UnpackedMap<NdArray>;

/** The first frame of a connection. */
export interface Metadata {
  readonly dialect: ServerDialect;
  /** Numbers per step, where it is given. */
  readonly actionDim: number | undefined;
  /** Steps in a chunk, where it is given. */
  readonly chunk: number | undefined;
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
  };
}

/** Metadata that only servers of one dialect have. */
const TOLD_BY: readonly { dialect: ServerDialect; tells: (metadata: OpenpiAnswer) => boolean }[] = [
  { dialect: ServerDialect.VLLM_OMNI, tells: (metadata) => metadata.has("policy_server_config") },
  { dialect: ServerDialect.ROBOARENA, tells: (metadata) => metadata.has("needs_session_id") },
  { dialect: ServerDialect.SGLANG, tells: (metadata) => metadata.get("object") === "action.metadata" },
  { dialect: ServerDialect.STARVLA, tells: (metadata) => metadata.has("available_unnorm_keys") },
];

/** What an answer is read by. */
export interface Expected {
  readonly profile: Pick<Profile, "actionKeys" | "actionDims">;
  readonly horizon: number;
  /** The answer must name it, where it names any request. */
  readonly requestId: string;
}

/**
 * The first `horizon` rows of the answer's action, each as long as the answer has it. Throws an UpstreamFailure: the server's own
 * error, no action, fewer rows than asked for, an answer to another request.
 */
export function readAnswer(bytes: Buffer, { profile, horizon, requestId }: Expected): ActAnswer {
  const answer = decode(bytes);
  if (answer instanceof Map) throwIfError(answer);
  if (answer instanceof Map && (answer.get("request_id") ?? requestId) !== requestId) {
    throw malformed("the answer is to another request");
  }
  const tables = profile.actionKeys.length > 0 ? namedIn(answer, profile.actionKeys) : [tableAt(actionIn(answer))];
  return chunkOf(sideBySide(tables, profile.actionDims), horizon, { gpuSeconds: gpuSecondsOf(answer) });
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
  throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, ownerText(String(message ?? "")));
}

/** Where openpi (`actions`), cosmos (`action`), vLLM-Omni (the answer itself) and starVLA (`data.actions`) put the action. */
function actionIn(answer: OpenpiValue): OpenpiValue | undefined {
  if (!(answer instanceof Map)) return answer;
  return answer.get("actions") ?? answer.get("action") ?? mapAt(answer, "data")?.get("actions");
}

/** The named arrays, of the answer itself or of the map that stands for its action. */
function namedIn(answer: OpenpiValue, keys: readonly string[]): Table[] {
  const action = actionIn(answer);
  const holder = action instanceof Map ? action : answer;
  return keys.map((key) => tableAt(holder instanceof Map ? holder.get(key) : undefined));
}

function tableAt(value: OpenpiValue | undefined): Table {
  if (!(value instanceof NdArray)) throw malformed("there is no array of actions");
  return tableOf(value);
}

/** What the server measured of its own work, if it did. */
function gpuSecondsOf(answer: OpenpiValue): number {
  if (!(answer instanceof Map)) return 0;
  for (const key of ["policy_timing", "server_timing"]) {
    const ms = mapAt(answer, key)?.get("infer_ms");
    if (typeof ms === "number" && ms >= 0 && Number.isFinite(ms)) return ms / 1000;
  }
  return 0;
}

function mapAt(map: OpenpiAnswer, key: string): OpenpiAnswer | undefined {
  const value = map.get(key);
  return value instanceof Map ? value : undefined;
}

function countAt(map: OpenpiAnswer, key: string): number | undefined {
  const value = map.get(key);
  return typeof value === "number" && Number.isInteger(value) && value > 0 ? value : undefined;
}
