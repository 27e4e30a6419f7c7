/** Timers of the clock: those that many share, and those that tell how long ago they ran. */
import { expect, it } from "vitest";
import { everySpan, everyTogether } from "../../src/clock.ts";
import { setClock } from "../support/clocks.ts";
import { ManualClock } from "../support/manual-clock.ts";

it("all listeners of one interval run once in it, on one timer", async () => {
  const clock = new ManualClock();
  setClock(clock);
  const counts = new Map<number, number>();
  const rests: (() => void)[] = [];
  for (let i = 0; i < 100; i++) {
    if (i % 10 === 0) await clock.advance(35);
    rests.push(everyTogether(400, () => counts.set(i, (counts.get(i) ?? 0) + 1)));
  }
  expect(clock.pending).toBe(1);
  counts.clear();
  for (let passed = 0; passed < 4_000; passed += 50) await clock.advance(50);
  expect(new Set(counts.values())).toEqual(new Set([10]));
  for (const rest of rests) rest();
  expect(clock.pending).toBe(0);
});

it("a listener first runs after nearly the full interval, and never after its removal, even within another listener's turn", async () => {
  const clock = new ManualClock();
  setClock(clock);
  const heard: string[] = [];
  const leaveFirst = everyTogether(400, () => {
    heard.push("first");
    leaveSecond();
  });
  const leaveSecond = everyTogether(400, () => heard.push("second"));
  await clock.advance(349);
  expect(heard).toEqual([]);
  await clock.advance(51);
  expect(heard).toEqual(["first"]);
  leaveFirst();
  leaveFirst();
  await clock.advance(2_000);
  expect(heard).toEqual(["first"]);
  expect(clock.pending).toBe(0);
});

it("a listener receives the time since its last run, at most twice the interval after a freeze", async () => {
  let stoodMs = 0;
  class StallingClock extends ManualClock {
    override steady(): number {
      return super.steady() + stoodMs;
    }
  }
  const clock = new StallingClock();
  setClock(clock);
  const spans: number[] = [];
  const rest = everySpan(100, (spanMs) => spans.push(spanMs));
  await clock.advance(100);
  stoodMs = 30;
  await clock.advance(100);
  stoodMs += 10_000;
  await clock.advance(200);
  rest();
  await clock.advance(200);
  expect(spans).toEqual([100, 130, 200, 100]);
});
