import { createHash } from "node:crypto";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Payer } from "../../src/billing/credit-leaser.ts";
import { Reason, Refusal } from "../../src/errors.ts";
import { newId } from "../../src/ids.ts";
import { balanceOf } from "../../src/store/account/orgs.ts";
import { Claims, claim, pruneIdempotency, unclaim } from "../../src/store/billing/idempotency.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { brokenInvariants } from "../support/invariants.ts";
import {
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
const ANSWER = new Uint8Array([8, 0, 255, 10, 92, 34]);
const hashOf = (body: string): Buffer => createHash("sha256").update(body).digest();

let db: FreshDatabase;
let replica: Replica;
let payer: Payer;
beforeAll(async () => {
  db = await freshDatabase();
});
beforeEach(async () => {
  replica = await openReplica(db.url, "one");
  payer = await makePayer(db.sql, 10 * PRICE);
});
afterEach(async () => {
  await replica.close();
  expect(await brokenInvariants(db.sql)).toEqual([]);
});
afterAll(() => db.close());

/** Claims key `k` for a body, under the present credit leaser of `replica`. */
const claimFor = (body = "a", claimId = newId("req"), key = "k", leaser = replica.leaser.name) =>
  claim(db.sql, {
    orgId: payer.orgId,
    workspaceId: undefined,
    sealed: false,
    key,
    hash: hashOf(body),
    line: [payer.keyId],
    method: "limber.v1.InferenceService.Act",
    claimId,
    leaser,
  });

const reasonOf = async (promise: Promise<unknown>): Promise<Refusal> => {
  const thrown = await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
  return thrown instanceof Refusal ? thrown : expect.fail(`not refused: ${thrown}`);
};

/** The road of a call that runs: held, intended, durable. */
async function dispatch(requestId: string): Promise<{ hold: TestHold; settle: () => Promise<void> }> {
  const hold = await replica.leaser.hold(payer, PRICE, estimate(PRICE));
  const intent = intentOf(payer, requestId);
  hold.intend(intent);
  await hold.durable;
  return {
    hold,
    settle: () => hold.settle(endOf(intent, PRICE, { claim: { key: "k", claimId: requestId, response: ANSWER } })),
  };
}

describe("an idempotency key", () => {
  it("of 100 concurrent identical calls runs one; the others are refused meanwhile, and then get its answer byte for byte", async () => {
    const claims = await Promise.allSettled(Array.from({ length: 100 }, () => claimFor()));
    const run = claims.flatMap((claim) => (claim.status === "fulfilled" ? [claim.value] : []));
    expect(run).toMatchObject([{ kind: "run" }]);
    for (const { reason } of claims.filter((claim) => claim.status === "rejected")) {
      expect(reason).toMatchObject({ reason: Reason.IDEMPOTENCY_IN_PROGRESS, retryAfter: 1 });
    }
    const [first] = run;
    const { settle } = await dispatch(first?.kind === "run" ? first.claimId : "");
    await settle();
    for (const replay of await Promise.all(Array.from({ length: 100 }, () => claimFor()))) {
      expect(replay.kind === "replay" && Buffer.from(replay.response).equals(ANSWER)).toBe(true);
    }
    expect((await balanceOf(db.sql, payer.orgId)).spentMicro).toBe(PRICE);
  });

  it("is refused with another body, during the first call and after it", async () => {
    const requestId = newId("req");
    await claimFor("a", requestId);
    expect((await reasonOf(claimFor("b"))).reason).toBe(Reason.IDEMPOTENCY_CONFLICT);
    await (await dispatch(requestId)).settle();
    expect((await reasonOf(claimFor("b"))).reason).toBe(Reason.IDEMPOTENCY_CONFLICT);
  });

  it("of one organization is independent of another organization's", async () => {
    await claimFor();
    payer = await makePayer(db.sql, 0);
    expect((await claimFor("b")).kind).toBe("run");
  });

  it("is free again if its call was not charged", async () => {
    const requestId = newId("req");
    await claimFor("a", requestId);
    const { hold } = await dispatch(requestId);
    await hold.release({ ...failureOf(intentOf(payer, requestId)), claim: { key: "k", claimId: requestId } });
    expect((await claimFor("b")).kind).toBe("run");
  });

  it("is free again if its call was refused before its hold", async () => {
    const claimId = newId("req");
    await claimFor("a", claimId);
    await unclaim(db.sql, { orgId: payer.orgId, key: "k", claimId: "req_other" });
    expect((await reasonOf(claimFor())).reason).toBe(Reason.IDEMPOTENCY_IN_PROGRESS);
    await unclaim(db.sql, { orgId: payer.orgId, key: "k", claimId });
    expect((await claimFor()).kind).toBe("run");
  });

  it("keeps its answer if the gateway dies after the settlement", async () => {
    const requestId = newId("req");
    await claimFor("a", requestId);
    await (await dispatch(requestId)).settle();
    await replica.kill();
    replica = await openReplica(db.url, "one");
    expect((await claimFor()).kind).toBe("replay");
  });

  it("runs again if the gateway died before the settlement, and only after its credit leaser was fenced", async () => {
    const requestId = newId("req");
    await claimFor("a", requestId);
    await dispatch(requestId);
    await replica.kill();
    replica = await openReplica(db.url, "two");
    expect((await reasonOf(claimFor())).reason).toBe(Reason.IDEMPOTENCY_IN_PROGRESS);
    await db.sql`update leaser set alive_until = now() - interval '1 second' where replica = 'one' and fenced_at is null`;
    await replica.ledger.recover();
    expect((await reasonOf(claimFor("b"))).reason).toBe(Reason.IDEMPOTENCY_CONFLICT);
    const again = newId("req");
    expect(await claimFor("a", again)).toEqual({ kind: "run", claimId: again });
    await (await dispatch(again)).settle();
    expect((await claimFor()).kind).toBe("replay");
    expect((await balanceOf(db.sql, payer.orgId)).spentMicro).toBe(PRICE);
  });

  it("that was taken over is not answered by a fenced call that resumes", async () => {
    const requestId = newId("req");
    await claimFor("a", requestId);
    const { settle } = await dispatch(requestId);
    const other = await openReplica(db.url, "two");
    await db.sql`update leaser set alive_until = now() - interval '1 second' where id = ${replica.leaser.name}`;
    await other.ledger.recover();
    expect((await claimFor("a", newId("req"), "k", other.leaser.name)).kind).toBe("run");
    expect((await reasonOf(settle())).reason).toBe(Reason.STORE_UNAVAILABLE);
    expect((await reasonOf(claimFor())).reason).toBe(Reason.IDEMPOTENCY_IN_PROGRESS);
    await other.close();
  });

  it("expires after 24 hours, and its row is deleted", async () => {
    const requestId = newId("req");
    await claimFor("a", requestId);
    await (await dispatch(requestId)).settle();
    await db.sql`update idempotency set created = now() - interval '23 hours 59 minutes'`;
    expect((await claimFor()).kind).toBe("replay");
    await db.sql`update idempotency set created = now() - interval '24 hours 1 second'`;
    expect((await claimFor("b")).kind).toBe("run");
    await db.sql`update idempotency set created = now() - interval '26 hours'`;
    expect(await pruneIdempotency(db.sql)).toBeGreaterThan(0);
  });
});

describe("concurrent claims of idempotency keys", () => {
  it("use one statement: each key has one running caller, the others are refused, and another body is refused", async () => {
    const claims = new Claims(db.sql);
    const ask = (key: string, body = "a", claimId = newId("req")) =>
      claims.claim({
        orgId: payer.orgId,
        workspaceId: undefined,
        sealed: false,
        key,
        claimId,
        hash: hashOf(body),
        line: [payer.keyId],
        leaser: replica.leaser.name,
        method: "limber.v1.InferenceService.Act",
      });
    const [one, two, again, other] = await Promise.allSettled([ask("t1"), ask("t2"), ask("t1"), ask("t2", "b")]);
    expect([one, two]).toMatchObject([{ value: { kind: "run" } }, { value: { kind: "run" } }]);
    expect(again).toMatchObject({ reason: { reason: Reason.IDEMPOTENCY_IN_PROGRESS } });
    expect(other).toMatchObject({ reason: { reason: Reason.IDEMPOTENCY_CONFLICT } });
    const many = Array.from({ length: 50 }, (_, i) => [`m${i}`, `m${49 - i}`]);
    const runs = await Promise.allSettled(many.flat().map((key) => ask(key)));
    expect(runs.filter(({ status }) => status === "fulfilled")).toHaveLength(50);
  });
});
