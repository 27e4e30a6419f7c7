/** What a server of LeRobot's remote inference says. */
import {
  decodeRemote,
  type RemoteErrorCode,
  type RemoteHeader,
  type RemoteMap,
  type RemoteMessage,
  type RemoteType,
  type RemoteValue,
} from "../../codecs/python/lerobot-remote.ts";
import { NdArray } from "../../codecs/python/ndarray.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { chunkOf, tableOf } from "../payload/chunk.ts";
import { failureOf, malformed, ownerText } from "../transport/failures.ts";

/** One thing that a server sees or does. */
export interface RemoteFeature {
  readonly name: string;
  readonly shape: readonly number[];
  readonly dtype: string;
  readonly isPicture: boolean;
}

/** What a server says of itself, and what of its session one connection to it has. */
export interface RemoteServer {
  readonly instance: string;
  readonly deployment: string;
  /** Which checkpoint with which configuration it serves. */
  readonly artifact: string;
  readonly semantics: string;
  readonly features: readonly RemoteFeature[];
  readonly action: RemoteFeature;
  /** Seconds between two actions, as it said them. */
  readonly interval: number;
  /** Rows of an action chunk. */
  readonly steps: number;
  /** Both as they came: a session is opened by saying them again. */
  readonly said: { readonly features: RemoteValue; readonly action: RemoteValue };
  /** Empty while no session is open. */
  session: string;
  generation: number;
  /** Of the newest observation. */
  sequence: number;
  /** The session failed: it has to be closed, and another one opened. */
  isFaulted: boolean;
}

/** Reads the answer to `describe`. Throws an UpstreamFailure: another message, a server that isn't ready or serves no chunks. */
export function readDescriptor(frame: Buffer): RemoteServer {
  const { instance, body } = messageIn(frame, "descriptor");
  const capabilities = mapIn(body, "capabilities");
  const modes = capabilities.get("modes");
  const features = capabilities.get("features");
  const interval = capabilities.get("action_interval");
  const steps = capabilities.get("execution_steps");
  if (body.get("ready") !== true)
    throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "the server says that it isn't ready");
  if (!Array.isArray(modes) || !modes.includes("chunk"))
    throw malformed("the server doesn't serve chunks, which is the mode that is asked for");
  if (!Array.isArray(features) || typeof interval !== "number" || !(interval > 0) || typeof steps !== "number")
    throw malformed("the descriptor names no features, no interval or no steps");
  return {
    instance,
    deployment: textIn(body, "deployment"),
    artifact: textIn(body, "artifact_identity"),
    semantics: textIn(body, "semantics"),
    features: features.map(featureOf),
    action: featureOf(capabilities.get("action_feature") ?? null),
    interval,
    steps,
    said: { features, action: capabilities.get("action_feature") ?? null },
    session: "",
    generation: 0,
    sequence: 0,
    isFaulted: false,
  };
}

/** A reply of the type that answers `asked`. Throws an UpstreamFailure: the server's own error, a reply to something else. */
export function readReply(
  frame: Buffer,
  type: "accepted" | "ack" | "action",
  asked: Omit<RemoteHeader, "type">,
): RemoteMessage {
  const message = messageIn(frame, type);
  const { instance, session, generation, request } = asked;
  if (
    message.instance !== instance ||
    message.request !== request ||
    message.generation !== generation ||
    (type !== "accepted" && message.session !== session)
  )
    throw malformed("the answer is to another request");
  return message;
}

/**
 * The first `horizon` rows of an action. An observation has the name of its request; servers of LeRobot's first drafts say its number again too.
 * Throws an UpstreamFailure: actions for another observation, what is no tensor of rows.
 */
export function readAction({ request, body }: RemoteMessage, server: RemoteServer, horizon: number): ActAnswer {
  const isNamed = body.get("observation_id") === request && body.get("artifact_identity") === server.artifact;
  if (!isNamed || (body.get("sequence") ?? server.sequence) !== server.sequence)
    throw malformed("the actions are those of another observation");
  const actions = body.get("canonical_actions");
  if (!(actions instanceof NdArray) || actions.shape.length !== 2) throw malformed("there is no tensor of actions");
  if (body.get("execution_steps") !== actions.shape[0]) throw malformed("there are other rows than are to be executed");
  return chunkOf(tableOf(actions), horizon, { dtMs: Math.round(1_000 * server.interval) });
}

function messageIn(frame: Buffer, type: RemoteType): RemoteMessage {
  const message = decoded(frame);
  if (message.type === "error") throw toldError(message.body);
  if (message.type !== type) throw malformed(`this is no message of the type ${type}`);
  return message;
}

function decoded(frame: Buffer): RemoteMessage {
  try {
    return decodeRemote(frame);
  } catch (error) {
    throw failureOf(error);
  }
}

const BY_CODE: Readonly<Partial<Record<RemoteErrorCode, AttemptFailure>>> = {
  busy: AttemptFailure.UPSTREAM_BUSY,
  timeout: AttemptFailure.TIMEOUT,
};

function toldError(body: RemoteMap): UpstreamFailure {
  const code = String(body.get("code"));
  const failure = Object.hasOwn(BY_CODE, code) ? BY_CODE[code as RemoteErrorCode] : undefined;
  return new UpstreamFailure(
    failure ?? AttemptFailure.UPSTREAM_ERROR,
    ownerText(String(body.get("message") ?? "")) || code.slice(0, 64),
  );
}

function featureOf(value: RemoteValue): RemoteFeature {
  if (!(value instanceof Map)) throw malformed("a feature is no map");
  const shape = value.get("shape");
  if (!Array.isArray(shape) || !shape.every(isSize) || shape.length > 4) throw malformed("a feature has no shape");
  return {
    name: textIn(value, "name"),
    shape,
    dtype: textIn(value, "dtype"),
    isPicture: value.get("kind") === "rgb",
  };
}

const MAX_SIDE = 16_384;
const isSize = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) > 0 && Number(value) <= MAX_SIDE;

const MAX_TEXT = 4_096;

function textIn(map: RemoteMap, key: string): string {
  const value = map.get(key);
  if (typeof value !== "string" || value.length > MAX_TEXT) throw malformed(`the server says no ${key}`);
  return value;
}

function mapIn(map: RemoteMap, key: string): RemoteMap {
  const value = map.get(key);
  if (value instanceof Map) return value;
  throw malformed(`the server says no ${key}`);
}
