/** What is counted of loops, and how old what robots see is. */
import { expect, test } from "vitest";
import { LoopGauge } from "../../../../src/routing/loop/gauge.ts";
import { ObservationAge } from "../../../../src/routing/loop/window.ts";

test("a gauge measures the rate of chunks, their jitter and the share of late ones", () => {
  const gauge = new LoopGauge();
  for (const at of [0, 20, 40, 70, 80]) gauge.chunk(at);
  gauge.hold(true);
  gauge.hold(false);
  expect(gauge.figures).toMatchObject({ chunks: 5, holds: 2, missed: 1, effectiveHz: 50 });
  expect(gauge.figures.staleRatio).toBeCloseTo(1 / 6);
  expect(gauge.figures.jitterMs).toBeCloseTo(Math.sqrt(50));
  gauge.chunk(60_080); // a pause of the robot's own
  expect(gauge.figures.effectiveHz).toBe(50);
});

test("two gauges merge as if one had measured everything", () => {
  const [whole, first, second] = [new LoopGauge(), new LoopGauge(), new LoopGauge()];
  for (const at of [0, 20, 50]) for (const gauge of [whole, first]) gauge.chunk(at);
  whole.chunk(100_000);
  second.chunk(100_000);
  for (const at of [100_010, 100_080]) for (const gauge of [whole, second]) gauge.chunk(at);
  second.hold(true);
  whole.hold(true);
  first.add(second);
  const { effectiveHz, jitterMs, ...counts } = whole.figures;
  expect(first.figures).toMatchObject(counts);
  expect(first.figures.effectiveHz).toBeCloseTo(effectiveHz);
  expect(first.figures.jitterMs).toBeCloseTo(jitterMs);
});

test("the drift of two clocks is tracked", () => {
  const transit = new ObservationAge();
  // The robot's clock is slow: it loses a millisecond in a second.
  let oldest = 0;
  for (let at = 0; at < 600_000; at += 100) oldest = Math.max(oldest, transit.age(at - at / 1000, at) as number);
  expect(oldest).toBeLessThan(70);
});
