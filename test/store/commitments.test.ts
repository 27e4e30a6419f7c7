/** Commitments: what isn't used of a month is charged once, when the month is over. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { addCredits, balanceOf } from "../../src/store/account/orgs.ts";
import { closeAllMonths, closeMonths, commit, commitmentOf } from "../../src/store/billing/statements.ts";
import { connect, type Sql, tx } from "../../src/store/database/tx.ts";
import { usageTotals } from "../../src/store/history/usage.ts";
import { setAmbient } from "../support/clocks.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { brokenInvariants } from "../support/invariants.ts";
import { call, estimate, makePayer, openReplica, type Replica, SettableWall } from "../support/money.ts";

let database: FreshDatabase;
let sql: Sql;
let replica: Replica;
const wall = new SettableWall(Date.UTC(2026, 0, 1));
let restore: () => void;

beforeAll(async () => {
  restore = setAmbient({ clock: wall });
  database = await freshDatabase();
  sql = database.sql;
  replica = await openReplica(database.url, "one");
});
afterAll(async () => {
  await replica.close();
  await database.close();
  restore();
});
beforeEach(() => {
  wall.at = Date.UTC(2026, 0, 1, 12);
});
afterEach(async () => {
  expect(await brokenInvariants(sql)).toEqual([]);
});

const USD = 1_000_000;
const promise = (orgId: string, usd: number, startsOn?: string) =>
  tx(sql, (tx) => commit(tx, orgId, { minMicro: usd * USD, startsOn, atMs: wall.at }));
const close = (orgId: string) => closeMonths(sql, orgId, wall.at);
const spend = async (payer: Awaited<ReturnType<typeof makePayer>>, usd: number) => {
  await call(replica.leaser, payer, usd * USD);
  await replica.leaser.giveBack(payer.orgId);
};
const fees = async (orgId: string) =>
  (
    await sql<{ cause: string; amount: number }[]>`
    select cause, amount_micro as amount from transfer where org_id = ${orgId} and kind = 'availability_fee' order by created, cause`
  ).map(({ cause, amount }) => [cause.slice(cause.indexOf("/20") + 1), amount / USD]);

describe("a completed month of a commitment", () => {
  it("is charged for its unused part, and shows in the balance before and after", async () => {
    const payer = await makePayer(sql, 100 * USD);
    await promise(payer.orgId, 10, "2026-01-01");
    await spend(payer, 4);
    expect(await commitmentOf(sql, payer.orgId, wall.at)).toEqual({
      minMicro: 10 * USD,
      usedMicro: 4 * USD,
      dueMicro: 10 * USD,
      periodStart: Date.UTC(2026, 0, 1) / 1000,
      periodEnd: Date.UTC(2026, 1, 1) / 1000,
      unpaidMicro: 0,
    });
    wall.at = Date.UTC(2026, 0, 31, 23);
    expect(await close(payer.orgId)).toBe(0);
    wall.at = Date.UTC(2026, 1, 1);
    expect(await close(payer.orgId)).toBe(1);
    expect(await fees(payer.orgId)).toEqual([["2026-01/1", 6]]);
    expect(await balanceOf(sql, payer.orgId)).toMatchObject({ spentMicro: 10 * USD, balanceMicro: 90 * USD });
    expect(await usageTotals(sql, payer.orgId)).toEqual({ requests: 1, costMicro: 4 * USD });
    expect(await commitmentOf(sql, payer.orgId, wall.at)).toMatchObject({ usedMicro: 0, unpaidMicro: 0 });
  });

  it("costs nothing more if all of it was used", async () => {
    const payer = await makePayer(sql, 100 * USD);
    await promise(payer.orgId, 10, "2026-01-01");
    await spend(payer, 11);
    wall.at = Date.UTC(2026, 1, 1);
    expect(await close(payer.orgId)).toBe(1);
    expect(await fees(payer.orgId)).toEqual([]);
  });

  it("is charged exactly once, even if several replicas find it at once, and late", async () => {
    const payer = await makePayer(sql, 100 * USD);
    await promise(payer.orgId, 10, "2026-01-01");
    wall.at = Date.UTC(2026, 3, 2);
    const others = [connect(database.url, { max: 4 }), connect(database.url, { max: 4 })];
    await Promise.all(Array.from({ length: 16 }, (_, i) => closeAllMonths(others[i % 2]!, wall.at)));
    for (const other of others) await other.end();
    expect(await fees(payer.orgId)).toEqual([
      ["2026-01/1", 10],
      ["2026-02/1", 10],
      ["2026-03/1", 10],
    ]);
    expect(await close(payer.orgId)).toBe(0);
  });

  it("counts by days if the commitment began in it", async () => {
    const payer = await makePayer(sql, 100 * USD);
    await promise(payer.orgId, 31, "2026-01-22");
    wall.at = Date.UTC(2026, 2, 1);
    await close(payer.orgId);
    expect(await fees(payer.orgId)).toEqual([
      ["2026-01/1", 10],
      ["2026-02/1", 31],
    ]);
  });

  it("takes the available credit and the remainder from later credit; no balance becomes negative", async () => {
    const payer = await makePayer(sql, 4 * USD);
    await promise(payer.orgId, 10, "2026-01-01");
    wall.at = Date.UTC(2026, 1, 1);
    await close(payer.orgId);
    expect(await balanceOf(sql, payer.orgId)).toMatchObject({ availableMicro: 0, spentMicro: 4 * USD });
    expect(await commitmentOf(sql, payer.orgId, wall.at)).toMatchObject({ unpaidMicro: 6 * USD });
    await addCredits(sql, { orgId: payer.orgId, amountMicro: 50 * USD });
    await close(payer.orgId);
    expect(await fees(payer.orgId)).toEqual([
      ["2026-01/1", 4],
      ["2026-01/2", 6],
    ]);
    expect(await balanceOf(sql, payer.orgId)).toMatchObject({ availableMicro: 44 * USD });
  });

  it("waits for the running calls that began in it", async () => {
    const payer = await makePayer(sql, 100 * USD);
    await promise(payer.orgId, 10, "2026-01-01");
    wall.at = Date.UTC(2026, 0, 31, 23, 59, 59);
    const hold = await replica.leaser.hold(payer, 3 * USD, estimate(3 * USD));
    wall.at = Date.UTC(2026, 1, 1);
    expect(await close(payer.orgId)).toBe(0);
    await hold.release();
    await replica.leaser.giveBack(payer.orgId);
    expect(await close(payer.orgId)).toBe(1);
    expect(await fees(payer.orgId)).toEqual([["2026-01/1", 10]]);
  });

  it("is unchanged by later commitments", async () => {
    const payer = await makePayer(sql, 100 * USD);
    await promise(payer.orgId, 10, "2026-01-01");
    wall.at = Date.UTC(2026, 1, 3);
    await promise(payer.orgId, 1);
    expect(await fees(payer.orgId)).toEqual([["2026-01/1", 10]]);
    await promise(payer.orgId, 0);
    wall.at = Date.UTC(2026, 2, 3);
    await close(payer.orgId);
    expect(await fees(payer.orgId)).toHaveLength(1);
    expect(await commitmentOf(sql, payer.orgId, wall.at)).toBeUndefined();
    await expect(sql`update commitment_month set fee_micro = 0 where org_id = ${payer.orgId}`).rejects.toThrow("stays");
    await expect(sql`delete from commitment_month where org_id = ${payer.orgId}`).rejects.toThrow("stays");
    await expect(sql`truncate commitment_month`).rejects.toThrow("append-only");
  });
});
