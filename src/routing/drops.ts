/** Why a request has no route: every dropped offering with its reason, and the smallest relaxations. Made only when asked for. */
import { create } from "@bufbuild/protobuf";
import {
  type DroppedOffering,
  DroppedOfferingSchema,
  DropReason,
  DropReasonSchema,
  type Suggestion,
  SuggestionSchema,
} from "../../gen/limber/v1/plan_pb.ts";
import { Reason, type Refusal, type RefusalDetails, refuse } from "../refusal.ts";
import { CONSTRAINTS, type Constraint } from "./constrain.ts";
import { consideredRows, withoutSupply, wrongActionSpace } from "./expand.ts";
import type { Ask } from "./intent.ts";
import { passes } from "./sift.ts";

/** A row that does not survive, and every constraint that it breaks, in the table's order. */
export interface Drop {
  readonly row: number;
  readonly broken: readonly Constraint[];
}

/** Every row that the request stands for and that may not serve it. */
export function dropsOf(ask: Ask): Drop[] {
  const tests = CONSTRAINTS.flatMap((constraint) => {
    const test = constraint.test(ask);
    return test ? [{ constraint, test }] : [];
  });
  const drops: Drop[] = [];
  for (const row of consideredRows(ask)) {
    const broken: Constraint[] = [];
    for (const { constraint, test } of tests) if (!passes(ask, test, row)) broken.push(constraint);
    if (broken.length > 0) drops.push({ row, broken });
  }
  return drops;
}

/** The refusal of a request that nothing may serve. */
export function refusalOf(ask: Ask): Refusal {
  const early = wrongActionSpace(ask) ?? withoutSupply(ask);
  if (early) return early;
  const drops = dropsOf(ask);
  const details = detailsOf(ask, drops);
  const considered = `${drops.length} offering${drops.length === 1 ? "" : "s"} considered`;
  const resting = drops.filter((drop) => breaksOnly(drop, [DropReason.CIRCUIT_OPEN]));
  if (resting.length > 0) {
    const earliest = Math.min(...resting.map((drop) => ask.health.restsUntil[drop.row]!));
    const text = `${considered}; those that could serve are resting after failures`;
    return refuse(Reason.CAPACITY_EXHAUSTED, text, details, retryIn(earliest - ask.now));
  }
  if (drops.some((drop) => breaksOnly(drop, [DropReason.CIRCUIT_OPEN, DropReason.DEADLINE_UNREACHABLE]))) {
    return refuse(Reason.DEADLINE_EXCEEDED, `${considered}; none is expected to finish in time`, details);
  }
  return refuse(Reason.NO_ROUTE_AVAILABLE, `${considered}, none satisfies the constraints`, details);
}

function retryIn(ms: number): { retryAfter?: number } {
  return Number.isFinite(ms) ? { retryAfter: Math.max(1, Math.ceil(ms / 1000)) } : {};
}

function breaksOnly(drop: Drop, reasons: readonly DropReason[]): boolean {
  return drop.broken.every((constraint) => reasons.includes(constraint.reason));
}

function detailsOf(ask: Ask, drops: readonly Drop[]): RefusalDetails {
  const reasons = new Set(drops.map((drop) => drop.broken[0]!.reason));
  return {
    dropped: droppedOf(ask, drops),
    // Two constraints may have one reason: the caller's regions and his organisation's.
    excludedBy: [
      ...new Set(CONSTRAINTS.filter(({ reason }) => reasons.has(reason)).map(({ reason }) => wordOf(reason))),
    ],
    suggestions: suggestionsOf(ask, drops),
  };
}

/** The drops as the wire carries them: one reason each, the first of the table. */
export function droppedOf(ask: Ask, drops: readonly Drop[]): DroppedOffering[] {
  return drops.map(({ row, broken }) => {
    const { id, model, provider } = ask.snapshot.offerings[row]!;
    const { reason, stage, detail } = broken[0]!;
    return create(DroppedOfferingSchema, { offeringId: id, model, provider, reason, stage, detail: detail(ask, row) });
  });
}

/** For each field that alone keeps offerings out, the smallest change of it that would admit one. Most admitted first. */
function suggestionsOf(ask: Ask, drops: readonly Drop[]): Suggestion[] {
  const byConstraint = Map.groupBy(
    drops.filter((drop) => drop.broken.length === 1 && drop.broken[0]!.field !== undefined),
    (drop) => drop.broken[0]!,
  );
  return [...byConstraint]
    .map(([constraint, alone]) => suggestionOf(ask, constraint, alone))
    .sort((a, b) => b.admits - a.admits);
}

function suggestionOf(ask: Ask, constraint: Constraint, alone: readonly Drop[]): Suggestion {
  const field = constraint.field ?? "";
  const { admitting } = constraint;
  if (!admitting) return create(SuggestionSchema, { field, admits: alone.length });
  const values = alone.map((drop) => admitting(ask, drop.row));
  // A floor is relaxed downwards, a ceiling upwards: the nearest value admits the fewest and changes the least.
  const test = constraint.test(ask);
  const isFloor = test?.kind === "number" && test.sign === -1;
  const value = values.reduce((a, b) => (isFloor ? Math.max(a, b) : Math.min(a, b)));
  if (!Number.isFinite(value)) return create(SuggestionSchema, { field, admits: alone.length });
  return create(SuggestionSchema, { field, value, admits: values.filter((each) => each === value).length });
}

/** The word of a reason as REST spells it, such as `max_latency_ms`. */
function wordOf(reason: DropReason): string {
  const name = DropReasonSchema.value[reason]?.name ?? "";
  return name.slice("DROP_REASON_".length).toLowerCase();
}
