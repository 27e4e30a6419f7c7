import { afterEach, describe, expect, it } from "vitest";
import type { Payer } from "../../src/billing/credit-leaser.ts";
import { Reason } from "../../src/errors.ts";
import { budgetsSpent } from "../../src/store/account/keys.ts";
import { createWorkspace } from "../../src/store/account/members.ts";
import { addCredits, balanceOf } from "../../src/store/account/orgs.ts";
import { tx } from "../../src/store/database/tx.ts";
import { usageTotals } from "../../src/store/history/usage.ts";
import { setAmbient } from "../support/clocks.ts";
import { brokenInvariants } from "../support/invariants.ts";
import { only, refusalOf, spent, storm, useLedger } from "../support/ledger.ts";
import { call, endOf, estimate, intentOf, makeKey, makePayer, SettableWall } from "../support/money.ts";

const PRICE = 1_600;

const { db, replica, closeAll } = useLedger();

describe("a balance for exactly 500 calls", () => {
  it("serves exactly 500 from two credit leasers to 64 callers, refuses others with 402 and holds nothing afterwards", async () => {
    const payer = await makePayer(db.sql, 500 * PRICE);
    const leasers = [(await replica("one")).leaser, (await replica("two")).leaser];
    const { served, refused } = await storm(64, 800, (caller) => call(leasers[caller % 2]!, payer, PRICE));
    expect(served).toBe(500);
    expect(refused).toEqual(only(Reason.INSUFFICIENT_CREDITS, 300));
    await closeAll();
    expect(await balanceOf(db.sql, payer.orgId)).toEqual(spent(500 * PRICE));
    expect(await usageTotals(db.sql, payer.orgId)).toEqual({ requests: 500, costMicro: 500 * PRICE });
  });

  it("serves exactly 500 to eight keys of one organization", async () => {
    const payer = await makePayer(db.sql, 500 * PRICE);
    const keys = await Promise.all(Array.from({ length: 8 }, () => makeKey(db.sql, payer.orgId)));
    const leasers = [(await replica("one")).leaser, (await replica("two")).leaser];
    const payerOf = (caller: number): Payer => ({ orgId: payer.orgId, keyId: keys[caller % 8]! });
    const { served, refused } = await storm(64, 800, (caller) =>
      call(leasers[(caller >> 3) % 2]!, payerOf(caller), PRICE),
    );
    expect(served).toBe(500);
    expect(refused).toEqual(only(Reason.INSUFFICIENT_CREDITS, 300));
    await closeAll();
    expect(await balanceOf(db.sql, payer.orgId)).toEqual(spent(500 * PRICE));
  });

  it("serves all 500 although running calls hold twice what they cost", async () => {
    const payer = await makePayer(db.sql, 501 * PRICE);
    const { leaser } = await replica("one");
    const { served } = await storm(64, 500, () => call(leaser, payer, PRICE, 2 * PRICE));
    expect(served).toBe(500);
    await closeAll();
    expect((await balanceOf(db.sql, payer.orgId)).balanceMicro).toBe(PRICE);
  });

  it("serves exactly 500 to a key whose budget covers 500 and to its derived keys together", async () => {
    const top = await makePayer(db.sql, 10_000 * PRICE, { limitMicro: 500 * PRICE, interval: "daily" });
    const { orgId, keyId } = top;
    const child = await makeKey(db.sql, orgId, undefined, undefined, keyId);
    const wide = { limitMicro: 9_000 * PRICE, interval: "daily" } as const;
    const grandchild = await makeKey(db.sql, orgId, wide, undefined, child);
    const payers: Payer[] = [
      top,
      { orgId, keyId: child, ancestors: [keyId] },
      { orgId, keyId: grandchild, ancestors: [child, keyId] },
      { orgId, keyId: await makeKey(db.sql, orgId, undefined, undefined, keyId), ancestors: [keyId] },
    ];
    const leasers = [(await replica("one")).leaser, (await replica("two")).leaser];
    const { served, refused } = await storm(64, 800, (caller) =>
      call(leasers[(caller >> 2) % 2]!, payers[caller % 4]!, PRICE),
    );
    expect(served).toBe(500);
    expect(refused).toEqual(only(Reason.KEY_BUDGET_EXHAUSTED, 300));
    await closeAll();
    const spent = await budgetsSpent(db.sql, [keyId, grandchild], Date.now());
    expect(spent.get(keyId)?.spentMicro).toBe(500 * PRICE);
    expect(spent.get(grandchild)?.spentMicro).toBeLessThan(500 * PRICE);
    expect(await brokenInvariants(db.sql)).toEqual([]);
  });

  it("serves exactly 500 if only the key's budget is short, and names the budget and its renewal", async () => {
    const payer = await makePayer(db.sql, 10_000 * PRICE, { limitMicro: 500 * PRICE, interval: "daily" });
    const leasers = [(await replica("one")).leaser, (await replica("two")).leaser];
    const { served, refused } = await storm(64, 800, (caller) => call(leasers[caller % 2]!, payer, PRICE));
    expect(served).toBe(500);
    expect(refused).toEqual(only(Reason.KEY_BUDGET_EXHAUSTED, 300));
    const { details } = await refusalOf(leasers[0]!.hold(payer, PRICE, estimate(PRICE)));
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
  it("serves exactly 500 to three of its keys from two credit leasers, and names the budget", async () => {
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
    const leasers = [(await replica("one")).leaser, (await replica("two")).leaser];
    const { served, refused } = await storm(64, 800, (caller) =>
      call(leasers[caller % 2]!, payers[caller % 3]!, PRICE),
    );
    expect(served).toBe(500);
    expect(refused).toEqual(only(Reason.WORKSPACE_BUDGET_EXHAUSTED, 300));
    await closeAll();
    const balance = await balanceOf(db.sql, first.orgId);
    expect(balance).toMatchObject({ spentMicro: 500 * PRICE, heldMicro: 0, availableMicro: 9_500 * PRICE });
  });
});

describe("a refusal for insufficient credit", () => {
  it("reports the required and the available credit and the affordable horizon", async () => {
    const payer = await makePayer(db.sql, 1_000);
    const { leaser } = await replica("one");
    const { reason, details } = await refusalOf(leaser.hold(payer, PRICE, estimate(PRICE)));
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

  it("follows only after idle credit was recalled from another replica", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const [one, two] = [await replica("one"), await replica("two")];
    const hold = await one.leaser.hold(payer, 10 * PRICE, estimate(10 * PRICE));
    await hold.release();
    expect((await balanceOf(db.sql, payer.orgId)).availableMicro).toBe(0);
    await call(two.leaser, payer, 10 * PRICE);
  });

  it("is not caused by a balance query while the other replica's response is awaited", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const [one, two] = [await replica("one"), await replica("two")];
    const hold = await one.leaser.hold(payer, 10 * PRICE, estimate(10 * PRICE));
    await hold.release();
    let answered = 0;
    const commit = two.ledger.commit.bind(two.ledger);
    two.ledger.commit = async (name, batch) => {
      const outcome = await commit(name, batch);
      answered++;
      return outcome;
    };
    const recall = two.ledger.recall.bind(two.ledger);
    two.ledger.recall = async (...asked) => {
      const before = answered;
      await db.sql`select pg_notify('lease_returned', ${payer.orgId})`;
      await expect.poll(() => answered).toBeGreaterThan(before);
      return recall(...asked);
    };
    await call(two.leaser, payer, 10 * PRICE);
  });

  it("follows only after idle credit was taken from the organization's other keys", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const { leaser } = await replica("one");
    const hold = await leaser.hold(payer, 10 * PRICE, estimate(10 * PRICE));
    await hold.release();
    await call(leaser, { orgId: payer.orgId, keyId: await makeKey(db.sql, payer.orgId) }, 10 * PRICE);
  });

  it("does not keep later calls from recalling credit if another replica did not answer in time", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const [one, two] = [await replica("one"), await replica("two")];
    const hold = await one.leaser.hold(payer, 10 * PRICE, estimate(10 * PRICE));
    const commit = one.ledger.commit.bind(one.ledger);
    const awake = Promise.withResolvers<void>();
    one.ledger.commit = async (name, batch) => {
      await awake.promise;
      return commit(name, batch);
    };
    expect((await refusalOf(two.leaser.hold(payer, PRICE, estimate(PRICE)))).reason).toBe(Reason.INSUFFICIENT_CREDITS);
    awake.resolve();
    await expect.poll(async () => (await db.sql`select from recall`).count).toBe(0);
    await hold.release();
    await call(two.leaser, payer, PRICE);
  });

  it("follows although another replica holds credit, if that is reserved for its calls", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const [one, two] = [await replica("one"), await replica("two")];
    const hold = await one.leaser.hold(payer, 10 * PRICE, estimate(10 * PRICE));
    expect((await refusalOf(two.leaser.hold(payer, PRICE, estimate(PRICE)))).reason).toBe(Reason.INSUFFICIENT_CREDITS);
    await hold.release();
  });

  it("does not affect a small call behind a large one", async () => {
    const payer = await makePayer(db.sql, 10 * PRICE);
    const { leaser } = await replica("one");
    const large = refusalOf(leaser.hold(payer, 11 * PRICE, estimate(11 * PRICE)));
    const small = call(leaser, payer, PRICE);
    expect((await large).reason).toBe(Reason.INSUFFICIENT_CREDITS);
    await small;
  });

  it("stops as soon as credit is added", async () => {
    const payer = await makePayer(db.sql, 0);
    const { leaser } = await replica("one");
    expect((await refusalOf(leaser.hold(payer, PRICE, estimate(PRICE)))).reason).toBe(Reason.INSUFFICIENT_CREDITS);
    await addCredits(db.sql, { orgId: payer.orgId, amountMicro: PRICE });
    await call(leaser, payer, PRICE);
  });
});

describe("a budget's interval", () => {
  let restore = (): void => {};
  let clock: SettableWall;
  const stop = (at: number): void => {
    clock = new SettableWall(at);
    restore = setAmbient({ clock });
  };
  afterEach(() => restore());

  it("renews a daily budget at midnight UTC", async () => {
    stop(Date.UTC(2026, 4, 1, 23, 59, 59));
    const payer = await makePayer(db.sql, 100 * PRICE, { limitMicro: 2 * PRICE, interval: "daily" });
    const { leaser } = await replica("one");
    await call(leaser, payer, PRICE);
    await call(leaser, payer, PRICE);
    const refusal = await refusalOf(leaser.hold(payer, PRICE, estimate(PRICE)));
    expect(refusal.details.resetsAt).toBe(Date.UTC(2026, 4, 2) / 1000);
    clock.at += 1_000;
    await call(leaser, payer, 2 * PRICE);
    expect((await refusalOf(leaser.hold(payer, PRICE, estimate(PRICE)))).reason).toBe(Reason.KEY_BUDGET_EXHAUSTED);
  });

  it("renews a monthly budget on the first, and a lifetime budget never", async () => {
    stop(Date.UTC(2026, 11, 31, 23, 59, 59));
    const { leaser } = await replica("one");
    const monthly = await makePayer(db.sql, 100 * PRICE, { limitMicro: PRICE, interval: "monthly" });
    const lifetime = await makePayer(db.sql, 100 * PRICE, { limitMicro: PRICE, interval: "lifetime" });
    for (const payer of [monthly, lifetime]) await call(leaser, payer, PRICE);
    expect((await refusalOf(leaser.hold(monthly, PRICE, estimate(PRICE)))).details.resetsAt).toBe(
      Date.UTC(2027, 0, 1) / 1000,
    );
    expect((await refusalOf(leaser.hold(lifetime, PRICE, estimate(PRICE)))).details.resetsAt).toBeUndefined();
    clock.at += 1_000;
    await call(leaser, monthly, PRICE);
    expect((await refusalOf(leaser.hold(lifetime, PRICE, estimate(PRICE)))).reason).toBe(Reason.KEY_BUDGET_EXHAUSTED);
  });

  it("counts a call that runs over midnight on the day of its hold", async () => {
    stop(Date.UTC(2026, 4, 1, 23, 59, 59));
    const payer = await makePayer(db.sql, 100 * PRICE, { limitMicro: 2 * PRICE, interval: "daily" });
    const { leaser } = await replica("one");
    const hold = await leaser.hold(payer, 2 * PRICE, estimate(2 * PRICE));
    clock.at += 2_000;
    await call(leaser, payer, 2 * PRICE);
    const intent = intentOf(payer);
    hold.intend(intent);
    await hold.settle(endOf(intent, 2 * PRICE));
    await closeAll();
    const days = await db.sql<{ day: Date; takenMicro: number }[]>`
      select day, taken_micro from key_day where key_id = ${payer.keyId} order by day`;
    expect(days.map((row) => [row.day.toISOString().slice(0, 10), row.takenMicro])).toEqual([
      ["2026-05-01", 2 * PRICE],
      ["2026-05-02", 2 * PRICE],
    ]);
  });
});
