/** Client-side errors, and the conversion of transport errors to them. */
import { Code, ConnectError, type Interceptor } from "@connectrpc/connect";
import { ErrorInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.ts";
import { ErrorDetailsSchema } from "./gen/limber/v1/error_pb.ts";
import { BY_CODE, DeadlineExceeded } from "./gen/reasons.ts";
import { LimberError, Refused } from "./refused.ts";

/** An argument cannot be sent. Nothing was sent. */
export class BadInput extends LimberError {}
/** The gateway is unreachable, or the connection broke before the answer arrived. */
export class ConnectionFailed extends LimberError {}
/** The server is not a gateway, or its answer is invalid. The answer is not executed. */
export class MalformedAnswer extends LimberError {}
/** The caller's own signal cancelled the call. */
export class CalledOff extends LimberError {}
/** A callback of the loop did not return in time. The robot was told to hold. */
export class CallbackHung extends LimberError {}

/** The loop's clock went back. The robot was told to hold. */
export class ClockJumped extends LimberError {}
/** The gateway could not use several consecutive observations; the message states why. The robot was told to hold. */
export class ObservationRejected extends LimberError {}

/** Connect codes that mean that the connection did not carry the call. */
const BROKEN: ReadonlySet<Code> = new Set([Code.Unavailable, Code.Aborted, Code.Unknown, Code.Canceled]);

/** Adds the address to the message of a refused key: a key of one gateway may have been sent to another. */
export const addressed: Interceptor = (next) => async (request) => {
  try {
    return await next(request);
  } catch (thrown) {
    const { code, rawMessage, metadata, details } = ConnectError.from(thrown);
    if (code !== Code.Unauthenticated) throw thrown;
    const error = new ConnectError(`${rawMessage} (sent to ${new URL(request.url).origin})`, code, metadata);
    error.details = details;
    throw error;
  }
};

/** Whether Node.js reports a broken stream or session, such as one that a draining gateway refused; connect-node calls all of them internal. */
const isOfHttp2 = (cause: unknown): boolean =>
  cause instanceof Error && "code" in cause && String(cause.code).startsWith("ERR_HTTP2_");

/** Converts anything that a call threw to an error of this package. */
export function errorOf(thrown: unknown, signal?: AbortSignal): LimberError {
  if (thrown instanceof LimberError) return thrown;
  if (signal?.aborted) return new CalledOff("the call was cancelled", { cause: thrown });
  const error = ConnectError.from(thrown);
  const [info] = error.findDetails(ErrorInfoSchema);
  if (info !== undefined) {
    const [retry] = error.findDetails(RetryInfoSchema);
    const [details] = error.findDetails(ErrorDetailsSchema);
    const delay = retry?.retryDelay;
    const facts = {
      details,
      retryAfterS: delay && Number(delay.seconds) + delay.nanos / 1e9,
      requestId: info.metadata.request_id,
      unknownCode: info.reason,
    };
    return new (BY_CODE.get(info.reason) ?? Refused)(error.rawMessage, facts);
  }
  if (error.code === Code.DeadlineExceeded) return new DeadlineExceeded(error.rawMessage);
  if (BROKEN.has(error.code) || isOfHttp2(error.cause))
    return new ConnectionFailed(error.rawMessage, { cause: thrown });
  return new MalformedAnswer(`the server is not a gateway: ${error.rawMessage}`, { cause: thrown });
}
