/** A call's bill when the ledger takes back what it granted. */

import { create } from "@bufbuild/protobuf";
import { afterEach, describe, expect, it } from "vitest";
import { ActResponseSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import { CreditLeaser } from "../../../src/billing/credit-leaser.ts";
import type { CommitBatch, LedgerPort } from "../../../src/billing/group-commit.ts";
import type { CallTrail } from "../../../src/call.ts";
import { Cancel } from "../../../src/cancellation.ts";
import { RefusedCalls } from "../../../src/edge/call-log.ts";
import { Reason, Refusal, refuse } from "../../../src/errors.ts";
import { CallBilling } from "../../../src/inference/call-billing.ts";
import { planFor } from "../../../src/routing/index.ts";
import type { IntentRecord, RequestRecord } from "../../../src/store/billing/ledger.ts";
import { setAmbient } from "../../support/clocks.ts";
import { eventually } from "../../support/eventually.ts";
import { DEVELOPER, keyCall } from "../../support/key-call.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { offering, planArgs, supplyOf } from "../../support/supply.ts";

/** Grants every take, and fences the credit leaser that then writes an intent or a settlement. */
const fencing: LedgerPort<IntentRecord, RequestRecord> = {
  open: async () => "test/1",
  async commit(_leaser: string, batch: CommitBatch<IntentRecord, RequestRecord>) {
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

const plan = planFor(planArgs(supplyOf([offering("a")]), { now: 0, arrivedAt: 0 }));

/** Charges one unit; what is thrown for it. */
const settle = (bill: CallBilling, costMicro: number): Promise<Refusal> =>
  bill
    .settle(
      { step: plan.steps[0]!, units: 1, costMicro, wakeUpMicro: 0, hedgeMicro: undefined },
      undefined,
      ActResponseSchema,
      create(ActResponseSchema),
    )
    .then(
      () => expect.unreachable("the ledger is away"),
      (thrown) => thrown,
    );

it("a settled call ends once: the caller gets the ledger's result, and the key stays with the charge", async () => {
  const leaser = await CreditLeaser.open(fencing);
  const idempotency = { orgId: "org_1", workspaceId: undefined, key: "k", claimId: "req_1", promised: false };
  const call = keyCall(idempotency);
  const bill = await CallBilling.open(leaser, plan, call, { modelRequested: "a" });
  expect(idempotency.promised).toBe(true);

  const thrown = await settle(bill, 0);
  expect(thrown).toBeInstanceOf(Refusal);
  expect(thrown.reason).toBe(Reason.STORE_UNAVAILABLE);
  await expect(bill.void(refuse(Reason.INTERNAL_ERROR, "never on record"))).resolves.toBeUndefined();
  await leaser.close();
});

it("an answer that its transport cannot encode is not charged", async () => {
  const records: RequestRecord[] = [];
  const port: LedgerPort<IntentRecord, RequestRecord> = {
    ...fencing,
    async commit(_, { settlements, moves }) {
      records.push(...settlements.map(({ record }) => record));
      const takes = moves.flatMap((move) =>
        move.kind === "take" ? [{ entry: move.entry, grantedMicro: move.want }] : [],
      );
      return { kind: "done", takes, recalled: [] };
    },
  };
  const leaser = await CreditLeaser.open(port);
  const encode = () => {
    throw new Error("this answer has no form");
  };
  const bill = await CallBilling.open(leaser, plan, { ...keyCall(), encode }, { modelRequested: "a" });
  expect((await settle(bill, 1)).message).toBe("this answer has no form");
  await bill.void(refuse(Reason.INTERNAL_ERROR, "no answer"));
  await leaser.close();
  expect(records.map(({ status, costMicro }) => [status, costMicro])).toEqual([["failed", 0]]);
});

it("a call that was refused before its credit is granted has one record, and holds no credit", async () => {
  const records: RequestRecord[] = [];
  const granted = Promise.withResolvers<void>();
  const leaser = await CreditLeaser.open<IntentRecord, RequestRecord>({
    ...fencing,
    async commit(_, { settlements, moves }) {
      if (moves.some(({ kind }) => kind === "take")) await granted.promise;
      records.push(...settlements.map(({ record }) => record));
      const takes = moves.flatMap((move) =>
        move.kind === "take" ? [{ entry: move.entry, grantedMicro: move.want }] : [],
      );
      return { kind: "done", takes, recalled: [] };
    },
  });
  const trail: CallTrail = { principal: DEVELOPER };
  const opened = CallBilling.open(leaser, plan, { ...keyCall(), trail }, { modelRequested: "a" });
  const refused = new RefusedCalls((record) => void leaser.note(record));
  const rpc = "limber.v1.InferenceService/ActStream";
  refused.take({
    requestId: "req_1",
    transport: "grpc",
    rpc,
    status: 400,
    code: "invalid_argument",
    latencyMs: 1,
    trail,
  });
  granted.resolve();
  await expect(opened).rejects.toMatchObject({ reason: Reason.CLIENT_CLOSED_REQUEST });
  expect(leaser.figures).toMatchObject({ running: 0, promisedMicro: 0 });
  await leaser.close();
  expect(records.map(({ requestId, errorCode }) => `${requestId} ${errorCode}`)).toEqual(["req_1 invalid_argument"]);
});

describe("while the ledger does not respond,", () => {
  const restore: (() => void)[] = [];
  afterEach(() => {
    for (const put of restore.splice(0)) put();
  });

  /** Grants every take; batches with calls in them wait until `answer` is called. */
  async function openSilent() {
    const clock = new ManualClock();
    restore.push(setAmbient({ clock }));
    const answered = Promise.withResolvers<void>();
    const charged: string[] = [];
    const recorded: string[] = [];
    const port: LedgerPort<IntentRecord, RequestRecord> = {
      ...fencing,
      async commit(_, { intents, settlements, moves }) {
        if (intents.length + settlements.length > 0) await answered.promise;
        for (const { record } of settlements) {
          if (record.costMicro > 0) charged.push(record.requestId);
          recorded.push(`${record.requestId} ${record.status} ${record.errorCode}`);
        }
        const takes = moves.flatMap((move) =>
          move.kind === "take" ? [{ entry: move.entry, grantedMicro: move.want }] : [],
        );
        return { kind: "done", takes, recalled: [] };
      },
    };
    return { clock, charged, recorded, answer: answered.resolve, leaser: await CreditLeaser.open(port) };
  }

  it("a call without a durable intent reports no charge, and is not charged when the ledger responds", async () => {
    const { clock, charged, recorded, answer, leaser } = await openSilent();
    const bill = await CallBilling.open(leaser, plan, keyCall(), { modelRequested: "a" });
    const thrown = settle(bill, 1);
    await clock.advance(5_000);
    expect((await thrown).reason).toBe(Reason.STORE_UNAVAILABLE);
    expect((await thrown).message).toContain("nothing was charged");
    answer();
    await eventually(async () => {
      await clock.advance(100);
      expect(recorded).toEqual(["req_1 failed store_unavailable"]);
    });
    expect(charged).toEqual([]);
    await leaser.close();
  });

  it("a call is answered at its deadline, and not charged", async () => {
    const { clock, charged, recorded, answer, leaser } = await openSilent();
    const bill = await CallBilling.open(leaser, plan, keyCall(), { modelRequested: "a" }, 500);
    const thrown = settle(bill, 1);
    await clock.advance(501);
    expect((await thrown).reason).toBe(Reason.DEADLINE_EXCEEDED);
    answer();
    await eventually(async () => {
      await clock.advance(100);
      expect(recorded).toEqual(["req_1 failed deadline_exceeded"]);
    });
    expect(charged).toEqual([]);
    await leaser.close();
  });

  it("an answer after the deadline is discarded, even if the ledger was fast", async () => {
    const { clock, charged, answer, leaser } = await openSilent();
    answer();
    const bill = await CallBilling.open(leaser, plan, keyCall(), { modelRequested: "a" }, 500);
    await clock.advance(501);
    expect((await settle(bill, 1)).reason).toBe(Reason.DEADLINE_EXCEEDED);
    await clock.advance(1_000);
    expect(charged).toEqual([]);
    await leaser.close();
  });

  it("a call whose caller left before the answer is not charged", async () => {
    const { clock, charged, answer, leaser } = await openSilent();
    answer();
    const gone = new Cancel();
    const bill = await CallBilling.open(leaser, plan, { ...keyCall(), signal: gone }, { modelRequested: "a" });
    const thrown = settle(bill, 1);
    gone.abort(refuse(Reason.CLIENT_CLOSED_REQUEST, "the caller left"));
    await clock.advance(1_000);
    expect((await thrown).reason).toBe(Reason.CLIENT_CLOSED_REQUEST);
    expect(charged).toEqual([]);
    await leaser.close();
  });

  it("a call with an idempotency key asks for a retry: its answer is stored and charged once", async () => {
    const { clock, charged, answer, leaser } = await openSilent();
    const call = keyCall({ orgId: "org_1", workspaceId: undefined, key: "k", claimId: "req_1", promised: false });
    const bill = await CallBilling.open(leaser, plan, call, { modelRequested: "a" });
    const thrown = settle(bill, 1);
    await clock.advance(5_000);
    expect((await thrown).message).toContain("retry with the same idempotency key");
    answer();
    await eventually(async () => {
      await clock.advance(100);
      expect(charged).toEqual(["req_1"]);
    });
    await leaser.close();
  });

  it("the next call reports no charge, and is never charged", async () => {
    const { clock, charged, answer, leaser } = await openSilent();
    const first = await CallBilling.open(leaser, plan, keyCall(), { modelRequested: "a" });
    await clock.advance(5_000);
    const again = { ...keyCall(), requestId: "req_2" };
    const refused = await Promise.try(() => CallBilling.open(leaser, plan, again, { modelRequested: "a" })).then(
      () => expect.unreachable("the ledger is away"),
      (thrown) => thrown,
    );
    expect(refused.message).toContain("nothing was charged");
    answer();
    void first.void(refuse(Reason.INTERNAL_ERROR, "over"));
    await clock.advance(1_000);
    await leaser.close();
    expect(charged).toEqual([]);
  });
});
