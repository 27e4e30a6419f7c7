/** The `stream` field of requests whose answer may be had piece by piece. */
import type { DescMethod, Message } from "@bufbuild/protobuf";
import { Reason, type Refusal, refuse } from "../../errors.ts";

/** Whether a request asks for its answer as a stream, by a field `stream` of its own. */
export const wantsStream = (method: DescMethod, request: Message): boolean =>
  "stream" in method.input.field && "stream" in request && request.stream === true;

/** The refusal of a stream where the call is answered whole. */
export function refuseStream(): Refusal {
  const text = "this call is answered whole here; leave `stream` out, or use POST /v1/act or POST /v1/predict/stream";
  return refuse(Reason.STREAM_UNSUPPORTED, text, {}, { param: "stream" });
}
