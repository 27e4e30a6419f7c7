import { describe, expect, test } from "vitest";
import { HedgeWithheld } from "../../../gen/limber/v1/route_pb.ts";
import { AttemptFailure, UpstreamFailure } from "../../../src/contracts/failure.ts";
import { Reason, Refusal, refuse } from "../../../src/refusal.ts";
import { type AttemptOptions, type AttemptWorld, attemptPlan, attemptStream } from "../../../src/routing/attempt.ts";
import { buildSnapshot } from "../../../src/routing/build.ts";
import { HealthBoard } from "../../../src/routing/health.ts";
import { HedgeBudget } from "../../../src/routing/hedge.ts";
import type { Offering } from "../../../src/routing/offering.ts";
import { type Plan, type PlanStep, planFor } from "../../../src/routing/plan.ts";
import { routeOf } from "../../../src/routing/record.ts";
import type { Signal } from "../../../src/signal.ts";
import { seeded } from "../../support/chance.ts";
import { ManualClock, settle } from "../../support/manual-clock.ts";
import { offering, planArgs, prefer, supplyOf } from "../../support/supply.ts";

type Behaviour = (options: AttemptOptions) => Promise<string>;

/** Offerings that are tried in the order in which they are given, and a clock that stands still. */
function house(offerings: readonly Offering[], preferences: Parameters<typeof prefer>[0] = {}, deadline?: number) {
  const clock = new ManualClock();
  const supply = supplyOf(offerings);
  const snapshot = buildSnapshot(supply);
  const health = new HealthBoard(snapshot, () => 0);
  const caller = new AbortController();
  const provider = prefer({ order: offerings.map((each) => each.provider), ...preferences });
  const plan = (): Plan =>
    planFor({
      ...planArgs(supply, { intent: { provider }, now: clock.steady(), arrivedAt: clock.steady(), deadline }),
      snapshot,
      health: health.view,
    });
  const world: AttemptWorld = { clock, health, hedges: new HedgeBudget(), signal: caller.signal };
  return { clock, health, caller, world, plan };
}

/** Calls by offering, and the options that each was given. */
function calls(behaviours: Record<string, Behaviour>) {
  const given: { id: string; options: AttemptOptions }[] = [];
  return {
    given,
    asked: () => given.map((each) => each.id),
    call(step: PlanStep, options: AttemptOptions): Promise<string> {
      given.push({ id: step.offering.id, options });
      return behaviours[step.offering.id]!(options);
    },
    unitsOf: () => 16,
  };
}

const answers =
  (what: string): Behaviour =>
  async () =>
    what;
const fails =
  (failure: AttemptFailure): Behaviour =>
  async () => {
    throw new UpstreamFailure(failure, "secret upstream text");
  };
const hangs: Behaviour = () => new Promise(() => {});
const late =
  (clock: ManualClock, ms: number, then: Behaviour): Behaviour =>
  (options) =>
    new Promise((resolve, reject) => {
      const cancel = clock.after(ms, () => then(options).then(resolve, reject));
      options.signal.addEventListener("abort", cancel);
    });

async function refusalOf(promise: Promise<unknown>): Promise<Refusal> {
  const thrown = await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (thrown instanceof Refusal) return thrown;
  throw new Error(`expected a refusal, got ${String(thrown)}`);
}

describe("down the plan", () => {
  test("the first step that answers serves, and no other is called", async () => {
    const { world, plan, clock } = house([offering("a"), offering("b")]);
    const upstream = calls({ a: answers("from a") });
    const { answer, step, tries } = await attemptPlan(plan(), world, upstream);
    expect([answer, step.offering.id, tries.length]).toEqual(["from a", "a", 1]);
    expect(clock.pending).toBe(0);
  });

  test("a failure falls to the next step, and both are in the record", async () => {
    const { world, plan } = house([offering("a"), offering("b")]);
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
    const { world, plan } = house([offering("a"), offering("b")]);
    const upstream = calls({ a: fails(AttemptFailure.UNREACHABLE), b: fails(AttemptFailure.MALFORMED_ANSWER) });
    const refusal = await refusalOf(attemptPlan(plan(), world, upstream));
    expect(refusal.reason).toBe(Reason.ALL_ATTEMPTS_FAILED);
    expect(refusal.route?.attempts).toHaveLength(2);
    expect(JSON.stringify([refusal.message, refusal.details])).not.toContain("secret");
  });

  test("when all are at their limit the refusal says when to come back", async () => {
    const { world, plan } = house([offering("a")]);
    const refusal = await refusalOf(attemptPlan(plan(), world, calls({ a: fails(AttemptFailure.UPSTREAM_BUSY) })));
    expect(refusal.reason).toBe(Reason.CAPACITY_EXHAUSTED);
    expect(refusal.retryAfter).toBeGreaterThan(0);
  });

  test("allow_fallbacks false asks one offering and fails with it", async () => {
    const { world, plan } = house([offering("a"), offering("b")], { order: [], allowFallbacks: false });
    const upstream = calls({ a: fails(AttemptFailure.TIMEOUT), b: fails(AttemptFailure.TIMEOUT) });
    const refusal = await refusalOf(attemptPlan(plan(), world, upstream));
    expect(refusal.reason).toBe(Reason.ALL_ATTEMPTS_FAILED);
    expect(upstream.asked()).toHaveLength(1);
  });

  test("a refusal thrown by the call ends the request as it is, and nothing falls back", async () => {
    const { world, plan } = house([offering("a"), offering("b")]);
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
    const { world, plan } = house([offering("a"), offering("b")]);
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
    const { world, plan, clock } = house([offering("a", { timeoutMs: 400 }), offering("b")], { deadlineMs: 1000 });
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
    const { world, plan, clock } = house([offering("a"), offering("b")], { deadlineMs: 300 });
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
    const { world, plan, clock } = house([offering("a"), offering("slow", slow), offering("c")], { deadlineMs: 800 });
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
    const { world, plan, clock } = house([offering("a"), offering("slow", slow)], { deadlineMs: 800 });
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
    const { world, plan, caller, clock } = house([offering("a"), offering("b")]);
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
    const { world, plan, caller } = house([offering("a")]);
    caller.abort();
    const upstream = calls({});
    expect((await refusalOf(attemptPlan(plan(), world, upstream))).reason).toBe(Reason.CLIENT_CLOSED_REQUEST);
    expect(upstream.asked()).toEqual([]);
  });

  test("a signal aborted with a refusal ends the request with that refusal", async () => {
    const { world, plan, caller } = house([offering("a")]);
    const refusal = refusalOf(attemptPlan(plan(), world, calls({ a: hangs })));
    await settle();
    caller.abort(refuse(Reason.NOT_READY, "the house closes", {}, { retryAfter: 5 }));
    expect(await refusal).toMatchObject({ reason: Reason.NOT_READY, retryAfter: 5 });
  });

  test("leaving is not held against the provider", async () => {
    const { world, plan, caller, health } = house([offering("a")]);
    const refusal = refusalOf(attemptPlan(plan(), world, calls({ a: hangs })));
    await settle();
    caller.abort();
    await refusal;
    expect([...health.figures(0)][0]!.breaker.consecutive).toBe(0);
  });
});

describe("hedging", () => {
  const pair = [offering("a"), offering("b")];

  test("a late first is joined by a second; the first to answer serves, the loser is cancelled, recorded and paid", async () => {
    const { world, plan, clock } = house(pair, { hedge: { afterMs: 75 } });
    const upstream = calls({ a: late(clock, 1000, answers("slow")), b: late(clock, 50, answers("quick")) });
    const outcome = attemptPlan(plan(), world, upstream);
    await clock.advance(74);
    expect(upstream.asked()).toEqual(["a"]);
    await clock.advance(51);
    const { answer, step, tries, hedgeMicro, hedgeWithheld } = await outcome;
    expect([answer, step.offering.id, hedgeWithheld]).toEqual(["quick", "b", undefined]);
    expect(tries.map((each) => each.status)).toEqual(["cancelled", "ok"]);
    expect(upstream.given[0]!.options.signal.aborted).toBe(true);
    expect(hedgeMicro).toBe(1600);
    expect(clock.pending).toBe(0);
  });

  test("a first that answers in time is not hedged, and costs nothing more", async () => {
    const { world, plan, clock } = house(pair, { hedge: { afterMs: 75 } });
    const upstream = calls({ a: late(clock, 60, answers("in time")), b: answers("no") });
    const outcome = attemptPlan(plan(), world, upstream);
    await clock.advance(200);
    expect((await outcome).hedgeMicro).toBeUndefined();
    expect(upstream.asked()).toEqual(["a"]);
  });

  test("a hedge that fails leaves the first running, and costs nothing", async () => {
    const { world, plan, clock } = house(pair, { hedge: { afterMs: 75 } });
    const upstream = calls({ a: late(clock, 200, answers("first")), b: fails(AttemptFailure.UNREACHABLE) });
    const outcome = attemptPlan(plan(), world, upstream);
    await clock.advance(200);
    const { answer, hedgeMicro, tries } = await outcome;
    expect([answer, hedgeMicro, tries.map((each) => each.status)]).toEqual(["first", 0, ["ok", "error"]]);
  });

  test("a first that fails while its hedge runs does not start a third", async () => {
    const { world, plan, clock } = house([...pair, offering("c")], { hedge: { afterMs: 75 } });
    const upstream = calls({
      a: late(clock, 100, fails(AttemptFailure.CONNECTION_LOST)),
      b: late(clock, 100, answers("second")),
      c: answers("no"),
    });
    const outcome = attemptPlan(plan(), world, upstream);
    await clock.advance(200);
    expect((await outcome).answer).toBe("second");
    expect(upstream.asked()).toEqual(["a", "b"]);
  });

  test.each([
    ["another checkpoint", { model: "acme/other" }],
    ["another step time", { dtMs: 20 }],
    ["the same provider", { provider: "a" }],
  ])("never across to %s", async (_, facts: Partial<Offering>) => {
    const { world, clock } = house(pair);
    const both = supplyOf([offering("a"), offering("b", facts)]);
    const plan = planFor(
      planArgs(both, {
        now: 0,
        arrivedAt: 0,
        intent: {
          models: ["acme/other"].filter((model) => model === facts.model),
          provider: prefer({ order: ["a"], hedge: { afterMs: 10 } }),
        },
      }),
    );
    const upstream = calls({ a: late(clock, 100, answers("first")), b: answers("mixed") });
    const outcome = attemptPlan(plan, world, upstream);
    await clock.advance(100);
    const { answer, hedgeMicro, hedgeWithheld } = await outcome;
    expect([answer, hedgeMicro, hedgeWithheld]).toEqual(["first", undefined, HedgeWithheld.NO_EQUAL]);
    expect(plan.steps).toHaveLength(2);
    expect(upstream.asked()).toEqual(["a"]);
  });

  const HELD_BACK: readonly [
    string,
    HedgeWithheld,
    { maxCostUsd?: number; deadlineMs?: number },
    (of: ReturnType<typeof house>) => void,
  ][] = [
    ["both together would break max_cost_usd", HedgeWithheld.MAX_COST_USD, { maxCostUsd: 0.0031 }, () => {}],
    ["nobody is expected to finish in time", HedgeWithheld.DEADLINE, { deadlineMs: 120 }, () => {}],
    [
      "too many were sent already",
      HedgeWithheld.BUDGET,
      {},
      ({ world }) => {
        while (world.hedges.spend());
      },
    ],
    [
      "the other one began to rest after the plan was made",
      HedgeWithheld.CIRCUIT_OPEN,
      {},
      ({ health }) => {
        health.force("b", "forced_open", 0);
      },
    ],
  ];
  test.each(HELD_BACK)("not sent when %s, and the route says so", async (_, why, preferences, happens) => {
    const all = house(pair, { hedge: { afterMs: 75 }, ...preferences });
    const plan = all.plan();
    happens(all);
    const upstream = calls({ a: late(all.clock, 100, answers("first")), b: answers("no") });
    const outcome = attemptPlan(plan, all.world, upstream);
    await all.clock.advance(100);
    const { hedgeWithheld, ...rest } = await outcome;
    expect([hedgeWithheld, rest.hedgeMicro, upstream.asked()]).toEqual([why, undefined, ["a"]]);
    expect(routeOf({ ...rest, hedgeWithheld }).hedgeWithheld).toBe(why);
  });

  test("the ceiling holds the first and its hedge", () => {
    const { plan } = house([offering("a"), offering("b", { priceNano: { 1: 300_000 } })], { hedge: { afterMs: 10 } });
    expect(plan().ceilingMicro).toBe(1600 + 4800);
    expect(house(pair, { hedge: { afterMs: 10 }, maxCostUsd: 0.0031 }).plan().ceilingMicro).toBe(1600);
  });

  test("of calls that are 20 times slow once in fifty, hedging cuts p99 five times and makes four in a hundred more calls at most", async () => {
    const tail = async (hedge: { afterMs: number } | undefined) => {
      const { world, plan, clock } = house(pair, hedge ? { hedge } : {});
      const chance = seeded(7);
      const served: Behaviour = (options) =>
        late(clock, chance() < 0.02 ? 1_000 : 45 + chance() * 10, answers("x"))(options);
      const upstream = calls({ a: served, b: served });
      const tookMs: number[] = [];
      for (let i = 0; i < 2_000; i++) {
        const began = clock.steady();
        const outcome = attemptPlan(plan(), world, upstream).then(() => tookMs.push(clock.steady() - began));
        while (tookMs.length <= i) await clock.advance(25);
        await outcome;
      }
      tookMs.sort((x, y) => x - y);
      return { p99: tookMs[1_980]!, asked: upstream.asked().length };
    };
    const [alone, hedged] = [await tail(undefined), await tail({ afterMs: 75 })];
    expect(alone.p99 / hedged.p99).toBeGreaterThanOrEqual(5);
    expect(hedged.asked / alone.asked - 1).toBeLessThanOrEqual(0.04);
  });

  test("when everything is slow the budget ends, so that hedges do not double the load", async () => {
    const { world, plan, clock } = house(pair, { hedge: { afterMs: 10 } });
    const upstream = calls({ a: late(clock, 30, answers("slow")), b: late(clock, 30, answers("slow")) });
    for (let i = 0; i < 400; i++) {
      const outcome = attemptPlan(plan(), world, upstream);
      await clock.advance(40);
      await outcome;
    }
    const hedges = upstream.asked().length - 400;
    expect(hedges).toBeGreaterThanOrEqual(20);
    expect(hedges).toBeLessThanOrEqual(20 + 400 * 0.05 + 1);
  });
});

describe("the breaker", () => {
  test("while half open one request probes, and the others pass on to the next step", async () => {
    const { world, plan, clock, health } = house([offering("a"), offering("b")]);
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
    const { world, plan, health } = house([offering("a")]);
    for (let i = 0; i < 20; i++)
      await refusalOf(attemptPlan(plan(), world, calls({ a: fails(AttemptFailure.INPUT_REJECTED) })));
    expect([...health.figures(0)][0]!.breaker.state).toBe("closed");
  });

  test("with order and allow_fallbacks false a resting offering is asked all the same", async () => {
    const { world, plan } = house([offering("a")], { order: ["a"], allowFallbacks: false });
    for (let i = 0; i < 6; i++)
      await refusalOf(attemptPlan(plan(), world, calls({ a: fails(AttemptFailure.UNREACHABLE) })));
    expect((await attemptPlan(plan(), world, calls({ a: answers("up again") }))).answer).toBe("up again");
  });
});

describe("streams", () => {
  /** A stream of these elements; a number waits so many milliseconds, a failure breaks it. */
  function streams(clock: ManualClock, script: Record<string, readonly (string | number | AttemptFailure | Error)[]>) {
    const closed: string[] = [];
    const signals: Record<string, Signal> = {};
    async function* play(id: string): AsyncGenerator<string> {
      try {
        for (const part of script[id]!) {
          if (typeof part === "string") yield part;
          else if (part instanceof Error) throw part;
          else await new Promise<void>((resolve) => clock.after(part, resolve));
        }
      } finally {
        closed.push(id);
      }
    }
    return {
      closed,
      signals,
      open: (step: PlanStep, { signal }: AttemptOptions): AsyncIterable<string> => {
        signals[step.offering.id] = signal;
        return play(step.offering.id);
      },
      unitsOf: () => 1,
    };
  }
  const broken = (failure: AttemptFailure) => new UpstreamFailure(failure, "secret upstream text");
  const read = async (rest: AsyncIterable<string>): Promise<string[]> => {
    const all: string[] = [];
    for await (const element of rest) all.push(element);
    return all;
  };

  test("every element comes in order, and the end is recorded", async () => {
    const { world, plan, clock } = house([offering("a")]);
    const { first, rest, tries } = await attemptStream(plan(), world, streams(clock, { a: ["0", "1", "2"] }));
    expect(tries[0]!.status).toBe("running");
    expect([first, ...(await read(rest))]).toEqual(["0", "1", "2"]);
    expect(tries[0]!.status).toBe("ok");
    expect(clock.pending).toBe(0);
  });

  test("before the first element a failure falls back silently", async () => {
    const { world, plan, clock } = house([offering("a"), offering("b"), offering("c")]);
    const upstream = streams(clock, { a: [broken(AttemptFailure.UPSTREAM_ERROR)], b: [], c: ["0"] });
    const { first, step, tries, rest } = await attemptStream(plan(), world, upstream);
    expect([first, step.offering.id]).toEqual(["0", "c"]);
    expect(tries.map((each) => each.reason)).toEqual([
      AttemptFailure.UPSTREAM_ERROR,
      AttemptFailure.EMPTY_ANSWER,
      undefined,
    ]);
    expect(await read(rest)).toEqual([]);
  });

  test("after the first element a failure ends the stream and never falls back", async () => {
    const { world, plan, clock } = house([offering("a"), offering("b")]);
    const upstream = streams(clock, { a: ["0", broken(AttemptFailure.CONNECTION_LOST)], b: ["0"] });
    const { rest } = await attemptStream(plan(), world, upstream);
    const refusal = await refusalOf(read(rest));
    expect(refusal.reason).toBe(Reason.ALL_ATTEMPTS_FAILED);
    expect(refusal.route?.attempts.map((each) => [each.offeringId, each.reason])).toEqual([
      ["a", AttemptFailure.CONNECTION_LOST],
    ]);
    expect(Object.keys(upstream.signals)).toEqual(["a"]);
    expect(clock.pending).toBe(0);
  });

  test("a stream that stands still is cut off at the attempt's budget", async () => {
    const { world, plan, clock } = house([offering("a", { timeoutMs: 500 }), offering("b")]);
    const upstream = streams(clock, { a: ["0", 10_000, "1"] });
    const { rest } = await attemptStream(plan(), world, upstream);
    const refusal = refusalOf(read(rest));
    await clock.advance(500);
    expect((await refusal).route?.attempts[0]?.reason).toBe(AttemptFailure.TIMEOUT);
    expect(upstream.signals.a!.aborted).toBe(true);
  });

  test("the deadline cuts a stream that is slow but moving", async () => {
    const { world, plan, clock } = house([offering("a")], { deadlineMs: 250 });
    const { rest } = await attemptStream(plan(), world, streams(clock, { a: ["0", 100, "1", 100, "2", 100, "3"] }));
    const refusal = refusalOf(read(rest));
    await clock.advance(250);
    expect((await refusal).reason).toBe(Reason.DEADLINE_EXCEEDED);
  });

  test("a reader who stops early cancels the upstream", async () => {
    const { world, plan, clock, health } = house([offering("a")]);
    const upstream = streams(clock, { a: ["0", "1", "2"] });
    const { rest } = await attemptStream(plan(), world, upstream);
    for await (const element of rest) if (element === "1") break;
    await settle();
    expect(upstream.signals.a!.aborted).toBe(true);
    expect(upstream.closed).toEqual(["a"]);
    expect([...health.figures(0)][0]!.breaker.consecutive).toBe(0);
    expect(clock.pending).toBe(0);
  });

  test("a caller who leaves before reading on cancels the upstream", async () => {
    const { world, plan, clock, caller } = house([offering("a")]);
    const upstream = streams(clock, { a: ["0", "1"] });
    const { rest } = await attemptStream(plan(), world, upstream);
    caller.abort();
    expect(upstream.signals.a!.aborted).toBe(true);
    expect((await refusalOf(read(rest))).reason).toBe(Reason.CLIENT_CLOSED_REQUEST);
    expect(clock.pending).toBe(0);
  });

  test("a caller who leaves in the very moment of the first element cancels the upstream", async () => {
    const { world, plan, clock, caller } = house([offering("a")]);
    const upstream = streams(clock, { a: ["0", "1"] });
    const unitsOf = (): number => {
      caller.abort();
      return 1;
    };
    const { rest } = await attemptStream(plan(), world, { ...upstream, unitsOf });
    expect(upstream.signals.a!.aborted).toBe(true);
    expect((await refusalOf(read(rest))).reason).toBe(Reason.CLIENT_CLOSED_REQUEST);
  });

  test("a caller who leaves while a frame is awaited ends the wait", async () => {
    const { world, plan, clock, caller } = house([offering("a")]);
    const { rest } = await attemptStream(plan(), world, streams(clock, { a: ["0", 5000, "1"] }));
    const refusal = refusalOf(read(rest));
    await settle();
    caller.abort();
    expect((await refusal).reason).toBe(Reason.CLIENT_CLOSED_REQUEST);
  });

  test("the loser of a hedged stream is closed even if its first element comes later", async () => {
    const { world, plan, clock } = house([offering("a"), offering("b")], { hedge: { afterMs: 10 } });
    const upstream = streams(clock, { a: [100, "slow"], b: ["quick"] });
    const outcome = attemptStream(plan(), world, upstream);
    await clock.advance(10);
    const { first, rest } = await outcome;
    expect(first).toBe("quick");
    expect(await read(rest)).toEqual([]);
    await clock.advance(100);
    expect(upstream.closed.sort()).toEqual(["a", "b"]);
  });
});
