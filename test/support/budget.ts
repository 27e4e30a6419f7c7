/**
 * A reporter that names flaky tests, adds up what a run costs in CPU-seconds and compares it with `test/budget.json`. A calibration loop is timed in the same
 * run, so that a slow or busy machine does not look like a slower suite. `BUDGET=write` records the run, `BUDGET=hold` fails it beyond the budget.
 */
import { readFileSync, writeFileSync, writeSync } from "node:fs";
import { relative } from "node:path";
import type { Reporter, TestModule } from "vitest/node";
import { type ProjectBudget, readBudget, recordOf, suiteOf } from "./budget-file.ts";
import { childSeconds, ownSeconds } from "./cpu.ts";

/** CPU-seconds that the calibration loop takes on the machine for which budgets are written, when nothing else runs. */
const CALIBRATION_S = 0.25;
/** The loop runs before and after a run, and after every so many files: a machine's speed changes during a run. */
const FILES_PER_CALIBRATION = 20;
/** A run may cost this many times its budget before `BUDGET=hold` fails it. */
const TOLERANCE = 1.5;
/** A file of the fast suite may cost this many CPU-seconds, unless the budget file lists it as large. */
const MOST_OF_A_FILE_S = 4;

/** Prints the tests that passed only when they were run again. */
function printFlaky(modules: readonly TestModule[]): void {
  for (const module of modules)
    for (const test of module.children.allTests())
      if (test.diagnostic()?.flaky)
        print([`flaky, passed when run again: ${relative(process.cwd(), module.moduleId)}: ${test.fullName}`]);
}

/** What a run has cost: by file, in CPU-seconds of the reference machine. */
type Costs = Readonly<Record<string, number>>;

// biome-ignore lint/style/noDefaultExport: Vitest loads a reporter by its default export.
export default class BudgetReporter implements Reporter {
  readonly #calibrations = [calibrate()];
  #files = 0;

  onTestModuleEnd(): void {
    this.#files++;
    if (this.#files % FILES_PER_CALIBRATION === 0) this.#calibrations.push(calibrate());
  }

  onTestRunEnd(modules: readonly TestModule[]): void {
    printFlaky(modules);
    this.#calibrations.push(calibrate());
    const scale = CALIBRATION_S / median(this.#calibrations);
    const suites = Map.groupBy(modules, ({ project }) => suiteOf(project.name));
    // PostgreSQL and the workers count once they have exited, which is after this.
    process.once("exit", () => {
      const totalS = (ownSeconds() + childSeconds()) * scale;
      for (const [name, files] of suites)
        report(name, costsOf(files, scale), suites.size === 1 ? totalS : undefined, scale);
    });
  }
}

const costsOf = (modules: readonly TestModule[], scale: number): Costs =>
  Object.fromEntries(
    modules.map((module) => [
      relative(process.cwd(), module.moduleId),
      Math.round((module.meta().cpuS ?? 0) * scale * 100) / 100,
    ]),
  );

function report(project: string, costs: Costs, totalS: number | undefined, scale: number): void {
  const budget: ProjectBudget | undefined = readBudget()[project];
  const files = Object.entries(costs).sort(([, a], [, b]) => b - a);
  const sum = totalS ?? files.reduce((total, [, each]) => total + each, 0);
  const lines = files.slice(0, 10).map(([file, cost]) => {
    const before = budget?.files[file];
    return `  ${cost.toFixed(1).padStart(6)}  ${before === undefined ? "   new" : signed(cost - before)}  ${file}`;
  });
  const limit = budget === undefined ? "" : ` of ${budget.totalS}`;
  print([
    `${project}: ${sum.toFixed(0)}${limit} CPU-seconds (machine ${(1 / scale).toFixed(2)} times the reference); the most expensive files and their change:`,
    ...lines,
  ]);
  if (process.env.BUDGET === "write")
    writeFileSync("test/budget.json", recordOf(project, costs, readFileSync("test/budget.json", "utf8")));
  if (process.env.BUDGET !== "hold" || budget === undefined) return;
  const large =
    project === "fast" ? files.filter(([file, cost]) => cost > MOST_OF_A_FILE_S && !budget.large.includes(file)) : [];
  for (const [file, cost] of large)
    print([`over budget: ${file} cost ${cost} CPU-seconds, ${MOST_OF_A_FILE_S} allowed`]);
  if (sum > TOLERANCE * budget.totalS)
    print([`over budget: ${project} cost ${sum.toFixed(0)} CPU-seconds, ${TOLERANCE * budget.totalS} allowed`]);
  if (large.length > 0 || sum > TOLERANCE * budget.totalS) process.exitCode = 1;
}

const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[values.length >> 1]!;

const signed = (change: number): string => `${change < 0 ? "" : "+"}${change.toFixed(1)}`.padStart(6);

const print = (lines: readonly string[]): void => void writeSync(1, `${lines.join("\n")}\n`);

/** Times a fixed piece of work of the kind that tests do, in CPU-seconds of this thread: the others transform files meanwhile. */
function calibrate(): number {
  const began = process.threadCpuUsage();
  const value = Array.from({ length: 2_000 }, (_, i) => ({
    id: `item_${i}`,
    steps: [i / 3, i / 7],
    name: "a".repeat(i % 40),
  }));
  for (let round = 0; round < 120; round++) JSON.parse(JSON.stringify(value));
  const { user, system } = process.threadCpuUsage(began);
  return (user + system) / 1e6;
}
