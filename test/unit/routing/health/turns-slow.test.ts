import { expect, test } from "vitest";
import { Preference } from "../../../../gen/limber/v1/preferences_pb.ts";
import { HealthTracker } from "../../../../src/routing/health/health.ts";
import { planFor } from "../../../../src/routing/plan/plan.ts";
import { buildSnapshot } from "../../../../src/routing/snapshot/build.ts";
import { seeded } from "../../../support/chance.ts";
import { runs } from "../../../support/runs.ts";
import { offering, planArgs, supplyOf } from "../../../support/supply.ts";

const USUAL_MS = 50;
const SLOW_MS = 500;
/** When the one that serves turns slow, and when the run ends. */
const TURNS_AT = 3_000;
const ENDS_AT = 12_000;

interface Made {
  readonly began: number;
  readonly tookMs: number;
  readonly provider: string;
}

/**
 * Sixteen callers in a closed loop over two providers of one checkpoint. Every now and then the gateway itself stands still for
 * up to a fifth of a second, so that all calls in flight look slow, the good provider's too.
 */
function run(preference: Preference, seed: number): Made[] {
  const random = seeded(seed);
  const offerings = ["a", "b"].map((id) => offering(id));
  const supply = supplyOf(offerings);
  const snapshot = buildSnapshot(supply);
  const board = new HealthTracker(snapshot, random);
  const pauses: { from: number; to: number }[] = [];
  for (let at = 0; at < ENDS_AT; at += 400 + random() * 800) pauses.push({ from: at, to: at + random() * 200 });
  const afterPause = (at: number): number => pauses.find(({ from, to }) => at >= from && at < to)?.to ?? at;

  const made: Made[] = [];
  const flights: (Made & { id: string; ends: number })[] = [];
  let slow: string | undefined;
  const begin = (at: number): void => {
    const { steps } = planFor({
      ...planArgs(supply, { now: at, arrivedAt: at, seed: Math.floor(random() * 2 ** 31), intent: { preference } }),
      snapshot,
      health: board.view,
    });
    const { id, provider } = steps[0]!.offering;
    if (at >= TURNS_AT) slow ??= provider;
    board.admit(id, at, 1_000);
    const noise = 0.9 + random() * 0.4;
    const ends = afterPause(at + noise * (provider === slow ? SLOW_MS : USUAL_MS));
    flights.push({ began: at, tookMs: ends - at, provider, id, ends });
  };
  for (let i = 0; i < 16; i++) begin(1_000 + i);
  while (flights.length > 0) {
    flights.sort((x, y) => x.ends - y.ends);
    const { id, ends, ...call } = flights.shift()!;
    made.push(call);
    board.report(id, { outcome: "ok", latencyMs: call.tookMs, units: 16, cold: false, at: ends });
    if (ends < ENDS_AT) begin(ends);
  }
  return made.map((call) => ({ ...call, provider: call.provider === slow ? "slow" : "good" }));
}

test.each([
  ["balanced", Preference.BALANCED],
  ["fastest", Preference.FASTEST],
])(
  "two seconds after one of two providers becomes ten times slower, p99 is as before even if the gateway itself pauses: %s",
  (_, preference) => {
    for (let seed = 1; seed <= runs(1); seed++) {
      const late = run(preference, seed).filter(({ began }) => began >= TURNS_AT + 2_000 && began < TURNS_AT + 8_000);
      expect(late.length).toBeGreaterThan(500);
      const toSlow = late.filter(({ provider }) => provider === "slow");
      expect(toSlow.length / late.length).toBeLessThan(0.01);
      const p99 = late.map(({ tookMs }) => tookMs).sort((x, y) => x - y)[Math.floor(late.length * 0.99)]!;
      expect(p99).toBeLessThan(SLOW_MS * 0.6);
    }
  },
);
