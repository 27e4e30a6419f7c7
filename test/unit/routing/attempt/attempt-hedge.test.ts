/** A second step beside a late first one. */
import { describe, expect, test } from "vitest";
import { HedgeWithheld } from "../../../../gen/limber/v1/route_pb.ts";
import { AttemptFailure } from "../../../../src/contracts/contract.ts";
import { attemptPlan } from "../../../../src/routing/attempt/attempt.ts";
import { routeOf } from "../../../../src/routing/attempt/record.ts";
import type { Offering } from "../../../../src/routing/offering.ts";
import { planFor } from "../../../../src/routing/plan/plan.ts";
import { answers, type Behaviour, calls, fails, gateway, late } from "../../../support/attempts.ts";
import { seeded } from "../../../support/chance.ts";
import { runs } from "../../../support/runs.ts";
import { offering, planArgs, prefer, supplyOf } from "../../../support/supply.ts";

describe("hedging", () => {
  const pair = [offering("a"), offering("b")];

  test("calls a second offering when the first is late; the first answer wins, and the loser is canceled, recorded and paid", async () => {
    const { world, plan, clock } = gateway(pair, { hedge: { afterMs: 75 } });
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

  test("is not used for a first attempt that answers in time, and costs nothing more", async () => {
    const { world, plan, clock } = gateway(pair, { hedge: { afterMs: 75 } });
    const upstream = calls({ a: late(clock, 60, answers("in time")), b: answers("no") });
    const outcome = attemptPlan(plan(), world, upstream);
    await clock.advance(200);
    expect((await outcome).hedgeMicro).toBeUndefined();
    expect(upstream.asked()).toEqual(["a"]);
  });

  test("leaves the first attempt running if the hedge fails, at no cost", async () => {
    const { world, plan, clock } = gateway(pair, { hedge: { afterMs: 75 } });
    const upstream = calls({ a: late(clock, 200, answers("first")), b: fails(AttemptFailure.UNREACHABLE) });
    const outcome = attemptPlan(plan(), world, upstream);
    await clock.advance(200);
    const { answer, hedgeMicro, tries } = await outcome;
    expect([answer, hedgeMicro, tries.map((each) => each.status)]).toEqual(["first", 0, ["ok", "error"]]);
  });

  test("starts no third attempt if the first fails while its hedge runs", async () => {
    const { world, plan, clock } = gateway([...pair, offering("c")], { hedge: { afterMs: 75 } });
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
  ])("never crosses to %s", async (_, facts: Partial<Offering>) => {
    const { world, clock } = gateway(pair);
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
    (of: ReturnType<typeof gateway>) => void,
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
  test.each(HELD_BACK)("is skipped if %s, and the route reports why", async (_, why, preferences, happens) => {
    const all = gateway(pair, { hedge: { afterMs: 75 }, ...preferences });
    const plan = all.plan();
    happens(all);
    const upstream = calls({ a: late(all.clock, 100, answers("first")), b: answers("no") });
    const outcome = attemptPlan(plan, all.world, upstream);
    await all.clock.advance(100);
    const { hedgeWithheld, ...rest } = await outcome;
    expect([hedgeWithheld, rest.hedgeMicro, upstream.asked()]).toEqual([why, undefined, ["a"]]);
    expect(routeOf({ ...rest, hedgeWithheld }).hedgeWithheld).toBe(why);
  });

  test("has a cost ceiling that covers the first attempt and its hedge", () => {
    const { plan } = gateway([offering("a"), offering("b", { priceNano: { 1: 300_000 } })], { hedge: { afterMs: 10 } });
    expect(plan().ceilingMicro).toBe(1600 + 4800);
    expect(gateway(pair, { hedge: { afterMs: 10 }, maxCostUsd: 0.0031 }).plan().ceilingMicro).toBe(1600);
  });

  test("cuts p99 by five if one call in fifty is 20 times slower, with at most four percent more calls", async () => {
    const CALLS = runs(400);
    const tail = async (hedge: { afterMs: number } | undefined) => {
      const { world, plan, clock } = gateway(pair, hedge ? { hedge } : {});
      const chance = seeded(7);
      const served: Behaviour = (options) =>
        late(clock, chance() < 0.02 ? 1_000 : 45 + chance() * 10, answers("x"))(options);
      const upstream = calls({ a: served, b: served });
      const tookMs: number[] = [];
      for (let i = 0; i < CALLS; i++) {
        const began = clock.steady();
        const outcome = attemptPlan(plan(), world, upstream).then(() => tookMs.push(clock.steady() - began));
        while (tookMs.length <= i) await clock.advance(25);
        await outcome;
      }
      tookMs.sort((x, y) => x - y);
      return { p99: tookMs[CALLS * 0.99]!, asked: upstream.asked().length };
    };
    const [alone, hedged] = [await tail(undefined), await tail({ afterMs: 75 })];
    expect(alone.p99 / hedged.p99).toBeGreaterThanOrEqual(5);
    expect(hedged.asked / alone.asked - 1).toBeLessThanOrEqual(0.04);
  });

  test("stops at its budget if everything is slow, so that hedges do not double the load", async () => {
    const { world, plan, clock } = gateway(pair, { hedge: { afterMs: 10 } });
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
