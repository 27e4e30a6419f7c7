/** Responses to invalid HTTP requests. */
import { type IncomingMessage, STATUS_CODES } from "node:http";
import { now } from "../../clock.ts";
import { factsOf, Reason } from "../../errors.ts";
import { newId } from "../../ids.ts";

/** A kind of invalid HTTP/1.1: the status, the reason, and a message for the caller. */
export interface WireFault {
  readonly status: number;
  readonly code: string;
  readonly message: string;
}

/** Creates the JSON body of a wire fault; `requestId` is also sent as `x-request-id`. */
export type RefusalBody = (status: number, code: string, message: string, requestId: string) => string;

/** Every wire fault by name. */
export const FAULTS = {
  malformed: fault(Reason.MALFORMED_REQUEST, "the request is not valid HTTP/1.1"),
  host: fault(Reason.MALFORMED_REQUEST, "the request must have exactly one valid `Host` header"),
  oldCoding: fault(Reason.MALFORMED_REQUEST, "HTTP/1.0 knows no Transfer-Encoding."),
  slow: fault(Reason.REQUEST_TIMEOUT, "the request did not arrive in time"),
  extensions: fault(Reason.PAYLOAD_TOO_LARGE, "the chunk extensions are too large"),
  expectation: fault(Reason.EXPECTATION_FAILED, "the only supported expectation is 100-continue"),
  headers: fault(Reason.HEADERS_TOO_LARGE, "the request line and headers are too large"),
  coding: fault(Reason.TRANSFER_CODING_UNSUPPORTED, "the only supported `Transfer-Encoding` is chunked"),
  method: fault(Reason.METHOD_NOT_IMPLEMENTED, "the request method is not supported"),
  version: fault(Reason.HTTP_VERSION_UNSUPPORTED, "this port supports HTTP/1.0, HTTP/1.1 and HTTP/2"),
} as const satisfies Record<string, WireFault>;

function fault(reason: Reason, message: string): WireFault {
  const { status, code } = factsOf(reason);
  return { status, code, message };
}

const BY_ERROR_CODE: Readonly<Record<string, WireFault>> = {
  ERR_HTTP_REQUEST_TIMEOUT: FAULTS.slow,
  HPE_CHUNK_EXTENSIONS_OVERFLOW: FAULTS.extensions,
  HPE_HEADER_OVERFLOW: FAULTS.headers,
};

/** The fault behind an error of Node's HTTP/1 parser; undefined for a broken connection, which gets no response. */
export function faultOfError(error: Error & { code?: string; reason?: string }): WireFault | undefined {
  const { code = "", reason } = error;
  // The parser has the same code for a valid version that invalid bytes follow.
  if (code === "HPE_INVALID_VERSION" && reason === "Invalid HTTP version") return FAULTS.version;
  return BY_ERROR_CODE[code] ?? (code.startsWith("HPE_") ? FAULTS.malformed : undefined);
}

// Node's parser knows about forty methods, including those of RTSP and ICE.
const METHODS = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]);

const HOST = /^[\w.\-~%:[\]]*$/;

/** Whether a Host header value is well-formed. */
export const isHost = (text: string): boolean => HOST.test(text);

/**
 * A fault that Node's parser accepts although a proxy might interpret it differently, which enables request smuggling (RFC 9112 sections 3.2
 * and 6.1); undefined if the head is valid.
 */
export function faultOfHead(request: IncomingMessage): WireFault | undefined {
  const { httpVersionMajor: major, httpVersionMinor: minor } = request;
  if (major !== 1 || minor > 1) return FAULTS.version;
  if (!METHODS.has(request.method ?? "")) return FAULTS.method;
  const coding = request.headers["transfer-encoding"];
  if (coding !== undefined && minor === 0) return FAULTS.oldCoding;
  if (coding !== undefined && coding !== "chunked") return FAULTS.coding;
  const hosts = countOf(request.rawHeaders, "host");
  const sound = (hosts === 1 || (hosts === 0 && minor === 0)) && isHost(request.headers.host ?? "");
  return sound ? undefined : FAULTS.host;
}

// `headers` does not reveal duplicates of Host: it has only the first.
function countOf(rawHeaders: readonly string[], name: string): number {
  let count = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const each = rawHeaders[i]!;
    if (each.length === name.length && each.toLowerCase() === name) count++;
  }
  return count;
}

/** The response to a wire fault on either protocol: its headers, with a new request id, and its body. */
export function answerTo({ status, code, message }: WireFault, bodyOf: RefusalBody) {
  const requestId = newId("req");
  const body = bodyOf(status, code, message, requestId);
  const headers = {
    date: new Date(now()).toUTCString(),
    "content-type": "application/json; charset=utf-8",
    "content-length": String(Buffer.byteLength(body)),
    "x-request-id": requestId,
  };
  return { status, headers, body };
}

/** The same response as the bytes of a closing HTTP/1.1 response. */
export function bytesOf({ status, headers, body }: ReturnType<typeof answerTo>): string {
  const fields = Object.entries({ ...headers, connection: "close" }).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${fields.join("")}\r\n${body}`;
}

/** The size of a header list as HTTP/2 counts it: its bytes, and 32 for each field (RFC 9113 section 6.5.2). */
export function sizeOf(rawHeaders: readonly string[]): number {
  let size = 16 * rawHeaders.length;
  for (const each of rawHeaders) size += each.length;
  return size;
}
