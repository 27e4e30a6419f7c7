/** The figures of a loop that is watched, by a clock of the test's own. */
import { describe, expect, it } from "vitest";
import { HoldReason } from "../../../../gen/limber/v1/control_loop_pb.ts";
import { LiveGauge } from "../../../../src/routing/index.ts";

/** A loop that sends `hz` observations a second from `from` on and gets a chunk for each but those that `isLost` names. */
function drive(gauge: LiveGauge, from: number, seconds: number, hz: number, isLost = (_: number): boolean => false) {
  for (let i = 0; i < seconds * hz; i++) {
    const at = from + (i * 1000) / hz;
    gauge.observed(at);
    if (!isLost(i)) gauge.chunk(at + 5, 20);
  }
}

describe("a loop's rates", () => {
  it("are of the last full second, of the worst one, and the robot's requested rate", () => {
    const gauge = new LiveGauge(1_000_500);
    drive(gauge, 1_000_500, 10, 20, (i) => i >= 60 && i < 67);
    expect(gauge.figures(1_010_500)).toMatchObject({ state: "running", rateHz: 20, worstHz: 13, askedHz: 20 });
  });

  it("exclude the seconds in which a pause of the robot begins and ends", () => {
    const gauge = new LiveGauge(1_000_000);
    drive(gauge, 1_000_000, 3.5, 20);
    drive(gauge, 1_008_500, 3, 20);
    expect(gauge.figures(1_011_400)).toMatchObject({ worstHz: 20, askedHz: 20 });
    expect(gauge.figures(1_013_500)).toMatchObject({ state: "waiting", rateHz: 0, worstHz: 20 });
  });

  it("are unknown for a loop younger than two seconds", () => {
    const gauge = new LiveGauge(1_000_000);
    expect(gauge.figures(1_000_000)).toEqual({ state: "waiting", rateHz: 0 });
    drive(gauge, 1_000_000, 1, 50);
    expect(gauge.figures(1_000_999)).toMatchObject({ state: "running", rateHz: 0 });
    expect(gauge.figures(1_000_999).worstHz).toBeUndefined();
  });

  it("are of one minute, also after hours without a call", () => {
    const gauge = new LiveGauge(1_000_000);
    drive(gauge, 1_000_000, 5, 20, (i) => i >= 40 && i < 50);
    drive(gauge, 1_005_000, 60, 20);
    expect(gauge.figures(1_065_000).worstHz).toBe(20);
    expect(gauge.figures(50_000_000)).toMatchObject({ state: "waiting", rateHz: 0 });
    expect(gauge.figures(50_000_000).ageP50Ms).toBeUndefined();
    drive(gauge, 50_000_000, 4, 20);
    expect(gauge.figures(50_004_000)).toMatchObject({ rateHz: 20, worstHz: 20 });
  });
});

describe("a loop's ages and holds", () => {
  it("are quantiles of one to two minutes, within a tenth", () => {
    const gauge = new LiveGauge(0);
    for (let i = 0; i < 98; i++) gauge.chunk(i, 10);
    for (let i = 0; i < 2; i++) gauge.chunk(100, 200);
    const { ageP50Ms = 0, ageP99Ms = 0 } = gauge.figures(1_000);
    expect(Math.abs(ageP50Ms - 10)).toBeLessThan(1.1);
    expect(Math.abs(ageP99Ms - 200)).toBeLessThan(21);
    gauge.chunk(61_000, 50);
    expect(gauge.figures(61_000).ageP99Ms).toBe(ageP99Ms);
    gauge.chunk(121_500, 50);
    expect(gauge.figures(121_500).ageP99Ms).toBeLessThan(60);
  });

  it("show that a robot holds until the next chunk, and the number of holds by reason", () => {
    const gauge = new LiveGauge(0);
    gauge.observed(5_000);
    gauge.hold(HoldReason.LATE);
    gauge.hold(HoldReason.NO_PROVIDER);
    gauge.hold(HoldReason.LATE);
    expect(gauge.figures(5_100)).toMatchObject({ state: "holding", lastHold: HoldReason.LATE });
    expect([gauge.holds[HoldReason.LATE], gauge.holds[HoldReason.NO_PROVIDER]]).toEqual([2, 1]);
    gauge.chunk(5_200, 10);
    expect(gauge.figures(5_300).state).toBe("running");
  });
});
