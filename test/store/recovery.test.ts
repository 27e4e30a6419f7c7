/** What dead credit leasers left is found by whichever gateway lives: soon after it starts, and one that can't be recovered stops no other. */
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import type { Payer } from "../../src/billing/credit-leaser.ts";
import { balanceOf } from "../../src/store/account/orgs.ts";
import { setAmbient } from "../support/clocks.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { brokenInvariants } from "../support/invariants.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { estimate, intentOf, makePayer, openReplica } from "../support/money.ts";

const PRICE = 1_600;

let db: FreshDatabase;
let restore = (): void => {};
beforeAll(async () => {
  db = await freshDatabase();
});
afterEach(async () => {
  restore();
  expect(await brokenInvariants(db.sql)).toEqual([]);
});
afterAll(() => db.close());

/** From here on time stands still, until the test's end or `restore`. */
function stopTime(): ManualClock {
  const clock = new ManualClock();
  restore = setAmbient({ clock });
  return clock;
}

/** Lets a replica die with a call under way; answers its credit leaser. */
async function die(replica: string, payer: Payer): Promise<string> {
  const mortal = await openReplica(db.url, replica);
  const hold = await mortal.leaser.hold(payer, PRICE, estimate(PRICE));
  hold.intend(intentOf(payer));
  await hold.durable;
  await mortal.kill();
  return mortal.leaser.name;
}

/** The life of a credit leaser was over a minute ago. */
const endLife = (leaser: string) =>
  db.sql`update leaser set alive_until = clock_timestamp() - interval '1 minute' where id = ${leaser}`;

const isFenced = async (leaser: string): Promise<boolean> =>
  (await db.sql`select from leaser where id = ${leaser} and fenced_at is not null`).length === 1;

const fenced = (leaser: string): Promise<void> => eventually(async () => expect(await isFenced(leaser)).toBe(true));

it("a restarted gateway with another name fences its predecessor within its first second, and its credit returns", async () => {
  const payer = await makePayer(db.sql, PRICE);
  const dead = await die("predecessor", payer);
  await endLife(dead);
  const clock = stopTime();
  const next = await openReplica(db.url, "successor");
  expect(await isFenced(dead)).toBe(false);
  await clock.advance(1_000);
  await fenced(dead);
  expect(await balanceOf(db.sql, payer.orgId)).toMatchObject({ availableMicro: PRICE, heldMicro: 0, spentMicro: 0 });
  restore();
  await next.close();
});

it("a running gateway looks for dead credit leasers again five seconds later", async () => {
  const [early, late] = [
    await die("early", await makePayer(db.sql, PRICE)),
    await die("late", await makePayer(db.sql, PRICE)),
  ];
  await endLife(early);
  const clock = stopTime();
  const witness = await openReplica(db.url, "witness");
  await clock.advance(1_000);
  await fenced(early);
  await endLife(late);
  await clock.advance(4_000);
  expect(await isFenced(late)).toBe(false);
  await clock.advance(1_000);
  await fenced(late);
  restore();
  await witness.close();
});

it("a dead credit leaser that cannot be recovered does not block others, and is recovered when possible", async () => {
  const dead = await die("behind", await makePayer(db.sql, PRICE));
  await endLife(dead);
  const broken = "broken/1";
  await db.sql`
    insert into leaser (id, replica, epoch, alive_until) values (${broken}, 'broken', 1, clock_timestamp() - interval '1 hour')`;
  await db.sql`insert into intent (leaser_id, batch, promised) values (${broken}, 1, 'not json')`;
  stopTime();
  const finder = await openReplica(db.url, "finder");
  await expect(finder.ledger.recover()).rejects.toThrow("json");
  expect(await isFenced(dead)).toBe(true);
  expect(await isFenced(broken)).toBe(false);
  await db.sql`update intent set promised = '[]' where leaser_id = ${broken}`;
  await finder.ledger.recover();
  expect(await isFenced(broken)).toBe(true);
  restore();
  await finder.close();
});
