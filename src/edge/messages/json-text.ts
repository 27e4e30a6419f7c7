/** Parses a body's bytes to a JSON value, with checks that `JSON.parse` lacks. */
import { isAscii, isUtf8 } from "node:buffer";
import {
  type DescEnum,
  type DescEnumValue,
  type DescField,
  type DescMessage,
  getOption,
  hasOption,
  type Message,
} from "@bufbuild/protobuf";
import { inline, spelling, synonym } from "../../../gen/limber/edge/v1/options_pb.ts";
import type { ActRequest } from "../../../gen/limber/v1/inference_service_pb.ts";
import { type Frame, FrameSchema } from "../../../gen/limber/v1/observation_pb.ts";
import { exactly } from "../../codecs/base64.ts";
import { CodecError } from "../../codecs/error.ts";
import { decodeDataUrl } from "../../codecs/pictures/data-url.ts";
import { Reason, Refusal, refuse } from "../../errors.ts";
import { SideNote } from "../../side-note.ts";
import { breathe, inSlices, type Sliced } from "../../slices.ts";
import { type Bounds, MOST_NUMBERS, mostItemsOf, tooMany, tooManyInAll, tooManyItems } from "./bounds.ts";

/** The maximum nesting depth of arrays and objects. */
const MAX_DEPTH = 64;

/** Larger bodies are counted before they are parsed. */
export const COUNTED_BYTES = 16 << 10;

/** Larger bodies yield the event loop between the steps of parsing. */
const LONG_BYTES = 1 << 20;

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const BACKSLASH = 0x5c;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** The expected content of a body. */
export interface Expected {
  readonly bounds: Bounds;
  /** The message type, if the body has the schema's names. */
  readonly desc?: DescMessage | undefined;
  /** Whether addresses with an image are returned as `SentPicture`, in bodies large enough to be counted. */
  readonly pictures?: boolean;
}

/**
 * Parses the JSON value in `bytes`. Refuses with `malformed_body` if they are not UTF-8, not JSON, nested deeper than `MAX_DEPTH`, or contain a
 * duplicate key (of which parsers choose different ones).
 */
export function parseBody(bytes: Buffer): unknown {
  const text = textOf(bytes);
  return parsed(text, countMembers(text));
}

/**
 * As `parseBody`, but counts a body above `COUNTED_BYTES` first, and refuses with `validation_failed` if it has more than expected. The result
 * is then a promise, and other calls run in between.
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

/** Returns the value with its images; undefined if anything is unusual: then the complete body is parsed, with the usual errors. */
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
  if (!isUtf8(bytes)) throw malformed("the body must be UTF-8");
  return bytes.toString(isAscii(bytes) ? "latin1" : "utf8");
}

function parsed(text: string, members: number): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw malformed(`the body is not JSON: ${error instanceof Error ? error.message : "it cannot be parsed"}`);
  }
  if (membersOf(value) !== members) throw malformed("an object in the body has a duplicate key");
  return value;
}

const malformed = (text: string) => refuse(Reason.MALFORMED_BODY, text);

const tooDeep = () => malformed(`the body must not nest deeper than ${MAX_DEPTH} levels`);

/** Counts the members of all objects by their colons, and refuses deep nesting before anything recurses. */
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

// Images are long strings, in which searching for the next quote runs at memory speed.
function endOfText(text: string, start: number): number {
  for (let at = text.indexOf('"', start + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let before = at;
    while (text.charCodeAt(before - 1) === BACKSLASH) before--;
    if ((at - before) % 2 === 0) return at;
  }
  return text.length;
}

/** Returns the number of members in `value`: fewer than in the text if a key was a duplicate. */
function membersOf(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  let members = 0;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) if (typeof value[i] === "object") members += membersOf(value[i]);
    return members;
  }
  // JSON.parse creates only own members.
  for (const name in value) {
    const item: unknown = value[name as keyof typeof value];
    members += typeof item === "object" ? 1 + membersOf(item) : 1;
  }
  return members;
}

/** An open array or object. */
interface TextLevel {
  readonly isList: boolean;
  /** The message type of an object. */
  readonly desc: DescMessage | undefined;
  /** The list type of an array, or the map type of an object. */
  readonly field: DescField | undefined;
  readonly most: number;
  /** Items or members so far. */
  items: number;
  /** The key of the current member. */
  key: string | undefined;
}

/** The number of steps between two looks at the clock. */
const STEPS = 1 << 10;
/** Keys are short; longer ones are not looked up. */
const LONGEST_KEY = 64;

/**
 * Counts the members of all objects, and refuses, with field and limit, more items in a list or map than the schema allows and more values in
 * total than `expected`. Parses nothing; invalid JSON is left to `JSON.parse`. `addresses` receives the positions of long frame addresses.
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
    // White space, and characters that JSON.parse refuses.
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

/** The key or index of the value that begins on a level. */
const placeOf = ({ isList, items, key }: TextLevel): string | number => (isList ? items - 1 : (key ?? ""));

/** Whether an odd number of backslashes precedes. */
function isEscaped(bytes: Buffer, start: number, at: number): boolean {
  let before = at;
  while (before > start && bytes[before - 1] === BACKSLASH) before--;
  return (at - before) % 2 === 1;
}

/** Characters that continue a number or a word. */
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

/** Returns the level of an array or object that begins in `around`; undefined for the entire body, a message of `root`. */
function levelOf(around: TextLevel | undefined, isList: boolean, root: DescMessage | undefined): TextLevel {
  if (around === undefined) return levelOfMessage(isList, root);
  const field = around.field ?? (around.desc && fieldsOf(around.desc).get(around.key ?? ""));
  if (field === undefined) return newLevel(isList, undefined, undefined);
  // Inside a list or map, or at such a member.
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

/** The list that replaces a message in JSON; undefined for a message written as an object. */
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

/** Shorter addresses are parsed with the body. */
const LEAST_PICTURE_BYTES = 4 << 10;

/** A larger image is refused when a wire reads it. */
const MOST_BYTES = 16 << 20;

/** The position of a frame's address in a body, between its quotes, and its place in the body's value. */
interface AddressText {
  readonly start: number;
  readonly end: number;
  /** Keys and indexes from the outside to the frame's `url`. */
  readonly path: readonly (string | number)[];
}

/** An image that was sent as an address. */
export class SentPicture {
  /** The encoded image. */
  readonly bytes: Buffer;
  readonly #body: Buffer;
  readonly #text: AddressText;

  constructor(body: Buffer, text: AddressText, bytes: Buffer) {
    this.#body = body;
    this.#text = text;
    this.bytes = bytes;
  }

  /** The address as sent. */
  get url(): string {
    return this.#body.toString("latin1", this.#text.start, this.#text.end);
  }
}

/** The maximum length of the text before a data URL's comma. */
const LONGEST_HEAD = 256;
/** Characters that JSON does not escape. */
const PLAIN_HEAD = /^data:[ !#-+\--[\]-~]*; *base64,/i;

/** Decodes the images at all of these positions; undefined if one is anything but plain base64, so that the complete body must be parsed. */
function picturesAt(body: Buffer, texts: readonly AddressText[]): SentPicture[] | undefined {
  const pictures: SentPicture[] = [];
  for (const text of texts) {
    const start = body.toString("latin1", text.start, Math.min(text.end, text.start + LONGEST_HEAD));
    const head = PLAIN_HEAD.exec(start)?.[0];
    const bytes =
      head === undefined ? undefined : plainBytes(head, body.toString("latin1", text.start + head.length, text.end));
    if (bytes === undefined || bytes.length === 0 || bytes.length > MOST_BYTES) return undefined;
    pictures.push(new SentPicture(body, text, bytes));
  }
  return pictures;
}

/** Characters that JSON escapes or forbids. */
const ESCAPED = /[\p{Cc}"\\]/u;

/** The bytes of an address in plain JSON: base64 letters if they decode completely; otherwise at most with spaces and percent signs. */
function plainBytes(head: string, text: string): Buffer | undefined {
  const bytes = exactly(text);
  if (bytes !== undefined || ESCAPED.test(text)) return bytes;
  try {
    return decodeDataUrl(head + text, MOST_BYTES);
  } catch (thrown) {
    if (thrown instanceof CodecError) return undefined;
    throw thrown;
  }
}

/** Returns the body with empty text between these quotes, given in order. */
function without(body: Buffer, texts: readonly AddressText[]): Buffer {
  const parts: Buffer[] = [];
  let from = 0;
  for (const { start, end } of texts) {
    parts.push(body.subarray(from, start));
    from = end;
  }
  return Buffer.concat([...parts, body.subarray(from)]);
}

/**
 * Inserts the images into the value that was parsed of the remaining body, in place of its empty texts. False if a frame also has bytes, or if
 * there is no such place.
 */
function putPictures(value: unknown, texts: readonly AddressText[], pictures: readonly SentPicture[]): boolean {
  for (const [i, { path }] of texts.entries()) {
    let frame: unknown = value;
    for (const key of path.slice(0, -1)) frame = (frame as Record<string | number, unknown> | undefined)?.[key];
    if (typeof frame !== "object" || frame === null || Object.hasOwn(frame, "data")) return false;
    if (!("url" in frame) || frame.url !== "") return false;
    frame.url = pictures[i];
  }
  return true;
}

const sent = new SideNote<Frame, SentPicture>("sent");

/** Gives a frame the image that was sent as its address. */
export function setPicture(frame: Frame, picture: SentPicture): void {
  frame.data = picture.bytes;
  sent.set(frame, picture);
}

/** Returns the request with its images as sent: as addresses if they were addresses. */
export function asSent<M extends Message>(request: M): M {
  const { observations, goalImage } = request as Partial<ActRequest>;
  const sentFrame = (frame: Frame): Frame => {
    const picture = sent.of(frame);
    return picture === undefined ? frame : { ...frame, url: picture.url, data: NO_BYTES };
  };
  return {
    ...request,
    ...(observations && {
      observations: observations.map((each) => ({
        ...each,
        frames: each.frames.map(sentFrame),
        depth: each.depth.map(sentFrame),
      })),
    }),
    ...(goalImage && { goalImage: sentFrame(goalImage) }),
  };
}

const NO_BYTES = new Uint8Array();

/** One fault: the path of the field from the current message, the violated rule by pydantic's name, a sentence. */
export interface Fault {
  readonly path: (string | number)[];
  readonly type: string;
  readonly message: string;
}

/** The maximum number of faults per response: enough for any honest request. */
export const MAX_FAULTS = 1000;

/** Path segments come from the caller if a key is unknown; longer ones are cut. */
const MAX_SEGMENT = 128;

/** A list of faults whose paths grow as the decoding functions return. */
export class Faults {
  readonly list: Fault[] = [];

  /** Adds a fault of the current value, or of its member `key`; returns undefined, which means no value. */
  add(type: string, message: string, key?: string | number): undefined {
    if (this.list.length < MAX_FAULTS) this.list.push({ path: key === undefined ? [] : [cut(key)], type, message });
  }

  /** Prefixes `key` to the paths of all faults from index `first` on, which were found inside it. */
  inside(key: string | number, first: number): void {
    for (let i = first; i < this.list.length; i++) this.list[i]?.path.unshift(cut(key));
  }

  /** Whether the list can hold more, so that details are worth computing. */
  get open(): boolean {
    return this.list.length < MAX_FAULTS;
  }
}

const cut = (key: string | number): string | number =>
  typeof key === "string" && key.length > MAX_SEGMENT ? `${key.slice(0, MAX_SEGMENT)}…` : key;

/** From this length on, a truncated name counts as one wrong letter. */
const LEAST_CUT = 4;
/** Longer names get no suggestion. */
const MAX_LENGTH = 64;

/** Returns the name with the fewest edits from `name`, if it is close enough to be intended. */
export function nearest(name: string, among: Iterable<string>): string | undefined {
  if (name.length > MAX_LENGTH) return undefined;
  let best: string | undefined;
  let least = Math.max(2, Math.floor(name.length / 3)) + 1;
  for (const each of among) {
    const isCut = name.length >= LEAST_CUT && each.toLowerCase().startsWith(name.toLowerCase());
    if (!isCut && Math.abs(each.length - name.length) >= least) continue;
    const edits = isCut ? 1 : editsBetween(name.toLowerCase(), each.toLowerCase());
    if (edits < least) [best, least] = [each, edits];
  }
  return best;
}

/** The text for an unknown name, with the nearest known one. */
export function unknown(what: "field" | "parameter", name: string, known: Iterable<string>): string {
  const meant = nearest(name, known);
  return `is not a known ${what}${meant === undefined ? "" : `; did you mean \`${meant}\`?`}`;
}

/** The Levenshtein distance, computed row by row. */
function editsBetween(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const swap = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(swap, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[b.length]!;
}

/** The words of one enum, in both directions. */
interface EnumWords {
  /** Number to word, including the unspecified value. */
  readonly ofNumber: ReadonlyMap<number, string>;
  /** Word to number; callers cannot send the unspecified value. */
  readonly toNumber: ReadonlyMap<string, number>;
  /** Alternative words that a caller can send, to number, from `(synonym)`. Documents and responses use only those of `toNumber`. */
  readonly synonyms: ReadonlyMap<string, number>;
}

const wordsByEnum = new WeakMap<DescEnum, EnumWords>();

/** Derives an enum's words by the rule (drop the shared prefix, lower case), or from `(spelling)`. */
export function wordsOf(desc: DescEnum): EnumWords {
  let words = wordsByEnum.get(desc);
  if (words === undefined) {
    const all = desc.values.map((value) => [value.number, wordOf(desc, value)] as const);
    words = {
      ofNumber: new Map(all),
      toNumber: new Map(all.filter(([number]) => number !== 0).map(([number, word]) => [word, number])),
      synonyms: new Map(desc.values.flatMap((value) => getOption(value, synonym).map((word) => [word, value.number]))),
    };
    wordsByEnum.set(desc, words);
  }
  return words;
}

function wordOf(desc: DescEnum, value: DescEnumValue): string {
  if (hasOption(value, spelling)) return getOption(value, spelling);
  return value.name.slice(desc.sharedPrefix?.length ?? 0).toLowerCase();
}
