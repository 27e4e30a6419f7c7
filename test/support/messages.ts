/** Messages of any type, from a seed. */
import {
  create,
  type DescField,
  type DescMessage,
  type JsonObject,
  type Message,
  ScalarType,
} from "@bufbuild/protobuf";

/** Numbers below `below`, from a seed. */
export function dice(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Numbers below one that is named with each. */
export type Roll = ReturnType<typeof dice>;

const TEXTS = ["", "a", "größer 💸", "x".repeat(23), "y".repeat(24), "z".repeat(25), "n".repeat(300), "\0", "\ud800"];
const NUMBERS = [0, -0, 1, 0.5, -1e300, Number.NaN, Number.POSITIVE_INFINITY, Math.fround(0.1)];
const WHOLES = [0, 1, 127, 128, 16_383, 16_384, 2 ** 31 - 1];

function scalarOf(scalar: ScalarType, roll: Roll): unknown {
  switch (scalar) {
    case ScalarType.STRING:
      return TEXTS[roll(TEXTS.length)];
    case ScalarType.BYTES:
      return new Uint8Array(roll(3) * roll(200)).fill(roll(256));
    case ScalarType.BOOL:
      return roll(2) === 1;
    case ScalarType.INT32:
      return roll(4) === 0 ? -WHOLES[roll(WHOLES.length)]! : WHOLES[roll(WHOLES.length)];
    case ScalarType.UINT32:
      return roll(4) === 0 ? 2 ** 32 - 1 : WHOLES[roll(WHOLES.length)];
    case ScalarType.DOUBLE:
      return NUMBERS[roll(NUMBERS.length)];
    case ScalarType.FLOAT:
      return Math.fround(NUMBERS[roll(NUMBERS.length)]!);
    default:
      throw new Error(`no such scalar here: ${ScalarType[scalar]}`);
  }
}

function itemOf(field: DescField, roll: Roll, depth: number): unknown {
  if (field.message?.typeName === "google.protobuf.Struct") return { a: [1, { b: null }] } satisfies JsonObject;
  if (field.message !== undefined) return messageOf(field.message, roll, depth + 1);
  if (field.enum !== undefined) return field.enum.values[roll(field.enum.values.length)]!.number;
  return scalarOf(field.scalar!, roll);
}

/** A message with some of its fields set. */
export function messageOf(desc: DescMessage, roll: Roll, depth = 0): Message {
  const message = create(desc) as Message & Record<string, unknown>;
  for (const field of desc.fields) {
    if (roll(3) === 0 || (field.message && depth > 4)) continue;
    if (field.message?.typeName === "google.protobuf.Struct" && roll(4) > 0) continue;
    if (field.fieldKind === "map") {
      if (roll(4) === 0) message[field.localName] = { k: itemOf(field, roll, depth) };
    } else if (field.fieldKind === "list") {
      message[field.localName] = Array.from({ length: roll(4) * roll(8) }, () => itemOf(field, roll, depth));
    } else if (field.oneof !== undefined) {
      message[field.oneof.localName] = { case: field.localName, value: itemOf(field, roll, depth) };
    } else message[field.localName] = itemOf(field, roll, depth);
  }
  return message;
}
