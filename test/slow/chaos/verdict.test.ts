/** The judge of a siege finds what is wrong, and nothing else: what callers were told is held against the request that it names. */
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Payer } from "../../../src/billing/credit-leaser.ts";
import { newId } from "../../../src/ids.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { endOf, estimate, failureOf, intentOf, makePayer, openReplica, type Replica } from "../../support/money.ts";
import type { Log, Told } from "./money/callers.ts";
import { verdict } from "./money/verdict.ts";

const PRICE = 1_600;
const CREDIT = 10 * PRICE;
const CALL = "call-1-1";

let db: FreshDatabase;
let replica: Replica;
beforeAll(async () => {
  db = await freshDatabase();
  replica = await openReplica(db.url, "one");
});
afterAll(async () => {
  await replica.close();
  await db.close();
});

/** Puts a request of the one call on record; answers its id. */
async function onRecord(payer: Payer, end: "settled" | "failed"): Promise<string> {
  const intent = intentOf(payer, newId("req"));
  const hold = await replica.leaser.hold(payer, PRICE, estimate(PRICE));
  hold.intend(intent);
  await hold.settle({
    ...(end === "settled" ? endOf(intent, PRICE) : failureOf(intent)),
    log: { metadata: { call: CALL } },
  });
  await replica.leaser.giveBack(payer.orgId);
  return intent.requestId;
}

/** The log of a caller who called once, under a key. */
function logOf(answered: readonly string[], last = "refused with store_unavailable"): Log {
  const answers = new Map(answered.map((id) => [id, PRICE]));
  const text = answered.length > 0 ? "an answer" : undefined;
  const told: Told = { id: CALL, keyed: true, answered: answers, failed: new Set(), text, last };
  return {
    told: new Map([[CALL, told]]),
    runs: new Map([[CALL, 2]]),
    faults: [],
    unheard: text === undefined ? [told] : [],
  };
}

it("accepts a call that failed, ran again under its key and was replayed, if its answer names the charged run", async () => {
  const payer = await makePayer(db.sql, CREDIT);
  await onRecord(payer, "failed");
  const ran = await onRecord(payer, "settled");
  expect(await verdict(db.sql, payer.orgId, logOf([ran]), CREDIT)).toEqual([]);
});

it("reports an answer that names a failed or unknown run", async () => {
  const payer = await makePayer(db.sql, CREDIT);
  const failed = await onRecord(payer, "failed");
  await onRecord(payer, "settled");
  expect(await verdict(db.sql, payer.orgId, logOf([failed]), CREDIT)).toEqual([
    `${CALL} was answered and is on record as failed`,
  ]);
  expect(await verdict(db.sql, payer.orgId, logOf(["req_nobody"]), CREDIT)).toEqual([
    `${CALL} was answered and is not on record`,
  ]);
});

it("accepts an unanswered call if it was not charged", async () => {
  const payer = await makePayer(db.sql, CREDIT);
  const log = logOf([], "nobody listened");
  expect(await verdict(db.sql, payer.orgId, log, CREDIT)).toEqual([]);
  await onRecord(payer, "failed");
  expect(await verdict(db.sql, payer.orgId, log, CREDIT)).toEqual([]);
  await onRecord(payer, "settled");
  expect(await verdict(db.sql, payer.orgId, log, CREDIT)).toEqual([
    `${CALL} was charged and its key never answered: nobody listened`,
  ]);
});
