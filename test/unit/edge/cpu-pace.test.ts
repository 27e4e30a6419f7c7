/** The pace below a CPU quota: when work rests, when it goes on, and that no measure keeps it resting. */
import { beforeEach, expect, it, onTestFinished } from "vitest";
import { CpuPace } from "../../../src/edge/cpu-pace.ts";
import type { CpuQuota } from "../../../src/edge/cpu-quota.ts";
import { replaceAmbient } from "../../support/ambient.ts";
import { ManualClock, settle } from "../../support/manual-clock.ts";

let clock: ManualClock;
beforeEach(() => {
  clock = new ManualClock();
  onTestFinished(replaceAmbient({ clock }));
});

/** Half a core, and the processor time that is used of it, in milliseconds, which the test says. */
function half() {
  const used = { threadMs: 0, groupMs: 0 as number | undefined };
  let closed = 0;
  const half: CpuQuota = { place: "/", cores: 0.5, readUsedMs: () => used.groupMs, close: () => closed++ };
  const seen = { quota: half as CpuQuota | undefined };
  const pace = new CpuPace({ find: () => seen.quota, threadMs: () => used.threadMs, processMs: () => used.threadMs });
  onTestFinished(() => pace.close());
  /** The first thread works for so long. */
  const work = async (ms: number): Promise<void> => {
    used.threadMs += ms;
    if (used.groupMs !== undefined) used.groupMs += ms;
    await clock.advance(ms);
  };
  return { pace, used, seen, half, work, closed: () => closed };
}

it("rests before the quota of a period is used up, and goes on within the next", async () => {
  const { pace, work } = half();
  let worked = 0;
  for (; !pace.rests(); worked++) await work(1);
  expect(worked).toBeGreaterThan(25);
  expect(worked).toBeLessThan(50 + 25);
  let went = 0;
  pace.whenOpen(() => went++);
  await settle();
  expect([went, pace.rests()]).toEqual([0, true]);
  await clock.advance(100);
  expect([went, pace.rests()]).toEqual([1, false]);
  expect(pace.figures.cores).toBe(0.5);
  expect(pace.figures.restedMs).toBeGreaterThan(0);
});

it("never lets steady work use as much as the quota", async () => {
  const { pace, used, work } = half();
  while (clock.steady() < 10_000)
    if (pace.rests()) await clock.advance(1);
    else await work(1);
  expect(used.threadMs).toBeLessThan(0.5 * 10_000);
  expect(used.threadMs).toBeGreaterThan(0.8 * 0.5 * 10_000);
});

it("counts what other threads and processes use, and leaves the first thread its part all the same", async () => {
  const { pace, used, work } = half();
  while (clock.steady() < 10_000) {
    // Others take the whole quota and more.
    used.groupMs! += 2;
    if (pace.rests()) await clock.advance(1);
    else await work(1);
  }
  expect(used.threadMs).toBeLessThan(0.5 * 0.5 * 10_000);
  expect(used.threadMs).toBeGreaterThan(0.2 * 0.5 * 10_000);
});

it("goes on after half a second whatever is measured", async () => {
  const { pace, used } = half();
  used.threadMs = 1e9;
  await clock.advance(1);
  expect(pace.rests()).toBe(true);
  let went = 0;
  pace.whenOpen(() => went++);
  for (let i = 0; i < 10; i++) {
    used.threadMs += 1e6;
    await clock.advance(50);
  }
  expect(went).toBe(1);
});

it("opens when the quota goes, and for good", async () => {
  const { pace, seen, used, closed } = half();
  used.threadMs = 1e9;
  await clock.advance(1);
  expect(pace.rests()).toBe(true);
  let went = 0;
  pace.whenOpen(() => went++);
  pace.close();
  expect([went, closed()]).toEqual([1, 1]);
  seen.quota = undefined;
  used.threadMs = 1e12;
  await clock.advance(1_000);
  expect([pace.rests(), pace.isPaced, pace.figures.cores]).toEqual([false, false, undefined]);
});

it("finds a quota that comes, changes and goes while the process runs", async () => {
  const { pace, seen, half: quota } = half();
  seen.quota = undefined;
  await clock.advance(5_000);
  expect(pace.isPaced).toBe(false);
  seen.quota = { ...quota, cores: 0.125 };
  await clock.advance(5_000);
  expect(pace.figures.cores).toBe(0.125);
  seen.quota = quota;
  await clock.advance(5_000);
  expect(pace.figures.cores).toBe(0.5);
});

it("goes by the process's own usage where that of the group can't be read any more", async () => {
  const { pace, used, work } = half();
  await work(30);
  used.groupMs = undefined;
  while (clock.steady() < 5_000)
    if (pace.rests()) await clock.advance(1);
    else await work(1);
  expect(used.threadMs).toBeGreaterThan(0.8 * 0.5 * 5_000);
});

it("lets those go on who wait in their order, as many as there is something left for", async () => {
  const { pace, used, work } = half();
  while (!pace.rests()) await work(1);
  const went: number[] = [];
  for (let i = 0; i < 100; i++)
    pace.whenOpen(() => {
      went.push(i);
      used.threadMs += 5;
      used.groupMs! += 5;
      clock.pass(5);
    });
  while (went.length === 0) await clock.advance(1);
  expect(went.length).toBeLessThan(100);
  await clock.advance(5_000);
  expect(went).toEqual(Array.from({ length: 100 }, (_, i) => i));
});

it("never rests where there is no quota", async () => {
  const pace = new CpuPace({ find: () => undefined, threadMs: () => 1e9 });
  onTestFinished(() => pace.close());
  expect([pace.rests(), pace.isPaced]).toEqual([false, false]);
  let went = 0;
  pace.whenOpen(() => went++);
  expect(went).toBe(0);
  await settle();
  expect(went).toBe(1);
});
