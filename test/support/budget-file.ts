/** `test/budget.json`: what the suites may cost and what their files cost when they were last recorded, in CPU-seconds of the reference machine. */
import { readFileSync } from "node:fs";

/** The budget of one project of `vitest.config.ts`. */
export interface ProjectBudget {
  /** What a run may cost. */
  readonly totalS: number;
  /** Files that may cost more than others; each has its reason in `test/README.md`. */
  readonly large: readonly string[];
  /** What each file cost. */
  readonly files: Readonly<Record<string, number>>;
}

type Budget = Readonly<Record<string, ProjectBudget>>;

/** Reads the file. */
export const readBudget = (): Budget => JSON.parse(readFileSync("test/budget.json", "utf8")) as Budget;

/** Returns the file's new text: `text` with these costs of a project's files. */
export function recordOf(project: string, costs: Readonly<Record<string, number>>, text: string): string {
  const budget = JSON.parse(text) as Record<string, ProjectBudget>;
  const sorted = Object.entries(costs).sort(([a], [b]) => (a < b ? -1 : 1));
  const files = Object.fromEntries(sorted.map(([file, cost]) => [file, Math.round(cost * 10) / 10]));
  budget[project] = { totalS: budget[project]?.totalS ?? 0, large: budget[project]?.large ?? [], files };
  return `${JSON.stringify(budget, null, 2)}\n`;
}
