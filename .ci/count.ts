/** `node .ci/count.ts REPORT…`: the failed tests of Vitest's JSON reports, each with the first line of its error, then how many passed and failed. */
import { readFileSync } from "node:fs";
import { relative } from "node:path";

interface Report {
  readonly numPassedTests: number;
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly message?: string;
    readonly assertionResults: readonly {
      readonly fullName: string;
      readonly status: string;
      readonly failureMessages?: readonly string[];
    }[];
  }[];
}

const firstLine = (text = ""): string => text.split("\n")[0] ?? "";

let passed = 0;
const failures: string[] = [];
for (const path of process.argv.slice(2)) {
  const report = JSON.parse(readFileSync(path, "utf8")) as Report;
  passed += report.numPassedTests;
  for (const { name, status, message, assertionResults } of report.testResults) {
    const failed = assertionResults.filter(({ status }) => status === "failed");
    for (const { fullName, failureMessages } of failed)
      failures.push(`${relative(process.cwd(), name)}: ${fullName}: ${firstLine(failureMessages?.[0])}`);
    // A file whose hooks or imports failed has no failed test.
    if (status === "failed" && failed.length === 0)
      failures.push(`${relative(process.cwd(), name)}: ${firstLine(message)}`);
  }
}
for (const failure of failures) console.log(`failed: ${failure}`);
console.log(`${passed} passed, ${failures.length} failed`);
