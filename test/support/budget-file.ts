/** `test/budget.json`: what the suites may cost and what their files cost when they were last recorded, in CPU-seconds of the reference machine. */
import { readFileSync } from "node:fs";

/** The budget of one suite. */
export interface ProjectBudget {
  /** What a run may cost. */
  readonly totalS: number;
  /** Files that may cost more than others; each has its reason in `test/README.md`. */
  readonly large: readonly string[];
  /** What each file cost. */
  readonly files: Readonly<Record<string, number>>;
}

type Budget = Readonly<Record<string, ProjectBudget>>;

/** The suite that a project of `vitest.config.ts` belongs to: `slow-memory` is part of `slow`. */
export const suiteOf = (project: string): string => project.split("-")[0]!;

/** Reads the file. */
export const readBudget = (): Budget => JSON.parse(readFileSync("test/budget.json", "utf8")) as Budget;

/** Returns the file's new text: `text` with these costs of a suite's files. */
export function recordOf(suite: string, costs: Readonly<Record<string, number>>, text: string): string {
  const budget = JSON.parse(text) as Record<string, ProjectBudget>;
  const sorted = Object.entries(costs).sort(([a], [b]) => (a < b ? -1 : 1));
  const files = Object.fromEntries(sorted.map(([file, cost]) => [file, Math.round(cost * 10) / 10]));
  budget[suite] = { totalS: budget[suite]?.totalS ?? 0, large: budget[suite]?.large ?? [], files };
  return `${JSON.stringify(budget, null, 2)}\n`;
}
