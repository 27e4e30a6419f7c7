/** The control loop as a machine of events and time: what it answers, by table. */
import { create } from "@bufbuild/protobuf";
import { describe, expect, it, test } from "vitest";
import { HoldReason } from "../../../../gen/limber/v1/control_loop_pb.ts";
import { ActionMeaningSchema, ActionReference, ContractSource } from "../../../../gen/limber/v1/input_contract_pb.ts";
import { exceeds } from "../../../../src/contracts/act.ts";
import type { ActAnswer } from "../../../../src/contracts/contract.ts";
import { AttemptFailure } from "../../../../src/contracts/contract.ts";
import { declaredInput } from "../../../../src/contracts/inputs.ts";
import type { LoopEvent } from "../../../../src/routing/loop/window.ts";
import type { PlanStep } from "../../../../src/routing/plan/plan.ts";
import { all, answer, DEADLINE_MS, STEPS, stage, step } from "../../../support/loops.ts";

const means = (reference: ActionReference) =>
  declaredInput({
    key: String(reference),
    input: undefined,
    inputSource: ContractSource.UNSPECIFIED,
    actions: [create(ActionMeaningSchema, { reference })],
    actionsSource: ContractSource.DECLARED,
  });
const DECLARED = means(ActionReference.ABSOLUTE);

/** A step whose offering says what its actions mean. */
function saying(id: string, declared = DECLARED, model = "acme/arm"): PlanStep {
  const plain = step(id, model);
  return { ...plain, offering: { ...plain.offering, declared } };
}

describe("an offering whose actions mean something else", () => {
  it("never takes over inside an episode, whether its model is the same or listed", () => {
    const [a, same, other] = [
      saying("a"),
      saying("b", means(ActionReference.ABSOLUTE), "n/o"),
      saying("c", means(ActionReference.RELATIVE), "n/p"),
    ];
    const { observe, happen, resting } = stage([a, other, same], { models: ["n/p", "n/o"] });
    observe(0, 1);
    happen({ kind: "answered", at: 1, attempt: 1, answer: answer() });
    resting.add("a");
    expect(all(observe(2, 2))).toEqual(["ask b 2"]);
    happen({ kind: "answered", at: 3, attempt: 2, answer: answer() });
    resting.add("b");
    expect(all(observe(4, 3))).toEqual(["hold 3 NO_PROVIDER"]);
  });

  it("is never used as a hedge", () => {
    const twin = saying("b", means(ActionReference.RELATIVE));
    const { observe, happen } = stage([saying("a"), twin], { hedgeAfterMs: 10 });
    observe(0, 1);
    expect(happen({ kind: "time", at: 10 })).toEqual([]);
  });
});

describe("an observation", () => {
  it("is sent at once if none is running", () => {
    const { observe } = stage([step("a")]);
    expect(observe(0, 1)).toMatchObject([{ kind: "dispatch", budgetMs: DEADLINE_MS, view: { step: 1 } }]);
  });

  it("waits while another is running, and is replaced by a newer one, which is counted", () => {
    const { observe, happen } = stage([step("a")]);
    observe(0, 1);
    expect([observe(1, 2), observe(2, 3)]).toEqual([[], []]);
    const effects = happen({ kind: "answered", at: 10, attempt: 1, answer: answer() });
    expect(all(effects)).toEqual(["chunk 1 by a", "ask a 3"]);
    expect(effects[0]).toMatchObject({ dropped: 1, validUntil: 1 + STEPS, ageMs: 10 });
  });

  it("out of order is dropped and counted", () => {
    const { observe, loop } = stage([step("a")]);
    observe(0, 5);
    expect([observe(1, 5), observe(2, 4)]).toEqual([[], []]);
    expect(loop.dropped).toBe(2);
  });

  it("of another shape than the episode's is held until a reset", () => {
    const { observe, happen } = stage([step("a")]);
    observe(0, 1);
    expect(observe(1, 2, undefined, "7")).toMatchObject([
      { kind: "hold", reason: HoldReason.INVALID_OBSERVATION, detail: expect.stringContaining("7") },
    ]);
    happen({ kind: "reset", at: 2 });
    expect(all(observe(3, 1, undefined, "7"))).toEqual(["ask a 1"]);
  });

  it("that an offering does not read is sent to one that reads it", () => {
    const { observe, unread } = stage([saying("a"), saying("b")]);
    unread.set("a", "o1");
    expect(all(observe(0, 1))).toEqual(["ask b 1"]);
  });

  it("that no offering reads is held with its violations, and the next may have another shape", () => {
    const { observe, unread } = stage([saying("a")]);
    unread.set("a", "o1");
    expect(observe(0, 1, undefined, "3")).toMatchObject([
      { kind: "hold", reason: HoldReason.INVALID_OBSERVATION, detail: "observations.0", tries: [] },
    ]);
    expect(all(observe(1, 2, undefined, "7"))).toEqual(["ask a 2"]);
  });

  it("from the future is held", () => {
    const { observe, happen } = stage([step("a")]);
    observe(0, 1, 1000);
    happen({ kind: "answered", at: 1, attempt: 1, answer: answer() });
    expect(observe(20, 2, 1000 + 20 + 1500)).toMatchObject([
      { kind: "hold", detail: expect.stringContaining("future") },
    ]);
    expect(all(observe(40, 3, 1040))).toEqual(["ask a 3"]);
  });

  it("that the network delayed has its true age, and is held if it is too old", () => {
    const { observe, happen } = stage([step("a")]);
    observe(0, 1, 1000);
    happen({ kind: "answered", at: 1, attempt: 1, answer: answer() });
    // Sensed 20 ms after the first, and 60 ms late.
    expect(observe(80, 2, 1020)).toMatchObject([{ kind: "dispatch", budgetMs: DEADLINE_MS - 60 }]);
    expect(happen({ kind: "answered", at: 90, attempt: 2, answer: answer() })).toMatchObject([{ ageMs: 70 }]);
    expect(all(observe(300, 3, 1040))).toEqual(["hold 3 STALE_OBSERVATION"]);
  });
});

describe("a late answer", () => {
  it("is canceled and held at the deadline; then the newest observation is sent", () => {
    const { observe, happen, loop } = stage([step("a")]);
    observe(0, 1);
    observe(50, 2);
    expect(loop.wakeAt).toBe(100);
    expect(all(happen({ kind: "time", at: 100 }))).toEqual(["cancel 1", "hold 1 LATE", "ask a 2"]);
    expect(happen({ kind: "answered", at: 101, attempt: 1, answer: answer() })).toEqual([]);
  });

  it("is not sent even if the timer did not run in time", () => {
    const { observe, happen } = stage([step("a")]);
    observe(0, 1);
    expect(all(happen({ kind: "answered", at: 150, attempt: 1, answer: answer() }))).toEqual([
      "cancel 1",
      "hold 1 LATE",
    ]);
  });

  it("is not sent if the robot is already past its last step", () => {
    const { observe, happen } = stage([step("a")]);
    observe(0, 1);
    observe(5, 1 + STEPS);
    expect(all(happen({ kind: "answered", at: 10, attempt: 1, answer: answer() }))).toEqual(["hold 1 LATE", "ask a 5"]);
  });
});

describe("an observation that awaits its charge", () => {
  it("that expires counts as neither a failure nor late, because no provider was called", () => {
    const { observe, happen, told, loop } = stage([step("a"), step("b")]);
    for (let n = 1; n <= 4; n++) {
      observe(n * 1000, n);
      happen({ kind: "waits", at: n * 1000, attempt: n });
      const [called, held] = happen({ kind: "time", at: n * 1000 + DEADLINE_MS });
      expect(called).toEqual({ kind: "cancel", attempt: n });
      expect(held).toMatchObject({ kind: "hold", step: n, reason: HoldReason.NOT_RECORDED, tries: [] });
    }
    expect(all(told.filter(({ kind }) => kind === "dispatch"))).toEqual(["ask a 1", "ask a 2", "ask a 3", "ask a 4"]);
    observe(9000, 9);
    const effects = loop.next({ kind: "time", at: 9000 + DEADLINE_MS });
    expect(effects.find(({ kind }) => kind === "told")).toMatchObject({ outcome: AttemptFailure.DEADLINE });
  });

  it("reports no failure to its offering's health", () => {
    const { observe, happen, loop } = stage([step("a")]);
    observe(0, 1);
    happen({ kind: "waits", at: 0, attempt: 1 });
    const effects = loop.next({ kind: "time", at: DEADLINE_MS });
    expect(effects.find(({ kind }) => kind === "told")).toMatchObject({ outcome: "cancelled" });
  });

  it("has the provider's time measured from the call", () => {
    const { observe, happen, loop } = stage([step("a")]);
    observe(0, 1);
    happen({ kind: "waits", at: 0, attempt: 1 });
    happen({ kind: "asked", at: 60, attempt: 1 });
    const effects = loop.next({ kind: "answered", at: 65, attempt: 1, answer: answer() });
    expect(effects.find(({ kind }) => kind === "told")).toMatchObject({ outcome: "ok", latencyMs: 5 });
    expect(effects.find(({ kind }) => kind === "deliver")).toMatchObject({ ageMs: 65 });
  });
});

describe("a provider that is late repeatedly", () => {
  /** The robot sees something every 100 ms; `late` answers nothing until then. */
  const robot = (steps: PlanStep[], late: ReadonlySet<string>, rounds = 12): string[] => {
    const { observe, happen, told } = stage(steps);
    for (let i = 0; i < rounds; i++) {
      const at = i * 2 * DEADLINE_MS;
      for (const effect of observe(at, i)) {
        if (effect.kind !== "dispatch" || late.has(effect.step.offering.id)) continue;
        happen({ kind: "answered", at: at + 1, attempt: effect.attempt, answer: answer() });
      }
      happen({ kind: "time", at: at + DEADLINE_MS });
    }
    return all(told).filter((word) => word.startsWith("ask"));
  };
  const asked = (words: string[]): string => words.map((word) => word.split(" ")[1]).join("");

  it("is replaced by its equal after three answers, which then stays", () => {
    expect(asked(robot([step("a"), step("b")], new Set("a")))).toBe("aaabbbbbbbbb");
  });

  it("alternates with its equal if both are late", () => {
    expect(asked(robot([step("a"), step("b")], new Set(["a", "b"])))).toBe("aaabaaabaaab");
  });

  it("stays without an equal, because another model is used only from the list", () => {
    const served = [step("a"), step("b", "other/arm")];
    const { observe, happen } = stage(served);
    observe(0, 0);
    happen({ kind: "answered", at: 1, attempt: 1, answer: answer() });
    for (let i = 1; i < 6; i++) {
      expect(all(observe(i * 200, i))).toEqual([`ask a ${i}`]);
      expect(all(happen({ kind: "time", at: i * 200 + DEADLINE_MS }))).toContain(`hold ${i} LATE`);
    }
  });

  it("is reset by one timely answer", () => {
    const { observe, happen, told } = stage([step("a"), step("b")]);
    for (let i = 0; i < 9; i++) {
      const [effect] = observe(i * 200, i);
      if (i % 3 === 2 && effect?.kind === "dispatch")
        happen({ kind: "answered", at: i * 200 + 1, attempt: effect.attempt, answer: answer() });
      happen({ kind: "time", at: i * 200 + DEADLINE_MS });
    }
    expect(asked(all(told).filter((word) => word.startsWith("ask")))).toBe("aaaaaaaaa");
  });

  it("also counts as late if its answers arrive after the robot's last step", () => {
    const { observe, happen, told } = stage([step("a"), step("b")]);
    for (let i = 0, number = 0; i < 4; i++, number += 2 * STEPS) {
      observe(i * 200, number);
      observe(i * 200 + 1, number + STEPS);
      const attempt = told.findLast((effect) => effect.kind === "dispatch")!.attempt;
      happen({ kind: "answered", at: i * 200 + 2, attempt, answer: answer() });
      const next = told.at(-1)!;
      if (next.kind === "dispatch") happen({ kind: "time", at: i * 200 + 1 + DEADLINE_MS });
    }
    expect(asked(all(told).filter((word) => word.startsWith("ask")))).toMatch(/^aaab/);
  });
});

describe("a provider that fails", () => {
  const failed = (at: number, attempt: number): LoopEvent<string> => ({
    kind: "failed",
    at,
    attempt,
    failure: AttemptFailure.CONNECTION_LOST,
  });

  it("is replaced by its equal, which receives the newest observation", () => {
    const { observe, happen } = stage([step("a"), step("b")]);
    observe(0, 1);
    observe(5, 2);
    expect(all(happen(failed(10, 1)))).toEqual(["ask b 2"]);
    const [chunk] = happen({ kind: "answered", at: 20, attempt: 2, answer: answer() });
    expect(chunk).toMatchObject({ kind: "deliver", moved: true, episodeBreak: false, dropped: 1 });
    expect(chunk).toMatchObject({ tries: [{ status: "error" }, { status: "ok" }] });
  });

  it("makes the robot hold if all were called, and if none may be called", () => {
    const { observe, happen, resting, lacked } = stage([step("a")]);
    observe(0, 1);
    expect(all(happen(failed(10, 1)))).toEqual(["hold 1 UPSTREAM_FAILED"]);
    resting.add("a");
    expect(all(observe(20, 2))).toEqual(["hold 2 NO_PROVIDER"]);
    expect(lacked).toEqual([undefined]);
  });

  it("is never replaced by another model inside an episode", () => {
    const { observe, happen, resting, lacked } = stage([step("a"), step("x", "other/arm")]);
    observe(0, 1);
    happen({ kind: "answered", at: 1, attempt: 1, answer: answer() });
    resting.add("a");
    expect(all(observe(20, 2))).toEqual(["hold 2 NO_PROVIDER"]);
    expect(lacked).toEqual(["acme/arm"]);
    happen({ kind: "reset", at: 30 });
    expect(all(observe(40, 1))).toEqual(["ask x 1"]);
    expect(all(happen({ kind: "answered", at: 50, attempt: 2, answer: answer() }))).toEqual(["chunk 1 by x break"]);
  });

  it("is replaced by another model that the caller listed, which reports episode_break", () => {
    const { observe, happen, resting } = stage([step("a"), step("x", "other/arm")], { models: ["other/arm"] });
    observe(0, 1);
    happen({ kind: "answered", at: 1, attempt: 1, answer: answer() });
    resting.add("a");
    observe(20, 2);
    expect(all(happen({ kind: "answered", at: 30, attempt: 2, answer: answer() }))).toEqual(["chunk 2 by x break"]);
  });

  it("is not replaced by one that an earlier stream of the session is bound to", () => {
    const { observe, loop } = stage([step("x", "other/arm")]);
    loop.resume("acme/arm");
    expect(all(observe(0, 1))).toEqual(["hold 1 NO_PROVIDER"]);
  });

  it("is not replaced by an equal with longer steps", () => {
    const slower = step("b");
    const other = { ...slower, offering: { ...slower.offering, dtMs: 100 } };
    const { observe, happen, resting } = stage([step("a"), other]);
    observe(0, 1);
    happen({ kind: "answered", at: 1, attempt: 1, answer: answer() });
    resting.add("a");
    expect(all(observe(20, 2))).toEqual(["hold 2 NO_PROVIDER"]);
  });
});

describe("an answer that violates the contract", () => {
  it.each([
    ["too few steps", answer(0, 2), "UPSTREAM_FAILED"],
    ["a non-finite number", answer(Number.NaN), "UPSTREAM_FAILED"],
    ["more than the safety bounds allow", answer(9), "OUT_OF_BOUNDS"],
  ])("by %s is held", (_, broken, reason) => {
    const { observe, happen } = stage([step("a")], { broken: ({ steps }) => steps[0]!.values[0]! > 1 });
    observe(0, 1);
    expect(all(happen({ kind: "answered", at: 10, attempt: 1, answer: broken }))).toEqual([`hold 1 ${reason}`]);
  });
});

describe("a loop's hedge", () => {
  const hedged = { hedgeAfterMs: 30 };

  it("goes to another provider's equal if the first is late, and the loser is canceled and paid", () => {
    const { observe, happen, loop } = stage([step("a"), step("b")], hedged);
    observe(0, 1);
    expect(loop.wakeAt).toBe(30);
    expect(all(happen({ kind: "time", at: 30 }))).toEqual(["ask b 1"]);
    const effects = happen({ kind: "answered", at: 40, attempt: 2, answer: answer() });
    expect(all(effects)).toEqual(["cancel 1", "chunk 1 by b"]);
    expect(effects[1]).toMatchObject({ hedgeMicro: 10 });
  });

  it("does not go to another model, listed or not", () => {
    const { observe, happen } = stage([step("a"), step("x", "other/arm")], { ...hedged, models: ["other/arm"] });
    observe(0, 1);
    expect(happen({ kind: "time", at: 30 })).toEqual([]);
  });
});

describe("a loop with a blocked stream", () => {
  it("keeps the newest observation until it is unblocked, and drops it when it is too old", () => {
    const { observe, happen } = stage([step("a")]);
    happen({ kind: "blocked", at: 0, why: HoldReason.SLOW_READER });
    expect([observe(1, 1), observe(50, 2)]).toEqual([[], []]);
    expect(all(happen({ kind: "blocked", at: 60, why: undefined }))).toEqual(["ask a 2"]);
  });

  it("writes nothing to a reader that does not read", () => {
    const { observe, happen, loop } = stage([step("a")]);
    happen({ kind: "blocked", at: 0, why: HoldReason.SLOW_READER });
    observe(1, 1);
    expect(happen({ kind: "time", at: 200 })).toEqual([]);
    expect(loop.dropped).toBe(1);
  });
});

test("a closed loop cancels the running call and does nothing more", () => {
  const { observe, happen, told } = stage([step("a")]);
  observe(0, 1);
  expect(all(happen({ kind: "closed", at: 1 }))).toEqual(["cancel 1"]);
  told.length = 0;
  observe(2, 2);
  happen({ kind: "answered", at: 3, attempt: 1, answer: answer() });
  expect(told).toEqual([]);
});

describe("the safety bounds", () => {
  const bounds = (lowest: number[], highest: number[], maxChange?: number) => ({
    $typeName: "limber.v1.SafetyBounds" as const,
    lowest,
    highest,
    ...(maxChange !== undefined && { maxChange }),
  });
  const chunk = (...steps: number[][]): ActAnswer => ({
    ...answer(),
    steps: steps.map((values) => ({ $typeName: "limber.v1.ActionStep" as const, values })),
  });

  it.each([
    ["inside", bounds([-1], [1]), chunk([0, 1], [-1, 0]), false],
    ["above one for all", bounds([-1], [1]), chunk([0, 1.1]), true],
    ["below its own", bounds([-1, -2], []), chunk([-1, -2.1]), true],
    ["below another's", bounds([-1, -2], []), chunk([-1, -1.9]), false],
    ["a jump", bounds([], [], 0.5), chunk([0], [0.4], [1]), true],
    ["no jump", bounds([], [], 0.5), chunk([0], [0.4], [0.8]), false],
    ["none", undefined, chunk([1e9]), false],
  ])("%s", (_, limits, steps, exceeded) => {
    expect(exceeds(limits, steps)).toBe(exceeded);
  });
});
