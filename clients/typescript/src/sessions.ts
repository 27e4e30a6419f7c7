/** The HTTP/2 connections to one gateway. */
import type {
  ClientHttp2Session,
  ClientHttp2Stream,
  ClientSessionRequestOptions,
  OutgoingHttpHeaders,
} from "node:http2";
import { Http2SessionManager } from "@connectrpc/connect-node";

/**
 * connect-node's connections, with a handler for their errors. A broken connection notifies its streams first and emits its own error much
 * later. If a call in between makes the manager release the connection, that error has no listener and would end the process.
 */
export class Sessions extends Http2SessionManager {
  readonly #listening = new WeakSet<ClientHttp2Session>();

  override async request(
    method: string,
    path: string,
    headers: OutgoingHttpHeaders,
    options: Omit<ClientSessionRequestOptions, "signal">,
  ): Promise<ClientHttp2Stream> {
    const stream = await super.request(method, path, headers, options);
    const session = stream.session as ClientHttp2Session | undefined;
    if (session !== undefined && !this.#listening.has(session)) {
      this.#listening.add(session);
      // Each affected stream reports the error to its call.
      session.on("error", () => {});
    }
    return stream;
  }
}
