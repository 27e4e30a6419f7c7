/** The keys of a robot's own protocol, by which its refusals name what it sent. */
import type { ActRequest } from "../../../gen/limber/v1/inference_service_pb.ts";
import type { CodecError, CodecReason } from "../../codecs/error.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { lineOf } from "../messages/errors.ts";

/** Where a client's message has the parts of an act request. */
interface OwnKeys {
  /** The key of each camera's picture, by the camera that it was read as. */
  readonly cameras: ReadonlyMap<string, string>;
  /** Where pictures stand. */
  readonly frames: string;
  readonly proprio: string;
  readonly instruction: string;
}

/** An act request that was read from a client's own message. */
export interface OwnRequest {
  readonly request: ActRequest;
  readonly keys: OwnKeys;
}

/** Paths of the request, as sentences of refusals have them. */
const OBSERVATION = /\bobservations\.(\d+)(?:\.(?:frames(?:\.(\d+)(?:\.(\w+))?)?|(proprio(?:_names)?)))?/g;
const INSTRUCTION = /\binstruction(?= is (?:missing|not read)\b)/g;

/** A refusal in one line, in the client's own keys: `video.front as camera "front" is not read`. Without `own` in those of the schema. */
export function ownLineOf(refusal: Refusal, own: OwnRequest | undefined): string {
  const line = lineOf(refusal);
  if (own === undefined) return line;
  const { request, keys } = own;
  const named = (moment: string, place: string | undefined, part: string | undefined): string => {
    const frame = place === undefined ? undefined : request.observations[Number(moment)]?.frames[Number(place)];
    const key = frame && keys.cameras.get(frame.camera);
    if (key === undefined) return keys.frames;
    if (part === "camera") return `${key} as camera`;
    return part === undefined ? key : `the ${part} of ${key}`;
  };
  return line
    .replace(OBSERVATION, (path: string, moment: string, place?: string, part?: string, proprio?: string) => {
      if (proprio !== undefined) return keys.proprio;
      return path.includes(".frames") ? named(moment, place, part) : "the observation";
    })
    .replace(INSTRUCTION, keys.instruction);
}

const WORDS: Readonly<Partial<Record<CodecReason, string>>> = {
  bad_dtype: "must be an array of booleans, integers, floats or text",
  bad_ndarray: "must be an array with its bytes",
  bad_shape: "must have the number of bytes that its type and shape require",
  bad_text: "must be UTF-8 text",
};

/** Returns the refusal of a message that a codec cannot read, with the key of the value at fault; `otherwise` is the text without a key. */
export function unreadable(thrown: CodecError, otherwise: string): Refusal {
  const { key, reason } = thrown;
  const words = WORDS[reason];
  if (key === undefined || words === undefined) return refuse(Reason.MALFORMED_BODY, otherwise, {}, { cause: thrown });
  const param = key.slice(0, MOST_ECHOED);
  return refuse(Reason.MALFORMED_BODY, `\`${param}\` ${words}`, {}, { param, cause: thrown });
}

const MOST_ECHOED = 128;
