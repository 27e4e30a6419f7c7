/** A request of the gateway as the message that a server of the openpi wire expects, in its dialect. */
import { ServerDialect } from "../../../gen/limber/v1/supply_pb.ts";
import type { MsgpackBudget, Packable } from "../../codecs/python/msgpack.ts";
import { encodeNumpy, NdArray } from "../../codecs/python/ndarray.ts";
import type { ActInput } from "../../contracts/contract.ts";
import { arrayOf, type ObservationPart } from "../payload/observe.ts";
import { instructionIn, type Profile } from "../payload/profile.ts";

/** A map of the observation while it's being filled. */
export type OpenpiFields = Map<string, Packable<NdArray>>;

/** All that goes into one request. */
export interface OpenpiMessage {
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
