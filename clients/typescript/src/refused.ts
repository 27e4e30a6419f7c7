/** The gateway's refusals: one class for each reason (`gen/reasons.ts`), each in a family. */
import type { ErrorDetails } from "./gen/limber/v1/error_pb.ts";
import type { Suggestion } from "./gen/limber/v1/plan_pb.ts";

/** Base class of all errors that this package throws. */
export class LimberError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** Details of a refusal in addition to its message. */
export interface RefusalFacts {
  /** Structured details; undefined if there are none. */
  readonly details?: ErrorDetails | undefined;
  /** Seconds to wait before a retry; undefined if the gateway gave no value. */
  readonly retryAfterS?: number | undefined;
  /** The request id, which the gateway's log also contains. */
  readonly requestId?: string | undefined;
  /** The word of a reason that this package version does not know. */
  readonly unknownCode?: string | undefined;
}

/** Formats a suggestion: `set provider.max_latency_ms to 400 to admit 2 offerings`. */
export function adviceOf({ change, field, value, admits }: Suggestion): string {
  const advice = change ?? (value === undefined ? `remove ${field}` : `set ${field} to ${value}`);
  return `${advice} to admit ${admits} offering${admits === 1 ? "" : "s"}`;
}

/** The gateway refused the call. Each reason has its own class; `code` is the reason's word. */
export class Refused extends LimberError {
  static readonly code: string = "";
  /** The HTTP status of the same refusal over REST. */
  static readonly status: number = 500;
  /** True if the same call can succeed later without a change. */
  static readonly retryable: boolean = false;

  /** The reason, such as `no_route_available`; `/docs/errors` of the gateway explains each. */
  readonly code: string;
  readonly requestId: string;
  // Node.js prints all public properties of an uncaught error, so the protobuf messages are private.
  readonly #facts: RefusalFacts;

  constructor(message: string, facts: RefusalFacts = {}) {
    const code = new.target.code || (facts.unknownCode ?? "");
    super([`${code}: ${message}`, ...(facts.details?.suggestions ?? []).map(adviceOf)].join("; "));
    this.code = code;
    this.requestId = facts.requestId ?? "";
    this.#facts = facts;
  }

  /** Structured details; undefined if there are none. */
  get details(): ErrorDetails | undefined {
    return this.#facts.details;
  }

  /** Seconds to wait before a retry; undefined if the gateway gave no value. */
  get retryAfterS(): number | undefined {
    return this.#facts.retryAfterS;
  }

  /** Whether the same call can succeed later without a change. */
  get retryable(): boolean {
    return (this.constructor as RefusedClass).retryable;
  }

  /** Relaxations that would admit an offering. Set for 409 `no_route_available`. */
  get suggestions(): readonly Suggestion[] {
    return this.details?.suggestions ?? [];
  }
}

/** The class of a reason. */
export interface RefusedClass {
  readonly code: string;
  readonly status: number;
  readonly retryable: boolean;
  new (message: string, facts?: RefusalFacts): Refused;
}

/** The caller could not be authenticated. */
export class AuthenticationError extends Refused {}
/** The key does not permit this operation. */
export class PermissionRefused extends Refused {}
/** The call cannot be paid for. */
export class BillingError extends Refused {}
/** A rate limit was reached. */
export class RateLimitError extends Refused {}
/** The request is malformed or out of bounds. */
export class ValidationError extends Refused {}
/** The resource does not exist. */
export class NotFoundError extends Refused {}
/** The request conflicts with the current state. */
export class ConflictError extends Refused {}
/** No offering satisfies the request. */
export class RoutingError extends Refused {}
/** The providers failed. */
export class UpstreamError extends Refused {}
/** The deadline passed. */
export class OutOfTime extends Refused {}
/** The gateway is currently unable to serve the call. */
export class ServerError extends Refused {}
