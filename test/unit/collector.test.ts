/** Small collections of what is young, when they are asked for. */
import { expect, test } from "vitest";
import { breatheOut } from "../../src/ambient.ts";
import { collectYoung, isCollectorBusy, isYoungMany } from "../../src/collector.ts";

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
