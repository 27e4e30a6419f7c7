import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { GroundedBoxSchema, GroundedPointSchema } from "../../../gen/limber/v1/grounding_pb.ts";
import { GroundRequestSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import { AttemptFailure, Contract, type GroundAnswer } from "../../../src/contracts/contract.ts";
import { checkAnswer, inputOf, intentOf, unitsOf } from "../../../src/contracts/ground.ts";

const request = create(GroundRequestSchema, {
  observations: [{ frames: [{ camera: "old" }] }, { frames: [{ camera: "a" }, { camera: "b" }] }],
  instruction: "the red box",
});

type Point = { x?: number; y?: number; confidence?: number; frame?: number };
type Box = { xMin?: number; yMin?: number; xMax?: number; yMax?: number; confidence?: number };
const answer = (points: Point[], boxes: Box[] = [], tokens = 10): GroundAnswer => ({
  points: points.map((point) => create(GroundedPointSchema, point)),
  boxes: boxes.map((box) => create(GroundedBoxSchema, box)),
  note: "",
  inputTokens: tokens,
  outputTokens: 2,
});

test("ground defaults to service/ground, and expects more tokens for more frames", () => {
  const intent = intentOf(request);
  expect(intent).toMatchObject({ contract: Contract.GROUND, model: "service/ground", actionSpace: undefined });
  const one = intentOf(create(GroundRequestSchema, { observations: [{ frames: [{}] }], instruction: "the red box" }));
  expect(intent.units).toBeGreaterThan(one.units);
  expect(intentOf(create(GroundRequestSchema, { ...request, model: "eye/point" })).model).toBe("eye/point");
});

test("ground sends the model only the last observation", () => {
  expect(inputOf(request).observations.map((each) => each.frames.map((frame) => frame.camera))).toEqual([["a", "b"]]);
});

describe("checkAnswer", () => {
  test("accepts points and boxes from 0 to 1, and an empty result", () => {
    expect(
      checkAnswer(answer([{ x: 0, y: 1, confidence: 0.5 }], [{ xMin: 0, yMin: 0, xMax: 1, yMax: 1 }]), 1),
    ).toBeUndefined();
    expect(checkAnswer(answer([]), 1)).toBeUndefined();
  });

  test.each([
    ["a point right of the image", answer([{ x: 1.01 }]), AttemptFailure.MALFORMED_ANSWER],
    ["pixels instead of fractions", answer([{ x: 320, y: 200 }]), AttemptFailure.MALFORMED_ANSWER],
    ["a negative coordinate", answer([{ y: -0.1 }]), AttemptFailure.MALFORMED_ANSWER],
    ["a confidence above one", answer([{ confidence: 2 }]), AttemptFailure.MALFORMED_ANSWER],
    ["a coordinate that is not a number", answer([{ x: Number.NaN }]), AttemptFailure.NON_FINITE_ACTION],
    ["an infinite box", answer([], [{ xMax: Number.POSITIVE_INFINITY }]), AttemptFailure.NON_FINITE_ACTION],
    ["an inverted box", answer([], [{ xMin: 0.6, xMax: 0.4 }]), AttemptFailure.MALFORMED_ANSWER],
    ["tokens that cannot be counted", answer([], [], 1.5), AttemptFailure.MALFORMED_ANSWER],
    ["a point in an image that was not sent", answer([{ frame: 1 }]), AttemptFailure.MALFORMED_ANSWER],
    ["more tokens than any model reads", answer([], [], 1e9), AttemptFailure.MALFORMED_ANSWER],
    ["negative tokens", answer([], [], -1), AttemptFailure.MALFORMED_ANSWER],
  ])("rejects %s", (_, given, failure) => {
    expect(checkAnswer(given, 1)).toBe(failure);
  });
});

test("a ground answer is billed by its input and output tokens", () => {
  expect(unitsOf(answer([]))).toBe(12);
});
