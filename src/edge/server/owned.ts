/**
 * The requests and responses of Node's servers: they handle errors that nothing else listens to, and bound what one HTTP/1 connection can make
 * Node.js keep.
 */
import { IncomingMessage, ServerResponse } from "node:http";
import { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { TinyPieces } from "./budgets.ts";

const heard = (): void => undefined;

/** Handles the errors of a socket until it closes. */
export const absorbErrors = (socket: Duplex): void => void socket.on("error", heard);

/** A connection with more pending responses is not read, until half as many are pending. Node.js itself limits only the bytes of queued responses. */
const MOST_PENDING = 64;

/** The work that an HTTP/1 connection has caused. */
class ConnectionLoad {
  readonly tiny = new TinyPieces();
  isFull = false;
  readonly #socket: Socket;
  #pending = 0;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** Counts a response until it is closed. */
  begin(response: ServerResponse): void {
    response.once("close", this.#ended);
    if (++this.#pending <= MOST_PENDING) return;
    this.isFull = true;
    // Not now: Node.js resumes the connection after each message of what it is parsing.
    process.nextTick(this.#pause);
  }

  readonly #pause = (): void => {
    if (this.isFull) this.#socket.pause();
  };

  readonly #ended = (): void => {
    if (--this.#pending > MOST_PENDING / 2 || !this.isFull) return;
    this.isFull = false;
    this.#socket.resume();
  };
}

const loads = new WeakMap<Socket, ConnectionLoad>();

function loadOf(socket: Socket): ConnectionLoad {
  let load = loads.get(socket);
  if (load === undefined) {
    load = new ConnectionLoad(socket);
    loads.set(socket, load);
  }
  return load;
}

/** A request of node:http. */
export class OwnedRequest extends IncomingMessage {
  readonly #load: ConnectionLoad;

  constructor(socket: Socket) {
    super(socket);
    this.#load = loadOf(socket);
    this.on("error", heard);
  }

  override push(piece: Uint8Array | null, encoding?: BufferEncoding): boolean {
    // Not now: Node.js is in the middle of reading.
    if (piece !== null && !this.#load.tiny.take(piece.length)) setImmediate(() => this.socket.destroy());
    return super.push(piece, encoding);
  }

  override _read(size: number): void {
    // Node.js would resume the connection, which may have to wait; its body arrives when it is resumed.
    if (!this.#load.isFull) super._read(size);
  }
}

/** A response of node:http. */
export class OwnedResponse extends ServerResponse<OwnedRequest> {
  constructor(...args: ConstructorParameters<typeof ServerResponse<OwnedRequest>>) {
    super(...args);
    this.on("error", heard);
    const [{ socket }] = args;
    loadOf(socket).begin(this);
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
