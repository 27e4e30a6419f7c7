/** From the bytes of a body to a JSON value, with the checks that `JSON.parse` leaves out. */
import { isAscii, isUtf8 } from "node:buffer";
import { type DescField, type DescMessage, getOption } from "@bufbuild/protobuf";
import { inline } from "../../../../gen/limber/edge/v1/options_pb.ts";
import { FrameSchema } from "../../../../gen/limber/v1/observation_pb.ts";
import { Reason, Refusal, refuse } from "../../../errors.ts";
import { breathe, inSlices, type Sliced } from "../../../slices.ts";
import { type Bounds, MOST_NUMBERS, mostItemsOf, tooMany, tooManyInAll, tooManyItems } from "../bounds.ts";
import { type AddressText, LEAST_PICTURE_BYTES, picturesAt, putPictures, without } from "./pictures.ts";

/** How deep arrays and objects may nest. */
export const MAX_DEPTH = 64;

/** Larger bodies are counted before anything is made of them. */
export const COUNTED_BYTES = 16 << 10;

/** Between the steps of reading larger bodies others have their turn. */
const LONG_BYTES = 1 << 20;

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const BACKSLASH = 0x5c;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** What a body is to be read as. */
export interface Expected {
  readonly bounds: Bounds;
  /** The message that it is, where it has the names of the schema. */
  readonly desc?: DescMessage | undefined;
  /** Addresses that hold a picture are given as `SentPicture`, where the body is so large that it is counted. */
  readonly pictures?: boolean;
}

/**
 * The JSON value in `bytes`. Refuses with `malformed_body` what is not UTF-8, not JSON, nested deeper than `MAX_DEPTH`,
 * or names a key of an object twice (where readers differ about which one counts).
 */
export function parseBody(bytes: Buffer): unknown {
  const text = textOf(bytes);
  return parsed(text, countMembers(text));
}

/**
 * As `parseBody`; a body of more than `COUNTED_BYTES` is counted first, and refused with `validation_failed` where it has more than is
 * expected. Then the answer is a promise, and other calls have their turns meanwhile.
 */
export const parseCounted = (bytes: Buffer, expected: Expected): unknown =>
  bytes.length > COUNTED_BYTES ? parseLarge(bytes, expected) : parseBody(bytes);

async function parseLarge(bytes: Buffer, expected: Expected): Promise<unknown> {
  const isLong = bytes.length > LONG_BYTES;
  const addresses: AddressText[] | undefined = expected.pictures && !isLong ? [] : undefined;
  const members = await inSlices(countingJson(bytes, expected, addresses));
  if (addresses !== undefined && addresses.length > 0) {
    const value = parsedAround(bytes, addresses, members);
    if (value !== undefined) return value;
  }
  const text = textOf(bytes);
  if (isLong) await breathe();
  const value = parsed(text, members);
  if (isLong) await breathe();
  return value;
}

/** The value with its pictures; undefined where anything about it is odd: then it is read as a whole, and refused in the words for that. */
function parsedAround(bytes: Buffer, addresses: readonly AddressText[], members: number): unknown {
  const pictures = picturesAt(bytes, addresses);
  if (pictures === undefined) return undefined;
  try {
    const value = parsed(textOf(without(bytes, addresses)), members);
    return putPictures(value, addresses, pictures) ? value : undefined;
  } catch (thrown) {
    if (thrown instanceof Refusal) return undefined;
    throw thrown;
  }
}

function textOf(bytes: Buffer): string {
  if (!isUtf8(bytes)) throw malformed("the body is not UTF-8");
  return bytes.toString(isAscii(bytes) ? "latin1" : "utf8");
}

function parsed(text: string, members: number): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw malformed(`the body is not JSON: ${error instanceof Error ? error.message : "it cannot be read"}`);
  }
  if (membersOf(value) !== members) throw malformed("an object in the body names a key twice");
  return value;
}

const malformed = (text: string) => refuse(Reason.MALFORMED_BODY, text);

const tooDeep = () => malformed(`the body nests deeper than ${MAX_DEPTH} levels`);

/** Counts the members of all objects by their colons, and refuses deep nesting before anything recurses into it. */
function countMembers(text: string): number {
  let members = 0;
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case QUOTE:
        at = endOfText(text, at);
        break;
      case COLON:
        members++;
        break;
      case OPEN_LIST:
      case OPEN_OBJECT:
        if (++depth > MAX_DEPTH) throw tooDeep();
        break;
      case CLOSE_LIST:
      case CLOSE_OBJECT:
        depth--;
        break;
    }
  }
  return members;
}

// Pictures come as long strings, which a search for the next quote crosses at the speed of memory.
function endOfText(text: string, start: number): number {
  for (let at = text.indexOf('"', start + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let before = at;
    while (text.charCodeAt(before - 1) === BACKSLASH) before--;
    if ((at - before) % 2 === 0) return at;
  }
  return text.length;
}

/** How many members the objects in `value` kept: fewer than the text has when a key came twice. */
function membersOf(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  let members = 0;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) if (typeof value[i] === "object") members += membersOf(value[i]);
    return members;
  }
  // What JSON.parse made has nothing but its own members.
  for (const name in value) {
    const item: unknown = value[name as keyof typeof value];
    members += typeof item === "object" ? 1 + membersOf(item) : 1;
  }
  return members;
}

/** An array or object that is open. */
interface TextLevel {
  readonly isList: boolean;
  /** The message that an object is. */
  readonly desc: DescMessage | undefined;
  /** The list that an array is, or the map that an object is. */
  readonly field: DescField | undefined;
  readonly most: number;
  /** Items or members so far. */
  items: number;
  /** The key of the member that begins. */
  key: string | undefined;
}

/** How many steps are taken before the clock is looked at. */
const STEPS = 1 << 10;
/** Keys are short; of a longer one it is not asked what it names. */
const LONGEST_KEY = 64;

/**
 * Counts the members of all objects, and refuses, naming field and limit, more items in a list or map than the schema allows and more
 * values in all than `expected` does. Makes nothing of the bytes; what is no JSON is left to `JSON.parse`. `addresses` takes where the long
 * addresses of frames stand.
 */
export function* countingJson(bytes: Buffer, { desc, bounds }: Expected, addresses?: AddressText[]): Sliced<number> {
  const levels: TextLevel[] = [];
  let members = 0;
  let elements = 0;
  let numbers = 0;
  let steps = 0;
  const enter = (isList: boolean): void => {
    if (levels.length >= MAX_DEPTH) throw tooDeep();
    levels.push(levelOf(levels.at(-1), isList, desc));
  };
  for (let at = 0; at < bytes.length; at++) {
    if (++steps % STEPS === 0) yield;
    const byte = bytes[at]!;
    // Blanks, and what JSON.parse will not take.
    if (byte <= 0x20) continue;
    const level = levels[levels.length - 1];
    if (byte === COMMA) {
      if (level) level.key = undefined;
    } else if (byte === COLON) members++;
    else if (byte === CLOSE_LIST || byte === CLOSE_OBJECT) levels.pop();
    else {
      const isText = byte === QUOTE;
      const isKey = isText && level !== undefined && !level.isList && level.key === undefined;
      const isNumber = byte === 0x2d || (byte >= 0x30 && byte <= 0x39);
      if (level?.isList || isKey) countItem(levels);
      if (isNumber && level?.isList) {
        if (++numbers > MOST_NUMBERS) throw tooManyInAll(MOST_NUMBERS, "numbers");
      } else if (++elements > bounds.elements) throw tooManyInAll(bounds.elements);
      if (isText) {
        const start = at + 1;
        for (at = bytes.indexOf(QUOTE, start); at >= 0 && isEscaped(bytes, start, at); ) {
          if (++steps % STEPS === 0) yield;
          at = bytes.indexOf(QUOTE, at + 1);
        }
        if (at < 0) return members;
        if (isKey) level.key = at - start <= LONGEST_KEY ? bytes.toString("latin1", start, at) : "";
        else if (addresses && at - start >= LEAST_PICTURE_BYTES && level?.desc === FrameSchema && level.key === "url")
          addresses.push({ start, end: at, path: levels.map(placeOf) });
      } else if (byte === OPEN_LIST || byte === OPEN_OBJECT) enter(byte === OPEN_LIST);
      else while (at + 1 < bytes.length && isWord(bytes[at + 1]!)) at++;
    }
  }
  return members;
}

/** The key or the place of what begins on a level. */
const placeOf = ({ isList, items, key }: TextLevel): string | number => (isList ? items - 1 : (key ?? ""));

/** Whether an odd number of backslashes stands before. */
function isEscaped(bytes: Buffer, start: number, at: number): boolean {
  let before = at;
  while (before > start && bytes[before - 1] === BACKSLASH) before--;
  return (at - before) % 2 === 1;
}

/** What goes on with a number or a word. */
const isWord = (byte: number): boolean =>
  byte > 0x20 &&
  byte !== COMMA &&
  byte !== COLON &&
  byte !== QUOTE &&
  byte !== OPEN_LIST &&
  byte !== CLOSE_LIST &&
  byte !== OPEN_OBJECT &&
  byte !== CLOSE_OBJECT;

function countItem(levels: readonly TextLevel[]): void {
  const level = levels[levels.length - 1]!;
  if (++level.items <= level.most) return;
  const path = levels
    .slice(0, -1)
    .map(placeOf)
    .filter((name) => name !== "");
  throw tooMany(path.join("."), tooManyItems(level.field!, level.most));
}

/** The level that an array or object is which begins in `around`; undefined where it is the whole body, a message of `root`. */
function levelOf(around: TextLevel | undefined, isList: boolean, root: DescMessage | undefined): TextLevel {
  if (around === undefined) return levelOfMessage(isList, root);
  const field = around.field ?? (around.desc && fieldsOf(around.desc).get(around.key ?? ""));
  if (field === undefined) return newLevel(isList, undefined, undefined);
  // Inside of a list or map, or at a member that is one.
  const begins = (field.fieldKind === "list" && isList) || (field.fieldKind === "map" && !isList);
  return around.field === undefined && begins
    ? newLevel(isList, undefined, field)
    : levelOfMessage(isList, field.message);
}

function levelOfMessage(isList: boolean, desc: DescMessage | undefined): TextLevel {
  if (desc === undefined || desc.typeName.startsWith("google.protobuf.")) return newLevel(isList, undefined, undefined);
  return isList ? newLevel(isList, undefined, listIn(desc)) : newLevel(isList, desc, undefined);
}

const newLevel = (isList: boolean, desc: DescMessage | undefined, field: DescField | undefined): TextLevel => ({
  isList,
  desc,
  field,
  most: field ? mostItemsOf(field) : Number.POSITIVE_INFINITY,
  items: 0,
  key: undefined,
});

const lists = new WeakMap<DescMessage, DescField | null>();

/** The list that stands for a message; undefined for a message that is an object. */
function listIn(desc: DescMessage): DescField | undefined {
  let list = lists.get(desc);
  if (list === undefined) {
    list = (getOption(desc, inline) && desc.fields[0]) || null;
    lists.set(desc, list);
  }
  return list ?? undefined;
}

const named = new WeakMap<DescMessage, ReadonlyMap<string, DescField>>();

/** The fields of a message by both of their names: the schema's and protobuf JSON's. */
function fieldsOf(desc: DescMessage): ReadonlyMap<string, DescField> {
  let fields = named.get(desc);
  if (fields === undefined) {
    fields = new Map(
      desc.fields.flatMap((field) => [
        [field.name, field],
        [field.jsonName, field],
      ]),
    );
    named.set(desc, fields);
  }
  return fields;
}
