/** Room for small messages that leave in a moment: a piece of one large block each, which costs less than a block for a few. */

const BLOCK_BYTES = 64 << 10;
/** Larger pieces have a block of their own, so that none is kept from many small ones. */
const MOST_BYTES = 8 << 10;

/** Where a message is to be written: it may take all from `end - most` to `end` of the block. */
export interface Room {
  readonly block: Buffer;
  readonly end: number;
}

let room = { block: Buffer.alloc(0), end: 0 };

/** Room for at most so many bytes, until somebody else asks for some; what was written in it is to be `taken` at once. */
export function roomFor(most: number): Room {
  if (most > MOST_BYTES) return { block: Buffer.allocUnsafeSlow(most), end: most };
  if (room.end < most) room = { block: Buffer.allocUnsafeSlow(BLOCK_BYTES), end: BLOCK_BYTES };
  return room;
}

/** The message that stands in a room from `from` to its end, which is then nobody else's. */
export function taken(from: Room, at: number): Buffer {
  const message = from.block.subarray(at, from.end);
  if (from === room) room.end = at;
  return message;
}
