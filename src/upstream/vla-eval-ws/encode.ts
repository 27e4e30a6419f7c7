/** What vla-evaluation-harness's servers are told. Every frame is a message with a type, a number and a time; arrays have keys of text. */
import { BRAND } from "../../brand.ts";
import { now } from "../../clock.ts";
import type { MsgpackBudget, Packable } from "../../codecs/python/msgpack.ts";
import { encodeNumpyText, NdArray } from "../../codecs/python/ndarray.ts";
import { type OpenpiFields, place } from "../openpi-ws/encode.ts";
import { type ObservationPart, rejected } from "../payload/observe.ts";
import { instructionIn, type Profile } from "../payload/profile.ts";

/** The types of messages that a client sends. */
type VlaEvalType = "hello" | "episode_start" | "observation";

/** The version of the protocol, since its servers say hello. */
const PROTOCOL_VERSION = 1;

/** The first message of a connection. */
export const encodeHello = (): Buffer =>
  message("hello", { harness_version: BRAND, protocol_version: PROTOCOL_VERSION }, 0);

/** An episode begins: what the server keeps of the one before is gone. It is not answered. */
export const encodeEpisode = (instruction: string, seq: number): Buffer =>
  message("episode_start", { task: instruction === "" ? {} : { name: instruction } }, seq);

/** One observation. Throws an UpstreamFailure for a picture's file that the server cannot read. */
export function encodeObservation(
  profile: Profile,
  parts: readonly ObservationPart[],
  instruction: string,
  { seq, room }: { seq: number; room: MsgpackBudget },
): Buffer {
  const payload: OpenpiFields = new Map();
  for (const part of parts) place(payload, part.key, packed(part));
  for (const [key, text] of instructionIn(profile, instruction)) place(payload, key, text);
  for (const { key, value } of profile.constants) place(payload, key, value);
  return message("observation", payload, seq, room);
}

/** Pixels are an array, a file is what the harness makes of a picture itself; it makes PNG and JPEG. */
function packed({ key, value }: ObservationPart): Packable<NdArray> {
  if (value instanceof NdArray) return value;
  const { bytes, format, width, height } = value;
  if (format === "webp") throw rejected(`this wire carries no WebP, under ${key}`);
  return { __image__: true, format, data: bytes, shape: [height, width, 3] };
}

function message(type: VlaEvalType, payload: Packable<NdArray>, seq: number, room?: MsgpackBudget): Buffer {
  return encodeNumpyText({ type, payload, seq, timestamp: now() / 1_000 }, room);
}
