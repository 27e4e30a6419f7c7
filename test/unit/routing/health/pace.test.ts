import { expect, test } from "vitest";
import { Pace } from "../../../../src/routing/health/cell.ts";

const usual = (): Pace => {
  const pace = new Pace();
  for (let i = 0; i < 100; i++) pace.add(50 + (i % 5), 1_000);
  return pace;
};

test("four slow calls in a row are noticed, and a single one never", () => {
  const pace = usual();
  pace.add(60_000, 1_001);
  expect(pace.slowMs(1_001)).toBeUndefined();
  for (let i = 0; i < 3; i++) pace.add(500, 1_002);
  expect(pace.slowMs(1_002)).toBeGreaterThan(100);
});

test("one slow call in fifty is never noticed", () => {
  const pace = usual();
  for (let i = 0; i < 1_000; i++) {
    pace.add(i % 50 === 0 ? 1_000 : 50, 1_001);
    expect(pace.slowMs(1_001)).toBeUndefined();
  }
});

test("a provider that is always slow is not slower than usual", () => {
  const pace = new Pace();
  for (let i = 0; i < 1_000; i++) pace.add(5_000, 1_000);
  expect(pace.slowMs(1_000)).toBeUndefined();
});

test("a slow provider is tried after ten seconds without a call, and four slow calls end that", () => {
  const pace = usual();
  for (let i = 0; i < 10; i++) pace.add(500, 2_000);
  expect(pace.slowMs(11_999)).toBeDefined();
  expect(pace.slowMs(12_000)).toBeUndefined();
  for (let i = 0; i < 4; i++) pace.add(500, 12_001);
  expect(pace.slowMs(12_001)).toBeDefined();
});

test("the slower of two slow providers has far less weight, and both have less than a normal one", () => {
  const weightAt = (latencyMs: number): number => {
    const pace = usual();
    for (let i = 0; i < 7; i++) pace.add(latencyMs, 1_001);
    return pace.weight(1_001);
  };
  expect(weightAt(55)).toBe(1);
  expect(weightAt(150)).toBeLessThan(0.5);
  // Load goes by the square of this.
  expect(weightAt(500) ** 2).toBeLessThan(weightAt(150) ** 2 / 1_000);
});
