/** How things that go wrong between us and a model server become an `UpstreamFailure`. */
import { constants } from "node:http2";
import type { Signal } from "../../cancellation.ts";
import { CodecError } from "../../codecs/error.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { Refusal } from "../../errors.ts";
import { AddressRefused } from "./guard.ts";

const MAX_TEXT = 200;

/**
 * The text of a server's error, cut down for its owner: the last line with anything on it (of a traceback, the error itself) without
 * control characters, at most 200 characters.
 */
export function ownerText(text: string): string {
  const end = text.slice(-16 * MAX_TEXT).trimEnd();
  const line = end.slice(end.lastIndexOf("\n") + 1);
  return line.replace(/\p{C}/gu, "").trim().slice(0, MAX_TEXT);
}

/**
 * An error in a server's own words, where the protocol has one word for all of them. A server that raises an exception called `InvalidInput`, of
 * whatever module, says so that it was the input.
 */
export function toldFailure(text: string): UpstreamFailure {
  const said = ownerText(text);
  const failure = INVALID_INPUT.test(said) ? AttemptFailure.INPUT_REJECTED : AttemptFailure.UPSTREAM_ERROR;
  return new UpstreamFailure(failure, said);
}

/** The last line of a traceback: the exception's name, and what it says. */
const INVALID_INPUT = /^(?:\w+\.){0,16}InvalidInput(?:Error)?(?::|$)/;

/** The failure of an aborted call: the signal's own reason, or that its time ran out. */
export function calledOff(signal: Signal): UpstreamFailure {
  const reason: unknown = signal.reason;
  return reason instanceof UpstreamFailure ? reason : new UpstreamFailure(AttemptFailure.TIMEOUT, "called off", reason);
}

/** A connection that broke before the answer was whole. */
export const lost = (message: string, cause?: unknown): UpstreamFailure =>
  new UpstreamFailure(AttemptFailure.CONNECTION_LOST, message, cause);

/** A server that can't be reached. */
export const unreachable = (message: string, cause?: unknown): UpstreamFailure =>
  new UpstreamFailure(AttemptFailure.UNREACHABLE, message, cause);

/** An answer that the protocol doesn't allow. */
export const malformed = (message: string, cause?: unknown): UpstreamFailure =>
  new UpstreamFailure(AttemptFailure.MALFORMED_ANSWER, message, cause);

/** Any error of a socket, of HTTP/2 or of a codec as a failure. A refusal of the caller's own input stays what it is: it's thrown. */
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
  // The error of a stream whose session could not be opened; the reason is its cause.
  if (code === "ERR_HTTP2_STREAM_CANCEL" && error instanceof Error && error.cause) return failureOf(error.cause);
  return new UpstreamFailure(BY_CODE[code] ?? byPhase(error, code), `the exchange failed: ${code}`, error);
}

const codecFailure = ({ reason }: CodecError): AttemptFailure => {
  if (reason === "too_large" || reason === "too_many_values") return AttemptFailure.ANSWER_TOO_LARGE;
  return reason === "truncated" ? AttemptFailure.CONNECTION_LOST : AttemptFailure.MALFORMED_ANSWER;
};

const codeOf = (error: unknown): string =>
  error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "unknown";

/** Errors by Node's code for them. */
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
  // What isn't HTTP/2, or breaks its rules.
  ERR_HTTP2_ERROR: AttemptFailure.MALFORMED_ANSWER,
  // The session of a new stream takes no more of them.
  ERR_HTTP2_GOAWAY_SESSION: AttemptFailure.UPSTREAM_BUSY,
  // A client of WebSocket gets these for frames that break the rules.
  WS_ERR_UNSUPPORTED_MESSAGE_LENGTH: AttemptFailure.ANSWER_TOO_LARGE,
  WS_ERR_UNSUPPORTED_DATA_PAYLOAD_LENGTH: AttemptFailure.ANSWER_TOO_LARGE,
};

/** An error of `connect` itself means that no server was reached; an untrusted certificate likewise. */
function byPhase(error: unknown, code: string): AttemptFailure {
  if (error instanceof Error && "syscall" in error && error.syscall === "connect") return AttemptFailure.UNREACHABLE;
  if (error instanceof AggregateError || /CERT|^ERR_TLS|^UNABLE_TO/.test(code)) {
    return AttemptFailure.UNREACHABLE;
  }
  const isNoHttp = error instanceof Error && error.name === "HTTPParserError"; // undici's, sometimes without a code
  if (isNoHttp || code.startsWith("WS_ERR_") || code.startsWith("HPE_")) return AttemptFailure.MALFORMED_ANSWER;
  return http2Failure(http2CodeOf(error) ?? constants.NGHTTP2_CANCEL);
}

/** The code by which HTTP/2 ended a stream or a session; Node has its name or its number in the error's text alone. */
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

/** What it means that HTTP/2 ended a stream or a session by this code (RFC 9113 section 7). Either side may have been the one to end it. */
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
