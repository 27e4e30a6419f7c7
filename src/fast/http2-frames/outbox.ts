/** What is to be sent: everything that is said in one turn of the event loop leaves in one write. */
import type { Socket } from "node:net";
import { HEAD_BYTES, putHead } from "./frames.ts";

/** Small frames are gathered in a block, of a size that the connection turns out to need; larger payloads leave as they are. */
const FIRST_BLOCK_BYTES = 1 << 10;
const BLOCK_BYTES = 64 << 10;
/** A payload that is no larger is copied at once. */
export const SMALL_BYTES = 4 << 10;
/** What may wait for the network before nobody should give more. */
const ENOUGH_BYTES = 64 << 10;
/** The same while the peer reads nothing: what waits longest is of least use. */
const ENOUGH_UNREAD_BYTES = 16 << 10;
/** A peer that reads nothing of so much should not be asked for more, nor be heard. */
const FULL_BYTES = 64 << 10;
/** So often one connection writes in a turn of the event loop, each time no more than may wait. */
const MOST_WRITES_A_TURN = 8;
/** A peer that asks for answers and doesn't read them gets no more than so many. */
const MOST_ANSWERS = 10_000;

const NOTHING = Buffer.alloc(0);

/** The frames of one connection on their way out. */
export class Outbox {
  readonly #socket: Socket;
  readonly #onRoom: () => void;
  /** Small frames stand in the block up to `#end`; those from `#start` are in no piece yet. */
  #block: Buffer = NOTHING;
  #blockBytes = FIRST_BLOCK_BYTES / 2;
  #start = 0;
  #end = 0;
  #pieces: Buffer[] = [];
  #bytes = 0;
  /** Frames that the peer asked for, of those that wait. */
  #answers = 0;
  #isDue = false;
  /** The socket may be written to, and has room. */
  #isOpen = false;
  #hasBegun = false;
  #isClosed = false;

  /** `onRoom` is called when there is room again. Nothing is sent before `open`. */
  constructor(socket: Socket, onRoom: () => void) {
    this.#socket = socket;
    this.#onRoom = onRoom;
    socket.on("drain", () => this.open());
  }

  /** Whether it takes more without piling up. */
  get hasRoom(): boolean {
    return this.#bytes < (this.#isOpen || !this.#hasBegun ? ENOUGH_BYTES : ENOUGH_UNREAD_BYTES);
  }

  /** Whether so much waits for a peer who doesn't read that nothing more of its own should be read. */
  get isFull(): boolean {
    return this.#hasBegun && !this.#isOpen && this.#bytes >= FULL_BYTES;
  }

  /** The socket takes bytes, for the first time or again. */
  open(): void {
    if (this.#isClosed) return;
    this.#isOpen = true;
    this.#hasBegun = true;
    this.#flush();
  }

  /** Keeps no block while nothing waits: a connection that is quiet has none, and one that is not makes another. */
  rest(): void {
    if (this.#bytes > 0 || this.#start < this.#end) return;
    this.#block = NOTHING;
    this.#blockBytes = FIRST_BLOCK_BYTES / 2;
    this.#start = 0;
    this.#end = 0;
  }

  /** Sends what there is as far as that can be done at once, and nothing ever after. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (this.#isOpen) this.#send();
    this.#pieces = [];
  }

  /** Bytes that are no frame. */
  bytes(bytes: Buffer): void {
    this.#gather(bytes.length);
    this.#end += bytes.copy(this.#block, this.#end);
    this.#added(bytes.length);
  }

  /** A frame; a large payload has to stay as it is from now on. */
  frame(type: number, flags: number, stream: number, payload: Buffer = NOTHING): void {
    const { length } = payload;
    const isSmall = length <= SMALL_BYTES;
    this.#gather(HEAD_BYTES + (isSmall ? length : 0));
    this.#end = putHead(this.#block, this.#end, length, type, flags, stream);
    if (isSmall) {
      this.#block.set(payload, this.#end);
      this.#end += length;
    } else {
      this.#cut();
      this.#pieces.push(payload);
    }
    this.#added(HEAD_BYTES + length);
  }

  /** The head of a frame, whose payload follows in parts. */
  head(type: number, flags: number, stream: number, length: number): void {
    this.#gather(HEAD_BYTES);
    this.#end = putHead(this.#block, this.#end, length, type, flags, stream);
    this.#added(HEAD_BYTES);
  }

  /** Some of the payload; a large part has to stay as it is from now on. */
  part(bytes: Buffer): void {
    const { length } = bytes;
    if (length <= SMALL_BYTES) {
      this.#gather(length);
      this.#block.set(bytes, this.#end);
      this.#end += length;
    } else {
      this.#cut();
      this.#pieces.push(bytes);
    }
    this.#added(length);
  }

  /** A frame that the peer asked for; false when it has asked for too many and reads none of them. */
  answer(type: number, flags: number, payload?: Buffer): boolean {
    this.frame(type, flags, 0, payload);
    return ++this.#answers <= MOST_ANSWERS;
  }

  /** A frame whose payload is one number of four bytes. */
  number(type: number, stream: number, value: number): void {
    this.#gather(HEAD_BYTES + 4);
    this.#end = putHead(this.#block, this.#end, 4, type, 0, stream);
    this.#end = this.#block.writeUInt32BE(value, this.#end);
    this.#added(HEAD_BYTES + 4);
  }

  /** Room for so many bytes in the block, or in a new one. */
  #gather(bytes: number): void {
    if (this.#end + bytes <= this.#block.length) return;
    this.#cut();
    this.#blockBytes = Math.min(BLOCK_BYTES, 2 * this.#blockBytes);
    this.#block = Buffer.allocUnsafeSlow(Math.max(this.#blockBytes, bytes));
    this.#start = 0;
    this.#end = 0;
  }

  #cut(): void {
    if (this.#end === this.#start) return;
    this.#pieces.push(this.#block.subarray(this.#start, this.#end));
    this.#start = this.#end;
  }

  #added(bytes: number): void {
    this.#bytes += bytes;
    if (this.#isDue || !this.#isOpen) return;
    this.#isDue = true;
    setImmediate(this.#onTurn);
  }

  readonly #onTurn = (): void => {
    this.#isDue = false;
    if (this.#isOpen && !this.#isClosed) this.#flush();
  };

  /** Goes on with what waited for room as long as the network takes it at once: nothing piles up, and no turn passes between. */
  #flush(): void {
    for (let writes = 0; writes < MOST_WRITES_A_TURN; writes++) {
      this.#send();
      if (!this.#isOpen) return;
      this.#onRoom();
      if (this.#bytes === 0 || this.#socket.writableLength > 0) return;
    }
  }

  #send(): void {
    this.#cut();
    const pieces = this.#pieces;
    if (pieces.length === 0) return;
    const socket = this.#socket;
    this.#pieces = [];
    this.#bytes = 0;
    this.#answers = 0;
    if (pieces.length === 1) socket.write(pieces[0]!);
    else {
      socket.cork();
      for (const piece of pieces) socket.write(piece);
      socket.uncork();
    }
    // What has left for good leaves its room to what comes next.
    if (socket.writableLength === 0) this.#start = this.#end = 0;
    this.#isOpen = !socket.writableNeedDrain;
  }
}
