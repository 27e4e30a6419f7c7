/** The end of an evaluation, by any runner: what never began is dropped, the result is kept, and the event is emitted. */

import { type EventData, emit } from "../../events/emit.ts";
import { type Sql, tx } from "../../store/database/tx.ts";
import { advance, dropRest, type JobHold, workspaceOf } from "../../store/jobs/jobs.ts";
import type { JobSeal } from "../job/seal.ts";
import type { EvaluationResult } from "./request.ts";

/** How an evaluation may end. */
export type EvaluationEnd = "completed" | "failed" | "cancelled" | "expired";

/** Ends a held evaluation; of a fenced holder nothing is kept. */
export function endEvaluation(
  sql: Sql,
  { orgId, ...hold }: JobHold & { readonly orgId: string },
  status: EvaluationEnd,
  result: EvaluationResult,
  seal: JobSeal,
): Promise<void> {
  const { harness, calls } = result;
  const open = { ...(harness !== undefined && { harness }), ...(calls && { calls }) };
  return tx(sql, async (tx) => {
    await dropRest(tx, hold);
    await advance(tx, hold, status, seal.result(result, open));
    await emit(tx, orgId, EVENTS[status](hold.id), await workspaceOf(tx, hold.id));
  });
}

const cancelled = (jobId: string): EventData => ({ case: "evaluationCancelled", value: { jobId } });
const EVENTS: Readonly<Record<EvaluationEnd, (jobId: string) => EventData>> = {
  completed: (jobId) => ({ case: "evaluationCompleted", value: { jobId } }),
  failed: (jobId) => ({ case: "evaluationFailed", value: { jobId } }),
  cancelled,
  // Its time called it off.
  expired: cancelled,
};
