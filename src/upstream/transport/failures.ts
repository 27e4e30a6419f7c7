/** Converts errors between the gateway and a model server to `UpstreamFailure`s. */
import { constants } from "node:http2";
import type { Signal } from "../../cancellation.ts";
import { CodecError } from "../../codecs/error.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { Refusal } from "../../errors.ts";
import { AddressRefused } from "./guard.ts";

const MAX_TEXT = 200;

/**
 * Returns the text of a server's error for its owner: the last non-empty line (of a traceback, the error itself) without control characters, at
 * most 200 characters.
 */
export function ownerText(text: string): string {
  const end = text.slice(-16 * MAX_TEXT).trimEnd();
  const line = end.slice(end.lastIndexOf("\n") + 1);
  return line.replace(/\p{C}/gu, "").trim().slice(0, MAX_TEXT);
}

/**
 * An error in a server's own words, in protocols with one code for all errors. An exception named `InvalidInput`, of any module, means that the
 * input was rejected.
 */
export function toldFailure(text: string): UpstreamFailure {
  const said = ownerText(text);
  return new UpstreamFailure(toldMeaning(said), said);
}

function toldMeaning(said: string): AttemptFailure {
  if (INVALID_INPUT.test(said)) return AttemptFailure.INPUT_REJECTED;
  return FULL.test(said) ? AttemptFailure.UPSTREAM_BUSY : AttemptFailure.UPSTREAM_ERROR;
}

/** A full queue, as a code or in words. */
const FULL = /\bqueue[ _](?:is )?full\b|executor_full\b|too many requests/i;

/**
 * Returns the error that an answer without an error status reports: `error` as text or with a message, `ok: false`, `type` or `status` of
 * "error". Undefined without one. Numbers are measurements.
 */
export function reportedError(answer: ReadonlyMap<string, unknown>): UpstreamFailure | undefined {
  const error = answer.get("error");
  const isText = typeof error === "string" && error !== "";
  const isMap = error instanceof Map && error.size > 0;
  const isMarked = answer.get("ok") === false || answer.get("type") === "error" || answer.get("status") === "error";
  if (!isText && !isMap && !isMarked && error !== true) return undefined;
  return toldFailure(textOfReport(isMap ? error : undefined, isText ? error : undefined, answer));
}

/** Returns the failure of an answer without its expected content: its own error or explanation, otherwise `missing`. */
export function unanswered(answer: unknown, missing: string): UpstreamFailure {
  if (!(answer instanceof Map)) return malformed(missing);
  const said = textOfReport(undefined, undefined, answer);
  return answer.get("success") === false || said !== "" ? toldFailure(said) : malformed(missing);
}

const textOfReport = (
  inner: ReadonlyMap<string, unknown> | undefined,
  said: string | undefined,
  answer: ReadonlyMap<string, unknown>,
): string => {
  const texts = [
    inner?.get("message"),
    inner?.get("detail"),
    answer.get("message"),
    said,
    answer.get("detail"),
    answer.get("traceback"),
  ];
  return texts.find((text): text is string => typeof text === "string" && text !== "") ?? "";
};

/** The last line of a traceback: the exception's name and message. */
const INVALID_INPUT = /^(?:\w+\.){0,16}InvalidInput(?:Error)?(?::|$)/;

/** The failure of an aborted call: the signal's own reason, or a timeout. */
export function calledOff(signal: Signal): UpstreamFailure {
  const reason: unknown = signal.reason;
  return reason instanceof UpstreamFailure ? reason : new UpstreamFailure(AttemptFailure.TIMEOUT, "canceled", reason);
}

/** A connection that broke before the response was complete. */
export const lost = (message: string, cause?: unknown): UpstreamFailure =>
  new UpstreamFailure(AttemptFailure.CONNECTION_LOST, message, cause);

/** A server that cannot be reached. */
export const unreachable = (message: string, cause?: unknown): UpstreamFailure =>
  new UpstreamFailure(AttemptFailure.UNREACHABLE, message, cause);

/** A response that violates the protocol. */
export const malformed = (message: string, cause?: unknown): UpstreamFailure =>
  new UpstreamFailure(AttemptFailure.MALFORMED_ANSWER, message, cause);

/** Converts any error of a socket, of HTTP/2 or of a codec. A refusal of the caller's own input is rethrown. */
export function failureOf(error: unknown): UpstreamFailure {
  if (error instanceof UpstreamFailure) return error;
  if (error instanceof Refusal) throw error;
  if (error instanceof AddressRefused) return unreachable(`the address is refused: ${error.reason}`, error);
  if (error instanceof CodecError)
    return new UpstreamFailure(
      codecFailure(error),
      `the answer is ${error.reason}${error.key === undefined ? "" : ` under ${ownerText(error.key)}`}`,
      error,
    );
  const code = codeOf(error);
  // The error of a stream whose session could not be opened; its cause is the reason.
  if (code === "ERR_HTTP2_STREAM_CANCEL" && error instanceof Error && error.cause) return failureOf(error.cause);
  return new UpstreamFailure(BY_CODE[code] ?? byPhase(error, code), `the exchange failed: ${code}`, error);
}

const codecFailure = ({ reason }: CodecError): AttemptFailure => {
  if (reason === "too_large" || reason === "too_many_values") return AttemptFailure.ANSWER_TOO_LARGE;
  return reason === "truncated" ? AttemptFailure.CONNECTION_LOST : AttemptFailure.MALFORMED_ANSWER;
};

const codeOf = (error: unknown): string =>
  error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "unknown";

/** Errors by Node's code. */
const BY_CODE: Readonly<Record<string, AttemptFailure>> = {
  ECONNREFUSED: AttemptFailure.UNREACHABLE,
  EHOSTUNREACH: AttemptFailure.UNREACHABLE,
  ENETUNREACH: AttemptFailure.UNREACHABLE,
  EHOSTDOWN: AttemptFailure.UNREACHABLE,
  ENOTFOUND: AttemptFailure.UNREACHABLE,
  EAI_AGAIN: AttemptFailure.UNREACHABLE,
  ENODATA: AttemptFailure.UNREACHABLE,
  UND_ERR_CONNECT_TIMEOUT: AttemptFailure.UNREACHABLE,
  UND_ERR_HEADERS_OVERFLOW: AttemptFailure.MALFORMED_ANSWER,
  // Not HTTP/2, or a protocol violation.
  ERR_HTTP2_ERROR: AttemptFailure.MALFORMED_ANSWER,
  // The session accepts no more new streams.
  ERR_HTTP2_GOAWAY_SESSION: AttemptFailure.UPSTREAM_BUSY,
  // WebSocket clients get these for invalid frames.
  WS_ERR_UNSUPPORTED_MESSAGE_LENGTH: AttemptFailure.ANSWER_TOO_LARGE,
  WS_ERR_UNSUPPORTED_DATA_PAYLOAD_LENGTH: AttemptFailure.ANSWER_TOO_LARGE,
};

/** An error of `connect` itself means that no server was reached, as does an untrusted certificate. */
function byPhase(error: unknown, code: string): AttemptFailure {
  if (error instanceof Error && "syscall" in error && error.syscall === "connect") return AttemptFailure.UNREACHABLE;
  if (error instanceof AggregateError || /CERT|^ERR_TLS|^UNABLE_TO/.test(code)) {
    return AttemptFailure.UNREACHABLE;
  }
  const isNoHttp = error instanceof Error && error.name === "HTTPParserError"; // undici's, sometimes without a code
  if (isNoHttp || code.startsWith("WS_ERR_") || code.startsWith("HPE_")) return AttemptFailure.MALFORMED_ANSWER;
  return http2Failure(http2CodeOf(error) ?? constants.NGHTTP2_CANCEL);
}

/** The HTTP/2 error code of a stream or session; Node has its name or number only in the error's text. */
function http2CodeOf(error: unknown): number | undefined {
  const text = error instanceof Error && /^ERR_HTTP2_(STREAM|SESSION)_ERROR$/.test(codeOf(error)) ? error.message : "";
  const [, code, name] = /error code (?:(\d+)|(NGHTTP2_\w+))$/.exec(text) ?? [];
  if (code !== undefined) return Number(code);
  return HTTP2_CODES[name ?? ""];
}

const HTTP2_CODES: Readonly<Record<string, number>> = {
  NGHTTP2_PROTOCOL_ERROR: constants.NGHTTP2_PROTOCOL_ERROR,
  NGHTTP2_FLOW_CONTROL_ERROR: constants.NGHTTP2_FLOW_CONTROL_ERROR,
  NGHTTP2_FRAME_SIZE_ERROR: constants.NGHTTP2_FRAME_SIZE_ERROR,
  NGHTTP2_REFUSED_STREAM: constants.NGHTTP2_REFUSED_STREAM,
  NGHTTP2_COMPRESSION_ERROR: constants.NGHTTP2_COMPRESSION_ERROR,
  NGHTTP2_ENHANCE_YOUR_CALM: constants.NGHTTP2_ENHANCE_YOUR_CALM,
};

/** The failure for an HTTP/2 error code (RFC 9113 section 7), sent by either side. */
export function http2Failure(code: number): AttemptFailure {
  if (NOT_NOW.has(code)) return AttemptFailure.UPSTREAM_BUSY;
  return BROKEN_RULES.has(code) ? AttemptFailure.MALFORMED_ANSWER : AttemptFailure.CONNECTION_LOST;
}

const NOT_NOW: ReadonlySet<number> = new Set([constants.NGHTTP2_REFUSED_STREAM, constants.NGHTTP2_ENHANCE_YOUR_CALM]);
const BROKEN_RULES: ReadonlySet<number> = new Set([
  constants.NGHTTP2_PROTOCOL_ERROR,
  constants.NGHTTP2_FLOW_CONTROL_ERROR,
  constants.NGHTTP2_FRAME_SIZE_ERROR,
  constants.NGHTTP2_COMPRESSION_ERROR,
]);

/** Source: RFC 9110, and its use by model servers, their proxies and hosted APIs. */
const BY_HTTP_STATUS: Readonly<Record<number, AttemptFailure>> = {
  400: AttemptFailure.INPUT_REJECTED,
  401: AttemptFailure.UPSTREAM_AUTH,
  402: AttemptFailure.UPSTREAM_AUTH, // the owner's account is out of credit
  403: AttemptFailure.UPSTREAM_AUTH,
  407: AttemptFailure.UPSTREAM_AUTH,
  408: AttemptFailure.TIMEOUT,
  409: AttemptFailure.UPSTREAM_BUSY,
  413: AttemptFailure.INPUT_REJECTED,
  414: AttemptFailure.INPUT_REJECTED,
  415: AttemptFailure.INPUT_REJECTED,
  422: AttemptFailure.INPUT_REJECTED,
  425: AttemptFailure.UPSTREAM_BUSY,
  429: AttemptFailure.UPSTREAM_BUSY,
  431: AttemptFailure.INPUT_REJECTED,
  498: AttemptFailure.UPSTREAM_BUSY, // Groq: no capacity for this tier
  502: AttemptFailure.UNREACHABLE,
  503: AttemptFailure.UPSTREAM_BUSY,
  504: AttemptFailure.TIMEOUT,
  520: AttemptFailure.UNREACHABLE, // Cloudflare, for the server behind it
  521: AttemptFailure.UNREACHABLE,
  522: AttemptFailure.UNREACHABLE,
  523: AttemptFailure.UNREACHABLE,
  524: AttemptFailure.TIMEOUT,
  529: AttemptFailure.UPSTREAM_BUSY, // Anthropic: overloaded
  530: AttemptFailure.UNREACHABLE,
};

/** gRPC's numbers; all others are the server's own errors. Source: https://grpc.github.io/grpc/core/md_doc_statuscodes.html */
const BY_GRPC_STATUS: Readonly<Record<number, AttemptFailure>> = {
  1: AttemptFailure.CONNECTION_LOST, // CANCELLED
  3: AttemptFailure.INPUT_REJECTED, // INVALID_ARGUMENT
  4: AttemptFailure.TIMEOUT, // DEADLINE_EXCEEDED
  7: AttemptFailure.UPSTREAM_AUTH, // PERMISSION_DENIED
  8: AttemptFailure.UPSTREAM_BUSY, // RESOURCE_EXHAUSTED
  11: AttemptFailure.INPUT_REJECTED, // OUT_OF_RANGE
  14: AttemptFailure.UNREACHABLE, // UNAVAILABLE
  16: AttemptFailure.UPSTREAM_AUTH, // UNAUTHENTICATED
};

/** Source: RFC 6455, section 7.4.1, and its registry. Frameworks use HTTP statuses above 4400. */
const BY_CLOSE_CODE: Readonly<Record<number, AttemptFailure>> = {
  1009: AttemptFailure.INPUT_REJECTED, // message too big
  1011: AttemptFailure.UPSTREAM_ERROR, // internal error
  1012: AttemptFailure.UNREACHABLE, // service restart
  1013: AttemptFailure.UPSTREAM_BUSY, // try again later
  1014: AttemptFailure.UNREACHABLE, // bad gateway
  3000: AttemptFailure.UPSTREAM_AUTH, // unauthorized
  3003: AttemptFailure.UPSTREAM_AUTH, // forbidden
  3008: AttemptFailure.TIMEOUT,
};

const HTTP_IN_CLOSE_CODES = { from: 4_400, to: 4_599 } as const;

/** The server's answer exceeds its own send limit, in the texts of gRPC's C core, Go and Node. */
const ANSWER_TOO_LARGE =
  /\b(?:sent message|trying to send(?: a)? message|send(?:ing)? message|response)\b.{0,40}\b(?:larger|too large|exceeds?)\b/i;
/** A message is too large for the server, in the texts of gRPC's C core, Go, Java, .NET and tonic, and of HTTP frameworks. */
const MESSAGE_TOO_LARGE =
  /(?:message|payload|request|body|entity|content|file|image|input|prompt)[\w\s-]{0,30}(?:larger than|too (?:large|big|long)|exceeds?|exceeded)|(?:exceeds?|exceeded)[\w\s]{0,30}(?:message|payload|request|body|content)[\w\s-]{0,20}(?:size|length|limit)|PayloadTooLarge|context[_ ]length[_ ]exceeded/i;
/** Words that relate "exceeds" to rates. */
const RATE = /\b(?:rate|quota|per (?:minute|second|day|hour)|too many|queue|concurren\w*|requests? limit)\b/i;
const OUT_OF_MEMORY =
  /out of memory|\boom\b|cuda error|cannot allocate|failed to allocate|memory allocation|allocate memory|insufficient (?:system )?(?:memory|resources)/i;
/** A server that cannot serve anything like this, whatever the caller sends: LM Studio, Ollama, vLLM, llama.cpp, Groq. */
const MODEL_MISSING =
  /failed to load (?:the )?model|model (?:is )?(?:unloaded|not loaded)|no models? (?:is |are )?loaded|model loading aborted|\bdecommissioned\b|model_decommissioned|not a (?:multimodal|vision) model|does(?: not|n't) support (?:images?|vision|image input)|image input is not supported|\bmmproj\b|no endpoints found/i;
/** Rates and queues with the status of a bad request: AWS, RunPod. */
const THROTTLED = /throttl|too many requests|\brate limit|queue (?:is )?full/i;
/** The caller's images or text were found unfit, despite a status of missing permission: OpenRouter. */
const FLAGGED = /\bflagged\b|moderation|content policy/i;
const BUSY =
  /\b(?:queue|overloaded|overload|too many (?:requests|concurrent)|at capacity|rate.?limit\w*|backlog|server is busy|try again later)\b/i;
/**
 * A problem with the owner's account or key despite another status. Gemini answers 400 for a wrong key, OpenAI 429 for an account without
 * credit.
 */
const NOT_ALLOWED =
  /insufficient[_ ](?:quota|balance|credits?)|billing_hard_limit|credit balance is too low|api[_ ]key[_ ](?:not valid|invalid)|invalid[_ ]api[_ ]key|API_KEY_INVALID|incorrect api key|api key expired|billing_not_active|\bArrearage\b|user location is not supported|欠费|余额不足/i;

/** Returns the failure that the text beside a status adds; undefined without one. */
function meantBy(said: string): AttemptFailure | undefined {
  if (said === "") return undefined;
  if (NOT_ALLOWED.test(said)) return AttemptFailure.UPSTREAM_AUTH;
  if (OUT_OF_MEMORY.test(said)) return AttemptFailure.UPSTREAM_ERROR;
  if (ANSWER_TOO_LARGE.test(said)) return AttemptFailure.ANSWER_TOO_LARGE;
  if (MESSAGE_TOO_LARGE.test(said) && !RATE.test(said)) return AttemptFailure.INPUT_REJECTED;
  return undefined;
}

/** Statuses whose meaning does not depend on a text. */
const PLAIN_HTTP: ReadonlySet<number> = new Set([401, 403, 404, 408, 502, 504]);

/** Returns the failure for an HTTP status. `said` is for the owner, shortened by `ownerText`. */
export function failureOfStatus(status: number, said = ""): UpstreamFailure {
  const meant = PLAIN_HTTP.has(status) ? plainMeaning(status, said) : (meantBy(said) ?? looseMeaning(status, said));
  const failure = meant ?? BY_HTTP_STATUS[status] ?? AttemptFailure.UPSTREAM_ERROR;
  return new UpstreamFailure(failure, said === "" ? `answered HTTP ${status}` : advised(meant, said));
}

/** Statuses of a bad request or an internal error, which some servers send for everything. */
const LOOSE_HTTP: ReadonlySet<number> = new Set([400, 422, 424, 500]);

/** Returns what the text of a loose status means beyond `meantBy`. */
function looseMeaning(status: number, said: string): AttemptFailure | undefined {
  if (!LOOSE_HTTP.has(status)) return undefined;
  if (THROTTLED.test(said)) return AttemptFailure.UPSTREAM_BUSY;
  return MODEL_MISSING.test(said) ? AttemptFailure.UPSTREAM_ERROR : undefined;
}
const plainMeaning = (status: number, said: string): AttemptFailure | undefined =>
  status === 403 && FLAGGED.test(said) ? AttemptFailure.INPUT_REJECTED : undefined;

/** gRPC statuses that are only explained by their text: UNKNOWN, RESOURCE_EXHAUSTED, OUT_OF_RANGE, INTERNAL, UNAVAILABLE. */
const LOOSE_GRPC: ReadonlySet<number> = new Set([2, 8, 11, 13, 14]);

/** The failure for a gRPC status. */
export function failureOfGrpc(status: number, message: string, said: string): UpstreamFailure {
  const meant = LOOSE_GRPC.has(status) ? (meantBy(message) ?? busyUnavailable(status, message)) : undefined;
  const failure = meant ?? BY_GRPC_STATUS[status] ?? AttemptFailure.UPSTREAM_ERROR;
  return new UpstreamFailure(failure, advised(meant, said));
}

/** Triton reports a full queue as unavailable. */
const busyUnavailable = (status: number, message: string): AttemptFailure | undefined =>
  status === 14 && BUSY.test(message) ? AttemptFailure.UPSTREAM_BUSY : undefined;

/** The failure for a WebSocket close code. */
export function failureOfClose(code: number): UpstreamFailure {
  const isHttp = code >= HTTP_IN_CLOSE_CODES.from && code <= HTTP_IN_CLOSE_CODES.to;
  const http = isHttp ? (BY_HTTP_STATUS[code - 4_000] ?? AttemptFailure.UPSTREAM_ERROR) : undefined;
  return new UpstreamFailure(BY_CLOSE_CODE[code] ?? http ?? AttemptFailure.CONNECTION_LOST, `closed with ${code}`);
}

const SIZES = /(\d{6,12})\D{1,12}(\d{6,12})/;
const LIMIT = /(?:limit|max(?:imum)?|size)\D{0,12}(\d{6,12})/i;
const inMiB = (bytes: number): string => `${Math.round((bytes / 2 ** 20) * 10) / 10} MiB`;

/** The owner's message for a request that is too large for the server. */
function advised(meant: AttemptFailure | undefined, said: string): string {
  if (meant !== AttemptFailure.INPUT_REJECTED || FLAGGED.test(said)) return said;
  const sizes = SIZES.exec(said)?.slice(1).map(Number) ?? [];
  const limit = sizes.length > 0 ? Math.min(...sizes) : Number(LIMIT.exec(said)?.[1] ?? 0);
  const takes =
    limit > 0 ? `the server takes messages of ${inMiB(limit)} at most` : "the message is too large for the server";
  return `${takes}; raise its limit or declare smaller pictures: ${said}`;
}
