/** A process dies at each point of a call's road to the ledger, in turn: before a statement is sent, or before its answer is heard. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { Payer } from "../../../src/billing/credit-leaser.ts";
import { newId } from "../../../src/ids.ts";
import { balanceOf } from "../../../src/store/account/orgs.ts";
import { claim } from "../../../src/store/billing/idempotency.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { endOf, estimate, intentOf, makePayer, openReplica, type Replica } from "../../support/money.ts";

const PRICE = 1_600;
const CREDIT = 4 * PRICE;
const ROUNDS = 5;
const HASH = Buffer.alloc(32, 1);

let db: FreshDatabase;
let other: Replica;
beforeAll(async () => {
  db = await freshDatabase();
  other = await openReplica(db.url, "other");
});
afterEach(async () => expect(await brokenInvariants(db.sql)).toEqual([]));
afterAll(async () => {
  await other.close();
  await db.close();
});

/** What a call does on its way, in words; a test dies at one of them. */
type Point = (name: string) => Promise<void>;
const NEVER: Point = async () => {};

/** A call under the idempotency key `k`, as the gate, the credit leaser and the bill make it; answers what its caller gets. */
async function callOnce(replica: Replica, payer: Payer, { quick }: { quick: boolean }, at: Point): Promise<string> {
  const requestId = newId("req");
  const claimant = {
    orgId: payer.orgId,
    key: "k",
    hash: HASH,
    line: [payer.keyId] as const,
    method: "Act",
    workspaceId: undefined,
    sealed: false,
    claimId: requestId,
    leaser: replica.leaser.name,
  };
  await at("before the key is claimed");
  const claimed = await claim(replica.sql, claimant);
  await at("after the key was claimed");
  if (claimed.kind === "replay") return Buffer.from(claimed.response).toString();
  const hold = await replica.leaser.hold(payer, PRICE, estimate(PRICE));
  await at("after credit was held");
  const intent = intentOf(payer, requestId);
  hold.intend(intent);
  if (!quick) await hold.durable;
  await at("after the model has answered");
  const response = Buffer.from(`the answer of ${requestId}`);
  const settled = hold.settle(endOf(intent, PRICE, { claim: { key: "k", claimId: requestId, response } }));
  await hold.durable;
  await at("after the promise was durable");
  await settled;
  await at("before the answer is sent");
  return response.toString();
}

/** Every point of a call, as it passes them when it doesn't die: its own, and both sides of each batch. */
async function pointsOf(quick: boolean): Promise<string[]> {
  const seen: string[] = [];
  await dieAt(undefined, quick, async (name) => void seen.push(name));
  return seen;
}

/** Lets a fresh replica make a call and die at `point`; answers what its caller heard, if anything, and who had to pay. */
async function dieAt(
  point: string | undefined,
  quick: boolean,
  pass: Point = NEVER,
): Promise<{ payer: Payer; heard: string | undefined; leaser: string }> {
  const payer = await makePayer(db.sql, CREDIT);
  const replica = await openReplica(db.url, newId("replica"));
  const leaser = replica.leaser.name;
  const dead = Promise.withResolvers<undefined>();
  const at: Point = async (name) => {
    await pass(name);
    if (name !== point) return;
    await replica.kill();
    dead.resolve(undefined);
    await new Promise(() => {});
  };
  let batches = 0;
  const commit = replica.ledger.commit.bind(replica.ledger);
  replica.ledger.commit = async (leaser, batch) => {
    const number = ++batches;
    await at(`before batch ${number}`);
    const outcome = await commit(leaser, batch);
    await at(`after batch ${number}`);
    return outcome;
  };
  const heard = await Promise.race([callOnce(replica, payer, { quick }, at), dead.promise]);
  // It may die as it gives its credit back.
  if (heard !== undefined) await Promise.race([replica.close(), dead.promise]);
  return { payer, heard, leaser };
}

describe.each([
  ["quick: its promise and its end share a batch", true],
  ["slow: its promise is durable before it ends", false],
])("a call that is %s", (_, quick) => {
  it(`dies at each point ${ROUNDS} times: a retry under its key runs or replays it, with one charge`, {
    timeout: 300_000,
  }, async () => {
    const points = await pointsOf(quick);
    expect(points.length).toBeGreaterThan(quick ? 9 : 11);
    for (const point of [...new Set(points)]) {
      for (let round = 0; round < ROUNDS; round++) {
        const { payer, heard, leaser } = await dieAt(point, quick);
        // It's found dead, and its caller asks another gateway.
        await db.sql`select leaser_recover(${leaser}, true)`;
        const first = await callOnce(other, payer, { quick: true }, NEVER);
        const again = await callOnce(other, payer, { quick: true }, NEVER);
        expect([point, again]).toEqual([point, first]);
        if (heard !== undefined) expect([point, first]).toEqual([point, heard]);
        await other.leaser.giveBack(payer.orgId);
        const balance = await balanceOf(db.sql, payer.orgId);
        expect([point, balance.spentMicro, balance.heldMicro]).toEqual([point, PRICE, 0]);
      }
    }
  });
});
