/** Requests to XPolicyLab's policy servers. Every frame is a map with a type, ids and a payload; arrays are maps of msgpack_numpy. */
import { BRAND } from "../../brand.ts";
import { now } from "../../clock.ts";
import { encodeGr00t } from "../../codecs/python/gr00t.ts";
import type { MsgpackBudget, Packable } from "../../codecs/python/msgpack.ts";
import type { NdArray } from "../../codecs/python/ndarray.ts";
import { newId } from "../../ids.ts";
import { type OpenpiFields, place } from "../openpi-ws/encode.ts";
import { arrayOf, type ObservationPart } from "../payload/observe.ts";
import { instructionIn, type Profile } from "../payload/profile.ts";

/** What tells a request from others: servers answer with the same. */
export interface XPolicyIds {
  readonly messageId: string;
  /** The episode. */
  readonly trialId: string | undefined;
  /** Inferences since the episode began. */
  readonly step: number;
}

/** The first message of a connection. */
export const encodeHello = (): Buffer =>
  encodeFrame("hello", { messageId: newId("req"), trialId: undefined, step: 0 }, {});

/** An episode begins: the policy forgets what it has seen. */
export const encodeReset = (ids: XPolicyIds): Buffer => encodeFrame("reset", ids, { trial_id: ids.trialId ?? null });

/** One observation, which the server answers with a chunk. Throws an UpstreamFailure for a picture that was declared to go as a file. */
export function encodeInfer(
  profile: Profile,
  parts: readonly ObservationPart[],
  instruction: string,
  ids: XPolicyIds,
  room?: MsgpackBudget,
): Buffer {
  const observation: OpenpiFields = new Map();
  for (const part of parts) place(observation, part.key, arrayOf(part));
  for (const [key, text] of instructionIn(profile, instruction)) place(observation, key, text);
  for (const { key, value } of profile.constants) place(observation, key, value);
  return encodeFrame("infer", ids, { observation }, room);
}

function encodeFrame(
  type: "hello" | "reset" | "infer",
  { messageId, trialId, step }: XPolicyIds,
  payload: Packable<NdArray>,
  room?: MsgpackBudget,
): Buffer {
  const frame = {
    message_type: type,
    message_id: messageId,
    evaluation_id: BRAND,
    action_case_id: null,
    trial_id: trialId ?? null,
    repeat_index: null,
    step,
    sent_at: new Date(now()).toISOString(),
    payload,
  };
  return encodeGr00t(frame, "numpy", room);
}
