/** Refusals: the error class of rejected calls, and the table of reasons read from the schema. */
import { getOption } from "@bufbuild/protobuf";
import {
  type ErrorType,
  type Refusal as RefusalOption,
  type RpcCode,
  refusal as refusalOption,
} from "../gen/limber/edge/v1/options_pb.ts";
import type { ErrorDetails } from "../gen/limber/v1/error_pb.ts";
import type { PredictUsage } from "../gen/limber/v1/inference_service_pb.ts";
import { Reason, ReasonSchema } from "../gen/limber/v1/reason_pb.ts";
import type { Route } from "../gen/limber/v1/route_pb.ts";

export { Reason };

/** A field of `ErrorDetails` in plain form; the edge turns it into the message. */
export type RefusalDetails = { [K in keyof Omit<ErrorDetails, "$typeName" | "$unknown">]?: ErrorDetails[K] };

/** Optional parts of a refusal. */
export interface RefusalExtras {
  /** Path of the field at fault. */
  param?: string;
  /** Seconds to wait before a retry. */
  retryAfter?: number;
  /** The attempts made before the refusal. */
  route?: Route;
  /** What an interrupted stream had delivered and was charged for. */
  usage?: PredictUsage;
  /** Response headers on every transport, alternating names and values. */
  headers?: readonly string[];
  /** For the log only; never shown to the caller. */
  cause?: unknown;
}

/** A call that the gateway rejects. Any other thrown error is a bug. */
export class Refusal extends Error {
  readonly reason: Reason;
  readonly details: RefusalDetails;
  readonly param: string | undefined;
  readonly retryAfter: number | undefined;
  readonly route: Route | undefined;
  readonly usage: PredictUsage | undefined;
  readonly headers: readonly string[];

  constructor(reason: Reason, text: string, details: RefusalDetails, extras: RefusalExtras) {
    // A stack keeps what its functions were called with, a body of megabytes too, for as long as the refusal lives. It is no bug that
    // a refusal tells of, so that nobody reads where it was made.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(text, extras.cause === undefined ? undefined : { cause: extras.cause });
    Error.stackTraceLimit = stackTraceLimit;
    this.name = "Refusal";
    this.reason = reason;
    this.details = details;
    this.param = extras.param;
    this.retryAfter = extras.retryAfter;
    this.route = extras.route;
    this.usage = extras.usage;
    this.headers = extras.headers ?? [];
  }
}

/** Makes the refusal to throw: `throw refuse(Reason.NOT_FOUND, "key not found")`. The text is for the caller. */
export function refuse(
  reason: Reason,
  text: string,
  details: RefusalDetails = {},
  extras: RefusalExtras = {},
): Refusal {
  return new Refusal(reason, text, details, extras);
}

/** How a reason looks on each transport. */
export interface ReasonFacts {
  /** The word on the wire, such as `no_route_available`. */
  code: string;
  /** The HTTP status. */
  status: number;
  /** The gRPC code; the numbers of the schema are gRPC's own. */
  rpcCode: RpcCode;
  /** The family. */
  type: ErrorType;
  /** The same call may succeed later. */
  retryable: boolean;
  /** Its word in a refusal by RFC 7644; empty where that has none. */
  scimType: string;
}

const facts = new Map<Reason, ReasonFacts>();
for (const value of ReasonSchema.values) {
  if (value.number === 0) continue;
  const option: RefusalOption = getOption(value, refusalOption);
  facts.set(value.number as Reason, {
    code: value.name.slice("REASON_".length).toLowerCase(),
    status: option.status,
    rpcCode: option.rpcCode,
    type: option.type,
    retryable: option.retryable,
    scimType: option.scimType,
  });
}

/** The facts of a reason, as the schema states them. */
export function factsOf(reason: Reason): ReasonFacts {
  const found = facts.get(reason);
  if (!found) throw new Error(`reason ${reason} is not in the schema`);
  return found;
}

/** Any thrown thing as a refusal: a bug becomes `internal_error`, which says nothing but the request's id. */
export function asRefusal(thrown: unknown): Refusal {
  if (thrown instanceof Refusal) return thrown;
  return refuse(Reason.INTERNAL_ERROR, "internal error; include the request id when you report it", {}, { cause: thrown });
}
