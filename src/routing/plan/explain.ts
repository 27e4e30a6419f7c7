/** Plans for others: the preview, the log, and whether an earlier response can be replayed. */
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
  type QualityEvaluation,
  QualityEvaluationSchema,
} from "../../../gen/limber/v1/plan_pb.ts";
import { Reach } from "../../call.ts";
import { differenceOf } from "../../contracts/inputs.ts";
import { TRUSTS, tierOf } from "../../contracts/trust.ts";
import { factsOf, Reason, Refusal, refuse } from "../../errors.ts";
import { evaluationsOf } from "../offering.ts";
import { inScope } from "../snapshot/snapshot.ts";
import {
  type Ask,
  consideredRows,
  declare,
  meaningAt,
  type PlanArgs,
  type RoutingTarget,
  universeOf,
  withoutSupply,
  wrongActionSpace,
} from "./intent.ts";
import {
  affordable,
  bitsOf,
  type Drop,
  dropOf,
  droppedOf,
  dropsOf,
  mayHedge,
  type Plan,
  type PlanStep,
  planOf,
  refusalOf,
  unaffordableOf,
  wordOf,
} from "./plan.ts";

/** Maximum number of steps in a preview; a call attempts fewer. */
const MOST_EXPLAINED = 256;

/** The available credit, if it does not cover the plan. */
export interface AvailableCredit {
  readonly availableMicro: number;
  /** The code of the refusal if no step is covered. */
  readonly code: string;
}

/**
 * The plan of a request step by step, with drops and cost. If no offering can serve the request, `would_refuse` holds the refusal; errors
 * of the request itself are thrown.
 */
export function explain(args: PlanArgs, credit?: AvailableCredit): PreviewRoutesResponse {
  const ask = declare(args);
  const whole = wrongActionSpace(ask) ? undefined : planOf(ask, MOST_EXPLAINED);
  // A plan without any covered step stays unchanged: it shows the required credit.
  const isBroke = credit !== undefined && whole !== undefined && whole.leastMicro > credit.availableMicro;
  const plan = whole && credit && !isBroke ? (affordable(whole, credit.availableMicro) ?? whole) : whole;
  const code = isBroke ? credit.code : whole ? undefined : factsOf(refusalOf(ask).reason).code;
  const rows = [...consideredRows(ask)];
  const drops = dropsOf(ask);
  const dropped = [
    ...droppedOf(ask, drops),
    ...unaffordable(whole, plan, credit),
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

/** The steps dropped because the caller cannot pay for them. */
function unaffordable(
  whole: Plan | undefined,
  plan: Plan | undefined,
  credit: AvailableCredit | undefined,
): DroppedOffering[] {
  if (!whole || !plan || !credit || whole === plan) return [];
  const kept = new Set(plan.steps.map(({ row }) => row));
  const lost = new Map(whole.steps.filter(({ row }) => !kept.has(row)).map((step) => [step.row, step]));
  return unaffordableOf([...lost.values()], credit.availableMicro);
}

/** Offerings that satisfy every constraint and are still not attempted, with the reason. */
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
      const detail = `its actions differ in ${difference} from those of the first offering`;
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
    return { reason: DropReason.PLAN_FULL, detail: `ranked below the first ${MOST_EXPLAINED}`, stage: "order" };
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
    quality: qualityOf(ask, step),
  });
}

/** The published evaluations that its position depends on. */
function qualityOf(ask: Ask, { row, offering }: PlanStep): QualityEvaluation[] {
  const { ordering, alias } = targetAt(ask, row) ?? {};
  const axes =
    ordering?.kind === "axis"
      ? [ordering.axis]
      : ordering?.kind === "objective"
        ? ordering.weights.map(([axis]) => axis)
        : [];
  if (!axes.includes("quality")) return [];
  return evaluationsOf(offering, ask.intent.actionSpace, alias).map(({ low, ...evaluation }) =>
    create(QualityEvaluationSchema, { ...evaluation, lowerBound: low }),
  );
}

/** The model or alias of the request that a row was ranked for. */
const targetAt = (ask: Ask, row: number): RoutingTarget | undefined =>
  ask.targets.find((each) => universeOf(ask, each).includes(row));

/** A figure if it is known. */
const known = (name: "p50" | "p95", ms: number) => (Number.isFinite(ms) ? { [name]: ms } : {});

function reasonCodes(ask: Ask, plan: Plan, step: PlanStep): string[] {
  const target = targetAt(ask, step.row);
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

/** The step that would be the hedge. */
function hedgeOf(plan: Plan): PlanStep | undefined {
  const first = plan.steps[0];
  if (!first || plan.hedgeAfterMs === undefined) return undefined;
  return plan.steps.find((step) => step !== first && mayHedge(first, step, plan.maxCostMicro));
}

/** An offering of a digest. */
interface DigestedOffering {
  readonly offering_id: string;
  readonly model: string;
  readonly provider: string;
}

/** The part of a plan that equal requests share. Stored as JSON. */
export interface PlanDigest {
  readonly considered: number;
  /** Ids of the eligible offerings; empty if too many were considered to check. */
  readonly able: readonly DigestedOffering[];
  /** Number of drops by reason. */
  readonly drops: Readonly<Record<string, number>>;
  /** The first of them. */
  readonly dropped: readonly (DigestedOffering & { readonly reason: string })[];
}

/** Beyond this number, offerings are counted and not checked. */
const MOST_CONSIDERED = 2_000;
/** Maximum number of eligible offerings listed. */
const MOST_ABLE = 64;
/** Maximum number of dropped offerings listed. */
const MOST_DROPPED = 8;

/** The digest of a request's plan; undefined if the request itself is invalid. */
export function digestOf(args: PlanArgs): PlanDigest | undefined {
  try {
    return made(args);
  } catch (thrown) {
    if (thrown instanceof Refusal) return undefined;
    throw thrown;
  }
}

function made(args: PlanArgs): PlanDigest {
  const ask = declare(args);
  const rows = [...consideredRows(ask)];
  const nothing = { considered: rows.length, able: [], drops: {}, dropped: [] };
  if (rows.length > MOST_CONSIDERED || wrongActionSpace(ask) || withoutSupply(ask)) return nothing;
  const all = dropsOf(ask);
  const drops: Record<string, number> = {};
  const dropped = droppedOf(ask, all).map(({ offeringId, model, provider, reason }) => {
    const word = wordOf(reason);
    drops[word] = (drops[word] ?? 0) + 1;
    return { offering_id: offeringId, model, provider, reason: word };
  });
  const gone = new Set(all.map(({ row }) => row));
  const able = rows
    .filter((row) => !gone.has(row))
    .map((row) => {
      const { id, model, provider } = ask.snapshot.offerings[row]!;
      return { offering_id: id, model, provider };
    })
    .sort((a, b) => (a.offering_id < b.offering_id ? -1 : 1));
  return {
    considered: rows.length,
    able: able.slice(0, MOST_ABLE),
    drops,
    // Listed in a fixed order, so that equal plans have one digest: the rarest reasons first, because they are the most informative.
    dropped: dropped
      .sort(
        (a, b) => drops[a.reason]! - drops[b.reason]! || (a.reason + a.offering_id < b.reason + b.offering_id ? -1 : 1),
      )
      .slice(0, MOST_DROPPED),
  };
}

/** The offering of a response, as recorded in it. */
export interface AnsweredBy {
  readonly offeringId: string;
  readonly model: string;
  readonly simulated: boolean;
}

/** The offering's status for this caller, regardless of cost, performance and declared inputs. */
const AUTHORITY = bitsOf(
  DropReason.NOT_SIMULATED_ALLOWED,
  DropReason.KEY_SCOPE,
  DropReason.ZDR,
  DropReason.REGION,
  DropReason.NOT_IN_ONLY,
  DropReason.NOT_IN_OFFERINGS,
  DropReason.IN_IGNORE,
  DropReason.TRUST,
  DropReason.UNSIGNED,
  DropReason.DATA_COLLECTION,
);

/** Refuses like a new call whose only offering is that of the first call. */
export function assertMayReplay(args: PlanArgs, by: AnsweredBy): void {
  const { snapshot } = args;
  if (snapshot.rowOf(by.offeringId) < 0) {
    assertUnrestricted(args, by);
    return;
  }
  const ask = declare(args);
  const row = snapshot.rowOf(by.offeringId);
  const broken = (dropOf(ask, row)?.broken ?? 0) & AUTHORITY;
  if (broken === 0 && stands(ask, row)) return;
  if (planOf(ask, 1) === undefined) throw refusalOf(ask);
  const dropped = broken === 0 ? [] : droppedOf(ask, [{ row, broken }]);
  const why = dropped[0]?.detail ?? "the request no longer selects it";
  throw refuse(Reason.NO_ROUTE_AVAILABLE, `the offering of the first call cannot serve this call: ${why}`, {
    dropped,
  });
}

const stands = (ask: Ask, row: number): boolean => ask.targets.some((target) => universeOf(ask, target).includes(row));

/** The trust of a removed offering is unknown, so its responses are replayed only to callers without restrictions. */
function assertUnrestricted({ scope, intent }: PlanArgs, by: AnsweredBy): void {
  if (!inScope(scope.models, by.model)) throw outOfScope(by);
  const { reach, requireSigned = false, settings, environment } = scope;
  const isRestricted =
    reach < Reach.COMMUNITY || requireSigned || settings?.zdr === true || settings?.allowedRegions !== undefined;
  const isPlaceholder = by.simulated && (environment === "hardware" || intent.provider?.allowSimulated !== true);
  if (!isRestricted && !isPlaceholder) return;
  const text = "the offering of the first call no longer exists, so a restricted key cannot receive its response again";
  throw refuse(Reason.NO_LIVE_DEPLOYMENT, text, {}, { param: "model" });
}

const outOfScope = ({ model }: AnsweredBy): Refusal =>
  refuse(Reason.MODEL_NOT_IN_SCOPE, `the key cannot use ${model}`, { needed: [model] }, { param: "model" });
