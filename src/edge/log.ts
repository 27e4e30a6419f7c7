/** What the edge writes down of every call: one line when its answer is out. */

/** The face that a call came in by. */
export type Face = "rest" | "connect" | "grpc" | "grpc-web";

/** One answered call. No field carries a secret, a body or a header of the caller but his own request id. */
export interface LogLine {
  requestId: string;
  face: Face;
  /** The RPC, such as `limber.v1.InferenceService/Act`. */
  rpc: string;
  /** The HTTP status that the answer has over REST. */
  status: number;
  /** The word of the refusal; absent on success. */
  code?: string;
  /** Whose call it was; absent when it was not admitted, or needs no key. */
  keyId?: string;
  latencyMs: number;
  /** The id that the caller gave the request. */
  callerRequestId?: string;
  /** What was thrown, for refusals with a cause and for bugs. */
  cause?: unknown;
}

/** Takes the lines of the edge. */
export type Log = (line: LogLine) => void;

const SANE_ID = /^[\w.:-]{1,128}$/;

/** The caller's own id of a request, when it is fit for a log. */
export function callerIdOf(header: string | readonly string[] | null | undefined): { callerRequestId?: string } {
  return typeof header === "string" && SANE_ID.test(header) ? { callerRequestId: header } : {};
}
