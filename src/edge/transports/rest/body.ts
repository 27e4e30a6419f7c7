/** Reads a request's body: checks its type and its size. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Signal } from "../../../cancellation.ts";
import { Reason, refuse } from "../../../errors.ts";
import { GatheredBody, tooLarge } from "../../messages/bounds.ts";
import type { WholeRequest, WholeResponse } from "../../server/whole-requests.ts";

/** The limits of a body, and the counter of its bytes. */
export interface BodyLimits {
  /** The most bytes. */
  readonly most: number;
  /** Reserves memory for a body of so many bytes instead of the previous size; throws the refusal if there is none. */
  hold(bytes: number): void;
  /** Aborted when the caller disconnects. */
  readonly signal: Signal;
}

/** The content types that a body may have. */
export interface BodyType {
  test(given: string): boolean;
}

/**
 * Reads a body whose content type matches `wanted`; empty if there is no body. Refuses other types with 415, naming `named`, larger bodies
 * with 413, and those that there is no memory for with 429 or 503, before reading if the headers declare the size. Rejects if the caller
 * disconnects before the end.
 */
export async function readBody(
  request: HttpRequest,
  wanted: BodyType,
  named: string,
  limits: BodyLimits,
): Promise<Buffer> {
  const { most, hold } = limits;
  const { "content-type": type, "content-length": length, "content-encoding": coding } = request.headers;
  if (length === "0") return Buffer.alloc(0);
  if (type !== undefined && !wanted.test(type)) throw unsupported(`the body must be ${named} in UTF-8`);
  if (coding !== undefined && coding !== "identity") throw unsupported("the body must not be compressed");
  if (Number(length) > most) throw tooLarge(most);
  if (length !== undefined) hold(Number(length));
  const bytes = "body" in request ? request.body : await collect(request, limits);
  if (bytes.length > 0 && type === undefined) throw unsupported(`the body needs a content type: ${named}`);
  return bytes;
}

/** Matches content types of these names in UTF-8, under either of its names. Other parameters have no effect. */
export const typeOf = (...names: string[]): BodyType => ({
  test(given) {
    const [type = "", ...parameters] = given
      .toLowerCase()
      .split(";")
      .map((part) => part.trim());
    return names.includes(type) && parameters.every((each) => !each.startsWith("charset") || UTF_8.test(each));
  },
});
const UTF_8 = /^charset\s*=\s*"?utf-?8"?$/;

const unsupported = (text: string) => refuse(Reason.UNSUPPORTED_MEDIA_TYPE, text);

function collect(request: Exclude<HttpRequest, WholeRequest>, { most, hold, signal }: BodyLimits): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    let body = new GatheredBody(most);
    let size = 0;
    let isRefused = false;
    const refused = (thrown: unknown): void => {
      isRefused = true;
      body = new GatheredBody(0);
      reject(thrown);
    };
    request.on("data", (chunk: Buffer) => {
      // After a refusal, the body is read and dropped: closing a connection with unread bytes resets it before the response is read.
      if (isRefused) return;
      size += chunk.length;
      try {
        if (size > most) throw tooLarge(most);
        hold(Math.max(size, Number(request.headers["content-length"] ?? 0)));
        body.add(chunk);
      } catch (thrown) {
        refused(thrown);
      }
    });
    const left = (): void =>
      refused(refuse(Reason.CLIENT_CLOSED_REQUEST, "the client disconnected before the request body was complete"));
    request.once("end", () => {
      request.off("close", left); // every request closes; only an early one means that the caller left
      resolve(body.bytes());
    });
    request.once("error", left);
    request.once("close", left);
    // The caller may have disconnected during the key lookup: the request no longer reports that, and over HTTP/2 is not even destroyed.
    if (request.destroyed || signal.aborted) left();
  });
}

/** A request of HTTP/1.1 or HTTP/2. */
export type HttpRequest = IncomingMessage | Http2ServerRequest | WholeRequest;

/** Its response. */
export type HttpResponse = ServerResponse | Http2ServerResponse | WholeResponse;

/** A header that is allowed once; undefined if absent. */
export function headerOf(request: HttpRequest, name: string): string | undefined {
  const value = request.headers[name];
  return typeof value === "string" ? value : undefined;
}
