/** Puts the pieces of one message together. */
import { CodecError } from "./error.ts";

/** Most messages fit, so their room is taken at once; a larger one has to arrive before more is taken for it. */
const FIRST_ROOM = 256 * 1024;

/**
 * Collects pieces, however small, into one buffer. Its room is twice what has arrived (256 KiB at first) and never more
 * than the limit, so a peer that only announces much costs little.
 */
export class Gatherer {
  readonly #limit: number;
  #room: Buffer = Buffer.alloc(0);
  #length = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** The bytes gathered so far. */
  get length(): number {
    return this.#length;
  }

  /** Takes a copy of the piece. Throws CodecError `too_large` when the whole would pass the limit. */
  add(piece: Uint8Array): void {
    const length = this.#length + piece.length;
    if (length > this.#limit) throw new CodecError("too_large");
    if (length > this.#room.length) this.#grow(length);
    this.#room.set(piece, this.#length);
    this.#length = length;
  }

  /** What was gathered, as a view: call it when nothing more is to come. */
  bytes(): Buffer {
    return this.#room.subarray(0, this.#length);
  }

  #grow(needed: number): void {
    const grown = Buffer.allocUnsafeSlow(Math.min(this.#limit, Math.max(FIRST_ROOM, 2 * needed)));
    this.#room.copy(grown, 0, 0, this.#length);
    this.#room = grown;
  }
}
