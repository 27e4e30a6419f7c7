/**
 * Sockets, requests and responses that have a listener for errors from their first moment to their last. The error of a failed write or an
 * aborted request comes a turn later. By then its transport may have removed its own listener, and an `error` event without one ends the
 * process. Node destroys what failed, and owners act on `close`.
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

/** A request of node:http2, which emits the errors of its stream too. */
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
