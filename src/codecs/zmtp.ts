/** ZMTP 3.0 as REQ and REP peers without security use it. Source: ZeroMQ RFC 23, https://rfc.zeromq.org/spec/23/. */
import { CodecError } from "./error.ts";
import { Gatherer } from "./gatherer.ts";

const GREETING_BYTES = 64;
const FLAG = { more: 1, long: 2, command: 4 } as const;

/** A peer's greeting: signature, version 3.0, mechanism NULL. */
export const GREETING: Buffer = greeting();

function greeting(): Buffer {
  const bytes = Buffer.alloc(GREETING_BYTES);
  bytes[0] = 0xff;
  bytes[8] = 1;
  bytes[9] = 0x7f;
  bytes[10] = 3;
  bytes.write("NULL", 12, "latin1");
  return bytes;
}

/** A REQ peer's READY command, after the greetings. */
export const READY: Buffer = command("READY", [property("Socket-Type", "REQ"), property("Identity", "")]);

/** A REP peer's READY command. */
export const READY_TO_ANSWER: Buffer = command("READY", [property("Socket-Type", "REP"), property("Identity", "")]);

/** Returns the PONG for a PING with this context. By the RFC a context has at most 16 bytes; a longer one is answered, too. */
export const pong = (context: Uint8Array): Buffer => command("PONG", [context]);

function property(name: string, value: string): Buffer {
  const head = Buffer.from([name.length, ...Buffer.from(name), 0, 0, 0, value.length]);
  return Buffer.concat([head, Buffer.from(value)]);
}

function command(name: string, rest: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat([Buffer.from([name.length]), Buffer.from(name), ...rest]);
  if (body.length < 256) return Buffer.concat([Buffer.from([FLAG.command, body.length]), body]);
  const head = Buffer.alloc(9);
  head[0] = FLAG.command | FLAG.long;
  head.writeBigUInt64BE(BigInt(body.length), 1);
  return Buffer.concat([head, body]);
}

/** Returns a request as REQ sends it, or an answer as REP does: an empty delimiter frame, then the body. */
export function requestHead(bodyBytes: number): Buffer {
  const head = Buffer.alloc(2 + (bodyBytes < 256 ? 2 : 9));
  head[0] = FLAG.more;
  if (bodyBytes < 256) head[3] = bodyBytes;
  else {
    head[2] = FLAG.long;
    head.writeBigUInt64BE(BigInt(bodyBytes), 3);
  }
  return head;
}

/** The handler of a peer's data. */
export interface ZmtpEvents {
  /** The peer's greeting is compatible. */
  onGreeting(): void;
  onCommand(name: string, data: Buffer): void;
  /** A complete message: the joined frames after the delimiter. */
  onMessage(body: Buffer): void;
}

const MAX_COMMAND = 4_096;
/** REP sends two frames; a longer envelope is from a router in between. */
const MAX_FRAMES = 16;

/** Splits a peer's bytes, as they arrive, into greeting, commands and messages. */
export class ZmtpReader {
  readonly #maxBytes: number;
  readonly #events: ZmtpEvents;
  #greeted = false;
  /** The unit being read: the greeting, a frame header, or a frame body. */
  #head = Buffer.alloc(0);
  #flags = 0;
  #left = -1;
  #body: Gatherer | undefined;
  #frames: Buffer[] = [];
  #bytes = 0;

  constructor(maxBytes: number, events: ZmtpEvents) {
    this.#maxBytes = maxBytes;
    this.#events = events;
  }

  /** Whether no greeting, command or message is incomplete. */
  get isBetween(): boolean {
    return this.#left < 0 && this.#head.length === 0 && this.#frames.length === 0;
  }

  /** Throws CodecError: `malformed` (not a ZMTP 3 peer with NULL security, or reserved flags), `too_large`. */
  push(chunk: Buffer): void {
    let rest = chunk;
    while (rest.length > 0) {
      if (!this.#greeted) rest = this.#greeting(rest);
      else if (this.#left < 0) rest = this.#frameHead(rest);
      else rest = this.#frameBody(rest);
    }
  }

  #greeting(chunk: Buffer): Buffer {
    const missing = GREETING_BYTES - this.#head.length;
    this.#head = Buffer.concat([this.#head, chunk.subarray(0, missing)]);
    const { length } = this.#head;
    const isPeer =
      this.#head[0] === 0xff && (length < 10 || (this.#head[9]! & 1) === 1) && (length < 11 || this.#head[10]! >= 3);
    if (!isPeer) throw new CodecError("malformed");
    if (length === GREETING_BYTES) {
      if (!this.#head.toString("latin1", 12, 32).startsWith("NULL\0")) throw new CodecError("unsupported");
      this.#greeted = true;
      this.#head = Buffer.alloc(0);
      this.#events.onGreeting();
    }
    return chunk.subarray(missing);
  }

  #frameHead(chunk: Buffer): Buffer {
    const flags = this.#head[0] ?? chunk[0]!;
    if (flags > 7 || (flags & FLAG.command && flags & FLAG.more)) throw new CodecError("bad_flag");
    const missing = (flags & FLAG.long ? 9 : 2) - this.#head.length;
    this.#head = Buffer.concat([this.#head, chunk.subarray(0, missing)]);
    if (this.#head.length === (flags & FLAG.long ? 9 : 2)) {
      const size = flags & FLAG.long ? Number(this.#head.readBigUInt64BE(1)) : this.#head[1]!;
      const most = flags & FLAG.command ? MAX_COMMAND : this.#maxBytes - this.#bytes;
      if (size > most) throw new CodecError("too_large");
      this.#flags = flags;
      this.#left = size;
      this.#head = Buffer.alloc(0);
      this.#body = new Gatherer(Math.max(1, size));
      if (size === 0) this.#frame(Buffer.alloc(0));
    }
    return chunk.subarray(missing);
  }

  #frameBody(chunk: Buffer): Buffer {
    const piece = chunk.subarray(0, this.#left);
    const isWhole = piece.length === this.#left;
    if (isWhole && this.#body?.length === 0) {
      this.#frame(piece);
    } else {
      this.#body?.add(piece);
      this.#left -= piece.length;
      if (isWhole && this.#body) this.#frame(this.#body.bytes());
    }
    return chunk.subarray(piece.length);
  }

  #frame(body: Buffer): void {
    this.#left = -1;
    this.#body = undefined;
    if (this.#flags & FLAG.command) {
      const length = body[0] ?? 0;
      this.#events.onCommand(body.toString("latin1", 1, 1 + length), body.subarray(1 + length));
      return;
    }
    this.#frames.push(body);
    this.#bytes += body.length;
    if (this.#frames.length > MAX_FRAMES) throw new CodecError("too_many_values");
    if (this.#flags & FLAG.more) return;
    const frames = this.#frames;
    this.#frames = [];
    this.#bytes = 0;
    const envelope = frames.findIndex(({ length }) => length === 0);
    if (envelope < 0) throw new CodecError("malformed");
    const parts = frames.slice(envelope + 1);
    this.#events.onMessage(parts.length === 1 ? parts[0]! : Buffer.concat(parts));
  }
}
