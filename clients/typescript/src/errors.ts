/** What goes wrong on this side, and how the errors of the transport become this package's. */
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.ts";
import { ErrorDetailsSchema } from "./gen/limber/v1/error_pb.ts";
import { BY_CODE, DeadlineExceeded } from "./gen/reasons.ts";
import { LimberError, Refused } from "./refused.ts";

/** An argument cannot be sent. Nothing was. */
export class BadInput extends LimberError {}
/** The gateway cannot be reached, or the connection broke before the answer was there. */
export class ConnectionFailed extends LimberError {}
/** What answered is no gateway, or sent what no gateway sends. Nothing of it is executed. */
export class MalformedAnswer extends LimberError {}
/** The caller's own signal called it off. */
export class CalledOff extends LimberError {}
/** A callback of the loop did not come back in its time. The robot was held. */
export class CallbackHung extends LimberError {}

/** The clock of the loop went back. The robot was held. */
export class ClockJumped extends LimberError {}
/** The gateway could not use several observations in a row; the sentence says why. The robot was held. */
export class ObservationRejected extends LimberError {}

/** Codes with which Connect says that the connection did not carry the call. */
const BROKEN: ReadonlySet<Code> = new Set([Code.Unavailable, Code.Aborted, Code.Unknown, Code.Canceled]);

/** Anything that a call threw as an error of this package. */
export function errorOf(thrown: unknown, signal?: AbortSignal): LimberError {
  if (thrown instanceof LimberError) return thrown;
  if (signal?.aborted) return new CalledOff("the call was called off", { cause: thrown });
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
  if (BROKEN.has(error.code)) return new ConnectionFailed(error.rawMessage, { cause: thrown });
  return new MalformedAnswer(`what answered is no gateway: ${error.rawMessage}`, { cause: thrown });
}
