/** What the targets of spans get of a call, from its bill. */
import { AttemptStatus, type Route } from "../../gen/limber/v1/route_pb.ts";
import { type Call, keyOf } from "../call.ts";
import { failureWord } from "../contracts/failure.ts";
import type { CallWatch } from "../events/broadcast/broadcaster.ts";
import { type EndedCall, passedOn } from "../events/broadcast/ended-call.ts";
import type { Plan, PlanStep } from "../routing/index.ts";
import type { RequestRecord } from "../store/billing/ledger.ts";
import type { CallFacts } from "./call-billing.ts";

/** A call that ended, with all that is known of it. */
export interface CallEnding {
  readonly call: Call;
  readonly plan: Plan;
  readonly asked: CallFacts;
  readonly record: RequestRecord;
  readonly route: Route | undefined;
  /** The offering that served it; undefined where none did. */
  readonly step: PlanStep | undefined;
}

/** The call as targets get it. */
export function endedOf({ call, plan, asked, record, route, step }: CallEnding): EndedCall {
  const { keyId, orgId, userId, workspaceId } = keyOf(call);
  return {
    requestId: record.requestId,
    orgId,
    keyId,
    userId,
    workspaceId,
    sessionId: asked.sessionId,
    traceparent: call.traceparent,
    contract: record.contract,
    modelRequested: asked.modelRequested,
    model: record.model,
    provider: record.provider,
    offeringId: record.offeringId,
    region: route?.region ?? step?.offering.region,
    httpStatus: record.httpStatus ?? 200,
    errorCode: record.errorCode ?? undefined,
    latencyMs: record.latencyMs ?? 0,
    attempts: route ? attemptsOf(route) : directOf(record, step),
    fallbackUsed: route?.fallbackUsed ?? false,
    hedged: record.hedgeCostMicro !== null,
    simulated: record.simulated,
    units: record.units,
    costMicro: record.costMicro,
    deadlineMs: asked.deadlineMs,
    actionSpace: plan.intent.actionSpace,
    dtMs: step?.offering.dtMs || undefined,
    streamId: asked.streamId,
    metadata: asked.metadata,
  };
}

/** The header by which a call hands its trace on; undefined where there is none to hand on. */
export const handedOn = (
  watch: CallWatch | undefined,
  call: Call,
  named: string | undefined,
  { offering }: PlanStep,
): string | undefined => {
  const { traceparent, requestId } = call;
  if (!watch) return passedOn(traceparent);
  // As the spans themselves, which know no session where no data is retained.
  const sessionId = keyOf(call).settings.zdr ? undefined : named;
  return watch.handOn({ requestId, sessionId, traceparent }, offering.id);
};

const STATUS: Readonly<Partial<Record<AttemptStatus, "ok" | "error" | "cancelled">>> = {
  [AttemptStatus.OK]: "ok",
  [AttemptStatus.CANCELLED]: "cancelled",
};

const attemptsOf = ({ attempts }: Route): EndedCall["attempts"] =>
  attempts.map(({ offeringId, model, provider, status, reason, latencyMs }) => ({
    offeringId,
    model,
    provider,
    status: STATUS[status] ?? "error",
    reason: failureWord(reason),
    latencyMs,
  }));

/** A call without a plan has one provider, and lists no attempts. */
const directOf = (
  { model, provider, offeringId, latencyMs }: RequestRecord,
  step: PlanStep | undefined,
): EndedCall["attempts"] =>
  step ? [{ offeringId, model, provider, status: "ok", reason: undefined, latencyMs: latencyMs ?? 0 }] : [];
