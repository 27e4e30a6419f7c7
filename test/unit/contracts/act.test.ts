import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { ActRequestSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import { PredictedFrameSchema } from "../../../gen/limber/v1/prediction_pb.ts";
import { SortAxis } from "../../../gen/limber/v1/preferences_pb.ts";
import { checkAnswer, inputOf, intentOf, unitsOf } from "../../../src/contracts/act.ts";
import { ACTION_SPACES, type ActAnswer, AttemptFailure, Contract } from "../../../src/contracts/contract.ts";
import { Reason, Refusal } from "../../../src/errors.ts";

const request = (init: Parameters<typeof create<typeof ActRequestSchema>>[1] = {}) =>
  create(ActRequestSchema, { model: "acme/arm", observations: [{}], ...init });

function refusal(run: () => unknown): Refusal {
  try {
    run();
  } catch (thrown) {
    if (thrown instanceof Refusal) return thrown;
  }
  throw new Error("expected a refusal");
}

const chunk = (...steps: number[][]): ActAnswer => ({
  steps: steps.map((values) => ({ $typeName: "limber.v1.ActionStep", values })),
  dtMs: 50,
  note: "",
  prediction: [],
  gpuSeconds: 0,
});

describe("intentOf", () => {
  test("applies the defaults of the specification", () => {
    expect(intentOf(request())).toMatchObject({
      contract: Contract.ACT,
      actionSpace: "ee_delta_6d_grip",
      units: 16,
      extent: "wish",
      models: [],
      parameters: [],
    });
  });

  test.each([
    ["treats a named horizon as exact", { horizon: 16 }, 16, undefined],
    ["gives a whole chunk any number of steps up to the maximum", { wholeChunk: true }, 256, "chunk"],
    ["treats a horizon beside a whole chunk as its maximum", { wholeChunk: true, horizon: 50 }, 50, "wish"],
  ])("%s", (_, init, units, extent) => {
    expect(intentOf(request(init))).toMatchObject({ units, extent });
  });

  test("lists the parameters that the request sets, so that require_parameters can apply", () => {
    const intent = intentOf(request({ seed: 0, temperature: 0, goalImage: { url: "data:," }, returnPrediction: true }));
    expect(intent.parameters).toEqual(["seed", "temperature", "goal_image", "return_prediction"]);
  });

  test("reads the chain from the top level, from provider, or from both if they agree", () => {
    for (const both of [
      { models: ["a/b"] },
      { provider: { models: ["a/b"] } },
      { models: ["a/b"], provider: { models: ["a/b"] } },
    ]) {
      expect(intentOf(request(both)).models).toEqual(["a/b"]);
    }
  });

  test.each([
    ["two chains that differ", { models: ["a/b"], provider: { models: ["a/c"] } }],
    ["two chains of different length", { models: ["a/b", "a/c"], provider: { models: ["a/b"] } }],
    ["objective with sort", { provider: { objective: { price: 1 }, sort: SortAxis.PRICE } }],
  ])("refuses %s as conflicting", (_, init) => {
    expect(refusal(() => intentOf(request(init))).reason).toBe(Reason.CONFLICTING_PREFERENCES);
  });

  test("refuses an objective without weights", () => {
    const { reason, details } = refusal(() => intentOf(request({ provider: { objective: { price: 0, latency: 0 } } })));
    expect(reason).toBe(Reason.VALIDATION_FAILED);
    expect(details.violations?.map((each) => each.path)).toEqual(["provider.objective"]);
  });

  test("refuses an unknown action space and names the known ones", () => {
    const { reason, message, param } = refusal(() => intentOf(request({ actionSpace: "ee_delta" })));
    expect([reason, param]).toEqual([Reason.VALIDATION_FAILED, "action_space"]);
    for (const { name } of ACTION_SPACES) expect(message).toContain(name);
  });
});

test("inputOf builds the model's input from the intent", () => {
  const full = request({
    instruction: "pick",
    seed: 7,
    horizon: 3,
    actionSpace: "joint_pos_7",
    provider: { sessionId: "s" },
  });
  expect(inputOf(full)).toMatchObject({
    instruction: "pick",
    seed: 7,
    actionSpace: "joint_pos_7",
    sessionId: "s",
    temperature: undefined,
    returnPrediction: false,
  });
});

describe("checkAnswer", () => {
  const check = (answer: ActAnswer, dim: number | undefined = 2) => checkAnswer(answer, { units: 2, dim });

  test.each([
    ["an empty chunk", chunk(), AttemptFailure.EMPTY_ANSWER],
    ["empty steps", chunk([], []), AttemptFailure.ACTION_DIM_MISMATCH],
    ["a step too short", chunk([1, 2], [1]), AttemptFailure.ACTION_DIM_MISMATCH],
    ["a step too long", chunk([1, 2, 3], [1, 2]), AttemptFailure.ACTION_DIM_MISMATCH],
    ["NaN", chunk([1, 2], [Number.NaN, 2]), AttemptFailure.NON_FINITE_ACTION],
    ["infinity", chunk([1, 2], [1, Number.NEGATIVE_INFINITY]), AttemptFailure.NON_FINITE_ACTION],
    ["fewer steps than the horizon", chunk([1, 2]), AttemptFailure.WRONG_STEP_COUNT],
    ["more steps than the horizon", chunk([1, 2], [1, 2], [1, 2]), AttemptFailure.WRONG_STEP_COUNT],
  ])("rejects %s", (_, answer, failure) => {
    expect(check(answer)).toBe(failure);
  });

  test("accepts exactly horizon steps of the right dimension", () => {
    expect(check(chunk([1, 2], [-3e38, 0]))).toBeUndefined();
  });

  test.each([
    ["more accelerator time than a day", { gpuSeconds: 86_401 }],
    ["negative accelerator time", { gpuSeconds: -1e9 }],
    ["accelerator time that is not a number", { gpuSeconds: Number.NaN }],
    ["steps that last for weeks", { dtMs: 4_294_967_295 }],
    [
      "a predicted frame out of order",
      { prediction: [create(PredictedFrameSchema, { index: 1, data: new Uint8Array(9) })] },
    ],
  ])("rejects an answer with %s", (_, more) => {
    const answer = { ...chunk([1, 2], [3, 4]), ...more };
    expect(checkAnswer(answer, { units: 2, dim: 2 })).toBe(AttemptFailure.MALFORMED_ANSWER);
  });

  test("requires steps of equal length, and not empty, if no dimension is fixed", () => {
    const free = (answer: ActAnswer) => checkAnswer(answer, { units: 2, dim: undefined });
    expect(free(chunk([1, 2, 3], [4, 5, 6]))).toBeUndefined();
    expect(free(chunk([1, 2, 3], [4, 5]))).toBe(AttemptFailure.ACTION_DIM_MISMATCH);
    expect(free(chunk([], []))).toBe(AttemptFailure.EMPTY_ANSWER);
  });
});

test("an act answer is billed by its steps", () => {
  expect(unitsOf(chunk([1], [2], [3]))).toBe(3);
});
