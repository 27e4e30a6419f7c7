/** What a caller of gRPC is told of bytes that are none. */
import type { CodecError } from "../../../codecs/error.ts";
import { Reason, type Refusal, refuse } from "../../../errors.ts";
import { tooLarge } from "../../messages/bounds.ts";

/** A message that is no message of its kind. */
export const unreadable = (cause?: unknown): Refusal =>
  refuse(Reason.MALFORMED_BODY, "the message cannot be read", {}, { cause });

/** Frames that are too large, or that end in the middle. */
export function refusalOfFrames({ reason }: CodecError, maxBytes: number): Refusal {
  if (reason === "too_large") return tooLarge(maxBytes);
  return refuse(Reason.MALFORMED_BODY, "protocol error: incomplete envelope");
}
