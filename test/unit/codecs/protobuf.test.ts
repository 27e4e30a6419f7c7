import {
  create,
  type DescField,
  type DescMessage,
  fromBinary,
  type JsonObject,
  type Message,
  ScalarType,
  toBinary,
} from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import * as policy from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import * as inference from "../../../gen/limber/v1/inference_service_pb.ts";
import { ObservationSchema } from "../../../gen/limber/v1/observation_pb.ts";
import { readMessage } from "../../../src/codecs/protobuf/read.ts";
import { writeMessage } from "../../../src/codecs/protobuf/write.ts";

/** Numbers below `below`, from a seed. */
function dice(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

type Roll = ReturnType<typeof dice>;

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
function messageOf(desc: DescMessage, roll: Roll, depth = 0): Message {
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

const SCHEMAS: DescMessage[] = [
  inference.ActRequestSchema,
  inference.ActResponseSchema,
  inference.PredictRequestSchema,
  inference.PredictStreamResponseSchema,
  inference.GroundResponseSchema,
  policy.ActRequestSchema,
  policy.ActResponseSchema,
  policy.PredictResponseSchema,
  policy.DescribeResponseSchema,
];

const outcomeOf = (run: () => unknown): unknown => {
  try {
    return run();
  } catch (thrown) {
    return `${thrown}`;
  }
};

describe.each(SCHEMAS.map((desc) => [desc.typeName, desc] as const))("%s", (_, desc) => {
  it("is written to the byte as protobuf-es writes it, behind the room that was asked for", () => {
    const roll = dice(1);
    for (let i = 0; i < 400; i++) {
      const message = messageOf(desc, roll);
      const bytes = toBinary(desc, message);
      const written = writeMessage(desc, message, 5);
      expect(written.subarray(5).equals(bytes)).toBe(true);
    }
  });

  it("is read as protobuf-es reads it", () => {
    const roll = dice(2);
    for (let i = 0; i < 400; i++) {
      const bytes = toBinary(desc, messageOf(desc, roll));
      expect(readMessage(desc, bytes)).toEqual(fromBinary(desc, bytes));
    }
  });

  it("is read or refused as by protobuf-es, whatever became of its bytes", () => {
    const roll = dice(3);
    for (let i = 0; i < 1_500; i++) {
      const bytes = toBinary(desc, messageOf(desc, roll, 3));
      for (let edits = 1 + roll(3); edits > 0 && bytes.length > 0; edits--) bytes[roll(bytes.length)] = roll(256);
      const cut = roll(3) === 0 ? bytes.subarray(0, roll(bytes.length + 1)) : bytes;
      expect(outcomeOf(() => readMessage(desc, cut))).toEqual(outcomeOf(() => fromBinary(desc, cut)));
    }
  });
});

it("refuses to write what protobuf-es refuses", () => {
  const desc = inference.ActRequestSchema;
  for (const wrong of [{ horizon: -1 }, { horizon: 1.5 }, { model: 1 }, { observations: [{}] }, { $typeName: "no" }]) {
    const message = { ...create(desc), ...wrong } as unknown as inference.ActRequest;
    expect(outcomeOf(() => new Uint8Array(writeMessage(desc, message)))).toEqual(
      outcomeOf(() => new Uint8Array(toBinary(desc, message))),
    );
  }
});

it("shares nothing between two messages that were read, nor between two that were written", () => {
  const desc = policy.ActResponseSchema;
  const bytes = toBinary(desc, create(desc));
  const [one, other] = [readMessage(policy.ActCallSchema, bytes), readMessage(policy.ActCallSchema, bytes)];
  one.observations.push(create(ObservationSchema));
  expect(other.observations).toEqual([]);
  const first = writeMessage(desc, create(desc, { callId: 7 }));
  const before = Buffer.from(first);
  writeMessage(desc, create(desc, { callId: 8 }));
  expect(first.equals(before)).toBe(true);
});
