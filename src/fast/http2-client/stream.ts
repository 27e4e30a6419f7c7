/** One call on a connection that many share. */

import type { UpstreamFailure } from "../../contracts/failure.ts";
import { OutgoingData } from "../http2-frames/outgoing.ts";
import type { HeaderFields } from "./fields.ts";

/** Bytes of a stream that came and were not taken yet: a reader that stalls holds no more. */
export const STREAM_WINDOW = 2 ** 18;

/** The receiver of a stream's answer. None of these may throw. */
export interface StreamHearer {
  /** The head of the answer, once. */
  head(fields: HeaderFields): void;
  /** More of the answer, as a view of what arrived. Its room is given back by `release`. False when nothing of it is kept. */
  data(bytes: Buffer): unknown;
  /** What comes after the answer, once or never. */
  trailers(fields: HeaderFields): void;
  /** Nothing more will come: the server has ended the stream, or this failure has. Once, and never after `cancel`. */
  closed(failure: UpstreamFailure | undefined): void;
}

/** What a stream asks of its connection. */
export interface Carrier {
  readonly takesStreams: boolean;
  /** Sends bytes at once; false when they have to be queued. */
  sendNow(stream: Stream, bytes: Buffer): boolean;
  /** There is more to send. */
  send(stream: Stream): void;
  /** The server may send so many bytes more. */
  grant(stream: Stream, bytes: number): void;
  /** The stream is not wanted any more. */
  drop(stream: Stream): void;
}

/** A stream; its connection knows the rest of it. */
export class Stream extends OutgoingData {
  readonly hearer: StreamHearer;
  readonly #carrier: Carrier;
  /** False as soon as nothing more can come or go. */
  isOpen = true;
  /** The head of the answer has come. */
  isAnswered = false;
  /** Bytes that the server may still send, and bytes that were released since the last WINDOW_UPDATE. */
  #receiveWindow = STREAM_WINDOW;
  #released = 0;

  constructor(carrier: Carrier, hearer: StreamHearer) {
    super();
    this.#carrier = carrier;
    this.hearer = hearer;
  }

  /** False once it has closed, or its connection takes no new streams: what is to last needs another one. */
  get lasts(): boolean {
    return this.isOpen && this.#carrier.takesStreams;
  }

  /** Sends bytes, perhaps in pieces, which have to stay as they are, as soon as the server lets them in. */
  write(bytes: Buffer | readonly Buffer[]): void {
    if (!this.isOpen || this.isEnding) return;
    if (!ArrayBuffer.isView(bytes)) for (const piece of bytes) this.push(piece);
    else if (this.queued === 0 && this.#carrier.sendNow(this, bytes)) return;
    else this.push(bytes);
    this.#carrier.send(this);
  }

  /** Sends bytes, and that they are the last. */
  end(bytes: Buffer): void {
    if (!this.isOpen || this.isEnding) return;
    this.push(bytes);
    this.finish();
    this.#carrier.send(this);
  }

  /** Resets the stream; no event follows. */
  cancel(): void {
    if (this.isOpen) this.#carrier.drop(this);
  }

  /** So many bytes of `data` need no room any more. */
  release(bytes: number): void {
    if (!this.isOpen) return;
    this.#released += bytes;
    if (this.#released < STREAM_WINDOW / 2) return;
    this.#receiveWindow += this.#released;
    this.#carrier.grant(this, this.#released);
    this.#released = 0;
  }

  /** For the connection: counts what the server sends; false when it was not allowed to. */
  admits(bytes: number): boolean {
    this.#receiveWindow -= bytes;
    return this.#receiveWindow >= 0;
  }
}
