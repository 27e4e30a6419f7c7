import { create, type DescMessage, fromBinary, toBinary } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import * as policy from "../../../../gen/limber/policy/v1/policy_service_pb.ts";
import * as inference from "../../../../gen/limber/v1/inference_service_pb.ts";
import { ObservationSchema } from "../../../../gen/limber/v1/observation_pb.ts";
import { readMessage } from "../../../../src/codecs/protobuf/read.ts";
import { writeMessage } from "../../../../src/codecs/protobuf/write.ts";
import { dice, messageOf } from "../../../support/messages.ts";
import { runs } from "../../../support/runs.ts";

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
  it("is written byte for byte as protobuf-es writes it, after the reserved bytes", () => {
    const roll = dice(1);
    for (let i = 0; i < runs(40); i++) {
      const message = messageOf(desc, roll);
      const bytes = toBinary(desc, message);
      const written = writeMessage(desc, message, 5);
      expect(written.subarray(5).equals(bytes)).toBe(true);
    }
  });

  it("is read as protobuf-es reads it", () => {
    const roll = dice(2);
    for (let i = 0; i < runs(40); i++) {
      const bytes = toBinary(desc, messageOf(desc, roll));
      expect(readMessage(desc, bytes)).toEqual(fromBinary(desc, bytes));
    }
  });

  it("is read or refused as by protobuf-es for any damage to its bytes", () => {
    const roll = dice(3);
    for (let i = 0; i < runs(200); i++) {
      const bytes = toBinary(desc, messageOf(desc, roll, 3));
      for (let edits = 1 + roll(3); edits > 0 && bytes.length > 0; edits--) bytes[roll(bytes.length)] = roll(256);
      const cut = roll(3) === 0 ? bytes.subarray(0, roll(bytes.length + 1)) : bytes;
      expect(outcomeOf(() => readMessage(desc, cut))).toEqual(outcomeOf(() => fromBinary(desc, cut)));
    }
  });
});

it("the encoder refuses to write what protobuf-es refuses", () => {
  const desc = inference.ActRequestSchema;
  for (const wrong of [{ horizon: -1 }, { horizon: 1.5 }, { model: 1 }, { observations: [{}] }, { $typeName: "no" }]) {
    const message = { ...create(desc), ...wrong } as unknown as inference.ActRequest;
    expect(outcomeOf(() => new Uint8Array(writeMessage(desc, message)))).toEqual(
      outcomeOf(() => new Uint8Array(toBinary(desc, message))),
    );
  }
});

it("the codec shares no memory between two messages that were read or written", () => {
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
