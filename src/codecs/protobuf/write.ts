/** A fast writer for protobuf messages into one shared buffer. Anything unusual or invalid is written, or refused, by protobuf-es. */
import { type DescField, type DescMessage, type MessageShape, ScalarType, toBinary } from "@bufbuild/protobuf";
import { WireType } from "@bufbuild/protobuf/wire";
import { FeatureSet_FieldPresence } from "@bufbuild/protobuf/wkt";
import { ActionStepSchema } from "../../../gen/limber/v1/action_pb.ts";
import { PREFIX } from "../grpc.ts";

/** Returns the bytes of a message as `toBinary` writes them, after `room` bytes for the caller to fill; throws as `toBinary` does. */
export function writeMessage<D extends DescMessage>(desc: D, message: MessageShape<D>, room = 0): Buffer {
  at = 0;
  try {
    writerOf(desc)(message as unknown as WriteFields);
  } catch (thrown) {
    if (thrown !== UNSURE) throw thrown;
    const bytes = toBinary(desc, message);
    const roomy = Buffer.allocUnsafe(room + bytes.length);
    roomy.set(bytes, room);
    return roomy;
  }
  const written = Buffer.allocUnsafe(room + at);
  out.copy(written, room, 0, at);
  if (out.length > MOST_KEPT) use(Buffer.allocUnsafe(FIRST));
  return written;
}

/** Writes this message with protobuf-es. */
const UNSURE = new Error("unsure");

const FIRST = 64 << 10;
/** A larger buffer is not kept for the next message. */
const MOST_KEPT = 1 << 20;
let out = Buffer.allocUnsafe(FIRST);
let view = viewOf(out);
let at = 0;

type WriteFields = Record<string, unknown>;
type Writer = (message: WriteFields) => void;
/** Writes a value, without its tag. */
type WriteValue = (value: unknown) => void;

/** The same buffer as a DataView, for numbers. */
function viewOf(bytes: Buffer): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
}

function use(bytes: Buffer<ArrayBuffer>): void {
  out = bytes;
  view = viewOf(bytes);
}

/** Ensures space for this many bytes. */
function ensure(bytes: number): void {
  if (at + bytes <= out.length) return;
  const larger = Buffer.allocUnsafe(2 * (at + bytes));
  out.copy(larger, 0, 0, at);
  use(larger);
}

const writers = new WeakMap<DescMessage, Writer>();

function writerOf(desc: DescMessage): Writer {
  let writer = writers.get(desc);
  if (writer === undefined) {
    writer = compile(desc);
    writers.set(desc, writer);
  }
  return writer;
}

function compile(desc: DescMessage): Writer {
  let fields: Writer[] | undefined;
  return (message) => {
    if (message.$typeName !== desc.typeName || message.$unknown !== undefined) throw UNSURE;
    fields ??= [...desc.fields].sort((a, b) => a.number - b.number).map(fieldWriter);
    for (let i = 0; i < fields.length; i++) fields[i]!(message);
  };
}

function fieldWriter(field: DescField): Writer {
  const { localName, oneof } = field;
  if (field.fieldKind === "map") return unlessEmpty(localName);
  if (field.fieldKind === "list") return listWriter(field);
  const write = valueWriter(field);
  if (oneof !== undefined) {
    return (message) => {
      const chosen = message[oneof.localName] as { case?: string; value?: unknown };
      if (chosen.case === localName) write(chosen.value);
    };
  }
  if (field.presence === FeatureSet_FieldPresence.IMPLICIT) {
    const isZero = field.fieldKind === "scalar" ? zeroTest(field.scalar) : (value: unknown) => value === 0;
    return (message) => {
      const value = message[localName];
      if (!isZero(value)) write(value);
    };
  }
  return (message) => {
    const value = message[localName];
    if (value !== undefined) write(value);
  };
}

function unlessEmpty(localName: string): Writer {
  return (message) => {
    for (const _ in message[localName] as object) throw UNSURE;
  };
}

function zeroTest(scalar: ScalarType): (value: unknown) => boolean {
  switch (scalar) {
    case ScalarType.STRING:
      return (value) => value === "";
    case ScalarType.BOOL:
      return (value) => value === false;
    case ScalarType.BYTES:
      return (value) => value instanceof Uint8Array && value.length === 0;
    default:
      return (value) => Object.is(value, 0);
  }
}

function listWriter(field: DescField & { fieldKind: "list" }): Writer {
  // Sound: the value of a list field is a list.
  const items = (message: WriteFields): readonly unknown[] => message[field.localName] as readonly unknown[];
  const scalar = field.scalar === undefined ? undefined : SCALARS[field.scalar];
  if (field.message !== undefined || scalar?.wire === WireType.LengthDelimited) {
    const write = valueWriter(field);
    const all: Writer = (message) => {
      const list = items(message);
      for (let i = 0; i < list.length; i++) write(list[i]);
    };
    return field.message === ActionStepSchema ? stepsWriter(tagOf(field, WireType.LengthDelimited), all) : all;
  }
  if (field.scalar === ScalarType.DOUBLE && field.packed) return doublesWriter(field, items);
  const write = field.enum === undefined ? scalar?.write : int32;
  if (write === undefined || !field.packed) {
    return (message) => {
      if (items(message).length > 0) throw UNSURE;
    };
  }
  const tag = tagOf(field, WireType.LengthDelimited);
  return (message) => {
    const list = items(message);
    if (list.length === 0) return;
    varint(tag);
    delimited(() => {
      for (let i = 0; i < list.length; i++) write(list[i]);
    });
  };
}

/** Packed steps are passed on unchanged; their tags have one byte. */
function stepsWriter(tag: number, write: Writer): Writer {
  return (message) => {
    const packed = tag < 0x80 ? packedIn(message) : undefined;
    if (packed === undefined) return write(message);
    const length = packed.to - packed.from;
    ensure(length);
    copySteps(packed, out, at, tag);
    at += length;
  };
}

/** The longest lists of frequent messages contain doubles. */
function doublesWriter(field: DescField, items: (message: WriteFields) => readonly unknown[]): Writer {
  const tag = tagOf(field, WireType.LengthDelimited);
  return (message) => {
    const list = items(message);
    if (list.length === 0) return;
    varint(tag);
    varint(list.length * DOUBLE_BYTES);
    ensure(list.length * DOUBLE_BYTES);
    for (let i = 0; i < list.length; i++) {
      const value = list[i];
      if (typeof value !== "number") throw UNSURE;
      view.setFloat64(at, value, true);
      at += DOUBLE_BYTES;
    }
  };
}

const DOUBLE_BYTES = 8;

const tagOf = (field: DescField, wire: WireType): number => (field.number << 3) | wire;

/** Writes a value with its tag. */
function valueWriter(field: DescField): WriteValue {
  if (field.message !== undefined) {
    const desc = field.message;
    if (desc.typeName.startsWith("google.protobuf.")) return unsure;
    const tag = tagOf(field, WireType.LengthDelimited);
    let writer: Writer | undefined;
    return (value) => {
      writer ??= writerOf(desc);
      const child = value as WriteFields;
      varint(tag);
      ensure(1);
      const start = at++;
      writer(child);
      sized(start);
    };
  }
  const scalar = field.enum !== undefined ? { wire: WireType.Varint, write: int32 } : SCALARS[field.scalar!];
  if (scalar === undefined) return unsure;
  const tag = tagOf(field, scalar.wire);
  const { write } = scalar;
  return (value) => {
    varint(tag);
    write(value);
  };
}

const unsure: WriteValue = () => {
  throw UNSURE;
};

function delimited(content: () => void): void {
  ensure(1);
  const start = at++;
  content();
  sized(start);
}

/** Writes the length of the data after `start`, for which one byte was reserved: most lengths need no more. */
function sized(start: number): void {
  const length = at - start - 1;
  if (length < 0x80) {
    out[start] = length;
    return;
  }
  const more = length < 0x4000 ? 1 : length < 0x200000 ? 2 : length < 0x10000000 ? 3 : 4;
  ensure(more);
  out.copyWithin(start + 1 + more, start + 1, at);
  const end = at + more;
  at = start;
  varint(length);
  at = end;
}

/** An unsigned number below 2^32. */
function varint(value: number): void {
  ensure(5);
  let rest = value;
  for (; rest > 0x7f; rest >>>= 7) out[at++] = (rest & 0x7f) | 0x80;
  out[at++] = rest;
}

function int32(value: unknown): void {
  if (!Number.isInteger(value) || (value as number) < 0 || (value as number) > 0x7fffffff) throw UNSURE;
  varint(value as number);
}

function uint32(value: unknown): void {
  if (!Number.isInteger(value) || (value as number) < 0 || (value as number) > 0xffffffff) throw UNSURE;
  varint(value as number);
}

/** Shorter texts are written character by character, which costs less than a call of the encoder. */
const SHORT_TEXT = 24;

function text(value: unknown): void {
  if (typeof value !== "string") throw UNSURE;
  const { length } = value;
  ensure(5 + 3 * length);
  const start = at++;
  if (length <= SHORT_TEXT) {
    let i = 0;
    for (; i < length; i++) {
      const letter = value.charCodeAt(i);
      if (letter >= 0x80) break;
      out[at + i] = letter;
    }
    if (i === length) {
      out[start] = length;
      at += length;
      return;
    }
  }
  if (!value.isWellFormed()) throw UNSURE;
  at += out.write(value, at, "utf8");
  sized(start);
}

function bytes(value: unknown): void {
  if (!(value instanceof Uint8Array)) throw UNSURE;
  varint(value.length);
  ensure(value.length);
  out.set(value, at);
  at += value.length;
}

function double(value: unknown): void {
  if (typeof value !== "number") throw UNSURE;
  ensure(8);
  at = out.writeDoubleLE(value, at);
}

/** The scalar types of frequent messages. */
const SCALARS: Partial<Record<ScalarType, { wire: WireType; write: WriteValue }>> = {
  [ScalarType.STRING]: { wire: WireType.LengthDelimited, write: text },
  [ScalarType.BYTES]: { wire: WireType.LengthDelimited, write: bytes },
  [ScalarType.BOOL]: {
    wire: WireType.Varint,
    write: (value) => (typeof value === "boolean" ? varint(value ? 1 : 0) : unsure(value)),
  },
  [ScalarType.INT32]: { wire: WireType.Varint, write: int32 },
  [ScalarType.UINT32]: { wire: WireType.Varint, write: uint32 },
  [ScalarType.DOUBLE]: { wire: WireType.Bit64, write: double },
};

/** Returns a message with its gRPC prefix, in a new buffer. */
export function frameOf<D extends DescMessage>(desc: D, message: MessageShape<D>): Buffer {
  const frame = writeMessage(desc, message, PREFIX);
  frame[0] = 0;
  frame.writeUInt32BE(frame.length - PREFIX, 1);
  return frame;
}

/** Whether all steps have the same length and only finite numbers. */
export interface PackedSteps {
  readonly count: number;
  /** Numbers per step. */
  readonly dim: number;
  /** Consecutive `limber.v1.ActionStep` messages of equal size, each with a tag of one byte and its length. */
  readonly source: Buffer;
  readonly from: number;
  readonly to: number;
}

/** The packed steps of a message that can have them instead of a list. */
export function packedIn(message: object): PackedSteps | undefined {
  return (message as { readonly packed?: PackedSteps | undefined }).packed;
}

/** Copies steps to `to` in `target`, each with another one-byte tag. */
export function copySteps(packed: PackedSteps, target: Buffer, to: number, tag: number): void {
  const { source, from, count } = packed;
  source.copy(target, to, from, packed.to);
  const size = (packed.to - from) / count;
  for (let i = 0, at = to; i < count; i++, at += size) target[at] = tag;
}
