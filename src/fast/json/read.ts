/**
 * REST JSON in its plainest form to messages, straight from the bytes: what a robot sends again and again is read in one go, without the
 * text and the plain value between. Whatever is unusual, wrong or long is not plain: `parseBody` and the decoder then say what it is.
 */
import { type DescField, type DescMessage, getOption, type Message, ScalarType } from "@bufbuild/protobuf";
import { inline } from "../../../gen/limber/edge/v1/options_pb.ts";
import { setter } from "../../codecs/protobuf/access.ts";
import { blankOf } from "../../codecs/protobuf/blank.ts";
import { wordsOf } from "../../edge/messages/json/words.ts";

/** In longer bodies pictures take most of the time, and those are crossed faster as text. */
const MOST_BYTES = 8 << 10;
const MOST_DEPTH = 16;

/** The message that the decoder would make of a body in which it finds no fault; undefined where the body is not plain. */
export function readPlain(desc: DescMessage, body: Buffer): Message | undefined {
  if (body.length > MOST_BYTES) return undefined;
  bytes = body;
  at = 0;
  depth = 0;
  try {
    skipBlanks();
    const message = readerOf(desc)();
    skipBlanks();
    return at === bytes.length ? (message as Message) : undefined;
  } catch (thrown) {
    if (thrown === NOT_PLAIN) return undefined;
    throw thrown;
  }
}

let bytes: Buffer = Buffer.alloc(0);
let at = 0;
let depth = 0;

/** Thrown at the first byte that is not plain. One for all, as it says nothing of the one. */
const NOT_PLAIN = new Error("not plain");

const notPlain = (): never => {
  throw NOT_PLAIN;
};

/** Reads the value that begins here, to behind its end. */
type QuickReader = () => unknown;

const readers = new WeakMap<DescMessage, QuickReader>();

function readerOf(desc: DescMessage): QuickReader {
  let reader = readers.get(desc);
  if (reader === undefined) {
    reader = messageReader(desc);
    readers.set(desc, reader);
  }
  return reader;
}

/** One field of a message: its name, how to read it and how to set it. */
interface ReadMember {
  readonly name: Uint8Array;
  /** Of those that were read. */
  readonly bit: number;
  readonly read: QuickReader;
  readonly set: (message: object, value: unknown) => void;
}

/** As many as there are bits to tell which came twice. */
const MOST_MEMBERS = 31;

function messageReader(desc: DescMessage): QuickReader {
  const { fields, typeName } = desc;
  if (typeName.startsWith("google.protobuf.") || getOption(desc, inline) || fields.length > MOST_MEMBERS)
    return notPlain;
  const blank = blankOf(desc);
  let members: readonly ReadMember[] | undefined;
  return () => {
    // Compiled at first use, because a message may contain itself.
    members ??= fields.map(memberOf);
    const message = blank();
    let seen = 0;
    if (++depth > MOST_DEPTH) notPlain();
    for (let more = begins(OPEN, CLOSE); more; more = goesOn(CLOSE)) {
      const member = memberAt(members);
      if ((seen & member.bit) !== 0) notPlain();
      seen |= member.bit;
      skipBlanks();
      if (bytes[at++] !== COLON) notPlain();
      skipBlanks();
      if (bytes[at] === NULL[0]) word(NULL);
      else member.set(message, member.read());
    }
    depth--;
    return message;
  };
}

function memberOf(field: DescField, index: number): ReadMember {
  const { name, localName, oneof, parent } = field;
  const read = oneof === undefined ? valueReader(field) : notPlain;
  return { name: Buffer.from(`"${name}"`), bit: 1 << index, read, set: setter(parent, localName) };
}

/** The member whose name stands here. */
function memberAt(members: readonly ReadMember[]): ReadMember {
  for (let i = 0; i < members.length; i++) {
    const { name } = members[i]!;
    let same = 0;
    while (same < name.length && bytes[at + same] === name[same]) same++;
    if (same < name.length) continue;
    at += same;
    return members[i]!;
  }
  return notPlain();
}

function valueReader(field: DescField): QuickReader {
  switch (field.fieldKind) {
    case "list":
      return listReader(itemReader(field));
    case "message":
      return laterReader(field.message);
    case "enum":
      return enumReader(field);
    case "scalar":
      return scalarReader(field.scalar);
    case "map":
      return notPlain;
  }
}

function itemReader(field: DescField & { fieldKind: "list" }): QuickReader {
  if (field.listKind === "message") return laterReader(field.message);
  return field.listKind === "enum" ? enumReader(field) : scalarReader(field.scalar);
}

function laterReader(desc: DescMessage): QuickReader {
  let read: QuickReader | undefined;
  return () => {
    read ??= readerOf(desc);
    return read();
  };
}

function listReader(read: QuickReader): QuickReader {
  return () => {
    const items: unknown[] = [];
    for (let more = begins(LIST, LIST_END); more; more = goesOn(LIST_END)) items.push(read());
    return items;
  };
}

function enumReader(field: DescField & { enum: Parameters<typeof wordsOf>[0] }): QuickReader {
  const { toNumber } = wordsOf(field.enum);
  const read = textReader();
  return () => toNumber.get(read()) ?? notPlain();
}

function scalarReader(scalar: ScalarType): QuickReader {
  if (scalar === ScalarType.STRING) return textReader();
  return SCALARS[scalar] ?? notPlain;
}

const SCALARS: Partial<Record<ScalarType, QuickReader>> = {
  [ScalarType.BOOL]: () => (bytes[at] === TRUE[0] ? word(TRUE) : !word(FALSE)),
  [ScalarType.DOUBLE]: number,
  [ScalarType.FLOAT]: number,
  [ScalarType.UINT32]: integer(0, 2 ** 32 - 1),
  [ScalarType.FIXED32]: integer(0, 2 ** 32 - 1),
  [ScalarType.INT32]: integer(-(2 ** 31), 2 ** 31 - 1),
  [ScalarType.SINT32]: integer(-(2 ** 31), 2 ** 31 - 1),
  [ScalarType.SFIXED32]: integer(-(2 ** 31), 2 ** 31 - 1),
};

const OPEN = 0x7b;
const CLOSE = 0x7d;
const LIST = 0x5b;
const LIST_END = 0x5d;
const COMMA = 0x2c;
const COLON = 0x3a;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;
const NULL = Buffer.from("null");
const TRUE = Buffer.from("true");
const FALSE = Buffer.from("false");

function skipBlanks(): void {
  for (;;) {
    const byte = bytes[at];
    if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return;
    at++;
  }
}

/** Goes into a list or an object, and says whether there is anything in it. */
function begins(open: number, close: number): boolean {
  if (bytes[at++] !== open) notPlain();
  skipBlanks();
  if (bytes[at] !== close) return true;
  at++;
  return false;
}

/** Goes on to the next of a list or an object, or behind its end. */
function goesOn(close: number): boolean {
  skipBlanks();
  const byte = bytes[at++];
  if (byte === close) return false;
  if (byte !== COMMA) notPlain();
  skipBlanks();
  return true;
}

function word(letters: Uint8Array): true {
  for (let i = 0; i < letters.length; i++) if (bytes[at++] !== letters[i]) notPlain();
  return true;
}

/** Texts up to this length are compared with the one before in the same place: a robot says the same words with every call. */
const MOST_KEPT = 64;

/** Reads texts of plain letters. */
function textReader(): () => string {
  let before = "";
  return () => {
    if (bytes[at] !== QUOTE) notPlain();
    const start = at + 1;
    let end = start;
    let byte = bytes[end]!;
    let same = 0;
    while (byte !== QUOTE) {
      if (!(byte >= 0x20 && byte <= 0x7e) || byte === BACKSLASH) notPlain();
      if (same === end - start && same < before.length && before.charCodeAt(same) === byte) same++;
      byte = bytes[++end]!;
    }
    at = end + 1;
    const length = end - start;
    if (same === length && length === before.length) return before;
    const text = bytes.toString("latin1", start, end);
    if (length <= MOST_KEPT) before = text;
    return text;
  };
}

/** 10 ** i, exactly. */
const TENS = Float64Array.from({ length: 16 }, (_, i) => Number(`1e${i}`));

/** With more digits than these, a quotient of two whole doubles may not be the nearest double. */
const MOST_DIGITS = 15;

function number(): number {
  const negative = bytes[at] === MINUS;
  if (negative) at++;
  const start = at;
  let whole = 0;
  let digit = bytes[at]! - ZERO;
  while (digit >= 0 && digit <= 9) {
    whole = whole * 10 + digit;
    digit = bytes[++at]! - ZERO;
  }
  let digits = at - start;
  // No number begins with a needless zero, nor without a digit.
  if (digits === 0 || (digits > 1 && bytes[start] === ZERO)) notPlain();
  let decimals = 0;
  if (bytes[at] === POINT) {
    const point = at;
    digit = bytes[++at]! - ZERO;
    while (digit >= 0 && digit <= 9) {
      whole = whole * 10 + digit;
      digit = bytes[++at]! - ZERO;
    }
    decimals = at - point - 1;
    if (decimals === 0) notPlain();
    digits += decimals;
  }
  // What has an exponent ends elsewhere.
  if (digits > MOST_DIGITS || bytes[at] === 0x65 || bytes[at] === 0x45) notPlain();
  const value = decimals === 0 ? whole : whole / TENS[decimals]!;
  return negative ? -value : value;
}

function integer(least: number, most: number): QuickReader {
  return () => {
    const value = number();
    return Number.isInteger(value) && value >= least && value <= most ? value : notPlain();
  };
}
