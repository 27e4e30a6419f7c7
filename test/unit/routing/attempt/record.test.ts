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
  test("names the serving provider, and lists every attempt with its time and reason", () => {
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

  test("reports no fallback for a first entry that won against its hedge, and the hedge's cost", () => {
    const tries = [tried(first, "ok"), tried(second, "cancelled")];
    expect(routeOf({ tries, step: first, hedgeMicro: 1600 })).toMatchObject({
      fallbackUsed: false,
      hedgeCostUsd: 0.0016,
    });
  });

  test("reports a fallback for a second entry even if the first was never called", () => {
    expect(routeOf({ tries: [tried(second, "ok")], step: second, hedgeMicro: undefined }).fallbackUsed).toBe(true);
  });

  test("reports zero for a free hedge, because it was sent", () => {
    expect(routeOf({ tries: [], step: first, hedgeMicro: 0 }).hedgeCostUsd).toBe(0);
  });
});

test("lists no attempts for a direct route", () => {
  expect(directRouteOf(first)).toMatchObject({ model: "acme/arm", provider: "a", offeringId: "a", simulated: false });
  expect(Object.keys(directRouteOf(first))).not.toContain("attempts");
});

test("of a refusal names each failed provider and reason, and carries the route", () => {
  const refusal = refusalOfTries([tried(first, "error", AttemptFailure.NON_FINITE_ACTION)], false);
  expect(refusal.reason).toBe(Reason.ALL_ATTEMPTS_FAILED);
  expect(refusal.message).toContain("a non finite action");
  expect(refusal.route?.attempts).toHaveLength(1);
});
