/** A control loop, what happens to it, and what it said. */
import { HoldReasonSchema } from "../../gen/limber/v1/control_loop_pb.ts";
import type { ActAnswer } from "../../src/contracts/contract.ts";
import { Loop, type LoopRules } from "../../src/routing/loop/loop.ts";
import type { LoopEffect, LoopEvent } from "../../src/routing/loop/window.ts";
import type { PlanStep } from "../../src/routing/plan/plan.ts";
import { intent, offering } from "./supply.ts";

/** Steps of a chunk. */
export const STEPS = 4;
/** How old what a robot saw may be when its chunk leaves. */
export const DEADLINE_MS = 100;

/** A step of a plan. */
export const step = (id: string, model = "acme/arm", facts: Partial<PlanStep> = {}): PlanStep => ({
  rank: 0,
  row: 0,
  offering: offering(id, { model, provider: id, dtMs: 50, actionDim: 1 }),
  pinned: false,
  score: 0,
  ownKey: false,
  units: STEPS,
  unitNano: 2500,
  listMicro: 10,
  wakeUpMicro: 0,
  costMicro: 10,
  cold: false,
  p50Ms: 10,
  p95Ms: 20,
  budgetMs: 1000,
  ...facts,
});

/** A chunk of equal steps. */
export const answer = (value = 0, length = STEPS): ActAnswer => ({
  steps: Array.from({ length }, () => ({ $typeName: "limber.v1.ActionStep" as const, values: [value] })),
  dtMs: 50,
  note: "",
  prediction: [],
  gpuSeconds: 0,
});

/** A loop, and what it said so far. */
export function stage(steps: PlanStep[], rules: Partial<LoopRules> = {}) {
  const resting = new Set<string>();
  const lacked: (string | undefined)[] = [];
  /** By offering: the observations that it does not read. */
  const unread = new Map<string, string>();
  const loop = new Loop<string>(
    {
      intent: intent({ units: STEPS }),
      deadlineMs: DEADLINE_MS,
      hedgeAfterMs: undefined,
      maxCostMicro: Number.POSITIVE_INFINITY,
      models: [],
      broken: () => false,
      beside: () => true,
      ...rules,
    },
    {
      steps: () => steps,
      admit: ({ offering }) => !resting.has(offering.id),
      hedge: () => true,
      dimOf: () => 1,
      lacks: (model) => lacked.push(model),
      unreadBy: ({ offering }, { payload }) => (unread.get(offering.id) === payload ? "observations.0" : undefined),
    },
  );
  const told: LoopEffect<string>[] = [];
  const happen = (event: LoopEvent<string>): LoopEffect<string>[] => {
    const effects = loop.next(event).filter(({ kind }) => kind !== "told");
    told.push(...effects);
    return effects;
  };
  const observe = (at: number, number: number, tMs?: number, shape = "1") =>
    happen({ kind: "observed", at, view: { step: number, tMs, shape, payload: `o${number}` } });
  return { loop, told, happen, observe, resting, lacked, unread };
}

/** What a loop said, in a few words. */
export const short = (effect: LoopEffect<string>): string => {
  switch (effect.kind) {
    case "dispatch":
      return `ask ${effect.step.offering.id} ${effect.view.step}`;
    case "cancel":
      return `cancel ${effect.attempt}`;
    case "deliver":
      return `chunk ${effect.view.step} by ${effect.step.offering.id}${effect.episodeBreak ? " break" : ""}`;
    case "hold":
      return `hold ${effect.step} ${HoldReasonSchema.value[effect.reason]?.localName}`;
    default:
      return effect.kind;
  }
};
/** All that a loop said. */
export const all = (effects: LoopEffect<string>[]): string[] => effects.map(short);
