/**
 * The frames of HTTP/2 (RFC 9113 section 4). What DATA frames carry is handed on in the pieces in which it arrives, so that it is never
 * copied; every other frame is small, and whole before anybody sees it.
 */

/** Frame types. */
export const FRAME = {
  data: 0,
  headers: 1,
  priority: 2,
  reset: 3,
  settings: 4,
  pushPromise: 5,
  ping: 6,
  goaway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;

/** Flags; what each means depends on the type. */
export const FLAG = { ack: 1, endStream: 1, endHeaders: 4, padded: 8, priority: 32 } as const;

/** Error codes (section 7) that we say or look for. */
export const CODE = {
  none: 0,
  protocol: 1,
  internal: 2,
  flowControl: 3,
  streamClosed: 5,
  frameSize: 6,
  refused: 7,
  cancel: 8,
  compression: 9,
  calm: 11,
} as const;

/** The peer broke the protocol: nothing more on this connection can be trusted. */
export class Fault extends Error {
  override readonly name = "Fault";
  /** One of `CODE`. */
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

/** The bytes before each frame's payload. */
export const HEAD_BYTES = 9;
/** No payload may be larger: what is in force until a peer is told otherwise, and we tell nobody. */
export const MAX_PAYLOAD = 16_384;

/** Writes the head of a frame; returns where its payload begins. */
export function putHead(into: Buffer, at: number, length: number, type: number, flags: number, stream: number): number {
  into[at] = length >> 16;
  into[at + 1] = length >> 8;
  into[at + 2] = length;
  into[at + 3] = type;
  into[at + 4] = flags;
  into[at + 5] = stream >> 24;
  into[at + 6] = stream >> 16;
  into[at + 7] = stream >> 8;
  into[at + 8] = stream;
  return at + HEAD_BYTES;
}

/** The payload of a frame without its padding. Throws a Fault when there is more padding than frame. */
export function withoutPadding(flags: number, payload: Buffer): Buffer {
  if ((flags & FLAG.padded) === 0) return payload;
  const padding = payload[0] ?? payload.length;
  if (padding >= payload.length) throw new Fault(CODE.protocol, "more padding than frame");
  return payload.subarray(1, payload.length - padding);
}

/** Who is told of frames. What is thrown comes out of the `push` that told it. */
export interface FrameSink {
  /** A DATA frame begins whose payload, padding and all, is so long. */
  dataBegins(stream: number, length: number): void;
  /** Some of what it carries, as a view of what arrived. */
  data(stream: number, bytes: Buffer): void;
  /** It has ended; so much of it was padding. */
  dataEnds(stream: number, flags: number, padding: number): void;
  /** Any other frame, a view that may be used until this returns. */
  frame(type: number, flags: number, stream: number, payload: Buffer): void;
}

/** Cuts what arrives into frames. */
export class FrameReader {
  readonly #sink: FrameSink;
  /** There while a head or a payload comes in pieces. */
  #head: Buffer | undefined;
  #payload: Buffer | undefined;
  /** How much of the head, and of a payload that doesn't lie whole in a chunk, was read before this chunk. */
  #headRead = 0;
  #payloadRead = 0;
  #inFrame = false;
  #length = 0;
  #type = 0;
  #flags = 0;
  #stream = 0;
  /** Of a DATA frame: what is still to come of its data and of its padding. */
  #left = 0;
  #padding = 0;
  #paddingLeft = 0;
  #lengthOfPaddingDue = false;
  #stopped = false;
  #held = false;

  constructor(sink: FrameSink) {
    this.#sink = sink;
  }

  /** Nobody is told of anything more, not even of the rest of a chunk. */
  stop(): void {
    this.#stopped = true;
  }

  /** Nobody is told of the frames behind the one that is being told, until they are pushed again. */
  hold(): void {
    this.#held = true;
  }

  /** Returns how many bytes it has read: fewer than there are where it was held meanwhile. Throws a Fault for a frame that is too large. */
  push(chunk: Buffer): number {
    let at = 0;
    this.#held = false;
    while (!this.#stopped && !this.#held) {
      if (!this.#inFrame) {
        at = this.#readHead(chunk, at);
        if (!this.#inFrame) return chunk.length;
      }
      at = this.#type === FRAME.data ? this.#readData(chunk, at) : this.#readWhole(chunk, at);
      if (this.#inFrame) return chunk.length;
    }
    return this.#stopped ? chunk.length : at;
  }

  #readHead(chunk: Buffer, from: number): number {
    const end = from + HEAD_BYTES - this.#headRead;
    if (this.#headRead === 0 && end <= chunk.length) {
      this.#begin(chunk, from);
      return end;
    }
    this.#head ??= Buffer.allocUnsafeSlow(HEAD_BYTES);
    this.#headRead += chunk.copy(this.#head, this.#headRead, from, end);
    if (this.#headRead < HEAD_BYTES) return chunk.length;
    const head = this.#head;
    this.#head = undefined;
    this.#headRead = 0;
    this.#begin(head, 0);
    return end;
  }

  #begin(head: Buffer, at: number): void {
    this.#length = (head[at]! << 16) | (head[at + 1]! << 8) | head[at + 2]!;
    if (this.#length > MAX_PAYLOAD) throw new Fault(CODE.frameSize, "a frame is too large");
    this.#type = head[at + 3]!;
    this.#flags = head[at + 4]!;
    this.#stream = head.readUInt32BE(at + 5) & 0x7fffffff;
    this.#inFrame = true;
    if (this.#type !== FRAME.data) return;
    this.#left = this.#length;
    this.#padding = 0;
    this.#paddingLeft = 0;
    this.#lengthOfPaddingDue = (this.#flags & FLAG.padded) !== 0;
    this.#sink.dataBegins(this.#stream, this.#length);
  }

  #readWhole(chunk: Buffer, from: number): number {
    const end = from + this.#length - this.#payloadRead;
    let payload = chunk;
    if (this.#payloadRead === 0 && end <= chunk.length) {
      payload = chunk.subarray(from, end);
    } else {
      this.#payload ??= Buffer.allocUnsafeSlow(this.#length);
      const pieces = this.#payload;
      this.#payloadRead += chunk.copy(pieces, this.#payloadRead, from, end);
      if (this.#payloadRead < this.#length) return chunk.length;
      payload = pieces.subarray(0, this.#length);
      this.#payloadRead = 0;
    }
    this.#payload = undefined;
    this.#inFrame = false;
    this.#sink.frame(this.#type, this.#flags, this.#stream, payload);
    return end;
  }

  #readData(chunk: Buffer, from: number): number {
    let at = from;
    if (this.#lengthOfPaddingDue) {
      if (this.#length === 0) throw new Fault(CODE.frameSize, "padding without its length");
      if (at === chunk.length) return at;
      this.#paddingLeft = chunk[at++]!;
      this.#padding = this.#paddingLeft + 1;
      this.#left = this.#length - this.#padding;
      this.#lengthOfPaddingDue = false;
      if (this.#left < 0) throw new Fault(CODE.protocol, "more padding than frame");
    }
    const end = Math.min(at + this.#left, chunk.length);
    if (end > at) {
      this.#left -= end - at;
      this.#sink.data(this.#stream, at === 0 && end === chunk.length ? chunk : chunk.subarray(at, end));
    }
    if (this.#left > 0) return end;
    const skipped = Math.min(this.#paddingLeft, chunk.length - end);
    this.#paddingLeft -= skipped;
    if (this.#paddingLeft === 0) {
      this.#inFrame = false;
      if (!this.#stopped) this.#sink.dataEnds(this.#stream, this.#flags, this.#padding);
    }
    return end + skipped;
  }
}
