import { describe, expect, test } from "vitest";
import { HedgeBudget, HedgeBudgets } from "../../../../src/routing/attempt/hedge.ts";

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

describe("a share of one organisation", () => {
  const spendAll = (hedges: { spend(): boolean }): number => {
    let spent = 0;
    while (hedges.spend()) spent++;
    return spent;
  };

  test("of nothing sends no hedge, whatever was earned", () => {
    const hedges = new HedgeBudgets().of("org_1", 0);
    for (let i = 0; i < 1000; i++) hedges.earn();
    expect(spendAll(hedges)).toBe(0);
  });

  test("holds beside the replica's own: a hedge needs both", () => {
    const budgets = new HedgeBudgets();
    const [usual, small, large] = [budgets.of("org_1", 0.05), budgets.of("org_2", 0.01), budgets.of("org_3", 1)];
    expect(spendAll(small)).toBe(4);
    expect(spendAll(usual)).toBe(16);
    expect(spendAll(large)).toBe(0);
    for (let i = 0; i < 100; i++) small.earn();
    expect(spendAll(small)).toBe(1);
  });

  test("is remembered while it stays the same", () => {
    const budgets = new HedgeBudgets();
    expect(budgets.of("org_1", 0.01)).toBe(budgets.of("org_1", 0.01));
    expect(spendAll(budgets.of("org_1", 0.01))).toBe(4);
    expect(spendAll(budgets.of("org_1", 0.02))).toBe(8);
  });
});
