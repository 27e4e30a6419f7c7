import fc from "fast-check";
import { expect, test } from "vitest";
import { BUCKETS, bucketOf, Sketch } from "../../../../src/routing/health/cell.ts";
import { seeded } from "../../../support/chance.ts";

function sketchOf(durations: readonly number[], now = 1): Sketch {
  const sketch = new Sketch();
  for (const duration of durations) sketch.add(duration, now);
  return sketch;
}

test("a single duration is estimated within a tenth, from a tenth of a millisecond to an hour", () => {
  fc.assert(
    fc.property(fc.double({ min: 0.1, max: 3_600_000, noNaN: true }), (duration) => {
      const median = sketchOf([duration]).quantile(0.5);
      expect(Math.abs(median - duration)).toBeLessThanOrEqual(duration * 0.11);
    }),
  );
});

test("quantiles of many durations are close to the exact ones", () => {
  const random = seeded(4);
  const durations = Array.from({ length: 40 }, () => 10 + random() * 90);
  const sorted = durations.toSorted((a, b) => a - b);
  const sketch = sketchOf(durations);
  expect(sketch.quantile(0.5) / sorted[20]!).toBeGreaterThan(0.7);
  expect(sketch.quantile(0.5) / sorted[20]!).toBeLessThan(1.3);
  expect(sketch.quantile(0.95) / sorted[38]!).toBeGreaterThan(0.7);
});

test("an empty sketch has no estimate", () => {
  expect(new Sketch().quantile(0.5)).toBeNaN();
  expect(new Sketch().samples(0)).toBe(0);
});

test("fifty calls at ten times the duration outweigh any number before them", () => {
  const sketch = sketchOf(Array<number>(5000).fill(20));
  for (let i = 0; i < 50; i++) sketch.add(200, 1);
  expect(sketch.quantile(0.5)).toBeGreaterThan(150);
});

test("a minute of silence halves the weight of samples", () => {
  const sketch = sketchOf(Array<number>(10).fill(20));
  const fresh = sketch.samples(1);
  expect(sketch.samples(60_001)).toBeCloseTo(fresh / 2);
});

test("days of silence and millions of samples keep the sketch valid", () => {
  const sketch = sketchOf(Array<number>(3000).fill(20));
  sketch.add(50, 10 * 86_400_000);
  expect(sketch.quantile(0.5)).toBeGreaterThan(40);
  expect(sketch.samples(10 * 86_400_000)).toBeCloseTo(1, 1);
});

test("another replica's counts weigh like local ones: the quantiles are of both together", () => {
  const both = sketchOf(Array<number>(20).fill(10));
  const theirs = new Array<number>(BUCKETS).fill(0);
  theirs[bucketOf(1000)] = 20;
  both.addCounts(theirs, 1);
  expect(both.quantile(0.25)).toBeLessThan(12);
  expect(both.quantile(0.75)).toBeGreaterThan(850);
});

test("a million samples at once weigh no more than fifty", () => {
  const sketch = sketchOf(Array<number>(20).fill(10));
  const many = new Array<number>(BUCKETS).fill(0);
  many[bucketOf(1000)] = 1e6;
  sketch.addCounts(many, 1);
  for (let i = 0; i < 100; i++) sketch.add(10, 1);
  expect(sketch.quantile(0.5)).toBeLessThan(12);
});
