/**
 * The server's side of one HTTP/2 connection (RFC 9113). Requests with a taker run here, from their frames to their frames; every other goes
 * over a bridge to node:http2, under its own stream number. A client that breaks the protocol, or whose frames cost more than they ask for,
 * loses the connection.
 */
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { after, steadyNow } from "../../clock.ts";
import { countRequest, currentTurn, isTurnSpent } from "../../edge/server/event-loop-turn.ts";
import { type From, HEARD_MS, type Http2Limits } from "../../edge/server/http2.ts";
import { Costs } from "../../edge/server/http2-costs.ts";
import { PREFACE } from "../../edge/server/preface.ts";
import { type Slot, slotOf } from "../../edge/server/slots.ts";
import { countArrived } from "../collector.ts";
import { type Block, Blocks } from "../http2-frames/blocks.ts";
import { CODE, Fault, FLAG, FRAME, FrameReader } from "../http2-frames/frames.ts";
import { Outbox } from "../http2-frames/outbox.ts";
import type { OutgoingData } from "../http2-frames/outgoing.ts";
import { checkPlace, FramePatience as Idle } from "../http2-frames/rules.ts";
import { Sender } from "../http2-frames/sender.ts";
import { FIRST_WINDOW, MAX_WINDOW, PeerSettings, packSettings, SETTING } from "../http2-frames/settings.ts";
import { type BridgedConnection, type BridgedRequest, BridgedRequests } from "./bridged-requests.ts";
import type { CallStream, FindTaker } from "./call.ts";
import { Calls } from "./calls.ts";
import { ANY_STREAM, hangUp, LEAVE_PING, packGoaway, readGoaway } from "./goaway.ts";
import { HeadReader, type RequestHead } from "./head.ts";

/** What a session needs of its port. */
export interface SessionDeps {
  readonly limits: Http2Limits;
  readonly find: FindTaker;
  /** Serves a connection inside this process by node:http2, as if it came from elsewhere. */
  general(pipe: Duplex, from: From): void;
  /** A connection of this address was cut off for what it cost. */
  cutOff(address: string): void;
  /** The session has ended. */
  left(session: ServerSession): void;
}

/** Empty frames of data without an end. */
const MOST_EMPTY = 1_000;
/** So many streams of one connection are begun in one turn of the event loop; the rest waits until every other connection was read. */
const MOST_STREAMS_A_TURN = 32;
/** With so many refusals for overload that wait for their turn a connection is not read, and again with half of them. */
const MOST_HELD = 32;
/** A connection that is still not read after this long, in milliseconds, is asked to open its next streams elsewhere. */
const PUSHED_BACK_MS = 5_000;
/** How long a client may read nothing of what makes us stop reading. */
const UNREAD_MS = 30_000;

const ignore = (): void => undefined;

/** One connection. */
export class ServerSession implements BridgedConnection {
  readonly address: string;
  readonly slot: Slot | undefined;
  readonly #socket: Socket;
  readonly #deps: SessionDeps;
  readonly #greeted: () => void;
  readonly outbox: Outbox;
  readonly sender: Sender;
  readonly #reader: FrameReader;
  readonly #blocks = new Blocks();
  readonly #heads: HeadReader;
  readonly #peer = new PeerSettings("client");
  readonly #idle = new Idle();
  readonly #calls: Calls;
  readonly #passage = new BridgedRequests(this);
  readonly #costs: Costs;
  #prefaceRead = 0;
  #hasSettings = false;
  /** The last stream that was begun, and the last that the client named. */
  #lastId = 0;
  #highestId = 0;
  #receiveWindow: number;
  /** The client is to open its next streams elsewhere, and whether it was asked to. */
  #isLeaving = false;
  #isAsked = false;
  /** The connection ends once the client has heard that. */
  #isDraining = false;
  /** No stream is begun any more. */
  #isRetired = false;
  #isClosed = false;
  /** Of a DATA frame: how long it is. */
  #length = 0;
  #empty = 0;
  #served = 0;
  /** Streams that were begun in the turn of this number. */
  #begun = 0;
  #turn = -1;
  /** What was read from the socket, and waits for a turn or for room in the outbox. */
  #kept: Buffer[] = [];
  #waitsFor: "turn" | "room" | "refusals" | undefined;
  /** Refusals that wait for their turn, and since when there were too many. */
  #held = 0;
  #heldSince: number | undefined;
  #isReading = false;
  /** It has cost too much, and ends with the frame that did. */
  #isSpent = false;
  #forgetRest: () => void = ignore;
  #forgetHeard: () => void = ignore;
  #forgetUnread: () => void = ignore;

  constructor(socket: Socket, greeted: () => void, deps: SessionDeps) {
    const { limits } = deps;
    this.address = socket.remoteAddress ?? "";
    this.slot = slotOf(socket);
    this.#socket = socket;
    this.#deps = deps;
    this.#greeted = greeted;
    this.#calls = new Calls(this, limits.streamWindow, limits.requestTimeoutMs);
    this.#receiveWindow = limits.sessionWindow;
    this.#costs = new Costs(limits.patience);
    this.#heads = new HeadReader(deps.find, limits.maxHeaderSize);
    this.outbox = new Outbox(this.#socket, this.#onRoom);
    this.sender = new Sender(this.outbox, this.#peer, this.#idle);
    this.#reader = new FrameReader({
      dataBegins: (id, length) => this.#dataBegins(id, length),
      data: (_id, bytes) => this.#data(bytes),
      dataEnds: (_id, flags, padding) => this.#dataEnds(flags, padding),
      frame: (type, flags, id, payload) => this.#frame(type, flags, id, payload),
    });
    this.#restUnlessUsed(0);
  }

  /** Serves the socket, paused, from its preface. */
  begin(): void {
    const { limits } = this.#deps;
    const settings = packSettings(
      [SETTING.push, 0],
      [SETTING.maxStreams, limits.maxSessionStreams],
      [SETTING.streamWindow, limits.streamWindow],
      [SETTING.fieldBytes, limits.maxHeaderSize],
    );
    this.outbox.frame(FRAME.settings, 0, 0, settings);
    this.outbox.number(FRAME.windowUpdate, 0, limits.sessionWindow - FIRST_WINDOW);
    this.outbox.open();
    const gone = (): void => this.#end(CODE.none);
    // A peer that half-closes is gone; else its unfinished streams would hold the connection, and the port's close, for ever.
    this.#socket.allowHalfOpen = false;
    this.#socket.on("end", gone).on("close", gone).on("error", gone).on("data", this.#read);
    this.#socket.resume();
  }

  /**
   * Asks the client, together with its next answer, to open its next streams elsewhere. Those that it opens here all the same are served.
   * Not at once: clients give up a request that they are about to send when a GOAWAY comes. A client in a conversation is asked at once,
   * for it opens its next stream as soon as the conversation tells it to.
   */
  leave(): void {
    this.#isLeaving = true;
    if (this.#calls.hasConversation) this.#askToLeave();
  }

  #askToLeave(): void {
    if (this.#isClosed || this.#isAsked) return;
    this.#isAsked = true;
    this.#farewell(CODE.none, ANY_STREAM);
  }

  /**
   * Ends the connection with its last stream. A stream that the client opened before it heard of that is served: the GOAWAY that
   * names the last stream follows the client's answer to a PING (RFC 9113, section 6.8).
   */
  drain(): void {
    if (this.#isClosed || this.#isDraining) return;
    this.#askToLeave();
    this.#isDraining = true;
    this.outbox.frame(FRAME.ping, 0, 0, LEAVE_PING);
    this.#forgetHeard = after(HEARD_MS, () => this.#retire());
  }

  #retire(): void {
    if (this.#isClosed || this.#isRetired) return;
    this.#forgetHeard();
    this.#isRetired = true;
    this.#farewell(CODE.none);
    this.#endIfDone();
  }

  /** As PassageWay. */
  get peerWindow(): number {
    return this.#peer.streamWindow;
  }

  /** As PassageWay. */
  accept(pipe: Duplex): void {
    const isSecure = "encrypted" in this.#socket;
    this.#deps.general(pipe, { address: this.address, isSecure, slot: this.slot, refused: () => this.refused() });
  }

  /** As PassageWay. */
  tax(): void {
    if (!this.#costs.spend()) this.#cutOff();
  }

  /** As PassageWay. */
  refused(): void {
    if (!this.#costs.spendRefused()) this.#cutOff();
  }

  /** As PassageWay. A connection that carries a conversation is read all the same: it may be of others. */
  held(change: 1 | -1): void {
    this.#held += change;
    if (this.#held === 0) this.#heldSince = undefined;
    if (change === 1 && this.#held === MOST_HELD && this.#waitsFor !== "room" && !this.#calls.hasConversation) {
      this.#heldSince ??= steadyNow();
      if (steadyNow() - this.#heldSince > PUSHED_BACK_MS) this.#askToLeave();
      this.#waitFor("refusals");
    } else if (change === -1 && this.#waitsFor === "refusals" && this.#held === MOST_HELD / 2) setImmediate(this.#goOn);
  }

  /** Ends a client that costs too much; not in the middle of a frame, whose stream may just begin. */
  #cutOff(): void {
    this.#isSpent = true;
    this.#reader.hold();
    if (!this.#isReading) this.#end(CODE.calm);
  }

  /** As PassageWay. */
  left(): void {
    if (this.#isLeaving) this.#askToLeave();
    this.#endIfDone();
  }

  /** As PassageWay. */
  ended(code: number): void {
    this.#end(code);
  }

  readonly #onRoom = (): void => {
    this.sender.committer();
    this.#calls.tell();
    this.#passage.flush();
    if (this.#waitsFor === "room" && !this.outbox.isFull) this.#goOn();
  };

  readonly #read = (chunk: Buffer): void => {
    countArrived(chunk.length);
    if (this.#isClosed) return;
    this.#kept.push(chunk);
    if (this.#waitsFor !== undefined) return;
    if (isTurnSpent()) this.#waitFor("turn");
    else this.#take();
  };

  readonly #goOnInTurn = (): void => {
    if (this.#waitsFor !== "turn") return;
    if (isTurnSpent()) setImmediate(this.#goOnInTurn);
    else this.#goOn();
  };

  readonly #goOn = (): void => {
    this.#forgetUnread();
    this.#waitsFor = undefined;
    if (this.#isClosed) return;
    this.#take();
    if (this.#waitsFor === undefined && !this.#isClosed) this.#socket.resume();
  };

  /** Reads what was kept, as far as it may. */
  #take(): void {
    this.#isReading = true;
    try {
      while (this.#waitsFor === undefined && !this.#isSpent && this.#kept.length > 0) this.#takeChunk(this.#kept[0]!);
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      this.#end(error.code);
    } finally {
      this.#isReading = false;
    }
    if (this.#isSpent) this.#end(CODE.calm);
    this.#calls.tell();
    this.#passage.flush();
  }

  #takeChunk(chunk: Buffer): void {
    let at = this.#prefaceRead < PREFACE.length ? this.#preface(chunk) : 0;
    if (at < chunk.length) at += this.#reader.push(at === 0 ? chunk : chunk.subarray(at));
    if (at < chunk.length) this.#kept[0] = chunk.subarray(at);
    else this.#kept.shift();
  }

  /** Reads nothing more before it is time for it. */
  #waitFor(what: "turn" | "room" | "refusals"): void {
    this.#waitsFor = what;
    this.#reader.hold();
    this.#socket.pause();
    if (what === "turn") setImmediate(this.#goOnInTurn);
    else if (what === "room") this.#forgetUnread = after(UNREAD_MS, () => this.#end(CODE.calm));
  }

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
    if (this.#receiveWindow < this.#deps.limits.sessionWindow / 2) {
      this.outbox.number(FRAME.windowUpdate, 0, this.#deps.limits.sessionWindow - this.#receiveWindow);
      this.#receiveWindow = this.#deps.limits.sessionWindow;
    }
    this.#length = length;
    const call = this.#calls.get(id);
    const passing = this.#passage.get(id);
    if (call !== undefined) this.#calls.dataBegins(call, length);
    else if (passing !== undefined) this.#passage.dataBegins(passing);
    else this.#stray(id);
  }

  #data(bytes: Buffer): void {
    if (!this.#calls.dataComes(bytes)) this.#passage.dataComes(bytes);
  }

  #dataEnds(flags: number, padding: number): void {
    const ends = (flags & FLAG.endStream) !== 0;
    if (this.#length === padding && !ends && ++this.#empty > MOST_EMPTY)
      throw new Fault(CODE.calm, "too much data that is none");
    if (this.#length > padding) this.#empty = Math.max(0, this.#empty - 1);
    this.#calls.dataEnds(ends, padding);
    this.#passage.dataEnds(ends, padding);
  }

  #frame(type: number, flags: number, id: number, payload: Buffer): void {
    this.#check(type, id, payload.length);
    if (this.outbox.isFull && this.#waitsFor === undefined) this.#waitFor("room");
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
      default: // Priorities, and frames of unknown types, mean nothing.
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
    const call = this.#calls.get(id);
    const passing = this.#passage.get(id);
    if (call !== undefined) this.#calls.trailers(call, head, ends);
    else if (passing !== undefined) this.#passage.trailers(passing, head, ends);
    else if (id <= this.#highestId) this.#stray(id);
    else this.#open(id, head, ends);
  }

  #open(id: number, head: RequestHead, ends: boolean): void {
    if (id % 2 === 0) throw new Fault(CODE.protocol, "a stream of an even number");
    this.#highestId = id;
    this.#countTurn();
    if (this.#isRetired) {
      this.#idle.spend();
      return;
    }
    this.#lastId = id;
    const isFull = this.#size >= this.#deps.limits.maxSessionStreams;
    if (head.isTooLarge || isFull) {
      this.outbox.number(FRAME.reset, id, head.isTooLarge ? CODE.calm : CODE.refused);
      if (!(head.isTooLarge ? this.#costs.spendLarge() : this.#costs.spend())) this.#cutOff();
      return;
    }
    this.#served++;
    if (head.plain === undefined) this.#passage.open(id, head, ends);
    else this.#calls.open(id, head.plain, ends);
  }

  #countTurn(): void {
    countRequest();
    const turn = currentTurn();
    if (turn !== this.#turn) this.#begun = 0;
    this.#turn = turn;
    if (++this.#begun < MOST_STREAMS_A_TURN && !isTurnSpent()) return;
    if (this.#waitsFor === undefined) this.#waitFor("turn");
  }

  #wasReset(id: number, code: number): void {
    const call = this.#calls.get(id);
    const passing = this.#passage.get(id);
    const isAnswered = call?.isAnswered ?? passing?.isAnswered;
    if (call !== undefined) this.#calls.wasReset(call);
    else if (passing !== undefined) this.#passage.wasReset(passing, code);
    if (isAnswered === undefined) {
      this.#stray(id);
      return;
    }
    if (!isAnswered) this.tax();
    if (!this.#costs.spendReset()) this.#cutOff();
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
      this.#calls.settings((stream) => this.#grow(stream, grown));
      this.#passage.settings((stream) => this.#grow(stream, grown));
    }
    this.#answer(FRAME.settings);
    this.tax();
    this.sender.committer();
  }

  #grow(stream: OutgoingData, bytes: number): void {
    stream.sendWindow += bytes;
    if (stream.sendWindow > MAX_WINDOW) throw new Fault(CODE.flowControl, "a window that is too large");
  }

  #ping(flags: number, payload: Buffer): void {
    if ((flags & FLAG.ack) !== 0) {
      this.#idle.spend();
      if (this.#isDraining && payload.equals(LEAVE_PING)) this.#retire();
      return;
    }
    this.#answer(FRAME.ping, payload);
    this.tax();
  }

  #goaway(payload: Buffer): void {
    const code = readGoaway(payload);
    this.#idle.spend();
    if (code === CODE.none) this.drain();
    else this.#end(CODE.none);
  }

  #windowUpdate(id: number, bits: number): void {
    const bytes = bits & MAX_WINDOW;
    this.#idle.spend();
    const call = this.#calls.get(id);
    const passing = this.#passage.get(id);
    const stream = call ?? passing;
    if (id === 0) this.sender.grow(bytes);
    else if (stream === undefined) this.#stray(id);
    else {
      stream.sendWindow += bytes;
      const isBroken = bytes === 0 || stream.sendWindow > MAX_WINDOW;
      if (isBroken) this.#break(call, passing, bytes === 0 ? CODE.protocol : CODE.flowControl);
      else if (passing !== undefined) this.#passage.grew(passing, bytes);
    }
    this.sender.committer();
  }

  #break(call: CallStream | undefined, passing: BridgedRequest | undefined, code: number): void {
    if (call !== undefined) this.#calls.break(call, code);
    else if (passing !== undefined) this.#passage.break(passing, code);
  }

  /** What comes for a stream that is gone means nothing. Throws a Fault when it never was. */
  #stray(id: number): void {
    if (id % 2 === 0 || id > this.#highestId) throw new Fault(CODE.protocol, "a stream that never began");
    this.#idle.spend();
  }

  /** Acknowledges what a client may send as often as its patience lasts, as long as it reads that. */
  #answer(type: number, payload?: Buffer): void {
    if (!this.outbox.answer(type, FLAG.ack, payload))
      throw new Fault(CODE.calm, "questions whose answers nobody reads");
  }

  /** How many streams are open. */
  get #size(): number {
    return this.#calls.size + this.#passage.size;
  }

  #restUnlessUsed(seen: number): void {
    this.#forgetRest = after(this.#deps.limits.idleTimeoutMs, () => {
      if (this.#size === 0 && this.#served === seen) this.drain();
      else this.#restUnlessUsed(this.#served);
    });
  }

  #endIfDone(): void {
    if (this.#isRetired && this.#size === 0) this.#end(CODE.none);
  }

  #farewell(code: number, lastId = this.#lastId): void {
    this.outbox.frame(FRAME.goaway, 0, 0, packGoaway(lastId, code));
  }

  /** Ends everything, once, with a GOAWAY that says why where it can still be sent. */
  #end(code: number): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#reader.stop();
    this.#kept = [];
    this.#forgetRest();
    this.#forgetHeard();
    this.#forgetUnread();
    if (!this.#isRetired || code !== CODE.none) this.#farewell(code);
    this.#isRetired = true;
    this.outbox.close();
    hangUp(this.#socket, code);
    this.#passage.destroy();
    this.#calls.destroy();
    if (code === CODE.calm) this.#deps.cutOff(this.address);
    this.#deps.left(this);
  }
}
