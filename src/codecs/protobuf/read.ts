/**
 * A fast reader for valid protobuf messages. Anything unusual or invalid (an unknown field, another wire type, a map, invalid UTF-8, truncation)
 * is read again by protobuf-es from the start.
 */
import { isUtf8 } from "node:buffer";
import {
  type BinaryReadOptions,
  create,
  type DescField,
  type DescMessage,
  fromBinary,
  type MessageShape,
  ScalarType,
} from "@bufbuild/protobuf";
import { WireType } from "@bufbuild/protobuf/wire";

/** Reads the message in `bytes` as `fromBinary` does with these options, with the same errors. */
export function readMessage<D extends DescMessage>(
  desc: D,
  bytes: Uint8Array,
  options?: Partial<BinaryReadOptions>,
): MessageShape<D> {
  const source = bytes instanceof Buffer ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  const cursor: Cursor = { source, view: undefined, at: 0 };
  try {
    // Sound: the reader was made from this descriptor.
    return readerOf(desc)(cursor, source.length, undefined, 0) as MessageShape<D>;
  } catch (thrown) {
    if (thrown === UNSURE || thrown instanceof RangeError) return fromBinary(desc, bytes, options);
    throw thrown;
  }
}

/** Reads this message with protobuf-es. */
const UNSURE = new Error("unsure");

interface Cursor {
  readonly source: Buffer;
  /** The same bytes as a DataView, created for the first number. */
  view: DataView | undefined;
  at: number;
}

type ReadFields = Record<string, unknown>;
/** Reads the message up to `end` into the given one. */
type Reader = (cursor: Cursor, end: number, known: ReadFields | undefined, depth: number) => ReadFields;
/** Reads one value, whose tag was already read. */
type ReadValue = (cursor: Cursor, known: unknown, depth: number) => unknown;
interface ReadMember {
  readonly wire: WireType;
  put(target: ReadFields, cursor: Cursor, depth: number): void;
}

const MOST_DEPTH = 90;
const readers = new WeakMap<DescMessage, Reader>();

function readerOf(desc: DescMessage): Reader {
  let reader = readers.get(desc);
  if (reader === undefined) {
    reader = compile(desc);
    readers.set(desc, reader);
  }
  return reader;
}

function compile(desc: DescMessage): Reader {
  const members: (ReadMember | undefined)[] = [];
  let ready = false;
  const blank = blankOf(desc);
  return (cursor, end, known, depth) => {
    if (!ready) for (const field of desc.fields) members[field.number] = memberOf(field);
    ready = true;
    if (depth > MOST_DEPTH || end > cursor.source.length) throw UNSURE;
    const target = known ?? blank();
    while (cursor.at < end) {
      const tag = varint(cursor);
      const member = members[tag >>> 3];
      if (member === undefined || member.wire !== (tag & 7)) throw UNSURE;
      member.put(target, cursor, depth);
    }
    if (cursor.at !== end) throw UNSURE;
    return target;
  };
}

/**
 * Returns a function that creates empty messages of a type, with the same shape as from `create`, by copying an empty one, which is much
 * cheaper. Lists, maps and oneofs, which can change in a copy, are created again.
 */
function blankOf(desc: DescMessage): () => ReadFields {
  const template = create(desc) as unknown as ReadFields;
  // An empty byte array cannot change.
  const members = Object.entries(template).filter(
    ([, value]) => typeof value === "object" && value !== null && !(value instanceof Uint8Array),
  );
  const renewals = members.map(([name, value]) => [name, renewalOf(value as object)] as const);
  // Messages of proto2 have their defaults on a prototype.
  const isPlain = Object.getPrototypeOf(template) === Object.prototype;
  if (!isPlain || renewals.some(([, renew]) => renew === undefined)) return () => create(desc) as unknown as ReadFields;
  return () => {
    const blank = { ...template };
    for (const [name, renew] of renewals) blank[name] = renew!();
    return blank;
  };
}

/** Creates an empty value of this kind; undefined for kinds that messages do not have. */
function renewalOf(value: object): (() => unknown) | undefined {
  if (Array.isArray(value)) return () => [];
  const keys = Object.keys(value);
  if (keys.length === 0) return () => ({});
  return keys.length === 1 && keys[0] === "case" ? () => ({ case: undefined }) : undefined;
}

function memberOf(field: DescField): ReadMember | undefined {
  const { localName, oneof } = field;
  if (field.fieldKind === "list") return listOf(field);
  const value = valueReader(field);
  if (value === undefined) return undefined;
  const { wire, read } = value;
  if (oneof === undefined) {
    return {
      wire,
      put(target, cursor, depth) {
        target[localName] = read(cursor, target[localName], depth);
      },
    };
  }
  const name = oneof.localName;
  return {
    wire,
    put(target, cursor, depth) {
      const chosen = target[name] as { case?: string; value?: unknown };
      const known = chosen.case === localName ? chosen.value : undefined;
      target[name] = { case: localName, value: read(cursor, known, depth) };
    },
  };
}

function listOf(field: DescField & { fieldKind: "list" }): ReadMember | undefined {
  const value = valueReader(field);
  if (value === undefined) return undefined;
  const { wire, read } = value;
  // Sound: the value of a list field is a list.
  const items = (target: ReadFields): unknown[] => target[field.localName] as unknown[];
  if (wire === WireType.LengthDelimited) {
    return { wire, put: (target, cursor, depth) => void items(target).push(read(cursor, undefined, depth)) };
  }
  // Numbers arrive packed; other encodings are left to protobuf-es.
  if (field.fieldKind === "list" && field.scalar === ScalarType.DOUBLE)
    return { wire: WireType.LengthDelimited, put: doublesInto(items) };
  return {
    wire: WireType.LengthDelimited,
    put(target, cursor, depth) {
      const list = items(target);
      const end = varint(cursor) + cursor.at;
      if (end > cursor.source.length) throw UNSURE;
      while (cursor.at < end) list.push(read(cursor, undefined, depth));
      if (cursor.at !== end) throw UNSURE;
    },
  };
}

/** The longest lists of frequent messages contain doubles. */
function doublesInto(items: (target: ReadFields) => unknown[]): ReadMember["put"] {
  return (target, cursor) => {
    const list = items(target);
    const length = varint(cursor);
    const { source, at } = cursor;
    const end = at + length;
    if (length % DOUBLE_BYTES !== 0 || end > source.length) throw UNSURE;
    cursor.view ??= new DataView(source.buffer, source.byteOffset, source.length);
    for (let i = at; i < end; i += DOUBLE_BYTES) list.push(cursor.view.getFloat64(i, true));
    cursor.at = end;
  };
}

const DOUBLE_BYTES = 8;

function valueReader(field: DescField): { wire: WireType; read: ReadValue } | undefined {
  if (field.message !== undefined) {
    const desc = field.message;
    // Messages of google.protobuf have special forms inside a message.
    if (desc.typeName.startsWith("google.protobuf.") || field.fieldKind === "map") return undefined;
    let reader: Reader | undefined;
    const read: ReadValue = (cursor, known, depth) => {
      reader ??= readerOf(desc);
      const length = varint(cursor);
      return reader(cursor, cursor.at + length, known as ReadFields | undefined, depth + 1);
    };
    return { wire: WireType.LengthDelimited, read };
  }
  if (field.enum !== undefined) return field.enum.open ? { wire: WireType.Varint, read: int32 } : undefined;
  return field.scalar === undefined || field.fieldKind === "map" ? undefined : SCALARS[field.scalar];
}

/** An unsigned number below 2^32; longer ones are left to protobuf-es. */
function varint(cursor: Cursor): number {
  const { source } = cursor;
  let byte = source[cursor.at++];
  if (byte === undefined) throw UNSURE;
  if (byte < 0x80) return byte;
  let value = byte & 0x7f;
  for (let weight = 0x80; weight <= 0x10000000; weight *= 0x80) {
    byte = source[cursor.at++];
    if (byte === undefined) throw UNSURE;
    value += (byte & 0x7f) * weight;
    if (byte < 0x80) {
      if (value > 0xffffffff) throw UNSURE;
      return value;
    }
  }
  throw UNSURE;
}

const int32: ReadValue = (cursor) => varint(cursor) | 0;

/** Shorter texts are read character by character, which costs less than a call of the decoder. */
const SHORT_TEXT = 24;

function text(cursor: Cursor): string {
  const { source } = cursor;
  const length = varint(cursor);
  const from = cursor.at;
  const end = from + length;
  if (end > source.length) throw UNSURE;
  cursor.at = end;
  if (length <= SHORT_TEXT) {
    let letters = "";
    let i = from;
    for (; i < end; i++) {
      const byte = source[i]!;
      if (byte >= 0x80) break;
      letters += String.fromCharCode(byte);
    }
    if (i === end) return letters;
  }
  if (!isUtf8(source.subarray(from, end))) throw UNSURE;
  return source.toString("utf8", from, end);
}

function bytes(cursor: Cursor): Uint8Array {
  const length = varint(cursor);
  const from = cursor.at;
  cursor.at = from + length;
  if (cursor.at > cursor.source.length) throw UNSURE;
  return new Uint8Array(cursor.source.buffer, cursor.source.byteOffset + from, length);
}

function double(cursor: Cursor): number {
  const value = cursor.source.readDoubleLE(cursor.at);
  cursor.at += 8;
  return value;
}

function float(cursor: Cursor): number {
  const value = cursor.source.readFloatLE(cursor.at);
  cursor.at += 4;
  return value;
}

/** The scalar types of frequent messages. */
const SCALARS: Partial<Record<ScalarType, { wire: WireType; read: ReadValue }>> = {
  [ScalarType.STRING]: { wire: WireType.LengthDelimited, read: text },
  [ScalarType.BYTES]: { wire: WireType.LengthDelimited, read: bytes },
  [ScalarType.BOOL]: { wire: WireType.Varint, read: (cursor) => varint(cursor) !== 0 },
  [ScalarType.INT32]: { wire: WireType.Varint, read: int32 },
  [ScalarType.UINT32]: { wire: WireType.Varint, read: varint },
  [ScalarType.DOUBLE]: { wire: WireType.Bit64, read: double },
  [ScalarType.FLOAT]: { wire: WireType.Bit32, read: float },
};
