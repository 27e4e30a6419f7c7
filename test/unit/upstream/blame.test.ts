import { describe, expect, it } from "vitest";
import { AttemptFailure, failureWord } from "../../../src/contracts/contract.ts";
import { mayBeInput } from "../../../src/upstream/blame.ts";
import { toldFailure } from "../../../src/upstream/transport/failures.ts";

describe("a server's own error text is rejected input", () => {
  it.each([
    [
      'Traceback (most recent call last):\n  File "serve.py", line 9, in infer\nInvalidInput: no camera wrist',
      "input_rejected",
    ],
    ["Traceback (most recent call last):\nmy_policy.errors.InvalidInputError: state has 6 numbers", "input_rejected"],
    ["InvalidInput", "input_rejected"],
    ["InvalidInput: twice\nRuntimeError: CUDA out of memory", "upstream_error"],
    ["KeyError: 'InvalidInput: x'", "upstream_error"],
    ["NotInvalidInput: x", "upstream_error"],
    ["InvalidInputs are fine", "upstream_error"],
    [`${"a.".repeat(50_000)}InvalidInput:`, "upstream_error"],
    ["", "upstream_error"],
  ])("only if its last line names that exception: %#", (text, name) => {
    expect(failureWord(toldFailure(text).failure)).toBe(name);
  });
});

describe("a failure that the input may have caused", () => {
  it("is a server's own error on every wire, and never an unreachable, late or malformed answer", () => {
    for (const wire of ["openpi-ws", "limber-policy", "gr00t-zmq", "openvla-act", "a wire to come"]) {
      expect(mayBeInput(wire, AttemptFailure.UPSTREAM_ERROR, true)).toBe(true);
      for (const failure of [
        AttemptFailure.UNREACHABLE,
        AttemptFailure.CONNECTION_LOST,
        AttemptFailure.TIMEOUT,
        AttemptFailure.ACTION_DIM_MISMATCH,
        AttemptFailure.WRONG_STEP_COUNT,
        AttemptFailure.MALFORMED_ANSWER,
        AttemptFailure.UPSTREAM_AUTH,
      ])
        expect(mayBeInput(wire, failure, true), `${wire} ${failureWord(failure)}`).toBe(false);
    }
  });

  it("excludes a LeRobot server without actions, and words in place of coordinates", () => {
    expect(mayBeInput("lerobot-async", AttemptFailure.EMPTY_ANSWER, true)).toBe(true);
    expect(mayBeInput("openpi-ws", AttemptFailure.EMPTY_ANSWER, true)).toBe(false);
    expect(mayBeInput("openai-chat", AttemptFailure.MALFORMED_ANSWER, true)).toBe(true);
  });

  it("is a rejection if the input met the declaration; otherwise it does not count against the offering", () => {
    expect(mayBeInput("openpi-ws", AttemptFailure.INPUT_REJECTED, true)).toBe(true);
    expect(mayBeInput("openpi-ws", AttemptFailure.INPUT_REJECTED, false)).toBe(false);
  });
});
