/** What a request's plan would be and why: the answer of `routes/preview`. Runs nothing. */
import { create } from "@bufbuild/protobuf";
import {
  CostRangeSchema,
  type PreviewRoutesResponse,
  PreviewRoutesResponseSchema,
  WouldRefuseSchema,
} from "../../../gen/limber/v1/inference_service_pb.ts";
import {
  type DroppedOffering,
  DroppedOfferingSchema,
  DropReason,
  ExpectedLatencySchema,
  type PlanStep as PlanStepMessage,
  PlanStepSchema,
} from "../../../gen/limber/v1/plan_pb.ts";
import { differenceOf } from "../../contracts/action-meaning.ts";
import { TRUSTS, tierOf } from "../../contracts/trust.ts";
import { factsOf } from "../../errors.ts";
import { type Drop, droppedOf, dropsOf, refusalOf, unaffordableOf } from "./drops.ts";
import { consideredRows, universeOf, wrongActionSpace } from "./expand.ts";
import { type Ask, declare, meaningAt, type PlanArgs } from "./intent.ts";
import { affordable, mayHedge, type Plan, type PlanStep, planOf } from "./plan.ts";

/** The most steps that a preview lists; a call tries fewer. */
const MOST_EXPLAINED = 256;

/** What there is to pay with, where it does not cover the plan. */
export interface Purse {
  readonly availableMicro: number;
  /** The code of the refusal where no step is covered. */
  readonly code: string;
}

/**
 * The plan of a request, step by step, what was dropped, and what it would cost. Where nothing could serve the request,
 * `would_refuse` says how it would be refused; what is wrong with the request itself is thrown.
 */
export function explain(args: PlanArgs, purse?: Purse): PreviewRoutesResponse {
  const ask = declare(args);
  const whole = wrongActionSpace(ask) ? undefined : planOf(ask, MOST_EXPLAINED);
  // A plan of which nothing is covered stays as it is: it says what would have to be there.
  const isBroke = purse !== undefined && whole !== undefined && whole.leastMicro > purse.availableMicro;
  const plan = whole && purse && !isBroke ? (affordable(whole, purse.availableMicro) ?? whole) : whole;
  const code = isBroke ? purse.code : whole ? undefined : factsOf(refusalOf(ask).reason).code;
  const rows = [...consideredRows(ask)];
  const drops = dropsOf(ask);
  const dropped = [
    ...droppedOf(ask, drops),
    ...unaffordable(whole, plan, purse),
    ...unplanned(ask, whole, rows, drops),
  ];
  return create(PreviewRoutesResponseSchema, {
    object: "route_plan",
    contract: ask.contract,
    considered: rows.length,
    plan: plan?.steps.map((step) => explainStep(ask, plan, step)) ?? [],
    dropped,
    estimatedCostUsd: create(CostRangeSchema, plan && rangeOf(plan)),
    pinned: plan?.pinned ?? false,
    ...(code !== undefined && { wouldRefuse: create(WouldRefuseSchema, { code }) }),
  });
}

/** What a plan lost because it cannot be paid. */
function unaffordable(whole: Plan | undefined, plan: Plan | undefined, purse: Purse | undefined): DroppedOffering[] {
  if (!whole || !plan || !purse || whole === plan) return [];
  const kept = new Set(plan.steps.map(({ row }) => row));
  const lost = new Map(whole.steps.filter(({ row }) => !kept.has(row)).map((step) => [step.row, step]));
  return unaffordableOf([...lost.values()], purse.availableMicro);
}

/** What satisfies every constraint and is not tried all the same, with the reason. */
function unplanned(
  ask: Ask,
  plan: Plan | undefined,
  rows: readonly number[],
  drops: readonly Drop[],
): DroppedOffering[] {
  const told = new Set(drops.map(({ row }) => row));
  for (const { row } of plan?.steps ?? []) told.add(row);
  const why = whyUnplanned(ask, plan);
  return rows
    .filter((row) => !told.has(row))
    .map((row) => {
      const { id: offeringId, model, provider } = ask.snapshot.offerings[row]!;
      const difference = differenceOf(plan?.meaning, meaningAt(ask, row));
      if (difference === undefined) return create(DroppedOfferingSchema, { offeringId, model, provider, ...why });
      const detail = `its actions differ in ${difference} from those of the offering that goes first`;
      const reason = DropReason.ACTION_MEANING;
      return create(DroppedOfferingSchema, { offeringId, model, provider, reason, detail, stage: "order" });
    });
}

function whyUnplanned(ask: Ask, plan: Plan | undefined): Pick<DroppedOffering, "reason" | "detail" | "stage"> {
  if (!plan)
    return {
      reason: DropReason.ACTION_SPACE,
      detail: "another model of the request does not emit it",
      stage: "expand",
    };
  if (ask.allowFallbacks || ask.strictOrder)
    return { reason: DropReason.PLAN_FULL, detail: `ranked behind the first ${MOST_EXPLAINED}`, stage: "order" };
  return { reason: DropReason.NO_FALLBACKS, detail: `${plan.steps[0]!.offering.id} goes first`, stage: "order" };
}

const rangeOf = ({ leastMicro, expectedMicro, ceilingMicro }: Plan) => ({
  min: leastMicro / 1e6,
  expected: expectedMicro / 1e6,
  max: ceilingMicro / 1e6,
});

function explainStep(ask: Ask, plan: Plan, step: PlanStep): PlanStepMessage {
  const { id, model, provider, region, precision } = step.offering;
  const { unitNano } = step;
  return create(PlanStepSchema, {
    rank: step.rank + 1,
    offeringId: id,
    model,
    provider,
    region,
    precision,
    score: Number.isFinite(step.score) ? step.score : Number.MAX_VALUE,
    priceUnitUsd: ask.priceNano[step.row]! / 1e9,
    priceNowUsd: Math.round(unitNano + (step.wakeUpMicro * 1000) / step.units) / 1e9,
    estimatedCostUsd: step.costMicro / 1e6,
    wakeUpUsd: step.wakeUpMicro / 1e6,
    expectedMs: create(ExpectedLatencySchema, { ...known("p50", step.p50Ms), ...known("p95", step.p95Ms) }),
    cold: step.cold,
    reasonCodes: reasonCodes(ask, plan, step),
    ...(step.ownKey && { byok: true }),
    trust: TRUSTS[tierOf(step.offering.supplier, ask.scope.orgId)],
    input: step.offering.declared?.input,
    actions: meaningAt(ask, step.row),
  });
}

/** A figure where it is known. */
const known = (name: "p50" | "p95", ms: number) => (Number.isFinite(ms) ? { [name]: ms } : {});

function reasonCodes(ask: Ask, plan: Plan, step: PlanStep): string[] {
  const target = ask.targets.find((each) => universeOf(ask, each).includes(step.row));
  const ordering = target?.ordering;
  const codes: string[] = [];
  if (step.pinned) codes.push("pinned");
  if (ask.preferences?.order.includes(step.offering.provider)) codes.push("order");
  if (ordering) codes.push(ordering.kind === "axis" ? ordering.from : ordering.kind);
  if (target !== ask.targets[0]) codes.push("fallback_model");
  if (step.ownKey) codes.push("byok");
  if (step.cold) codes.push("cold");
  if (step.offering.simulated) codes.push("simulated");
  if (hedgeOf(plan) === step) codes.push("hedge");
  return codes;
}

/** The step that would be asked when the first is late. */
function hedgeOf(plan: Plan): PlanStep | undefined {
  const first = plan.steps[0];
  if (!first || plan.hedgeAfterMs === undefined) return undefined;
  return plan.steps.find((step) => step !== first && mayHedge(first, step, plan.maxCostMicro));
}
