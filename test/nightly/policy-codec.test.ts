/** The native wire's codec beside protobuf-es: equal messages to a server, and equal answers from it. */
import { create, equals, fromBinary, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, it } from "vitest";
import {
  type ActCall,
  ActCallSchema,
  ActRequestSchema,
  ActResponseSchema,
} from "../../gen/limber/policy/v1/policy_service_pb.ts";
import { LoopObservationSchema } from "../../gen/limber/v1/control_loop_pb.ts";
import { ActStreamRequestSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { ImageFormat, type Observation, ObservationSchema } from "../../gen/limber/v1/observation_pb.ts";
import { PREFIX } from "../../src/codecs/grpc.ts";
import { type ActInput, UpstreamFailure } from "../../src/contracts/contract.ts";
import type { ParsedObservation } from "../../src/inference/control-loop/loop-plan.ts";
import { packedRequest } from "../../src/inference/control-loop/packed-observation.ts";
import { encodeAct, loopEncoder, readAct } from "../../src/upstream/limber-policy/codec.ts";
import {
  actCallOf,
  actCommonOf,
  type HeardAct,
  readAct as parseAct,
  wholeMs,
} from "../../src/upstream/limber-policy/messages.ts";
import { grainyPicture, redSquare } from "../../src/upstream/pictures/test-picture.ts";
import type { GrpcMessage } from "../../src/upstream/transport/grpc.ts";
import { framesOf, nameOf, observed } from "../support/wire-calls.ts";
import { mutations } from "../unit/codecs/fuzz.ts";

const optional = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });
const number = fc.double({ noNaN: true, noDefaultInfinity: true });

const observation = fc.record({ proprio: fc.array(number, { maxLength: 40 }), pictures: fc.nat(2), depths: fc.nat(1) });
const common = fc.record({
  instruction: fc.string({ maxLength: 50 }),
  seed: optional(fc.nat()),
  temperature: optional(number),
  sessionId: optional(fc.string({ maxLength: 20 })),
  actionSpace: fc.constantFrom("joint_pos_7", ""),
  horizon: fc.nat(100),
  returnPrediction: fc.boolean(),
  inferenceDelay: optional(fc.nat(50)),
});
const budget = fc.double({ min: -1, max: 100_000, noNaN: true });
const callIds = fc.constantFrom(1, 127, 128, 70_000, 2 ** 32 - 2);

const SMALL = redSquare(0.5, 0.5, 16);
const LARGE = grainyPicture();

const request = (message: GrpcMessage) => {
  const framed = Buffer.concat([message].flat());
  expect([framed[0], framed.readUInt32BE(1)]).toEqual([0, framed.length - PREFIX]);
  return fromBinary(ActRequestSchema, framed.subarray(PREFIX));
};

/** The request as protobuf-es writes and reads it. */
const plain = (callId: number, value: ActCall) =>
  fromBinary(
    ActRequestSchema,
    toBinary(ActRequestSchema, create(ActRequestSchema, { callId, body: { case: "call", value } })),
  );

it.each([
  ["small", SMALL],
  ["large", LARGE],
])("an act call with %s pictures or none equals the message that protobuf-es writes", async (_, picture) => {
  const act = fc.tuple(fc.array(observation, { minLength: 1, maxLength: 3 }), common, budget, callIds);
  await fc.assert(
    fc.asyncProperty(act, async ([seen, more, budgetMs, callId]) => {
      const frame = { camera: "front", data: await picture };
      const observations = seen.map(({ proprio, pictures, depths }) =>
        observed({ proprio, frames: Array(pictures).fill(frame), depth: Array(depths).fill(frame) }),
      );
      const input: ActInput = { ...more, observations };
      const call = { requestId: "req_1", budgetMs };
      const frames = framesOf(...observations);
      const written = request((await encodeAct("o/n", input, frames, call)).under(callId));
      const wanted = plain(callId, await actCallOf("o/n", input, frames, call));
      expect(equals(ActRequestSchema, wanted, written)).toBe(true);
    }),
    { numRuns: 60 },
  );
});

it("an act call of a loop equals the message that protobuf-es writes", () => {
  const act = fc.tuple(fc.array(observation, { minLength: 1, maxLength: 3 }), common, budget, callIds);
  fc.assert(
    fc.property(act, ([seen, more, budgetMs, callId]) => {
      const observations = seen.map(({ proprio }) => create(ObservationSchema, { proprio }));
      const source = Buffer.from(toBinary(LoopObservationSchema, create(LoopObservationSchema, { observations })));
      const messageOf = loopEncoder("o/n", more, "req_1");
      const written = request(messageOf({ source, from: 0, to: source.length, frames: [] }, budgetMs).under(callId));
      const seenBy = fromBinary(ActCallSchema, source).observations;
      const wanted = { ...actCommonOf("o/n", more, "req_1"), observations: seenBy, budgetMs: wholeMs(budgetMs) };
      expect(equals(ActRequestSchema, plain(callId, wanted), written)).toBe(true);
    }),
  );
});

/** What a loop's caller sends, as it is looked at. */
function lookedAt(observations: readonly Observation[]) {
  const message = { case: "observation" as const, value: { step: 7, observations: [...observations] } };
  const bytes = toBinary(ActStreamRequestSchema, create(ActStreamRequestSchema, { message }));
  const seen = packedRequest(Buffer.from(bytes))?.message.value as ParsedObservation | undefined;
  return seen?.packed;
}

const sizes = fc.record({
  format: optional(fc.constantFrom(ImageFormat.UNSPECIFIED, ImageFormat.PNG, ImageFormat.JPEG)),
  width: optional(fc.constantFrom(16, 1_280, 16_384)),
  height: optional(fc.constantFrom(16, 720, 0)),
  tMs: optional(number),
});

it("an act call of a loop with images equals a separate call's message, whatever its frames declare", async () => {
  const [small, large] = await Promise.all([SMALL, LARGE]);
  const frame = fc.tuple(fc.boolean(), fc.constantFrom("", "front", "x".repeat(128)), sizes);
  const seen = fc.record({ proprio: fc.array(number, { maxLength: 40 }), frames: fc.array(frame, { maxLength: 3 }) });
  const act = fc.tuple(fc.array(seen, { minLength: 1, maxLength: 3 }), common, budget, callIds);
  await fc.assert(
    fc.asyncProperty(act, async ([given, more, budgetMs, callId]) => {
      const observations = given.map(({ proprio, frames }) =>
        observed({
          proprio,
          frames: frames.map(([isLarge, camera, said]) => ({ camera, data: isLarge ? large : small, ...said })),
        }),
      );
      const packed = lookedAt(observations)!;
      expect(packed).toMatchObject({ isSound: true, pictures: observations.at(-1)!.frames.length });
      const call = { requestId: "req_1", budgetMs };
      const input: ActInput = { ...more, observations };
      const alone = plain(callId, await actCallOf("o/n", input, framesOf(...observations), call));
      const inLoop = request(loopEncoder("o/n", more, "req_1")(packed, budgetMs).under(callId));
      expect(equals(ActRequestSchema, alone, inLoop)).toBe(true);
    }),
    { numRuns: 60 },
  );
});

it("an invalid or truncated image leaves the loop's observation readable", async () => {
  const large = await LARGE;
  const unsound = [large.subarray(0, large.length - 2), large.subarray(0, 40), Buffer.from("no picture")];
  for (const data of unsound)
    expect(lookedAt([observed({ frames: [{ data: large }, { data }] })])?.isSound).toBe(false);
});

const answers = [
  { callId: 300, body: { case: "chunk", value: { steps: [{ values: [1, 2, 3] }, { values: [4, 5, 6] }] } } },
  { callId: 7, body: { case: "chunk", value: { steps: [{ values: [0.1] }], dtMs: 20, gpuSeconds: 0.5 } } },
  { callId: 7, body: { case: "chunk", value: { steps: [{ values: [1] }, { values: [1, 2] }], note: "a\nnote" } } },
  { callId: 9, body: { case: "chunk", value: { steps: [{ values: [Number.NaN] }], prediction: [{ index: 1 }] } } },
  { callId: 1, body: { case: "error", value: { message: "no" } } },
  { callId: 2 },
].map((init) => Buffer.from(toBinary(ActResponseSchema, create(ActResponseSchema, init as object))));

function outcomeOf(read: (bytes: Buffer) => HeardAct, bytes: Buffer): unknown {
  try {
    const { callId, answer } = read(Buffer.from(bytes));
    if (answer instanceof UpstreamFailure) return { callId, failure: nameOf(answer) };
    const { steps, dtMs, note, prediction, gpuSeconds } = answer;
    return { callId, steps: steps.map(({ values }) => values), dtMs, note, frames: prediction.length, gpuSeconds };
  } catch (thrown) {
    if (thrown instanceof UpstreamFailure) return nameOf(thrown);
    throw thrown;
  }
}

it("the answer decoder matches protobuf-es, for damaged answers, too", () => {
  const byProtobuf = (bytes: Buffer) =>
    parseAct(bytes, (schema, each) => fromBinary(schema, each, { readUnknownFields: false }));
  for (const bytes of [...answers, ...mutations(answers, 20_000, 17)])
    expect(outcomeOf(readAct, bytes), bytes.toString("hex")).toEqual(outcomeOf(byProtobuf, bytes));
});
