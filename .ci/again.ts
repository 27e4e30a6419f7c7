/**
 * `node .ci/again.ts REPORT OUTPUT`: runs the files that failed once more, one after the other with nothing beside them, and writes what became of
 * them into the report. A test that depends on the pace of a busy machine is a fault, and it is named in the last lines of the run; it is
 * told apart here from one that fails by itself, which ends with 1. More than a few files that fail are no matter of pace, and
 * an error that no test heard is in no report and is no file's: where the output tells of one, the run has failed.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { failuresOf, readReport } from "./report.ts";

const MOST_FILES = 3;

const [path, output] = process.argv.slice(2);
const report = readReport(path!);
const failed = report.testResults.filter(({ status }) => status === "failed");
if (readFileSync(output!, "utf8").includes("Unhandled Errors")) process.exit(1);
if (failed.length === 0 || failed.length > MOST_FILES) process.exit(1);

const second = join(mkdtempSync(join(tmpdir(), "again-")), "report.json");
const files = failed.map(({ name }) => relative(process.cwd(), name));
console.log(`once more, alone: ${files.join(", ")}`);
spawnSync(
  process.execPath,
  [
    "node_modules/vitest/vitest.mjs",
    "run",
    "--no-file-parallelism",
    "--reporter=default",
    "--reporter=json",
    `--outputFile.json=${second}`,
    ...files,
  ],
  { stdio: "inherit" },
);
const again = readReport(second);
if (failuresOf(again) > 0 || again.testResults.length < failed.length) process.exit(1);

const names = failed.flatMap(({ name, assertionResults }) => {
  const tests = assertionResults.filter(({ status }) => status === "failed").map(({ fullName }) => fullName);
  return (tests.length > 0 ? tests : ["the file"]).map((test) => `${relative(process.cwd(), name)}: ${test}`);
});
const passedBefore = failed
  .flatMap(({ assertionResults }) => assertionResults)
  .filter(({ status }) => status === "passed");
report.numPassedTests += again.numPassedTests - passedBefore.length;
report.numFailedTests = 0;
report.testResults = [...report.testResults.filter(({ status }) => status !== "failed"), ...again.testResults];
report.passedAlone = names;
writeFileSync(path!, JSON.stringify(report));
