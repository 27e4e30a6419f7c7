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

describe("an attempt at a plan", () => {
  test("uses the first step that answers, and calls no other", async () => {
    const { world, plan, clock } = gateway([offering("a"), offering("b")]);
    const upstream = calls({ a: answers("from a") });
    const { answer, step, tries } = await attemptPlan(plan(), world, upstream);
    expect([answer, step.offering.id, tries.length]).toEqual(["from a", "a", 1]);
    expect(clock.pending).toBe(0);
  });

  test("moves to another offering if four calls wait at one that has long been silent, and later calls follow", async () => {
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

  test("does not count three waiting calls, or four after a recent answer, as silence", async () => {
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

  test("without fallbacks or with a fixed order keeps waiting at a silent offering", async () => {
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

  test("calls a silent offering if no other is available", async () => {
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

  test("fails over to the next step, and records both", async () => {
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

  test("refuses with every attempt and none of the upstream's text if all fail", async () => {
    const { world, plan } = gateway([offering("a"), offering("b")]);
    const upstream = calls({ a: fails(AttemptFailure.UNREACHABLE), b: fails(AttemptFailure.MALFORMED_ANSWER) });
    const refusal = await refusalOf(attemptPlan(plan(), world, upstream));
    expect(refusal.reason).toBe(Reason.ALL_ATTEMPTS_FAILED);
    expect(refusal.route?.attempts).toHaveLength(2);
    expect(JSON.stringify([refusal.message, refusal.details])).not.toContain("secret");
  });

  test("refuses with a retry time if all are at their limit", async () => {
    const { world, plan } = gateway([offering("a")]);
    const refusal = await refusalOf(attemptPlan(plan(), world, calls({ a: fails(AttemptFailure.UPSTREAM_BUSY) })));
    expect(refusal.reason).toBe(Reason.CAPACITY_EXHAUSTED);
    expect(refusal.retryAfter).toBeGreaterThan(0);
  });

  test("calls one offering with allow_fallbacks false, and fails with it", async () => {
    const { world, plan } = gateway([offering("a"), offering("b")], { order: [], allowFallbacks: false });
    const upstream = calls({ a: fails(AttemptFailure.TIMEOUT), b: fails(AttemptFailure.TIMEOUT) });
    const refusal = await refusalOf(attemptPlan(plan(), world, upstream));
    expect(refusal.reason).toBe(Reason.ALL_ATTEMPTS_FAILED);
    expect(upstream.asked()).toHaveLength(1);
  });

  test("rethrows a refusal of the call without failover", async () => {
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

  test("does not take a wire's bug for a failed attempt", async () => {
    const { world, plan } = gateway([offering("a"), offering("b")]);
    const upstream = calls({
      a: () => {
        throw new TypeError("bug");
      },
    });
    await expect(attemptPlan(plan(), world, upstream)).rejects.toThrow(TypeError);
  });
});

describe("the time of an attempt", () => {
  test("is limited by its own budget: its call is canceled, and the next has the remaining time", async () => {
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

  test("ends with deadline_ms for the entire request, including the running attempt", async () => {
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

  test("is measured from the call's arrival, not from the plan", async () => {
    const supply = supplyOf([offering("a")]);
    const args = planArgs(supply, { intent: { provider: prefer({ deadlineMs: 1000 }) }, arrivedAt: 0, now: 400 });
    expect(planFor(args).endsAt).toBe(1000);
  });

  test("is limited by the caller's own deadline if that is shorter", () => {
    const args = planArgs(supplyOf([offering("a")]), {
      intent: { provider: prefer({ deadlineMs: 1000 }) },
      arrivedAt: 0,
      now: 0,
      deadline: 700,
    });
    expect(planFor(args).endsAt).toBe(700);
  });

  test("without a deadline covers every budget and the pauses between, and two minutes at most", () => {
    const short = planArgs(supplyOf([offering("a", { timeoutMs: 1000 }), offering("b", { timeoutMs: 2000 })]), {
      now: 5,
      arrivedAt: 5,
    });
    expect(planFor(short).endsAt).toBe(4005);
    const long = planArgs(supplyOf(["a", "b", "c", "d", "e"].map((id) => offering(id))), { now: 0, arrivedAt: 0 });
    expect(planFor(long).endsAt).toBe(120_000);
  });

  test("is checked ahead: a step that is not expected to finish in the remaining time is skipped", async () => {
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

  test("is reported as the cause if every remaining step is too slow", async () => {
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

describe("a caller", () => {
  test("that leaves cancels the running call, and no other starts", async () => {
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

  test("that left before causes no call", async () => {
    const { world, plan, caller } = gateway([offering("a")]);
    caller.abort();
    const upstream = calls({});
    expect((await refusalOf(attemptPlan(plan(), world, upstream))).reason).toBe(Reason.CLIENT_CLOSED_REQUEST);
    expect(upstream.asked()).toEqual([]);
  });

  test("with a signal aborted by a refusal gets that refusal", async () => {
    const { world, plan, caller } = gateway([offering("a")]);
    const refusal = refusalOf(attemptPlan(plan(), world, calls({ a: hangs })));
    await settle();
    caller.abort(refuse(Reason.NOT_READY, "the gateway closes", {}, { retryAfter: 5 }));
    expect(await refusal).toMatchObject({ reason: Reason.NOT_READY, retryAfter: 5 });
  });

  test("that leaves does not count against the provider", async () => {
    const { world, plan, caller, health } = gateway([offering("a")]);
    const refusal = refusalOf(attemptPlan(plan(), world, calls({ a: hangs })));
    await settle();
    caller.abort();
    await refusal;
    expect([...health.figures(0)][0]!.breaker.consecutive).toBe(0);
  });
});

describe("the breaker of an attempt", () => {
  test("admits one probe request while half-open, and the others use the next step", async () => {
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

  test("is not opened by the caller's invalid input", async () => {
    const { world, plan, health } = gateway([offering("a")]);
    for (let i = 0; i < 20; i++)
      await refusalOf(attemptPlan(plan(), world, calls({ a: fails(AttemptFailure.INPUT_REJECTED) })));
    expect([...health.figures(0)][0]!.breaker.state).toBe("closed");
  });

  test("leaves input that all offerings rejected to the caller to fix, unless one failed otherwise", async () => {
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

  test("is bypassed for an open offering with order and allow_fallbacks false", async () => {
    const { world, plan } = gateway([offering("a")], { order: ["a"], allowFallbacks: false });
    for (let i = 0; i < 6; i++)
      await refusalOf(attemptPlan(plan(), world, calls({ a: fails(AttemptFailure.UNREACHABLE) })));
    expect((await attemptPlan(plan(), world, calls({ a: answers("up again") }))).answer).toBe("up again");
  });
});

describe("a wrong number of steps", () => {
  /** How often each of eight calls was tried at `a`, whose breaker opens after five failures that count. */
  const asked = async (facts: Parameters<typeof offering>[1]): Promise<number> => {
    const { world, plan } = gateway([offering("a", facts), offering("b")]);
    const upstream = calls({ a: fails(AttemptFailure.WRONG_STEP_COUNT), b: answers("from b") });
    for (let i = 0; i < 8; i++) expect((await attemptPlan(plan(), world, upstream)).answer).toBe("from b");
    return upstream.asked().filter((id) => id === "a").length;
  };

  test("counts only against an offering that declares its chunk length", async () => {
    expect(await asked({ maxHorizon: 16, chunk: 16 })).toBe(5);
    expect(await asked({ maxHorizon: 32 })).toBe(5);
    expect(await asked({})).toBe(8);
  });
});
