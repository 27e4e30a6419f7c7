/** Messages to REST JSON: one function per type, compiled once, that makes the plain value for one `JSON.stringify`. */
import {
  type DescField,
  type DescMessage,
  getOption,
  type JsonValue,
  type Message,
  ScalarType,
  toJson,
} from "@bufbuild/protobuf";
import { type Value, ValueSchema } from "@bufbuild/protobuf/wkt";
import { inline, nullable } from "../../../../gen/limber/edge/v1/options_pb.ts";
import { wordsOf } from "./words.ts";

/** Makes the plain form of one value. What comes in has the type of the descriptor that the function was compiled from. */
type Plain = (value: unknown) => unknown;

type EncodeFields = Record<string, unknown>;

/** Makes the REST JSON of one message type. */
export interface Encoder {
  /** The whole message as a plain value. */
  encode(message: Message): unknown;
  /** The value of one field, by its name in the message, as a plain value. */
  encodeField(localName: string, value: unknown): unknown;
}

const encoders = new WeakMap<DescMessage, Encoder>();

/**
 * The encoder of a message type: fields without presence are always there, `optional` ones when set, `(nullable)` ones
 * as null when not. Throws for what JSON cannot carry: a number that is not finite, a value that its enum does not have.
 */
export function encoderOf(desc: DescMessage): Encoder {
  let encoder = encoders.get(desc);
  if (encoder === undefined) {
    encoder = compile(desc);
    encoders.set(desc, encoder);
  }
  return encoder;
}

/** One field of a message: its REST name, how to get it, how to write it, and whether it is null when it is not set. */
interface EncodeMember {
  readonly name: string;
  readonly get: (message: Message) => unknown;
  readonly plain: Plain;
  readonly nullable: boolean;
}

function compile(desc: DescMessage): Encoder {
  const members = new Map<string, EncodeMember>();
  const ready = (): Map<string, EncodeMember> => {
    // Compiled at first use, because a message may contain itself.
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

/** Gets a field's value from a message; undefined where it isn't set. */
export function getterOf(field: DescField): (message: Message) => unknown {
  const { localName, oneof } = field;
  if (oneof === undefined) return (message) => fieldIn(message, localName);
  return (message) => {
    const chosen = fieldIn(message, oneof.localName) as { case?: string; value?: unknown };
    return chosen.case === localName ? chosen.value : undefined;
  };
}

/** Makes the plain form of a field's value. */
export function plainOf(field: DescField): Plain {
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
    // Long chunks are lists of numbers, which are their own plain form.
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
  const plain = field.scalar === undefined ? undefined : SCALARS[field.scalar];
  if (plain === undefined) throw new Error(`REST JSON does not carry ${field}`);
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

/** The number itself. Throws where JSON has none for it. */
export function finite(value: unknown): unknown {
  // JSON.stringify would write null.
  if (!Number.isFinite(value)) throw new Error(`JSON has no ${value}`);
  return value;
}

function base64(value: unknown): string {
  const bytes = value as Uint8Array;
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
}

const SCALARS: Partial<Record<ScalarType, Plain>> = {
  [ScalarType.STRING]: same,
  [ScalarType.BOOL]: same,
  [ScalarType.DOUBLE]: finite,
  [ScalarType.FLOAT]: finite,
  [ScalarType.UINT32]: same,
  [ScalarType.FIXED32]: same,
  [ScalarType.INT32]: same,
  [ScalarType.SINT32]: same,
  [ScalarType.SFIXED32]: same,
  [ScalarType.BYTES]: base64,
};
