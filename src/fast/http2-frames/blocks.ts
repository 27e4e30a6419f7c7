/** Header blocks, which may come in pieces between which nothing else may stand (RFC 9113 sections 6.2 and 6.10). */
import { CODE, Fault, FLAG, FRAME, withoutPadding } from "./frames.ts";

/** More pieces than this are larger than any block that is read. */
const MOST_CONTINUATIONS = 8;
const PRIORITY_BYTES = 5;

/** A whole block: a head, or trailers. */
export interface Block {
  readonly stream: number;
  /** It ends the stream. */
  readonly ends: boolean;
  /** Its fields, packed: a view that may be used until the next frame. All have to be read, as they share a table. */
  readonly bytes: Buffer;
}

/** Puts the blocks of one connection together. */
export class Blocks {
  #stream = 0;
  #ends = false;
  #parts: Buffer[] = [];

  /** Throws a Fault where a frame stands between the pieces of a block, or is a piece of none. */
  check(type: number, stream: number): void {
    const isPiece = type === FRAME.continuation;
    if (isPiece !== this.#parts.length > 0 || (isPiece && stream !== this.#stream))
      throw new Fault(CODE.protocol, "a header block in pieces that are not its own");
  }

  /** Takes a HEADERS frame; gives its block, if that is whole. Throws a Fault for what can't be read. */
  begin(stream: number, flags: number, payload: Buffer): Block | undefined {
    let piece = withoutPadding(flags, payload);
    if ((flags & FLAG.priority) !== 0) {
      if (piece.length < PRIORITY_BYTES) throw new Fault(CODE.frameSize, "a head without its priority");
      piece = piece.subarray(PRIORITY_BYTES);
    }
    this.#stream = stream;
    this.#ends = (flags & FLAG.endStream) !== 0;
    if ((flags & FLAG.endHeaders) !== 0) return this.#whole(piece);
    this.#parts.push(Buffer.from(piece));
    return undefined;
  }

  /** Takes a CONTINUATION frame. */
  goOn(flags: number, payload: Buffer): Block | undefined {
    this.#parts.push(Buffer.from(payload));
    if (this.#parts.length > 1 + MOST_CONTINUATIONS) throw new Fault(CODE.calm, "a header block in too many pieces");
    return (flags & FLAG.endHeaders) === 0 ? undefined : this.#whole(Buffer.concat(this.#parts.splice(0)));
  }

  #whole(bytes: Buffer): Block {
    return { stream: this.#stream, ends: this.#ends, bytes };
  }
}
