/** What goes out on streams: as much as the other side lets in, and no stream before its turn. */
import { CODE, Fault, FLAG, FRAME } from "./frames.ts";
import { NO_TABLE } from "./hpack.ts";
import { type Outbox, SMALL_BYTES } from "./outbox.ts";
import type { OutgoingData } from "./outgoing.ts";
import type { FramePatience } from "./rules.ts";
import { FIRST_WINDOW, MAX_WINDOW, type PeerSettings } from "./settings.ts";

/** No frame of ours is larger, whatever a peer takes: other streams wait while one leaves. */
const LARGEST_PAYLOAD = 64 << 10;

/** The sending side of one connection's streams. */
export class Sender {
  readonly #outbox: Outbox;
  readonly #peer: PeerSettings;
  readonly #patience: FramePatience;
  /** Streams that have more to send than they may; there is none before the first of them. */
  #held: Set<OutgoingData> | undefined;
  #window = FIRST_WINDOW;

  constructor(outbox: Outbox, peer: PeerSettings, patience: FramePatience) {
    this.#outbox = outbox;
    this.#peer = peer;
    this.#patience = patience;
  }

  /** Begins a stream that has its number with a block of header fields. */
  begin(stream: OutgoingData, block: Buffer): void {
    stream.sendWindow = this.#peer.streamWindow;
    this.block(stream.id, 0, block);
    this.send(stream);
  }

  /** A packed block of header fields, which ends the stream where `flags` say so. */
  block(id: number, flags: number, block: Buffer): void {
    let rest = this.#peer.changedTable ? Buffer.concat([NO_TABLE, block]) : block;
    this.#peer.changedTable = false;
    if (rest.length <= this.#peer.maxPayload) {
      this.#outbox.frame(FRAME.headers, flags | FLAG.endHeaders, id, rest);
      return;
    }
    for (let type: number = FRAME.headers; rest.length > 0; type = FRAME.continuation) {
      const piece = rest.subarray(0, this.#peer.maxPayload);
      rest = rest.subarray(piece.length);
      const ends = type === FRAME.headers ? flags : 0;
      this.#outbox.frame(type, rest.length === 0 ? ends | FLAG.endHeaders : ends, id, piece);
    }
  }

  /** Sends what a stream has as far as it may go; the rest when it may. */
  send(stream: OutgoingData): void {
    if (stream.id === 0) return;
    while (stream.hasMore && this.#frame(stream));
    if (!stream.hasMore) return;
    this.#held ??= new Set();
    this.#held.add(stream);
  }

  /** Sends bytes of a stream that has nothing queued, at once or not at all; they may be changed when this returns. */
  sendNow(stream: OutgoingData, bytes: Buffer): boolean {
    const { length } = bytes;
    if (length > this.#window || length > stream.sendWindow || length > SMALL_BYTES || !this.#outbox.hasRoom)
      return false;
    this.#window -= length;
    stream.sendWindow -= length;
    this.#outbox.frame(FRAME.data, 0, stream.id, bytes);
    this.#patience.earn();
    return true;
  }

  /** Sends what is held back as far as it may go, a frame of each stream in turn. */
  committer(): void {
    const held = this.#held;
    if (held === undefined) return;
    let stuck = 0;
    for (const stream of held) {
      if (stuck === held.size) return;
      stuck = this.#frame(stream) ? 0 : stuck + 1;
      // To the end of the line, where this loop meets it again.
      held.delete(stream);
      if (stream.hasMore) held.add(stream);
    }
  }

  /** The other side lets in more on the connection. Throws a Fault when that is more than there can be. */
  grow(bytes: number): void {
    this.#window += bytes;
    if (bytes === 0) throw new Fault(CODE.protocol, "a window that grows by nothing");
    if (this.#window > MAX_WINDOW) throw new Fault(CODE.flowControl, "a window that is too large");
  }

  /** The stream sends nothing more. */
  forget(stream: OutgoingData): void {
    this.#held?.delete(stream);
  }

  /** Sends so many bytes of what a stream has queued in one frame, from however many pieces. */
  #data(stream: OutgoingData, length: number): void {
    this.#window -= length;
    stream.sendWindow -= length;
    if (length === stream.queued && stream.endsAfterData) stream.isEnded = true;
    this.#outbox.head(FRAME.data, stream.isEnded ? FLAG.endStream : 0, stream.id, length);
    for (let left = length; left > 0; ) {
      const piece = stream.take(left)!;
      this.#outbox.part(piece);
      left -= piece.length;
    }
  }

  /** Sends as much of a stream as one frame may carry; false when that is nothing. */
  #frame(stream: OutgoingData): boolean {
    const most = Math.min(this.#window, stream.sendWindow, this.#peer.maxPayload, LARGEST_PAYLOAD);
    if (stream.queued > 0 && (most <= 0 || !this.#outbox.hasRoom)) return false;
    if (stream.queued > 0 || stream.endsWithData) this.#data(stream, Math.min(most, stream.queued));
    const { trailers } = stream;
    if (trailers !== undefined) {
      stream.isEnded = true;
      this.block(stream.id, FLAG.endStream, trailers);
    }
    this.#patience.earn();
    stream.sent();
    return true;
  }
}
