/**
 * Sockets, requests and responses whose errors are heard from their first moment to their last, whoever else listens and stops
 * listening. A failed write or an aborted request is told a turn later: by then its transport has let go of it, or the connection is
 * another's, and an `error` event that nobody hears ends the process. Node destroys what failed; its `close` tells its owners.
 */
import { IncomingMessage, ServerResponse } from "node:http";
import { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";

const heard = (): void => undefined;

/** Hears the errors of a socket until it is gone. */
export const hearErrors = (socket: Duplex): void => void socket.on("error", heard);

/** A request of node:http. */
export class OwnedRequest extends IncomingMessage {
  constructor(socket: Socket) {
    super(socket);
    this.on("error", heard);
  }
}

/** A response of node:http. */
export class OwnedResponse extends ServerResponse<OwnedRequest> {
  constructor(...args: ConstructorParameters<typeof ServerResponse<OwnedRequest>>) {
    super(...args);
    this.on("error", heard);
  }
}

/** A request of node:http2: errors of its stream are told to it too. */
export class OwnedHttp2Request extends Http2ServerRequest {
  constructor(...args: ConstructorParameters<typeof Http2ServerRequest>) {
    super(...args);
    this.on("error", heard);
  }
}

/** A response of node:http2. */
export class OwnedHttp2Response extends Http2ServerResponse<OwnedHttp2Request> {
  constructor(...args: ConstructorParameters<typeof Http2ServerResponse<OwnedHttp2Request>>) {
    super(...args);
    this.on("error", heard);
  }
}
