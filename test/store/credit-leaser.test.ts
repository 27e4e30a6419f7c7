import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Payer } from "../../src/billing/credit-leaser.ts";
import { sleep } from "../../src/clock.ts";
import { Reason, Refusal } from "../../src/errors.ts";
import { balanceOf } from "../../src/store/account/orgs.ts";
import { listUsage, usageTotals } from "../../src/store/history/usage.ts";
import { setAmbient } from "../support/clocks.ts";
import { refusalOf, useLedger } from "../support/ledger.ts";
import { ManualClock } from "../support/manual-clock.ts";
import {
  call,
  endOf,
  estimate,
  failureOf,
  intentOf,
  makePayer,
  openReplica,
  type Replica,
  type TestHold,
} from "../support/money.ts";

const PRICE = 1_600;

const { db, replica, statuses, openIntents } = useLedger();

describe("a hold", () => {
  it("is made without a database query while the key's lease covers it", async () => {
    const payer = await makePayer(db.sql, 1_000 * PRICE);
    const { leaser } = await replica("one");
    for (let i = 0; i < 5; i++) await call(leaser, payer, PRICE);
    const hold = leaser.tryHold(payer, PRICE);
    await hold!.release();
  });

  it("has its intent in the journal from its commit until it ends", async () => {
    const payer = await makePayer(db.sql, PRICE);
    const { leaser } = await replica("one");
    const hold = await leaser.hold(payer, PRICE, estimate(PRICE));
    const intent = intentOf(payer);
    hold.intend(intent);
    await hold.durable;
    const [page] = await db.sql<{ promised: string }[]>`select promised from intent`;
    expect(JSON.parse(page!.promised)).toMatchObject({
      kinds: [{ key_id: payer.keyId, contract: "act" }],
      requests: [[0, intent.requestId]],
    });
    await hold.settle(endOf(intent, PRICE));
    expect(await openIntents()).toBe(0);
  });

  it("releases what the call did not cost", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const { leaser } = await replica("one");
    await call(leaser, payer, PRICE, 10 * PRICE);
    await call(leaser, payer, PRICE, 9 * PRICE);
    await leaser.giveBack(payer.orgId);
    expect(await balanceOf(db.sql, payer.orgId)).toMatchObject({
      spentMicro: 2 * PRICE,
      heldMicro: 0,
      availableMicro: 8 * PRICE,
    });
  });

  it("never charges more than its ceiling, less than zero or a fraction, and ends once", async () => {
    const payer = await makePayer(db.sql, PRICE);
    const { leaser } = await replica("one");
    const hold = await leaser.hold(payer, PRICE, estimate(PRICE));
    const intent = intentOf(payer);
    hold.intend(intent);
    for (const cost of [PRICE + 1, -1, 0.5, Number.NaN])
      expect(() => hold.settle(endOf(intent, cost))).toThrow(RangeError);
    await hold.settle(endOf(intent, PRICE));
    expect(() => hold.settle(endOf(intent, PRICE))).toThrow("already ended");
    expect((await balanceOf(db.sql, payer.orgId)).spentMicro).toBe(PRICE);
  });

  it("of a free call needs no credit and leaves its record", async () => {
    const payer = await makePayer(db.sql, 0);
    const { leaser } = await replica("one");
    await call(leaser, payer, 0);
    expect(await statuses(payer)).toEqual(["settled"]);
    expect(await usageTotals(db.sql, payer.orgId)).toEqual({ requests: 1, costMicro: 0 });
  });

  it("of a failed call charges nothing, is on record and not in the usage list", async () => {
    const payer = await makePayer(db.sql, PRICE);
    const { leaser } = await replica("one");
    const hold = await leaser.hold(payer, PRICE, estimate(PRICE));
    const intent = intentOf(payer);
    hold.intend(intent);
    await hold.release(failureOf(intent));
    expect(await statuses(payer)).toEqual(["failed"]);
    expect((await listUsage(db.sql, payer.orgId, { limit: 10 })).rows).toEqual([]);
    expect(await openIntents()).toBe(0);
    await call(leaser, payer, PRICE);
  });

  it("is not needed to record a refused request", async () => {
    const payer = await makePayer(db.sql, 0);
    const { leaser } = await replica("one");
    await leaser.note({ ...failureOf(intentOf(payer)), httpStatus: 402, errorCode: "insufficient_credits" });
    expect(await statuses(payer)).toEqual(["failed"]);
  });
});

describe("a credit leaser that dies", () => {
  const leaveRunning = async (replica: Replica, payer: Payer): Promise<TestHold> => {
    const hold = await replica.leaser.hold(payer, PRICE, estimate(PRICE));
    hold.intend(intentOf(payer));
    await hold.durable;
    return hold;
  };

  it("is recovered at once by its next start: open calls are unmetered and not charged, and all credit returns", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const first = await openReplica(db.url, "mortal");
    await call(first.leaser, payer, PRICE);
    for (let i = 0; i < 3; i++) await leaveRunning(first, payer);
    await first.kill();
    await replica("mortal");
    expect((await statuses(payer)).sort()).toEqual(["settled", "unmetered", "unmetered", "unmetered"]);
    expect(await balanceOf(db.sql, payer.orgId)).toMatchObject({
      spentMicro: PRICE,
      heldMicro: 0,
      availableMicro: 9 * PRICE,
    });
    expect(await openIntents()).toBe(0);
    const { rows } = await listUsage(db.sql, payer.orgId, { limit: 10 });
    expect(rows.filter((row) => row.status === "unmetered").map((row) => row.costMicro)).toEqual([0, 0, 0]);
    const totals = { requests: rows.length, costMicro: PRICE };
    expect(await usageTotals(db.sql, payer.orgId)).toEqual(totals);
    expect(await usageTotals(db.sql, payer.orgId, { keyId: payer.keyId })).toEqual(totals);
  });

  it("is recovered by another after its life expires, and not before", async () => {
    const payer = await makePayer(db.sql, PRICE);
    const first = await openReplica(db.url, "mortal");
    await leaveRunning(first, payer);
    await first.kill();
    const other = await replica("other");
    await other.ledger.recover();
    expect((await balanceOf(db.sql, payer.orgId)).heldMicro).toBe(PRICE);
    await db.sql`update leaser set alive_until = now() - interval '1 second' where replica = 'mortal'`;
    await call(other.leaser, payer, PRICE);
    expect((await statuses(payer)).sort()).toEqual(["settled", "unmetered"]);
  });

  it("writes nothing if it resumes fenced, refuses its running calls and starts a new life", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const [sleeper, other] = [await replica("sleeper"), await replica("other")];
    const before = sleeper.leaser.name;
    const dispatched = await leaveRunning(sleeper, payer);
    const waiting = await sleeper.leaser.hold(payer, PRICE, estimate(PRICE));
    await db.sql`update leaser set alive_until = now() - interval '1 second' where replica = 'sleeper'`;
    await other.ledger.recover();
    waiting.intend(intentOf(payer));
    expect((await refusalOf(waiting.durable)).reason).toBe(Reason.STORE_UNAVAILABLE);
    const late = await refusalOf(dispatched.settle(endOf(intentOf(payer), PRICE)));
    expect(late).toMatchObject({ reason: Reason.STORE_UNAVAILABLE, retryAfter: 1 });
    await refusalOf(waiting.release(failureOf(intentOf(payer))));
    expect(await statuses(payer)).toEqual(["unmetered"]);
    expect((await balanceOf(db.sql, payer.orgId)).spentMicro).toBe(0);
    await call(sleeper.leaser, payer, PRICE);
    expect(sleeper.leaser.name).not.toBe(before);
    expect((await balanceOf(db.sql, payer.orgId)).spentMicro).toBe(PRICE);
  });

  it("serves the calls that waited for credit when it was fenced", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const { leaser } = await replica("sleeper");
    await db.sql`select leaser_recover(id, true) from leaser where replica = 'sleeper' and fenced_at is null`;
    await call(leaser, payer, PRICE);
    expect(await statuses(payer)).toEqual(["settled"]);
  });
});

describe("a credit leaser over time", () => {
  let restore = (): void => {};
  let clock: ManualClock;
  beforeEach(() => {
    clock = new ManualClock();
    restore = setAmbient({ clock });
  });
  afterEach(() => restore());

  /** Lets time run while something is under way, at a pace at which the database keeps up. */
  const meanwhile = async <T>(work: Promise<T>, stepMs = 1): Promise<T> => {
    let over = false;
    const end = (): void => {
      over = true;
    };
    work.then(end, end);
    while (!over) {
      await clock.advance(stepMs);
      await db.sql`select`;
    }
    return work;
  };

  it("returns a lease that was unused for five seconds", async () => {
    const payer = await makePayer(db.sql, 100 * PRICE);
    const { leaser } = await replica("one");
    await meanwhile(call(leaser, payer, PRICE, 50 * PRICE));
    expect((await balanceOf(db.sql, payer.orgId)).heldMicro).toBeGreaterThan(0);
    await meanwhile(sleep(7_000), 50);
    await meanwhile(call(leaser, await makePayer(db.sql, PRICE), PRICE));
    expect(await balanceOf(db.sql, payer.orgId)).toMatchObject({ heldMicro: 0, availableMicro: 99 * PRICE });
  });

  it("refuses running and new calls while the store is down, and applies the batch when it is back", async () => {
    const payer = await makePayer(db.sql, 100 * PRICE);
    const { leaser, ledger } = await replica("one");
    await meanwhile(call(leaser, payer, PRICE, 10 * PRICE));
    const commit = ledger.commit.bind(ledger);
    ledger.commit = () => Promise.reject(new Error("the server is away"));
    const hold = await leaser.hold(payer, PRICE, estimate(PRICE));
    const intent = intentOf(payer);
    hold.intend(intent);
    const durable = refusalOf(hold.durable);
    await clock.advance(5_000);
    expect((await durable).reason).toBe(Reason.STORE_UNAVAILABLE);
    await expect(leaser.hold(payer, PRICE, estimate(PRICE))).rejects.toThrow(Refusal);
    hold.release(failureOf(intent));
    ledger.commit = commit;
    await clock.advance(1_000);
    await expect.poll(() => statuses(payer)).toHaveLength(2);
    expect((await statuses(payer)).sort()).toEqual(["failed", "settled"]);
    await meanwhile(call(leaser, payer, PRICE));
  });

  it("stays alive by a heartbeat when idle", async () => {
    const { leaser } = await replica("one");
    const batches = async (): Promise<number> =>
      (await db.sql<{ lastBatch: number }[]>`select last_batch from leaser where id = ${leaser.name}`)[0]!.lastBatch;
    const before = await batches();
    await clock.advance(4_000);
    await expect.poll(batches).toBeGreaterThan(before);
  });
});
