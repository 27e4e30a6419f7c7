/** The settings that both sides of a connection tell each other (RFC 9113 section 6.5). */
import { CODE, Fault, MAX_PAYLOAD } from "./frames.ts";

/** No window may be larger. */
export const MAX_WINDOW = 2 ** 31 - 1;

/** What can be said. */
export const SETTING = {
  tableBytes: 1,
  push: 2,
  maxStreams: 3,
  streamWindow: 4,
  maxPayload: 5,
  fieldBytes: 6,
} as const;
const ENTRY_BYTES = 6;
const LARGEST_MAX_PAYLOAD = 2 ** 24 - 1;
/** What a server that hasn't said its own number is taken to have room for. */
const FIRST_MAX_STREAMS = 100;
/** What every window is before anybody has said otherwise. */
export const FIRST_WINDOW = 65_535;

/** The payload of a frame that tells these. */
export function packSettings(...told: readonly (readonly [setting: number, value: number])[]): Buffer {
  const payload = Buffer.alloc(ENTRY_BYTES * told.length);
  told.forEach(([setting, value], i) => {
    payload.writeUInt16BE(setting, ENTRY_BYTES * i);
    payload.writeUInt32BE(value, ENTRY_BYTES * i + 2);
  });
  return payload;
}

/** What the other side allows. */
export class PeerSettings {
  maxStreams = FIRST_MAX_STREAMS;
  /** What each stream lets in at its beginning. */
  streamWindow = FIRST_WINDOW;
  maxPayload = MAX_PAYLOAD;
  /** It spoke of the table for header fields, and waits to hear that we keep none. */
  changedTable = false;
  readonly #mostPush: number;
  #isFirst = true;

  /** A server may not let itself push; a client may let us. */
  constructor(side: "client" | "server") {
    this.#mostPush = side === "client" ? 1 : 0;
  }

  /**
   * Takes in what a frame says; returns by how much the windows of streams have grown, below zero when they shrank. Throws a Fault for
   * what may not be said.
   */
  read(payload: Buffer): number {
    if (payload.length % ENTRY_BYTES !== 0) throw new Fault(CODE.frameSize, "settings of the wrong size");
    const before = this.streamWindow;
    // Who says nothing of it in the first settings sets no limit.
    if (this.#isFirst) this.maxStreams = Number.POSITIVE_INFINITY;
    this.#isFirst = false;
    for (let at = 0; at < payload.length; at += ENTRY_BYTES) {
      const value = payload.readUInt32BE(at + 2);
      switch (payload.readUInt16BE(at)) {
        case SETTING.tableBytes:
          this.changedTable = true;
          break;
        case SETTING.push:
          if (value > this.#mostPush) throw new Fault(CODE.protocol, "pushes that can't be");
          break;
        case SETTING.maxStreams:
          this.maxStreams = value;
          break;
        case SETTING.streamWindow:
          if (value > MAX_WINDOW) throw new Fault(CODE.flowControl, "a window that is too large");
          this.streamWindow = value;
          break;
        case SETTING.maxPayload:
          if (value < MAX_PAYLOAD || value > LARGEST_MAX_PAYLOAD)
            throw new Fault(CODE.protocol, "a frame size of no kind");
          this.maxPayload = value;
          break;
        default: // what nobody knows means nothing
      }
    }
    return this.streamWindow - before;
  }
}
