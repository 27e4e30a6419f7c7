/** Who pays for waking an offering, of all attempts that find it asleep. */
import { describe, expect, test } from "vitest";
import { AttemptFailure } from "../../../../src/contracts/contract.ts";
import type { AttemptWorld } from "../../../../src/routing/attempt/attempt.ts";
import { attemptPlan } from "../../../../src/routing/attempt/attempt.ts";
import { owed } from "../../../../src/routing/attempt/record.ts";
import { answers, calls, fails, gateway, late } from "../../../support/attempts.ts";
import { offering } from "../../../support/supply.ts";

/** A cent to wake, and asleep after a second. */
const sleepy = (id: string) =>
  offering(id, { scaledownS: 1, coldTimeoutMs: 10_000, costNanoPerSecond: 1_000_000, timeoutMs: 10_000 });
const WAKE_MICRO = 10_000;
const LIST_MICRO = 1_600;

/** A world in which `granted` says whether this replica's claim on a cold start holds; `said` is what claims were told. */
function paying({ health, ...world }: AttemptWorld & { health: ReturnType<typeof gateway>["health"] }, granted = true) {
  const said: string[] = [];
  const wakes: AttemptWorld["wakes"] = ({ offering: { id } }, at) =>
    health.wakes(id, at)
      ? {
          pays: Promise.resolve(granted),
          answered: () => void said.push(`${id} answered`),
          failed: () => {
            health.sleepsOn(id);
            said.push(`${id} failed`);
          },
        }
      : undefined;
  return { world: { ...world, health, wakes }, said };
}

const sleeping = (...ids: string[]) => {
  const { clock, health, world, plan } = gateway(ids.map(sleepy), { hedge: { afterMs: 75 } });
  return { clock, health, plan, ...paying({ ...world, health }) };
};

describe("attempts that overlap a cold start", () => {
  test("are charged for it once: the first pays, the others and later warm calls pay the list price", async () => {
    const { clock, plan, world, said } = sleeping("a");
    const upstream = calls({ a: late(clock, 500, answers("x")) });
    const plans = [plan(), plan(), plan()];
    expect(plans.map(({ ceilingMicro }) => ceilingMicro)).toEqual(Array(3).fill(LIST_MICRO + WAKE_MICRO));
    const attempts = plans.map((each) => attemptPlan(each, world, upstream));
    await clock.advance(500);
    const paid = await Promise.all(attempts.map(async (each) => (await owed(await each)).step.costMicro));
    expect(paid).toEqual([LIST_MICRO + WAKE_MICRO, LIST_MICRO, LIST_MICRO]);
    expect(said).toEqual(["a answered"]);
    expect(plan().ceilingMicro).toBe(LIST_MICRO);
    await clock.advance(1_001);
    expect(plan().ceilingMicro).toBe(LIST_MICRO + WAKE_MICRO);
  });

  test("leave the offering warm for a call that starts during another's answer, however long that takes", async () => {
    const { clock, plan, world } = sleeping("a");
    const upstream = calls({ a: answers("x") });
    await attemptPlan(plan(), world, upstream);
    const slow = attemptPlan(plan(), world, calls({ a: late(clock, 5_000, answers("x")) }));
    await clock.advance(4_000);
    expect(plan().ceilingMicro).toBe(LIST_MICRO);
    await clock.advance(1_000);
    await slow;
    await clock.advance(1_001);
    expect(plan().ceilingMicro).toBe(LIST_MICRO + WAKE_MICRO);
  });

  test("leave it cold if they fail: the next one pays", async () => {
    const { plan, world, said } = sleeping("a");
    await expect(attemptPlan(plan(), world, calls({ a: fails(AttemptFailure.UNREACHABLE) }))).rejects.toThrow();
    expect(said).toEqual(["a failed"]);
    const { step } = await owed(await attemptPlan(plan(), world, calls({ a: answers("x") })));
    expect(step.costMicro).toBe(LIST_MICRO + WAKE_MICRO);
  });

  test("are paid for by a hedge's loser that caused the cold start", async () => {
    const { clock, plan, world, said } = sleeping("a", "b");
    const upstream = calls({ a: late(clock, 5_000, answers("slow")), b: late(clock, 50, answers("quick")) });
    const attempt = attemptPlan(plan(), world, upstream);
    await clock.advance(125);
    const { step, hedgeMicro } = await owed(await attempt);
    expect([step.offering.id, step.costMicro, hedgeMicro]).toEqual([
      "b",
      LIST_MICRO + WAKE_MICRO,
      LIST_MICRO + WAKE_MICRO,
    ]);
    expect(said.sort()).toEqual(["a answered", "b answered"]);
  });

  test("are not charged for it if another replica's attempt was first", async () => {
    const { health, world, plan } = gateway([sleepy("a")]);
    const { world: claimed } = paying({ ...world, health }, false);
    const { step } = await owed(await attemptPlan(plan(), claimed, calls({ a: answers("x") })));
    expect([step.wakeUpMicro, step.costMicro]).toEqual([0, LIST_MICRO]);
  });
});
