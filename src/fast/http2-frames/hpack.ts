/** How header fields are packed (RFC 7541). What arrives is unpacked in full; what we send is written in the plainest form, so that a block can be kept. */
import { CODE, Fault } from "./frames.ts";
import { readHuffman } from "./huffman.ts";

/** A field: its name in small letters, and its value, a character for each byte. */
export type Field = readonly [name: string, value: string];

/** Appendix A; its first entry has the index 1. */
const STATIC: readonly Field[] = (
  ":authority|:method GET|:method POST|:path /|:path /index.html|:scheme http|:scheme https|:status 200|:status 204|" +
  ":status 206|:status 304|:status 400|:status 404|:status 500|accept-charset|accept-encoding gzip, deflate|" +
  "accept-language|accept-ranges|accept|access-control-allow-origin|age|allow|authorization|cache-control|" +
  "content-disposition|content-encoding|content-language|content-length|content-location|content-range|content-type|" +
  "cookie|date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|" +
  "last-modified|link|location|max-forwards|proxy-authenticate|proxy-authorization|range|referer|refresh|retry-after|" +
  "server|set-cookie|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate"
)
  .split("|")
  .map((each) => {
    const [, name = "", value = ""] = /^(\S+) ?(.*)$/.exec(each) ?? [];
    return [name, value];
  });

/** The table that a peer may use, as every peer takes it that is told nothing else. */
const TABLE_BYTES = 4_096;
/** What an entry counts beside its letters (section 4.1). */
const ENTRY_BYTES = 32;
/** Bits of a number that go on after its first byte; more than 2^28 is nothing's length or index. */
const MOST_BITS = 28;

const NOTHING: Buffer = Buffer.alloc(0);

/** Unpacks the blocks of one connection, which share a table: none may be left out. */
export class FieldReader {
  /** The newest last. */
  readonly #table: Field[] = [];
  #size = 0;
  #most = TABLE_BYTES;
  /** How often the table has changed: a block that left it as it was says the same as long as nobody else changes it. */
  changes = 0;
  #block = NOTHING;
  #at = 0;

  /** Tells of each field of a whole block, in order. Throws a Fault for one that can't be read. */
  read(block: Buffer, tell: (name: string, value: string) => void): void {
    this.#block = block;
    this.#at = 0;
    let begun = false;
    while (this.#at < block.length) {
      const first = block[this.#at]!;
      if (first >= 0x20 && first < 0x40) {
        if (begun) throw broken("the table's size in the middle of a block");
        this.#resize(this.#number(5));
        continue;
      }
      begun = true;
      const field = first >= 0x80 ? this.#indexed(this.#number(7)) : this.#literal(first);
      tell(field[0], field[1]);
    }
    // It is a view of all that came with it.
    this.#block = NOTHING;
  }

  #literal(first: number): Field {
    const isKept = first >= 0x40;
    const index = this.#number(isKept ? 6 : 4);
    const name = index === 0 ? this.#text() : this.#indexed(index)[0];
    const field: Field = [name, this.#text()];
    if (isKept) this.#keep(field);
    return field;
  }

  #indexed(index: number): Field {
    const field = index <= STATIC.length ? STATIC[index - 1] : this.#table.at(STATIC.length - index);
    if (field === undefined) throw broken("an index of nothing");
    return field;
  }

  #keep(field: Field): void {
    this.changes++;
    const size = sizeOf(field);
    this.#evict(this.#most - size);
    if (size > this.#most) return;
    this.#table.push(field);
    this.#size += size;
  }

  #resize(most: number): void {
    if (most > TABLE_BYTES) throw broken("a table that is too large");
    this.changes++;
    this.#most = most;
    this.#evict(most);
  }

  #evict(down: number): void {
    while (this.#size > Math.max(0, down)) this.#size -= sizeOf(this.#table.shift()!);
  }

  #text(): string {
    const isCoded = this.#byte() >= 0x80;
    const length = this.#number(7);
    const from = this.#at;
    this.#at += length;
    if (this.#at > this.#block.length) throw broken("a text that is longer than its block");
    return isCoded ? readHuffman(this.#block.subarray(from, this.#at)) : this.#block.toString("latin1", from, this.#at);
  }

  /** A number that begins in the last `bits` bits of a byte (section 5.1). */
  #number(bits: number): number {
    const full = (1 << bits) - 1;
    let value = this.#byte() & full;
    this.#at++;
    if (value < full) return value;
    for (let shift = 0; shift < MOST_BITS; shift += 7) {
      const byte = this.#byte();
      this.#at++;
      value += (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw broken("a number that is too large");
  }

  #byte(): number {
    const byte = this.#block[this.#at];
    if (byte === undefined) throw broken("a block that ends in a field");
    return byte;
  }
}

const broken = (message: string): Fault => new Fault(CODE.compression, message);

const sizeOf = ([name, value]: Field): number => ENTRY_BYTES + name.length + value.length;

/** The smallest block that says we keep no table, as a peer may ask to be told that changed what it allows. */
export const NO_TABLE = Buffer.of(0x20);

const INDEX_OF_NAME: ReadonlyMap<string, number> = new Map(
  [...STATIC].reverse().map(([name], i) => [name, STATIC.length - i]),
);
const INDEX_OF_FIELD: ReadonlyMap<string, number> = new Map(
  STATIC.map(([name, value], i) => [`${name} ${value}`, i + 1]),
);
/** Nobody on the way may keep these in a table, where they could be guessed (section 7.1.3). */
const SECRET = new Set(["authorization", "cookie", "proxy-authorization"]);

/** Fields as a part of a block; parts may be put one after another, whenever they were made. */
export function packFields(fields: Iterable<Field>): Buffer {
  const parts: Buffer[] = [];
  for (const [name, value] of fields) {
    const index = INDEX_OF_FIELD.get(`${name} ${value}`);
    if (index !== undefined) {
      parts.push(packNumber(0x80, 7, index));
      continue;
    }
    const named = INDEX_OF_NAME.get(name) ?? 0;
    parts.push(packNumber(SECRET.has(name) ? 0x10 : 0, 4, named));
    if (named === 0) packText(parts, name);
    packText(parts, value);
  }
  return Buffer.concat(parts);
}

/** Where few fields are packed that are made anew each time. */
const SCRATCH = Buffer.allocUnsafeSlow(2 << 10);
/** Names as they are packed: all are our own, so that they are few. */
const PACKED_NAMES = new Map<string, Buffer>();
/** Values that are longer have a length of more than one byte. */
const SHORT = 0x7f;

/** Names and values in turn as a part of a block: a view that may be used until the next call. For names that are our own. */
export function packPairs(pairs: readonly string[]): Buffer {
  let at = 0;
  for (let i = 0; i < pairs.length; i += 2) {
    const value = pairs[i + 1]!;
    const name = packedName(pairs[i]!);
    if (value.length >= SHORT || at + name.length + 1 + value.length > SCRATCH.length) return packSlowly(pairs);
    SCRATCH.set(name, at);
    at += name.length;
    SCRATCH[at++] = value.length;
    at += SCRATCH.write(value, at, "latin1");
  }
  return SCRATCH.subarray(0, at);
}

function packSlowly(pairs: readonly string[]): Buffer {
  const fields: Field[] = [];
  for (let i = 0; i < pairs.length; i += 2) fields.push([pairs[i]!.toLowerCase(), pairs[i + 1]!]);
  return packFields(fields);
}

/** A literal's beginning up to its value. */
function packedName(name: string): Buffer {
  const known = PACKED_NAMES.get(name);
  if (known !== undefined) return known;
  const whole = packFields([[name.toLowerCase(), ""]]);
  const packed = whole.subarray(0, whole.length - 1);
  PACKED_NAMES.set(name, packed);
  return packed;
}

function packText(parts: Buffer[], text: string): void {
  const bytes = Buffer.from(text, "latin1");
  parts.push(packNumber(0, 7, bytes.length), bytes);
}

function packNumber(pattern: number, bits: number, value: number): Buffer {
  const full = (1 << bits) - 1;
  if (value < full) return Buffer.of(pattern | value);
  const bytes = [pattern | full];
  let rest = value - full;
  for (; rest > 0x7f; rest >>>= 7) bytes.push((rest & 0x7f) | 0x80);
  bytes.push(rest);
  return Buffer.from(bytes);
}
