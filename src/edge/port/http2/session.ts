/**
 * The server's side of one HTTP/2 connection (RFC 9113). Requests that somebody takes run here, from their frames to their frames; every
 * other goes over a bridge to node:http2, under its own number. A client that breaks the protocol, or that costs more than it asks, loses
 * the connection.
 */
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { after, every } from "../../../ambient.ts";
import { type Block, Blocks } from "../../../codecs/http2/blocks.ts";
import { CODE, Fault, FLAG, FRAME, FrameReader, PREFACE } from "../../../codecs/http2/frames.ts";
import { Outbox } from "../../../codecs/http2/outbox.ts";
import { Outgoing } from "../../../codecs/http2/outgoing.ts";
import { checkPlace, Patience as Idle } from "../../../codecs/http2/rules.ts";
import { Sender } from "../../../codecs/http2/sender.ts";
import { FIRST_WINDOW, MAX_WINDOW, PeerSettings, packSettings, SETTING } from "../../../codecs/http2/settings.ts";
import { Bridge } from "./bridge.ts";
import { CallStream, type CallTaker, type Carrier, type FindTaker } from "./call.ts";
import { budget, type Http2Limits } from "./general.ts";
import { type Head, HeadReader } from "./head.ts";
import { lateAnswer } from "./late.ts";

/** What a session needs of its port. */
export interface SessionHouse {
  readonly limits: Http2Limits;
  readonly find: FindTaker;
  /** Serves a connection inside this process by node:http2, as if it came from this address. */
  general(pipe: Duplex, address: string, isSecure: boolean): void;
  /** A connection of this address was cut off for what it cost. */
  cutOff(address: string): void;
  /** The session has ended. */
  left(session: Session): void;
}

/** How long a peer has to close its side, or to read why it was turned away. */
const LINGER_MS = 1_000;
/** How long the peer of a late request has to read that, before its stream is reset. */
const LATE_LINGER_MS = 100;
/** How often one looks for requests that are late: a share of the limit. */
const LOOKS = 10;
/** Empty frames of data without an end. */
const MOST_EMPTY = 1_000;
const GOAWAY_BYTES = 8;

const ignore = (): void => undefined;

/** A call that runs here. */
interface Own {
  readonly stream: CallStream;
  readonly taker: CallTaker;
  /** How many looks there had been when it began. */
  readonly since: number;
  isLate: boolean;
}

/** A request that runs behind the bridge: here stands what it has to send. */
class Passing extends Outgoing {
  readonly #session: Session;
  readonly #bridge: Bridge;
  isAnswered = false;
  isWhole = false;
  /** Node has given it up, behind what it said last. */
  isLeaving = false;

  constructor(session: Session, bridge: Bridge, id: number, sendWindow: number) {
    super();
    this.#session = session;
    this.#bridge = bridge;
    this.id = id;
    this.sendWindow = sendWindow;
  }

  /** Sends bytes, and whether they are the last. */
  say(bytes: Buffer, ends: boolean, trailers?: Buffer): void {
    this.push(bytes);
    if (ends) this.finish(trailers);
  }

  override take(most: number): Buffer | undefined {
    const taken = super.take(most);
    this.#bridge.left(taken?.length ?? 0);
    return taken;
  }

  override sent(): void {
    if (this.isEnded) this.#session.passed(this);
  }
}

/** One connection. */
export class Session implements Carrier {
  readonly address: string;
  readonly window: number;
  readonly #socket: Socket;
  readonly #house: SessionHouse;
  readonly #greeted: () => void;
  readonly #outbox: Outbox;
  readonly #reader: FrameReader;
  readonly #sender: Sender;
  readonly #blocks = new Blocks();
  readonly #heads: HeadReader;
  readonly #peer = new PeerSettings("client");
  readonly #idle = new Idle();
  readonly #own = new Map<number, Own>();
  readonly #passing = new Map<number, Passing>();
  #bridge: Bridge | undefined;
  /** Streams of whose sending there is something to tell. */
  #told: CallStream[] = [];
  #prefaceRead = 0;
  #hasSettings = false;
  /** The last stream that was begun, and the last that the client named. */
  #lastId = 0;
  #highestId = 0;
  #receiveWindow: number;
  #isRetired = false;
  #isClosed = false;
  /** Of a DATA frame: whose it is, and what of it is to be handed over the bridge. */
  #receiving: Own | undefined;
  #receivingPassing: Passing | undefined;
  #held: Buffer | undefined;
  #length = 0;
  #empty = 0;
  #served = 0;
  #looks = 0;
  /** Resets before an answer, pings and settings are rare in honest traffic and dear to serve without end. */
  readonly #patience: () => boolean;
  /** Resets of what is answered already cost less. */
  readonly #resets: () => boolean;
  #costs = 0;
  readonly #forgetLooks: () => void;
  #forgetRest: () => void = ignore;

  constructor(socket: Socket, greeted: () => void, house: SessionHouse) {
    const { limits } = house;
    this.#socket = socket;
    this.#house = house;
    this.#greeted = greeted;
    this.address = socket.remoteAddress ?? "";
    this.window = limits.streamWindow;
    this.#receiveWindow = limits.sessionWindow;
    this.#patience = budget(limits.patience);
    this.#resets = budget({ burst: limits.patience.burst, perSecond: 5 * limits.patience.perSecond });
    this.#heads = new HeadReader(house.find, limits.maxHeaderSize);
    this.#outbox = new Outbox(socket, this.#onRoom);
    this.#sender = new Sender(this.#outbox, this.#peer, this.#idle);
    this.#reader = new FrameReader({
      dataBegins: (id, length) => this.#dataBegins(id, length),
      data: (_id, bytes) => this.#data(bytes),
      dataEnds: (_id, flags, padding) => this.#dataEnds(flags, padding),
      frame: (type, flags, id, payload) => this.#frame(type, flags, id, payload),
    });
    this.#forgetLooks = every(limits.requestTimeoutMs / LOOKS, this.#look);
    this.#restUnlessUsed(0);
  }

  /** Serves the socket, paused, from its preface. */
  begin(): void {
    const { limits } = this.#house;
    const settings = packSettings(
      [SETTING.push, 0],
      [SETTING.maxStreams, limits.maxSessionStreams],
      [SETTING.streamWindow, limits.streamWindow],
      [SETTING.fieldBytes, limits.maxHeaderSize],
    );
    this.#outbox.frame(FRAME.settings, 0, 0, settings);
    this.#outbox.number(FRAME.windowUpdate, 0, limits.sessionWindow - FIRST_WINDOW);
    this.#outbox.open();
    const gone = (): void => this.#end(CODE.none);
    // A peer that half-closes is gone; else its unfinished streams would hold the connection, and the port's close, for ever.
    this.#socket.allowHalfOpen = false;
    this.#socket.on("data", this.#read).on("end", gone).on("close", gone).on("error", gone);
    this.#socket.resume();
  }

  /** Begins no new streams, and ends with the last one. */
  drain(): void {
    if (this.#isClosed || this.#isRetired) return;
    this.#isRetired = true;
    this.#farewell(CODE.none);
    this.#endIfDone();
  }

  /** As Carrier. */
  head(stream: CallStream, block: Buffer): void {
    this.#sender.block(stream.id, 0, block);
  }

  /** As Carrier. */
  sendNow(stream: CallStream, bytes: Buffer): boolean {
    return this.#sender.sendNow(stream, bytes);
  }

  /** As Carrier. */
  send(stream: CallStream): void {
    this.#sender.send(stream);
    this.#tell();
  }

  /** As Carrier. */
  sent(stream: CallStream): void {
    this.#told.push(stream);
  }

  /** As Carrier. */
  grant(stream: CallStream, bytes: number): void {
    this.#outbox.number(FRAME.windowUpdate, stream.id, bytes);
  }

  /** As Carrier. */
  reset(stream: CallStream, code: number): void {
    this.#outbox.number(FRAME.reset, stream.id, code);
    this.#close(stream);
  }

  /** For what passes: all that node said has been sent. */
  passed(stream: Passing): void {
    if (stream.isLeaving) this.#outbox.number(FRAME.reset, stream.id, CODE.none);
    if (stream.isLeaving || stream.isWhole) this.#forget(stream);
  }

  readonly #onRoom = (): void => {
    this.#sender.pump();
    this.#tell();
    this.#bridge?.flush();
  };

  readonly #read = (chunk: Buffer): void => {
    if (this.#isClosed) return;
    try {
      const from = this.#prefaceRead < PREFACE.length ? this.#preface(chunk) : 0;
      if (from < chunk.length) this.#reader.push(from === 0 ? chunk : chunk.subarray(from));
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      this.#end(error.code);
    }
    if (this.#held !== undefined) this.#pass(false);
    this.#tell();
    this.#bridge?.flush();
  };

  #preface(chunk: Buffer): number {
    const end = Math.min(chunk.length, PREFACE.length - this.#prefaceRead);
    if (chunk.compare(PREFACE, this.#prefaceRead, this.#prefaceRead + end, 0, end) !== 0)
      throw new Fault(CODE.protocol, "no preface");
    this.#prefaceRead += end;
    return end;
  }

  #dataBegins(id: number, length: number): void {
    this.#check(FRAME.data, id, length);
    if (length > this.#receiveWindow) throw new Fault(CODE.flowControl, "more than the connection's window");
    this.#receiveWindow -= length;
    // It is given back at once: each stream's own window holds the client off.
    if (this.#receiveWindow < this.#house.limits.sessionWindow / 2) {
      this.#outbox.number(FRAME.windowUpdate, 0, this.#house.limits.sessionWindow - this.#receiveWindow);
      this.#receiveWindow = this.#house.limits.sessionWindow;
    }
    this.#length = length;
    const own = this.#own.get(id);
    if (own !== undefined) {
      if (own.stream.isWhole) this.#breakOwn(own.stream, CODE.streamClosed);
      else if (!own.stream.admits(length)) this.#breakOwn(own.stream, CODE.flowControl);
      else this.#receiving = own;
      return;
    }
    const passing = this.#passing.get(id);
    if (passing === undefined) this.#stray(id);
    else if (passing.isWhole) this.#breakPassing(passing, CODE.streamClosed);
    else this.#receivingPassing = passing;
  }

  #data(bytes: Buffer): void {
    if (this.#receiving !== undefined) {
      this.#receiving.stream.receive(bytes);
    } else if (this.#receivingPassing !== undefined) {
      if (this.#held !== undefined) this.#pass(false);
      this.#held = bytes;
    }
  }

  #dataEnds(flags: number, padding: number): void {
    const own = this.#receiving;
    const passing = this.#receivingPassing;
    const ends = (flags & FLAG.endStream) !== 0;
    if (this.#length === padding && !ends && ++this.#empty > MOST_EMPTY)
      throw new Fault(CODE.calm, "too much data that is none");
    if (this.#length > padding) this.#empty = Math.max(0, this.#empty - 1);
    this.#receiving = undefined;
    if (own !== undefined) {
      if (padding > 0) own.stream.release(padding);
      if (ends) this.#whole(own.stream);
    } else if (passing !== undefined) {
      // What node never sees it cannot give back.
      if (padding > 0) this.#outbox.number(FRAME.windowUpdate, passing.id, padding);
      if (ends || this.#held !== undefined) this.#pass(ends);
      this.#receivingPassing = undefined;
    }
  }

  /** Hands what is held of a DATA frame over the bridge. */
  #pass(ends: boolean): void {
    const passing = this.#receivingPassing;
    const bytes = this.#held ?? NOTHING;
    this.#held = undefined;
    if (passing === undefined) return;
    this.#bridge?.data(passing.id, ends, bytes);
    if (!ends) return;
    passing.isWhole = true;
    if (passing.isEnded) this.#forget(passing);
  }

  #frame(type: number, flags: number, id: number, payload: Buffer): void {
    this.#check(type, id, payload.length);
    switch (type) {
      case FRAME.headers:
        this.#block(this.#blocks.begin(id, flags, payload));
        break;
      case FRAME.continuation:
        this.#block(this.#blocks.goOn(flags, payload));
        break;
      case FRAME.reset:
        this.#wasReset(id, payload.readUInt32BE(0));
        break;
      case FRAME.settings:
        this.#settings(flags, payload);
        break;
      case FRAME.ping:
        this.#ping(flags, payload);
        break;
      case FRAME.goaway:
        this.#goaway(payload);
        break;
      case FRAME.windowUpdate:
        this.#windowUpdate(id, payload.readUInt32BE(0));
        break;
      case FRAME.pushPromise:
        throw new Fault(CODE.protocol, "a push by a client");
      default: // Priorities, and frames of types that nobody knows, mean nothing.
        this.#idle.spend();
    }
  }

  /** Throws a Fault where such a frame may not stand here. */
  #check(type: number, id: number, length: number): void {
    if (!this.#hasSettings && type !== FRAME.settings) throw new Fault(CODE.protocol, "no settings at first");
    this.#blocks.check(type, id);
    checkPlace(type, id, length);
  }

  #block(block: Block | undefined): void {
    if (block === undefined) return;
    const { stream: id, ends, bytes } = block;
    const head = this.#heads.read(bytes);
    const own = this.#own.get(id);
    const passing = this.#passing.get(id);
    if (own !== undefined) this.#trailers(own.stream, head, ends);
    else if (passing !== undefined) this.#passTrailers(passing, head, ends);
    else if (id <= this.#highestId) this.#stray(id);
    else this.#open(id, head, ends);
  }

  #open(id: number, head: Head, ends: boolean): void {
    if (id % 2 === 0) throw new Fault(CODE.protocol, "a stream of an even number");
    this.#highestId = id;
    if (this.#isRetired) return;
    this.#lastId = id;
    const { maxSessionStreams } = this.#house.limits;
    if (head.isTooLarge) {
      this.#refuse(id, CODE.calm);
    } else if (this.#own.size + this.#passing.size >= maxSessionStreams) {
      this.#refuse(id, CODE.refused);
    } else {
      this.#served++;
      if (head.plain === undefined) this.#passHead(id, head, ends);
      else this.#take(id, head.plain, ends);
    }
  }

  #take(id: number, { named, taker }: NonNullable<Head["plain"]>, ends: boolean): void {
    const stream = new CallStream(this, id, named, this.#peer.streamWindow);
    this.#own.set(id, { stream, taker, since: this.#looks, isLate: false });
    stream.heardBy(taker.open(stream));
    if (ends) this.#whole(stream);
  }

  #trailers(stream: CallStream, head: Head, ends: boolean): void {
    if (stream.isWhole) this.#breakOwn(stream, CODE.streamClosed);
    else if (!ends || head.isTooLarge || head.fields.some(([name]) => name.startsWith(":")))
      this.#breakOwn(stream, CODE.protocol);
    else this.#whole(stream);
  }

  #passHead(id: number, head: Head, ends: boolean): void {
    this.#bridge ??= new Bridge(
      {
        block: (stream, last, block) => this.#answerBlock(stream, last, block),
        data: (stream, last, bytes) => this.#answerData(stream, last, bytes),
        reset: (stream, code) => this.#answerReset(stream, code),
        window: (stream, bytes) => this.#passing.has(stream) && this.#outbox.number(FRAME.windowUpdate, stream, bytes),
        ended: (code) => this.#end(code === CODE.none ? CODE.internal : code),
      },
      (pipe) => this.#house.general(pipe, this.address, "encrypted" in this.#socket),
      this.#peer.streamWindow,
    );
    const passing = new Passing(this, this.#bridge, id, this.#peer.streamWindow);
    passing.isWhole = ends;
    this.#passing.set(id, passing);
    this.#bridge.head(id, ends, head.fields);
  }

  #passTrailers(passing: Passing, head: Head, ends: boolean): void {
    if (passing.isWhole || head.isTooLarge) {
      this.#breakPassing(passing, passing.isWhole ? CODE.streamClosed : CODE.calm);
      return;
    }
    passing.isWhole = ends;
    this.#bridge?.head(passing.id, ends, head.fields);
    if (ends && passing.isEnded) this.#forget(passing);
  }

  #answerBlock(id: number, ends: boolean, block: Buffer): void {
    const passing = this.#passing.get(id);
    if (passing === undefined) return;
    passing.isAnswered = true;
    if (!ends) {
      this.#sender.block(id, 0, block);
      return;
    }
    passing.say(NOTHING, true, Buffer.from(block));
    this.#sender.send(passing);
  }

  #answerData(id: number, ends: boolean, bytes: Buffer): void {
    const passing = this.#passing.get(id);
    if (passing === undefined) {
      this.#bridge?.left(bytes.length);
      return;
    }
    passing.say(bytes, ends);
    this.#sender.send(passing);
  }

  #answerReset(id: number, code: number): void {
    const passing = this.#passing.get(id);
    if (passing === undefined) return;
    // It says that the rest of the request is of no use: the answer goes first.
    if (code === CODE.none && passing.hasMore) {
      passing.isLeaving = true;
      return;
    }
    this.#outbox.number(FRAME.reset, id, code);
    this.#forget(passing);
    if (!passing.isAnswered) this.#tax();
  }

  #wasReset(id: number, code: number): void {
    const own = this.#own.get(id);
    const passing = this.#passing.get(id);
    if (own === undefined && passing === undefined) this.#stray(id);
    if (own === undefined && passing === undefined) return;
    const isAnswered = own?.stream.isAnswered ?? passing?.isAnswered;
    if (own !== undefined) this.#close(own.stream);
    if (passing !== undefined) {
      this.#bridge?.reset(id, code);
      this.#forget(passing);
    }
    if (isAnswered !== true) this.#tax();
    if (!this.#resets()) throw new Fault(CODE.calm, "too many resets");
  }

  #settings(flags: number, payload: Buffer): void {
    if ((flags & FLAG.ack) !== 0) {
      if (payload.length > 0) throw new Fault(CODE.frameSize, "settings in an acknowledgement");
      if (!this.#hasSettings) throw new Fault(CODE.protocol, "no settings at first");
      this.#idle.spend();
      this.#greeted();
      return;
    }
    this.#hasSettings = true;
    const grown = this.#peer.read(payload);
    if (grown !== 0) {
      for (const { stream } of this.#own.values()) this.#grow(stream, grown);
      for (const passing of this.#passing.values()) this.#grow(passing, grown);
      this.#bridge?.streamWindow(this.#peer.streamWindow);
    }
    this.#answer(FRAME.settings);
    this.#tax();
    this.#sender.pump();
  }

  #grow(stream: Outgoing, bytes: number): void {
    stream.sendWindow += bytes;
    if (stream.sendWindow > MAX_WINDOW) throw new Fault(CODE.flowControl, "a window that is too large");
  }

  #ping(flags: number, payload: Buffer): void {
    if ((flags & FLAG.ack) !== 0) {
      this.#idle.spend();
      return;
    }
    this.#answer(FRAME.ping, payload);
    this.#tax();
  }

  #goaway(payload: Buffer): void {
    if (payload.length < GOAWAY_BYTES) throw new Fault(CODE.frameSize, "a farewell of the wrong size");
    this.#idle.spend();
    if (payload.readUInt32BE(4) === CODE.none) this.drain();
    else this.#end(CODE.none);
  }

  #windowUpdate(id: number, bits: number): void {
    const bytes = bits & MAX_WINDOW;
    this.#idle.spend();
    const own = this.#own.get(id)?.stream;
    const passing = this.#passing.get(id);
    const stream = own ?? passing;
    if (id === 0) this.#sender.grow(bytes);
    else if (stream === undefined) this.#stray(id);
    else {
      stream.sendWindow += bytes;
      const code = bytes === 0 ? CODE.protocol : stream.sendWindow > MAX_WINDOW ? CODE.flowControl : undefined;
      if (code === undefined) {
        if (passing !== undefined) this.#bridge?.window(id, bytes);
      } else if (own !== undefined) this.#breakOwn(own, code);
      else if (passing !== undefined) this.#breakPassing(passing, code);
    }
    this.#sender.pump();
  }

  /** What comes for a stream that is gone means nothing. Throws a Fault when it never was. */
  #stray(id: number): void {
    if (id % 2 === 0 || id > this.#highestId) throw new Fault(CODE.protocol, "a stream that never began");
    this.#idle.spend();
  }

  /** Acknowledges what a client may send as often as its patience lasts, as long as it reads that. */
  #answer(type: number, payload?: Buffer): void {
    if (!this.#outbox.answer(type, FLAG.ack, payload))
      throw new Fault(CODE.calm, "questions whose answers nobody reads");
  }

  #tax(): void {
    this.#costs++;
    if (!this.#patience()) this.#end(CODE.calm);
  }

  #refuse(id: number, code: number): void {
    this.#outbox.number(FRAME.reset, id, code);
    this.#tax();
  }

  /** The client broke the protocol on this stream alone. */
  #breakOwn(stream: CallStream, code: number): void {
    this.#outbox.number(FRAME.reset, stream.id, code);
    this.#close(stream);
    this.#tax();
  }

  #breakPassing(passing: Passing, code: number): void {
    this.#outbox.number(FRAME.reset, passing.id, code);
    this.#bridge?.reset(passing.id, code);
    this.#forget(passing);
    this.#tax();
  }

  #whole(stream: CallStream): void {
    stream.whole();
    if (stream.isEnded) this.#close(stream);
  }

  /** Tells of what was sent. */
  #tell(): void {
    while (this.#told.length > 0) {
      const told = this.#told;
      this.#told = [];
      for (const stream of told) {
        if (stream.isEnded && stream.isWhole) this.#close(stream);
        else stream.tellRoom();
      }
    }
  }

  #close(stream: CallStream): void {
    if (!stream.isOpen) return;
    if (this.#receiving?.stream === stream) this.#receiving = undefined;
    this.#own.delete(stream.id);
    this.#sender.forget(stream);
    stream.close();
    this.#endIfDone();
  }

  #forget(passing: Passing): void {
    if (this.#receivingPassing === passing) {
      this.#receivingPassing = undefined;
      this.#held = undefined;
    }
    if (!this.#passing.delete(passing.id)) return;
    this.#sender.forget(passing);
    this.#bridge?.left(passing.queued);
    this.#endIfDone();
  }

  /** Requests that do not come are answered for, as those of HTTP/1 are. */
  readonly #look = (): void => {
    this.#looks++;
    for (const own of this.#own.values()) {
      const { stream, taker, since } = own;
      if (stream.isWhole || taker.endless || own.isLate || this.#looks - since < LOOKS) continue;
      own.isLate = true;
      if (!stream.isAnswered) stream.end(lateAnswer(stream.fields["content-type"]));
      after(LATE_LINGER_MS, () => stream.reset(CODE.none));
    }
  };

  #restUnlessUsed(seen: number): void {
    this.#forgetRest = after(this.#house.limits.idleTimeoutMs, () => {
      if (this.#own.size + this.#passing.size === 0 && this.#served === seen) this.drain();
      else this.#restUnlessUsed(this.#served);
    });
  }

  #endIfDone(): void {
    if (this.#isRetired && this.#own.size + this.#passing.size === 0) this.#end(CODE.none);
  }

  #farewell(code: number): void {
    const payload = Buffer.alloc(GOAWAY_BYTES);
    payload.writeUInt32BE(this.#lastId);
    payload.writeUInt32BE(code, 4);
    this.#outbox.frame(FRAME.goaway, 0, 0, payload);
  }

  /** Ends everything, once; tells the client why as far as it still listens. */
  #end(code: number): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#reader.stop();
    this.#forgetLooks();
    this.#forgetRest();
    if (!this.#isRetired || code !== CODE.none) this.#farewell(code);
    this.#isRetired = true;
    this.#outbox.close();
    this.#hangUp(code);
    this.#bridge?.destroy();
    this.#passing.clear();
    for (const { stream } of this.#own.values()) stream.close();
    this.#own.clear();
    if (this.#costs >= this.#house.limits.patience.burst / 2) this.#house.cutOff(this.address);
    this.#house.left(this);
  }

  /** Not destroyed at once: unread bytes would turn the end into a reset, which can overtake the last words. */
  #hangUp(code: number): void {
    const socket = this.#socket;
    if (socket.destroyed) return;
    // Whoever was cut off is not read any more.
    if (code !== CODE.none) socket.pause();
    socket.end();
    socket.once(
      "close",
      after(LINGER_MS, () => socket.destroy()),
    );
  }
}

const NOTHING = Buffer.alloc(0);
