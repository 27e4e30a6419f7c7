/** REST JSON to messages: one reading function per type, compiled once, that notes every fault with its path. */
import {
  create,
  type DescEnum,
  type DescField,
  type DescMessage,
  fromJson,
  getOption,
  type JsonValue,
  type Message,
  ScalarType,
} from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import { field as fieldRules } from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";
import { inline, nonempty, whole } from "../../../../gen/limber/edge/v1/options_pb.ts";
import { type Frame, FrameSchema } from "../../../../gen/limber/v1/observation_pb.ts";
import { decodeBase64 } from "../../../codecs/base64.ts";
import { CodecError } from "../../../codecs/error.ts";
import { mostItemsOf, tooManyItems } from "../bounds.ts";
import type { Faults } from "./faults.ts";
import { unknown } from "./near.ts";
import { SentPicture, setPicture } from "./pictures.ts";
import { wordsOf } from "./words.ts";

/** Reads a value, or notes what is wrong with it and returns undefined. */
type FieldReader = (value: unknown, faults: Faults) => unknown;

/** Reads a value into a field of `target`; null leaves the field unset. */
type Put = (target: DecodeFields, value: unknown, faults: Faults) => void;

type DecodeFields = Record<string, unknown>;

/** Reads the REST JSON of one message type. */
export interface Decoder {
  /** The message in `value`; where faults were noted it is incomplete, with what could be read in its place. */
  decode(value: unknown, faults: Faults): Message;
  /** Reads `value` into one field of `message`, by its name in the schema. */
  set(message: Message, name: string, value: unknown, faults: Faults): void;
}

const decoders = new WeakMap<DescMessage, Decoder>();

/** The decoder of a message type. Throws for types that REST JSON cannot carry as the specification writes them. */
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
    // Compiled at first use, because a message may contain itself.
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

/** The fields that a change may remove by naming them in `clear`; undefined for a message that has no such field. */
function clearableIn(desc: DescMessage): ReadonlySet<string> | undefined {
  const { clear } = desc.field;
  const { type } = clear === undefined ? {} : getOption(clear, fieldRules);
  const items = type?.case === "repeated" ? type.value.items?.type : undefined;
  return items?.case === "string" ? new Set(items.value.in) : undefined;
}

/** Removes what is given as null, by JSON merge patch. Source: RFC 7396. */
function clearNulls(message: DecodeFields, value: DecodeFields, clearable: ReadonlySet<string>): void {
  const nulls = [...clearable].filter((name) => Object.hasOwn(value, name) && value[name] === null);
  if (nulls.length > 0) message.clear = [...new Set([...(message.clear as string[]), ...nulls])];
}

/** The message's one repeated field stands for the message. */
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
      faults.add("oneof", `stands together with another of ${oneof.fields.map((each) => each.name).join(", ")}`, name);
    else target[oneof.localName] = { case: localName, value: got };
  };
}

/** An address that holds a picture may have been read already. */
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
      // What could not be read keeps its place, so that the paths of later faults are right.
      items.push(item ?? zero());
    }
    return items;
  };
}

const EMPTY_LIMIT = "must not be empty: leave it out for no change, or send null to remove the limit";

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
  if (field.mapKey !== ScalarType.STRING) throw new Error(`${field} has keys that JSON cannot carry`);
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

/** A key that assignment would take for the prototype has no place in a map of any message. */
function checkKey(key: string, faults: Faults): void {
  if (key === "__proto__") faults.add("invalid_key", "this key is not taken");
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
        // Sound: it came out of JSON.parse.
        return free === undefined ? undefined : fromJson(ValueSchema, free as JsonValue);
      };
    default: {
      const { decode } = decoderOf(desc);
      return decode;
    }
  }
}

/** A free-form value as it came, when all in it can be stored. Its depth was bounded before it was parsed. */
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
  // 64-bit integers are strings in every JSON that keeps them whole, and the specification writes integers as numbers.
  if (read === undefined) throw new Error(`REST JSON does not carry ${ScalarType[scalar]}`);
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
    if (value < least) return faults.add("greater_than_equal", `must be greater than or equal to ${least}`);
    return value > most ? faults.add("less_than_equal", `must be less than or equal to ${most}`) : value;
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
