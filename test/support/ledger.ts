/** A ledger of a test file's own, the replicas on it, and what is usual to ask of them. */
import { afterAll, afterEach, beforeAll, expect } from "vitest";
import type { Payer } from "../../src/billing/credit-leaser.ts";
import { type Reason, Refusal } from "../../src/errors.ts";
import { type FreshDatabase, freshDatabase } from "./database.ts";
import { brokenInvariants } from "./invariants.ts";
import { openReplica, type Replica } from "./money.ts";

/** What a test file asks of its ledger. */
export interface TestLedger {
  db: FreshDatabase;
  /** A replica that the test's end closes. */
  replica(name: string, options?: { lifeMs: number }): Promise<Replica>;
  /** Closes every replica, so that nothing is held any more. */
  closeAll(): Promise<void>;
  statuses(payer: Payer): Promise<string[]>;
  openIntents(): Promise<number>;
}

/** A ledger for all tests of a file. After each of them its replicas are closed and its rules must hold. */
export function useLedger(): TestLedger {
  const db = {} as FreshDatabase;
  let open: Replica[] = [];
  const closeAll = async (): Promise<void> => {
    for (const replica of open) await replica.close();
    open = [];
  };
  beforeAll(async () => {
    Object.assign(db, await freshDatabase());
  });
  afterEach(async () => {
    await closeAll();
    expect(await brokenInvariants(db.sql)).toEqual([]);
  });
  afterAll(() => db.close());
  return {
    db,
    closeAll,
    replica: async (name, options) => {
      const made = await openReplica(db.url, name, options);
      open.push(made);
      return made;
    },
    statuses: async (payer) => {
      const rows = await db.sql<{ status: string }[]>`select status from request where org_id = ${payer.orgId}`;
      return rows.map((row) => row.status);
    },
    openIntents: async () => {
      const [row] = await db.sql<{ count: number }[]>`select count(*) from intent`;
      return row!.count;
    },
  };
}

/** Why something was refused; whatever else becomes of it fails the test. */
export const refusalOf = (promise: unknown): Promise<Refusal> =>
  Promise.resolve(promise).then(
    () => expect.fail("it was not refused"),
    (thrown: unknown) => (thrown instanceof Refusal ? thrown : expect.fail(`not a refusal: ${thrown}`)),
  );

/** `callers` loops that share out `count` calls; how many were served, and why the others were not. */
export async function storm(
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

/** A refusal so many times. */
export const only = (reason: Reason, times: number): Reason[] => Array.from({ length: times }, () => reason);

/** A balance of which everything was spent. */
export const spent = (microDollars: number) => ({
  grantedMicro: microDollars,
  spentMicro: microDollars,
  balanceMicro: 0,
  heldMicro: 0,
  availableMicro: 0,
  owedMicro: 0,
});
