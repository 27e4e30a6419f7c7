/** Small collections of what is young, when they are asked for; and what V8 is told at the start. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { breatheOut, collectYoung, isChosen, isCollectorBusy, isYoungMany } from "../../../src/fast/collector.ts";

/** Some megabytes of small objects that stay. */
const much = (): object[] => Array.from({ length: 50_000 }, (_, i) => ({ i, name: `n${i}` }));

test("much that was made a moment ago is young until it is collected, and stays", () => {
  // A young generation that is small yet would be collected before it is much.
  let kept = much();
  for (let i = 0; i < 20 && !isYoungMany(); i++) kept = [...kept, ...much()];
  expect(isYoungMany()).toBe(true);
  collectYoung();
  collectYoung(); // what is met twice is old
  expect(isYoungMany()).toBe(false);
  expect(kept.at(-1)).toEqual({ i: 49_999, name: "n49999" });
});

test("whoever breathes out leaves nothing much that is young", async () => {
  let kept = much();
  for (let i = 0; i < 20 && !isYoungMany(); i++) kept = [...kept, ...much()];
  expect(isYoungMany()).toBe(true);
  for (let i = 0; i < 3 && isYoungMany(); i++) await breatheOut();
  expect(isYoungMany()).toBe(false);
  expect(kept).not.toHaveLength(0);
});

test("what was asked for shows to nobody else, and the collector is not busy for ever", async () => {
  expect(globalThis.gc).toBeUndefined();
  for (let i = 0; i < 300 && isCollectorBusy(); i++) await new Promise((resolve) => setTimeout(resolve, 10));
  expect(isCollectorBusy()).toBe(false);
});

test.each([
  [[], false],
  [["--parallel-scavenge"], true],
  [["--trace-gc", "--no_parallel_scavenge"], true],
  [["--noparallel-scavenge"], true],
  [["--single-threaded-gc"], true],
  [["--parallel-scavenge-more", "--max-semi-space-size=16"], false],
])("of processes started with %j it is said whether they chose how small collections are done", (words, chosen) => {
  expect(isChosen("--no-parallel-scavenge", words)).toBe(chosen);
});

test.each([[[]], [["--parallel-scavenge", "--parallel-compaction"]], [["--single-threaded-gc"]]])(
  "V8 takes what it is told at run time, when it was started with %j: full and small collections go on",
  { timeout: 60_000 },
  async (words) => {
    const script = `
      import { PerformanceObserver } from "node:perf_hooks";
      import { collectYoung, tuneCollector } from ${JSON.stringify(join(import.meta.dirname, "../../../src/fast/collector.ts"))};
      tuneCollector();
      const kinds = new Set();
      new PerformanceObserver((list) => list.getEntries().forEach((entry) => kinds.add(entry.detail.kind))).observe({ entryTypes: ["gc"] });
      const kept = [];
      for (let i = 0; i < 3000 && kinds.size < 3; i++) {
        kept[i % 300] = Array.from({ length: 2000 }, (_, n) => ({ n, text: "n" + n }));
        if (i % 10 > 0) continue;
        collectYoung();
        await new Promise(setImmediate);
      }
      console.log(kept.length, [...kinds].sort().join());`;
    const { stdout } = await promisify(execFile)(process.execPath, [...words, "--input-type=module", "-e", script]);
    expect(stdout.trim()).toMatch(/^\d+ 1,4,8$/); // small, full, and the steps on the way to a full one
  },
);

test("that the collector began with the old is known in the turn of the event loop in which it began, before Node tells of it", {
  timeout: 60_000,
}, async () => {
  const script = `
    import { constants, PerformanceObserver } from "node:perf_hooks";
    import { isCollectorBusy, tuneCollector } from ${JSON.stringify(join(import.meta.dirname, "../../../src/fast/collector.ts"))};
    tuneCollector();
    let told = 0;
    new PerformanceObserver((list) => {
      for (const { detail } of list.getEntries()) if (detail.kind === constants.NODE_PERFORMANCE_GC_INCREMENTAL) told++;
    }).observe({ entryTypes: ["gc"] });
    isCollectorBusy();
    const kept = [];
    let [begun, late, wasBusy] = [0, 0, false];
    for (let i = 0; i < 30_000 && begun < 1; i++) {
      kept[i % 3000] = Array.from({ length: 200 }, (_, n) => ({ n, text: "n" + n }));
      await new Promise(setImmediate);
      const busy = isCollectorBusy();
      if (busy && !wasBusy && ++begun <= told) late++;
      wasBusy = busy;
    }
    console.log(begun, late);`;
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", script]);
  expect(stdout.trim()).toBe("1 0");
});
