import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    exclude: ["test/bench/**"],
    globalSetup: ["test/support/postgres-setup.ts"],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // Of a fact that comes about by itself; how soon it does is for benchmarks to say.
    expect: { poll: { timeout: 10_000 } },
    pool: "forks",
    maxWorkers: 2,
  },
});
