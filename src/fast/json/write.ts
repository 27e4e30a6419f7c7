/**
 * Messages to the bytes of their REST JSON in one go, without the plain value between: an answer of a control loop is a hundred
 * numbers, and what is made of them on the way is most of its price. It says to the byte what `JSON.stringify` says of `encoderOf`.
 */
import { type DescField, type DescMessage, getOption, type Message, ScalarType } from "@bufbuild/protobuf";
import { inline, nullable } from "../../../gen/limber/edge/v1/options_pb.ts";
import { ActionStepSchema } from "../../../gen/limber/v1/action_pb.ts";
import { getter } from "../../codecs/protobuf/access.ts";
import { type PackedStepsWriter, packedIn } from "../../codecs/protobuf/packed-steps.ts";
import { finite, plainOf } from "../../edge/messages/json/encode.ts";

/** The REST JSON of a message, in a buffer that the next call writes over. Throws as the encoder does. */
export function writeJson(desc: DescMessage, message: Message): Buffer {
  at = 0;
  writerOf(desc)(message);
  const written = out.subarray(0, at);
  if (out.length > MOST_KEPT) out = Buffer.allocUnsafe(FIRST);
  return written;
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

/** Gets a field's value from a message; undefined where it isn't set. */
function getterOf({ localName, oneof, parent }: DescField): (message: Message) => unknown {
  if (oneof === undefined) return getter(parent, localName);
  const get = getter(parent, oneof.localName);
  return (message) => {
    const chosen = get(message) as { case?: string; value?: unknown };
    return chosen.case === localName ? chosen.value : undefined;
  };
}

/** One field of a message: its name between quotes with a colon, how to get it and how to write it. */
interface WriteMember {
  readonly label: Uint8Array;
  readonly get: (message: Message) => unknown;
  readonly write: Write;
  readonly nullable: boolean;
}

function objectWriter(desc: DescMessage): Write {
  let members: readonly WriteMember[] | undefined;
  return (message) => {
    // Compiled at first use, because a message may contain itself.
    members ??= desc.fields.map(memberOf);
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
  if (field.message !== ActionStepSchema) return member;
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
    if (field.listKind === "scalar") {
      const write = SCALARS[field.scalar] ?? asPlain(field);
      return write === number ? numbers : listOf(write);
    }
  }
  if (field.fieldKind === "message") return messageWriter(field.message) ?? asPlain(field);
  if (field.fieldKind === "scalar") return SCALARS[field.scalar] ?? asPlain(field);
  const plain = plainOf(field);
  return field.fieldKind === "enum" ? (value) => text(plain(value)) : asPlain(field);
}

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

/** Puts JSON there that is ASCII. Short texts are written letter by letter, as in `text`. */
function ascii(json: string): void {
  ensure(json.length);
  if (json.length > SHORT_TEXT) at += out.write(json, at, "latin1");
  else for (let i = 0; i < json.length; i++) out[at++] = json.charCodeAt(i);
}

const number: Write = (value) => ascii(String(finite(value)));

/** Lists of numbers are written as one text: a text for each costs three times as much. */
const numbers: Write = (value) => {
  const items = value as readonly number[];
  for (let i = 0; i < items.length; i++) finite(items[i]);
  ascii(JSON.stringify(items));
};

/** Steps straight from where they stand; each ends with its numbers, which are finite. */
function packedSteps({ source, from, to, count, dim }: PackedStepsWriter): void {
  const view = new DataView(source.buffer, source.byteOffset + from, to - from);
  const size = (to - from) / count;
  const steps: number[][] = [];
  for (let step = 1; step <= count; step++) {
    const values: number[] = [];
    for (let each = step * size - dim * DOUBLE_BYTES; each < step * size; each += DOUBLE_BYTES)
      values.push(view.getFloat64(each, true));
    steps.push(values);
  }
  ascii(JSON.stringify(steps));
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
