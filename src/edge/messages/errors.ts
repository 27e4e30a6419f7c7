/** The representation of a refusal on each transport: a body for REST, an error with details for Connect and gRPC. */
import type { DescMessage, MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../../../gen/google/rpc/error_details_pb.ts";
import { ErrorType, ErrorTypeSchema } from "../../../gen/limber/edge/v1/options_pb.ts";
import { ErrorDetailsSchema, type Violation } from "../../../gen/limber/v1/error_pb.ts";
import { PredictUsageSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import { RouteSchema } from "../../../gen/limber/v1/route_pb.ts";
import { ERROR_DOMAIN } from "../../brand.ts";
import type { Signal } from "../../cancellation.ts";
import { asRefusal, factsOf, Reason, type ReasonFacts, Refusal, type RefusalDetails, refuse } from "../../errors.ts";
import { overCapIn } from "../../store/account/org-caps.ts";
import { isOutage, isStarting, isUnstorableText } from "../../store/database/unavailable.ts";
import { encoderOf } from "./json.ts";
import { wordsOf } from "./json-text.ts";

/** The locations and values of a REST request's fields. */
export interface Given {
  /** Returns the location of the field at `path` in the request: `["body", "horizon"]`. */
  locate(path: string): (string | number)[];
  /** The caller's own JSON by the first segment of a location: `body`, `query`, `path`. */
  readonly inputs: Readonly<Record<string, unknown>>;
  /** Whether it contains a secret: then none of it is sent back, not even misplaced values. */
  readonly secret?: boolean;
}

/** A serialized refusal. */
export interface ErrorAnswer {
  readonly status: number;
  /** Header names and values alternating. */
  readonly headers: readonly string[];
  /** The JSON text of an `ErrorBody`. */
  readonly body: string;
}

/** The URLs of the error reference and of the top-up page, for this process's address. */
let explained = "/docs/errors";
let toppedUp = "/v1/billing/topup";

/** Sets this process's public address, such as `https://api.example.com`: refusals link to the page that explains them. */
export function explainAt(origin: string): void {
  explained = new URL("/docs/errors", origin).href;
  toppedUp = new URL("/v1/billing/topup", origin).href;
}

/** The default `Retry-After` in seconds of a retryable refusal. */
const DEFAULT_RETRY_AFTER_S = 1;

const INVITES_RETRY = new Set([429, 503]);

/** The REST response to a refusal. `given` locates the violations of a 422 in the caller's request. */
export function restAnswer(refusal: Refusal, requestId: string, given?: Given): ErrorAnswer {
  const facts = factsOf(refusal.reason);
  const violations = refusal.details.violations?.map((violation) => place(violation, given));
  const param = violations?.[0]?.path ?? refusal.param;
  const details = Object.entries({ ...wholeDetails(refusal), violations })
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => [
      ErrorDetailsSchema.field[name as keyof typeof ErrorDetailsSchema.field].name,
      encodeDetail(name, value),
    ]);
  const message =
    violations?.length && refusal.reason === Reason.VALIDATION_FAILED ? sentenceOf(violations) : refusal.message;
  const whole = { loc: placed(param ?? "", given).loc, message, type: facts.code, input: undefined };
  const body = {
    error: {
      ...errorOf(facts, refusal, requestId),
      message,
      param: param ?? null,
      details: Object.fromEntries(details),
    },
    detail: facts.status === 422 ? (violations ?? [whole]).map(listed) : message,
    route: refusal.route && encoderOf(RouteSchema).encode(refusal.route),
    usage: refusal.usage && encoderOf(PredictUsageSchema).encode(refusal.usage),
  };
  return { status: facts.status, headers: Object.entries(headersOf(refusal)).flat(), body: JSON.stringify(body) };
}

/** The most dropped offerings in a one-line text. */
const MOST_TOLD = 3;

/** A refusal in one line, for clients that show only a text: includes why offerings were dropped. */
export function lineOf({ message, details }: Refusal): string {
  const dropped = details.dropped ?? [];
  const told = dropped
    .slice(0, MOST_TOLD)
    .map(({ provider, detail }) => `${provider}: ${detail}`)
    .filter((each) => !message.includes(each));
  const more = dropped.length > MOST_TOLD ? [`and ${dropped.length - MOST_TOLD} more`] : [];
  return told.length === 0 ? message : `${message} (${[...told, ...more].join("; ")})`;
}

/** A refusal's details; for lack of credit, with the URL of the top-up page. */
const wholeDetails = ({ details, reason }: Refusal): RefusalDetails =>
  reason === Reason.INSUFFICIENT_CREDITS ? { ...details, topupUrl: toppedUp } : details;

/** A violation in the format of the described validation errors. */
const listed = ({ loc, message, type, input }: Omit<Placed, "path">) => ({ loc, msg: message, type, input });

function encodeDetail(name: string, value: unknown): unknown {
  if (name === "violations") return (value as Placed[]).map(({ path, message, type }) => ({ path, message, type }));
  return encoderOf(ErrorDetailsSchema).encodeField(name, value);
}

/** The fields that do not depend on locations; in the order of the schema's `Error`. */
function errorOf(facts: ReasonFacts, refusal: Refusal, requestId: string): object {
  return {
    code: facts.code,
    type: wordsOf(ErrorTypeSchema).ofNumber.get(facts.type),
    status: facts.status,
    message: refusal.message,
    retryable: facts.retryable,
    retry_after: refusal.retryAfter ?? null,
    param: null,
    source: facts.type === ErrorType.UPSTREAM_ERROR ? "upstream" : "gateway",
    request_id: requestId,
    docs_url: `${explained}#${facts.code}`,
  };
}

/** A summary of violations: the first one, and the number of others. */
export function sentenceOf(violations: readonly { readonly path: string; readonly message: string }[]): string {
  const [first] = violations;
  if (first === undefined) return "the request is invalid";
  const more = violations.length > 1 ? `, and ${violations.length - 1} more` : "";
  return `${first.path === "" ? "the body" : `\`${first.path}\``} ${first.message}${more}`;
}

/** The headers of a refusal on every transport with headers. */
function headersOf({ reason, retryAfter, headers }: Refusal): Record<string, string> {
  const own: Record<string, string> = {};
  for (let i = 0; i < headers.length; i += 2) own[headers[i]!] = headers[i + 1]!;
  const { status } = factsOf(reason);
  const wait = retryAfter ?? (INVITES_RETRY.has(status) ? DEFAULT_RETRY_AFTER_S : undefined);
  return {
    ...own,
    ...(status === 401 && { "www-authenticate": "Bearer" }),
    ...(wait !== undefined && { "retry-after": String(Math.max(1, Math.ceil(wait))) }),
  };
}

/** An overloaded server tells retrying gRPC clients when to retry (gRFC A6). */
const pushbackOf = ({ reason, retryAfter }: Refusal): Record<string, string> =>
  reason === Reason.OVERLOADED && retryAfter !== undefined
    ? { "grpc-retry-pushback-ms": String(Math.round(retryAfter * 1000)) }
    : {};

/** Rules that a zero value violates, which can be a missing field. */
const BROKEN_BY_NOTHING = new Set([
  "string_too_short",
  "string_pattern_mismatch",
  "too_short",
  "enum",
  "greater_than",
  "greater_than_equal",
]);

/** A violation in the caller's terms. */
interface Placed {
  readonly path: string;
  readonly loc: readonly (string | number)[];
  readonly message: string;
  readonly type: string;
  readonly input: unknown;
}

function place({ path, message, type }: Violation, given: Given | undefined): Placed {
  const { path: shown, loc, input, known } = placed(path, given);
  // The schema cannot distinguish zero from missing; the caller's JSON can.
  if (known && input === undefined && BROKEN_BY_NOTHING.has(type))
    return { path: shown, loc, message: "is required", type: "missing", input };
  return { path: shown, loc, message, type, input: given?.secret ? undefined : echo(input) };
}

function placed(
  path: string,
  given: Given | undefined,
): { path: string; loc: (string | number)[]; input: unknown; known: boolean } {
  if (given === undefined) return { path, loc: ["body", ...segmentsOf(path)], input: undefined, known: false };
  const loc = given.locate(path);
  let input: unknown = given.inputs;
  for (const key of loc) {
    input =
      typeof input === "object" && input !== null && Object.hasOwn(input, key)
        ? (input as Record<string | number, unknown>)[key]
        : undefined;
  }
  return { path: loc.slice(1).join("."), loc, input: input ?? undefined, known: true };
}

/** The segments of a path; numeric segments are array indexes. */
export function segmentsOf(path: string): (string | number)[] {
  return path === "" ? [] : path.split(".").map((part) => (/^\d+$/.test(part) ? Number(part) : part));
}

const MAX_ECHO = 200;

/** The caller's value, if it is short enough to send back. */
function echo(input: unknown): unknown {
  if (typeof input === "string") return input.length > MAX_ECHO || !input.isWellFormed() ? undefined : input;
  return typeof input === "object" ? undefined : input;
}

/** The body of a response to invalid HTTP, in the same format as other refusals. */
export function wireBody(status: number, code: string, message: string, requestId: string): string {
  const type = wordsOf(ErrorTypeSchema).ofNumber.get(
    status < 500 ? ErrorType.VALIDATION_ERROR : ErrorType.SERVER_ERROR,
  );
  const told = { message, retryable: false, retry_after: null, param: null, source: "gateway", request_id: requestId };
  const error = { code, type, status, ...told, docs_url: explained, details: {} };
  return JSON.stringify({ error, detail: message });
}

/** The Connect form of a refusal: the gRPC code, and details that gRPC clients of every language can read. */
export function connectError(refusal: Refusal, requestId: string): ConnectError {
  const { rpcCode } = factsOf(refusal.reason);
  const details = detailsOf(refusal, requestId);
  // Sound: the schema's codes are gRPC's own numbers, as Connect's are.
  const headers = { ...headersOf(refusal), ...pushbackOf(refusal) };
  return new ConnectError(refusal.message, rpcCode as number as Code, headers, details, refusal.cause);
}

/** One error detail: a message type and the fields of the message. */
type Detail = { desc: DescMessage; value: MessageInitShape<DescMessage> };

/** The error details over gRPC and Connect: google.rpc's standard ones, and the schema's own. */
export function detailsOf(refusal: Refusal, requestId: string): Detail[] {
  const { code } = factsOf(refusal.reason);
  const { retryAfter, route } = refusal;
  const details = shortened(wholeDetails(refusal));
  const list: Detail[] = [
    detail(ErrorInfoSchema, { reason: code, domain: ERROR_DOMAIN, metadata: { request_id: requestId } }),
  ];
  if (retryAfter !== undefined) {
    const seconds = Math.floor(retryAfter);
    const nanos = Math.round((retryAfter - seconds) * 1e9);
    list.push(detail(RetryInfoSchema, { retryDelay: { seconds: BigInt(seconds), nanos } }));
  }
  if (details.violations !== undefined) {
    const fieldViolations = details.violations.map(({ path, message, type }) => ({
      field: path,
      description: message,
      reason: type,
    }));
    list.push(detail(BadRequestSchema, { fieldViolations }));
  }
  if (route !== undefined || Object.keys(details).length > 0) {
    list.push(detail(ErrorDetailsSchema, route === undefined ? details : { ...details, route }));
  }
  return list;
}

/** Details travel in trailers, which many clients limit to 8 KiB, so long lists are truncated. REST has the complete lists. */
const MOST_LISTED = 24;

function shortened({ dropped, violations, ...rest }: RefusalDetails): RefusalDetails {
  return {
    ...rest,
    ...(dropped && { dropped: dropped.slice(0, MOST_LISTED) }),
    ...(violations && { violations: violations.slice(0, MOST_LISTED) }),
  };
}

const detail = <D extends DescMessage>(desc: D, value: MessageInitShape<D>): Detail => ({ desc, value });

/** Connect's own error codes as reasons of the schema. */
const CONNECT_REASONS: Partial<Record<Code, Reason>> = {
  [Code.InvalidArgument]: Reason.MALFORMED_BODY,
  [Code.Unimplemented]: Reason.MALFORMED_BODY, // an unknown encoding, or no message at all
  [Code.ResourceExhausted]: Reason.PAYLOAD_TOO_LARGE,
  [Code.DeadlineExceeded]: Reason.DEADLINE_EXCEEDED,
  [Code.Canceled]: Reason.CLIENT_CLOSED_REQUEST,
  [Code.Aborted]: Reason.CLIENT_CLOSED_REQUEST,
  [Code.Unavailable]: Reason.NOT_READY,
};

/** The refusal for Connect's own error while reading a request. Not for errors of other clients. */
export function refusalOfConnect(error: ConnectError): Refusal {
  const reason = CONNECT_REASONS[error.code];
  if (reason !== undefined) return refuse(reason, error.rawMessage);
  // Connect reports unreadable bytes as an internal error, which is wrong.
  return refuse(Reason.MALFORMED_BODY, "the message cannot be decoded", {}, { cause: error });
}

/** Adds a refusal's details to Connect's own error; corrects a code that blames the server. */
export function complete(error: ConnectError, refusal: Refusal, requestId: string): void {
  if (CONNECT_REASONS[error.code] === undefined) {
    Object.assign(error, { code: factsOf(refusal.reason).rpcCode, rawMessage: refusal.message });
  }
  error.details.push(...detailsOf(refusal, requestId));
}

/**
 * Converts any thrown value to a refusal; a canceled call throws the reason of its cancellation. An unavailable database is never reported as
 * a bug.
 */
export function refusalOf(thrown: unknown, signal?: Signal): Refusal {
  const calledOff = signal?.aborted && !(thrown instanceof Refusal);
  return asRefusal(calledOff ? signal.reason : refusalOfOutage(thrown, "begun"));
}

/** Converts store errors that are not bugs: an outage, text that PostgreSQL cannot store, and an organization's cap. */
export function refusalOfOutage(thrown: unknown, call: keyof typeof AWAY): unknown {
  if (isUnstorableText(thrown))
    return refuse(Reason.MALFORMED_BODY, "text must not contain U+0000", {}, { cause: thrown });
  const overCap = overCapIn(thrown);
  if (overCap !== undefined) return refuse(Reason.TOO_MANY, overCap, {}, { cause: thrown });
  if (!isOutage(thrown)) return thrown;
  if (isStarting(thrown))
    return refuse(
      Reason.NOT_READY,
      "the gateway's database is starting; retry later",
      {},
      { retryAfter: 1, cause: thrown },
    );
  return refuse(Reason.STORE_UNAVAILABLE, AWAY[call], {}, { retryAfter: 1, cause: thrown });
}

/** The refusal while the database is unavailable. */
const AWAY = {
  "not begun": "the gateway's store is unavailable; nothing was done and nothing was charged; retry later",
  begun: "the gateway's store is unavailable; it is unknown whether this call took effect",
} as const;
