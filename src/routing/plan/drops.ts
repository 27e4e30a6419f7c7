/** Why a request has no route: every dropped offering with its reason, and the smallest relaxations. Made only when asked for. */
import { create } from "@bufbuild/protobuf";
import {
  type DroppedOffering,
  DroppedOfferingSchema,
  DropReason,
  DropReasonSchema,
  type Suggestion,
  SuggestionSchema,
} from "../../../gen/limber/v1/plan_pb.ts";
import type { InputFault } from "../../contracts/inputs.ts";
import { readsOf } from "../../contracts/inputs.ts";
import { Reason, type Refusal, type RefusalDetails, refuse } from "../../errors.ts";
import { CONSTRAINTS, type Constraint, faultsAt, LISTED } from "./constrain.ts";
import { consideredRows, withoutSupply, wrongActionSpace } from "./expand.ts";
import type { Ask } from "./intent.ts";
import { costMicro } from "./measure.ts";
import { nearNames } from "./near.ts";
import type { PlanStep } from "./plan.ts";
import { passes, type Test } from "./sift.ts";

/** A row that does not survive, and every constraint that it breaks: a bit for each, by its place in the table. At least one. */
export interface Drop {
  readonly row: number;
  readonly broken: number;
}

/** Every row that the request stands for and that may not serve it. */
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

/** The same of one of these rows; undefined where it survives. */
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

/** Adds a bit to each row that breaks a test. Figures of the moment are measured for all rows at once. */
function breaking(ask: Ask, test: Test, rows: Uint32Array, bit: number, broken: Uint32Array): void {
  if (test.kind !== "cost" && test.kind !== "measured") {
    for (let i = 0; i < rows.length; i++) if (!passes(ask, test, rows[i]!)) broken[i]! |= bit;
    return;
  }
  const figures = new Float64Array(rows.length);
  (test.kind === "cost" ? costMicro : test.measure)(ask, rows, rows.length, figures);
  for (let i = 0; i < rows.length; i++) if (!(figures[i]! <= test.limit)) broken[i]! |= bit;
}

/** The first constraint of the table that a row breaks. */
const firstOf = ({ broken }: Drop): Constraint => CONSTRAINTS[31 - Math.clz32(broken & -broken)]!;

/** A row breaks one constraint and no other. */
const isAlone = ({ broken }: Drop): boolean => (broken & (broken - 1)) === 0;

/** How far a row is from serving: first those that could serve the contract at all, and of these those that break the fewest constraints. */
function distanceOf({ broken }: Drop): number {
  let distance = (broken & UNABLE) === 0 ? 0 : CONSTRAINTS.length;
  for (let bits = broken; bits !== 0; bits &= bits - 1) distance++;
  return distance;
}

/** Drops with the decisive ones first; equally near ones stay in the order of the request. */
const nearestFirst = (drops: readonly Drop[]): Drop[] =>
  drops
    .map((drop) => ({ drop, distance: distanceOf(drop) }))
    .sort((a, b) => a.distance - b.distance)
    .map(({ drop }) => drop);

/** The constraints that a row breaks, in the order of the table. */
const allOf = ({ broken }: Drop): Constraint[] => CONSTRAINTS.filter((_, place) => (broken & (1 << place)) !== 0);

/** What keeps the nearest offerings out, in a clause; empty where none could serve the contract at all. `drops` have the nearest first. */
function decisiveOf(ask: Ask, drops: readonly Drop[]): string {
  const [nearest] = drops;
  if (nearest === undefined || (nearest.broken & UNABLE) !== 0) return "";
  const { provider } = ask.snapshot.offerings[nearest.row]!;
  const why = `${provider}: ${firstOf(nearest).detail(ask, nearest.row)}`;
  if (!isAlone(nearest)) {
    const reasons = allOf(nearest).map(({ reason }) => `\`${wordOf(reason)}\``);
    return `; the nearest is kept out by ${[...new Set(reasons)].join(", ")} (${why})`;
  }
  const { reason } = firstOf(nearest);
  const count = drops.filter((drop) => isAlone(drop) && firstOf(drop).reason === reason).length;
  return `; \`${wordOf(reason)}\` alone keeps out ${count} of them (${why})`;
}

/** The refusal of a request that nothing may serve. */
export function refusalOf(ask: Ask): Refusal {
  const early = wrongActionSpace(ask) ?? withoutSupply(ask);
  if (early) return early;
  const drops = nearestFirst(dropsOf(ask));
  const details = detailsOf(ask, drops);
  const considered = `${drops.length} offering${drops.length === 1 ? "" : "s"} considered`;
  const resting = drops.filter(({ broken }) => (broken & ~RESTING) === 0);
  if (resting.length > 0) {
    const earliest = Math.min(...resting.map((drop) => ask.health.restsUntil[drop.row]!));
    const text = `${considered}; those that could serve are resting after failures`;
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
  const text = `${considered}, none satisfies the constraints${decisiveOf(ask, drops)}${strangers.length === 0 ? "" : `; there is no provider ${strangers.map((name) => JSON.stringify(name)).join(", ")}`}`;
  const near = strangers.flatMap((name) => nearNames(name, ask.snapshot.providers.names));
  return refuse(Reason.NO_ROUTE_AVAILABLE, text, { ...details, ...(near.length > 0 && { near }) });
}

/**
 * The refusal of a request that every offering would serve if it were only read: it names each field that the nearest one lacks or does not
 * read. Undefined where something else keeps an offering out. What could not serve the contract at all is no part of the question.
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
  const text = `no offering reads this: ${reads}`;
  const param = nearest[0]?.path;
  return refuse(
    Reason.INPUT_CONTRACT,
    text,
    { ...details, violations, needed: [...needed] },
    param === undefined ? {} : { param },
  );
}

/** Letters of what one offering reads: the words in it are its provider's. */
const MOST_READ = 800;
/** What so many offerings read is told. */
const MOST_NEEDED = 8;

function readAt({ snapshot, intent }: Ask, row: number): string {
  const { model, provider, declared } = snapshot.offerings[row]!;
  const reads = `${model} at ${provider} reads ${(declared?.input && readsOf(declared.input, intent.actionSpace)) ?? "something else"}`;
  return reads.slice(0, MOST_READ);
}

/** The first unknown one of the providers that alone may serve: misspelt perhaps. */
function strangersOf({ preferences, strictOrder, snapshot }: Ask): string[] {
  const named = [...(preferences?.only ?? []), ...(strictOrder ? (preferences?.order ?? []) : [])];
  return named.filter((name) => snapshot.providers.of(name) < 0).slice(0, MOST_STRANGERS);
}

const MOST_STRANGERS = 3;
/** Offerings that a sentence names; the details have all. */
const MOST_TOLD = 3;

function retryIn(ms: number): { retryAfter?: number } {
  return Number.isFinite(ms) ? { retryAfter: Math.max(1, Math.ceil(ms / 1000)) } : {};
}

/** The bits of the constraints that have these reasons. */
export const bitsOf = (...reasons: DropReason[]): number =>
  CONSTRAINTS.reduce((bits, { reason }, place) => (reasons.includes(reason) ? bits | (1 << place) : bits), 0);

const UNABLE = bitsOf(...LISTED);
const INPUT = bitsOf(DropReason.INPUT);
const RESTING = bitsOf(DropReason.CIRCUIT_OPEN);
const LATE = bitsOf(DropReason.CIRCUIT_OPEN, DropReason.DEADLINE_UNREACHABLE);

/** `drops` have the nearest first: what they are listed by. */
function detailsOf(ask: Ask, drops: readonly Drop[]): RefusalDetails {
  const [nearest] = drops;
  const constraints = [...(nearest ? allOf(nearest) : []), ...drops.map(firstOf)];
  return {
    dropped: droppedOf(ask, drops),
    // Two constraints may have one reason: the caller's regions and the organisation's.
    excludedBy: [...new Set(constraints.map(({ reason }) => wordOf(reason)))],
    suggestions: suggestionsOf(ask, drops),
  };
}

/** The drops as the wire carries them: one reason each, the first of the table. */
export function droppedOf(ask: Ask, drops: readonly Drop[]): DroppedOffering[] {
  return drops.map((drop) => {
    const { id, model, provider } = ask.snapshot.offerings[drop.row]!;
    const { reason, stage, detail } = firstOf(drop);
    // Written out: there may be a hundred thousand.
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

/** Steps that so many micro-dollars do not pay for, as the wire carries them. */
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

/** For each field that alone keeps offerings out, the smallest change of it that would admit one. Most admitted first. */
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

/** A suggestion for each change, the smallest first; those that are told are few, as each offering may want its own. */
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
  // A floor is relaxed downwards, a ceiling upwards: the nearest value admits the fewest and changes the least.
  const test = constraint.test(ask, false);
  const isFloor = test?.kind === "number" && test.sign === -1;
  const value = values.reduce((a, b) => (isFloor ? Math.max(a, b) : Math.min(a, b)));
  if (!Number.isFinite(value)) return create(SuggestionSchema, { field, admits: alone.length });
  return create(SuggestionSchema, { field, value, admits: values.filter((each) => each === value).length });
}

/** The word of a reason as REST spells it, such as `max_latency_ms`. */
export function wordOf(reason: DropReason): string {
  const name = DropReasonSchema.value[reason]?.name ?? "";
  return name.slice("DROP_REASON_".length).toLowerCase();
}
