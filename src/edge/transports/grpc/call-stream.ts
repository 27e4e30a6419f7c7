/** A gRPC call on a node:http2 stream, without allocations per message; each message is written once. */
import { constants, type IncomingHttpHeaders, type OutgoingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import { after } from "../../../clock.ts";
import { passed } from "../../../codecs/passing.ts";
import type { StreamPeer } from "../../server/http2.ts";
import type { Slot } from "../../server/slots.ts";
import { UNREAD_MS } from "../stalled-reader.ts";

/** A request's header fields by name. Node.js joins duplicates, except `set-cookie`, which requests do not have. */
export type HeadFields = Readonly<Partial<Record<string, string>>>;

/** The handler of a call's events. None of these may throw. */
export interface CallHandler {
  /** More data of the request, a view of the received buffer. */
  data(bytes: Buffer): void;
  /** The request has ended. */
  end(): void;
  /** A caller that was slow has read everything. */
  room(): void;
  /** The stream is closed. Called once. */
  closed(): void;
}

/** The number of unread bytes from which a caller counts as slow. */
const BEHIND_BYTES = 16 << 10;
/** How long a caller has to end its side after an early response. */
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
  /** Whether the handler waits to write. */
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

  /** Sets the handler of the call. */
  handledBy(handler: CallHandler): void {
    this.#handler = handler;
  }

  get address(): string {
    return this.#peer.address;
  }

  get slot(): Slot | undefined {
    return this.#peer.slot;
  }

  /** False as soon as nothing more can be received or sent. */
  get isOpen(): boolean {
    return !this.#stream.closed && !this.#stream.destroyed;
  }

  /** Whether the response headers were sent. */
  get isAnswered(): boolean {
    return this.#stream.headersSent;
  }

  /** Whether the request has arrived completely. */
  get isWhole(): boolean {
    return this.#stream.endAfterHeaders || this.#stream.readableEnded;
  }

  /** Whether earlier messages are still unread; the handler's `room` is called when they are read. */
  get isBehind(): boolean {
    const isBehind = this.#stream.writableLength >= BEHIND_BYTES;
    if (isBehind) this.#wasBehind = true;
    return isBehind;
  }

  /** Sends the response headers, once: alternating names and values, `:status` first. */
  respond(pairs: string[]): void {
    if (this.isOpen && !this.isAnswered) this.#stream.respond(pairs, { waitForTrailers: true });
  }

  /** Sends bytes, which must not change afterwards; false asks to wait. */
  write(bytes: Buffer): boolean {
    if (!this.isOpen || this.#isEnding) return true;
    this.#stream.write(bytes, this.#written);
    return !this.isBehind;
  }

  /** Ends the response with trailers, after a last message if given. */
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

  /** Pauses reading. */
  pause(): void {
    this.#isPaused = true;
    if (this.#isReading) this.#stream.pause();
  }

  /** Resumes reading. */
  resume(): void {
    this.#isPaused = false;
    if (this.#isReading) {
      this.#stream.resume();
      return;
    }
    this.#isReading = true;
    // The end of a request without a body is emitted without a read.
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

  /** The response was read, so further data of the caller is useless. */
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
