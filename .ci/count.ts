/** `node .ci/count.ts PYTEST-OUTPUT REPORT…`: how many tests passed and failed, in one line, behind the names of those that passed only alone. */
import { readFileSync } from "node:fs";
import { failuresOf, readReport } from "./report.ts";

const [python, ...reports] = process.argv.slice(2);
const last = readFileSync(python!, "utf8").trimEnd().split("\n").at(-1) ?? "";
const counted = (word: string): number => Number(new RegExp(`(\\d+) ${word}`).exec(last)?.[1] ?? 0);
let passed = counted("passed");
let failed = counted("failed") + counted("error");
for (const report of reports.map(readReport)) {
  passed += report.numPassedTests;
  failed += failuresOf(report);
  for (const name of report.passedAlone ?? []) console.log(`depends on pace, passed alone: ${name}`);
}
console.log(`${passed} passed, ${failed} failed`);
