/** Several observations asked about at once: when, and what becomes of them. */
import { describe, expect, it } from "vitest";
import { AttemptFailure } from "../../../../src/contracts/contract.ts";
import type { LoopRules } from "../../../../src/routing/loop/loop.ts";
import { MOST_AT_ONCE } from "../../../../src/routing/loop/window.ts";
import type { PlanStep } from "../../../../src/routing/plan/plan.ts";
import { all, answer, DEADLINE_MS, stage, step } from "../../../support/loops.ts";
import { intent } from "../../../support/supply.ts";

/** A loop whose provider has answered 1 and 2, the second one after `tookMs`; what it is asked next has flight 3. Its time is 100. */
function used(tookMs: number, rules: Partial<LoopRules> = {}, steps: PlanStep[] = [step("a"), step("b")]) {
  const loop = stage(steps, rules);
  loop.observe(0, 1);
  loop.happen({ kind: "answered", at: 1, attempt: 1, answer: answer() });
  loop.observe(100 - tookMs, 2);
  loop.happen({ kind: "answered", at: 100, attempt: 2, answer: answer() });
  const answered = (at: number, attempt: number) =>
    all(loop.happen({ kind: "answered", at, attempt, answer: answer() }));
  const fails = (at: number, attempt: number, failure: AttemptFailure = AttemptFailure.UNREACHABLE) =>
    all(loop.happen({ kind: "failed", at, attempt, failure }));
  const seen = (at: number, number: number) => all(loop.observe(at, number));
  return { ...loop, answered, fails, seen };
}

describe("a provider that answers within milliseconds", () => {
  it("receives a few observations at once; of further ones the newest waits", () => {
    const { seen, answered, loop } = used(2);
    const few = Array.from({ length: MOST_AT_ONCE }, (_, i) => i + 3);
    const [next, newest] = [MOST_AT_ONCE + 3, MOST_AT_ONCE + 4];
    expect(few.map((number) => seen(100, number))).toEqual(few.map((number) => [`ask a ${number}`]));
    expect([seen(100, next), seen(100, newest)]).toEqual([[], []]);
    expect(loop.dropped).toBe(1);
    expect(answered(102, 3)).toEqual(["hold 3 LATE", `ask a ${newest}`]);
  });

  /** Of eighty that come at once, about how many a provider is asked that took so long for one, and whose chunks have so many steps. */
  const asked = (tookMs: number, units: number): number => {
    const { observe, happen } = stage([step("a", undefined, { units })], { intent: intent({ units }) });
    for (const [i, at] of [0, 50].entries()) {
      observe(at, i + 1);
      happen({ kind: "answered", at: at + tookMs, attempt: i + 1, answer: answer(0, units) });
    }
    return Array.from({ length: 80 }, (_, i) => observe(100, i + 3).length).filter((asks) => asks > 0).length;
  };

  it("receives as many at once as a chunk has steps, so that a short pause loses none", () => {
    expect([asked(0.5, 4), asked(0.5, 16), asked(0.5, 50), asked(0.5, 256)]).toEqual([MOST_AT_ONCE, 16, 50, 64]);
  });

  it("receives no more than it can answer in time in sequence, whatever the chunk's length", () => {
    expect([asked(1, 50), asked(2, 50), asked(4, 50), asked(5, 50), asked(6, 50)]).toEqual([
      40,
      20,
      10,
      MOST_AT_ONCE,
      1,
    ]);
  });

  it("receives as many at once as before after it, or the machine, paused for a moment", () => {
    const { observe, happen } = stage([step("a", undefined, { units: 16 })], { intent: intent({ units: 16 }) });
    let number = 0;
    const answeredAfter = (ms: number, at: number, count: number): void => {
      const first = number + 1;
      for (let i = 0; i < count; i++) observe(at, ++number);
      for (let attempt = first; attempt <= number; attempt++)
        happen({ kind: "answered", at: at + ms, attempt, answer: answer(0, 16) });
    };
    for (let i = 0; i < 10; i++) answeredAfter(0.5, 10 * i, 1);
    for (let i = 0; i < 3; i++) answeredAfter(12, 100 + 20 * i, 10);
    expect(Array.from({ length: 16 }, () => observe(200, ++number).length)).toEqual(Array(16).fill(1));
  });

  it("is answered in the order of observations: older ones than a chunk are canceled and counted", () => {
    const { seen, answered, loop } = used(2);
    for (const number of [3, 4, 5]) seen(100, number);
    expect(answered(101, 4)).toEqual(["cancel 3", "chunk 4 by a"]);
    expect(answered(101, 3)).toEqual([]);
    expect(answered(101, 5)).toEqual(["chunk 5 by a"]);
    expect(loop.dropped).toBe(1);
  });

  it("that fails is replaced by its equal for the newest observation, which gets no other until it has answered", () => {
    const { seen, answered, fails, loop } = used(2);
    for (const number of [3, 4, 5]) seen(100, number);
    expect([fails(101, 3), fails(101, 4), fails(101, 5)]).toEqual([[], [], ["ask b 5"]]);
    expect(seen(101, 6)).toEqual([]);
    expect(answered(103, 6)).toEqual(["chunk 5 by b", "ask b 6"]);
    expect(seen(103, 7)).toEqual([]);
    expect(loop.dropped).toBe(2);
  });

  it("that becomes silent causes one hold for each observation", () => {
    const { seen, happen, loop } = used(2);
    for (const [i, number] of [3, 4].entries()) seen(100 + i, number);
    expect(loop.wakeAt).toBe(100 + DEADLINE_MS);
    expect(all(happen({ kind: "time", at: 100 + DEADLINE_MS }))).toEqual(["cancel 3", "hold 3 LATE"]);
    expect(seen(100 + DEADLINE_MS, 5)).toEqual([]);
    expect(all(happen({ kind: "time", at: 101 + DEADLINE_MS }))).toEqual(["cancel 4", "hold 4 LATE", "ask a 5"]);
  });

  it("is hedged for the newest observation only", () => {
    const { seen, happen } = used(2, { hedgeAfterMs: 30 });
    for (const [i, number] of [3, 4].entries()) seen(100 + i, number);
    expect(all(happen({ kind: "time", at: 130 }))).toEqual([]);
    expect(all(happen({ kind: "time", at: 131 }))).toEqual(["ask b 4"]);
    expect(seen(132, 5)).toEqual([]);
  });

  it("receives no older observation after an answer out of bounds: the robot holds for it, and the newer continues", () => {
    const { seen, fails, answered } = used(2);
    for (const number of [3, 4]) seen(100, number);
    expect(fails(101, 3, AttemptFailure.UNSAFE_ACTION)).toEqual(["hold 3 OUT_OF_BOUNDS"]);
    expect(answered(101, 4)).toEqual(["chunk 4 by a"]);
  });

  it("is left when its breaker opens: running calls are answered, and no other starts", () => {
    const { seen, answered, resting } = used(2);
    seen(100, 3);
    resting.add("a");
    expect(seen(101, 4)).toEqual([]);
    expect(answered(102, 3)).toEqual(["chunk 3 by a", "ask b 4"]);
  });

  it("has each observation counted once, whichever provider receives it", () => {
    const { observe, happen, told } = used(2);
    for (const number of [3, 4]) observe(100, number);
    happen({ kind: "failed", at: 101, attempt: 4, failure: AttemptFailure.UNREACHABLE });
    expect(told.flatMap((effect) => (effect.kind === "dispatch" ? [[effect.view.step, effect.fresh]] : []))).toEqual([
      [1, true],
      [2, true],
      [3, true],
      [4, true],
      [4, false],
    ]);
  });
});

describe("one observation at a time is sent", () => {
  it("while a running one takes long", () => {
    const { seen, answered } = used(2);
    seen(100, 3);
    expect(seen(121, 4)).toEqual([]);
    expect(answered(122, 3)).toEqual(["chunk 3 by a", "ask a 4"]);
  });

  it("if the provider takes longer, so that chunks that are replaced on arrival cost nothing", () => {
    const { seen } = used(30);
    expect([seen(100, 3), seen(101, 4)]).toEqual([["ask a 3"], []]);
  });

  it("if the wire carries no more, or no more is paid for", () => {
    const asked: number[] = [];
    const { seen } = used(2, {
      beside: (_, underWay) => {
        asked.push(underWay);
        return underWay < 2;
      },
    });
    expect([3, 4, 5].map((number) => seen(100, number))).toEqual([["ask a 3"], ["ask a 4"], []]);
    expect(asked).toEqual([1, 2]);
  });

  it("in a new episode, until its provider is known", () => {
    const { seen, happen, loop } = used(2);
    for (const number of [3, 4]) seen(100, number);
    expect(all(happen({ kind: "reset", at: 101 }))).toEqual(["cancel 3", "cancel 4"]);
    expect(loop.dropped).toBe(2);
    expect([seen(102, 1), seen(102, 2)]).toEqual([["ask a 1"], []]);
  });
});
