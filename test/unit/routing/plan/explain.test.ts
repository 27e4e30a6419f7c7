import { create, toJson } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { PreviewRoutesResponseSchema } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { ExpectedLatencySchema } from "../../../../gen/limber/v1/plan_pb.ts";
import { Contract } from "../../../../src/contracts/contract.ts";
import { Reason, Refusal } from "../../../../src/errors.ts";
import { explain } from "../../../../src/routing/plan/explain.ts";
import { planFor } from "../../../../src/routing/plan/plan.ts";
import { offering, planArgs, prefer, supplyOf } from "../../../support/supply.ts";

const supply = supplyOf([
  offering("a"),
  offering("cold", { priceNano: { [Contract.ACT]: 20_000 }, scaledownS: 300, costNanoPerSecond: 100_000 }),
  offering("far", { region: "mars" }),
]);

describe("a plan preview", () => {
  const answer = explain(
    planArgs(supply, { intent: { provider: prefer({ region: ["eu"], objective: { price: 1 } }) } }),
  );

  test("shows every step with its current price", () => {
    expect(answer.plan.map((step) => [step.rank, step.offeringId])).toEqual([
      [1, "a"],
      [2, "cold"],
    ]);
    expect(answer.plan[1]).toMatchObject({
      priceUnitUsd: 0.00002,
      priceNowUsd: 0.000395,
      estimatedCostUsd: 0.00632,
      wakeUpUsd: 0.006,
      cold: true,
      reasonCodes: ["objective", "cold"],
    });
    expect(answer.plan[0]?.expectedMs).toMatchObject({ p50: 50, p95: 100 });
  });

  test("shows the dropped offerings and the maximum cost of the call", () => {
    expect(answer.dropped.map((each) => [each.offeringId, each.detail, each.stage])).toEqual([
      ["far", "runs in mars", "remove"],
    ]);
    expect(answer.considered).toBe(3);
    expect(answer.estimatedCostUsd).toMatchObject({ min: 0.0016, expected: 0.0016, max: 0.00632 });
    expect(answer.wouldRefuse).toBeUndefined();
  });

  test("lists the steps in the order of attempts", () => {
    const args = planArgs(supply, { seed: 3 });
    expect(explain(args).plan.map((step) => step.offeringId)).toEqual(
      planFor(args).steps.map((step) => step.offering.id),
    );
  });
});

test("a preview of a request without a route returns the code, and does not throw", () => {
  const answer = explain(planArgs(supply, { intent: { provider: prefer({ region: ["moon"] }) } }));
  expect(answer.wouldRefuse?.code).toBe("no_route_available");
  expect(answer.plan).toEqual([]);
  expect(answer.dropped).toHaveLength(3);
});

test("a preview of an invalid request is refused", () => {
  expect(() => explain(planArgs(supply, { intent: { model: "no/body" } }))).toThrow(Refusal);
  try {
    explain(planArgs(supply, { intent: { model: "no/body" } }));
  } catch (thrown) {
    expect((thrown as Refusal).reason).toBe(Reason.MODEL_NOT_FOUND);
  }
});

test("a preview names the hedge's step", () => {
  const pair = supplyOf([offering("a"), offering("b")]);
  const { plan } = explain(planArgs(pair, { intent: { provider: prefer({ order: ["a"], hedge: { afterMs: 5 } }) } }));
  expect(plan[1]?.reasonCodes).toContain("hedge");
});

test("a preview with unknown times and infinite scores is valid JSON", () => {
  const none = { p50Ms: undefined, p95Ms: undefined, unitsPerS: undefined, uptime30d: undefined };
  const answer = explain(
    planArgs(supplyOf([offering("a", { advertised: none })]), { intent: { model: "acme/arm:turbo" } }),
  );
  const json = JSON.stringify(toJson(PreviewRoutesResponseSchema, answer));
  expect(json).not.toMatch(/Infinity|NaN|null/);
  expect(answer.plan[0]?.expectedMs).toEqual(create(ExpectedLatencySchema));
});

test("a preview of a request for a whole chunk is priced by it, and drops no offering for fewer steps", () => {
  const supply = supplyOf([
    offering("a", { chunk: 10, maxHorizon: 10 }),
    offering("b"),
    offering("c", { chunk: 50, maxHorizon: 50 }),
  ]);
  const costs = (extent: "wish" | "chunk" | undefined, units: number) => {
    const { plan, dropped } = explain(
      planArgs(supply, { intent: { extent, units, provider: prefer({ order: ["a", "b", "c"] }) } }),
    );
    return [
      plan.map(({ provider, estimatedCostUsd }) => [provider, estimatedCostUsd]),
      dropped.map(({ provider }) => provider),
    ];
  };
  expect(costs(undefined, 16)).toEqual([
    [
      ["b", 0.0016],
      ["c", 0.0016],
    ],
    ["a"],
  ]);
  expect(costs("wish", 16)).toEqual([
    [
      ["a", 0.001],
      ["b", 0.0016],
      ["c", 0.0016],
    ],
    [],
  ]);
  expect(costs("chunk", 256)).toEqual([
    [
      ["a", 0.001],
      ["b", 0.0016],
      ["c", 0.005],
    ],
    [],
  ]);
});
