/** The body of an HTTP/1.1 answer whose length is not known when it begins. */

import { EventEmitter } from "node:events";
import { givenBack, type SlabRoom, taken } from "../../codecs/slab.ts";
import type { Outlet } from "../../edge/server/whole-requests.ts";

/** Bytes that wait at most for a reader, beside one chunk: a chunk that cannot be read yet is better not made yet. */
const MOST_UNSENT = 64 << 10;

/** The connection that it leaves by. */
interface ChunkedBodySource {
  /** Whether the peer has not been sent all that was written. */
  readonly isBehind: boolean;
  roomFor(size: number): SlabRoom;
  /** False, and `drained` later, when `most` bytes wait for the peer to read. */
  write(part: Buffer, drained: () => void, most: number): boolean;
  finish(part: string): void;
}

/** An answer that is sent in chunks. */
export class ChunkedBody extends EventEmitter<{ drain: []; close: [] }> implements Outlet {
  readonly #connection: ChunkedBodySource;
  /** The head of the answer, until the first chunk takes it along. */
  #head: string;
  #isOver = false;

  constructor(connection: ChunkedBodySource, head: string) {
    super();
    this.#connection = connection;
    this.#head = head;
  }

  /** Sends data between two texts of which each letter is one byte, as a chunk; false when the caller has to read first. */
  send(before: string, data: string, behind: string): boolean {
    if (this.#isOver) return true;
    const length = before.length + Buffer.byteLength(data) + behind.length;
    const start = `${this.#head}${length.toString(16)}\r\n`;
    this.#head = "";
    const size = start.length + length + END.length;
    const room = this.#connection.roomFor(size);
    const { block } = room;
    const from = room.end - size;
    let at = put(block, put(block, from, start), before);
    at += block.write(data, at);
    put(block, put(block, at, behind), END);
    const hasRoom = this.#connection.write(taken(room, from), this.#drained, MOST_UNSENT);
    if (!this.#connection.isBehind) givenBack(room);
    return hasRoom;
  }

  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#connection.finish(`${this.#head}0${END}${END}`);
  }

  /** The caller has left. */
  close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.emit("close");
  }

  readonly #drained = (): void => void this.emit("drain");
}

const END = "\r\n";

/** Writes a short text letter by letter, for less than the price of having it written; returns where it ends. */
function put(into: Buffer, at: number, text: string): number {
  for (let i = 0; i < text.length; i++) into[at + i] = text.charCodeAt(i);
  return at + text.length;
}
