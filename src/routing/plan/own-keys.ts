/** How a caller's own keys at providers bear on a plan. */
import { LONGEST_HORIZON } from "../../contracts/conflicts.ts";
import { AttemptFailure } from "../../contracts/failure.ts";
import { microOf, ownKeyNano } from "../../contracts/price.ts";
import type { PlanStep } from "./plan.ts";

/** When the caller's own key at a provider is used. `barred`: the provider may not serve, for want of one. */
export type OwnKeyUse = "never" | "last" | "first" | "only" | "barred";

/** The caller's own keys at providers. */
export interface OwnKeys {
  readonly byProvider: ReadonlyMap<string, OwnKeyUse>;
  /** Of every provider that is not named. */
  readonly otherwise: "never" | "barred";
}

/** When the caller's own key is used at a provider. */
export const useOf = (keys: OwnKeys, provider: string): OwnKeyUse => keys.byProvider.get(provider) ?? keys.otherwise;

/** The group that each step was ranked in. */
interface Groups {
  groupAt(place: number): number;
}

/**
 * The steps with those that go with the caller's own key: instead of the gateway's where nothing else will do, right behind them
 * as a fallback, or before all of their group where it comes first.
 */
export function withOwnKeys(ownKeys: OwnKeys, ranked: readonly PlanStep[], groups: Groups): PlanStep[] {
  const steps: PlanStep[] = [];
  let waiting: PlanStep[] = [];
  let waitsIn: number | undefined;
  for (const step of ranked) {
    const group = groups.groupAt(step.rank);
    const use = useOf(ownKeys, step.offering.provider);
    if (group !== waitsIn || use !== "first") {
      steps.push(...waiting);
      waiting = [];
    }
    if (use === "never" || use === "last") steps.push(step);
    if (use !== "never") steps.push(ownStep(step));
    if (use === "first") {
      waiting.push(step);
      waitsIn = group;
    }
  }
  steps.push(...waiting);
  return steps.map((step, rank) => ({ ...step, rank }));
}

/** The step as the caller's own key pays for it: the provider's bill is the caller's, and so is waking the provider up. */
function ownStep(step: PlanStep): PlanStep {
  const unitNano = ownKeyNano(step.unitNano);
  const listMicro = microOf(step.units, unitNano);
  return { ...step, unitNano, ownKey: true, listMicro, wakeUpMicro: 0, costMicro: listMicro };
}

/** Whether two steps ask the same offering in the same way. */
export const sameWay = (a: PlanStep, b: PlanStep): boolean => a.offering.id === b.offering.id && a.ownKey === b.ownKey;

/**
 * Whether a failure says nothing about the provider's health: what it thinks of the caller's own key, and another number of steps than was
 * asked for where it promises none.
 */
export const isNeutral = ({ ownKey, offering }: PlanStep, reason: AttemptFailure | undefined): boolean =>
  reason === AttemptFailure.WRONG_STEP_COUNT
    ? offering.chunk === undefined && offering.maxHorizon >= LONGEST_HORIZON
    : ownKey && reason === AttemptFailure.UPSTREAM_AUTH;
