/** The settings that both sides of a connection tell each other (RFC 9113 section 6.5). */
import { CODE, Fault, MAX_PAYLOAD } from "./frames.ts";
import { STREAM_WINDOW } from "./stream.ts";

/** No window may be larger. */
export const MAX_WINDOW = 2 ** 31 - 1;

const SETTING = { tableBytes: 1, push: 2, maxStreams: 3, streamWindow: 4, maxPayload: 5 } as const;
const ENTRY_BYTES = 6;
const LARGEST_MAX_PAYLOAD = 2 ** 24 - 1;
/** What a server that hasn't said its own number is taken to have room for. */
const FIRST_MAX_STREAMS = 100;
/** What every window is before anybody has said otherwise. */
export const FIRST_WINDOW = 65_535;

/** What we tell: no pushes, and how much a stream lets in. */
export const OUR_SETTINGS = Buffer.alloc(2 * ENTRY_BYTES);
OUR_SETTINGS.writeUInt16BE(SETTING.push, 0);
OUR_SETTINGS.writeUInt16BE(SETTING.streamWindow, ENTRY_BYTES);
OUR_SETTINGS.writeUInt32BE(STREAM_WINDOW, ENTRY_BYTES + 2);

/** What the other side allows. */
export class PeerSettings {
  maxStreams = FIRST_MAX_STREAMS;
  /** What each stream lets in at its beginning. */
  streamWindow = FIRST_WINDOW;
  maxPayload = MAX_PAYLOAD;
  /** It spoke of the table for header fields, and waits to hear that we keep none. */
  changedTable = false;
  #isFirst = true;

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
          if (value !== 0) throw new Fault(CODE.protocol, "a server that lets itself push");
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
