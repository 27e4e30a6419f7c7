/** Stages 1 to 4 in order: a request becomes a plan, or a refusal. A pure function of its arguments. */
import type { ActionMeaning } from "../../../gen/limber/v1/input_contract_pb.ts";
import { differenceOf, meaningIn } from "../../contracts/action-meaning.ts";
import { Contract, type Intent } from "../../contracts/contract.ts";
import { microOf, mostMicroOf } from "../../contracts/price.ts";
import type { Offering } from "../offering.ts";
import { CONSTRAINTS, REMOVING, testsOf } from "./constrain.ts";
import { refusalOf } from "./drops.ts";
import { expand, wrongActionSpace } from "./expand.ts";
import { type Ask, declare, meaningAt, type PlanArgs, unitsAt } from "./intent.ts";
import { isCold } from "./measure.ts";
import { withOwnKeys } from "./own-keys.ts";
import { PINNED, rank, Shortlist } from "./rank.ts";
import { sift } from "./sift.ts";

/** One offering of a plan. */
export interface PlanStep {
  /** Position in the plan, from 0. */
  readonly rank: number;
  /** Row of the snapshot. */
  readonly row: number;
  readonly offering: Offering;
  /** The session is pinned to its checkpoint and provider. */
  readonly pinned: boolean;
  /** It is called with the caller's own key at the provider. */
  readonly ownKey: boolean;
  /** How many units it is asked for. */
  readonly units: number;
  /** Price of a unit in nano-dollars: the list's, or the gateway's share of it where the caller has a key of its own. */
  readonly unitNano: number;
  /** What the order was made by; lower is better within a plan's groups. */
  readonly score: number;
  /** The call at this price, in micro-dollars. */
  readonly listMicro: number;
  /** What waking it adds; 0 when it is warm. */
  readonly wakeUpMicro: number;
  /** Both together: what the call is expected to cost here at this moment. */
  readonly costMicro: number;
  readonly cold: boolean;
  /** Median and 95th percentile in milliseconds; Infinity when nothing is known. */
  readonly p50Ms: number;
  readonly p95Ms: number;
  /** Time for one attempt in milliseconds. */
  readonly budgetMs: number;
}

/** The offerings to try, best first, and what the call may cost and take. */
export interface Plan {
  readonly contract: Contract;
  readonly intent: Intent;
  /** At least one. */
  readonly steps: readonly PlanStep[];
  /** What the cheapest, the first and the dearest way would cost, in micro-dollars; the dearest is what has to be held. */
  readonly leastMicro: number;
  readonly expectedMicro: number;
  readonly ceilingMicro: number;
  /** The first step stands there because the session is pinned to it. */
  readonly pinned: boolean;
  /** When the whole request is out of time, on the steady clock in milliseconds. */
  readonly endsAt: number;
  /** When to ask a second provider; undefined when not at all. */
  readonly hedgeAfterMs: number | undefined;
  /** Ceiling of the whole bill in micro-dollars, which no hedge may break; Infinity when there is none. */
  readonly maxCostMicro: number;
  /** A resting breaker does not keep the steps from being tried. */
  readonly strictOrder: boolean;
  /** What the actions of all steps mean, as far as they say so; undefined where the first of them says nothing. */
  readonly meaning: ActionMeaning | undefined;
  /** What the log keeps of it, once somebody has asked for that. */
  logged: { readonly id: string; readonly ranks: string } | undefined;
}

/** The most offerings that one request may try. */
export const MOST_STEPS = 16;

/** Without a `deadline_ms` a request may take this long at most. */
const LONGEST_MS = 120_000;

/** Milliseconds around attempts, so that the last one has its whole budget too where the request sets no shorter time. */
const BETWEEN_ATTEMPTS_MS = 1_000;

/** Plans a request. Throws the refusal when nothing may serve it: constraints are never relaxed. */
export function planFor(args: PlanArgs): Plan {
  const ask = declare(args);
  const plan = wrongActionSpace(ask) ? undefined : planOf(ask, MOST_STEPS);
  if (!plan) throw refusalOf(ask);
  return plan;
}

const shortlist = new Shortlist(MOST_STEPS);
let survivors = new Uint32Array(1024);

/** The plan of a request with at most `most` steps, or undefined when nothing may serve it. */
export function planOf(ask: Ask, most: number): Plan | undefined {
  const best = most === MOST_STEPS ? shortlist : new Shortlist(most);
  choose(ask, best);
  if (best.count === 0) return undefined;
  const length = isDirect(ask) ? 1 : best.count;
  // What stands in for an offering must not move the robot in another way: those that say that they do are left out, and others take their place.
  const meaning = ask.meaning ?? firstMeaning(ask, best, length);
  if (ask.meaning === undefined && meaning !== undefined && mixes(ask, best, length, meaning))
    return planOf({ ...ask, meaning }, most);
  const ranked: PlanStep[] = [];
  for (let place = 0; place < length; place++) ranked.push(stepOf(ask, best, place));
  const steps = ask.ownKeys ? withOwnKeys(ask.ownKeys, ranked, best) : ranked;
  return {
    contract: ask.contract,
    intent: ask.intent,
    steps,
    leastMicro: least(steps),
    expectedMicro: steps[0]!.costMicro,
    ceilingMicro: ceilingOf(steps, ask.hedge !== undefined, ask.maxCostMicro),
    pinned: steps[0]!.pinned,
    endsAt: ask.now + timeFor(ask, steps),
    hedgeAfterMs: ask.hedge?.afterMs,
    maxCostMicro: ask.maxCostMicro,
    strictOrder: ask.strictOrder,
    meaning,
    logged: undefined,
  };
}

/** What the first of the chosen that says so says of its actions. */
function firstMeaning(ask: Ask, best: Shortlist, length: number): ActionMeaning | undefined {
  if (ask.snapshot.ground.declared.length === 1) return undefined;
  for (let place = 0; place < length; place++) {
    const meaning = meaningAt(ask, best.rows[place]!);
    if (meaning !== undefined) return meaning;
  }
  return undefined;
}

function mixes(ask: Ask, best: Shortlist, length: number, meaning: ActionMeaning): boolean {
  for (let place = 0; place < length; place++)
    if (differenceOf(meaning, meaningAt(ask, best.rows[place]!)) !== undefined) return true;
  return false;
}

/** One step and no other: ground is called directly, and without fallbacks nothing may stand in for the first but what `order` names. */
const isDirect = (ask: Ask): boolean => (!ask.allowFallbacks && !ask.strictOrder) || ask.contract === Contract.GROUND;

/** Expands, constrains and ranks every target in turn. */
function choose(ask: Ask, best: Shortlist): void {
  best.clear();
  for (let place = 0; place < ask.targets.length; place++) {
    const target = ask.targets[place]!;
    const candidates = expand(ask, target);
    const most = candidates.rows.length;
    if (survivors.length < most) survivors = new Uint32Array(most * 2);
    const tests = target.alias ? testsOf(ask, REMOVING, false) : testsOf(ask, CONSTRAINTS, true);
    const count = sift(ask, tests, candidates, survivors);
    rank(ask, target, place, survivors, count, best);
  }
}

function stepOf(ask: Ask, best: Shortlist, place: number): PlanStep {
  const row = best.rows[place]!;
  const { health } = ask;
  const { columns, offerings } = ask.snapshot;
  const offering = offerings[row]!;
  const cold = isCold(ask, row);
  const units = unitsAt(ask, row);
  const unitNano = ask.priceNano[row]!;
  const listMicro = microOf(units, unitNano);
  const wakeUpMicro = cold ? columns.wakeMicro[row]! : 0;
  return {
    rank: place,
    row,
    offering,
    pinned: best.groupAt(place) === PINNED,
    ownKey: false,
    units,
    unitNano,
    score: best.scores[place]!,
    listMicro,
    wakeUpMicro,
    costMicro: listMicro + wakeUpMicro,
    cold,
    p50Ms: cold ? health.coldMs[row]! : health.p50Ms[row]!,
    p95Ms: cold ? health.coldMs[row]! : health.p95Ms[row]!,
    budgetMs: (cold ? offering.coldTimeoutMs : undefined) ?? offering.timeoutMs,
  };
}

function least(steps: readonly PlanStep[]): number {
  let micro = Number.POSITIVE_INFINITY;
  for (const step of steps) micro = Math.min(micro, step.costMicro);
  return micro;
}

/** The most that a step is charged. */
const mostOf = ({ units, unitNano, wakeUpMicro }: PlanStep): number => mostMicroOf(units, unitNano) + wakeUpMicro;

/** The dearest way: one step alone, or two of which the second is the first's hedge. Failed attempts cost nothing. */
function ceilingOf(steps: readonly PlanStep[], hedges: boolean, maxCostMicro: number): number {
  let micro = 0;
  for (const step of steps) micro = Math.max(micro, mostOf(step));
  if (!hedges) return micro;
  for (const first of steps) {
    for (const second of steps) {
      if (mayHedge(first, second, maxCostMicro)) micro = Math.max(micro, mostOf(first) + mostOf(second));
    }
  }
  return micro;
}

/**
 * The plan without the steps and the hedges that so many micro-dollars do not pay for; its cheapest step alone where they pay for none.
 * Undefined where that is the plan as it is.
 */
export function affordable(plan: Plan, availableMicro: number): Plan | undefined {
  const maxCostMicro = Math.min(plan.maxCostMicro, availableMicro);
  const paid = plan.steps.filter((step) => step.costMicro <= availableMicro);
  const kept = paid.length > 0 ? paid : plan.steps.filter((step) => step.costMicro === plan.leastMicro).slice(0, 1);
  const steps = kept.map((step, rank) => ({ ...step, rank }));
  const ceilingMicro = ceilingOf(steps, plan.hedgeAfterMs !== undefined, maxCostMicro);
  if (ceilingMicro >= plan.ceilingMicro) return undefined;
  const [first] = steps as [PlanStep, ...PlanStep[]]; // a plan has a step, and its cheapest is one
  return {
    ...plan,
    steps,
    maxCostMicro,
    leastMicro: least(steps),
    expectedMicro: first.costMicro,
    ceilingMicro,
    pinned: first.pinned,
  };
}

/**
 * Whether `second` may be called while `first` is late: another provider of the same checkpoint whose actions mean the
 * same, so that a robot never mixes two plans, and both together within the ceiling of the bill.
 */
export function mayHedge(first: PlanStep, second: PlanStep, maxCostMicro: number): boolean {
  return (
    sameCheckpoint(first, second) &&
    first.offering.provider !== second.offering.provider &&
    first.costMicro + second.costMicro <= maxCostMicro
  );
}

/** Whether two offerings serve one checkpoint whose actions mean the same, so that one may continue where the other ended. */
export function sameCheckpoint(one: PlanStep, other: PlanStep): boolean {
  const { offering: a } = one;
  const { offering: b } = other;
  return (
    a.model === b.model &&
    a.actionDim === b.actionDim &&
    a.dtMs === b.dtMs &&
    a.simulated === b.simulated &&
    meansTheSame(one, other)
  );
}

/** Whether nothing is said of two offerings by which their actions would mean different things in any action space. */
export function meansTheSame(
  { offering: { declared: a } }: PlanStep,
  { offering: { declared: b } }: PlanStep,
): boolean {
  if (a === undefined || b === undefined || a === b || a.actions.length === 0 || b.actions.length === 0) return true;
  const spaces = new Set([...a.actions, ...b.actions].map(({ actionSpace }) => actionSpace));
  for (const space of spaces)
    if (differenceOf(meaningIn(a.actions, space), meaningIn(b.actions, space)) !== undefined) return false;
  return true;
}

function timeFor(ask: Ask, steps: readonly PlanStep[]): number {
  if (ask.leftMs < Number.POSITIVE_INFINITY) return ask.leftMs;
  const budgets = steps.reduce((sum, step) => sum + step.budgetMs, 0);
  return Math.min(budgets + BETWEEN_ATTEMPTS_MS, LONGEST_MS);
}
