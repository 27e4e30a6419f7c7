import fc from "fast-check";
import { expect, test } from "vitest";
import { Contract } from "../../../src/contracts/contract.ts";
import { explain } from "../../../src/routing/explain.ts";
import { MOST_STEPS, planFor } from "../../../src/routing/plan.ts";
import { Shortlist } from "../../../src/routing/rank.ts";
import { offering, planArgs, supplyOf } from "../../support/supply.ts";

test("a shortlist holds what a sort would put first, by group, score and row", () => {
  const entries = fc.array(
    fc.record({ group: fc.integer({ min: 0, max: 2 }), score: fc.integer({ min: 0, max: 9 }) }),
    { maxLength: 60 },
  );
  fc.assert(
    fc.property(entries, fc.integer({ min: 1, max: 20 }), (given, size) => {
      const list = new Shortlist(size);
      const rows = Uint32Array.from(given.keys());
      const scores = Float64Array.from(given, (each) => each.score);
      list.offer(rows, scores, given.length, 0, (row) => given[row]!.group);
      const sorted = given
        .map((each, row) => ({ ...each, row }))
        .sort((a, b) => a.group - b.group || a.score - b.score || a.row - b.row);
      expect([...list.rows.subarray(0, list.count)]).toEqual(sorted.slice(0, size).map((each) => each.row));
    }),
  );
});

test("of a hundred offerings the sixteen best are planned, and a preview ranks them all", () => {
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
