import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { PredictRequestSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import { ImageFormat } from "../../../gen/limber/v1/observation_pb.ts";
import { type PredictedFrame, PredictedFrameSchema } from "../../../gen/limber/v1/prediction_pb.ts";
import { AttemptFailure } from "../../../src/contracts/contract.ts";
import { checkAnswer, checkFrame, inputOf, intentOf, refuseStream, unitsOf } from "../../../src/contracts/predict.ts";
import { Reason, Refusal } from "../../../src/errors.ts";

type Init = Parameters<typeof create<typeof PredictRequestSchema>>[1];
const request = (init: Init = {}) => create(PredictRequestSchema, { model: "acme/dream", observations: [{}], ...init });

function refusal(run: () => unknown): Refusal {
  try {
    run();
  } catch (thrown) {
    if (thrown instanceof Refusal) return thrown;
  }
  throw new Error("expected a refusal");
}

const PNG = Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0);
const frame = (index: number, init: MessageInitShape<typeof PredictedFrameSchema> = {}): PredictedFrame =>
  create(PredictedFrameSchema, { index, tMs: 50, width: 8, height: 8, format: ImageFormat.PNG, data: PNG, ...init });

describe("intentOf", () => {
  test("defaults to 16 frames, and to one sample for any given number", () => {
    expect(intentOf(request()).units).toBe(16);
    expect(intentOf(request({ horizon: 5, numSamples: 3 })).units).toBe(5);
  });

  test("lists the parameters that the request sets", () => {
    const { parameters, actionSpace } = intentOf(
      request({ seed: 1, actions: [{ values: [1] }], fps: 10, resolution: "8x8", numSamples: 1 }),
    );
    expect(parameters).toEqual(["seed", "actions", "fps", "resolution", "num_samples"]);
    expect(actionSpace).toBeUndefined();
  });

  test.each([
    [
      "actions of another dimension than their action space",
      { actionSpace: "base_twist_2d", actions: [{ values: [1, 2] }, { values: [1] }] },
      "actions.1",
    ],
    ["actions of different lengths", { actions: [{ values: [1, 2] }, { values: [1, 2, 3] }] }, "actions.1"],
    ["empty actions", { actions: [{ values: [] }] }, "actions.0"],
    ["an unknown action space", { actionSpace: "legs" }, "action_space"],
  ])("refuses %s, by its path", (_, init, path) => {
    const { reason, param } = refusal(() => intentOf(request(init)));
    expect([reason, param]).toEqual([Reason.VALIDATION_FAILED, path]);
  });
});

test("predict refuses stream: true only if the transport returns one response", () => {
  expect(refusal(() => refuseStream(request({ stream: true }))).reason).toBe(Reason.STREAM_UNSUPPORTED);
  expect(() => refuseStream(request())).not.toThrow();
  expect(() => intentOf(request({ stream: true }))).not.toThrow();
});

test("inputOf sends the model the request's values", () => {
  const input = inputOf(request({ actions: [{ values: [1, 2] }], actionSpace: "base_twist_2d", fps: 10, horizon: 4 }));
  expect(input).toMatchObject({ horizon: 4, actionSpace: "base_twist_2d", fps: 10, resolution: undefined });
  expect(input.actions[0]?.values).toEqual([1, 2]);
});

describe("checkFrame", () => {
  const jpeg = Uint8Array.of(0xff, 0xd8, 0xff, 0xe0);
  const webp = new TextEncoder().encode("RIFF....WEBP");

  test.each([
    [ImageFormat.PNG, PNG],
    [ImageFormat.JPEG, jpeg],
    [ImageFormat.WEBP, webp],
  ])("accepts a frame whose bytes match its format (%i)", (format, data) => {
    expect(checkFrame(frame(3, { format, data }), 3)).toBeUndefined();
  });

  test.each([
    ["no bytes", { data: new Uint8Array() }, AttemptFailure.EMPTY_ANSWER],
    ["bytes of another format", { data: jpeg }, AttemptFailure.UNREADABLE_FRAME],
    ["fewer bytes than the format's first", { data: PNG.subarray(0, 4) }, AttemptFailure.UNREADABLE_FRAME],
    ["no media type", { format: ImageFormat.UNSPECIFIED }, AttemptFailure.UNREADABLE_FRAME],
    ["no width", { width: 0 }, AttemptFailure.UNREADABLE_FRAME],
    ["an index out of order", { index: 4 }, AttemptFailure.MALFORMED_ANSWER],
    ["a time that is not a number", { tMs: Number.NaN }, AttemptFailure.MALFORMED_ANSWER],
  ])("rejects a frame with %s", (_, init, failure) => {
    expect(checkFrame(frame(3, init), 3)).toBe(failure);
  });
});

describe("checkAnswer", () => {
  const check = (...frames: PredictedFrame[]) => checkAnswer({ frames, gpuSeconds: 0, note: "" }, { units: 2 });

  test("accepts exactly horizon frames in order", () => {
    expect(check(frame(0), frame(1))).toBeUndefined();
  });

  test("rejects no frames, too few, too many, and one bad frame among good ones", () => {
    expect(check()).toBe(AttemptFailure.EMPTY_ANSWER);
    expect(check(frame(0))).toBe(AttemptFailure.WRONG_STEP_COUNT);
    expect(check(frame(0), frame(1), frame(2))).toBe(AttemptFailure.WRONG_STEP_COUNT);
    expect(check(frame(0), frame(1, { width: 0 }))).toBe(AttemptFailure.UNREADABLE_FRAME);
  });
});

test("a predict answer is billed by its frames", () => {
  expect(unitsOf({ frames: [frame(0), frame(1)], gpuSeconds: 0, note: "" })).toBe(2);
});
