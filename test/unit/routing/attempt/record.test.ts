import { describe, expect, test } from "vitest";
import { AttemptStatus, PinOutcome } from "../../../../gen/limber/v1/route_pb.ts";
import { AttemptFailure } from "../../../../src/contracts/contract.ts";
import { Reason } from "../../../../src/errors.ts";
import { directRouteOf, refusalOfTries, routeOf, type Try } from "../../../../src/routing/attempt/record.ts";
import { type PlanStep, planFor } from "../../../../src/routing/plan/plan.ts";
import { offering, planArgs, prefer, supplyOf } from "../../../support/supply.ts";

const { steps } = planFor(
  planArgs(supplyOf([offering("a"), offering("b", { region: "us" })]), {
    intent: { provider: prefer({ order: ["a", "b"] }) },
  }),
);
const [first, second] = steps as [PlanStep, PlanStep];
const tried = (step: PlanStep, status: Try["status"], reason?: AttemptFailure): Try => ({
  step,
  startedAt: 0,
  status,
  latencyMs: 12.34567,
  reason,
});

describe("routeOf", () => {
  test("tells who served, and lists every try with its time and reason", () => {
    const tries = [tried(first, "error", AttemptFailure.TIMEOUT), tried(second, "ok")];
    const route = routeOf({ tries, step: second, hedgeMicro: undefined }, PinOutcome.MOVED);
    expect(route).toMatchObject({
      model: "acme/arm",
      provider: "b",
      offeringId: "b",
      region: "us",
      precision: "bf16",
      fallbackUsed: true,
      simulated: false,
      pin: PinOutcome.MOVED,
    });
    expect(route.hedgeCostUsd).toBeUndefined();
    expect(route.attempts.map((each) => [each.provider, each.status, each.reason, each.latencyMs])).toEqual([
      ["a", AttemptStatus.ERROR, AttemptFailure.TIMEOUT, 12.346],
      ["b", AttemptStatus.OK, undefined, 12.346],
    ]);
  });

  test("a first entry that won against its hedge is no fallback, and the hedge's cost is told", () => {
    const tries = [tried(first, "ok"), tried(second, "cancelled")];
    expect(routeOf({ tries, step: first, hedgeMicro: 1600 })).toMatchObject({
      fallbackUsed: false,
      hedgeCostUsd: 0.0016,
    });
  });

  test("a second entry is a fallback even when the first was never tried", () => {
    expect(routeOf({ tries: [tried(second, "ok")], step: second, hedgeMicro: undefined }).fallbackUsed).toBe(true);
  });

  test("a hedge that cost nothing is told as zero, for it was sent", () => {
    expect(routeOf({ tries: [], step: first, hedgeMicro: 0 }).hedgeCostUsd).toBe(0);
  });
});

test("a direct route lists no attempts", () => {
  expect(directRouteOf(first)).toMatchObject({ model: "acme/arm", provider: "a", offeringId: "a", simulated: false });
  expect(Object.keys(directRouteOf(first))).not.toContain("attempts");
});

test("a refusal says which provider failed how, and carries the route", () => {
  const refusal = refusalOfTries([tried(first, "error", AttemptFailure.NON_FINITE_ACTION)], false);
  expect(refusal.reason).toBe(Reason.ALL_ATTEMPTS_FAILED);
  expect(refusal.message).toContain("a non finite action");
  expect(refusal.route?.attempts).toHaveLength(1);
});
