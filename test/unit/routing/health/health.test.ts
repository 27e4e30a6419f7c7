import { describe, expect, test } from "vitest";
import { Preference } from "../../../../gen/limber/v1/preferences_pb.ts";
import { AttemptFailure, Contract } from "../../../../src/contracts/contract.ts";
import type { Report } from "../../../../src/routing/health/cell.ts";
import { HealthTracker } from "../../../../src/routing/health/health.ts";
import { planFor } from "../../../../src/routing/plan/plan.ts";
import { buildSnapshot } from "../../../../src/routing/snapshot/build.ts";
import { atOnce } from "../../../../src/slices.ts";
import { intent, offering, planArgs, supplyOf } from "../../../support/supply.ts";

const board = (...offerings: ReturnType<typeof offering>[]) =>
  new HealthTracker(buildSnapshot(supplyOf(offerings)), () => 0);
const report = (facts: Partial<Report> = {}): Report => ({
  outcome: "ok",
  latencyMs: 20,
  units: 16,
  cold: false,
  at: 1000,
  ...facts,
});
const many = (health: HealthTracker, id: string, count: number, facts: Partial<Report>): void => {
  for (let i = 0; i < count; i++) health.report(id, report(facts));
};

describe("health figures", () => {
  test("are the advertised ones until there are enough samples, then the measured ones", () => {
    const health = board(offering("a"));
    expect(health.view.p50Ms[0]).toBe(50);
    many(health, "a", 4, { latencyMs: 500 });
    expect(health.view.p50Ms[0]).toBe(50);
    many(health, "a", 1, { latencyMs: 500 });
    expect(health.view.p50Ms[0]).toBeGreaterThan(450);
    expect(health.view.p95Ms[0]).toBeGreaterThan(450);
    expect(health.view.unitsPerS[0]).toBeCloseTo(32);
  });

  test("derive a missing advertised figure from the other, and are infinite without any", () => {
    const none = { p50Ms: undefined, p95Ms: undefined, unitsPerS: undefined, uptime30d: undefined };
    const health = board(offering("a", { advertised: { ...none, p95Ms: 70 } }), offering("b", { advertised: none }));
    expect([...health.view.p50Ms.subarray(0, 2)]).toEqual([70, Number.POSITIVE_INFINITY]);
    expect([...health.view.uptime.subarray(0, 2)]).toEqual([0, 0]);
  });

  test("for hard constraints are advertised, else measured by calls, else by the probe", () => {
    const none = { p50Ms: undefined, p95Ms: undefined, unitsPerS: undefined, uptime30d: undefined };
    const probed = { p95Ms: 30, uptime: 1 };
    const health = board(
      offering("a", { advertised: { ...none, p95Ms: 70, uptime30d: 0.9 }, probed }),
      offering("b", { advertised: none, probed }),
      offering("c", { advertised: none }),
    );
    const judged = () => ["a", "b", "c"].map((_, row) => [health.view.judgedP95Ms[row], health.view.judgedUptime[row]]);
    expect(judged()).toEqual([
      [70, 0.9],
      [30, 1],
      [Number.POSITIVE_INFINITY, 0],
    ]);
    for (const id of ["a", "b", "c"]) {
      many(health, id, 1, { latencyMs: 500 });
      health.setUptime(id, { last5m: 0.5, last1d: 0.5, last30d: 0.5, calls: 2 }, 1000);
    }
    const [a, b, c] = judged();
    expect(a).toEqual([70, 0.9]);
    for (const [p95Ms, uptime] of [b!, c!]) {
      expect(p95Ms).toBeGreaterThan(450);
      expect(uptime).toBe(0.5);
    }
  });

  test("of a provider that turned slow fade, and it is tried again", () => {
    const health = board(offering("a"));
    many(health, "a", 10, { latencyMs: 5000, at: 1000 });
    expect(health.view.p50Ms[0]).toBeGreaterThan(4000);
    atOnce(health.age(1000 + 10 * 60_000));
    expect(health.view.p50Ms[0]).toBe(50);
  });

  test("lower the share of successes at a failure, and ignore what is not the provider's fault", () => {
    const health = board(offering("a"));
    many(health, "a", 3, { outcome: "cancelled" });
    many(health, "a", 3, { outcome: AttemptFailure.INPUT_REJECTED });
    expect(health.view.success[0]).toBe(1);
    many(health, "a", 1, { outcome: AttemptFailure.UPSTREAM_ERROR });
    expect(health.view.success[0]).toBeCloseTo(0.9);
  });

  test("count a hedge's slow loser as slow, though it never answered", () => {
    const health = board(offering("a"));
    many(health, "a", 10, { outcome: "cancelled", latencyMs: 900 });
    expect(health.view.p50Ms[0]).toBeGreaterThan(800);
  });

  test("ignore the speed of a loser that was canceled early", () => {
    const health = board(offering("a"));
    many(health, "a", 10, { outcome: "cancelled", latencyMs: 5 });
    expect(health.view.p50Ms[0]).toBe(50);
  });

  test("of cold calls are separate, so that a cold start does not slow the warm figure", () => {
    const health = board(offering("a"));
    many(health, "a", 10, { latencyMs: 20_000, cold: true });
    expect(health.view.p50Ms[0]).toBe(50);
    expect(health.view.coldMs[0]).toBe(20_000);
  });

  test("prefer the measured uptime to the advertised one once there are enough calls", () => {
    const health = board(offering("a"));
    expect(health.view.uptime[0]).toBe(0.99);
    health.setUptime("a", { last5m: 0.1, last1d: 0.2, last30d: 0.5, calls: 19 }, 0);
    expect(health.view.uptime[0]).toBe(0.99);
    health.setUptime("a", { last5m: 0.1, last1d: 0.2, last30d: 0.5, calls: 20 }, 0);
    expect(health.view.uptime[0]).toBe(0.5);
  });

  test("for `min_uptime_30d` are the advertised uptime until seven days were measured, then the measured one", () => {
    const health = board(offering("a"));
    const measured = { last5m: 0, last1d: 0, last30d: 0.5, calls: 10_000 };
    for (const [hours, judged] of [
      [1, 0.99],
      [7 * 24 - 1, 0.99],
      [7 * 24, 0.5],
    ] as const) {
      health.setUptime("a", { ...measured, hours }, 0);
      expect(health.view.judgedUptime[0], `after ${hours} hours`).toBe(judged);
    }
  });
});

describe("the breaker of an offering", () => {
  test("opens after five failures until the cooldown ends; then one call passes at a time", () => {
    const health = board(offering("a"), offering("b"));
    many(health, "a", 5, { outcome: AttemptFailure.UNREACHABLE });
    expect(health.admit("a", 1000, 500)).toBe(false);
    expect(health.admit("b", 1000, 500)).toBe(true);
    expect(health.view.restsUntil[0]).toBe(11_000);
    expect(health.admit("a", 11_000, 500)).toBe(true);
    expect(health.admit("a", 11_100, 500)).toBe(false);
    expect(health.admit("a", 11_500, 500)).toBe(true);
  });

  test("does not count a tight deadline that is below the provider's usual time", () => {
    const health = board(offering("a"));
    many(health, "a", 50, { outcome: AttemptFailure.DEADLINE, latencyMs: 99 });
    expect(health.view.restsUntil[0]).toBe(0);
    many(health, "a", 5, { outcome: AttemptFailure.DEADLINE, latencyMs: 10_000 });
    expect(health.view.restsUntil[0]).toBeGreaterThan(0);
  });

  test("does not count a deadline of an unmeasured provider unless it had a second", () => {
    const none = { p50Ms: undefined, p95Ms: undefined, unitsPerS: undefined, uptime30d: undefined };
    const health = board(offering("a", { advertised: none }));
    many(health, "a", 50, { outcome: AttemptFailure.DEADLINE, latencyMs: 3 });
    expect(health.view.restsUntil[0]).toBe(0);
    many(health, "a", 5, { outcome: AttemptFailure.DEADLINE, latencyMs: 1000 });
    expect(health.view.restsUntil[0]).toBeGreaterThan(0);
  });

  test("can be opened and closed by an operator", () => {
    const health = board(offering("a"));
    health.force("a", "forced_open", 0);
    expect(health.admit("a", 1e9, 500)).toBe(false);
    health.force("a", "closed", 0);
    expect(health.admit("a", 0, 500)).toBe(true);
  });
});

describe("a new snapshot", () => {
  test("keeps an offering's health by its id, in any row", () => {
    const health = board(offering("b"));
    many(health, "b", 10, { latencyMs: 500 });
    many(health, "b", 5, { outcome: AttemptFailure.TIMEOUT, latencyMs: 500 });
    const next = buildSnapshot(supplyOf([offering("a"), offering("b"), offering("c")]));
    const view = health.adopt(next, 1000);
    expect(view.snapshot).toBe(next);
    expect([...view.p50Ms.subarray(0, 3)].map((each) => each > 450)).toEqual([false, true, false]);
    expect([...view.restsUntil.subarray(0, 3)]).toEqual([0, 11_000, 0]);
    health.report("c", report({ at: 2000 }));
    expect(health.view.usedAt[2]).toBe(2000);
  });

  test("drops the health of removed offerings, and ignores late reports on them", () => {
    const health = board(offering("a"), offering("b"));
    many(health, "a", 5, { outcome: AttemptFailure.TIMEOUT });
    health.adopt(buildSnapshot(supplyOf([offering("b")])), 0);
    health.report("a", report());
    expect([...health.figures(0)].map((each) => each.offering.id)).toEqual(["b"]);
    const view = health.adopt(buildSnapshot(supplyOf([offering("a")])), 0);
    expect(view.restsUntil[0]).toBe(0);
  });
});

describe("the pace of a provider", () => {
  test("that becomes ten times slower makes balanced and fastest avoid it at once, and try it again after a pause", () => {
    const snapshot = buildSnapshot(supplyOf([offering("a"), offering("b")]));
    const health = new HealthTracker(snapshot, () => 0);
    for (const id of ["a", "b"]) many(health, id, 50, { latencyMs: 50 });
    const firsts = (preference: Preference, now: number): Set<string> => {
      const plans = Array.from({ length: 40 }, (_, seed) =>
        planFor({
          ...planArgs(supplyOf([])),
          snapshot,
          health: health.view,
          seed,
          now,
          arrivedAt: now,
          intent: intent({ preference }),
        }),
      );
      return new Set(plans.map((plan) => plan.steps[0]!.offering.id));
    };
    expect(firsts(Preference.BALANCED, 1000)).toEqual(new Set(["a", "b"]));
    many(health, "a", 4, { latencyMs: 500, at: 2000 });
    expect(firsts(Preference.BALANCED, 2000)).toEqual(new Set(["b"]));
    expect(firsts(Preference.FASTEST, 2000)).toEqual(new Set(["b"]));
    atOnce(health.age(12_000));
    expect(firsts(Preference.BALANCED, 12_000)).toEqual(new Set(["a", "b"]));
  });
});

describe("the gateway's own health checks", () => {
  const resting = (health: HealthTracker, id: string, at = 1000): void =>
    many(health, id, 5, { outcome: AttemptFailure.UNREACHABLE, at });

  test("are due when the cooldown ends, once, and count in no figure", () => {
    const health = board(offering("a"), offering("b"));
    resting(health, "a");
    const due = (now: number): string[] => [...health.due(now)].map(({ id }) => id);
    expect([due(10_999), due(11_000)]).toEqual([[], ["a"]]);
    expect(health.beginProbe("b", 11_000, 500)).toBe(false);
    expect(health.beginProbe("a", 11_000, 500)).toBe(true);
    expect([due(11_100), health.beginProbe("a", 11_100, 500), health.admit("a", 11_100, 500)]).toEqual([
      [],
      false,
      false,
    ]);
    health.endProbe("a", "succeeded", 11_200);
    expect(health.beginProbe("a", 11_200, 500)).toBe(true);
    const before = health.figureOf("a", 11_200);
    health.endProbe("a", "succeeded", 11_300);
    expect(health.figureOf("a", 11_300)).toMatchObject({
      failureRate: before?.failureRate,
      breaker: { state: "closed" },
    });
    expect([due(20_000), [...health.resting()]]).toEqual([[], []]);
  });

  test("that succeed while calls fail are ignored until one fails, too", () => {
    const health = board(offering("a"));
    const answered = (verdict: "succeeded" | "failed", at: number): string | undefined => {
      for (let i = 0; i < 2; i++) if (health.beginProbe("a", at + i, 500)) health.endProbe("a", verdict, at + i);
      return health.figureOf("a", at)?.breaker.state;
    };
    resting(health, "a");
    expect(answered("succeeded", 2000)).toBe("closed");
    many(health, "a", 1, { outcome: AttemptFailure.TIMEOUT, at: 3000 });
    expect(answered("succeeded", 4000)).toBe("open");
    // Rested: the next caller finds out.
    expect(answered("succeeded", 30_000)).toBe("half_open");
    expect(health.admit("a", 30_100, 500)).toBe(true);
    many(health, "a", 1, { outcome: AttemptFailure.TIMEOUT, at: 30_200 });
    expect([answered("failed", 40_000), answered("succeeded", 41_000)]).toEqual(["open", "closed"]);
  });

  test("without a result leave the probe slot to callers, and are repeated later", () => {
    const health = board(offering("a"));
    resting(health, "a");
    health.beginProbe("a", 11_000, 500);
    health.endProbe("a", "released", 11_100);
    expect([...health.due(12_200)]).toEqual([]);
    expect([...health.due(21_000)]).toHaveLength(1);
    expect(health.admit("a", 12_200, 500)).toBe(true);
    expect(health.beginProbe("a", 12_300, 500)).toBe(false);
  });

  test("are due once a second for act offerings with an open breaker, while none is running", () => {
    const health = board(
      offering("a"),
      offering("b", { model: "acme/other" }),
      offering("c", { contracts: [Contract.PREDICT] }),
    );
    const wanted: string[] = [];
    health.onWanted = ({ id }) => void wanted.push(id);
    health.want("a", 900);
    for (const id of ["a", "b", "c"]) resting(health, id);
    health.want("a", 2000);
    health.want("c", 2000);
    health.wantModel("acme/other", 2000);
    expect(wanted.splice(0)).toEqual(["a", "b"]);
    health.beginProbe("a", 2000, 500);
    health.want("a", 3100);
    health.endProbe("a", "failed", 3200);
    health.want("a", 2900);
    expect(wanted).toEqual([]);
    health.want("a", 3200);
    expect(wanted).toEqual(["a"]);
  });
});
