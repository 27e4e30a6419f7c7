/**
 * Bodies in tiny pieces. Flow control bounds the bytes that a peer sends ahead of its reader, and Node keeps each frame of them as an object
 * of a hundred bytes and more. So the pieces are bounded, too.
 */
import type { Readable } from "node:stream";

/** More pieces than these are not held unread: 64 to a kilobyte in a window of 1 MiB. */
const MOST_PIECES = 16_384;

/** Takes no more pieces once so many wait to be read, and calls `tooMany` in the next turn. `came` gets the bytes of each piece. */
export function boundPieces(body: Readable, tooMany: () => void, came?: (bytes: number) => void): void {
  let held = 0;
  let isOver = false;
  const { push, read } = body;
  body.push = (piece: unknown, encoding?: BufferEncoding) => {
    if (piece instanceof Uint8Array) came?.(piece.length);
    held = body.readableLength === 0 ? 1 : held + 1;
    if (piece === null || (held <= MOST_PIECES && !isOver)) return push.call(body, piece, encoding);
    // Not now: node is in the middle of reading.
    if (!isOver) setImmediate(tooMany);
    isOver = true;
    return false;
  };
  body.read = (size?: number) => {
    const piece: unknown = read.call(body, size);
    // All that waited, or one piece where they are passed on; `push` notices the former.
    if (piece !== null) held--;
    return piece;
  };
}
