/** What an Isaac-GR00T server answers, in the codecs of N1.5 to N1.7. */
import { decodeGr00t } from "../../codecs/python/gr00t.ts";
import type { Unpacked } from "../../codecs/python/msgpack.ts";
import { NdArray } from "../../codecs/python/ndarray.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { chunkOf, sideBySide, tableOf } from "../payload/chunk.ts";
import type { Profile } from "../payload/profile.ts";
import { failureOf, malformed, ownerText } from "../transport/failures.ts";

type Gr00tValue = Unpacked<NdArray>;

/** The answer of any endpoint. Throws an UpstreamFailure: the server's own error, or what can't be read. */
export function readReply(bytes: Buffer): Gr00tValue {
  if (bytes.equals(FATAL)) throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, "the server answered ERROR");
  const reply = decode(bytes);
  const said = reply instanceof Map && reply.size === 1 ? reply.get("error") : undefined;
  if (said === undefined) return reply;
  const text = ownerText(String(said));
  const failure = text.startsWith("Unauthorized") ? AttemptFailure.UPSTREAM_AUTH : AttemptFailure.UPSTREAM_ERROR;
  throw new UpstreamFailure(failure, text);
}

const FATAL = Buffer.from("ERROR");

/**
 * The first `horizon` rows of the named parts side by side, of a map (N1.5) or of the first of `[actions, info]` (N1.6 and later); a part
 * may be called `left_arm` or `action.left_arm`. Throws an UpstreamFailure.
 */
export function readAction(
  bytes: Buffer,
  { actionKeys, actionDims }: Pick<Profile, "actionKeys" | "actionDims">,
  horizon: number,
  dim?: number,
): ActAnswer {
  const reply = readReply(bytes);
  const actions = Array.isArray(reply) ? reply[0] : reply;
  if (!(actions instanceof Map)) throw malformed("the answer holds no map of actions");
  const tables = actionKeys.map((key) => {
    const part = actions.get(key) ?? actions.get(`action.${key}`);
    if (!(part instanceof NdArray)) throw malformed(`there is no array of actions named ${key}`);
    return tableOf(part);
  });
  return chunkOf(sideBySide(tables, { dims: actionDims, dim }), horizon);
}

/** The names that a server's modalities have, and their moments; prefixes such as `video.` are left off. */
export interface ModalityConfig {
  readonly video: readonly string[];
  readonly state: readonly string[];
  readonly action: readonly string[];
  readonly language: readonly string[];
  /** The moments of its pictures in control steps, 0 for now: `[-15, 0]` wants two pictures of each camera. */
  readonly moments: readonly number[];
  /** How many moments of the state it wants. */
  readonly stateMoments: number;
  /** Steps of its chunks. */
  readonly chunk: number | undefined;
  /** The class of the server's configuration, by which it tells its generation; undefined where it tells none. */
  readonly tag: ModalityTag | undefined;
}

/** `json`: N1.5. `class`: N1.6 and the first release of N1.7. `config`: N1.7 from 2026-05-07 on. */
export type ModalityTag = "json" | "class" | "config";

/** The most moments that a server may want of one modality. */
const MOST_MOMENTS = 16;

/** The answer of `get_modality_config`. Throws an UpstreamFailure. */
export function readModalityConfig(bytes: Buffer): ModalityConfig {
  const reply = readReply(bytes);
  if (!(reply instanceof Map)) throw malformed("the modality configuration is not a map");
  const names = (modality: string): string[] =>
    textsIn(fieldOf(reply.get(modality), "modality_keys")).map((key) => key.replace(`${modality}.`, ""));
  const steps = fieldOf(reply.get("action"), "delta_indices");
  return {
    video: names("video"),
    state: names("state"),
    action: names("action"),
    language: textsIn(fieldOf(reply.get("language"), "modality_keys")),
    moments: momentsIn(fieldOf(reply.get("video"), "delta_indices")),
    stateMoments: momentsIn(fieldOf(reply.get("state"), "delta_indices")).length,
    chunk: Array.isArray(steps) ? steps.length : undefined,
    tag: tagOf(reply.get("action")) ?? tagOf(reply.get("video")),
  };
}

/** Offsets in control steps; now alone where there are none. Throws an UpstreamFailure for more than any model wants. */
function momentsIn(value: unknown): number[] {
  if (!Array.isArray(value)) return [0];
  const offsets = value.filter((each): each is number => Number.isSafeInteger(each));
  if (value.length > MOST_MOMENTS || offsets.length !== value.length) throw malformed("moments that no model wants");
  return offsets.length === 0 ? [0] : offsets;
}

function tagOf(modality: Gr00tValue | undefined): ModalityTag | undefined {
  if (!(modality instanceof Map)) return undefined;
  if (modality.has("__ModalityConfig__")) return "config";
  if (!modality.has("__ModalityConfig_class__")) return undefined;
  return typeof modality.get("as_json") === "string" ? "json" : "class";
}

const textsIn = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((each): each is string => typeof each === "string") : [];

/** A modality is a map, or JSON of one (N1.5), under a tag of the server's class. */
function fieldOf(modality: Gr00tValue | undefined, name: string): unknown {
  const inner = modality instanceof Map ? (modality.get("as_json") ?? modality) : undefined;
  if (inner instanceof Map) return inner.get(name);
  if (typeof inner !== "string" || inner.length > MAX_JSON) return undefined;
  try {
    return JSON.parse(inner)?.[name];
  } catch {
    return undefined;
  }
}

const MAX_JSON = 1 << 20;

function decode(bytes: Buffer): Gr00tValue {
  try {
    return decodeGr00t(bytes);
  } catch (error) {
    throw failureOf(error);
  }
}
