import { create, equals, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { type ActResponse, ActResponseSchema } from "../../../../gen/limber/policy/v1/policy_service_pb.ts";
import {
  type LoopChunk,
  type LoopObservation,
  LoopObservationSchema,
} from "../../../../gen/limber/v1/control_loop_pb.ts";
import {
  ActStreamRequestSchema,
  type ActStreamResponse,
  ActStreamResponseSchema,
} from "../../../../gen/limber/v1/inference_service_pb.ts";
import type { FrameSchema, ImageFormat } from "../../../../gen/limber/v1/observation_pb.ts";
import { violationsOf } from "../../../../src/edge/messages/validate.ts";
import { framedChunk } from "../../../../src/edge/transports/grpc/loop-messages.ts";
import { packedRequest } from "../../../../src/inference/control-loop/packed-observation.ts";
import { packedAnswer } from "../../../../src/upstream/limber-policy/codec.ts";
import { runs } from "../../../support/runs.ts";

/** Numbers below `below`, from a seed. */
function dice(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

type Roll = ReturnType<typeof dice>;

const NUMBERS = [0, -0, 1, 0.5, -1e300, 1.7e308, 5e-324, Math.fround(0.1)];
const ODD = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
/** No number of an action is 2^128 or more. */
const LIMIT = 2 ** 128;
const ACTION_NUMBERS = [...NUMBERS.filter((each) => Math.abs(each) < LIMIT), LIMIT - 2 ** 75, 2 ** 75 - LIMIT];
const ODD_ACTIONS = [...ODD, LIMIT, -LIMIT, -1e300, 1.7e308];
const WHOLES = [0, 1, 127, 128, 16_383, 16_384, 2 ** 31, 2 ** 32 - 257, 2 ** 32 - 256, 2 ** 32 - 1];

const numberOf = (roll: Roll, odd: boolean): number =>
  odd && roll(40) === 0 ? ODD[roll(ODD.length)]! : NUMBERS[roll(NUMBERS.length)]!;
const numbersOf = (roll: Roll, count: number, odd: boolean): number[] =>
  Array.from({ length: count }, () => numberOf(roll, odd));

/** A number of an action: one in forty can be none. */
const actionOf = (roll: Roll): number =>
  roll(40) === 0 ? ODD_ACTIONS[roll(ODD_ACTIONS.length)]! : ACTION_NUMBERS[roll(ACTION_NUMBERS.length)]!;

const one = <T>(roll: Roll, ...of: T[]): T => of[roll(of.length)]!;

/** A picture in bytes, and what may be said of it: mostly as the schema has it. */
const frameOf = (roll: Roll): MessageInitShape<typeof FrameSchema> => ({
  data: Uint8Array.from({ length: roll(30) ? 1 + roll(200) : 0 }, () => roll(256)),
  ...(roll(2) && { camera: one(roll, "front", "wrist", "x".repeat(128), roll(9) ? "" : "x".repeat(129), "größer") }),
  ...(roll(2) && { format: (roll(20) ? roll(4) : 4) as ImageFormat }),
  ...(roll(2) && { width: one(roll, 0, 640, 16_384, roll(9) ? 1 : 16_385) }),
  ...(roll(2) && { height: one(roll, 0, 480, 16_384, roll(9) ? 1 : 16_385) }),
  ...(roll(3) === 0 && { tMs: numberOf(roll, true) }),
  ...(roll(20) === 0 && { url: "https://example.com/a.png" }),
  ...(roll(20) === 0 && { intrinsics: { fx: 1 } }),
  ...(roll(20) === 0 && { sha256: "0".repeat(64) }),
});

function requestOf(roll: Roll): MessageInitShape<typeof ActStreamRequestSchema> {
  const observations = Array.from({ length: roll(4) }, () => ({
    proprio: numbersOf(roll, roll(20), true),
    tactile: numbersOf(roll, roll(3), true),
    ...(roll(2) && { tMs: numberOf(roll, true) }),
    ...(roll(2) && { gripper: numberOf(roll, true) }),
    ...(roll(9) === 0 && { proprioNames: ["x"] }),
    ...(roll(9) === 0 && { frames: [{ url: "https://example.com/a.png" }] }),
    ...(roll(3) === 0 && { frames: Array.from({ length: roll(12) ? 1 + roll(3) : 17 }, () => frameOf(roll)) }),
  }));
  const more = { ...(roll(9) === 0 && { instruction: "go" }), ...(roll(9) === 0 && { inferenceDelay: 1 }) };
  const value = { step: WHOLES[roll(WHOLES.length)]!, observations, ...more };
  return { message: roll(20) === 0 ? { case: "reset", value: {} } : { case: "observation", value } };
}

function answerOf(roll: Roll): MessageInitShape<typeof ActResponseSchema> {
  const dim = 1 + roll(8);
  const steps = Array.from({ length: roll(5) }, () => ({
    values: Array.from({ length: roll(30) === 0 ? dim + 1 : dim }, () => actionOf(roll)),
  }));
  const chunk = {
    steps,
    dtMs: roll(2) * 50,
    gpuSeconds: numberOf(roll, true),
    ...(roll(9) === 0 && { note: "metres" }),
    ...(roll(9) === 0 && { prediction: [{}] }),
  };
  return {
    callId: WHOLES[roll(WHOLES.length)]!,
    body: roll(9) === 0 ? { case: "error", value: { message: "no" } } : { case: "chunk", value: chunk },
  };
}

/** The bytes, and those with one byte changed, one cut off, one put in. */
function* spoilt(bytes: Uint8Array, roll: Roll): Generator<Buffer> {
  yield Buffer.from(bytes);
  const changed = Buffer.from(bytes);
  if (changed.length > 0) changed[roll(changed.length)] = roll(256);
  yield changed;
  yield Buffer.from(bytes.subarray(0, roll(bytes.length + 1)));
  const at = roll(bytes.length + 1);
  yield Buffer.concat([bytes.subarray(0, at), Uint8Array.of(roll(256)), bytes.subarray(at)]);
}

describe("a loop's messages, read without decoding,", () => {
  it("are the requests that protobuf-es reads, and keep the rules of the schema", () => {
    const roll = dice(1);
    let seen = 0;
    let pictured = 0;
    for (let i = 0; i < runs(1_600); i++) {
      const written = toBinary(ActStreamRequestSchema, create(ActStreamRequestSchema, requestOf(roll)));
      for (const bytes of spoilt(written, roll)) {
        const request = packedRequest(bytes);
        if (request?.message.case !== "observation") continue;
        seen += 1;
        const judged = fromBinary(ActStreamRequestSchema, bytes);
        expect(violationsOf(ActStreamRequestSchema, judged)).toEqual([]);
        const { step, observations, prevChunkLeftOver } = request.message.value;
        if (observations.some(({ frames }) => frames.length > 0)) pictured += 1;
        const read = create(LoopObservationSchema, { step, observations, prevChunkLeftOver });
        expect(equals(LoopObservationSchema, read, judged.message.value as LoopObservation)).toBe(true);
      }
    }
    expect(seen).toBeGreaterThan(200);
    expect(pictured).toBeGreaterThan(20);
  });

  it("provide the newest observation's fields that a loop uses", () => {
    const observations = [
      { proprio: [1, 2, 3], tMs: 1 },
      { proprio: [1, 2], tMs: 7.5 },
    ];
    const written = toBinary(
      ActStreamRequestSchema,
      create(ActStreamRequestSchema, { message: { case: "observation", value: { step: 3, observations } } }),
    );
    expect(packedRequest(Buffer.from(written))?.message.value).toMatchObject({ packed: { numbers: 2, tMs: 7.5 } });
  });

  it("are the answers that protobuf-es reads, every number finite", () => {
    const roll = dice(2);
    let seen = 0;
    for (let i = 0; i < runs(800); i++) {
      const written = toBinary(ActResponseSchema, create(ActResponseSchema, answerOf(roll)));
      for (const bytes of spoilt(written, roll)) {
        const answer = packedAnswer(bytes);
        if (!answer) continue;
        seen += 1;
        const judged = fromBinary(ActResponseSchema, bytes) as ActResponse & { body: { case: "chunk" } };
        const { steps, dtMs, gpuSeconds, packed } = answer.answer;
        expect(judged).toMatchObject({ callId: answer.callId, body: { value: { steps, dtMs, gpuSeconds } } });
        expect(judged.body.value.note).toBe("");
        expect(judged.body.value.prediction).toEqual([]);
        expect(packed.count).toBe(steps.length);
        for (const { values } of steps) {
          expect(values.length).toBe(packed.dim);
          expect(values.every((value) => Math.abs(value) < LIMIT)).toBe(true);
        }
      }
    }
    expect(seen).toBeGreaterThan(200);
  });

  it("are chunks as protobuf-es writes them, byte for byte", () => {
    const roll = dice(3);
    let framed = 0;
    for (let i = 0; i < runs(800); i++) {
      const bytes = toBinary(ActResponseSchema, create(ActResponseSchema, answerOf(roll)));
      const answer = packedAnswer(Buffer.from(bytes));
      if (!answer) continue;
      const whole = (): number => WHOLES[roll(WHOLES.length)]!;
      const message = create(ActStreamResponseSchema, {
        event: {
          case: "chunk",
          value: {
            chunkId: ["", "chunk_1", "größer", "x".repeat(200)][roll(4)]!,
            action: {
              space: ["", "joint_pos_7", "s".repeat(130)][roll(3)]!,
              steps: answer.answer.steps,
              dtMs: whole(),
            },
            startStep: whole(),
            validUntilStep: whole(),
            observationAgeMs: numberOf(roll, true),
            ...(roll(2) && { observationTime: numberOf(roll, true) }),
            episodeBreak: roll(2) === 1,
            usage: { actionSteps: whole(), gpuSeconds: numberOf(roll, true), costUsd: numberOf(roll, true) },
            droppedObservations: whole(),
            replayed: roll(2) === 1,
            episode: whole(),
            ...(roll(9) === 0 && { route: {} }),
          },
        },
      }) as ActStreamResponse & { event: { case: "chunk"; value: LoopChunk } };
      Object.assign(message.event.value.action!, { packed: answer.answer.packed });
      const { value } = message.event;
      // A chunk that the gateway names has its name in parts.
      if (roll(2)) Object.assign(value, { chunkId: `chunk_1-${value.startStep}`, name: Buffer.from("chunk_1-") });
      const frame = framedChunk(message);
      if (!frame) continue;
      framed += 1;
      const judged = toBinary(ActStreamResponseSchema, message);
      expect(frame.subarray(5).equals(judged)).toBe(true);
      expect([frame[0], frame.readUInt32BE(1)]).toEqual([0, judged.length]);
    }
    expect(framed).toBeGreaterThan(100);
  });
});
