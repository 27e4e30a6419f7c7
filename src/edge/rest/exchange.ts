/** The two kinds of HTTP messages that the port hands on. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";

/** A request of HTTP/1.1 or HTTP/2. */
export type Request = IncomingMessage | Http2ServerRequest;

/** Its response. */
export type Response = ServerResponse | Http2ServerResponse;

/** A header that may be given once; undefined where it is not. */
export function headerOf(request: Request, name: string): string | undefined {
  const value = request.headers[name];
  return typeof value === "string" ? value : undefined;
}
