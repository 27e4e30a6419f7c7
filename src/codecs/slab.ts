/** Buffers for small, short-lived messages: each is a part of one large block, which costs less than a block for a few. */

const BLOCK_BYTES = 64 << 10;
/** Larger messages get their own block, so that they do not displace many small ones. */
const MOST_BYTES = 8 << 10;

/** A buffer for a message, which may use all bytes from `end - most` to `end` of the block. */
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

/** Returns the message from `from` to the buffer's end; those bytes are not reused. */
export function taken(from: SlabRoom, at: number): Buffer {
  const message = from.block.subarray(at, from.end);
  if (from === room) room.end = at;
  return message;
}

/** Copies long-lived bytes to their own memory: in the pool of Node's small buffers they would retain 8 kB. */
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

/** The previous content was already sent, so the next large message gets the same block. */
export function givenBack({ block }: SlabRoom): void {
  if (block !== room.block && block.length <= MOST_KEPT && block.length > (spare?.length ?? MOST_BYTES)) spare = block;
}
