/** The calls of one connection that have a taker. */

import { Arrivals, type Arriving } from "../../edge/server/arrivals.ts";
import { LATE_TRAILERS } from "../../edge/server/http2.ts";
import type { Slot } from "../../edge/server/slots.ts";
import { CODE, FRAME } from "../http2-frames/frames.ts";
import { packFields } from "../http2-frames/hpack.ts";
import type { OutgoingData } from "../http2-frames/outgoing.ts";
import { CallStream, type CallTaker, type Carrier } from "./call.ts";
import type { Http2Connection } from "./connection.ts";
import type { PlainHead, RequestHead } from "./head.ts";

/** The answer to a gRPC request that did not come in time, head and trailers in one block. */
const lateAnswer = (type = "application/grpc"): Buffer =>
  packFields([[":status", "200"], ["content-type", type], ...Object.entries(LATE_TRAILERS)]);

/** One call, as its connection sees it. */
class RunningCall implements Arriving {
  readonly stream: CallStream;
  readonly since: number;
  isLate = false;
  readonly #taker: CallTaker;

  constructor(stream: CallStream, taker: CallTaker, since: number) {
    this.stream = stream;
    this.since = since;
    this.#taker = taker;
  }

  get isWhole(): boolean {
    return this.stream.isWhole || this.isEndless;
  }

  get isEndless(): boolean {
    return this.#taker.endless;
  }

  refuse(): void {
    if (!this.stream.isAnswered) this.stream.end(lateAnswer(this.stream.fields["content-type"]));
  }

  reset(): void {
    this.stream.reset(CODE.none);
  }
}

/** All of one connection. */
export class Calls implements Carrier {
  readonly window: number;
  readonly #connection: Http2Connection;
  readonly #running = new Map<number, RunningCall>();
  /** The call that a DATA frame belongs to, while it lasts. */
  #receiving: CallStream | undefined;
  /** Streams of which something queued has been sent. */
  #sentOn: CallStream[] = [];
  readonly #arrivals: Arrivals;

  /** `window` is what each call may send ahead of its hearer, in bytes; it has `requestTimeoutMs` to come whole. */
  constructor(connection: Http2Connection, window: number, requestTimeoutMs: number) {
    this.#connection = connection;
    this.window = window;
    this.#arrivals = new Arrivals(requestTimeoutMs, (visit) => {
      connection.outbox.rest();
      for (const running of this.#running.values()) visit(running);
    });
  }

  get size(): number {
    return this.#running.size;
  }

  /** Whether any of them goes on for as long as it likes. */
  get hasConversation(): boolean {
    return [...this.#running.values()].some(({ isEndless }) => isEndless);
  }

  get address(): string {
    return this.#connection.address;
  }

  get slot(): Slot | undefined {
    return this.#connection.slot;
  }

  get(id: number): CallStream | undefined {
    return this.#running.get(id)?.stream;
  }

  /** A call begins. */
  open(id: number, { named, taker, bodyBytes }: PlainHead, ends: boolean): void {
    const stream = new CallStream(this, id, named, this.#connection.peerWindow);
    stream.missing = bodyBytes;
    this.#running.set(id, new RunningCall(stream, taker, this.#arrivals.looks));
    stream.heardBy(taker.open(stream));
    if (ends) this.#whole(stream);
  }

  /** A DATA frame of it begins, of so many bytes. */
  dataBegins(stream: CallStream, length: number): void {
    if (stream.isWhole) this.break(stream, CODE.streamClosed);
    else if (!stream.admits(length)) this.break(stream, CODE.flowControl);
    else this.#receiving = stream;
  }

  /** Some of what the frame carries; false where it is of no call here. */
  dataComes(bytes: Buffer): boolean {
    const stream = this.#receiving;
    if (stream === undefined) return false;
    if (stream.missing !== undefined) {
      stream.missing -= bytes.length;
      // More than the length that the head named (RFC 9113 section 8.1.1).
      if (stream.missing < 0) {
        this.break(stream, CODE.protocol);
        return false;
      }
    }
    stream.receive(bytes);
    return true;
  }

  /** The frame has ended. */
  dataEnds(ends: boolean, padding: number): void {
    const stream = this.#receiving;
    this.#receiving = undefined;
    if (stream === undefined) return;
    if (padding > 0) stream.release(padding);
    if (ends) this.#whole(stream);
  }

  /** Fields behind the request, which mean nothing here. */
  trailers(stream: CallStream, head: RequestHead, ends: boolean): void {
    if (stream.isWhole) this.break(stream, CODE.streamClosed);
    else if (!ends || head.isTooLarge || head.fields.some(([name]) => name.startsWith(":")))
      this.break(stream, CODE.protocol);
    else this.#whole(stream);
  }

  /** The caller has given a call up. */
  wasReset(stream: CallStream): void {
    this.#close(stream);
  }

  /** The caller has changed what every stream may have; `grow` changes those that run. */
  settings(grow: (stream: OutgoingData) => void): void {
    for (const { stream } of this.#running.values()) grow(stream);
  }

  /** The caller broke the protocol on this stream alone. */
  break(stream: CallStream, code: number): void {
    this.reset(stream, code);
    this.#connection.tax();
  }

  /** Tells of what was sent. */
  tell(): void {
    while (this.#sentOn.length > 0) {
      const streams = this.#sentOn;
      this.#sentOn = [];
      for (const stream of streams) {
        if (stream.isEnded && stream.isWhole) this.#close(stream);
        else stream.tellRoom();
      }
    }
  }

  /** The connection is gone. */
  destroy(): void {
    this.#arrivals.end();
    this.#receiving = undefined;
    for (const { stream } of this.#running.values()) stream.close();
    this.#running.clear();
  }

  /** As Carrier. */
  head(stream: CallStream, block: Buffer): void {
    this.#connection.sender.block(stream.id, 0, block);
  }

  /** As Carrier. */
  sendNow(stream: CallStream, bytes: Buffer): boolean {
    return this.#connection.sender.sendNow(stream, bytes);
  }

  /** As Carrier. */
  send(stream: CallStream): void {
    this.#connection.sender.send(stream);
    this.tell();
  }

  /** As Carrier. */
  sent(stream: CallStream): void {
    this.#sentOn.push(stream);
  }

  /** As Carrier. */
  grant(stream: CallStream, bytes: number): void {
    this.#connection.outbox.number(FRAME.windowUpdate, stream.id, bytes);
  }

  /** As Carrier. */
  reset(stream: CallStream, code: number): void {
    this.#connection.outbox.number(FRAME.reset, stream.id, code);
    this.#close(stream);
  }

  /** As Carrier. */
  refused(): void {
    this.#connection.refused();
  }

  /** As Carrier. */
  held(change: 1 | -1): void {
    this.#connection.held(change);
  }

  #whole(stream: CallStream): void {
    if (stream.missing) {
      this.break(stream, CODE.protocol);
      return;
    }
    stream.whole();
    if (stream.isEnded) this.#close(stream);
  }

  #close(stream: CallStream): void {
    if (!stream.isOpen) return;
    if (this.#receiving === stream) this.#receiving = undefined;
    this.#running.delete(stream.id);
    this.#connection.sender.forget(stream);
    stream.close();
    this.#connection.left();
  }
}
