/** A gRPC call on a stream of node:http2: nothing is made for each message, and each message is written once. */
import { constants, type IncomingHttpHeaders, type OutgoingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import { after } from "../../../clock.ts";
import { passed } from "../../../codecs/passing.ts";
import type { StreamPeer } from "../../server/http2.ts";
import type { Slot } from "../../server/slots.ts";
import { UNREAD_MS } from "../stalled-reader.ts";

/** The fields of a request's head by their names. Node joins those that come twice, but for `set-cookie`, which no request has. */
export type HeadFields = Readonly<Partial<Record<string, string>>>;

/** Receives what comes by a call. None of these may throw. */
export interface CallHandler {
  /** More of the request, a view of what arrived. */
  data(bytes: Buffer): void;
  /** The request has ended. */
  end(): void;
  /** A caller that was behind has read everything. */
  room(): void;
  /** The stream is closed. Called once. */
  closed(): void;
}

/** A caller with this much unread is behind. */
const BEHIND_BYTES = 16 << 10;
/** How long a caller has to end its side behind an answer that left early. */
const LINGER_MS = 1_000;

/** One call. */
export class CallStream {
  readonly fields: HeadFields;
  readonly #stream: ServerHttp2Stream;
  readonly #peer: StreamPeer;
  #trailers: OutgoingHttpHeaders | undefined;
  #isReading = false;
  #isPaused = false;
  #isEnding = false;
  /** The handler waits for room. */
  #wasBehind = false;
  #handler: CallHandler | undefined;
  #removeListeners: (() => void) | undefined;

  constructor(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, peer: StreamPeer) {
    this.#stream = stream;
    this.#peer = peer;
    this.fields = headers as HeadFields; // sound, as HeadFields says
    stream.on("wantTrailers", this.#sendTrailers);
    stream.on("close", this.#closed);
  }

  /** Sets what receives the call. */
  handledBy(handler: CallHandler): void {
    this.#handler = handler;
  }

  get address(): string {
    return this.#peer.address;
  }

  get slot(): Slot | undefined {
    return this.#peer.slot;
  }

  /** False as soon as nothing more can come or go. */
  get isOpen(): boolean {
    return !this.#stream.closed && !this.#stream.destroyed;
  }

  /** The head of the answer was sent. */
  get isAnswered(): boolean {
    return this.#stream.headersSent;
  }

  /** All of the request has arrived. */
  get isWhole(): boolean {
    return this.#stream.endAfterHeaders || this.#stream.readableEnded;
  }

  /** What was written before is not read yet; the handler's `room` is called when it is. */
  get isBehind(): boolean {
    const isBehind = this.#stream.writableLength >= BEHIND_BYTES;
    if (isBehind) this.#wasBehind = true;
    return isBehind;
  }

  /** Sends the head of the answer, once: names and values in turn, `:status` first. */
  respond(pairs: string[]): void {
    if (this.isOpen && !this.isAnswered) this.#stream.respond(pairs, { waitForTrailers: true });
  }

  /** Sends bytes, which must stay as they are; false asks to wait for room. */
  write(bytes: Buffer): boolean {
    if (!this.isOpen || this.#isEnding) return true;
    this.#stream.write(bytes, this.#written);
    return !this.isBehind;
  }

  /** Ends the answer with trailers, behind a last message where there is one. */
  end(trailers: OutgoingHttpHeaders, bytes?: Buffer): void {
    if (!this.isOpen || this.#isEnding) return;
    this.#isEnding = true;
    this.#trailers = trailers;
    this.#removeListeners = after(UNREAD_MS, () => this.reset(constants.NGHTTP2_CANCEL));
    if (bytes === undefined) this.#stream.end(this.#ended);
    else this.#stream.end(bytes, this.#ended);
    if (this.#isReading && this.#isPaused) this.resume();
  }

  /** Ends the stream at once. */
  reset(code: number): void {
    if (this.isOpen) this.#stream.close(code);
  }

  /** Stops reading. */
  pause(): void {
    this.#isPaused = true;
    if (this.#isReading) this.#stream.pause();
  }

  /** Reads on. */
  resume(): void {
    this.#isPaused = false;
    if (this.#isReading) {
      this.#stream.resume();
      return;
    }
    this.#isReading = true;
    // The end of a request without a body is emitted unread.
    if (this.#stream.readableEnded) process.nextTick(this.#whole);
    else this.#stream.on("end", this.#whole).on("data", this.#data);
  }

  readonly #data = (bytes: Buffer): void => {
    passed(bytes.length);
    this.#handler?.data(bytes);
  };

  readonly #whole = (): void => this.#handler?.end();

  readonly #written = (): void => {
    if (!this.#wasBehind || this.#stream.writableLength > 0) return;
    this.#wasBehind = false;
    this.#handler?.room();
  };

  /** The answer was read. What a caller still sends is of no use then. */
  readonly #ended = (): void => {
    this.#removeListeners?.();
    if (!this.isOpen || this.isWhole) return;
    this.#removeListeners = after(LINGER_MS, () => this.reset(constants.NGHTTP2_NO_ERROR));
  };

  readonly #sendTrailers = (): void => {
    if (this.isOpen) this.#stream.sendTrailers(this.#trailers ?? {});
  };

  readonly #closed = (): void => {
    this.#removeListeners?.();
    this.#handler?.closed();
  };
}
