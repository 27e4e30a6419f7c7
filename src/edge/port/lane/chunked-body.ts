/** The body of an answer of HTTP/1.1 whose length nobody knows when it begins. */
import { EventEmitter } from "node:events";
import { type Room, taken } from "../../../codecs/slab.ts";

/** The connection that it leaves by. */
interface Way {
  roomFor(size: number): Room;
  /** False, and `drained` later, when the peer should read first. */
  write(part: Buffer, drained: () => void): boolean;
  finish(part: string): void;
}

/** An answer that is sent in chunks: emits `drain` when there is room again, and `close` when the caller has left. */
export class ChunkedBody extends EventEmitter<{ drain: []; close: [] }> {
  readonly #way: Way;
  /** What was not sent yet of the head. */
  #head: string;
  #isOver = false;

  constructor(way: Way, head: string) {
    super();
    this.#way = way;
    this.#head = head;
  }

  /**
   * Sends data, which is copied, between two texts of which each letter is one byte, as a chunk; false when the caller has to read
   * first.
   */
  send(before: string, data: string | Buffer, behind: string): boolean {
    if (this.#isOver) return true;
    const bytes = typeof data === "string" ? Buffer.from(data) : data;
    const length = before.length + bytes.length + behind.length;
    const start = `${this.#head}${length.toString(16)}\r\n${before}`;
    const size = start.length + bytes.length + behind.length + 2;
    this.#head = "";
    const room = this.#way.roomFor(size);
    const from = room.end - size;
    room.block.write(start, from, "latin1");
    room.block.set(bytes, from + start.length);
    room.block.write(`${behind}\r\n`, room.end - behind.length - 2, "latin1");
    return this.#way.write(taken(room, from), this.#drained);
  }

  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#way.finish(`${this.#head}0\r\n\r\n`);
  }

  /** The caller has left. */
  close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.emit("close");
  }

  readonly #drained = (): void => void this.emit("drain");
}
