/** MessagePack for test servers, written apart from the gateway's codec so that neither can hide the other's mistake. */

/** Writes null, booleans, numbers, strings of up to 64 KiB, buffers, arrays, and maps whose keys are strings or buffers. */
export function pack(value: unknown): Buffer {
  if (value === null) return Buffer.from([0xc0]);
  if (value === false) return Buffer.from([0xc2]);
  if (value === true) return Buffer.from([0xc3]);
  if (typeof value === "number") return packNumber(value);
  if (typeof value === "string") {
    const text = Buffer.from(value);
    const head = text.length < 256 ? [0xd9, text.length] : [0xda, text.length >> 8, text.length & 0xff];
    return Buffer.concat([Buffer.from(head), text]);
  }
  if (Buffer.isBuffer(value)) {
    const head = value.length < 256 ? Buffer.from([0xc4, value.length]) : sized(0xc6, value.length);
    return Buffer.concat([head, value]);
  }
  if (Array.isArray(value)) return Buffer.concat([sized(0xdd, value.length), ...value.map(pack)]);
  if (value instanceof Map) return Buffer.concat([sized(0xdf, value.size), ...[...value].flat().map(pack)]);
  throw new TypeError("this can't be packed");
}

/** Reads what the gateway may write; keys become strings. */
export function unpack(bytes: Buffer): unknown {
  let at = 0;
  const take = (length: number): Buffer => {
    at += length;
    return bytes.subarray(at - length, at);
  };
  const items = (length: number): unknown[] => Array.from({ length }, () => read());
  const map = (length: number): Map<string, unknown> =>
    new Map(Array.from({ length }, () => [String(read()), read()] as const));
  const read = (): unknown => {
    const head = take(1).readUInt8();
    if (head < 0x80) return head;
    if (head < 0x90) return map(head & 0x0f);
    if (head < 0xa0) return items(head & 0x0f);
    if (head < 0xc0) return take(head & 0x1f).toString();
    if (head >= 0xe0) return head - 256;
    const reader = READERS[head];
    if (reader === undefined) throw new TypeError(`byte ${head.toString(16)} is not known here`);
    return reader({ take, items, map });
  };
  return read();
}

interface Cursor {
  take(length: number): Buffer;
  items(length: number): unknown[];
  map(length: number): Map<string, unknown>;
}

const READERS: Readonly<Record<number, (cursor: Cursor) => unknown>> = {
  192: () => null,
  194: () => false,
  195: () => true,
  196: ({ take }) => take(take(1).readUInt8()),
  197: ({ take }) => take(take(2).readUInt16BE()),
  198: ({ take }) => take(take(4).readUInt32BE()),
  203: ({ take }) => take(8).readDoubleBE(),
  204: ({ take }) => take(1).readUInt8(),
  205: ({ take }) => take(2).readUInt16BE(),
  206: ({ take }) => take(4).readUInt32BE(),
  208: ({ take }) => take(1).readInt8(),
  209: ({ take }) => take(2).readInt16BE(),
  210: ({ take }) => take(4).readInt32BE(),
  217: ({ take }) => take(take(1).readUInt8()).toString(),
  218: ({ take }) => take(take(2).readUInt16BE()).toString(),
  220: ({ take, items }) => items(take(2).readUInt16BE()),
  221: ({ take, items }) => items(take(4).readUInt32BE()),
  222: ({ take, map }) => map(take(2).readUInt16BE()),
  223: ({ take, map }) => map(take(4).readUInt32BE()),
};

function packNumber(value: number): Buffer {
  const bytes = Buffer.alloc(9);
  if (Number.isInteger(value) && value >= 0 && value < 128) return Buffer.from([value]);
  bytes[0] = 0xcb;
  bytes.writeDoubleBE(value, 1);
  return bytes;
}

function sized(head: number, length: number): Buffer {
  const bytes = Buffer.alloc(5);
  bytes[0] = head;
  bytes.writeUInt32BE(length, 1);
  return bytes;
}
