/** Small collections of what is young, when they are asked for; and the flags of V8 that a gateway is started with. */

import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { missingFlags, START_FLAGS } from "../../../src/app/collector.ts";

const ROOT = join(import.meta.dirname, "../../..");

/** What a script prints of a process with these flags; the collector's functions are `collector`, `much` makes megabytes of small objects that stay. */
async function print(flags: readonly string[], script: string): Promise<unknown> {
  const text = `
    import * as collector from ${JSON.stringify(join(ROOT, "src/app/collector.ts"))};
    const much = () => Array.from({ length: 50_000 }, (_, i) => ({ i, name: "n" + i }));
    const turn = () => new Promise(setImmediate);
    ${script}`;
  const { stdout } = await promisify(execFile)(process.execPath, [...flags, "--input-type=module", "-e", text]);
  return JSON.parse(stdout);
}

/** A young generation that is small yet would be collected before it is much. */
const GROW = "let kept = much(); for (let i = 0; i < 20 && !collector.isYoungMany(); i++) kept = [...kept, ...much()];";

test("new objects count as young until a small collection, and survive it", async () => {
  const script = `${GROW}
    const before = collector.isYoungMany();
    collector.collectYoung();
    collector.collectYoung(); // what is met twice is old
    console.log(JSON.stringify([before, collector.isYoungMany(), kept.at(-1)]));`;
  expect(await print(START_FLAGS, script)).toEqual([true, false, { i: 49_999, name: "n49999" }]);
});

test("collecting in slices between pauses leaves few young objects", async () => {
  const script = `${GROW}
    const before = collector.isYoungMany();
    for (let i = 0; i < 3 && collector.isYoungMany(); i++) await collector.pauseForCollection();
    console.log(JSON.stringify([before, collector.isYoungMany(), kept.length > 0]));`;
  expect(await print(START_FLAGS, script)).toEqual([true, false, true]);
});

test("without its flags, a process collects nothing in a pause", async () => {
  const script = `${GROW}
    const slices = await import(${JSON.stringify(join(ROOT, "src/slices.ts"))});
    collector.collectBetweenSlices();
    await slices.pause();
    await collector.pauseForCollection();
    console.log(JSON.stringify([collector.isYoungMany(), kept.length > 0]));`;
  expect(await print([], script)).toEqual([true, true]);
});

test("reading and discarding bytes causes almost no full collections", async () => {
  const script = `
    const { passed } = await import(${JSON.stringify(join(ROOT, "src/codecs/passing.ts"))});
    const { constants, PerformanceObserver } = await import("node:perf_hooks");
    const isFull = ({ detail }) => detail.kind === constants.NODE_PERFORMANCE_GC_MAJOR;
    let full = 0;
    new PerformanceObserver((list) => {
      full += list.getEntries().filter(isFull).length;
    }).observe({ entryTypes: ["gc"] });
    const last = [];
    const fullOnesMeanwhile = async () => {
      full = 0;
      for (let i = 0; i < 10_000; i++) {
        last[i % 4] = Buffer.allocUnsafeSlow(48 << 10);
        passed(48 << 10);
        if (i % 10 === 0) await turn();
      }
      for (let i = 0; i < 10; i++) await turn();
      return full;
    };
    const before = await fullOnesMeanwhile();
    collector.collectBetweenSlices();
    const after = await fullOnesMeanwhile();
    console.log(JSON.stringify([before > 3, after < before / 3]));`;
  // The young may be as many as in a process that has been busy.
  expect(await print([...START_FLAGS, "--min-semi-space-size=16"], script)).toEqual([true, true]);
});

test.each([
  [[], []],
  [["--parallel-scavenge"], ["--no-parallel-scavenge"]],
  [["--trace-gc", "--no_parallel_scavenge"], ["--no-parallel-scavenge"]],
  [
    ["--noparallel-scavenge", "--heap-growing-percent", "50"],
    ["--no-parallel-scavenge", "--heap-growing-percent=200"],
  ],
  [["--parallel-scavenge-more", "--max-semi-space-size=16"], []],
  [START_FLAGS, START_FLAGS],
])("a process started with %j keeps its settings", (words, stay) => {
  expect(missingFlags(words)).toEqual(START_FLAGS.filter((flag) => !stay.includes(flag)));
});

test.each([[[]], [["--parallel-scavenge", "--parallel-compaction"]], [["--single-threaded-gc"]]])(
  "V8 accepts its flags together with %j, and full and small collections continue",
  { timeout: 60_000 },
  async (words) => {
    const script = `
      const { PerformanceObserver } = await import("node:perf_hooks");
      const kinds = new Set();
      new PerformanceObserver((list) => list.getEntries().forEach((entry) => kinds.add(entry.detail.kind))).observe({ entryTypes: ["gc"] });
      const kept = [];
      for (let i = 0; i < 3000 && kinds.size < 3; i++) {
        kept[i % 300] = Array.from({ length: 2000 }, (_, n) => ({ n, text: "n" + n }));
        if (i % 10 > 0) continue;
        collector.collectYoung();
        await turn();
      }
      console.log(JSON.stringify([...kinds].sort()));`;
    // Small, full, and the steps on the way to a full one.
    expect(await print([...missingFlags(words), ...words], script)).toEqual([1, 4, 8]);
  },
);

test("the event-loop turn in which a full collection begins detects it before Node reports it", {
  timeout: 60_000,
}, async () => {
  const script = `
    const { constants, PerformanceObserver } = await import("node:perf_hooks");
    let told = 0;
    new PerformanceObserver((list) => {
      for (const { detail } of list.getEntries()) if (detail.kind === constants.NODE_PERFORMANCE_GC_INCREMENTAL) told++;
    }).observe({ entryTypes: ["gc"] });
    collector.isCollectorBusy();
    const kept = [];
    let [begun, late, wasBusy] = [0, 0, false];
    for (let i = 0; i < 30_000 && begun < 1; i++) {
      kept[i % 3000] = Array.from({ length: 200 }, (_, n) => ({ n, text: "n" + n }));
      await turn();
      const busy = collector.isCollectorBusy();
      if (busy && !wasBusy && ++begun <= told) late++;
      wasBusy = busy;
    }
    for (let i = 0; i < 300 && collector.isCollectorBusy(); i++) await new Promise((resolve) => setTimeout(resolve, 10));
    console.log(JSON.stringify({ begun, late, isBusy: collector.isCollectorBusy() }));`;
  expect(await print(START_FLAGS, script)).toEqual({ begun: 1, late: 0, isBusy: false });
});
