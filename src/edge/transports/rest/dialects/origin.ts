/** Where a caller reached the gateway. */
import { type HttpRequest, headerOf } from "../exchange.ts";

/** The scheme and host of a request, as far as it and a proxy before us tell; empty where they make no address. */
export function originOf(request: HttpRequest): string {
  const host = request.headers[":authority"] ?? request.headers.host;
  const told = headerOf(request, "x-forwarded-proto");
  const scheme = told === "https" || told === "http" ? told : "encrypted" in request.socket ? "https" : "http";
  const origin = `${scheme}://${host}`;
  return URL.canParse(origin) ? new URL(origin).origin : "";
}
