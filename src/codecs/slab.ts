/** Room for small messages that leave in a moment: a piece of one large block each, which costs less than a block for a few. */

const BLOCK_BYTES = 64 << 10;
/** Larger pieces have a block of their own, so that none is kept from many small ones. */
const MOST_BYTES = 8 << 10;

/** Where a message is to be written: it may take all from `end - most` to `end` of the block. */
export interface SlabRoom {
  readonly block: Buffer;
  readonly end: number;
}

let room = { block: Buffer.alloc(0), end: 0 };

/** Returns a buffer of at most this size, valid until the next request; its content must be `taken` at once. */
export function roomFor(most: number): SlabRoom {
  if (most > MOST_BYTES) return largeRoom(most);
  if (room.end < most) room = { block: Buffer.allocUnsafeSlow(BLOCK_BYTES), end: BLOCK_BYTES };
  return room;
}

/** The message in the buffer from `from` to its end, which is not reused. */
export function taken(from: SlabRoom, at: number): Buffer {
  const message = from.block.subarray(at, from.end);
  if (from === room) room.end = at;
  return message;
}

/** Bytes that stay for long, in memory of their own: from the pool of Node's small buffers they would keep eight kilobytes. */
export function ownBytes(bytes: Uint8Array): Buffer {
  const own = Buffer.allocUnsafeSlow(bytes.length);
  own.set(bytes);
  return own;
}

/** A larger block is not kept. */
const MOST_KEPT = 1 << 20;
let spare: Buffer | undefined;

function largeRoom(most: number): SlabRoom {
  const block = spare !== undefined && spare.length >= most ? spare : Buffer.allocUnsafeSlow(most);
  if (block === spare) spare = undefined;
  return { block, end: most };
}

/** What was written in a room has left already: the next large message has its block. */
export function givenBack({ block }: SlabRoom): void {
  if (block !== room.block && block.length <= MOST_KEPT && block.length > (spare?.length ?? MOST_BYTES)) spare = block;
}
