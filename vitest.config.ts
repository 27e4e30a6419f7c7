import { defineConfig } from "vitest/config";
import { NAMES_ITS_PIECES } from "./test/support/named-pieces.ts";

/** Tests that start and kill gateways: what one leaves behind when it fails must not meet the next. */
const ALONE = ["test/chaos/**/*.test.ts", "test/hostile/**/*.test.ts", "test/start/**/*.test.ts"];
/** A run without the fast layer leaves out what would be the same. */
const REPEATED = process.env.LIMBER_FAST === "off" ? NAMES_ITS_PIECES : [];

export default defineConfig({
  test: {
    globalSetup: ["test/support/postgres-setup.ts"],
    // These end what hangs, on a machine that has ten times as much to do as well; how soon a thing is done is for benchmarks to say.
    testTimeout: 120_000,
    hookTimeout: 180_000,
    // Of a fact that comes about by itself.
    expect: { poll: { timeout: 60_000 } },
    pool: "forks",
    maxWorkers: 2,
    projects: [
      { test: { name: "alone", include: ALONE } },
      // Half of what a file costs is to load the house: these share two processes, one file after the other.
      { test: { name: "together", include: ["test/**/*.test.ts"], exclude: [...ALONE, ...REPEATED], isolate: false } },
    ],
  },
});
