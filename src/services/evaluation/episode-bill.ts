/** What an episode costs: held before it begins, charged once when it has run to its end, however often its worker dies. */
import { createHash } from "node:crypto";
import type { KeyPrincipal } from "../../call.ts";
import { Reason } from "../../errors.ts";
import { newId } from "../../ids.ts";
import type { Leaser } from "../../inference/call-billing.ts";
import { claim, unclaim } from "../../store/billing/idempotency.ts";
import type { RequestRecord } from "../../store/billing/ledger.ts";
import type { Sql } from "../../store/database/tx.ts";
import type { EvaluationRequest } from "./request.ts";

/** Whose episode it is. */
export interface EpisodeOwner {
  readonly payer: Pick<KeyPrincipal, "orgId" | "keyId" | "workspaceId" | "ancestors">;
  readonly jobId: string;
  readonly index: number;
}

/** The bill of one episode; it ends once. */
export interface EpisodeBill {
  /** Charges it; resolves when the charge is durable. Answers what it cost in micro-dollars. */
  charge(): Promise<number>;
  /** Ends it without a charge. */
  free(): Promise<void>;
}

/** Holds the price of an episode, or refuses with 402. An episode that was charged before its record was written is not charged again. */
export async function openEpisodeBill(
  { sql, leaser }: { sql: Sql; leaser: Leaser },
  owner: EpisodeOwner,
  request: EvaluationRequest,
): Promise<EpisodeBill> {
  const { payer, jobId, index } = owner;
  const { orgId, keyId, workspaceId } = payer;
  const { priceMicro, scenario } = request;
  const requestId = newId("req");
  const claimant = { orgId, workspaceId, key: `${jobId}.${index}.episode`, claimId: requestId, leaser: leaser.name };
  const hash = createHash("sha256").update(claimant.key).digest();
  const claimed = await claim(sql, {
    ...claimant,
    hash,
    line: [keyId],
    method: "limber.v1.EvaluationService/Evaluate",
    sealed: false,
  });
  if (claimed.kind === "replay") return { charge: async () => priceMicro, free: async () => {} };
  const intent = {
    orgId,
    keyId,
    requestId,
    contract: "evaluate",
    model: scenario,
    provider: "limber",
    offeringId: "",
    unit: "episode",
  };
  const estimate = { unit: "episode", units: 1, priceNano: priceMicro * 1000, wakeUpMicro: 0 };
  try {
    const hold = await leaser.hold(payer, priceMicro, estimate);
    hold.intend(intent);
    const record = (ended: "settled" | "failed"): RequestRecord => ({
      ...intent,
      status: ended,
      units: ended === "settled" ? 1 : 0,
      costMicro: ended === "settled" ? priceMicro : 0,
      wakeUpMicro: 0,
      hedgeCostMicro: null,
      simulated: false,
      byok: false,
      httpStatus: ended === "settled" ? 200 : null,
      errorCode: null,
      latencyMs: null,
      claim: {
        key: claimant.key,
        claimId: requestId,
        ...(ended === "settled" && { response: Buffer.from(requestId) }),
      },
    });
    return {
      async charge() {
        const settled = hold.settle(record("settled"));
        await hold.durable;
        await settled;
        return priceMicro;
      },
      async free() {
        hold.durable.catch(() => {});
        await hold.release(record("failed"));
      },
    };
  } catch (thrown) {
    await unclaim(sql, claimant).catch(() => {});
    throw thrown;
  }
}

/** Refusals that end an evaluation rather than wait: money is short. */
export const IS_SHORT: ReadonlySet<Reason> = new Set([
  Reason.INSUFFICIENT_CREDITS,
  Reason.KEY_BUDGET_EXHAUSTED,
  Reason.WORKSPACE_BUDGET_EXHAUSTED,
]);
