import { describe, expect, it } from "vitest";
import type { Payer } from "../../src/billing/credit-leaser.ts";
import { Reason } from "../../src/errors.ts";
import { addCredits, balanceOf } from "../../src/store/account/orgs.ts";
import type { RequestRecord } from "../../src/store/billing/ledger.ts";
import { listCalls } from "../../src/store/history/logs.ts";
import { listUsage } from "../../src/store/history/usage.ts";
import { only, refusalOf, spent, storm, useLedger } from "../support/ledger.ts";
import { call, endOf, estimate, intentOf, makePayer } from "../support/money.ts";

const PRICE = 1_600;

const { db, replica, closeAll, statuses } = useLedger();

describe("a ledger batch", () => {
  it("is applied once if the response of its commit was lost", async () => {
    const payer = await makePayer(db.sql, 20 * PRICE);
    const { leaser, ledger } = await replica("one");
    const commit = ledger.commit.bind(ledger);
    let attempts = 0;
    ledger.commit = async (name, batch) => {
      const outcome = await commit(name, batch);
      if (attempts++ % 2 === 0) throw new Error("the connection was lost during the commit");
      return outcome;
    };
    const { served, refused } = await storm(8, 30, () => call(leaser, payer, PRICE));
    expect({ served, refused }).toEqual({ served: 20, refused: only(Reason.INSUFFICIENT_CREDITS, 10) });
    await closeAll();
    expect(await balanceOf(db.sql, payer.orgId)).toEqual(spent(20 * PRICE));
  });

  it("is applied completely or not at all, and one invalid record does not fail the others", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const { leaser } = await replica("one");
    const holds = await Promise.all(Array.from({ length: 4 }, async () => leaser.hold(payer, PRICE, estimate(PRICE))));
    const intents = holds.map(() => intentOf(payer));
    holds.forEach((hold, i) => {
      hold.intend(intents[i]!);
    });
    const settled = await Promise.allSettled(
      // A smallint can't hold this status, so the database refuses the row.
      holds.map((hold, i) => hold.settle(endOf(intents[i]!, PRICE, i === 2 ? { httpStatus: 1e6 } : {}))),
    );
    expect(settled.map((outcome) => outcome.status)).toEqual(["fulfilled", "fulfilled", "rejected", "fulfilled"]);
    await Promise.all(holds.map((hold) => hold.durable));
    expect(await statuses(payer)).toEqual(["settled", "settled", "settled"]);
    expect((await balanceOf(db.sql, payer.orgId)).spentMicro).toBe(3 * PRICE);
    await replica("one");
    expect((await statuses(payer)).sort()).toEqual(["settled", "settled", "settled", "unmetered"]);
  });

  it("keeps text that JSON allows and the database cannot store", async () => {
    const payer = await makePayer(db.sql, PRICE);
    const { leaser } = await replica("one");
    const hold = await leaser.hold(payer, PRICE, estimate(PRICE));
    const intent = { ...intentOf(payer), model: "a\u0000b\ud800c\\u0000\u001fd" };
    hold.intend(intent);
    await hold.settle(endOf(intent, PRICE));
    const { rows } = await listUsage(db.sql, payer.orgId, { limit: 1 });
    expect(rows[0]!.model).toBe("a\ufffdb\ufffdc\\u0000\ufffdd");
  });

  it("charges no lease that does not exist, and nothing below zero", async () => {
    const payer = await makePayer(db.sql, 100 * PRICE);
    const { ledger, leaser } = await replica("one");
    const hold = await leaser.hold(payer, PRICE, estimate(PRICE));
    const [held] = await db.sql<{ id: string }[]>`select id from lease where org_id = ${payer.orgId}`;
    const charges: [lease: string | null, costMicro: number][] = [
      ["lease_of_nobody", PRICE],
      [null, PRICE],
      [held!.id, -PRICE],
    ];
    for (const [lease, costMicro] of charges) {
      const settlements = [{ lease, record: endOf(intentOf(payer), costMicro) }];
      const [row] = await db.sql<{ last: number }[]>`select last_batch as last from leaser where id = ${leaser.name}`;
      const batch = { number: row!.last + 1, intents: [], settlements, over: [], moves: [] };
      expect(await ledger.commit(leaser.name, batch)).toMatchObject({ kind: "refused" });
    }
    await hold.release();
    expect(await statuses(payer)).toEqual([]);
  });
});

describe("the requests of one batch", () => {
  it("are recorded unchanged, whatever they share with others", async () => {
    const [one, two] = [await makePayer(db.sql, 100 * PRICE), await makePayer(db.sql, 100 * PRICE)];
    const { leaser } = await replica("one");
    const odd = ["NULL", "null", "", "a,b", '{"x"}', "c\\\\d", "tab\tline\n", "é🤖", "two words"];
    const records = [
      ...odd.map((model, i) => endOf(intentOf(i % 2 ? one : two), PRICE, { model, log: { metadata: { model } } })),
      endOf(intentOf(one), 0, {
        status: "failed",
        units: 0,
        httpStatus: null,
        errorCode: "deadline_exceeded",
        latencyMs: null,
      }),
      endOf(intentOf(one), PRICE, {
        wakeUpMicro: 600,
        hedgeCostMicro: 100,
        losers: [
          { offeringId: "off_9", provider: "p", model: "m", byok: true, simulated: false, costMicro: 40 },
          { offeringId: "off_9", provider: "p", model: "m", byok: false, simulated: false, costMicro: 60 },
        ],
        simulated: true,
        byok: true,
        log: undefined,
      }),
      endOf(intentOf(two), PRICE, {
        attemptMs: undefined,
        log: { attempts: [{ offering_id: "off_2", latency_ms: 3 }] },
      }),
      endOf(intentOf(two), PRICE),
      endOf(intentOf(one), PRICE),
    ];
    const payerOf = ({ keyId }: RequestRecord): Payer => (keyId === one.keyId ? one : two);
    const holds = await Promise.all(records.map((record) => leaser.hold(payerOf(record), PRICE, estimate(PRICE))));
    await Promise.all(
      records.map((record, i) => {
        holds[i]!.intend(record);
        return holds[i]!.settle(record);
      }),
    );
    const found = new Map(
      [
        ...(await listCalls(db.sql, one.orgId, { limit: 50 })).rows,
        ...(await listCalls(db.sql, two.orgId, { limit: 50 })).rows,
      ].map((call) => [call.requestId, call]),
    );
    expect(found.size).toBe(records.length);
    for (const { attemptMs, log, orgId: _org, wakeUpMicro: _wakeUp, losers: _losers, ...record } of records) {
      const attempts = [{ offering_id: record.offeringId, status: "ok", latency_ms: attemptMs }];
      const details = attemptMs === undefined ? log : { ...log, attempts };
      expect(found.get(record.requestId)).toMatchObject({ ...record, log: details });
    }
    const { rows } = await listUsage(db.sql, one.orgId, { limit: 50 });
    expect(rows.filter(({ wakeUpMicro }) => wakeUpMicro > 0)).toMatchObject([
      { wakeUpMicro: 600, hedgeCostMicro: 100 },
    ]);
  });
});

describe("the ledger", () => {
  it("refuses every change of its entries", async () => {
    await makePayer(db.sql, PRICE);
    await expect(db.sql`update transfer set amount_micro = 1`).rejects.toThrow("append-only");
    await expect(db.sql`delete from transfer`).rejects.toThrow("append-only");
    await expect(db.sql`truncate transfer`).rejects.toThrow("append-only");
    await expect(db.sql`update request_outcome set cost_micro = 1`).rejects.toThrow("append-only");
    await expect(db.sql`update request_outcome set lease = 'lease_other'`).rejects.toThrow("append-only");
    await expect(db.sql`update request_outcome set kind = 1`).rejects.toThrow("append-only");
    await expect(db.sql`delete from request_outcome`).rejects.toThrow("append-only");
    await expect(db.sql`truncate request_outcome`).rejects.toThrow("append-only");
    await expect(db.sql`update request_kind set status = 'failed'`).rejects.toThrow("append-only");
    await expect(db.sql`delete from request_kind`).rejects.toThrow("append-only");
    await expect(db.sql`truncate request_kind`).rejects.toThrow("append-only");
  });

  it("adds credit once per idempotency key, also under concurrent calls, and refuses another amount", async () => {
    const payer = await makePayer(db.sql, 0);
    const grant = { orgId: payer.orgId, amountMicro: PRICE, idempotencyKey: "pay-1" };
    const entries = await Promise.all(Array.from({ length: 8 }, () => addCredits(db.sql, grant)));
    expect(new Set(entries.map((entry) => entry.entryId)).size).toBe(1);
    expect((await balanceOf(db.sql, payer.orgId)).balanceMicro).toBe(PRICE);
    expect((await refusalOf(addCredits(db.sql, { ...grant, amountMicro: 1 }))).reason).toBe(
      Reason.IDEMPOTENCY_CONFLICT,
    );
    expect((await refusalOf(addCredits(db.sql, { ...grant, orgId: "org_none" }))).reason).toBe(Reason.NOT_FOUND);
  });

  it("lists usage newest first, in pages without repeats or gaps", async () => {
    const payer = await makePayer(db.sql, 25 * PRICE);
    const { leaser } = await replica("one");
    for (let i = 0; i < 25; i++) await call(leaser, payer, PRICE);
    const seen: string[] = [];
    for (const length of [10, 10, 5, 0]) {
      const { rows: page } = await listUsage(db.sql, payer.orgId, { limit: 10, cursor: seen.at(-1) });
      expect(page).toHaveLength(length);
      seen.push(...page.map((row) => row.requestId));
    }
    expect(seen).toEqual([...new Set(seen)].sort().reverse());
    expect(seen).toHaveLength(25);
  });
});
