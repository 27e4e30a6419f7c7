/** What a gateway says no with: one class for each reason (`gen/reasons.ts`), each in a family. */
import type { ErrorDetails } from "./gen/limber/v1/error_pb.ts";
import type { Suggestion } from "./gen/limber/v1/plan_pb.ts";

/** Everything that this package throws. */
export class LimberError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** What a refusal carries beside its sentence. */
export interface RefusalFacts {
  /** What a program can act on; undefined where there is nothing. */
  readonly details?: ErrorDetails | undefined;
  /** Seconds to wait before the same call is tried again; undefined where the gateway did not say. */
  readonly retryAfterS?: number | undefined;
  /** Finds the call in the gateway's log. */
  readonly requestId?: string | undefined;
  /** The word of a reason that this version of the package does not know. */
  readonly unknownCode?: string | undefined;
}

/** A suggestion as a phrase: `set provider.max_latency_ms to 400 to admit 2 offerings`. */
export function adviceOf({ change, field, value, admits }: Suggestion): string {
  const advice = change ?? (value === undefined ? `remove ${field}` : `set ${field} to ${value}`);
  return `${advice} to admit ${admits} offering${admits === 1 ? "" : "s"}`;
}

/** The gateway said no. There is a class for each reason; `code` is its word. */
export class Refused extends LimberError {
  static readonly code: string = "";
  /** The HTTP status of the same refusal over REST. */
  static readonly status: number = 500;
  /** The same call may succeed later without a change. */
  static readonly retryable: boolean = false;

  /** The reason, such as `no_route_available`; `/docs/errors` of the gateway explains each. */
  readonly code: string;
  readonly requestId: string;
  // Node prints all public properties of an error that is not caught, so the messages of the schema are private.
  readonly #facts: RefusalFacts;

  constructor(message: string, facts: RefusalFacts = {}) {
    const code = new.target.code || (facts.unknownCode ?? "");
    super([`${code}: ${message}`, ...(facts.details?.suggestions ?? []).map(adviceOf)].join("; "));
    this.code = code;
    this.requestId = facts.requestId ?? "";
    this.#facts = facts;
  }

  /** What a program can act on; undefined if there is nothing. */
  get details(): ErrorDetails | undefined {
    return this.#facts.details;
  }

  /** Seconds to wait before the same call is sent again; undefined if the gateway named none. */
  get retryAfterS(): number | undefined {
    return this.#facts.retryAfterS;
  }

  /** Whether the same call may succeed later without a change. */
  get retryable(): boolean {
    return (this.constructor as RefusedClass).retryable;
  }

  /** Relaxations that would admit an offering; with 409 `no_route_available`. */
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

/** Who calls could not be established. */
export class AuthenticationError extends Refused {}
/** The caller may not do this. */
export class PermissionRefused extends Refused {}
/** Money is short. */
export class BillingError extends Refused {}
/** A limit over time is reached. */
export class RateLimitError extends Refused {}
/** The request is malformed or out of bounds. */
export class ValidationError extends Refused {}
/** The thing named does not exist. */
export class NotFoundError extends Refused {}
/** The state of the gateway forbids it. */
export class ConflictError extends Refused {}
/** No offering satisfies the request. */
export class RoutingError extends Refused {}
/** The providers failed. */
export class UpstreamError extends Refused {}
/** Time ran out. */
export class OutOfTime extends Refused {}
/** The gateway's own state. */
export class ServerError extends Refused {}
