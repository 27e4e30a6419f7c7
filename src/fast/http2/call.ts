/** A call on an HTTP/2 connection of the fast layer, as its taker sees it: no stream of node's, and nothing made for each message. */
import type { Slot } from "../../edge/server/slots.ts";
import { OutgoingData } from "../http2-frames/outgoing.ts";
import type { HeadFields } from "./head.ts";

/** Answers a call. None of these may throw. */
export interface CallHearer {
  /** More of the request, a view of what arrived. */
  data(bytes: Buffer): void;
  /** The request has ended. */
  end(): void;
  /** The caller, who was behind, has read on. */
  room(): void;
  /** Nothing more comes or goes: both have said all, or one has given up. Once. */
  closed(): void;
}

/** Takes the calls of one kind. */
export interface CallTaker {
  /** Whether the request may take as long as it likes. */
  readonly endless: boolean;
  /** Answers a call. */
  open(stream: CallStream): CallHearer;
}

/** Finds the taker of calls with such a head; undefined leaves them to node:http2. */
export type FindTaker = (head: HeadFields) => CallTaker | undefined;

/** What a call asks of its connection. */
export interface Carrier {
  readonly address: string;
  readonly slot: Slot | undefined;
  /** Bytes that a call may send ahead of its hearer. */
  readonly window: number;
  /** Sends a packed block, in front of everything else. */
  head(stream: CallStream, block: Buffer): void;
  /** Sends bytes at once; false when they have to be queued. */
  sendNow(stream: CallStream, bytes: Buffer): boolean;
  /** There is more to send. */
  send(stream: CallStream): void;
  /** Something that was queued has been sent. */
  sent(stream: CallStream): void;
  /** The caller may send so many bytes more. */
  grant(stream: CallStream, bytes: number): void;
  /** Resets it. */
  reset(stream: CallStream, code: number): void;
  /** A call was refused to its caller. */
  refused(): void;
  /** A call's answer waits for its turn, or does so no longer. */
  held(change: 1 | -1): void;
}

/** So much that waits makes a caller count as behind. */
const BEHIND_BYTES = 16 << 10;
/** Smaller pieces that wait are copied together, in blocks of this size: each of them alone would cost far more than its bytes. */
const VIEW_BYTES = 1 << 10;
const BLOCK_BYTES = 16 << 10;
const NOTHING = Buffer.alloc(0);

/** One call; its connection knows the rest of it. */
export class CallStream extends OutgoingData {
  readonly fields: HeadFields;
  readonly #carrier: Carrier;
  /** False as soon as nothing more can come or go. */
  isOpen = true;
  /** The head of the answer has been sent. */
  isAnswered = false;
  /** The request has come whole. */
  isWhole = false;
  /** Bytes of the body that have not come yet, where its length was named. */
  missing: number | undefined;
  #hearer: CallHearer | undefined;
  #receiveWindow: number;
  #released = 0;
  #isPaused = false;
  /** What came while the call is paused: at most the window, in views of what arrived and in blocks of small pieces. */
  #unheard: Buffer[] = [];
  /** The free rest of the last block. */
  #room = NOTHING;
  /** In the turn of the event loop in which the first of these came. */
  #isSameTurn = false;
  #isEndDue = false;
  #isHeld = false;
  /** The hearer waits for room. */
  #wasBehind = false;

  constructor(carrier: Carrier, id: number, fields: HeadFields, sendWindow: number) {
    super();
    this.#carrier = carrier;
    this.#receiveWindow = carrier.window;
    this.id = id;
    this.fields = fields;
    this.sendWindow = sendWindow;
  }

  /** The address at the other end. */
  get address(): string {
    return this.#carrier.address;
  }

  /** The slot of its connection. */
  get slot(): Slot | undefined {
    return this.#carrier.slot;
  }

  /** What was sent before is not read yet; the hearer's `room` is called when it is. */
  get isBehind(): boolean {
    const isBehind = this.queued >= BEHIND_BYTES;
    if (isBehind) this.#wasBehind = true;
    return isBehind;
  }

  /** Sends the head of the answer, once; `block` may be changed when this returns. */
  respond(block: Buffer): void {
    if (!this.isOpen || this.isAnswered) return;
    this.isAnswered = true;
    this.#carrier.head(this, block);
  }

  /** Sends bytes, which have to stay as they are; false asks to wait for room. */
  write(bytes: Buffer): boolean {
    if (!this.isOpen || this.isEnding) return true;
    if (this.queued === 0 && this.#carrier.sendNow(this, bytes)) return true;
    this.push(bytes);
    this.#carrier.send(this);
    return !this.isBehind;
  }

  /** Sends a packed block of trailers, and nothing more. */
  end(trailers: Buffer): void {
    if (!this.isOpen || this.isEnding) return;
    this.#letGo();
    this.isAnswered = true;
    this.finish(trailers);
    this.#carrier.send(this);
  }

  /** Gives the call up. */
  reset(code: number): void {
    if (this.isOpen) this.#carrier.reset(this, code);
  }

  /** The caller may not make this call: its connection is charged for it. */
  charge(): void {
    this.#carrier.refused();
  }

  /** The answer waits for its turn: the connection is not read while too many do. */
  hold(): void {
    if (this.#isHeld || !this.isOpen || this.isEnding) return;
    this.#isHeld = true;
    this.#carrier.held(1);
  }

  #letGo(): void {
    if (!this.#isHeld) return;
    this.#isHeld = false;
    this.#carrier.held(-1);
  }

  /** Hears nothing for a while. */
  pause(): void {
    this.#isPaused = true;
  }

  /** Hears again, first what came meanwhile. */
  resume(): void {
    this.#isPaused = false;
    while (!this.#isPaused && this.#unheard.length > 0) this.#hear(this.#unheard.shift()!);
    if (!this.#isPaused && this.#isEndDue) this.#end();
  }

  /** For the connection: sets the hearer. */
  heardBy(hearer: CallHearer): void {
    this.#hearer = hearer;
  }

  /** For the connection: counts what the caller sends; false beyond the window. */
  admits(bytes: number): boolean {
    this.#receiveWindow -= bytes;
    return this.#receiveWindow >= 0;
  }

  /** For the connection: more of the request. */
  receive(bytes: Buffer): void {
    if (!this.#isPaused) {
      this.#hear(bytes);
      return;
    }
    // A call with a known key is let in before the turn of the event loop ends, and its pictures need not be copied for that.
    if (this.#unheard.length === 0 && !this.#isSameTurn) {
      this.#isSameTurn = true;
      setImmediate(() => this.#turned());
    }
    if (this.#isSameTurn && bytes.length >= VIEW_BYTES) this.#unheard.push(bytes);
    else this.#keep(bytes);
  }

  /** What waits for longer than a turn has bytes of its own: a few would keep all that arrived with them. */
  #turned(): void {
    this.#isSameTurn = false;
    for (const bytes of this.#unheard.splice(0)) this.#keep(bytes);
  }

  /** Copies bytes behind what waits already, into the same piece where there is room. */
  #keep(bytes: Buffer): void {
    if (bytes.length > this.#room.length) this.#room = Buffer.allocUnsafeSlow(Math.max(BLOCK_BYTES, bytes.length));
    const copy = this.#room.subarray(0, bytes.length);
    copy.set(bytes);
    this.#room = this.#room.subarray(bytes.length);
    const last = this.#unheard.at(-1);
    if (last?.buffer !== copy.buffer || last.byteOffset + last.length !== copy.byteOffset) this.#unheard.push(copy);
    else this.#unheard[this.#unheard.length - 1] = Buffer.from(last.buffer, last.byteOffset, last.length + copy.length);
  }

  /** For the connection: so many bytes are heard, or were never to be. */
  release(bytes: number): void {
    if (!this.isOpen) return;
    this.#released += bytes;
    if (this.#released < this.#carrier.window / 2) return;
    this.#receiveWindow += this.#released;
    this.#carrier.grant(this, this.#released);
    this.#released = 0;
  }

  /** For the connection: the request has come whole. */
  whole(): void {
    this.isWhole = true;
    if (this.#isPaused) this.#isEndDue = true;
    else this.#end();
  }

  /** For the connection: calls the hearer's `room` if it waits for it. */
  tellRoom(): void {
    if (!this.#wasBehind || this.queued > 0) return;
    this.#wasBehind = false;
    this.#hearer?.room();
  }

  /** For the connection: it is over. */
  close(): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.#letGo();
    this.#unheard = [];
    this.#room = NOTHING;
    this.#isEndDue = false;
    this.#hearer?.closed();
  }

  override sent(): void {
    if (this.isEnded || (this.#wasBehind && this.queued === 0)) this.#carrier.sent(this);
  }

  #hear(bytes: Buffer): void {
    this.#hearer?.data(bytes);
    this.release(bytes.length);
  }

  #end(): void {
    this.#isEndDue = false;
    if (this.isOpen) this.#hearer?.end();
  }
}
