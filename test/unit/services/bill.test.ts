/** A call's bill when the ledger takes back what it granted. */

import { create } from "@bufbuild/protobuf";
import { expect, it } from "vitest";
import { ActResponseSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import type { Batch, LedgerPort } from "../../../src/money/port.ts";
import { Till } from "../../../src/money/till.ts";
import { Reason, Refusal, refuse } from "../../../src/refusal.ts";
import { planFor } from "../../../src/routing/index.ts";
import { Bill } from "../../../src/services/inference/bill.ts";
import type { IntentRecord, RequestRecord } from "../../../src/store/ledger.ts";
import { DEFAULT_SETTINGS } from "../../../src/store/settings.ts";
import { offering, planArgs, supplyOf } from "../../support/supply.ts";

/** Grants every take, and fences the till that then writes an intent or a settlement. */
const fencing: LedgerPort<IntentRecord, RequestRecord> = {
  open: async () => "test/1",
  async commit(_till: string, batch: Batch<IntentRecord, RequestRecord>) {
    if (batch.intents.length + batch.settlements.length > 0) return { kind: "fenced" };
    const takes = batch.moves.flatMap((move) =>
      move.kind === "take" ? [{ entry: move.entry, grantedMicro: move.want }] : [],
    );
    return { kind: "done", takes, recalled: [] };
  },
  recall: async () => {},
  recover: async () => {},
  listen: () => () => {},
};

it("that was settled ends once: the caller hears of the ledger, not of a second end, and the key stays with the charge", async () => {
  const till = await Till.open(fencing);
  const plan = planFor(planArgs(supplyOf([offering("a")]), { now: 0, arrivedAt: 0 }));
  const idempotency = { orgId: "org_1", key: "k", claimId: "req_1", promised: false };
  const principal = {
    kind: "key",
    keyId: "key_1",
    orgId: "org_1",
    role: "developer",
    scopes: [],
    models: [],
    environment: "simulation",
    workspaceId: undefined,
    settings: DEFAULT_SETTINGS,
  } as const;
  const call = {
    requestId: "req_1",
    principal,
    signal: new AbortController().signal,
    deadline: undefined,
    idempotency,
  };
  const bill = await Bill.open(till, plan, call, { modelRequested: "a" });
  expect(idempotency.promised).toBe(true);

  const [step] = plan.steps;
  const charge = { step: step!, units: 1, costMicro: 0, hedgeMicro: undefined };
  const thrown = await bill
    .settle(charge, undefined, ActResponseSchema, create(ActResponseSchema))
    .catch((error) => error);
  expect(thrown).toBeInstanceOf(Refusal);
  expect(thrown.reason).toBe(Reason.STORE_UNAVAILABLE);
  await expect(bill.void(refuse(Reason.INTERNAL_ERROR, "never on record"))).resolves.toBeUndefined();
  await till.close();
});
