/** Batches of promises alone, which leave the credit leaser's own row as it is. */
import { afterEach, describe, expect, it } from "vitest";
import { newId } from "../../src/ids.ts";
import type { Ledger } from "../../src/store/billing/ledger.ts";
import { setAmbient } from "../support/clocks.ts";
import { useLedger } from "../support/ledger.ts";
import { intentOf, makePayer, SettableWall } from "../support/money.ts";
import { runs } from "../support/runs.ts";

const { db, replica, statuses, openIntents } = useLedger();

let restore: () => void = () => {};
afterEach(() => restore());

type Promised = Parameters<Ledger["commit"]>[1]["intents"];

const pageOf = (number: number, intents: Promised) => ({ number, intents, settlements: [], over: [], moves: [] });

/** A credit leaser of its own that nothing but the test writes by, after the batch that begins its life. */
async function openLeaser(lifeMs = 15_000): Promise<{ ledger: Ledger; leaser: string }> {
  const { ledger } = await replica(`leaser ${newId("replica")}`, { lifeMs });
  const leaser = await ledger.open();
  expect(await ledger.commit(leaser, pageOf(1, []))).toMatchObject({ kind: "done" });
  return { ledger, leaser };
}

describe("a batch of intents", () => {
  it("is written once, however often and by whichever path it arrives", async () => {
    const payer = await makePayer(db.sql, 0);
    const { ledger, leaser } = await openLeaser();
    const page = pageOf(2, [intentOf(payer), intentOf(payer)]);
    for (let times = 0; times < 3; times++) expect(await ledger.commit(leaser, page)).toMatchObject({ kind: "done" });
    // One with ends in it comes after the first, and goes the other way.
    expect(await ledger.commit(leaser, { ...page, number: 3, over: [9] })).toMatchObject({ kind: "done" });
    expect(await ledger.commit(leaser, { ...page, number: 3, over: [9] })).toMatchObject({ kind: "done" });
    expect(await ledger.commit(leaser, page)).toMatchObject({ kind: "done" });
    expect(await openIntents()).toBe(2);
    await db.sql`select leaser_recover(${leaser}, true)`;
    expect(await statuses(payer)).toEqual(["unmetered", "unmetered"]);
  });

  it("that arrives after all its calls ended is not written again", async () => {
    const payer = await makePayer(db.sql, 0);
    const { ledger, leaser } = await openLeaser();
    const page = pageOf(2, [intentOf(payer)]);
    await ledger.commit(leaser, page);
    await ledger.commit(leaser, { ...pageOf(3, []), over: [2] });
    await ledger.commit(leaser, page);
    expect(await openIntents()).toBe(0);
  });

  it("is refused if the credit leaser was fenced", async () => {
    const { ledger, leaser } = await openLeaser();
    await db.sql`select leaser_recover(${leaser}, true)`;
    expect(await ledger.commit(leaser, pageOf(2, [intentOf(await makePayer(db.sql, 0))]))).toEqual({ kind: "fenced" });
  });

  it("is recorded completely or refused completely if the credit leaser is fenced concurrently", async () => {
    const payer = await makePayer(db.sql, 0);
    const kept: string[] = [];
    const ROUNDS = runs(5);
    for (let round = 0; round < ROUNDS; round++) {
      const { ledger, leaser } = await openLeaser();
      const pages = async (): Promise<void> => {
        for (let number = 2; ; number++) {
          const intents = [intentOf(payer), intentOf(payer)];
          if ((await ledger.commit(leaser, pageOf(number, intents))).kind === "fenced") return;
          kept.push(...intents.map(({ requestId }) => requestId));
        }
      };
      const fence = async (): Promise<void> => {
        const before = kept.length;
        await expect.poll(() => kept.length - before, { interval: 1 }).toBeGreaterThan((round * 25) / ROUNDS);
        await db.sql`select leaser_recover(${leaser}, true)`;
      };
      await Promise.all([pages(), fence()]);
    }
    const found = await db.sql<{ id: string }[]>`select request_id as id from request where org_id = ${payer.orgId}`;
    expect(found.map(({ id }) => id).sort()).toEqual(kept.sort());
    expect(await openIntents()).toBe(0);
  });

  it("renews the credit leaser's life at intervals, and not every time", async () => {
    const payer = await makePayer(db.sql, 0);
    const wall = new SettableWall(Date.now());
    let ahead = 0;
    restore = setAmbient({
      clock: { wall: () => wall.wall(), after: (ms, run) => wall.after(ms, run), steady: () => wall.steady() + ahead },
    });
    const { ledger, leaser } = await openLeaser(60_000);
    const life = async (): Promise<number> =>
      (
        await db.sql<{ until: Date }[]>`select alive_until as until from leaser where id = ${leaser}`
      )[0]!.until.getTime();
    const before = await life();
    await ledger.commit(leaser, pageOf(2, [intentOf(payer)]));
    expect(await life()).toBe(before);
    ahead += 4_000;
    await ledger.commit(leaser, pageOf(3, [intentOf(payer)]));
    expect(await life()).toBeGreaterThan(before);
    expect(await openIntents()).toBe(2);
    await db.sql`select leaser_recover(${leaser}, true)`;
  });
});
