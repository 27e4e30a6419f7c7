/** What goes out on streams: as much as the server lets in, and no stream before its turn. */
import { CODE, Fault, FLAG, FRAME } from "./frames.ts";
import { NO_TABLE } from "./hpack.ts";
import type { Outbox } from "./outbox.ts";
import type { Patience } from "./rules.ts";
import { FIRST_WINDOW, MAX_WINDOW, type PeerSettings } from "./settings.ts";
import type { Stream } from "./stream.ts";

/** No frame of ours is larger, whatever a server takes: other streams wait while one leaves. */
const LARGEST_PAYLOAD = 64 << 10;

/** The sending side of one connection's streams. */
export class Sender {
  readonly #outbox: Outbox;
  readonly #peer: PeerSettings;
  readonly #patience: Patience;
  /** Streams that have more to send than they may. */
  readonly #held = new Set<Stream>();
  #window = FIRST_WINDOW;

  constructor(outbox: Outbox, peer: PeerSettings, patience: Patience) {
    this.#outbox = outbox;
    this.#peer = peer;
    this.#patience = patience;
  }

  /** Begins a stream that has its number with a block of header fields. */
  begin(stream: Stream, block: Buffer): void {
    stream.sendWindow = this.#peer.streamWindow;
    let rest = this.#peer.changedTable ? Buffer.concat([NO_TABLE, block]) : block;
    this.#peer.changedTable = false;
    for (let type: number = FRAME.headers; ; type = FRAME.continuation) {
      const piece = rest.subarray(0, this.#peer.maxPayload);
      rest = rest.subarray(piece.length);
      this.#outbox.frame(type, rest.length === 0 ? FLAG.endHeaders : 0, stream.id, piece);
      if (rest.length === 0) break;
    }
    this.send(stream);
  }

  /** Sends what a stream has as far as it may go; the rest when it may. */
  send(stream: Stream): void {
    if (stream.id === 0) return;
    while (stream.hasMore && this.#frame(stream));
    if (stream.hasMore) this.#held.add(stream);
  }

  /** Sends what is held back as far as it may go, a frame of each stream in turn. */
  pump(): void {
    let stuck = 0;
    for (const stream of this.#held) {
      if (stuck === this.#held.size) return;
      stuck = this.#frame(stream) ? 0 : stuck + 1;
      // To the end of the line, where this loop meets it again.
      this.#held.delete(stream);
      if (stream.hasMore) this.#held.add(stream);
    }
  }

  /** The server lets in more on the connection. Throws a Fault when that is more than there can be. */
  grow(bytes: number): void {
    this.#window += bytes;
    if (bytes === 0) throw new Fault(CODE.protocol, "a window that grows by nothing");
    if (this.#window > MAX_WINDOW) throw new Fault(CODE.flowControl, "a window that is too large");
  }

  /** The stream sends nothing more. */
  forget(stream: Stream): void {
    this.#held.delete(stream);
  }

  /** Sends as much of a stream as one frame may carry; false when that is nothing. */
  #frame(stream: Stream): boolean {
    const most = Math.min(this.#window, stream.sendWindow, this.#peer.maxPayload, LARGEST_PAYLOAD);
    if (stream.queued > 0 && (most <= 0 || !this.#outbox.hasRoom)) return false;
    const bytes = stream.take(most);
    const length = bytes?.length ?? 0;
    this.#window -= length;
    stream.sendWindow -= length;
    this.#outbox.frame(FRAME.data, stream.isEnded ? FLAG.endStream : 0, stream.id, bytes);
    this.#patience.earn();
    return true;
  }
}
