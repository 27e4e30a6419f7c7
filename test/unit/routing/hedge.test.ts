import { expect, test } from "vitest";
import { HedgeBudget } from "../../../src/routing/hedge.ts";

test("a burst of twenty, then one hedge for twenty calls", () => {
  const budget = new HedgeBudget();
  let spent = 0;
  while (budget.spend()) spent++;
  expect(spent).toBe(20);
  for (let i = 0; i < 21; i++) budget.earn();
  expect([budget.spend(), budget.spend()]).toEqual([true, false]);
});

test("calls without hedges do not save up for more than the burst", () => {
  const budget = new HedgeBudget();
  for (let i = 0; i < 10_000; i++) budget.earn();
  let spent = 0;
  while (budget.spend()) spent++;
  expect(spent).toBe(20);
});
