import { defineConfig } from "vitest/config";
import { MostExpensiveFirst } from "./test/support/sequencer.ts";

/** What `npm test` runs: no processes, no browser, no physics. */
const FAST = [
  "test/*.test.ts",
  "test/{api,clients,edge,events,plans,sidecar,store,story,unit,upstream,wires,world}/**/*.test.ts",
];
/** CI runs a failed test of processes, browsers or the heap once more and prints its name. A fast test has one try. */
const AGAIN = process.env.CI === undefined ? 0 : 1;
const MEMORY = ["test/slow/memory/*.test.ts"];

export default defineConfig({
  test: {
    globalSetup: ["test/support/postgres-setup.ts"],
    setupFiles: ["test/support/setup.ts"],
    // These limits only end tests that hang. A busy machine may take ten times as long as a quiet one.
    testTimeout: 120_000,
    hookTimeout: 180_000,
    expect: { poll: { timeout: 60_000 } },
    pool: "forks",
    maxWorkers: 2,
    // A shuffled run has an order of its own.
    ...(!process.argv.some((arg) => arg.startsWith("--sequence.shuffle")) && {
      sequence: { sequencer: MostExpensiveFirst },
    }),
    reporters: [
      process.env.CI === undefined ? "default" : "dot",
      "./test/support/budget.ts",
      ...(process.env.REPORT === undefined
        ? []
        : [["json", { outputFile: process.env.REPORT }] as [string, { outputFile: string }]]),
    ],
    projects: [
      // Loading the gateway's modules takes half of a file's time, so these files share a few processes, one file after the other in each.
      { extends: true, test: { name: "fast", include: FAST, isolate: false } },
      {
        extends: true,
        test: { name: "slow", include: ["test/slow/**/*.test.ts"], exclude: MEMORY, isolate: false, retry: AGAIN },
      },
      // What these measure is the heap, so each has a process of its own.
      { extends: true, test: { name: "slow-memory", include: MEMORY, retry: AGAIN } },
      { extends: true, test: { name: "nightly", include: ["test/nightly/**/*.test.ts"] } },
    ],
  },
});
