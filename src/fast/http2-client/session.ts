/**
 * The client's side of one HTTP/2 connection (RFC 9113): streams out, answers in. A server that breaks the protocol, or that keeps us busy
 * for nothing, loses the connection.
 */
import type { Socket } from "node:net";
import { UpstreamFailure } from "../../contracts/failure.ts";
import { PREFACE } from "../../edge/server/preface.ts";
import { failureOf, http2Failure, lost, malformed, unreachable } from "../../upstream/transport/failures.ts";
import { type Block, Blocks } from "../http2-frames/blocks.ts";
import { CODE, Fault, FLAG, FRAME, FrameReader } from "../http2-frames/frames.ts";
import { FieldReader } from "../http2-frames/hpack.ts";
import { Outbox } from "../http2-frames/outbox.ts";
import { checkPlace, FramePatience } from "../http2-frames/rules.ts";
import { Sender } from "../http2-frames/sender.ts";
import { FIRST_WINDOW, MAX_WINDOW, PeerSettings, packSettings, SETTING } from "../http2-frames/settings.ts";
import { type AnswerPart, isInterim, objectionTo, partOf } from "./answer.ts";
import { type Carrier, STREAM_WINDOW, Stream, type StreamHearer } from "./stream.ts";

/** The client's settings: no pushes, and the window of a stream. */
const OUR_SETTINGS = packSettings([SETTING.push, 0], [SETTING.streamWindow, STREAM_WINDOW]);
/** The window of all streams together. It is given back at once: each stream's own window holds the server off. */
const OUR_WINDOW = 32 * 2 ** 20;
const MAX_ID = 2 ** 31 - 1;
/** The events of a connection as a whole. */
export interface SessionEvents {
  /** The server's first frame has come. */
  greeted(): void;
  /** It has ended: as it should, or by a failure. Once, and before its streams end. */
  closed(failure: UpstreamFailure | undefined): void;
}

/** One connection. It greets at once when the socket has connected and, under TLS, trusts the server, and sends nothing before. */
export class ClientSession implements Carrier {
  readonly #socket: Socket;
  readonly #events: SessionEvents;
  readonly #outbox: Outbox;
  readonly #reader: FrameReader;
  readonly #sender: Sender;
  readonly #blocks = new Blocks();
  readonly #fields = new FieldReader();
  readonly #peer = new PeerSettings("server");
  readonly #patience = new FramePatience();
  readonly #streams = new Map<number, Stream>();
  /** Streams for which the server has no room yet, with what they begin with. */
  readonly #waiting = new Map<Stream, Buffer>();
  #nextId = 1;
  /** The last stream that the server will answer, by its GOAWAY. */
  #lastId = MAX_ID;
  #receiveWindow = OUR_WINDOW;
  /** Bytes that may still come for streams that were reset: the reset reaches the server later. */
  #straying = 0;
  /** The stream of the DATA frame that is being read; undefined for a stream that has ended. */
  #receiving: Stream | undefined;
  /** A receiver keeps a view of what is being read. */
  #isKept = false;
  #isGreeted = false;
  #isRetired = false;
  #isClosed = false;
  #pong: (() => void) | undefined;

  /**
   * `dial` begins to connect a socket that hands on what arrives, and that emits `ready` when it has connected. Who hears tells whether
   * some of it is kept.
   */
  constructor(
    dial: (hear: (chunk: Buffer) => boolean) => Socket,
    ready: "connect" | "secureConnect",
    events: SessionEvents,
  ) {
    const socket = dial((chunk) => this.#read(chunk));
    this.#socket = socket;
    this.#events = events;
    this.#outbox = new Outbox(socket, () => this.#sender.committer());
    this.#sender = new Sender(this.#outbox, this.#peer, this.#patience);
    this.#outbox.bytes(PREFACE);
    this.#outbox.frame(FRAME.settings, 0, 0, OUR_SETTINGS);
    this.#outbox.number(FRAME.windowUpdate, 0, OUR_WINDOW - FIRST_WINDOW);
    this.#reader = new FrameReader({
      dataBegins: (id, length) => this.#dataBegins(id, length),
      data: (_id, bytes) => {
        if (this.#receiving && this.#receiving.hearer.data(bytes) !== false) this.#isKept = true;
      },
      dataEnds: (_id, flags, padding) => this.#dataEnds(flags, padding),
      frame: (type, flags, id, payload) => this.#frame(type, flags, id, payload),
    });
    socket.setNoDelay(true);
    socket.once(ready, () => this.#outbox.open());
    socket.on("error", (error) => this.#end(CODE.none, failureOf(error)));
    const gone = (): void => {
      this.#end(CODE.none, this.#isGreeted ? lost("the server hung up") : unreachable("it hung up before it spoke"));
    };
    socket.once("end", gone).once("close", gone);
  }

  /** False once it is ending, or has no numbers left for new streams. */
  get takesStreams(): boolean {
    return !this.#isRetired && this.#nextId <= MAX_ID;
  }

  /** Opens a stream that begins with a block of fields; where the server has no room for it, it waits its turn. */
  open(block: Buffer, hearer: StreamHearer): Stream {
    const stream = new Stream(this, hearer);
    if (this.#hasPlace && this.#waiting.size === 0) this.#begin(stream, block);
    else this.#waiting.set(stream, block);
    return stream;
  }

  /** Asks the server for a sign of life. One question at a time. */
  ping(answered: () => void): void {
    this.#pong = answered;
    this.#outbox.frame(FRAME.ping, 0, 0, Buffer.alloc(8));
  }

  /** Takes no new streams; ends with the last one. */
  close(): void {
    this.#isRetired = true;
    this.#endIfDone();
  }

  /** Ends at once; all streams fail. */
  destroy(failure: UpstreamFailure): void {
    this.#end(CODE.none, failure);
  }

  /** As Carrier. */
  sendNow(stream: Stream, bytes: Buffer): boolean {
    return this.#sender.sendNow(stream, bytes);
  }

  /** As Carrier. */
  send(stream: Stream): void {
    this.#sender.send(stream);
  }

  /** As Carrier. */
  grant(stream: Stream, bytes: number): void {
    this.#outbox.number(FRAME.windowUpdate, stream.id, bytes);
  }

  /** As Carrier. */
  drop(stream: Stream): void {
    this.#reset(stream, CODE.cancel);
    this.#forget(stream);
  }

  get #hasPlace(): boolean {
    return this.#streams.size < this.#peer.maxStreams;
  }

  #begin(stream: Stream, block: Buffer): void {
    stream.id = this.#nextId;
    this.#nextId += 2;
    this.#streams.set(stream.id, stream);
    this.#sender.begin(stream, block);
  }

  #read(chunk: Buffer): boolean {
    this.#isKept = false;
    try {
      this.#reader.push(chunk);
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      this.#end(error.code, malformed(`the server broke HTTP/2: ${error.message}`));
    }
    return this.#isKept;
  }

  #dataBegins(id: number, length: number): void {
    this.#check(FRAME.data, id, length);
    if (length > this.#receiveWindow) throw new Fault(CODE.flowControl, "more than the connection's window");
    this.#receiveWindow -= length;
    if (this.#receiveWindow < OUR_WINDOW / 2) {
      this.#outbox.number(FRAME.windowUpdate, 0, OUR_WINDOW - this.#receiveWindow);
      this.#receiveWindow = OUR_WINDOW;
    }
    const stream = this.#known(id);
    this.#receiving = stream;
    if (stream === undefined) this.#straying -= length;
    if (length === 0 || (stream === undefined && this.#straying < 0)) this.#patience.spend();
    else this.#patience.earn();
    if (stream === undefined) return;
    if (!stream.isAnswered) this.#break(stream, CODE.protocol, "an answer without a head");
    else if (!stream.admits(length)) this.#break(stream, CODE.flowControl, "more than the stream's window");
  }

  #dataEnds(flags: number, padding: number): void {
    const stream = this.#receiving;
    this.#receiving = undefined;
    if (padding > 0) stream?.release(padding);
    if ((flags & FLAG.endStream) !== 0 && stream) this.#finish(stream);
  }

  #frame(type: number, flags: number, id: number, payload: Buffer): void {
    this.#check(type, id, payload.length);
    const handle = ClientSession.#HANDLERS[type];
    if (handle === undefined) this.#patience.spend();
    else handle(this, flags, id, payload);
  }

  /** Priorities, and frames of unknown types, are ignored. */
  static readonly #HANDLERS: Readonly<
    Record<number, (session: ClientSession, flags: number, id: number, payload: Buffer) => void>
  > = {
    [FRAME.headers]: (session, flags, id, payload) => session.#block(session.#blocks.begin(id, flags, payload)),
    [FRAME.continuation]: (session, flags, _id, payload) => session.#block(session.#blocks.goOn(flags, payload)),
    [FRAME.reset]: (session, _flags, id, payload) => session.#wasReset(id, payload.readUInt32BE(0)),
    [FRAME.settings]: (session, flags, _id, payload) => session.#settings(flags, payload),
    [FRAME.ping]: (session, flags, _id, payload) => session.#ping(flags, payload),
    [FRAME.goaway]: (session, _flags, _id, payload) => session.#goaway(payload),
    [FRAME.windowUpdate]: (session, _flags, id, payload) => session.#windowUpdate(id, payload.readUInt32BE(0)),
    [FRAME.pushPromise]: () => {
      throw new Fault(CODE.protocol, "a push that was ruled out");
    },
  };

  /** Throws a Fault where such a frame may not stand here. */
  #check(type: number, id: number, length: number): void {
    if (!this.#isGreeted && type !== FRAME.settings) throw new Fault(CODE.protocol, "no settings at first");
    this.#blocks.check(type, id);
    checkPlace(type, id, length);
  }

  #block(block: Block | undefined): void {
    if (block === undefined) return;
    const part = partOf(block, this.#fields);
    const stream = this.#known(part.stream);
    const objection = stream && objectionTo(part, stream.isAnswered);
    if (stream === undefined || isInterim(part)) this.#patience.spend();
    if (stream === undefined) return;
    if (objection !== undefined) this.#break(stream, objection.code, objection.text);
    else if (!isInterim(part)) this.#hear(stream, part);
  }

  #hear(stream: Stream, { fields, ends }: AnswerPart): void {
    const isTrailers = stream.isAnswered;
    stream.isAnswered = true;
    if (isTrailers) stream.hearer.trailers(fields);
    else stream.hearer.head(fields);
    if (ends) this.#finish(stream);
  }

  #wasReset(id: number, code: number): void {
    const stream = this.#known(id);
    if (stream === undefined) this.#patience.spend();
    else this.#fail(stream, code === CODE.none ? undefined : failureByCode(code, "the server reset the stream"));
  }

  #settings(flags: number, payload: Buffer): void {
    this.#patience.spend();
    if ((flags & FLAG.ack) !== 0) {
      if (payload.length > 0) throw new Fault(CODE.frameSize, "settings in an acknowledgement");
      if (!this.#isGreeted) throw new Fault(CODE.protocol, "no settings at first");
      return;
    }
    const grown = this.#peer.read(payload);
    for (const stream of this.#streams.values()) {
      stream.sendWindow += grown;
      if (stream.sendWindow > MAX_WINDOW) throw new Fault(CODE.flowControl, "a window that is too large");
    }
    this.#answer(FRAME.settings);
    if (!this.#isGreeted) this.#events.greeted();
    this.#isGreeted = true;
    this.#beginWaiting();
    this.#sender.committer();
  }

  #ping(flags: number, payload: Buffer): void {
    this.#patience.spend();
    if ((flags & FLAG.ack) === 0) this.#answer(FRAME.ping, payload);
    else {
      this.#pong?.();
      this.#pong = undefined;
    }
  }

  #goaway(payload: Buffer): void {
    if (payload.length < 8) throw new Fault(CODE.frameSize, "a GOAWAY of the wrong size");
    this.#patience.spend();
    const last = payload.readUInt32BE(0) & MAX_ID;
    const code = payload.readUInt32BE(4);
    if (last > this.#lastId) throw new Fault(CODE.protocol, "a GOAWAY that is taken back");
    this.#lastId = last;
    this.#isRetired = true;
    if (code !== CODE.none) this.#end(CODE.none, failureByCode(code, "the server gave the connection up"));
    const unheard = [...this.#streams.values()].filter(({ id }) => id > last);
    for (const stream of [...unheard, ...this.#waiting.keys()])
      this.#fail(stream, failureByCode(CODE.refused, "the server takes no more streams"));
    this.#endIfDone();
  }

  #windowUpdate(id: number, bits: number): void {
    const bytes = bits & MAX_WINDOW;
    this.#patience.spend();
    const stream = id === 0 ? undefined : this.#known(id);
    if (id === 0) this.#sender.grow(bytes);
    if (stream !== undefined) stream.sendWindow += bytes;
    if (stream !== undefined && bytes === 0) this.#break(stream, CODE.protocol, "a window that grows by nothing");
    else if (stream !== undefined && stream.sendWindow > MAX_WINDOW)
      this.#break(stream, CODE.flowControl, "a window that is too large");
    this.#sender.committer();
  }

  /** The stream of this number; undefined when it has ended. Throws a Fault when it never began. */
  #known(id: number): Stream | undefined {
    if (id % 2 === 0 || id >= this.#nextId) throw new Fault(CODE.protocol, "a stream that never began");
    return this.#streams.get(id);
  }

  /** Acknowledges what a server may send as often as it likes, as long as it reads that. */
  #answer(type: number, payload?: Buffer): void {
    if (!this.#outbox.answer(type, FLAG.ack, payload))
      throw new Fault(CODE.calm, "questions whose answers nobody reads");
  }

  /** The server has ended this stream. What was still to be sent is not wanted any more. */
  #finish(stream: Stream): void {
    if (!stream.isOpen) return;
    if (!stream.isEnded) this.#reset(stream, CODE.cancel);
    this.#forget(stream);
    stream.hearer.closed(undefined);
  }

  /** The server broke the protocol on this stream alone. */
  #break(stream: Stream, code: number, what: string): void {
    if (this.#receiving === stream) this.#receiving = undefined;
    this.#reset(stream, code);
    this.#fail(stream, malformed(`the server broke HTTP/2: ${what}`));
  }

  #fail(stream: Stream, failure: UpstreamFailure | undefined): void {
    if (!stream.isOpen) return;
    this.#forget(stream);
    stream.hearer.closed(failure);
  }

  #reset(stream: Stream, code: number): void {
    if (!stream.isOpen || stream.id === 0) return;
    this.#outbox.number(FRAME.reset, stream.id, code);
    this.#straying = Math.max(0, this.#straying) + STREAM_WINDOW;
  }

  #forget(stream: Stream): void {
    stream.isOpen = false;
    if (this.#receiving === stream) this.#receiving = undefined;
    this.#streams.delete(stream.id);
    this.#waiting.delete(stream);
    this.#sender.forget(stream);
    this.#beginWaiting();
    this.#endIfDone();
  }

  #beginWaiting(): void {
    for (const [stream, block] of this.#waiting) {
      if (!this.#hasPlace || !this.takesStreams) return;
      this.#waiting.delete(stream);
      this.#begin(stream, block);
    }
  }

  #endIfDone(): void {
    if (this.#isRetired && this.#streams.size === 0 && this.#waiting.size === 0) this.#end(CODE.none, undefined);
  }

  /** Ends everything, once, with a GOAWAY that names the reason. */
  #end(code: number, failure: UpstreamFailure | undefined): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#isRetired = true;
    this.#reader.stop();
    const goaway = Buffer.alloc(8);
    goaway.writeUInt32BE(code, 4);
    this.#outbox.frame(FRAME.goaway, 0, 0, goaway);
    this.#outbox.close();
    this.#socket.destroy();
    this.#events.closed(failure);
    const left = [...this.#streams.values(), ...this.#waiting.keys()];
    for (const stream of left) this.#fail(stream, failure ?? lost("the connection was closed"));
  }
}

/** The failure of what the server ended by a code. */
const failureByCode = (code: number, what: string): UpstreamFailure =>
  new UpstreamFailure(http2Failure(code), `${what}: code ${code}`);
