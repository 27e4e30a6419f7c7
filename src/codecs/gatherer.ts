/** Assembles the pieces of one message. */
import { CodecError } from "./error.ts";

/** Allocated at once, because most messages fit. A larger message must arrive before more is allocated. */
const FIRST_ROOM = 256 * 1024;

/**
 * Collects pieces of any size into one buffer. The buffer is at most twice the received size (256 KiB at first) and never above the limit, so a
 * peer that only announces a large message costs little.
 */
export class Gatherer {
  readonly #limit: number;
  #room: Buffer = Buffer.alloc(0);
  #length = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** The collected bytes so far. */
  get length(): number {
    return this.#length;
  }

  /** Copies the piece. Throws CodecError `too_large` if the total would exceed the limit. */
  add(piece: Uint8Array): void {
    const length = this.#length + piece.length;
    if (length > this.#limit) throw new CodecError("too_large");
    if (length > this.#room.length) this.#grow(length);
    this.#room.set(piece, this.#length);
    this.#length = length;
  }

  /** Returns the collected bytes as a view. Call it after the last piece. */
  bytes(): Buffer {
    return this.#room.subarray(0, this.#length);
  }

  #grow(needed: number): void {
    const grown = Buffer.allocUnsafeSlow(Math.min(this.#limit, Math.max(FIRST_ROOM, 2 * needed)));
    this.#room.copy(grown, 0, 0, this.#length);
    this.#room = grown;
  }
}
