/** Where connections go: by load, in turn, and not to a process that stands still. */
import { expect, it } from "vitest";
import { place } from "../../../src/app/processes/placement.ts";

const process = (connections: number, work = 0, silentMs = 0, fresh = 0) => ({ connections, fresh, work, silentMs });

it.each([1, 10, 20, 50, 200])("gives each of four processes its share of %i robots", (robots) => {
  const processes = Array.from({ length: 4 }, () => process(0));
  for (let i = 0; i < robots; i++) {
    const chosen = place(processes, i)!;
    chosen.connections += 1;
    chosen.work += 1;
  }
  const counts = processes.map(({ connections }) => connections);
  expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(1);
  expect(counts.reduce((sum, count) => sum + count)).toBe(robots);
});

it("goes by connections while what runs on them is told of late", () => {
  // 20 robots on each; the second has told of their loops already.
  const [late, told] = [process(20, 0), process(20, 40)];
  expect(place([late, told], 1)).toBe(told);
});

it("counts work that is more than connections account for", () => {
  const [busy, idle] = [process(2, 40), process(10, 0)];
  expect(place([busy, idle])).toBe(idle);
});

it("shares out what comes together, whichever had a little less to do", () => {
  const [less, more] = [process(8, 126), process(8, 130)];
  for (let i = 0; i < 16; i++) {
    const chosen = place([less, more], i)!;
    chosen.connections += 1;
    chosen.fresh += 1;
  }
  expect([less.fresh, more.fresh]).toEqual([9, 7]);
});

it("passes over a process that was not heard of, unless none was", () => {
  const [still, full] = [process(0, 0, 1_500), process(100)];
  expect(place([still, full])).toBe(full);
  expect(place([still])).toBe(still);
  expect(place([])).toBeUndefined();
});
