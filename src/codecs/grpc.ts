/**
 * The framing of gRPC messages inside a body: one flag byte, four length bytes, the message.
 * Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md, "Length-Prefixed-Message".
 */
import { CodecError } from "./error.ts";
import { Gatherer } from "./gatherer.ts";

/** The bytes before each message. */
export const PREFIX = 5;
const COMPRESSED = 1;

/** Returns the message behind its prefix, in a new buffer. */
export function frameMessage(message: Uint8Array, compressed = false): Buffer {
  const frame = Buffer.allocUnsafe(PREFIX + message.length);
  frame[0] = compressed ? 1 : 0;
  frame.writeUInt32BE(message.length, 1);
  frame.set(message, PREFIX);
  return frame;
}

/**
 * Splits a body, as it arrives, into messages. A message that is complete in one chunk is passed on as a view of that chunk; a message that
 * spans chunks is copied.
 */
export class MessageReader {
  readonly #maxBytes: number;
  readonly #deliver: (message: Buffer, compressed: boolean, flag: number) => void;
  readonly #flags: number;
  readonly #announced: ((bytes: number) => void) | undefined;
  #prefixRead = 0;
  #flag = 0;
  #sentFlag = 0;
  #length = 0;
  #partial: Gatherer | undefined;
  #handedOn = false;
  #broken: CodecError | undefined;

  /**
   * Calls `deliver` for each message in order, during the push that completes it. gRPC's reserved flags are `refused`, or `ignored` as in
   * Connect. Calls `announced` with the size of a message that has not arrived complete with its prefix; the push rethrows its errors.
   */
  constructor(
    maxBytes: number,
    deliver: (message: Buffer, compressed: boolean, flag: number) => void,
    reserved: "refused" | "ignored" = "refused",
    announced?: (bytes: number) => void,
  ) {
    this.#flags = reserved === "ignored" ? COMPRESSED : 0xff;
    this.#announced = announced;
    this.#maxBytes = maxBytes;
    this.#deliver = deliver;
  }

  /**
   * Returns whether a view of the chunk was passed on. Throws CodecError `too_large` (more than `maxBytes` announced) or `bad_flag`; after an
   * error it keeps throwing.
   */
  push(chunk: Buffer): boolean {
    if (this.#broken !== undefined) throw this.#broken;
    this.#handedOn = false;
    let at = 0;
    while (at < chunk.length) {
      if (this.#prefixRead === 0) {
        const end = this.#wholeMessage(chunk, at);
        if (end > at) {
          at = end;
          continue;
        }
      }
      if (this.#prefixRead < PREFIX) at = this.#readPrefix(chunk, at);
      if (this.#prefixRead === PREFIX) at = this.#readMessage(chunk, at);
    }
    return this.#handedOn;
  }

  /** Call it at the end of the body. Throws CodecError `truncated` if the body ended inside a message. */
  end(): void {
    if (this.#broken !== undefined) throw this.#broken;
    if (this.#prefixRead > 0) throw this.#break("truncated");
  }

  /** Passes on an uncompressed message that is complete in a chunk, as nearly all are. Returns its end, or `from` for any other message. */
  #wholeMessage(chunk: Buffer, from: number): number {
    const body = from + PREFIX;
    if (body > chunk.length || chunk[from] !== 0) return from;
    const length = chunk[from + 1]! * 0x1000000 + (chunk[from + 2]! << 16) + (chunk[from + 3]! << 8) + chunk[from + 4]!;
    const end = body + length;
    if (end > chunk.length || length > this.#maxBytes) return from;
    this.#handedOn = true;
    this.#deliver(chunk.subarray(body, end), false, 0);
    return end;
  }

  #readPrefix(chunk: Buffer, from: number): number {
    let at = from;
    for (; at < chunk.length && this.#prefixRead < PREFIX; at++, this.#prefixRead++) {
      const byte = chunk[at]!;
      if (this.#prefixRead === 0) {
        this.#sentFlag = byte;
        this.#flag = byte & this.#flags;
      } else this.#length = this.#length * 256 + byte;
    }
    if (this.#flag > COMPRESSED) throw this.#break("bad_flag");
    if (this.#length > this.#maxBytes) throw this.#break("too_large");
    if (this.#prefixRead === PREFIX && this.#length > chunk.length - at) this.#announced?.(this.#length);
    return at;
  }

  #readMessage(chunk: Buffer, from: number): number {
    const end = from + this.#length - (this.#partial?.length ?? 0);
    if (this.#partial === undefined && end <= chunk.length) {
      this.#handedOn = true;
      this.#complete(chunk.subarray(from, end));
    } else if (from < chunk.length) {
      this.#partial ??= new Gatherer(this.#length);
      this.#partial.add(chunk.subarray(from, end));
      if (end <= chunk.length) this.#complete(this.#partial.bytes());
    }
    return Math.min(end, chunk.length);
  }

  #complete(message: Buffer): void {
    const compressed = this.#flag === COMPRESSED;
    this.#prefixRead = 0;
    this.#length = 0;
    this.#partial = undefined;
    this.#deliver(message, compressed, this.#sentFlag);
  }

  #break(reason: "bad_flag" | "too_large" | "truncated"): CodecError {
    this.#broken = new CodecError(reason);
    return this.#broken;
  }
}
