import fc from "fast-check";
import { expect, test } from "vitest";
import { Contract } from "../../../../src/contracts/contract.ts";
import { explain } from "../../../../src/routing/plan/explain.ts";
import { MOST_STEPS, planFor } from "../../../../src/routing/plan/plan.ts";
import { Shortlist } from "../../../../src/routing/plan/rank.ts";
import { offering, planArgs, supplyOf } from "../../../support/supply.ts";

test("a shortlist contains what a full sort would put first, by group, score and row", () => {
  const entries = fc.array(
    fc.record({ group: fc.integer({ min: 0, max: 2 }), score: fc.integer({ min: 0, max: 9 }) }),
    { maxLength: 60 },
  );
  fc.assert(
    fc.property(entries, fc.integer({ min: 1, max: 20 }), (given, size) => {
      const list = new Shortlist(size);
      const rows = Uint32Array.from(given.keys());
      const scores = Float64Array.from(given, (each) => each.score);
      list.offerGrouped(rows, scores, given.length, (row) => given[row]!.group);
      const sorted = given
        .map((each, row) => ({ ...each, row }))
        .sort((a, b) => a.group - b.group || a.score - b.score || a.row - b.row);
      expect([...list.rows.subarray(0, list.count)]).toEqual(sorted.slice(0, size).map((each) => each.row));
    }),
  );
});

test("rows of consecutive groups are ranked as if each row had its own group", () => {
  const target = fc.array(fc.tuple(fc.integer({ min: 0, max: 30 }), fc.integer({ min: 0, max: 9 })), { maxLength: 40 });
  fc.assert(
    fc.property(fc.array(target, { maxLength: 4 }), fc.integer({ min: 1, max: 20 }), (targets, size) => {
      const [together, alone] = [new Shortlist(size), new Shortlist(size)];
      for (const [group, given] of targets.entries()) {
        const scoreOf = new Map(given);
        const rows = Uint32Array.from([...scoreOf.keys()].sort((a, b) => a - b));
        const scores = Float64Array.from(rows, (row) => scoreOf.get(row) || Number.POSITIVE_INFINITY);
        together.offer(rows, scores, rows.length, group);
        alone.offerGrouped(rows, scores, rows.length, () => group);
      }
      const held = (list: Shortlist) => [list.count, list.rows.slice(0, list.count), list.scores.slice(0, list.count)];
      expect(held(together)).toEqual(held(alone));
    }),
  );
});

test("a plan contains the sixteen best of a hundred offerings, and a preview ranks them all", () => {
  const hundred = Array.from({ length: 100 }, (_, i) =>
    offering(`off_${String(i).padStart(2, "0")}`, { priceNano: { [Contract.ACT]: ((i * 37) % 100) * 10_000 } }),
  );
  const cheapestFirst = hundred
    .toSorted((a, b) => a.priceNano[Contract.ACT]! - b.priceNano[Contract.ACT]!)
    .map((each) => each.id);
  const args = planArgs(supplyOf(hundred), { intent: { model: "acme/arm:floor" } });
  expect(planFor(args).steps.map((step) => step.offering.id)).toEqual(cheapestFirst.slice(0, MOST_STEPS));
  expect(explain(args).plan.map((step) => step.offeringId)).toEqual(cheapestFirst);
});

test("measured success decides the quality order before precision, in the requested action space and the alias's task alone", () => {
  const measured = (id: string, scenario: string, task: string, low: number) =>
    offering(id, {
      ...{ precision: "int8", domain: "embodied", family: "manipulation" },
      measured: [
        { publicationId: `pub_${id}`, scenario, actionSpace: "ee_delta_6d_grip", task, successes: 1, episodes: 2, low },
      ],
    });
  const all = [
    measured("off_a", "maze", "navigation", 0.9),
    measured("off_b", "stack", "manipulation", 0.02),
    measured("off_c", "stack", "manipulation", 0),
    offering("off_d", { precision: "fp64", family: "manipulation" }),
  ];
  const order = (model: string, actionSpace = "ee_delta_6d_grip") =>
    planFor(planArgs(supplyOf(all), { intent: { model, actionSpace } })).steps.map((step) => step.offering.id);
  expect(order("acme/arm:quality")).toEqual(["off_a", "off_b", "off_d", "off_c"]);
  expect(order("service/auto:manipulation:quality")).toEqual(["off_b", "off_d", "off_a", "off_c"]);
});
