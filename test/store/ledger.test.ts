import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { replaceAmbient, sleep } from "../../src/ambient.ts";
import type { Payer } from "../../src/money/purse.ts";
import { Reason, Refusal } from "../../src/refusal.ts";
import { addCredits, balanceOf } from "../../src/store/account/orgs.ts";
import { createWorkspace } from "../../src/store/account/workspaces.ts";
import { tx } from "../../src/store/database/tx.ts";
import { listCalls } from "../../src/store/events/logs.ts";
import { brokenInvariants } from "../../src/store/money/invariants.ts";
import type { RequestRecord } from "../../src/store/money/ledger.ts";
import { listUsage, usageTotals } from "../../src/store/money/usage.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { ManualClock } from "../support/manual-clock.ts";
import {
  call,
  endOf,
  estimate,
  failureOf,
  intentOf,
  makeKey,
  makePayer,
  openReplica,
  type Replica,
  SettableWall,
  type TestHold,
} from "../support/money.ts";

const PRICE = 1_600;

let db: FreshDatabase;
let open: Replica[] = [];
beforeAll(async () => {
  db = await freshDatabase();
});
afterEach(async () => {
  for (const replica of open) await replica.close();
  open = [];
  expect(await brokenInvariants(db.sql)).toEqual([]);
});
afterAll(() => db.close());

/** A replica that the test's end closes. */
async function replica(name: string, options?: { lifeMs: number }): Promise<Replica> {
  const made = await openReplica(db.url, name, options);
  open.push(made);
  return made;
}

/** Closes every replica, so that nothing is held any more. */
async function closeAll(): Promise<void> {
  for (const replica of open) await replica.close();
  open = [];
}

const refusalOf = (promise: unknown): Promise<Refusal> =>
  Promise.resolve(promise).then(
    () => expect.fail("it was not refused"),
    (thrown: unknown) => (thrown instanceof Refusal ? thrown : expect.fail(`not a refusal: ${thrown}`)),
  );

/** `callers` loops that share out `count` calls; how many were served, and why the others were not. */
async function storm(
  callers: number,
  count: number,
  one: (caller: number) => Promise<void>,
): Promise<{ served: number; refused: Reason[] }> {
  let left = count;
  const refused: Reason[] = [];
  const loop = async (caller: number): Promise<void> => {
    while (left-- > 0) {
      await one(caller).catch((thrown: unknown) => {
        if (!(thrown instanceof Refusal)) throw thrown;
        refused.push(thrown.reason);
      });
    }
  };
  await Promise.all(Array.from({ length: callers }, (_, caller) => loop(caller)));
  return { served: count - refused.length, refused };
}

const only = (reason: Reason, times: number): Reason[] => Array.from({ length: times }, () => reason);

const spent = (microDollars: number) => ({
  grantedMicro: microDollars,
  spentMicro: microDollars,
  balanceMicro: 0,
  heldMicro: 0,
  availableMicro: 0,
  owedMicro: 0,
});

const statuses = async (payer: Payer): Promise<string[]> =>
  (await db.sql<{ status: string }[]>`select status from request where org_id = ${payer.orgId}`).map(
    (row) => row.status,
  );

async function openIntents(): Promise<number> {
  const [row] = await db.sql<{ count: number }[]>`select count(*) from intent`;
  return row!.count;
}

describe("a balance for exactly 500 calls", () => {
  it("serves exactly 500 from two tills under 64 callers, refuses the rest with 402 and holds nothing after", async () => {
    const payer = await makePayer(db.sql, 500 * PRICE);
    const tills = [(await replica("one")).till, (await replica("two")).till];
    const { served, refused } = await storm(64, 800, (caller) => call(tills[caller % 2]!, payer, PRICE));
    expect(served).toBe(500);
    expect(refused).toEqual(only(Reason.INSUFFICIENT_CREDITS, 300));
    await closeAll();
    expect(await balanceOf(db.sql, payer.orgId)).toEqual(spent(500 * PRICE));
    expect(await usageTotals(db.sql, payer.orgId)).toEqual({ requests: 500, costMicro: 500 * PRICE });
  });

  it("serves exactly 500 to eight keys of one organisation", async () => {
    const payer = await makePayer(db.sql, 500 * PRICE);
    const keys = await Promise.all(Array.from({ length: 8 }, () => makeKey(db.sql, payer.orgId)));
    const tills = [(await replica("one")).till, (await replica("two")).till];
    const payerOf = (caller: number): Payer => ({ orgId: payer.orgId, keyId: keys[caller % 8]! });
    const { served, refused } = await storm(64, 800, (caller) =>
      call(tills[(caller >> 3) % 2]!, payerOf(caller), PRICE),
    );
    expect(served).toBe(500);
    expect(refused).toEqual(only(Reason.INSUFFICIENT_CREDITS, 300));
    await closeAll();
    expect(await balanceOf(db.sql, payer.orgId)).toEqual(spent(500 * PRICE));
  });

  it("serves all 500 although running calls hold twice what they cost", async () => {
    const payer = await makePayer(db.sql, 501 * PRICE);
    const { till } = await replica("one");
    const { served } = await storm(64, 500, () => call(till, payer, PRICE, 2 * PRICE));
    expect(served).toBe(500);
    await closeAll();
    expect((await balanceOf(db.sql, payer.orgId)).balanceMicro).toBe(PRICE);
  });

  it("serves exactly 500 when only the key's budget is short, and names the budget and its renewal", async () => {
    const payer = await makePayer(db.sql, 10_000 * PRICE, { limitMicro: 500 * PRICE, interval: "daily" });
    const tills = [(await replica("one")).till, (await replica("two")).till];
    const { served, refused } = await storm(64, 800, (caller) => call(tills[caller % 2]!, payer, PRICE));
    expect(served).toBe(500);
    expect(refused).toEqual(only(Reason.KEY_BUDGET_EXHAUSTED, 300));
    const { details } = await refusalOf(tills[0]!.hold(payer, PRICE, estimate(PRICE)));
    expect(details).toMatchObject({
      limitSource: "key_budget",
      availableUsd: 0,
      requiredUsd: 0.0016,
      shortfallUsd: 0.0016,
    });
    expect(details.resetsAt! % 86_400).toBe(0);
  });
});

describe("a workspace's budget for exactly 500 calls", () => {
  it("serves exactly 500 to three of its keys from two tills, and names the budget", async () => {
    const first = await makePayer(db.sql, 10_000 * PRICE);
    const workspaceId = await tx(db.sql, (tx) =>
      createWorkspace(tx, {
        orgId: first.orgId,
        name: "shared",
        slug: "shared",
        budget: { limitMicro: 500 * PRICE, interval: "lifetime" },
        settings: {},
      }),
    );
    const payers = await Promise.all(
      [1, 2, 3].map(async () => ({
        orgId: first.orgId,
        keyId: await makeKey(db.sql, first.orgId, undefined, workspaceId),
        workspaceId,
      })),
    );
    const tills = [(await replica("one")).till, (await replica("two")).till];
    const { served, refused } = await storm(64, 800, (caller) => call(tills[caller % 2]!, payers[caller % 3]!, PRICE));
    expect(served).toBe(500);
    expect(refused).toEqual(only(Reason.WORKSPACE_BUDGET_EXHAUSTED, 300));
    await closeAll();
    const balance = await balanceOf(db.sql, first.orgId);
    expect(balance).toMatchObject({ spentMicro: 500 * PRICE, heldMicro: 0, availableMicro: 9_500 * PRICE });
  });
});

describe("a refusal for want of credit", () => {
  it("says what was needed, what is there and which horizon it would pay for", async () => {
    const payer = await makePayer(db.sql, 1_000);
    const { till } = await replica("one");
    const { reason, details } = await refusalOf(till.hold(payer, PRICE, estimate(PRICE)));
    expect(reason).toBe(Reason.INSUFFICIENT_CREDITS);
    expect(details).toMatchObject({
      limitSource: "org_credits",
      requiredUsd: 0.0016,
      availableUsd: 0.001,
      shortfallUsd: 0.0006,
      estimated: { unit: "action_step", units: 16, unitPriceUsd: 0.0001, wakeUpUsd: 0 },
      maxAffordable: { horizon: 10 },
    });
    expect(details.resetsAt).toBeUndefined();
  });

  it("comes only after idle credit was called back from another replica", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const [one, two] = [await replica("one"), await replica("two")];
    const hold = await one.till.hold(payer, 10 * PRICE, estimate(10 * PRICE));
    await hold.release();
    expect((await balanceOf(db.sql, payer.orgId)).availableMicro).toBe(0);
    await call(two.till, payer, 10 * PRICE);
  });

  it("comes only after idle credit was taken from the organisation's other keys", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const { till } = await replica("one");
    const hold = await till.hold(payer, 10 * PRICE, estimate(10 * PRICE));
    await hold.release();
    await call(till, { orgId: payer.orgId, keyId: await makeKey(db.sql, payer.orgId) }, 10 * PRICE);
  });

  it("does not keep later calls from calling credit back, when another replica did not answer in time", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const [one, two] = [await replica("one"), await replica("two")];
    const hold = await one.till.hold(payer, 10 * PRICE, estimate(10 * PRICE));
    const commit = one.ledger.commit.bind(one.ledger);
    const awake = Promise.withResolvers<void>();
    one.ledger.commit = async (name, batch) => {
      await awake.promise;
      return commit(name, batch);
    };
    expect((await refusalOf(two.till.hold(payer, PRICE, estimate(PRICE)))).reason).toBe(Reason.INSUFFICIENT_CREDITS);
    awake.resolve();
    await expect.poll(async () => (await db.sql`select from recall`).count).toBe(0);
    await hold.release();
    await call(two.till, payer, PRICE);
  });

  it("comes although another replica holds credit, when that is promised to its calls", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const [one, two] = [await replica("one"), await replica("two")];
    const hold = await one.till.hold(payer, 10 * PRICE, estimate(10 * PRICE));
    expect((await refusalOf(two.till.hold(payer, PRICE, estimate(PRICE)))).reason).toBe(Reason.INSUFFICIENT_CREDITS);
    await hold.release();
  });

  it("spares a small call that waits behind a large one", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const { till } = await replica("one");
    const large = refusalOf(till.hold(payer, 11 * PRICE, estimate(11 * PRICE)));
    const small = call(till, payer, PRICE);
    expect((await large).reason).toBe(Reason.INSUFFICIENT_CREDITS);
    await small;
  });

  it("ends as soon as credit is added", async () => {
    const payer = await makePayer(db.sql, 0);
    const { till } = await replica("one");
    expect((await refusalOf(till.hold(payer, PRICE, estimate(PRICE)))).reason).toBe(Reason.INSUFFICIENT_CREDITS);
    await addCredits(db.sql, { orgId: payer.orgId, amountMicro: PRICE });
    await call(till, payer, PRICE);
  });
});

describe("a hold", () => {
  it("is given without asking the database while the key's lease has enough", async () => {
    const payer = await makePayer(db.sql, 1_000 * PRICE);
    const { till } = await replica("one");
    for (let i = 0; i < 5; i++) await call(till, payer, PRICE);
    const hold = till.hold(payer, PRICE, estimate(PRICE));
    expect(hold).not.toBeInstanceOf(Promise);
    await (await hold).release();
  });

  it("has its intent in the journal once it is durable, and until it has ended", async () => {
    const payer = await makePayer(db.sql, PRICE);
    const { till } = await replica("one");
    const hold = await till.hold(payer, PRICE, estimate(PRICE));
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

  it("frees what the call did not cost", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const { till } = await replica("one");
    await call(till, payer, PRICE, 10 * PRICE);
    await call(till, payer, PRICE, 9 * PRICE);
    await till.giveBack(payer.orgId);
    expect(await balanceOf(db.sql, payer.orgId)).toMatchObject({
      spentMicro: 2 * PRICE,
      heldMicro: 0,
      availableMicro: 8 * PRICE,
    });
  });

  it("never charges more than its ceiling, less than nothing or a fraction, and ends once", async () => {
    const payer = await makePayer(db.sql, PRICE);
    const { till } = await replica("one");
    const hold = await till.hold(payer, PRICE, estimate(PRICE));
    const intent = intentOf(payer);
    hold.intend(intent);
    for (const cost of [PRICE + 1, -1, 0.5, Number.NaN])
      expect(() => hold.settle(endOf(intent, cost))).toThrow(RangeError);
    await hold.settle(endOf(intent, PRICE));
    expect(() => hold.settle(endOf(intent, PRICE))).toThrow("ends once");
    expect((await balanceOf(db.sql, payer.orgId)).spentMicro).toBe(PRICE);
  });

  it("of a free call needs no credit and leaves its record", async () => {
    const payer = await makePayer(db.sql, 0);
    const { till } = await replica("one");
    await call(till, payer, 0);
    expect(await statuses(payer)).toEqual(["settled"]);
    expect(await usageTotals(db.sql, payer.orgId)).toEqual({ requests: 1, costMicro: 0 });
  });

  it("of a failed call charges nothing, is on record and not in the usage list", async () => {
    const payer = await makePayer(db.sql, PRICE);
    const { till } = await replica("one");
    const hold = await till.hold(payer, PRICE, estimate(PRICE));
    const intent = intentOf(payer);
    hold.intend(intent);
    await hold.release(failureOf(intent));
    expect(await statuses(payer)).toEqual(["failed"]);
    expect((await listUsage(db.sql, payer.orgId, { limit: 10 })).rows).toEqual([]);
    expect(await openIntents()).toBe(0);
    await call(till, payer, PRICE);
  });

  it("is not needed to put a refused request on record", async () => {
    const payer = await makePayer(db.sql, 0);
    const { till } = await replica("one");
    await till.note({ ...failureOf(intentOf(payer)), httpStatus: 402, errorCode: "insufficient_credits" });
    expect(await statuses(payer)).toEqual(["failed"]);
  });
});

describe("a till that dies", () => {
  const leaveRunning = async (replica: Replica, payer: Payer): Promise<TestHold> => {
    const hold = await replica.till.hold(payer, PRICE, estimate(PRICE));
    hold.intend(intentOf(payer));
    await hold.durable;
    return hold;
  };

  it("is recovered at once by its next life: open calls are unmetered and not charged, and all credit is back", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const first = await openReplica(db.url, "mortal");
    await call(first.till, payer, PRICE);
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
  });

  it("is recovered by another once its life is over, and not before", async () => {
    const payer = await makePayer(db.sql, PRICE);
    const first = await openReplica(db.url, "mortal");
    await leaveRunning(first, payer);
    await first.kill();
    const other = await replica("other");
    await other.ledger.recover();
    expect((await balanceOf(db.sql, payer.orgId)).heldMicro).toBe(PRICE);
    await db.sql`update till set alive_until = now() - interval '1 second' where replica = 'mortal'`;
    await call(other.till, payer, PRICE);
    expect((await statuses(payer)).sort()).toEqual(["settled", "unmetered"]);
  });

  it("writes nothing when it wakes up fenced, refuses what was under way and begins a new life", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const [sleeper, other] = [await replica("sleeper"), await replica("other")];
    const before = sleeper.till.name;
    const dispatched = await leaveRunning(sleeper, payer);
    const waiting = await sleeper.till.hold(payer, PRICE, estimate(PRICE));
    await db.sql`update till set alive_until = now() - interval '1 second' where replica = 'sleeper'`;
    await other.ledger.recover();
    waiting.intend(intentOf(payer));
    expect((await refusalOf(waiting.durable)).reason).toBe(Reason.STORE_UNAVAILABLE);
    const late = await refusalOf(dispatched.settle(endOf(intentOf(payer), PRICE)));
    expect(late).toMatchObject({ reason: Reason.STORE_UNAVAILABLE, retryAfter: 1 });
    await refusalOf(waiting.release(failureOf(intentOf(payer))));
    expect(await statuses(payer)).toEqual(["unmetered"]);
    expect((await balanceOf(db.sql, payer.orgId)).spentMicro).toBe(0);
    await call(sleeper.till, payer, PRICE);
    expect(sleeper.till.name).not.toBe(before);
    expect((await balanceOf(db.sql, payer.orgId)).spentMicro).toBe(PRICE);
  });

  it("serves the calls that were waiting for credit when it was fenced", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const { till } = await replica("sleeper");
    await db.sql`select till_recover(id, true) from till where replica = 'sleeper' and fenced_at is null`;
    await call(till, payer, PRICE);
    expect(await statuses(payer)).toEqual(["settled"]);
  });
});

describe("a batch", () => {
  it("is applied once when its commit was not heard of", async () => {
    const payer = await makePayer(db.sql, 20 * PRICE);
    const { till, ledger } = await replica("one");
    const commit = ledger.commit.bind(ledger);
    let attempts = 0;
    ledger.commit = async (name, batch) => {
      const outcome = await commit(name, batch);
      if (attempts++ % 2 === 0) throw new Error("the connection was lost during the commit");
      return outcome;
    };
    const { served, refused } = await storm(8, 30, () => call(till, payer, PRICE));
    expect({ served, refused }).toEqual({ served: 20, refused: only(Reason.INSUFFICIENT_CREDITS, 10) });
    await closeAll();
    expect(await balanceOf(db.sql, payer.orgId)).toEqual(spent(20 * PRICE));
  });

  it("is applied whole or not at all, and one bad record does not sink the others", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const { till } = await replica("one");
    const holds = await Promise.all(Array.from({ length: 4 }, async () => till.hold(payer, PRICE, estimate(PRICE))));
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

  it("keeps text that JSON can say and the database can't hold", async () => {
    const payer = await makePayer(db.sql, PRICE);
    const { till } = await replica("one");
    const hold = await till.hold(payer, PRICE, estimate(PRICE));
    const intent = { ...intentOf(payer), model: "a\u0000b\ud800c\\u0000\u001fd" };
    hold.intend(intent);
    await hold.settle(endOf(intent, PRICE));
    const { rows } = await listUsage(db.sql, payer.orgId, { limit: 1 });
    expect(rows[0]!.model).toBe("a\ufffdb\ufffdc\\u0000\ufffdd");
  });

  it("charges no lease that there is not, and nothing below zero", async () => {
    const payer = await makePayer(db.sql, 100 * PRICE);
    const { ledger, till } = await replica("one");
    const hold = await till.hold(payer, PRICE, estimate(PRICE));
    const [held] = await db.sql<{ id: string }[]>`select id from lease where org_id = ${payer.orgId}`;
    const charges: [lease: string | null, costMicro: number][] = [
      ["lease_of_nobody", PRICE],
      [null, PRICE],
      [held!.id, -PRICE],
    ];
    for (const [lease, costMicro] of charges) {
      const settlements = [{ lease, record: endOf(intentOf(payer), costMicro) }];
      const [row] = await db.sql<{ last: number }[]>`select last_batch as last from till where id = ${till.name}`;
      const batch = { number: row!.last + 1, intents: [], settlements, over: [], moves: [] };
      expect(await ledger.commit(till.name, batch)).toMatchObject({ kind: "refused" });
    }
    await hold.release();
    expect(await statuses(payer)).toEqual([]);
  });
});

describe("requests of one batch", () => {
  it("are on record each as it was, whatever it shares with the others", async () => {
    const [one, two] = [await makePayer(db.sql, 100 * PRICE), await makePayer(db.sql, 100 * PRICE)];
    const { till } = await replica("one");
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
    const holds = await Promise.all(records.map((record) => till.hold(payerOf(record), PRICE, estimate(PRICE))));
    await Promise.all(
      records.map((record, i) => {
        holds[i]!.intend(record);
        return holds[i]!.settle(record);
      }),
    );
    const found = new Map(
      [
        ...(await listCalls(db.sql, one.orgId, { limit: 50 })),
        ...(await listCalls(db.sql, two.orgId, { limit: 50 })),
      ].map((call) => [call.requestId, call]),
    );
    expect(found.size).toBe(records.length);
    for (const { attemptMs, log, orgId: _org, wakeUpMicro: _wakeUp, ...record } of records) {
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
  it("refuses every change of what was entered", async () => {
    await makePayer(db.sql, PRICE);
    await expect(db.sql`update transfer set amount_micro = 1`).rejects.toThrow("append-only");
    await expect(db.sql`delete from transfer`).rejects.toThrow("append-only");
    await expect(db.sql`truncate transfer`).rejects.toThrow("append-only");
    await expect(db.sql`update request set cost_micro = 1`).rejects.toThrow("append-only");
    await expect(db.sql`update request set lease = 'lease_other'`).rejects.toThrow("append-only");
    await expect(db.sql`delete from request`).rejects.toThrow("append-only");
    await expect(db.sql`truncate request`).rejects.toThrow("append-only");
  });

  it("adds credit once per idempotency key, under concurrent calls too, and refuses another amount", async () => {
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

  it("lists usage newest first, in pages that neither repeat nor skip", async () => {
    const payer = await makePayer(db.sql, 25 * PRICE);
    const { till } = await replica("one");
    for (let i = 0; i < 25; i++) await call(till, payer, PRICE);
    const seen: string[] = [];
    for (let cursor: string | undefined, pages = 0; pages < 3; pages++) {
      const page = await listUsage(db.sql, payer.orgId, { limit: 10, cursor });
      seen.push(...page.rows.map((row) => row.requestId));
      cursor = page.nextCursor;
      expect(cursor === undefined).toBe(pages === 2);
    }
    expect(seen).toEqual([...new Set(seen)].sort().reverse());
    expect(seen).toHaveLength(25);
  });
});

describe("the calendar", () => {
  let restore = (): void => {};
  let clock: SettableWall;
  const stop = (at: number): void => {
    clock = new SettableWall(at);
    restore = replaceAmbient({ clock });
  };
  afterEach(() => restore());

  it("renews a daily budget at midnight UTC", async () => {
    stop(Date.UTC(2026, 4, 1, 23, 59, 59));
    const payer = await makePayer(db.sql, 100 * PRICE, { limitMicro: 2 * PRICE, interval: "daily" });
    const { till } = await replica("one");
    await call(till, payer, PRICE);
    await call(till, payer, PRICE);
    const refusal = await refusalOf(till.hold(payer, PRICE, estimate(PRICE)));
    expect(refusal.details.resetsAt).toBe(Date.UTC(2026, 4, 2) / 1000);
    clock.at += 1_000;
    await call(till, payer, 2 * PRICE);
    expect((await refusalOf(till.hold(payer, PRICE, estimate(PRICE)))).reason).toBe(Reason.KEY_BUDGET_EXHAUSTED);
  });

  it("renews a monthly budget on the first, and a lifetime budget never", async () => {
    stop(Date.UTC(2026, 11, 31, 23, 59, 59));
    const { till } = await replica("one");
    const monthly = await makePayer(db.sql, 100 * PRICE, { limitMicro: PRICE, interval: "monthly" });
    const lifetime = await makePayer(db.sql, 100 * PRICE, { limitMicro: PRICE, interval: "lifetime" });
    for (const payer of [monthly, lifetime]) await call(till, payer, PRICE);
    expect((await refusalOf(till.hold(monthly, PRICE, estimate(PRICE)))).details.resetsAt).toBe(
      Date.UTC(2027, 0, 1) / 1000,
    );
    expect((await refusalOf(till.hold(lifetime, PRICE, estimate(PRICE)))).details.resetsAt).toBeUndefined();
    clock.at += 1_000;
    await call(till, monthly, PRICE);
    expect((await refusalOf(till.hold(lifetime, PRICE, estimate(PRICE)))).reason).toBe(Reason.KEY_BUDGET_EXHAUSTED);
  });

  it("counts a call that runs over midnight on the day on which it was held", async () => {
    stop(Date.UTC(2026, 4, 1, 23, 59, 59));
    const payer = await makePayer(db.sql, 100 * PRICE, { limitMicro: 2 * PRICE, interval: "daily" });
    const { till } = await replica("one");
    const hold = await till.hold(payer, 2 * PRICE, estimate(2 * PRICE));
    clock.at += 2_000;
    await call(till, payer, 2 * PRICE);
    const intent = intentOf(payer);
    hold.intend(intent);
    await hold.settle(endOf(intent, 2 * PRICE));
    await closeAll();
    const days = await db.sql<{ day: Date; taken_micro: number }[]>`
      select day, taken_micro from key_day where key_id = ${payer.keyId} order by day`;
    expect(days.map((row) => [row.day.toISOString().slice(0, 10), row.taken_micro])).toEqual([
      ["2026-05-01", 2 * PRICE],
      ["2026-05-02", 2 * PRICE],
    ]);
  });
});

describe("time", () => {
  let restore = (): void => {};
  let clock: ManualClock;
  beforeEach(() => {
    clock = new ManualClock();
    restore = replaceAmbient({ clock });
  });
  afterEach(() => restore());

  /** Lets time run while something is under way, at a pace at which the database keeps up. */
  const meanwhile = async <T>(work: Promise<T>): Promise<T> => {
    let over = false;
    const end = (): void => {
      over = true;
    };
    work.then(end, end);
    while (!over) {
      await clock.advance(1);
      await db.sql`select`;
    }
    return work;
  };

  it("returns a lease that nobody used for five seconds", async () => {
    const payer = await makePayer(db.sql, 100 * PRICE);
    const { till } = await replica("one");
    await meanwhile(call(till, payer, PRICE, 50 * PRICE));
    expect((await balanceOf(db.sql, payer.orgId)).heldMicro).toBeGreaterThan(0);
    await meanwhile(sleep(7_000));
    await meanwhile(call(till, await makePayer(db.sql, PRICE), PRICE));
    expect(await balanceOf(db.sql, payer.orgId)).toMatchObject({ heldMicro: 0, availableMicro: 99 * PRICE });
  });

  it("shows when the store is away: what runs and what comes is refused, and the batch is applied once it is back", async () => {
    const payer = await makePayer(db.sql, 100 * PRICE);
    const { till, ledger } = await replica("one");
    await meanwhile(call(till, payer, PRICE, 10 * PRICE));
    const commit = ledger.commit.bind(ledger);
    ledger.commit = () => Promise.reject(new Error("the server is away"));
    const hold = await till.hold(payer, PRICE, estimate(PRICE));
    const intent = intentOf(payer);
    hold.intend(intent);
    const durable = refusalOf(hold.durable);
    await clock.advance(5_000);
    expect((await durable).reason).toBe(Reason.STORE_UNAVAILABLE);
    expect(() => till.hold(payer, PRICE, estimate(PRICE))).toThrow(Refusal);
    hold.release(failureOf(intent));
    ledger.commit = commit;
    await clock.advance(1_000);
    await expect.poll(() => statuses(payer)).toHaveLength(2);
    expect((await statuses(payer)).sort()).toEqual(["failed", "settled"]);
    await meanwhile(call(till, payer, PRICE));
  });

  it("keeps an idle till alive by a heartbeat", async () => {
    const { till } = await replica("one");
    const batches = async (): Promise<number> =>
      (await db.sql<{ last_batch: number }[]>`select last_batch from till where id = ${till.name}`)[0]!.last_batch;
    const before = await batches();
    await clock.advance(4_000);
    await expect.poll(batches).toBeGreaterThan(before);
  });
});
