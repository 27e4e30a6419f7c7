/** The control loop as a machine of events and time: what it answers, by table, and what it never does, by property. */
import fc from "fast-check";
import { describe, expect, it, test } from "vitest";
import { HoldReason, HoldReasonSchema } from "../../../gen/limber/v1/control_loop_pb.ts";
import { exceeds } from "../../../src/contracts/bounds.ts";
import type { ActAnswer } from "../../../src/contracts/contract.ts";
import { AttemptFailure } from "../../../src/contracts/failure.ts";
import type { LoopEffect, LoopEvent } from "../../../src/routing/loop/events.ts";
import { LoopGauge } from "../../../src/routing/loop/gauge.ts";
import { Loop, type LoopRules } from "../../../src/routing/loop/loop.ts";
import { Transit } from "../../../src/routing/loop/transit.ts";
import type { PlanStep } from "../../../src/routing/plan.ts";
import { intent, offering } from "../../support/supply.ts";

const STEPS = 4;
const DEADLINE_MS = 100;

const step = (id: string, model = "acme/arm", facts: Partial<PlanStep> = {}): PlanStep => ({
  rank: 0,
  row: 0,
  offering: offering(id, { model, provider: id, dtMs: 50, actionDim: 1 }),
  pinned: false,
  score: 0,
  ownKey: false,
  unitNano: 2500,
  listMicro: 10,
  wakeUpMicro: 0,
  costMicro: 10,
  cold: false,
  p50Ms: 10,
  p95Ms: 20,
  budgetMs: 1000,
  ...facts,
});

const answer = (value = 0, length = STEPS): ActAnswer => ({
  steps: Array.from({ length }, () => ({ $typeName: "limber.v1.ActionStep" as const, values: [value] })),
  dtMs: 50,
  note: "",
  prediction: [],
  gpuSeconds: 0,
});

/** A loop, and what it said so far. */
function stage(steps: PlanStep[], rules: Partial<LoopRules> = {}) {
  const resting = new Set<string>();
  const loop = new Loop<string>(
    {
      intent: intent({ units: STEPS }),
      deadlineMs: DEADLINE_MS,
      hedgeAfterMs: undefined,
      maxCostMicro: Number.POSITIVE_INFINITY,
      models: [],
      broken: () => false,
      ...rules,
    },
    {
      steps: () => steps,
      admit: ({ offering }) => !resting.has(offering.id),
      hedge: () => true,
      dimOf: () => 1,
    },
  );
  const told: LoopEffect<string>[] = [];
  const happen = (event: LoopEvent<string>): LoopEffect<string>[] => {
    const effects = loop.next(event).filter(({ kind }) => kind !== "told");
    told.push(...effects);
    return effects;
  };
  const observe = (at: number, number: number, tMs?: number, shape = "1") =>
    happen({ kind: "observed", at, sighting: { step: number, tMs, shape, payload: `o${number}` } });
  return { loop, told, happen, observe, resting };
}

const short = (effect: LoopEffect<string>): string => {
  switch (effect.kind) {
    case "dispatch":
      return `ask ${effect.step.offering.id} ${effect.sighting.step}`;
    case "cancel":
      return `cancel ${effect.flight}`;
    case "deliver":
      return `chunk ${effect.sighting.step} by ${effect.step.offering.id}${effect.episodeBreak ? " break" : ""}`;
    case "hold":
      return `hold ${effect.step} ${HoldReasonSchema.value[effect.reason]?.localName}`;
    default:
      return effect.kind;
  }
};
const all = (effects: LoopEffect<string>[]): string[] => effects.map(short);

describe("an observation", () => {
  it("is dispatched at once when nothing is under way", () => {
    const { observe } = stage([step("a")]);
    expect(observe(0, 1)).toMatchObject([{ kind: "dispatch", budgetMs: DEADLINE_MS, sighting: { step: 1 } }]);
  });

  it("waits while another is under way, and gives way to a newer one, which is counted", () => {
    const { observe, happen } = stage([step("a")]);
    observe(0, 1);
    expect([observe(1, 2), observe(2, 3)]).toEqual([[], []]);
    const effects = happen({ kind: "answered", at: 10, flight: 1, answer: answer() });
    expect(all(effects)).toEqual(["chunk 1 by a", "ask a 3"]);
    expect(effects[0]).toMatchObject({ dropped: 1, validUntil: 1 + STEPS, ageMs: 10 });
  });

  it("that comes out of order is dropped and counted", () => {
    const { observe, loop } = stage([step("a")]);
    observe(0, 5);
    expect([observe(1, 5), observe(2, 4)]).toEqual([[], []]);
    expect(loop.dropped).toBe(2);
  });

  it("of another shape than the episode's is held, until a reset", () => {
    const { observe, happen } = stage([step("a")]);
    observe(0, 1);
    expect(observe(1, 2, undefined, "7")).toMatchObject([
      { kind: "hold", reason: HoldReason.INVALID_OBSERVATION, detail: expect.stringContaining("7") },
    ]);
    happen({ kind: "reset", at: 2 });
    expect(all(observe(3, 1, undefined, "7"))).toEqual(["ask a 1"]);
  });

  it("from the future is held", () => {
    const { observe, happen } = stage([step("a")]);
    observe(0, 1, 1000);
    happen({ kind: "answered", at: 1, flight: 1, answer: answer() });
    expect(observe(20, 2, 1000 + 20 + 1500)).toMatchObject([
      { kind: "hold", detail: expect.stringContaining("future") },
    ]);
    expect(all(observe(40, 3, 1040))).toEqual(["ask a 3"]);
  });

  it("that the network held up is as old as it is, and is held when that is too old", () => {
    const { observe, happen } = stage([step("a")]);
    observe(0, 1, 1000);
    happen({ kind: "answered", at: 1, flight: 1, answer: answer() });
    // Sensed 20 ms after the first, and 60 ms late.
    expect(observe(80, 2, 1020)).toMatchObject([{ kind: "dispatch", budgetMs: DEADLINE_MS - 60 }]);
    expect(happen({ kind: "answered", at: 90, flight: 2, answer: answer() })).toMatchObject([{ ageMs: 70 }]);
    expect(all(observe(300, 3, 1040))).toEqual(["hold 3 STALE_OBSERVATION"]);
  });
});

describe("a late answer", () => {
  it("is called off and held at the deadline; then the newest observation is dispatched", () => {
    const { observe, happen, loop } = stage([step("a")]);
    observe(0, 1);
    observe(50, 2);
    expect(loop.wakeAt).toBe(100);
    expect(all(happen({ kind: "time", at: 100 }))).toEqual(["cancel 1", "hold 1 LATE", "ask a 2"]);
    expect(happen({ kind: "answered", at: 101, flight: 1, answer: answer() })).toEqual([]);
  });

  it("is not sent even when the clock was not looked at in time", () => {
    const { observe, happen } = stage([step("a")]);
    observe(0, 1);
    expect(all(happen({ kind: "answered", at: 150, flight: 1, answer: answer() }))).toEqual([
      "cancel 1",
      "hold 1 LATE",
    ]);
  });

  it("is not sent when the robot is past its last step already", () => {
    const { observe, happen } = stage([step("a")]);
    observe(0, 1);
    observe(5, 1 + STEPS);
    expect(all(happen({ kind: "answered", at: 10, flight: 1, answer: answer() }))).toEqual(["hold 1 LATE", "ask a 5"]);
  });
});

describe("a provider that fails", () => {
  const failed = (at: number, flight: number): LoopEvent<string> => ({
    kind: "failed",
    at,
    flight,
    failure: AttemptFailure.CONNECTION_LOST,
  });

  it("is followed by its equal, which is asked about the newest observation", () => {
    const { observe, happen } = stage([step("a"), step("b")]);
    observe(0, 1);
    observe(5, 2);
    expect(all(happen(failed(10, 1)))).toEqual(["ask b 2"]);
    const [chunk] = happen({ kind: "answered", at: 20, flight: 2, answer: answer() });
    expect(chunk).toMatchObject({ kind: "deliver", moved: true, episodeBreak: false, dropped: 1 });
    expect(chunk).toMatchObject({ tries: [{ status: "error" }, { status: "ok" }] });
  });

  it("makes the robot hold when all were asked, and when nobody may be asked", () => {
    const { observe, happen, resting } = stage([step("a")]);
    observe(0, 1);
    expect(all(happen(failed(10, 1)))).toEqual(["hold 1 UPSTREAM_FAILED"]);
    resting.add("a");
    expect(all(observe(20, 2))).toEqual(["hold 2 NO_PROVIDER"]);
  });

  it("is never followed by another model inside an episode", () => {
    const { observe, happen, resting } = stage([step("a"), step("x", "other/arm")]);
    observe(0, 1);
    happen({ kind: "answered", at: 1, flight: 1, answer: answer() });
    resting.add("a");
    expect(all(observe(20, 2))).toEqual(["hold 2 NO_PROVIDER"]);
    happen({ kind: "reset", at: 30 });
    expect(all(observe(40, 1))).toEqual(["ask x 1"]);
    expect(all(happen({ kind: "answered", at: 50, flight: 2, answer: answer() }))).toEqual(["chunk 1 by x break"]);
  });

  it("is followed by another model that the caller listed, which says episode_break", () => {
    const { observe, happen, resting } = stage([step("a"), step("x", "other/arm")], { models: ["other/arm"] });
    observe(0, 1);
    happen({ kind: "answered", at: 1, flight: 1, answer: answer() });
    resting.add("a");
    observe(20, 2);
    expect(all(happen({ kind: "answered", at: 30, flight: 2, answer: answer() }))).toEqual(["chunk 2 by x break"]);
  });

  it("is not taken for one that is bound by an earlier stream of the session", () => {
    const { observe, loop } = stage([step("x", "other/arm")]);
    loop.resume("acme/arm");
    expect(all(observe(0, 1))).toEqual(["hold 1 NO_PROVIDER"]);
  });

  it("with an equal whose steps last longer is not followed by it", () => {
    const slower = step("b");
    const other = { ...slower, offering: { ...slower.offering, dtMs: 100 } };
    const { observe, happen, resting } = stage([step("a"), other]);
    observe(0, 1);
    happen({ kind: "answered", at: 1, flight: 1, answer: answer() });
    resting.add("a");
    expect(all(observe(20, 2))).toEqual(["hold 2 NO_PROVIDER"]);
  });
});

describe("an answer that breaks the contract", () => {
  it.each([
    ["too few steps", answer(0, 2), "UPSTREAM_FAILED"],
    ["no finite number", answer(Number.NaN), "UPSTREAM_FAILED"],
    ["more than the safety bounds allow", answer(9), "OUT_OF_BOUNDS"],
  ])("by %s is held", (_, broken, reason) => {
    const { observe, happen } = stage([step("a")], { broken: ({ steps }) => steps[0]!.values[0]! > 1 });
    observe(0, 1);
    expect(all(happen({ kind: "answered", at: 10, flight: 1, answer: broken }))).toEqual([`hold 1 ${reason}`]);
  });
});

describe("a hedge", () => {
  const hedged = { hedgeAfterMs: 30 };

  it("is sent to an equal of another provider when the first is late, and the loser is called off and paid", () => {
    const { observe, happen, loop } = stage([step("a"), step("b")], hedged);
    observe(0, 1);
    expect(loop.wakeAt).toBe(30);
    expect(all(happen({ kind: "time", at: 30 }))).toEqual(["ask b 1"]);
    const effects = happen({ kind: "answered", at: 40, flight: 2, answer: answer() });
    expect(all(effects)).toEqual(["cancel 1", "chunk 1 by b"]);
    expect(effects[1]).toMatchObject({ hedgeMicro: 10 });
  });

  it("is not sent to another model, listed or not", () => {
    const { observe, happen } = stage([step("a"), step("x", "other/arm")], { ...hedged, models: ["other/arm"] });
    observe(0, 1);
    expect(happen({ kind: "time", at: 30 })).toEqual([]);
  });
});

describe("a loop that is blocked", () => {
  it("keeps the newest observation for when it is free again, and drops it when it is too old", () => {
    const { observe, happen } = stage([step("a")]);
    happen({ kind: "blocked", at: 0, why: HoldReason.SLOW_READER });
    expect([observe(1, 1), observe(50, 2)]).toEqual([[], []]);
    expect(all(happen({ kind: "blocked", at: 60, why: undefined }))).toEqual(["ask a 2"]);
  });

  it("says nothing to who does not read", () => {
    const { observe, happen, loop } = stage([step("a")]);
    happen({ kind: "blocked", at: 0, why: HoldReason.SLOW_READER });
    observe(1, 1);
    expect(happen({ kind: "time", at: 200 })).toEqual([]);
    expect(loop.dropped).toBe(1);
  });
});

test("what is closed calls off what is under way and does nothing any more", () => {
  const { observe, happen, told } = stage([step("a")]);
  observe(0, 1);
  expect(all(happen({ kind: "closed", at: 1 }))).toEqual(["cancel 1"]);
  told.length = 0;
  observe(2, 2);
  happen({ kind: "answered", at: 3, flight: 1, answer: answer() });
  expect(told).toEqual([]);
});

describe("whatever happens", () => {
  const MODELS = ["acme/arm", "other/arm", "third/arm"];
  const aStep = fc.record({ model: fc.constantFrom(...MODELS), hedgeable: fc.boolean() });
  const anEvent = fc.record({
    kind: fc.constantFrom(
      "observe",
      "observe",
      "observe",
      "answer",
      "answer",
      "fail",
      "rest",
      "reset",
      "block",
      "free",
    ),
    wait: fc.integer({ min: 0, max: 70 }),
    jump: fc.integer({ min: -1, max: 6 }),
    which: fc.nat(9),
  });

  it("no chunk is past its validity, no model is mixed in without leave, every observation is answered at most once, and the same script gives the same trace", () => {
    fc.assert(
      fc.property(
        fc.array(aStep, { minLength: 1, maxLength: 5 }),
        fc.array(anEvent, { maxLength: 60 }),
        fc.constantFrom(undefined, 20),
        fc.subarray(MODELS),
        (supply, script, hedgeAfterMs, listed) => {
          const steps = supply.map(({ model }, i) => step(`off${i}`, model));
          const run = () => play(steps, script, { hedgeAfterMs, models: listed });
          const trace = run();
          expect(trace.faults).toEqual([]);
          expect(run().told).toEqual(trace.told);
        },
      ),
      { numRuns: 600 },
    );
  });

  type Scripted = typeof anEvent extends fc.Arbitrary<infer T> ? T : never;

  /** Plays a script and watches, with eyes of its own, what must never happen. */
  function play(steps: PlanStep[], script: Scripted[], rules: Partial<LoopRules>) {
    const { loop, happen, observe, resting } = stage(steps, rules);
    const faults: string[] = [];
    const told: string[] = [];
    const flying = new Map<number, string>();
    const sensedAt = new Map<number, number>();
    const answered = new Set<number>();
    let model: string | undefined;
    let fresh = true;
    let newest = 0;
    let at = 0;
    const watch = (effects: LoopEffect<string>[]): void => {
      for (const effect of effects) {
        told.push(`${at} ${short(effect)}`);
        if (effect.kind === "dispatch") {
          flying.set(effect.flight, effect.step.offering.id);
          const now = effect.step.offering.model;
          if (!fresh && model !== undefined && now !== model && !rules.models?.includes(now))
            faults.push(`asked ${now}`);
          if (new Set(flying.values()).size > 2) faults.push("asked more than two at once");
        }
        if (effect.kind === "cancel") flying.delete(effect.flight);
        if (effect.kind === "deliver" || effect.kind === "hold") {
          const number = effect.kind === "deliver" ? effect.sighting.step : effect.step;
          if (answered.has(number)) faults.push(`${number} is answered twice`);
          answered.add(number);
        }
        if (effect.kind !== "deliver") continue;
        const number = effect.sighting.step;
        if (at - sensedAt.get(number)! >= DEADLINE_MS) faults.push(`${number} is late`);
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
      const flight = [...flying.keys()][which % Math.max(1, flying.size)];
      const someone = steps[which % steps.length]!.offering.id;
      if (kind === "observe") {
        const number = newest + jump;
        if (number > newest) {
          newest = number;
          sensedAt.set(number, at);
        }
        if (number > 0) watch(observe(at, number));
      } else if (kind === "answer" && flight !== undefined) {
        flying.delete(flight);
        watch(happen({ kind: "answered", at, flight, answer: answer() }));
      } else if (kind === "fail" && flight !== undefined) {
        flying.delete(flight);
        watch(happen({ kind: "failed", at, flight, failure: AttemptFailure.UNREACHABLE }));
      } else if (kind === "rest") {
        if (!resting.delete(someone)) resting.add(someone);
      } else if (kind === "reset") {
        watch(happen({ kind: "reset", at }));
        fresh = true;
        answered.clear();
        sensedAt.clear();
        newest = 0;
      } else if (kind === "block") watch(happen({ kind: "blocked", at, why: HoldReason.SLOW_READER }));
      else if (kind === "free") watch(happen({ kind: "blocked", at, why: undefined }));
    }
    return { faults, told };
  }
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

test("a gauge counts the rate of chunks, their jitter and what came too late", () => {
  const gauge = new LoopGauge();
  for (const at of [0, 20, 40, 70, 80]) gauge.chunk(at);
  gauge.hold(true);
  gauge.hold(false);
  expect(gauge.figures).toMatchObject({ chunks: 5, holds: 2, missed: 1, effectiveHz: 50 });
  expect(gauge.figures.staleRatio).toBeCloseTo(1 / 6);
  expect(gauge.figures.jitterMs).toBeCloseTo(Math.sqrt(50));
  gauge.chunk(60_080); // a pause of the robot's own
  expect(gauge.figures.effectiveHz).toBe(50);
});

test("two gauges make one, as if it had counted everything", () => {
  const [whole, first, second] = [new LoopGauge(), new LoopGauge(), new LoopGauge()];
  for (const at of [0, 20, 50]) for (const gauge of [whole, first]) gauge.chunk(at);
  whole.chunk(100_000);
  second.chunk(100_000);
  for (const at of [100_010, 100_080]) for (const gauge of [whole, second]) gauge.chunk(at);
  second.hold(true);
  whole.hold(true);
  first.add(second);
  const { effectiveHz, jitterMs, ...counts } = whole.figures;
  expect(first.figures).toMatchObject(counts);
  expect(first.figures.effectiveHz).toBeCloseTo(effectiveHz);
  expect(first.figures.jitterMs).toBeCloseTo(jitterMs);
});

test("two clocks that drift apart are followed", () => {
  const transit = new Transit();
  // The robot's clock is slow: it loses a millisecond in a second.
  let oldest = 0;
  for (let at = 0; at < 600_000; at += 100) oldest = Math.max(oldest, transit.age(at - at / 1000, at) as number);
  expect(oldest).toBeLessThan(70);
});
