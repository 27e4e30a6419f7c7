/**
 * The bridge from a connection of the fast layer into node:http2, for every request without a taker. Its frames go on, under their own
 * stream numbers, to a session of node's inside this process, and the answer comes back unchanged. So a general handler can do here all that
 * it can do over HTTP/2, and node judges which requests are sound.
 */
import { Duplex } from "node:stream";
import { PREFACE } from "../../edge/server/preface.ts";
import { Blocks } from "../http2-frames/blocks.ts";
import { CODE, FLAG, FRAME, FrameReader, HEAD_BYTES, MAX_PAYLOAD, putHead } from "../http2-frames/frames.ts";
import { type Field, packFields } from "../http2-frames/hpack.ts";
import { FIRST_WINDOW, packSettings, SETTING } from "../http2-frames/settings.ts";

/** Hears what node answers. */
export interface BridgeHearer {
  /** A packed block, which uses no table; a view that may be used until this returns. */
  block(stream: number, ends: boolean, block: Buffer): void;
  /** Bytes, which stay as they are. */
  data(stream: number, ends: boolean, bytes: Buffer): void;
  reset(stream: number, code: number): void;
  /** The caller may send so many bytes more. */
  window(stream: number, bytes: number): void;
  /** Node has given the session up, for this reason. */
  ended(code: number): void;
}

/** What node may send of all streams together that has not left. */
const WINDOW = 256 << 10;

/** One session inside. */
export class Bridge {
  readonly #hearer: BridgeHearer;
  readonly #pipe: Duplex;
  readonly #blocks = new Blocks();
  readonly #reader: FrameReader;
  /** What is said to node, in one piece for each turn: a request that is reset where it begins never begins there. */
  #said: Buffer[] = [];
  /** What waits for node's settings, and with them its windows. */
  #waiting: Buffer[] | undefined = [];
  #left = 0;
  #held: { stream: number; bytes: Buffer } | undefined;
  #isOver = false;

  /** `accept` serves a connection; `streamWindow` is what each stream lets us send. */
  constructor(hearer: BridgeHearer, accept: (pipe: Duplex) => void, streamWindow: number) {
    this.#hearer = hearer;
    this.#reader = new FrameReader({
      dataBegins: () => undefined,
      data: (stream, bytes) => {
        this.#handOn(false);
        this.#held = { stream, bytes };
      },
      dataEnds: (stream, flags) => {
        const ends = (flags & FLAG.endStream) !== 0;
        if (ends) this.#held ??= { stream, bytes: NOTHING };
        this.#handOn(ends);
      },
      frame: (type, flags, stream, payload) => this.#frame(type, flags, stream, payload),
    });
    this.#pipe = new Duplex({
      read: () => undefined,
      write: (bytes: Buffer, _encoding, done) => {
        if (!this.#isOver) this.#reader.push(bytes);
        this.#handOn(false);
        // Not at once: node is in the middle of saying something.
        if (this.#said.length > 0) setImmediate(() => this.flush());
        done();
      },
    });
    this.#pipe.on("error", () => undefined).once("close", () => this.#over(CODE.none));
    accept(this.#pipe);
    const settings = packSettings([SETTING.tableBytes, 0], [SETTING.push, 0], [SETTING.streamWindow, streamWindow]);
    this.#pipe.push(Buffer.concat([PREFACE, frame(FRAME.settings, 0, 0, settings), number(0, WINDOW - FIRST_WINDOW)]));
  }

  /** A request begins. */
  head(stream: number, ends: boolean, fields: readonly Field[]): void {
    let rest = packFields(fields);
    for (let type: number = FRAME.headers; ; type = FRAME.continuation) {
      const piece = rest.subarray(0, MAX_PAYLOAD);
      rest = rest.subarray(piece.length);
      const flags = (ends && type === FRAME.headers ? FLAG.endStream : 0) | (rest.length === 0 ? FLAG.endHeaders : 0);
      this.#say(frame(type, flags, stream, piece));
      if (rest.length === 0) return;
    }
  }

  /** It goes on; the bytes may be changed when the turn is over. */
  data(stream: number, ends: boolean, bytes: Buffer): void {
    this.#say(frame(FRAME.data, ends ? FLAG.endStream : 0, stream, bytes));
  }

  /** The caller gives it up. */
  reset(stream: number, code: number): void {
    const payload = Buffer.alloc(4);
    payload.writeUInt32BE(code);
    this.#say(frame(FRAME.reset, 0, stream, payload));
  }

  /** The caller reads on. */
  window(stream: number, bytes: number): void {
    this.#say(number(stream, bytes));
  }

  /** Each stream now lets us send so much at its beginning, and those that run as much more or less. */
  streamWindow(bytes: number): void {
    this.#say(frame(FRAME.settings, 0, 0, packSettings([SETTING.streamWindow, bytes])));
  }

  /** So much of what node said has left, or never will. */
  left(bytes: number): void {
    this.#left += bytes;
    if (this.#left < WINDOW / 2) return;
    this.#say(number(0, this.#left));
    this.#left = 0;
  }

  /** Hands on what was said in this turn. */
  flush(): void {
    if (this.#said.length === 0 || this.#isOver) return;
    const bytes = Buffer.concat(this.#said);
    this.#said = [];
    this.#pipe.push(bytes);
  }

  /** The connection is gone. */
  destroy(): void {
    this.#isOver = true;
    this.#reader.stop();
    this.#pipe.destroy();
  }

  /** Hands on what is held of a frame of data, and whether it is the last. */
  #handOn(ends: boolean): void {
    const held = this.#held;
    this.#held = undefined;
    if (held !== undefined) this.#hearer.data(held.stream, ends, held.bytes);
  }

  #say(bytes: Buffer): void {
    (this.#waiting ?? this.#said).push(bytes);
  }

  #frame(type: number, flags: number, stream: number, payload: Buffer): void {
    const isAck = (flags & FLAG.ack) !== 0;
    if (type === FRAME.headers) this.#block(this.#blocks.begin(stream, flags, payload));
    else if (type === FRAME.continuation) this.#block(this.#blocks.goOn(flags, payload));
    else if (type === FRAME.reset) this.#hearer.reset(stream, payload.readUInt32BE(0));
    else if (type === FRAME.windowUpdate && stream !== 0) this.#hearer.window(stream, payload.readUInt32BE(0));
    else if (type === FRAME.settings && !isAck) this.#greeted();
    else if (type === FRAME.ping && !isAck) this.#say(frame(FRAME.ping, FLAG.ack, 0, payload));
    else if (type === FRAME.goaway && payload.readUInt32BE(4) !== CODE.none) this.#over(payload.readUInt32BE(4));
  }

  #block(block: { stream: number; ends: boolean; bytes: Buffer } | undefined): void {
    if (block !== undefined) this.#hearer.block(block.stream, block.ends, block.bytes);
  }

  #greeted(): void {
    this.#said.push(frame(FRAME.settings, FLAG.ack, 0, NOTHING), ...(this.#waiting ?? []));
    this.#waiting = undefined;
  }

  #over(code: number): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#hearer.ended(code);
  }
}

const NOTHING = Buffer.alloc(0);

function frame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const bytes = Buffer.allocUnsafe(HEAD_BYTES + payload.length);
  bytes.set(payload, putHead(bytes, 0, payload.length, type, flags, stream));
  return bytes;
}

function number(stream: number, bytes: number): Buffer {
  const payload = Buffer.alloc(4);
  payload.writeUInt32BE(bytes);
  return frame(FRAME.windowUpdate, 0, stream, payload);
}
