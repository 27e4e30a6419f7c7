/** REST JSON: encodes and decodes the schema's messages. */
import {
  create,
  type DescEnum,
  type DescField,
  type DescMessage,
  fromBinary,
  fromJson,
  getOption,
  type JsonValue,
  type Message,
  ScalarType,
  toJson,
} from "@bufbuild/protobuf";
import { type Value, ValueSchema } from "@bufbuild/protobuf/wkt";
import { field as fieldRules } from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";
import { inline, nonempty, nullable, whole } from "../../../gen/limber/edge/v1/options_pb.ts";
import { ActionStepSchema } from "../../../gen/limber/v1/action_pb.ts";
import { EventSchema } from "../../../gen/limber/v1/event_pb.ts";
import { type Frame, FrameSchema } from "../../../gen/limber/v1/observation_pb.ts";
import { decodeBase64 } from "../../codecs/base64.ts";
import { CodecError } from "../../codecs/error.ts";
import { EVENT_NAMES } from "../../events/emit.ts";
import type { Sliced } from "../../slices.ts";
import { mostItemsOf, tooManyItems } from "./bounds.ts";
import { type Faults, SentPicture, setPicture, unknown, wordsOf } from "./json-text.ts";

/** Returns the REST JSON text of a message. Throws as the encoder does. */
export function toText(desc: DescMessage, message: Message): string {
  const value = encoderOf(desc).encode(message);
  const bytes = bytesIn(desc);
  if (bytes.size === 0) return JSON.stringify(value);
  // JSON escapes no base64 letter, and checking each letter of an image costs more than the remaining frame.
  const members = Object.entries(value as object).map(
    ([name, each]) =>
      `${JSON.stringify(name)}:${bytes.has(name) && each !== null ? `"${each}"` : JSON.stringify(each)}`,
  );
  return `{${members.join(",")}}`;
}

const known = new WeakMap<DescMessage, ReadonlySet<string>>();

/** The names of a message's own bytes fields. */
function bytesIn(desc: DescMessage): ReadonlySet<string> {
  let names = known.get(desc);
  if (names === undefined) {
    const isBytes = ({ fieldKind, scalar }: DescField): boolean =>
      fieldKind === "scalar" && scalar === ScalarType.BYTES;
    names = new Set(desc.fields.filter(isBytes).map(({ name }) => name));
    known.set(desc, names);
  }
  return names;
}

/** Converts one value to plain form. Its input has the type of the descriptor that the function was compiled from. */
type Plain = (value: unknown) => unknown;

type EncodeFields = Record<string, unknown>;

/** Encodes one message type as REST JSON. */
interface Encoder {
  /** Returns the entire message as a plain value. */
  encode(message: Message): unknown;
  /** Returns one field's value, by its name in the message, as a plain value. */
  encodeField(localName: string, value: unknown): unknown;
}

const encoders = new WeakMap<DescMessage, Encoder>();

/**
 * Returns the encoder of a message type: fields without presence are always written, `optional` ones if set, `(nullable)` ones as null if unset.
 * Throws for values that JSON cannot represent: a non-finite number, an unknown enum value.
 */
export function encoderOf(desc: DescMessage): Encoder {
  let encoder = encoders.get(desc);
  if (encoder === undefined) {
    encoder = compileEncoder(desc);
    encoders.set(desc, encoder);
  }
  return encoder;
}

/** One field of a message: its REST name, its reader, its writer, and whether it is null if unset. */
interface EncodeMember {
  readonly name: string;
  readonly get: (message: Message) => unknown;
  readonly plain: Plain;
  readonly nullable: boolean;
}

function compileEncoder(desc: DescMessage): Encoder {
  const members = new Map<string, EncodeMember>();
  const ready = (): Map<string, EncodeMember> => {
    // Compiled on first use, because a message may contain itself.
    if (members.size === 0) for (const field of desc.fields) members.set(field.localName, memberOf(field));
    return members;
  };
  return {
    encode: getOption(desc, inline) ? inlineValue(desc, ready) : objectValue(ready),
    encodeField: (localName, value) => {
      const member = ready().get(localName);
      if (member === undefined) throw new Error(`${desc.typeName} has no field ${localName}`);
      return member.plain(value);
    },
  };
}

function memberOf(field: DescField): EncodeMember {
  const plain = plainOf(field);
  const isNullable = getOption(field, nullable);
  const isList = field.fieldKind === "list";
  return {
    name: field.name,
    get: getterOf(field),
    plain: isNullable && isList ? (value) => ((value as readonly unknown[]).length === 0 ? null : plain(value)) : plain,
    nullable: isNullable,
  };
}

function inlineValue(desc: DescMessage, ready: () => Map<string, EncodeMember>): Encoder["encode"] {
  const only = desc.fields[0]?.localName ?? "";
  return (message) => ready().get(only)?.plain(fieldIn(message, only));
}

function objectValue(ready: () => Map<string, EncodeMember>): Encoder["encode"] {
  let plan: readonly EncodeMember[];
  return (message) => {
    plan ??= [...ready().values()];
    const object: EncodeFields = {};
    for (const member of plan) {
      const value = member.get(message);
      if (value !== undefined) object[member.name] = member.plain(value);
      else if (member.nullable) object[member.name] = null;
    }
    return object;
  };
}

// Generated messages are plain objects with their fields as properties.
const fieldIn = (message: Message, name: string): unknown => (message as unknown as EncodeFields)[name];

/** Reads a field's value from a message; undefined if unset. */
function getterOf(field: DescField): (message: Message) => unknown {
  const { localName, oneof } = field;
  if (oneof === undefined) return (message) => fieldIn(message, localName);
  return (message) => {
    const chosen = fieldIn(message, oneof.localName) as { case?: string; value?: unknown };
    return chosen.case === localName ? chosen.value : undefined;
  };
}

/** Converts a field's value to plain form. */
function plainOf(field: DescField): Plain {
  switch (field.fieldKind) {
    case "list":
      return listOf(itemOf(field.listKind, field));
    case "map":
      return mapOf(itemOf(field.mapKind, field));
    default:
      return itemOf(field.fieldKind, field);
  }
}

function listOf(plain: Plain): Plain {
  if (plain === finite) {
    // Long chunks are lists of numbers, which need no conversion.
    return (value) => {
      for (const item of value as readonly unknown[]) finite(item);
      return value;
    };
  }
  return (value) => (value as readonly unknown[]).map((item) => plain(item));
}

function mapOf(plain: Plain): Plain {
  return (value) => Object.fromEntries(Object.entries(value as EncodeFields).map(([key, item]) => [key, plain(item)]));
}

function itemOf(kind: "scalar" | "enum" | "message", field: DescField): Plain {
  if (kind === "message" && field.message !== undefined) return messageOf(field.message);
  if (kind === "enum" && field.enum !== undefined) {
    const { ofNumber } = wordsOf(field.enum);
    return (value) => {
      const word = ofNumber.get(value as number);
      if (word === undefined) throw new Error(`${field} has no value ${value}`);
      return word;
    };
  }
  const plain = field.scalar === undefined ? undefined : SCALAR_ENCODERS[field.scalar];
  if (plain === undefined) throw new Error(`REST JSON does not support ${field}`);
  return plain;
}

function messageOf(desc: DescMessage): Plain {
  switch (desc.typeName) {
    case "google.protobuf.Struct":
      return same; // a field of this type holds the JSON object itself
    case "google.protobuf.Value":
      return (value): JsonValue => toJson(ValueSchema, value as Value);
    default: {
      const { encode } = encoderOf(desc);
      return (value) => encode(value as Message);
    }
  }
}

const same: Plain = (value) => value;

/** Returns the number itself. Throws if JSON cannot represent it. */
function finite(value: unknown): unknown {
  // JSON.stringify would write null.
  if (!Number.isFinite(value)) throw new Error(`JSON has no ${value}`);
  return value;
}

function base64Of(value: unknown): string {
  const bytes = value as Uint8Array;
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
}

const SCALAR_ENCODERS: Partial<Record<ScalarType, Plain>> = {
  [ScalarType.STRING]: same,
  [ScalarType.BOOL]: same,
  [ScalarType.DOUBLE]: finite,
  [ScalarType.FLOAT]: finite,
  [ScalarType.UINT32]: same,
  [ScalarType.FIXED32]: same,
  [ScalarType.INT32]: same,
  [ScalarType.SINT32]: same,
  [ScalarType.SFIXED32]: same,
  [ScalarType.BYTES]: base64Of,
};

/** The number of characters written between two looks at the clock. */
const PIECE = 32 << 10;

/** Writes the REST JSON of a message, byte for byte as `JSON.stringify` of the encoder's value. It yields between items of message lists. */
export function* writingJson(desc: DescMessage, message: Message): Sliced<Buffer> {
  const written: Written = { pieces: [], text: "" };
  yield* writingMembers(desc, message, written);
  written.pieces.push(Buffer.from(written.text));
  return written.pieces.length === 1 ? written.pieces[0]! : Buffer.concat(written.pieces);
}

interface Written {
  readonly pieces: Buffer[];
  /** Text that is not flushed yet. */
  text: string;
}

function* writingMembers(desc: DescMessage, message: Message, written: Written): Sliced<void> {
  const encoder = encoderOf(desc);
  let separator = "{";
  for (const field of desc.fields) {
    const value = getterOf(field)(message);
    if (value === undefined && !getOption(field, nullable)) continue;
    written.text += `${separator}${JSON.stringify(field.name)}:`;
    separator = ",";
    const items = itemsOf(field);
    if (value === undefined) written.text += "null";
    else if (items) yield* writingItems(items, value as readonly Message[], written);
    else written.text += JSON.stringify(encoder.encodeField(field.localName, value));
  }
  written.text += separator === "{" ? "{}" : "}";
}

function* writingItems(desc: DescMessage, items: readonly Message[], written: Written): Sliced<void> {
  const isDeep = desc.fields.some((field) => itemsOf(field) !== undefined);
  let separator = "[";
  for (const item of items) {
    written.text += separator;
    separator = ",";
    if (isDeep) yield* writingMembers(desc, item, written);
    else written.text += JSON.stringify(encoderOf(desc).encode(item));
    if (written.text.length < PIECE) continue;
    written.pieces.push(Buffer.from(written.text));
    written.text = "";
    yield;
  }
  written.text += separator === "[" ? "[]" : "]";
}

/** The message type of a list, if its messages are written as objects. */
function itemsOf(field: DescField): DescMessage | undefined {
  if (field.fieldKind !== "list" || field.listKind !== "message") return undefined;
  const { message } = field;
  const hasOwnForm = message.typeName.startsWith("google.protobuf.") || getOption(message, inline);
  return hasOwnForm || message === ActionStepSchema ? undefined : message;
}

/** Decodes a value, or adds its faults and returns undefined. */
type FieldReader = (value: unknown, faults: Faults) => unknown;

/** Decodes a value into a field of `target`; null leaves the field unset. */
type Put = (target: DecodeFields, value: unknown, faults: Faults) => void;

type DecodeFields = Record<string, unknown>;

/** Decodes the REST JSON of one message type. */
interface Decoder {
  /** Decodes the message in `value`; with faults it is incomplete, with its valid parts. */
  decode(value: unknown, faults: Faults): Message;
  /** Decodes `value` into one field of `message`, by its name in the schema. */
  set(message: Message, name: string, value: unknown, faults: Faults): void;
}

const decoders = new WeakMap<DescMessage, Decoder>();

/** Returns the decoder of a message type. Throws for types that REST JSON cannot represent by the specification. */
export function decoderOf(desc: DescMessage): Decoder {
  let decoder = decoders.get(desc);
  if (decoder === undefined) {
    decoder = compile(desc);
    decoders.set(desc, decoder);
  }
  return decoder;
}

function compile(desc: DescMessage): Decoder {
  const puts = new Map<string, Put>();
  const ready = (): Map<string, Put> => {
    // Compiled on first use, because a message may contain itself.
    if (puts.size === 0) {
      for (const field of desc.fields) puts.set(field.name, putOf(field));
      if (desc === FrameSchema) puts.set("url", addressPut(puts.get("url")!));
    }
    return puts;
  };
  const decode = getOption(desc, inline) ? inlineReader(desc, ready) : objectReader(desc, ready);
  return {
    decode,
    set: (message, name, value, faults) => ready().get(name)?.(fieldsOf(message), value, faults),
  };
}

// Generated messages are plain objects with their fields as properties.
const fieldsOf = (message: Message): DecodeFields => message as unknown as DecodeFields;

function objectReader(desc: DescMessage, ready: () => Map<string, Put>): Decoder["decode"] {
  const clearable = clearableIn(desc);
  return (value, faults) => {
    const message: Message = create(desc);
    if (!isObject(value)) {
      faults.add("dict_type", "must be an object");
      return message;
    }
    const puts = ready();
    for (const key of Object.keys(value)) {
      const put = puts.get(key);
      if (put !== undefined) put(fieldsOf(message), value[key], faults);
      if (put !== undefined && value[key] === null && clearable !== undefined && !clearable.has(key))
        faults.add("null_not_allowed", "must not be null: this field can't be removed", key);
      if (put === undefined && faults.open) faults.add("extra_forbidden", unknown("field", key, puts.keys()), key);
    }
    if (clearable !== undefined) clearNulls(fieldsOf(message), value, clearable);
    return message;
  };
}

/** The fields that a change can remove through `clear`; undefined for a message without that field. */
function clearableIn(desc: DescMessage): ReadonlySet<string> | undefined {
  const { clear } = desc.field;
  const { type } = clear === undefined ? {} : getOption(clear, fieldRules);
  const items = type?.case === "repeated" ? type.value.items?.type : undefined;
  return items?.case === "string" ? new Set(items.value.in) : undefined;
}

/** Removes fields that are null, by JSON merge patch. Source: RFC 7396. */
function clearNulls(message: DecodeFields, value: DecodeFields, clearable: ReadonlySet<string>): void {
  const nulls = [...clearable].filter((name) => Object.hasOwn(value, name) && value[name] === null);
  if (nulls.length > 0) message.clear = [...new Set([...(message.clear as string[]), ...nulls])];
}

/** Decodes a message whose only field, a repeated one, replaces it in JSON. */
function inlineReader(desc: DescMessage, ready: () => Map<string, Put>): Decoder["decode"] {
  const [only, ...others] = desc.fields;
  if (only?.fieldKind !== "list" || others.length > 0) throw new Error(`${desc.typeName} cannot be inline`);
  const list = listReader(only);
  return (value, faults) => {
    const message: Message = create(desc);
    const items = list(value, faults);
    if (items !== undefined) fieldsOf(message)[only.localName] = items;
    else ready();
    return message;
  };
}

function putOf(field: DescField): Put {
  const read = readerOf(field);
  const { name, localName, oneof } = field;
  return (target, value, faults) => {
    if (value === null) return;
    const first = faults.list.length;
    const got = read(value, faults);
    if (faults.list.length > first) faults.inside(name, first);
    if (got === undefined) return;
    if (oneof === undefined) target[localName] = got;
    else if (isChosen(target[oneof.localName], localName))
      faults.add("oneof", `conflicts with another of ${oneof.fields.map((each) => each.name).join(", ")}`, name);
    else target[oneof.localName] = { case: localName, value: got };
  };
}

/** Decodes an address, whose image may already be decoded. */
const addressPut =
  (put: Put): Put =>
  (target, value, faults) => {
    // Sound: it is the field of a frame.
    if (value instanceof SentPicture) setPicture(target as unknown as Frame, value);
    else put(target, value, faults);
  };

/** Whether another member of a `oneof` was given already. */
const isChosen = (oneof: unknown, name: string): boolean => {
  const chosen = (oneof as { case?: string } | undefined)?.case;
  return chosen !== undefined && chosen !== name;
};

function readerOf(field: DescField): FieldReader {
  switch (field.fieldKind) {
    case "list":
      return listReader(field);
    case "map":
      return mapReader(field);
    case "message":
      return messageReader(field.message);
    case "enum":
      return enumReader(field.enum);
    case "scalar":
      return getOption(field, whole) ? anyInteger : scalarReader(field.scalar);
  }
}

function listReader(field: DescField & { fieldKind: "list" }): FieldReader {
  const [read, zero] = itemReader(field);
  const most = mostItemsOf(field);
  const isLimit = getOption(field, nonempty);
  return (value, faults) => {
    if (!Array.isArray(value)) return faults.add("list_type", "must be an array");
    if (isLimit && value.length === 0) return faults.add("too_short", EMPTY_LIMIT);
    if (value.length > most) return faults.add("too_long", tooManyItems(field, most));
    const items: unknown[] = [];
    for (let i = 0; i < value.length; i++) {
      const first = faults.list.length;
      const item = value[i] === null ? faults.add("null_item", "must not be null") : read(value[i], faults);
      if (faults.list.length > first) faults.inside(i, first);
      // Invalid items keep their index, so that the paths of later faults are right.
      items.push(item ?? zero());
    }
    return items;
  };
}

const EMPTY_LIMIT = "must not be empty: omit it for no change, or send null to remove the limit";

function itemReader(field: DescField & { fieldKind: "list" }): [read: FieldReader, zero: () => unknown] {
  switch (field.listKind) {
    case "message":
      return [messageReader(field.message), () => create(field.message)];
    case "enum":
      return [enumReader(field.enum), () => 0];
    case "scalar":
      return [scalarReader(field.scalar), () => zeroOf(field.scalar)];
  }
}

const zeroOf = (scalar: ScalarType): unknown =>
  scalar === ScalarType.STRING
    ? ""
    : scalar === ScalarType.BOOL
      ? false
      : scalar === ScalarType.BYTES
        ? new Uint8Array()
        : 0;

function mapReader(field: DescField & { fieldKind: "map" }): FieldReader {
  if (field.mapKey !== ScalarType.STRING) throw new Error(`${field} has keys that JSON does not support`);
  const read =
    field.mapKind === "message"
      ? messageReader(field.message)
      : field.mapKind === "enum"
        ? enumReader(field.enum)
        : scalarReader(field.scalar);
  const most = mostItemsOf(field);
  return (value, faults) => {
    if (!isObject(value)) return faults.add("dict_type", "must be an object");
    const entries: DecodeFields = {};
    const keys = Object.keys(value);
    if (keys.length > most) return faults.add("too_long", tooManyItems(field, most));
    for (const key of keys) {
      const first = faults.list.length;
      checkKey(key, faults);
      const item = value[key] === null ? faults.add("null_item", "must not be null") : read(value[key], faults);
      if (faults.list.length > first) faults.inside(key, first);
      else entries[key] = item;
    }
    return entries;
  };
}

/** Assigning this key would set the prototype, so it is refused in every map. */
function checkKey(key: string, faults: Faults): void {
  if (key === "__proto__") faults.add("invalid_key", "the key `__proto__` is not allowed");
  else string(key, faults);
}

function messageReader(desc: DescMessage): FieldReader {
  switch (desc.typeName) {
    case "google.protobuf.Struct":
      return (value, faults) =>
        isObject(value) ? freeForm(value, faults) : faults.add("dict_type", "must be an object");
    case "google.protobuf.Value":
      return (value, faults) => {
        const free = freeForm(value, faults);
        // Sound: it is from JSON.parse.
        return free === undefined ? undefined : fromJson(ValueSchema, free as JsonValue);
      };
    default: {
      const { decode } = decoderOf(desc);
      return decode;
    }
  }
}

/** Returns a free-form value unchanged if it can be stored. Its depth was limited before parsing. */
function freeForm(value: unknown, faults: Faults): unknown {
  const first = faults.list.length;
  if (typeof value === "string") string(value, faults);
  else if (typeof value === "number") double(value, faults);
  else if (typeof value === "object" && value !== null) {
    for (const key of Object.keys(value)) {
      const inner = faults.list.length;
      checkKey(key, faults);
      freeForm((value as DecodeFields)[key], faults);
      if (faults.list.length > inner) faults.inside(Array.isArray(value) ? Number(key) : key, inner);
    }
  }
  return faults.list.length === first ? value : undefined;
}

function enumReader(desc: DescEnum): FieldReader {
  const { toNumber, synonyms } = wordsOf(desc);
  const sentence = `must be one of ${[...toNumber.keys()].join(", ")}`;
  return (value, faults) => {
    const number = typeof value === "string" ? (toNumber.get(value) ?? synonyms.get(value)) : undefined;
    return number ?? faults.add("enum", sentence);
  };
}

function scalarReader(scalar: ScalarType): FieldReader {
  const read = SCALARS[scalar];
  // Other JSON formats write 64-bit integers as strings, but the specification writes integers as numbers.
  if (read === undefined) throw new Error(`REST JSON does not support ${ScalarType[scalar]}`);
  return read;
}

const SCALARS: Partial<Record<ScalarType, FieldReader>> = {
  [ScalarType.STRING]: string,
  [ScalarType.BOOL]: (value, faults) =>
    typeof value === "boolean" ? value : faults.add("bool_type", "must be true or false"),
  [ScalarType.DOUBLE]: double,
  [ScalarType.FLOAT]: double,
  [ScalarType.UINT32]: integer(0, 2 ** 32 - 1),
  [ScalarType.FIXED32]: integer(0, 2 ** 32 - 1),
  [ScalarType.INT32]: integer(-(2 ** 31), 2 ** 31 - 1),
  [ScalarType.SINT32]: integer(-(2 ** 31), 2 ** 31 - 1),
  [ScalarType.SFIXED32]: integer(-(2 ** 31), 2 ** 31 - 1),
  [ScalarType.BYTES]: base64,
};

function string(value: unknown, faults: Faults): unknown {
  if (typeof value !== "string") return faults.add("string_type", "must be a string");
  if (value.includes("\0")) return faults.add("string_unicode", "must not contain U+0000");
  if (!value.isWellFormed()) return faults.add("string_unicode", "must not contain lone surrogates");
  return value;
}

function double(value: unknown, faults: Faults): unknown {
  if (typeof value !== "number") return faults.add("float_type", "must be a number");
  return Number.isFinite(value) ? value : faults.add("finite_number", "must be a finite number");
}

function integer(least: number, most: number): FieldReader {
  return (value, faults) => {
    if (typeof value !== "number") return faults.add("int_type", "must be an integer");
    if (!Number.isInteger(value)) return faults.add("int_from_float", "must be an integer");
    if (value < least) return faults.add("greater_than_equal", `must be at least ${least}, got ${value}`);
    return value > most ? faults.add("less_than_equal", `must be at most ${most}, got ${value}`) : value;
  };
}

function anyInteger(value: unknown, faults: Faults): unknown {
  if (typeof value !== "number") return faults.add("int_type", "must be an integer");
  return Number.isInteger(value) ? value : faults.add("int_from_float", "must be an integer");
}

function base64(value: unknown, faults: Faults): unknown {
  if (typeof value !== "string") return faults.add("bytes_type", "must be a string of base64");
  try {
    const bytes = decodeBase64(value);
    return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length);
  } catch (thrown) {
    if (!(thrown instanceof CodecError)) throw thrown;
    return faults.add("bytes_invalid_encoding", "must be base64");
  }
}

function isObject(value: unknown): value is DecodeFields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Encodes a response once: billing calls it before charging, so that an unencodable response costs nothing, and the transport reuses the bytes.
 */
export function encodedOnce<T>(encode: (answer: Message) => T): (answer: Message) => T {
  let last: { readonly answer: Message; readonly encoded: T } | undefined;
  return (answer) => {
    if (last?.answer !== answer) last = { answer, encoded: encode(answer) };
    return last.encoded;
  };
}

/** Returns the text of an event message. */
export function eventText(payload: Uint8Array): string {
  const { id, apiVersion, createdAt, orgId, workspaceId, name, data } = eventParts(payload);
  const about = { org_id: orgId, workspace_id: workspaceId };
  return JSON.stringify({ id, type: name, created_at: createdAt, api_version: apiVersion, ...about, data });
}

/** Returns an event message in the form for trace targets. */
export function eventForSpans(payload: Uint8Array): { id: string; name: string; createdAt: number; data: string } {
  const { id, createdAt, name = "", data } = eventParts(payload);
  return { id, name, createdAt, data: JSON.stringify(data) };
}

function eventParts(payload: Uint8Array) {
  const event = fromBinary(EventSchema, payload);
  const { id, apiVersion, createdAt, orgId, workspaceId, data } = event;
  const field = EventSchema.fields.find(({ localName }) => localName === data.case);
  const written = encoderOf(EventSchema).encode(event) as Record<string, unknown>;
  const name = EVENT_NAMES.get(data.case ?? "");
  return { id, apiVersion, createdAt, orgId, workspaceId, name, data: field === undefined ? {} : written[field.name] };
}
