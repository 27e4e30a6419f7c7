/** Requests name their kind: what they share from call to call is kept once. */
import { mkdtempSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { brokenInvariants } from "../../src/store/billing/invariants.ts";
import { migrate } from "../../src/store/database/migrate.ts";
import { freshDatabase } from "../support/database.ts";
import { useLedger } from "../support/ledger.ts";
import { call, endOf, estimate, intentOf, makePayer, type TestTill } from "../support/money.ts";

const ledger = useLedger();
const PRICE = 1_600;

const kinds = async (keyId: string): Promise<number> => {
  const [row] = await ledger.db.sql<{ count: number }[]>`select count(*) from request_kind where key_id = ${keyId}`;
  return row!.count;
};

/** A call that ends as a model that is named so. */
async function callModel(leaser: TestTill, payer: Awaited<ReturnType<typeof makePayer>>, model: string): Promise<void> {
  const hold = await leaser.hold(payer, PRICE, estimate(PRICE));
  const intent = { ...intentOf(payer), model };
  hold.intend(intent);
  await hold.settle(endOf(intent, PRICE));
}

describe("a kind", () => {
  it("is kept once, however many requests, batches and credit leasers have it", async () => {
    const payer = await makePayer(ledger.db.sql, 100 * PRICE);
    const [one, two] = [await ledger.replica("one"), await ledger.replica("two")];
    for (let round = 0; round < 3; round++)
      await Promise.all([one, two, one, two].map(({ leaser }) => call(leaser, payer, PRICE)));
    expect(await kinds(payer.keyId)).toBe(1);
    expect(await ledger.statuses(payer)).toEqual(Array(12).fill("settled"));
  });

  it("is told apart by every field, and found by it in the order of many", async () => {
    const payer = await makePayer(ledger.db.sql, 100 * PRICE);
    const { leaser } = await ledger.replica("one");
    const models = ["a", "b", "", "a b", "a,b", '"a"', "{a}", "\u001f", "null", "NULL", "\\", "b"];
    await Promise.all(models.map((model) => callModel(leaser, payer, model)));
    await Promise.all(models.map((model) => callModel(leaser, payer, model)));
    const rows = await ledger.db.sql<{ model: string; count: number }[]>`
      select model, count(*) from request where org_id = ${payer.orgId} group by model`;
    const expected = new Map<string, number>();
    for (const model of models) {
      const kept = model.replace("\u001f", "\ufffd");
      expected.set(kept, (expected.get(kept) ?? 0) + 2);
    }
    expect(new Map(rows.map(({ model, count }) => [model, count]))).toEqual(expected);
  });

  it("is made once by many credit leasers that meet it at the same time, in whatever order", async () => {
    const payer = await makePayer(ledger.db.sql, 1_000 * PRICE);
    const tills = await Promise.all(["one", "two", "three"].map((name) => ledger.replica(name)));
    const models = Array.from({ length: 20 }, (_, i) => `model-${i}`);
    await Promise.all(
      tills.flatMap(({ leaser }, at) => {
        const order = at === 1 ? models.toReversed() : models;
        return order.map((model) => callModel(leaser, payer, model));
      }),
    );
    expect(await kinds(payer.keyId)).toBe(models.length);
    expect(await ledger.statuses(payer)).toHaveLength(60);
  });

  it("is not lost where its first batch is refused: the next one makes it", async () => {
    const payer = await makePayer(ledger.db.sql, 100 * PRICE);
    const { leaser } = await ledger.replica("one");
    const hold = await leaser.hold(payer, PRICE, estimate(PRICE));
    const intent = intentOf(payer);
    hold.intend(intent);
    await expect(hold.settle(endOf(intent, PRICE, { units: 1e300 }))).rejects.toThrow();
    expect(await kinds(payer.keyId)).toBe(0);
    await call(leaser, payer, PRICE);
    expect(await kinds(payer.keyId)).toBe(1);
  });
});

describe("the migration", () => {
  it("keeps every request as it was, and every balance", async () => {
    const old = mkdtempSync(join(tmpdir(), "limber-old-"));
    const directory = join(import.meta.dirname, "../../src/store/migrations");
    for (const name of readdirSync(directory)) if (name < "0052") symlinkSync(join(directory, name), join(old, name));
    const db = await freshDatabase({ empty: true });
    try {
      await migrate(db.sql, old);
      await db.sql`insert into org (id, name) values ('org_1', 'one')`;
      await db.sql`insert into account (org_id, granted_micro, available_micro, requests) values ('org_1', 5000, 2400, 2)`;
      await db.sql`insert into transfer (cause, kind, org_id, debit, credit, amount_micro) values
        ('grant_1', 'grant', 'org_1', 'granted', 'available', 5000), ('entry_1', 'lease', 'org_1', 'available', 'lease_1', 2600)`;
      await db.sql`insert into key_day (key_id, day, org_id, taken_micro) values ('key_1', '2026-01-01', 'org_1', 2600)`;
      await db.sql`
        insert into request (org_id, request_id, key_id, status, contract, model, provider, offering_id, unit, units, cost_micro,
          wake_up_micro, hedge_cost_micro, simulated, http_status, error_code, latency_ms, log, created, lease, attempt_ms, byok)
        values
          ('org_1', 'req_1', 'key_1', 'settled', 'act', 'm', 'p', 'o', 'action_step', 16, 1600, 0, null, false, 200, null, 20.5, '{"a":1}', '2026-01-01', 'lease_1', 20.25, false),
          ('org_1', 'req_2', 'key_1', 'settled', 'act', 'm', 'p', 'o', 'action_step', 10, 1000, 0, null, false, 200, null, 21.5, null, '2026-01-02', 'lease_1', null, false),
          ('org_1', 'req_3', 'key_1', 'failed', 'predict', '', '', '', '', 0, 0, 7, 9, true, null, 'no_route', null, null, '2026-01-03', null, null, true),
          ('org_1', 'req_4', 'key_1', 'unmetered', 'act', 'm', 'p', 'o', 'action_step', 0, 0, 0, null, false, null, null, null, null, '2026-01-04', null, null, false)`;
      const before = await db.sql`select to_jsonb(request) as row from request order by request_id`;
      const entries = await db.sql`select * from entry order by cause, kind`;
      expect(await brokenInvariants(db.sql).catch(() => "other tables")).toBe("other tables");
      expect(await migrate(db.sql)).toContain("0052_kinds_of_requests.sql");
      expect(await db.sql`select to_jsonb(request) as row from request order by request_id`).toEqual(before);
      expect(await db.sql`select * from entry order by cause, kind`).toEqual(entries);
      expect(await db.sql`select count(*) from request_kind`).toEqual([{ count: 3 }]);
      expect(await brokenInvariants(db.sql)).toEqual([]);
      expect(await migrate(db.sql)).toEqual([]);
    } finally {
      await db.close();
      rmSync(old, { recursive: true, force: true });
    }
  });
});
