/** The HTTP/2 connections to one gateway. */
import type {
  ClientHttp2Session,
  ClientHttp2Stream,
  ClientSessionRequestOptions,
  OutgoingHttpHeaders,
} from "node:http2";
import { Http2SessionManager } from "@connectrpc/connect-node";

/**
 * connect-node's connections, of which none ends the process that uses them: a broken connection tells its streams first, and much later of its
 * own error. A call that is made between the two has the manager let go of that connection, and an error that nobody hears ends a process.
 */
export class Sessions extends Http2SessionManager {
  readonly #heard = new WeakSet<ClientHttp2Session>();

  override async request(
    method: string,
    path: string,
    headers: OutgoingHttpHeaders,
    options: Omit<ClientSessionRequestOptions, "signal">,
  ): Promise<ClientHttp2Stream> {
    const stream = await super.request(method, path, headers, options);
    const session = stream.session as ClientHttp2Session | undefined;
    if (session !== undefined && !this.#heard.has(session)) {
      this.#heard.add(session);
      // What it means for a call, its stream says.
      session.on("error", () => {});
    }
    return stream;
  }
}
