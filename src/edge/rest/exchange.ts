/** The kinds of HTTP messages that the port hands on. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { PlainRequest, PlainResponse } from "../port/lane.ts";

/** A request of HTTP/1.1 or HTTP/2; one of the lane has come whole. */
export type Request = IncomingMessage | Http2ServerRequest | PlainRequest;

/** Its response. */
export type Response = ServerResponse | Http2ServerResponse | PlainResponse;

/** A header that may be given once; undefined where it is not. */
export function headerOf(request: Request, name: string): string | undefined {
  const value = request.headers[name];
  return typeof value === "string" ? value : undefined;
}
