/** Stages 1 to 4 in order: turns a request into a plan, or a refusal that lists every dropped offering. Pure. */

import { create } from "@bufbuild/protobuf";
import type { ActionMeaning } from "../../../gen/limber/v1/input_contract_pb.ts";
import {
  type DroppedOffering,
  DroppedOfferingSchema,
  DropReason,
  DropReasonSchema,
  type Suggestion,
  SuggestionSchema,
} from "../../../gen/limber/v1/plan_pb.ts";
import {
  AttemptFailure,
  Contract,
  type Intent,
  LONGEST_HORIZON,
  microOf,
  mostMicroOf,
  ownKeyNano,
} from "../../contracts/contract.ts";
import { differenceOf, type InputFault, meaningIn, readsOf } from "../../contracts/inputs.ts";
import { Reason, type Refusal, type RefusalDetails, refuse } from "../../errors.ts";
import type { Offering } from "../offering.ts";
import { CONSTRAINTS, type Constraint, faultsAt, LISTED, REMOVING, testsOf } from "./constrain.ts";
import {
  type Ask,
  consideredRows,
  declare,
  expand,
  meaningAt,
  nearNames,
  type OwnKeys,
  type PlanArgs,
  Reused,
  unitsAt,
  unservedSpace,
  useOf,
  withoutSupply,
  wrongActionSpace,
} from "./intent.ts";
import { PINNED, rank, Shortlist } from "./rank.ts";
import { costMicro, isCold, passes, sift, type Test } from "./sift.ts";

/** One offering of a plan. */
export interface PlanStep {
  /** Position in the plan, from 0. */
  readonly rank: number;
  /** Row of the snapshot. */
  readonly row: number;
  readonly offering: Offering;
  /** Whether the session is pinned to its checkpoint and provider. */
  readonly pinned: boolean;
  /** Whether it is called with the caller's own provider key. */
  readonly ownKey: boolean;
  /** Number of units requested from it. */
  readonly units: number;
  /** Price per unit in nano-dollars: the list price, or the gateway's fee if the caller uses its own key. */
  readonly unitNano: number;
  /** The score that orders the plan; lower is better within a group. */
  readonly score: number;
  /** The price of the call, in micro-dollars. */
  readonly listMicro: number;
  /** The price of a cold start; 0 if it is warm. */
  readonly wakeUpMicro: number;
  /** Both together: the call's expected charge at this time. */
  readonly costMicro: number;
  readonly cold: boolean;
  /** Median and 95th percentile in milliseconds; Infinity if unknown. */
  readonly p50Ms: number;
  readonly p95Ms: number;
  /** Time for one attempt in milliseconds. */
  readonly budgetMs: number;
}

/** The offerings to attempt, best first, with the call's cost and time limits. */
export interface Plan {
  readonly contract: Contract;
  readonly intent: Intent;
  /** At least one. */
  readonly steps: readonly PlanStep[];
  /** The cost of the cheapest, the first and the most expensive path, in micro-dollars; the most expensive is reserved. */
  readonly leastMicro: number;
  readonly expectedMicro: number;
  readonly ceilingMicro: number;
  /** Whether the first step is first because the session is pinned to it. */
  readonly pinned: boolean;
  /** The request's deadline on the steady clock, in milliseconds. */
  readonly endsAt: number;
  /** When to send a hedge; undefined for never. */
  readonly hedgeAfterMs: number | undefined;
  /** Maximum charge in micro-dollars, which no hedge may exceed; Infinity if there is none. */
  readonly maxCostMicro: number;
  /** Attempt steps even if their breakers are open. */
  readonly strictOrder: boolean;
  /** The meaning of all steps' actions, as far as declared; undefined if the first step declares none. */
  readonly meaning: ActionMeaning | undefined;
  /** The plan's log record, built on first request. */
  logged: { readonly id: string; readonly ranks: string } | undefined;
}

/** Maximum number of offerings that one request can attempt. */
export const MOST_STEPS = 16;

/** Maximum duration of a request without `deadline_ms`. */
const LONGEST_MS = 120_000;

/** Extra milliseconds around attempts, so that the last one has its full budget if the request sets no shorter deadline. */
const BETWEEN_ATTEMPTS_MS = 1_000;

/** Plans a request. Throws the refusal if no offering can serve it: constraints are never relaxed. */
export function planFor(args: PlanArgs): Plan {
  const ask = declare(args);
  const plan = wrongActionSpace(ask) ? undefined : planOf(ask, MOST_STEPS);
  if (!plan) throw refusalOf(ask);
  return plan;
}

const shortlist = new Shortlist(MOST_STEPS);
const survivorRows = new Reused((length) => new Uint32Array(length));

/** Plans a request with at most `most` steps; undefined if no offering can serve it. */
export function planOf(ask: Ask, most: number): Plan | undefined {
  const best = most === MOST_STEPS ? shortlist : new Shortlist(most);
  choose(ask, best);
  if (best.count === 0) return undefined;
  const length = isDirect(ask) ? 1 : best.count;
  // A substitute must not move the robot in another way: offerings that declare a different meaning are dropped, and others take their
  // place.
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

/** The action meaning of the first chosen offering that declares one. */
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

/** Whether the plan has only one step: ground is called directly, and without fallbacks only offerings in `order` can replace the first. */
const isDirect = (ask: Ask): boolean => (!ask.allowFallbacks && !ask.strictOrder) || ask.contract === Contract.GROUND;

/** Expands, constrains and ranks all targets in turn. */
function choose(ask: Ask, best: Shortlist): void {
  best.clear();
  for (let place = 0; place < ask.targets.length; place++) {
    const target = ask.targets[place]!;
    const candidates = expand(ask, target);
    const most = candidates.rows.length;
    const survivors = survivorRows.of(most);
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

/** The maximum charge for a step. */
const mostOf = ({ units, unitNano, wakeUpMicro }: PlanStep): number => mostMicroOf(units, unitNano) + wakeUpMicro;

/** The most expensive path: one step, or two of which the second is the first's hedge. Failed attempts cost nothing. */
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
 * The plan without the steps and hedges that this many micro-dollars do not cover; only its cheapest step if they cover none. Undefined if
 * nothing changes.
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
 * Whether `second` can hedge `first`: another provider of the same checkpoint with the same action meaning, so that a robot never mixes two
 * plans, and both together within the maximum charge.
 */
export function mayHedge(first: PlanStep, second: PlanStep, maxCostMicro: number): boolean {
  return (
    sameCheckpoint(first, second) &&
    first.offering.provider !== second.offering.provider &&
    first.costMicro + second.costMicro <= maxCostMicro
  );
}

/** Whether two offerings serve the same checkpoint with the same action meaning, so that one can continue for the other. */
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

/** Whether two offerings declare no different action meaning in any action space. */
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

/** A dropped row with every constraint that it violates: one bit each, by its index in the table. At least one. */
export interface Drop {
  readonly row: number;
  readonly broken: number;
}

/** Every row that the request selects and that cannot serve it. */
export function dropsOf(ask: Ask): Drop[] {
  const named = ask.targets.filter(({ alias }) => !alias).map(({ name }) => ask.snapshot.models.of(name));
  const rows = Uint32Array.from(consideredRows(ask));
  if (named.length === 0) return broken(ask, rows, false);
  if (named.length === ask.targets.length) return broken(ask, rows, true);
  const { model } = ask.snapshot.columns;
  const isNamed = (row: number): boolean => named.includes(model[row]!);
  const byName = broken(ask, rows.filter(isNamed), true);
  const ofAliases = broken(
    ask,
    rows.filter((row) => !isNamed(row)),
    false,
  );
  return [...byName, ...ofAliases];
}

/** The same for one of these rows; undefined if it is not dropped. */
export function dropOf(ask: Ask, row: number): Drop | undefined {
  const { snapshot, targets } = ask;
  const model = snapshot.columns.model[row];
  const isNamed = targets.some(({ alias, name }) => !alias && snapshot.models.of(name) === model);
  return broken(ask, Uint32Array.of(row), isNamed)[0];
}

function broken(ask: Ask, rows: Uint32Array, isNamed: boolean): Drop[] {
  const bits = new Uint32Array(rows.length);
  for (let place = 0; place < CONSTRAINTS.length; place++) {
    const test = CONSTRAINTS[place]!.test(ask, isNamed);
    if (test) breaking(ask, test, rows, 1 << place, bits);
  }
  const drops: Drop[] = [];
  for (let i = 0; i < rows.length; i++) if (bits[i] !== 0) drops.push({ row: rows[i]!, broken: bits[i]! });
  return drops;
}

/** Adds a bit to each row that fails a test. Live figures are measured for all rows at once. */
function breaking(ask: Ask, test: Test, rows: Uint32Array, bit: number, broken: Uint32Array): void {
  if (test.kind !== "cost" && test.kind !== "measured") {
    for (let i = 0; i < rows.length; i++) if (!passes(ask, test, rows[i]!)) broken[i]! |= bit;
    return;
  }
  const figures = new Float64Array(rows.length);
  (test.kind === "cost" ? costMicro : test.measure)(ask, rows, rows.length, figures);
  for (let i = 0; i < rows.length; i++) if (!(figures[i]! <= test.limit)) broken[i]! |= bit;
}

/** The first constraint of the table that a row violates. */
const firstOf = ({ broken }: Drop): Constraint => CONSTRAINTS[31 - Math.clz32(broken & -broken)]!;

/** Whether a row violates exactly one constraint. */
const isAlone = ({ broken }: Drop): boolean => (broken & (broken - 1)) === 0;

/**
 * How far a row is from serving the request: rows that can serve the contract first, and of these those with the fewest violated
 * constraints.
 */
function distanceOf({ broken }: Drop): number {
  let distance = (broken & UNABLE) === 0 ? 0 : CONSTRAINTS.length;
  for (let bits = broken; bits !== 0; bits &= bits - 1) distance++;
  return distance;
}

/** Sorts drops with the decisive ones first; equal ones keep the request's order. */
const nearestFirst = (drops: readonly Drop[]): Drop[] =>
  drops
    .map((drop) => ({ drop, distance: distanceOf(drop) }))
    .sort((a, b) => a.distance - b.distance)
    .map(({ drop }) => drop);

/** The constraints that a row violates, in table order. */
const allOf = ({ broken }: Drop): Constraint[] => CONSTRAINTS.filter((_, place) => (broken & (1 << place)) !== 0);

/** A clause about what drops the closest offerings; empty if none can serve the contract. `drops` starts with the closest. */
function decisiveOf(ask: Ask, drops: readonly Drop[]): string {
  const [nearest] = drops;
  if (nearest === undefined || (nearest.broken & UNABLE) !== 0) return "";
  const { provider } = ask.snapshot.offerings[nearest.row]!;
  const why = `${provider}: ${firstOf(nearest).detail(ask, nearest.row)}`;
  if (!isAlone(nearest)) {
    const reasons = allOf(nearest).map(({ reason }) => `\`${wordOf(reason)}\``);
    return `; the closest one was dropped for ${[...new Set(reasons)].join(", ")} (${why})`;
  }
  const { reason } = firstOf(nearest);
  const count = drops.filter((drop) => isAlone(drop) && firstOf(drop).reason === reason).length;
  return `; \`${wordOf(reason)}\` alone drops ${count} of them (${why})`;
}

/** The refusal of a request that no offering can serve. */
export function refusalOf(ask: Ask): Refusal {
  const early = wrongActionSpace(ask) ?? withoutSupply(ask);
  if (early) return early;
  const drops = nearestFirst(dropsOf(ask));
  const details = detailsOf(ask, drops);
  const considered = `${drops.length} offering${drops.length === 1 ? "" : "s"} considered`;
  const resting = drops.filter(({ broken }) => (broken & ~RESTING) === 0);
  if (resting.length > 0) {
    const earliest = Math.min(...resting.map((drop) => ask.health.restsUntil[drop.row]!));
    const text = `${considered}; those that could serve the request have open breakers after failures`;
    return refuse(Reason.CAPACITY_EXHAUSTED, text, details, retryIn(earliest - ask.now));
  }
  if (drops.some(({ broken }) => (broken & ~LATE) === 0)) {
    const late = drops.filter(({ broken }) => (broken & ~LATE) === 0 && (broken & ~RESTING) !== 0);
    const told = droppedOf(ask, late.slice(0, MOST_TOLD)).map(
      ({ model, provider, detail }) => `${model} of ${provider}: ${detail}`,
    );
    const text = `${considered}; none is expected to finish in time (${told.join("; ")})`;
    return refuse(Reason.DEADLINE_EXCEEDED, text, details);
  }
  const unread = unreadOf(ask, drops, details);
  if (unread) return unread;
  const strangers = strangersOf(ask);
  const unserved = unservedSpace(ask);
  const text = `${considered}, none satisfies the constraints${unserved?.text ?? decisiveOf(ask, drops)}${strangers.length === 0 ? "" : `; provider ${strangers.map((name) => JSON.stringify(name)).join(", ")} not found`}`;
  const near = strangers.flatMap((name) => nearNames(name, ask.snapshot.providers.names));
  return refuse(Reason.NO_ROUTE_AVAILABLE, text, {
    ...details,
    ...(near.length > 0 && { near }),
    ...(unserved && { needed: [...unserved.served] }),
  });
}

/**
 * The refusal of a request whose input is the only obstacle: it lists each field that the closest offering requires or does not accept.
 * Undefined if another constraint drops an offering. Offerings that cannot serve the contract are ignored.
 */
function unreadOf(ask: Ask, drops: readonly Drop[], details: RefusalDetails): Refusal | undefined {
  const able = drops.filter(({ broken }) => (broken & UNABLE) === 0);
  if (able.length === 0 || !able.every(({ broken }) => (broken & INPUT) !== 0 && (broken & ~(INPUT | LATE)) === 0))
    return undefined;
  let nearest: readonly InputFault[] = [];
  const needed = new Set<string>();
  for (const { row } of able) {
    const faults = faultsAt(ask, row);
    if (nearest.length === 0 || faults.length < nearest.length) nearest = faults;
    if (needed.size < MOST_NEEDED) needed.add(readAt(ask, row));
  }
  const violations = nearest.map(({ path, message, type }) => ({
    $typeName: "limber.v1.Violation" as const,
    path,
    message,
    type,
  }));
  const reads = nearest
    .map(({ path, message }) => `${path} ${message}`)
    .join("; ")
    .slice(0, MOST_READ);
  const text = `no offering accepts this input: ${reads}`;
  const param = nearest[0]?.path;
  return refuse(
    Reason.INPUT_CONTRACT,
    text,
    { ...details, violations, needed: [...needed] },
    param === undefined ? {} : { param },
  );
}

/** Maximum length of an offering's input description, which contains the provider's text. */
const MOST_READ = 800;
/** Maximum number of offerings whose inputs are described. */
const MOST_NEEDED = 8;

function readAt({ snapshot, intent }: Ask, row: number): string {
  const { model, provider, declared } = snapshot.offerings[row]!;
  const reads = `${model} at ${provider} reads ${(declared?.input && readsOf(declared.input, intent.actionSpace)) ?? "something else"}`;
  return reads.slice(0, MOST_READ);
}

/** The first unknown provider in `provider.only`, which may be a misspelling. */
function strangersOf({ preferences, strictOrder, snapshot }: Ask): string[] {
  const named = [...(preferences?.only ?? []), ...(strictOrder ? (preferences?.order ?? []) : [])];
  return named.filter((name) => snapshot.providers.of(name) < 0).slice(0, MOST_STRANGERS);
}

const MOST_STRANGERS = 3;
/** Maximum number of offerings in a sentence; the details list all. */
const MOST_TOLD = 3;

function retryIn(ms: number): { retryAfter?: number } {
  return Number.isFinite(ms) ? { retryAfter: Math.max(1, Math.ceil(ms / 1000)) } : {};
}

/** The bits of the constraints with these reasons. */
export const bitsOf = (...reasons: DropReason[]): number =>
  CONSTRAINTS.reduce((bits, { reason }, place) => (reasons.includes(reason) ? bits | (1 << place) : bits), 0);

const UNABLE = bitsOf(...LISTED);
const INPUT = bitsOf(DropReason.INPUT);
const RESTING = bitsOf(DropReason.CIRCUIT_OPEN);
const LATE = bitsOf(DropReason.CIRCUIT_OPEN, DropReason.DEADLINE_UNREACHABLE);

/** `drops` starts with the closest, which is the listing order. */
function detailsOf(ask: Ask, drops: readonly Drop[]): RefusalDetails {
  const [nearest] = drops;
  const constraints = [...(nearest ? allOf(nearest) : []), ...drops.map(firstOf)];
  return {
    dropped: droppedOf(ask, drops),
    // Two constraints can have one reason: the caller's regions and the organization's.
    excludedBy: [...new Set(constraints.map(({ reason }) => wordOf(reason)))],
    suggestions: suggestionsOf(ask, drops),
  };
}

/** The drops as messages: one reason each, the first of the table. */
export function droppedOf(ask: Ask, drops: readonly Drop[]): DroppedOffering[] {
  return drops.map((drop) => {
    const { id, model, provider } = ask.snapshot.offerings[drop.row]!;
    const { reason, stage, detail } = firstOf(drop);
    // Written out, because there may be a hundred thousand.
    return {
      $typeName: "limber.v1.DroppedOffering",
      offeringId: id,
      model,
      provider,
      reason,
      stage,
      detail: detail(ask, drop.row),
    };
  });
}

/** Steps that this many micro-dollars do not cover, as messages. */
export const unaffordableOf = (steps: readonly PlanStep[], availableMicro: number): DroppedOffering[] =>
  steps.map(({ offering: { id: offeringId, model, provider }, costMicro }) =>
    create(DroppedOfferingSchema, {
      offeringId,
      model,
      provider,
      reason: DropReason.UNAFFORDABLE,
      stage: "remove",
      detail: `${costMicro / 1e6} USD > ${availableMicro / 1e6} USD that may be spent`,
    }),
  );

/** For each field that alone drops offerings, the smallest change that would admit one. Sorted by the number admitted, descending. */
function suggestionsOf(ask: Ask, drops: readonly Drop[]): Suggestion[] {
  const byConstraint = Map.groupBy(
    drops.filter((drop) => isAlone(drop) && isRelaxable(ask, drop)),
    firstOf,
  );
  return [...byConstraint]
    .flatMap(([constraint, alone]) =>
      constraint.changing ? changesFor(ask, constraint.changing, alone) : suggestionOf(ask, constraint, alone),
    )
    .sort((a, b) => b.admits - a.admits);
}

/** A suggestion for each change, the smallest first; limited in number, because each offering may need its own. */
function changesFor(ask: Ask, changing: NonNullable<Constraint["changing"]>, alone: readonly Drop[]): Suggestion[] {
  const byChange = Map.groupBy(
    alone.flatMap(({ row }) => changing(ask, row) ?? []),
    ({ change }) => change,
  );
  return [...byChange.values()]
    .sort(([one], [other]) => one!.size - other!.size)
    .map((alike) => {
      const { field, value, change } = alike[0]!; // no group is empty
      return create(SuggestionSchema, { field, change, admits: alike.length, ...(value !== undefined && { value }) });
    })
    .sort((a, b) => b.admits - a.admits)
    .slice(0, MOST_CHANGES);
}

const MOST_CHANGES = 8;

function isRelaxable(ask: Ask, drop: Drop): boolean {
  const { field, relaxable } = firstOf(drop);
  return field !== undefined && (relaxable?.(ask, drop.row) ?? true);
}

function suggestionOf(ask: Ask, constraint: Constraint, alone: readonly Drop[]): Suggestion {
  const field = constraint.field ?? "";
  const { admitting } = constraint;
  if (!admitting) return create(SuggestionSchema, { field, admits: alone.length });
  const values = alone.map((drop) => admitting(ask, drop.row));
  // A minimum is lowered and a maximum raised: the nearest value admits the fewest and changes the least.
  const test = constraint.test(ask, false);
  const isFloor = test?.kind === "number" && test.sign === -1;
  const value = values.reduce((a, b) => (isFloor ? Math.max(a, b) : Math.min(a, b)));
  if (!Number.isFinite(value)) return create(SuggestionSchema, { field, admits: alone.length });
  return create(SuggestionSchema, { field, value, admits: values.filter((each) => each === value).length });
}

/** The REST name of a reason, such as `max_latency_ms`. */
export function wordOf(reason: DropReason): string {
  const name = DropReasonSchema.value[reason]?.name ?? "";
  return name.slice("DROP_REASON_".length).toLowerCase();
}

/** The group in which each step was ranked. */
interface Groups {
  groupAt(place: number): number;
}

/**
 * Adds steps that use the caller's own key: instead of the gateway's if required, directly behind them as a fallback, or at the front of
 * their group if preferred.
 */
function withOwnKeys(ownKeys: OwnKeys, ranked: readonly PlanStep[], groups: Groups): PlanStep[] {
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

/** The step with the caller's own key: the provider bills the caller directly, including for a cold start. */
function ownStep(step: PlanStep): PlanStep {
  const unitNano = ownKeyNano(step.unitNano);
  const listMicro = microOf(step.units, unitNano);
  return { ...step, unitNano, ownKey: true, listMicro, wakeUpMicro: 0, costMicro: listMicro };
}

/** Whether two steps call the same offering in the same way. */
export const sameWay = (a: PlanStep, b: PlanStep): boolean => a.offering.id === b.offering.id && a.ownKey === b.ownKey;

/**
 * Whether a failure does not concern the provider's health: it rejected the caller's own key, or returned another number of steps than
 * requested without promising one.
 */
export const isNeutral = ({ ownKey, offering }: PlanStep, reason: AttemptFailure | undefined): boolean =>
  reason === AttemptFailure.WRONG_STEP_COUNT
    ? offering.chunk === undefined && offering.maxHorizon >= LONGEST_HORIZON
    : ownKey && reason === AttemptFailure.UPSTREAM_AUTH;
