/** The order of files: the most expensive first, by `test/budget.json`, so that two workers end at about the same time. */
import { relative } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import { readBudget, suiteOf } from "./budget-file.ts";

/** What a file is taken to cost that is not on record, in CPU-seconds. */
const UNKNOWN_S = 3;

/** Sorts files by their cost on record. */
export class MostExpensiveFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const budget = readBudget();
    const cost = ({ project, moduleId }: TestSpecification): number =>
      budget[suiteOf(project.name)]?.files[relative(process.cwd(), moduleId)] ?? UNKNOWN_S;
    return files.toSorted((a, b) => cost(b) - cost(a));
  }
}
