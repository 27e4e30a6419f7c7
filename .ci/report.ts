/** What Vitest writes of a run with its reporter `json`. */
import { readFileSync } from "node:fs";

/** One file of tests; a file that broke before its first test has no results. */
export interface FileResult {
  readonly name: string;
  readonly status: "passed" | "failed";
  readonly assertionResults: readonly { readonly fullName: string; readonly status: string }[];
}

/** A whole run. */
export interface Report {
  numPassedTests: number;
  numFailedTests: number;
  testResults: FileResult[];
  /** Tests that failed beside the others, and passed when their file was run again alone. */
  passedAlone?: string[];
}

export const readReport = (path: string): Report => JSON.parse(readFileSync(path, "utf8"));

/** How many failed of it; a file that broke counts as one. */
export const failuresOf = ({ numFailedTests, testResults }: Report): number =>
  numFailedTests + testResults.filter(isBroken).length;

const isBroken = ({ status, assertionResults }: FileResult): boolean =>
  status === "failed" && assertionResults.length === 0;
