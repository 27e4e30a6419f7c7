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

/** A field of `ErrorDetails` as a plain object; the edge converts it. */
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
    // A stack trace keeps its functions' arguments, such as a body of megabytes, as long as the refusal lives. A refusal is
    // not a bug, so its stack is not needed.
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

/**
 * The refusal of a part of a request, with its fields named by their place in the request. `placeOf` returns undefined for fields that do
 * not belong to the part; if the refusal names such a field, or is no refusal, it is returned unchanged.
 */
export function atPart(thrown: unknown, part: string, placeOf: (path: string) => string | undefined): unknown {
  if (!(thrown instanceof Refusal) || thrown.param === undefined) return thrown;
  const { reason, message, details, retryAfter, cause } = thrown;
  const param = placeOf(thrown.param);
  if (param === undefined) return thrown;
  const violations = details.violations?.map((each) => ({ ...each, path: placeOf(each.path) ?? each.path }));
  const extras = { param, ...(retryAfter !== undefined && { retryAfter }), cause };
  return refuse(reason, `${part}: ${message}`, { ...details, ...(violations && { violations }) }, extras);
}

/** The representation of a reason on each transport. */
export interface ReasonFacts {
  /** The code, such as `no_route_available`. */
  code: string;
  /** The HTTP status. */
  status: number;
  /** The gRPC code; the schema uses gRPC's numbers. */
  rpcCode: RpcCode;
  /** The error type. */
  type: ErrorType;
  /** Whether the same call can succeed later. */
  retryable: boolean;
  /** Its `scimType` of RFC 7644; empty if there is none. */
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

/** The properties of a reason, from the schema. */
export function factsOf(reason: Reason): ReasonFacts {
  const found = facts.get(reason);
  if (!found) throw new Error(`reason ${reason} is not in the schema`);
  return found;
}

/** The longest message in the request log, in characters. */
const LONGEST_LOGGED = 500;

/** A refusal's message as the request log stores it; undefined for success. */
export const loggedMessage = (message: string | undefined): string | undefined =>
  message !== undefined && message.length > LONGEST_LOGGED ? `${message.slice(0, LONGEST_LOGGED - 1)}…` : message;

/** Converts any thrown value to a refusal: a bug becomes `internal_error`, which reveals only the request id. */
export function asRefusal(thrown: unknown): Refusal {
  if (thrown instanceof Refusal) return thrown;
  return refuse(
    Reason.INTERNAL_ERROR,
    "internal error; include the request id when you report it",
    {},
    { cause: thrown },
  );
}
