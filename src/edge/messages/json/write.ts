/**
 * Messages to the bytes of their REST JSON in one go, without the plain value between: an answer of a control loop is a hundred
 * numbers, and what is made of them on the way is most of its price. It says to the byte what `JSON.stringify` says of `encoderOf`.
 */
import { type DescField, type DescMessage, getOption, type Message, ScalarType } from "@bufbuild/protobuf";
import { inline, nullable } from "../../../../gen/limber/edge/v1/options_pb.ts";
import { ActionStepSchema } from "../../../../gen/limber/v1/action_pb.ts";
import { LONGEST_NUMBER, writeNumber } from "../../../codecs/number-text.ts";
import { type PackedStepsWriter, packedIn } from "../../../codecs/protobuf/packed-steps.ts";
import type { Sliced } from "../../../slices.ts";
import { finite, getterOf, plainOf } from "./encode.ts";

/** The REST JSON of a message, in a buffer that the next call writes over. Throws as the encoder does. */
export function writeJson(desc: DescMessage, message: Message): Buffer {
  at = 0;
  writerOf(desc)(message);
  const written = out.subarray(0, at);
  if (out.length > MOST_KEPT) out = Buffer.allocUnsafe(FIRST);
  return written;
}

/** The same in slices and in a buffer of its own, for answers that may be long: lists of messages are put down between two of them. */
export function* writingJson(desc: DescMessage, message: Message): Sliced<Buffer> {
  const pieces: Buffer[] = [];
  at = 0;
  yield* members(desc, message, pieces);
  pieces.push(Buffer.from(out.subarray(0, at)));
  if (out.length > MOST_KEPT) out = Buffer.allocUnsafe(FIRST);
  return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);
}

/** Bytes that are written between two looks at the clock. */
const PIECE = 32 << 10;

function* members(desc: DescMessage, message: Message, pieces: Buffer[]): Sliced<void> {
  let mark = OPEN;
  for (const member of membersOf(desc)) {
    const value = member.get(message);
    if (value === undefined && !member.nullable) continue;
    begin(mark, member.label);
    mark = COMMA;
    if (value === undefined) ascii("null");
    else if (member.elements)
      yield* elements(member.elements, value as readonly Message[], pieces); // a list of them
    else member.write(value);
  }
  ensure(2);
  if (mark === OPEN) out[at++] = OPEN;
  out[at++] = CLOSE;
}

function* elements(desc: DescMessage, items: readonly Message[], pieces: Buffer[]): Sliced<void> {
  const write = writerOf(desc);
  const isDeep = membersOf(desc).some((member) => member.elements !== undefined);
  for (let i = 0; i < items.length; i++) {
    ensure(1);
    out[at++] = i === 0 ? LIST : COMMA;
    if (isDeep) yield* members(desc, items[i]!, pieces);
    else write(items[i]);
    if (at < PIECE) continue;
    // Others may write before this goes on.
    pieces.push(Buffer.from(out.subarray(0, at)));
    yield;
    at = 0;
  }
  ensure(2);
  if (items.length === 0) out[at++] = LIST;
  out[at++] = LIST_END;
}

const FIRST = 64 << 10;
/** A larger buffer is not kept for the next message. */
const MOST_KEPT = 1 << 20;
let out = Buffer.allocUnsafe(FIRST);
let at = 0;

/** Writes a value; what comes in has the type of the descriptor that the function was compiled from. */
type Write = (value: unknown) => void;

/** Makes sure that so many bytes have room. */
function ensure(bytes: number): void {
  if (at + bytes <= out.length) return;
  const larger = Buffer.allocUnsafe(2 * (at + bytes));
  out.copy(larger, 0, 0, at);
  out = larger;
}

const writers = new WeakMap<DescMessage, Write>();

function writerOf(desc: DescMessage): Write {
  let writer = writers.get(desc);
  if (writer === undefined) {
    writer = getOption(desc, inline) ? inlineWriter(desc) : objectWriter(desc);
    writers.set(desc, writer);
  }
  return writer;
}

function inlineWriter(desc: DescMessage): Write {
  const [only] = desc.fields;
  if (only === undefined) throw new Error(`${desc.typeName} cannot be inline`);
  const get = getterOf(only);
  const write = valueWriter(only);
  return (message) => write(get(message as Message));
}

/** One field of a message: its name between quotes with a colon, how to get it and how to write it. */
interface WriteMember {
  readonly label: Uint8Array;
  readonly get: (message: Message) => unknown;
  readonly write: Write;
  readonly nullable: boolean;
  /** What a list holds that can be put down between two of its messages. */
  readonly elements?: DescMessage;
}

const known = new WeakMap<DescMessage, readonly WriteMember[]>();

function membersOf(desc: DescMessage): readonly WriteMember[] {
  let members = known.get(desc);
  if (members === undefined) {
    members = desc.fields.map(memberOf);
    known.set(desc, members);
  }
  return members;
}

/** Writes what comes before a member, and its label. */
function begin(mark: number, label: Uint8Array): void {
  ensure(label.length + 1);
  out[at++] = mark;
  for (let i = 0; i < label.length; i++) out[at++] = label[i]!;
}

function objectWriter(desc: DescMessage): Write {
  let members: readonly WriteMember[] | undefined;
  return (message) => {
    // Compiled at first use, because a message may contain itself.
    members ??= membersOf(desc);
    ensure(1);
    out[at++] = OPEN;
    let separated = true;
    for (let i = 0; i < members.length; i++) {
      const member = members[i]!;
      const value = member.get(message as Message);
      if (value === undefined && !member.nullable) continue;
      const { label } = member;
      ensure(label.length + 1);
      if (!separated) out[at++] = COMMA;
      separated = false;
      for (let j = 0; j < label.length; j++) out[at++] = label[j]!;
      if (value === undefined) ascii("null");
      else member.write(value);
    }
    ensure(1);
    out[at++] = CLOSE;
  };
}

function memberOf(field: DescField): WriteMember {
  const label = Buffer.from(`${JSON.stringify(field.name)}:`);
  const get = getterOf(field);
  const write = valueWriter(field);
  const member = { label, get, write, nullable: getOption(field, nullable) };
  if (field.fieldKind !== "list" || field.listKind !== "message") return member;
  const { message: desc } = field;
  if (desc !== ActionStepSchema) return isPlain(desc) ? { ...member, elements: desc } : member;
  return {
    ...member,
    get: (message) => packedIn(message) ?? get(message),
    write: (steps) => (Array.isArray(steps) ? write(steps) : packedSteps(steps as PackedStepsWriter)),
  };
}

const OPEN = 0x7b;
const CLOSE = 0x7d;
const LIST = 0x5b;
const LIST_END = 0x5d;
const COMMA = 0x2c;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

function valueWriter(field: DescField): Write {
  if (field.fieldKind === "list") {
    if (field.listKind === "message") return listOf(messageWriter(field.message) ?? asPlain(field));
    if (field.listKind === "scalar") return listOf(SCALARS[field.scalar] ?? asPlain(field));
  }
  if (field.fieldKind === "message") return messageWriter(field.message) ?? asPlain(field);
  if (field.fieldKind === "scalar") return SCALARS[field.scalar] ?? asPlain(field);
  const plain = plainOf(field);
  return field.fieldKind === "enum" ? (value) => text(plain(value)) : asPlain(field);
}

/** Its JSON is an object of its fields. */
const isPlain = (desc: DescMessage): boolean =>
  !getOption(desc, inline) && !desc.typeName.startsWith("google.protobuf.");

/** Of those of google.protobuf JSON has forms of its own. */
function messageWriter(desc: DescMessage): Write | undefined {
  if (desc.typeName.startsWith("google.protobuf.")) return undefined;
  let writer: Write | undefined;
  return (value) => {
    writer ??= writerOf(desc);
    writer(value);
  };
}

/** By way of the plain value: for what no hot answer holds. */
function asPlain(field: DescField): Write {
  const plain = plainOf(field);
  return (value) => written(JSON.stringify(plain(value)));
}

function listOf(write: Write): Write {
  return (value) => {
    const items = value as readonly unknown[];
    ensure(1);
    out[at++] = LIST;
    for (let i = 0; i < items.length; i++) {
      if (i > 0) {
        ensure(1);
        out[at++] = COMMA;
      }
      write(items[i]);
    }
    ensure(1);
    out[at++] = LIST_END;
  };
}

/** Shorter texts are written letter by letter, for less than the price of having them written. */
const SHORT_TEXT = 64;

function text(value: unknown): void {
  const letters = value as string;
  const { length } = letters;
  if (length > SHORT_TEXT) {
    written(JSON.stringify(letters));
    return;
  }
  ensure(length + 2);
  out[at] = QUOTE;
  for (let i = 0; i < length; i++) {
    const letter = letters.charCodeAt(i);
    if (letter < 0x20 || letter > 0x7e || letter === QUOTE || letter === BACKSLASH) {
      written(JSON.stringify(letters));
      return;
    }
    out[at + 1 + i] = letter;
  }
  out[at + 1 + length] = QUOTE;
  at += length + 2;
}

/** Node's own, which takes any bytes: otherwise a Buffer would be made of each for it. */
const { base64Slice } = Buffer.prototype as unknown as {
  base64Slice(this: Uint8Array, from: number, to: number): string;
};

/** Bytes as base64, none of whose letters JSON has to say otherwise. */
function base64(value: unknown): void {
  const bytes = value as Uint8Array;
  const letters = base64Slice.call(bytes, 0, bytes.length);
  ensure(letters.length + 2);
  out[at++] = QUOTE;
  at += out.write(letters, at, "latin1");
  out[at++] = QUOTE;
}

/** Puts JSON there that is text already. */
function written(json: string): void {
  ensure(3 * json.length);
  at += out.write(json, at, "utf8");
}

function ascii(json: string): void {
  ensure(json.length);
  for (let i = 0; i < json.length; i++) out[at++] = json.charCodeAt(i);
}

function number(value: unknown): void {
  ensure(LONGEST_NUMBER);
  at = writeNumber(out, finite(value) as number, at);
}

/** Numbers of a step, which ends with them, straight from where they stand. */
function packedSteps({ source, from: begin, to: stop, count, dim }: PackedStepsWriter): void {
  const view = new DataView(source.buffer, source.byteOffset + begin, stop - begin);
  const size = (stop - begin) / count;
  ensure(2 + count * (2 + dim * (LONGEST_NUMBER + 1)));
  const to = out;
  let end = at;
  to[end++] = LIST;
  for (let step = 0; step < count; step++) {
    if (step > 0) to[end++] = COMMA;
    to[end++] = LIST;
    const over = (step + 1) * size;
    for (let from = over - dim * DOUBLE_BYTES; from < over; from += DOUBLE_BYTES) {
      end = writeNumber(to, view.getFloat64(from, true), end);
      to[end++] = COMMA;
    }
    to[end - 1] = LIST_END;
  }
  to[end++] = LIST_END;
  at = end;
}

const DOUBLE_BYTES = 8;

/** The scalars that the schema's hot answers are made of. */
const SCALARS: Partial<Record<ScalarType, Write>> = {
  [ScalarType.STRING]: text,
  [ScalarType.BOOL]: (value) => ascii(value === true ? "true" : "false"),
  [ScalarType.DOUBLE]: number,
  [ScalarType.FLOAT]: number,
  [ScalarType.UINT32]: number,
  [ScalarType.FIXED32]: number,
  [ScalarType.INT32]: number,
  [ScalarType.SINT32]: number,
  [ScalarType.SFIXED32]: number,
  [ScalarType.BYTES]: base64,
};
