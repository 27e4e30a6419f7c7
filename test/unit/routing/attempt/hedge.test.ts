import { describe, expect, test } from "vitest";
import { HedgeBudget, HedgeBudgets } from "../../../../src/routing/attempt/record.ts";

test("hedges can burst to twenty, then one per twenty calls", () => {
  const budget = new HedgeBudget();
  let spent = 0;
  while (budget.spend()) spent++;
  expect(spent).toBe(20);
  for (let i = 0; i < 21; i++) budget.earn();
  expect([budget.spend(), budget.spend()]).toEqual([true, false]);
});

test("calls without hedges save up no more than the burst", () => {
  const budget = new HedgeBudget();
  for (let i = 0; i < 10_000; i++) budget.earn();
  let spent = 0;
  while (budget.spend()) spent++;
  expect(spent).toBe(20);
});

describe("an organization's hedge budget", () => {
  const spendAll = (hedges: { spend(): boolean }): number => {
    let spent = 0;
    while (hedges.spend()) spent++;
    return spent;
  };

  test("of zero sends no hedge, whatever was saved", () => {
    const hedges = new HedgeBudgets().of("org_1", 0);
    for (let i = 0; i < 1000; i++) hedges.earn();
    expect(spendAll(hedges)).toBe(0);
  });

  test("is not used up by another organization's hedges", () => {
    const budgets = new HedgeBudgets();
    const [usual, other, small] = [budgets.of("org_1", 0.05), budgets.of("org_2", 0.05), budgets.of("org_3", 0.01)];
    expect([spendAll(usual), spendAll(small), spendAll(other)]).toEqual([20, 4, 20]);
    for (let i = 0; i < 100; i++) small.earn();
    expect([spendAll(usual), spendAll(small)]).toEqual([0, 1]);
  });

  test("with a ratio of 1 lets every call be hedged", () => {
    const budget = new HedgeBudgets().of("org_1", 1);
    spendAll(budget);
    for (let call = 0; call < 50; call++) {
      budget.earn();
      expect(budget.spend()).toBe(true);
    }
  });

  test("is kept while it is unchanged", () => {
    const budgets = new HedgeBudgets();
    expect(budgets.of("org_1", 0.01)).toBe(budgets.of("org_1", 0.01));
    expect(spendAll(budgets.of("org_1", 0.01))).toBe(4);
    expect(spendAll(budgets.of("org_1", 0.02))).toBe(8);
  });
});
