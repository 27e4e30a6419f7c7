/** Offerings to try, on a clock that stands still, and what their calls come to. */
import { type AttemptFailure, UpstreamFailure } from "../../src/contracts/contract.ts";
import { Refusal } from "../../src/errors.ts";
import type { AttemptOptions, AttemptWorld } from "../../src/routing/attempt/attempt.ts";
import { HedgeBudget } from "../../src/routing/attempt/record.ts";
import { HealthTracker } from "../../src/routing/health/health.ts";
import type { Offering } from "../../src/routing/offering.ts";
import { type Plan, type PlanStep, planFor } from "../../src/routing/plan/plan.ts";
import { buildSnapshot } from "../../src/routing/snapshot/build.ts";
import { ManualClock } from "./manual-clock.ts";
import { planArgs, prefer, supplyOf } from "./supply.ts";

/** What a call comes to. */
export type Behaviour = (options: AttemptOptions) => Promise<string>;

/** Offerings that are tried in the order in which they are given, and a clock that stands still. */
export function gateway(
  offerings: readonly Offering[],
  preferences: Parameters<typeof prefer>[0] = {},
  deadline?: number,
) {
  const clock = new ManualClock();
  const supply = supplyOf(offerings);
  const snapshot = buildSnapshot(supply);
  const health = new HealthTracker(snapshot, () => 0);
  const caller = new AbortController();
  const provider = prefer({ order: offerings.map((each) => each.provider), ...preferences });
  const plan = (): Plan =>
    planFor({
      ...planArgs(supply, { intent: { provider }, now: clock.steady(), arrivedAt: clock.steady(), deadline }),
      snapshot,
      health: health.view,
    });
  const world: AttemptWorld = { clock, health, hedges: new HedgeBudget(), signal: caller.signal };
  return { clock, health, caller, world, plan };
}

/** Calls by offering, and the options that each was given. */
export function calls(behaviours: Record<string, Behaviour>) {
  const given: { id: string; options: AttemptOptions }[] = [];
  return {
    given,
    asked: () => given.map((each) => each.id),
    async call(step: PlanStep, options: AttemptOptions): Promise<string> {
      given.push({ id: step.offering.id, options });
      return behaviours[step.offering.id]!(options);
    },
    unitsOf: () => 16,
  };
}

/** Answers at once. */
export const answers =
  (what: string): Behaviour =>
  async () =>
    what;
/** Fails at once, with words that nobody may see. */
export const fails =
  (failure: AttemptFailure): Behaviour =>
  async () => {
    throw new UpstreamFailure(failure, "secret upstream text");
  };
/** Never answers. */
export const hangs: Behaviour = () => new Promise(() => {});
/** Does something later, unless it is called off. */
export const late =
  (clock: ManualClock, ms: number, then: Behaviour): Behaviour =>
  (options) =>
    new Promise((resolve, reject) => {
      const cancel = clock.after(ms, () => then(options).then(resolve, reject));
      options.signal.addEventListener("abort", cancel);
    });

/** What something is refused with. */
export async function refusalOf(promise: Promise<unknown>): Promise<Refusal> {
  const thrown = await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (thrown instanceof Refusal) return thrown;
  throw new Error(`expected a refusal, got ${String(thrown)}`);
}
