import { create, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ActResponseSchema as AnswerSchema } from "../../../../gen/limber/policy/v1/policy_service_pb.ts";
import { ActResponseSchema } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { writeMessage } from "../../../../src/codecs/protobuf/write.ts";
import { SentAction } from "../../../../src/contracts/act.ts";
import { toText } from "../../../../src/edge/messages/json.ts";
import { packedAnswer } from "../../../../src/upstream/limber-policy/codec.ts";

/** The largest number that an action may have: the one below 2^128. */
const MOST = 2 ** 128 - 2 ** 75;
const finite = fc.oneof(
  fc.double({ min: -MOST, max: MOST, noNaN: true }),
  fc.float({ noNaN: true, noDefaultInfinity: true }),
  fc.constantFrom(0, -0, 1, -1, 5e-324, -MOST, MOST, 1e21, 1e-7),
);
const chunks = fc
  .record({ dim: fc.integer({ min: 1, max: 40 }), count: fc.integer({ min: 1, max: 20 }) })
  .chain(({ dim, count }) =>
    fc.array(fc.array(finite, { minLength: dim, maxLength: dim }), { minLength: count, maxLength: count }),
  );

describe("steps that are passed on without decoding", () => {
  it("are written as JSON and as protobuf byte for byte as decoded steps", () => {
    fc.assert(
      fc.property(chunks, (rows) => {
        const steps = rows.map((values) => ({ values }));
        const body = { case: "chunk" as const, value: { steps, dtMs: 50 } };
        const seen = packedAnswer(Buffer.from(toBinary(AnswerSchema, create(AnswerSchema, { callId: 7, body }))));
        expect(seen).toBeDefined();
        const plain = create(ActResponseSchema, { id: "act_1", action: { space: "joint_pos_7", steps, dtMs: 50 } });
        const packed = { ...plain, action: new SentAction("joint_pos_7", seen!.answer, 50) };
        expect(packed.action.packed?.count).toBe(rows.length);
        expect(toText(ActResponseSchema, packed)).toBe(toText(ActResponseSchema, plain));
        expect(writeMessage(ActResponseSchema, packed)).toEqual(Buffer.from(toBinary(ActResponseSchema, plain)));
      }),
    );
  });
});
