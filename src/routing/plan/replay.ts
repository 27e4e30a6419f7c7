/** Whether an answer that was given before may be given again to who asks now: what the caller may have, and nothing of the moment. */
import { DropReason } from "../../../gen/limber/v1/plan_pb.ts";
import { Reach } from "../../contracts/trust.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { inScope } from "../snapshot/snapshot.ts";
import { bitsOf, dropOf, droppedOf, refusalOf } from "./drops.ts";
import { universeOf } from "./expand.ts";
import { type Ask, declare, type PlanArgs } from "./intent.ts";
import { planOf } from "./plan.ts";

/** Who answered, as the answer says it. */
export interface AnsweredBy {
  readonly offeringId: string;
  readonly model: string;
  readonly simulated: boolean;
}

/** What an offering is to this caller, whatever it costs, how it does and what it reads at the moment. */
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

/** Refuses as a new call would be refused whose only offering is the one that answered. */
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
  const why = dropped[0]?.detail ?? "the request does not stand for it any more";
  throw refuse(Reason.NO_ROUTE_AVAILABLE, `the offering that answered first cannot serve this call: ${why}`, {
    dropped,
  });
}

const stands = (ask: Ask, row: number): boolean => ask.targets.some((target) => universeOf(ask, target).includes(row));

/** The trust of a removed offering is unknown, so its answers are replayed only to callers without restrictions. */
function assertUnrestricted({ scope, intent }: PlanArgs, by: AnsweredBy): void {
  if (!inScope(scope.models, by.model)) throw outOfScope(by);
  const { reach, requireSigned = false, settings, environment } = scope;
  const isRestricted =
    reach < Reach.COMMUNITY || requireSigned || settings?.zdr === true || settings?.allowedRegions !== undefined;
  const isPlaceholder = by.simulated && (environment === "hardware" || intent.provider?.allowSimulated !== true);
  if (!isRestricted && !isPlaceholder) return;
  const text =
    "the offering that answered the first call is gone, so its answer is not given again to a restricted key";
  throw refuse(Reason.NO_LIVE_DEPLOYMENT, text, {}, { param: "model" });
}

const outOfScope = ({ model }: AnsweredBy): Refusal =>
  refuse(Reason.MODEL_NOT_IN_SCOPE, `the key may not use ${model}`, { needed: [model] }, { param: "model" });
