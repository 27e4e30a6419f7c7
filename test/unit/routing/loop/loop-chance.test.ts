/** The control loop as a machine of events and time: what it never does, by property. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { HoldReason } from "../../../../gen/limber/v1/control_loop_pb.ts";
import { AttemptFailure } from "../../../../src/contracts/contract.ts";
import type { LoopRules } from "../../../../src/routing/loop/loop.ts";
import type { LoopEffect } from "../../../../src/routing/loop/window.ts";
import { MOST_AT_ONCE } from "../../../../src/routing/loop/window.ts";
import type { PlanStep } from "../../../../src/routing/plan/plan.ts";
import { answer, DEADLINE_MS, short, stage, step } from "../../../support/loops.ts";
import { runs } from "../../../support/runs.ts";

describe("for arbitrary events,", () => {
  const MODELS = ["acme/arm", "other/arm", "third/arm"];
  const aStep = fc.record({ model: fc.constantFrom(...MODELS), hedgeable: fc.boolean() });
  const anEvent = fc.record({
    kind: fc.constantFrom(
      "observe",
      "observe",
      "observe",
      "answer",
      "answer",
      "quick",
      "quick",
      "fail",
      "rest",
      "reset",
      "block",
      "free",
    ),
    wait: fc.oneof(fc.integer({ min: 0, max: 2 }), fc.integer({ min: 0, max: 70 })),
    jump: fc.integer({ min: -1, max: 6 }),
    which: fc.nat(9),
  });

  it("a loop sends no expired chunk, mixes no model without permission, answers each observation once, and repeats its trace", () => {
    let most = 0;
    fc.assert(
      fc.property(
        fc.array(aStep, { minLength: 1, maxLength: 5 }),
        fc.array(anEvent, { maxLength: 60, size: "max" }),
        fc.constantFrom(undefined, 20),
        fc.subarray(MODELS),
        (supply, script, hedgeAfterMs, listed) => {
          const steps = supply.map(({ model }, i) => step(`off${i}`, model));
          const run = () => play(steps, script, { hedgeAfterMs, models: listed });
          const trace = run();
          expect(trace.faults).toEqual([]);
          most = Math.max(most, trace.most);
          expect(run().told).toEqual(trace.told);
        },
      ),
      { numRuns: runs(120) },
    );
    expect(most).toBeGreaterThan(2);
  });

  type Scripted = typeof anEvent extends fc.Arbitrary<infer T> ? T : never;

  /** Plays a script and watches, with eyes of its own, what must never happen. */
  function play(steps: PlanStep[], script: Scripted[], rules: Partial<LoopRules>) {
    const { loop, happen, observe, resting } = stage(steps, rules);
    const faults: string[] = [];
    const told: string[] = [];
    let most = 0;
    const flying = new Map<number, number>();
    const sensedAt = new Map<number, number>();
    const answered = new Set<number>();
    let model: string | undefined;
    let fresh = true;
    let newest = 0;
    let last = 0;
    let at = 0;
    const watch = (effects: LoopEffect<string>[]): void => {
      for (const effect of effects) {
        told.push(`${at} ${short(effect)}`);
        if (effect.kind === "dispatch") {
          flying.set(effect.attempt, effect.view.step);
          const abouts = [...flying.values()];
          const now = effect.step.offering.model;
          if (!fresh && model !== undefined && now !== model && !rules.models?.includes(now))
            faults.push(`asked ${now}`);
          if (abouts.filter((about) => about === effect.view.step).length > 2)
            faults.push("asked more than two at once");
          if (new Set(abouts).size > MOST_AT_ONCE) faults.push("asked about more than a few at once");
          most = Math.max(most, new Set(abouts).size);
        }
        if (effect.kind === "cancel") flying.delete(effect.attempt);
        if (effect.kind === "deliver" || effect.kind === "hold") {
          const number = effect.kind === "deliver" ? effect.view.step : effect.step;
          if (answered.has(number)) faults.push(`${number} is answered twice`);
          answered.add(number);
        }
        if (effect.kind !== "deliver") continue;
        const number = effect.view.step;
        if (at - sensedAt.get(number)! >= DEADLINE_MS) faults.push(`${number} is late`);
        if (number <= last) faults.push(`${number} comes after ${last}`);
        last = number;
        if (newest >= effect.validUntil) faults.push(`${number} is past its validity`);
        const now = effect.step.offering.model;
        if (effect.episodeBreak !== (model !== undefined && now !== model)) faults.push("a wrong episode_break");
        if (!fresh && model !== undefined && now !== model && !rules.models?.includes(now)) faults.push("a mixture");
        model = now;
        fresh = false;
      }
    };
    for (const { kind, wait, jump, which } of script) {
      // Time is looked at whenever the loop asked for it, as its keeper does.
      for (const end = at + wait; at < end; ) {
        at = Math.min(end, Math.max(at, loop.wakeAt));
        if (at >= loop.wakeAt) watch(happen({ kind: "time", at }));
        else break;
      }
      const attempt = [...flying.keys()][which % Math.max(1, flying.size)];
      const someone = steps[which % steps.length]!.offering.id;
      if (kind === "observe" || kind === "quick") {
        const number = kind === "quick" ? newest + 1 : newest + jump;
        if (number > newest) {
          newest = number;
          sensedAt.set(number, at);
        }
        if (number > 0) watch(observe(at, number));
        // Answered at once, all that is under way, the oldest first.
        if (kind === "quick")
          for (const attempt of [...flying.keys()])
            if (flying.delete(attempt)) watch(happen({ kind: "answered", at, attempt, answer: answer() }));
      } else if (kind === "answer" && attempt !== undefined) {
        flying.delete(attempt);
        watch(happen({ kind: "answered", at, attempt, answer: answer() }));
      } else if (kind === "fail" && attempt !== undefined) {
        flying.delete(attempt);
        watch(happen({ kind: "failed", at, attempt, failure: AttemptFailure.UNREACHABLE }));
      } else if (kind === "rest") {
        if (!resting.delete(someone)) resting.add(someone);
      } else if (kind === "reset") {
        watch(happen({ kind: "reset", at }));
        fresh = true;
        answered.clear();
        sensedAt.clear();
        newest = 0;
        last = 0;
      } else if (kind === "block") watch(happen({ kind: "blocked", at, why: HoldReason.SLOW_READER }));
      else if (kind === "free") watch(happen({ kind: "blocked", at, why: undefined }));
    }
    return { faults, told, most };
  }
});
