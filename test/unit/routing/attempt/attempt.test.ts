/** One step of a plan after the other: what is tried, how long, and for whom. */
import { describe, expect, test } from "vitest";
import { AttemptFailure } from "../../../../src/contracts/contract.ts";
import { Reason, refuse } from "../../../../src/errors.ts";
import { attemptPlan } from "../../../../src/routing/attempt/attempt.ts";
import { routeOf } from "../../../../src/routing/attempt/record.ts";
import { planFor } from "../../../../src/routing/plan/plan.ts";
import { answers, calls, fails, gateway, hangs, late, refusalOf } from "../../../support/attempts.ts";
import { settle } from "../../../support/manual-clock.ts";
import { offering, planArgs, prefer, supplyOf } from "../../../support/supply.ts";

describe("down the plan", () => {
  test("the first step that answers serves, and no other is called", async () => {
    const { world, plan, clock } = gateway([offering("a"), offering("b")]);
    const upstream = calls({ a: answers("from a") });
    const { answer, step, tries } = await attemptPlan(plan(), world, upstream);
    expect([answer, step.offering.id, tries.length]).toEqual(["from a", "a", 1]);
    expect(clock.pending).toBe(0);
  });

  test("four that wait at an offering that has long been silent, and all after them, go on to another", async () => {
    const { world, plan, clock } = gateway([offering("a"), offering("b")]);
    const upstream = calls({ a: hangs, b: answers("from b") });
    const waiting = Array.from({ length: 5 }, () => attemptPlan(plan(), world, upstream));
    await clock.advance(1_100);
    expect((await attemptPlan(plan(), world, upstream)).answer).toBe("from b");
    for (const { answer, tries } of await Promise.all(waiting)) {
      expect(answer).toBe("from b");
      expect(tries[0]).toMatchObject({ status: "error", reason: AttemptFailure.TIMEOUT, latencyMs: 1_100 });
    }
    expect(upstream.given.slice(0, 5).every(({ options }) => options.signal.aborted)).toBe(true);
    expect(upstream.asked()).toEqual([..."aaaaabbbbbb"]);
    expect(clock.pending).toBe(0);
  });

  test("three that wait are no sign of silence, nor are four of which one was just answered", async () => {
    const { world, plan, clock } = gateway([offering("a"), offering("b")]);
    let release = (_: string): void => {};
    const held = new Promise<string>((resolve) => (release = resolve));
    const upstream = calls({ a: () => held, b: answers("from b") });
    const three = Array.from({ length: 3 }, () => attemptPlan(plan(), world, upstream));
    await clock.advance(1_100);
    const fourth = attemptPlan(plan(), world, upstream);
    await settle();
    expect(upstream.asked()).toEqual([..."aaaa"]);
    release("from a");
    expect((await Promise.all([...three, fourth])).map(({ answer }) => answer)).toEqual(Array(4).fill("from a"));
    expect((await attemptPlan(plan(), world, upstream)).answer).toBe("from a");
  });

  test("what may not fall back, and what holds to its order, waits on at a silent offering", async () => {
    const { world, plan, clock } = gateway([offering("a"), offering("b")]);
    const bound = gateway([offering("a"), offering("b")], { order: [], allowFallbacks: false }).plan();
    const upstream = calls({ a: hangs, b: answers("from b") });
    const waiting = Array.from({ length: 4 }, () => refusalOf(attemptPlan(bound, world, upstream)));
    await clock.advance(1_100);
    expect((await attemptPlan(plan(), world, upstream)).answer).toBe("from b");
    await settle();
    expect(upstream.asked()).toEqual([..."aaaab"]);
    await clock.advance(120_000);
    for (const { reason } of await Promise.all(waiting)) expect(reason).toBe(Reason.ALL_ATTEMPTS_FAILED);
  });

  test("a silent offering is asked all the same where no other serves", async () => {
    const { world, plan, clock } = gateway([offering("a")]);
    const upstream = calls({ a: hangs });
    const waiting = Array.from({ length: 5 }, () => refusalOf(attemptPlan(plan(), world, upstream)));
    await clock.advance(1_100);
    waiting.push(refusalOf(attemptPlan(plan(), world, upstream)));
    await clock.advance(0);
    expect(upstream.asked()).toHaveLength(6);
    await clock.advance(120_000);
    for (const { reason } of await Promise.all(waiting)) expect(reason).toBe(Reason.ALL_ATTEMPTS_FAILED);
  });

  test("a failure falls to the next step, and both are in the record", async () => {
    const { world, plan } = gateway([offering("a"), offering("b")]);
    const upstream = calls({ a: fails(AttemptFailure.UPSTREAM_ERROR), b: answers("from b") });
    const outcome = await attemptPlan(plan(), world, upstream);
    const route = routeOf(outcome);
    expect(outcome.answer).toBe("from b");
    expect(route.fallbackUsed).toBe(true);
    expect(route.attempts.map((each) => [each.offeringId, each.status, each.reason])).toEqual([
      ["a", 2, AttemptFailure.UPSTREAM_ERROR],
      ["b", 1, undefined],
    ]);
  });

  test("when all fail the refusal carries every attempt and none of the upstream's text", async () => {
    const { world, plan } = gateway([offering("a"), offering("b")]);
    const upstream = calls({ a: fails(AttemptFailure.UNREACHABLE), b: fails(AttemptFailure.MALFORMED_ANSWER) });
    const refusal = await refusalOf(attemptPlan(plan(), world, upstream));
    expect(refusal.reason).toBe(Reason.ALL_ATTEMPTS_FAILED);
    expect(refusal.route?.attempts).toHaveLength(2);
    expect(JSON.stringify([refusal.message, refusal.details])).not.toContain("secret");
  });

  test("when all are at their limit the refusal says when to come back", async () => {
    const { world, plan } = gateway([offering("a")]);
    const refusal = await refusalOf(attemptPlan(plan(), world, calls({ a: fails(AttemptFailure.UPSTREAM_BUSY) })));
    expect(refusal.reason).toBe(Reason.CAPACITY_EXHAUSTED);
    expect(refusal.retryAfter).toBeGreaterThan(0);
  });

  test("allow_fallbacks false asks one offering and fails with it", async () => {
    const { world, plan } = gateway([offering("a"), offering("b")], { order: [], allowFallbacks: false });
    const upstream = calls({ a: fails(AttemptFailure.TIMEOUT), b: fails(AttemptFailure.TIMEOUT) });
    const refusal = await refusalOf(attemptPlan(plan(), world, upstream));
    expect(refusal.reason).toBe(Reason.ALL_ATTEMPTS_FAILED);
    expect(upstream.asked()).toHaveLength(1);
  });

  test("a refusal thrown by the call ends the request as it is, and nothing falls back", async () => {
    const { world, plan } = gateway([offering("a"), offering("b")]);
    const upstream = calls({
      a: async () => {
        throw refuse(Reason.FRAME_REFUSED, "no picture");
      },
    });
    const refusal = await refusalOf(attemptPlan(plan(), world, upstream));
    expect(refusal.reason).toBe(Reason.FRAME_REFUSED);
    expect(upstream.asked()).toEqual(["a"]);
  });

  test("a bug in a wire is not taken for a failed attempt", async () => {
    const { world, plan } = gateway([offering("a"), offering("b")]);
    const upstream = calls({
      a: () => {
        throw new TypeError("bug");
      },
    });
    await expect(attemptPlan(plan(), world, upstream)).rejects.toThrow(TypeError);
  });
});

describe("time", () => {
  test("an attempt is cut off at its own budget, its call is cancelled, and the next has what is left", async () => {
    const { world, plan, clock } = gateway([offering("a", { timeoutMs: 400 }), offering("b")], { deadlineMs: 1000 });
    const upstream = calls({ a: hangs, b: answers("late") });
    const outcome = attemptPlan(plan(), world, upstream);
    await clock.advance(400);
    const { answer, tries } = await outcome;
    expect(answer).toBe("late");
    expect(upstream.given[0]!.options.signal.aborted).toBe(true);
    expect(upstream.given.map((each) => each.options.budgetMs)).toEqual([400, 600]);
    expect(tries[0]).toMatchObject({ status: "error", reason: AttemptFailure.TIMEOUT, latencyMs: 400 });
  });

  test("deadline_ms ends the whole request, with the attempt that it caught", async () => {
    const { world, plan, clock } = gateway([offering("a"), offering("b")], { deadlineMs: 300 });
    const upstream = calls({ a: hangs, b: answers("never") });
    const refusal = refusalOf(attemptPlan(plan(), world, upstream));
    await clock.advance(300);
    const { reason, route } = await refusal;
    expect(reason).toBe(Reason.DEADLINE_EXCEEDED);
    expect(route?.attempts.map((each) => each.reason)).toEqual([AttemptFailure.DEADLINE]);
    expect(upstream.asked()).toEqual(["a"]);
    expect(clock.pending).toBe(0);
  });

  test("deadline_ms counts from the arrival, not from the plan", async () => {
    const supply = supplyOf([offering("a")]);
    const args = planArgs(supply, { intent: { provider: prefer({ deadlineMs: 1000 }) }, arrivedAt: 0, now: 400 });
    expect(planFor(args).endsAt).toBe(1000);
  });

  test("the caller's own deadline counts when it is the shorter one", () => {
    const args = planArgs(supplyOf([offering("a")]), {
      intent: { provider: prefer({ deadlineMs: 1000 }) },
      arrivedAt: 0,
      now: 0,
      deadline: 700,
    });
    expect(planFor(args).endsAt).toBe(700);
  });

  test("without a deadline the request has time for every budget and what lies between, and two minutes at most", () => {
    const short = planArgs(supplyOf([offering("a", { timeoutMs: 1000 }), offering("b", { timeoutMs: 2000 })]), {
      now: 5,
      arrivedAt: 5,
    });
    expect(planFor(short).endsAt).toBe(4005);
    const long = planArgs(supplyOf(["a", "b", "c", "d", "e"].map((id) => offering(id))), { now: 0, arrivedAt: 0 });
    expect(planFor(long).endsAt).toBe(120_000);
  });

  test("a step that is not expected to finish in what is left is skipped", async () => {
    const slow = { advertised: { p50Ms: 500, p95Ms: 600, unitsPerS: 1, uptime30d: 1 } };
    const { world, plan, clock } = gateway([offering("a"), offering("slow", slow), offering("c")], { deadlineMs: 800 });
    const upstream = calls({
      a: late(clock, 400, fails(AttemptFailure.CONNECTION_LOST)),
      slow: answers("no"),
      c: answers("in time"),
    });
    const outcome = attemptPlan(plan(), world, upstream);
    await clock.advance(400);
    expect((await outcome).answer).toBe("in time");
    expect(upstream.asked()).toEqual(["a", "c"]);
  });

  test("when every step that is left is too slow, time is what ran out", async () => {
    const slow = { advertised: { p50Ms: 500, p95Ms: 600, unitsPerS: 1, uptime30d: 1 } };
    const { world, plan, clock } = gateway([offering("a"), offering("slow", slow)], { deadlineMs: 800 });
    const refusal = refusalOf(
      attemptPlan(
        plan(),
        world,
        calls({ a: late(clock, 400, fails(AttemptFailure.CONNECTION_LOST)), slow: answers("no") }),
      ),
    );
    await clock.advance(400);
    expect((await refusal).reason).toBe(Reason.DEADLINE_EXCEEDED);
  });
});

describe("the caller", () => {
  test("who leaves cancels the call under way, and no other is begun", async () => {
    const { world, plan, caller, clock } = gateway([offering("a"), offering("b")]);
    const upstream = calls({ a: hangs, b: answers("no") });
    const refusal = refusalOf(attemptPlan(plan(), world, upstream));
    await settle();
    caller.abort();
    expect((await refusal).reason).toBe(Reason.CLIENT_CLOSED_REQUEST);
    expect(upstream.given[0]!.options.signal.aborted).toBe(true);
    expect(upstream.asked()).toEqual(["a"]);
    expect(clock.pending).toBe(0);
  });

  test("who left before has nothing called", async () => {
    const { world, plan, caller } = gateway([offering("a")]);
    caller.abort();
    const upstream = calls({});
    expect((await refusalOf(attemptPlan(plan(), world, upstream))).reason).toBe(Reason.CLIENT_CLOSED_REQUEST);
    expect(upstream.asked()).toEqual([]);
  });

  test("a signal aborted with a refusal ends the request with that refusal", async () => {
    const { world, plan, caller } = gateway([offering("a")]);
    const refusal = refusalOf(attemptPlan(plan(), world, calls({ a: hangs })));
    await settle();
    caller.abort(refuse(Reason.NOT_READY, "the gateway closes", {}, { retryAfter: 5 }));
    expect(await refusal).toMatchObject({ reason: Reason.NOT_READY, retryAfter: 5 });
  });

  test("leaving is not held against the provider", async () => {
    const { world, plan, caller, health } = gateway([offering("a")]);
    const refusal = refusalOf(attemptPlan(plan(), world, calls({ a: hangs })));
    await settle();
    caller.abort();
    await refusal;
    expect([...health.figures(0)][0]!.breaker.consecutive).toBe(0);
  });
});

describe("the breaker", () => {
  test("while half open one request probes, and the others pass on to the next step", async () => {
    const { world, plan, clock, health } = gateway([offering("a"), offering("b")]);
    const down = calls({ a: fails(AttemptFailure.UNREACHABLE), b: answers("b") });
    for (let i = 0; i < 5; i++) await attemptPlan(plan(), world, down);
    expect(plan().steps.map((each) => each.offering.id)).toEqual(["b"]);
    await clock.advance(10_000);
    const probing = plan();
    expect(probing.steps.map((each) => each.offering.id)).toEqual(["a", "b"]);
    const upstream = calls({ a: late(clock, 50, answers("a")), b: answers("b") });
    const first = attemptPlan(probing, world, upstream);
    const second = attemptPlan(probing, world, upstream);
    expect((await second).answer).toBe("b");
    await clock.advance(50);
    expect((await first).answer).toBe("a");
    await attemptPlan(plan(), world, calls({ a: answers("a") }));
    expect([...health.figures(0)][0]!.breaker.state).toBe("closed");
  });

  test("what the caller sent wrong does not open it", async () => {
    const { world, plan, health } = gateway([offering("a")]);
    for (let i = 0; i < 20; i++)
      await refusalOf(attemptPlan(plan(), world, calls({ a: fails(AttemptFailure.INPUT_REJECTED) })));
    expect([...health.figures(0)][0]!.breaker.state).toBe("closed");
  });

  test("input that all rejected is the caller's to mend, and not where one failed otherwise", async () => {
    const { world, plan } = gateway([offering("a"), offering("b")]);
    const rejects = fails(AttemptFailure.INPUT_REJECTED);
    const reads = { ...world, reads: () => "8 proprioception values" };
    const refusal = await refusalOf(attemptPlan(plan(), reads, calls({ a: rejects, b: rejects })));
    expect([refusal.reason, refusal.details.needed?.length]).toEqual([Reason.INPUT_CONTRACT, 2]);
    const b = fails(AttemptFailure.UPSTREAM_ERROR);
    expect((await refusalOf(attemptPlan(plan(), reads, calls({ a: rejects, b })))).reason).toBe(
      Reason.ALL_ATTEMPTS_FAILED,
    );
  });

  test("with order and allow_fallbacks false a resting offering is asked all the same", async () => {
    const { world, plan } = gateway([offering("a")], { order: ["a"], allowFallbacks: false });
    for (let i = 0; i < 6; i++)
      await refusalOf(attemptPlan(plan(), world, calls({ a: fails(AttemptFailure.UNREACHABLE) })));
    expect((await attemptPlan(plan(), world, calls({ a: answers("up again") }))).answer).toBe("up again");
  });
});

describe("another number of steps than was asked for", () => {
  /** How often each of eight calls was tried at `a`, whose breaker opens after five failures that count. */
  const asked = async (facts: Parameters<typeof offering>[1]): Promise<number> => {
    const { world, plan } = gateway([offering("a", facts), offering("b")]);
    const upstream = calls({ a: fails(AttemptFailure.WRONG_STEP_COUNT), b: answers("from b") });
    for (let i = 0; i < 8; i++) expect((await attemptPlan(plan(), world, upstream)).answer).toBe("from b");
    return upstream.asked().filter((id) => id === "a").length;
  };

  test("counts against an offering that declares its chunk, and against no other", async () => {
    expect(await asked({ maxHorizon: 16, chunk: 16 })).toBe(5);
    expect(await asked({ maxHorizon: 32 })).toBe(5);
    expect(await asked({})).toBe(8);
  });
});
