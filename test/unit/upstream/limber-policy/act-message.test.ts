/** An act call as it leaves for a server of the native wire. */
import { create, fromBinary } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { ActRequestSchema } from "../../../../gen/limber/policy/v1/policy_service_pb.ts";
import { ObservationSchema } from "../../../../gen/limber/v1/observation_pb.ts";
import { PREFIX } from "../../../../src/codecs/grpc.ts";
import { encodeAct } from "../../../../src/upstream/limber-policy/codec.ts";
import { FrameSet } from "../../../../src/upstream/pictures/frames.ts";

describe("a prepared act message", () => {
  it.each([3, 2_000])("of %i numbers is equal under every id, and a sent message does not change", async (count) => {
    const proprio = Array.from({ length: count }, (_, i) => i / 3);
    const input = {
      observations: [create(ObservationSchema, { proprio })],
      instruction: "pick",
      actionSpace: "joint_pos_7",
      horizon: 16,
      returnPrediction: false,
    };
    const frames = new FrameSet([], { agent: undefined as never, allowPrivate: false });
    const prepared = await encodeAct("o/n", input as never, frames, { requestId: "req_1", budgetMs: 100 });
    const ids = [1, 300, 2 ** 32 - 2];
    const messages = ids.map((id) => Buffer.concat([prepared.under(id)].flat()));
    for (const [i, message] of messages.entries()) {
      expect(message.readUInt32BE(1)).toBe(message.length - PREFIX);
      const { callId, body } = fromBinary(ActRequestSchema, message.subarray(PREFIX));
      expect(callId).toBe(ids[i]);
      expect(body).toMatchObject({
        case: "call",
        value: { model: "o/n", instruction: "pick", horizon: 16, budgetMs: 100 },
      });
      expect(body.case === "call" && body.value.observations[0]?.proprio).toEqual(proprio);
    }
  });
});
