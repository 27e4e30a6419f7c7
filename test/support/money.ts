/** Credit leasers, payers and records for tests of money, on a real database. */

import type { Hold, Payer } from "../../src/billing/credit-leaser.ts";
import { CreditLeaser } from "../../src/billing/credit-leaser.ts";
import type { Estimate } from "../../src/billing/price.ts";
import type { Clock } from "../../src/clock.ts";
import { newId } from "../../src/ids.ts";
import { createKey, type KeyRecord } from "../../src/store/account/keys.ts";
import { addCredits, createOrg } from "../../src/store/account/orgs.ts";
import { type IntentRecord, Ledger, type RequestRecord } from "../../src/store/billing/ledger.ts";
import { Notifications } from "../../src/store/database/notifications.ts";
import { connect, type Sql } from "../../src/store/database/tx.ts";

/** A clock whose wall a test sets, while everything that waits runs in real time. */
export class SettableWall implements Clock {
  at: number;

  constructor(at: number) {
    this.at = at;
  }

  wall(): number {
    return this.at;
  }

  steady(): number {
    return performance.now();
  }

  after(ms: number, run: () => void): () => void {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  }
}

/** The credit leaser as the gateway uses it. */
export type TestLeaser = CreditLeaser<IntentRecord, RequestRecord>;
/** A hold of it. */
export type TestHold = Hold<IntentRecord, RequestRecord>;

/** A replica: a credit leaser with connections of its own. */
export interface Replica {
  leaser: TestLeaser;
  ledger: Ledger;
  sql: Sql;
  /** Returns its leases, then ends. */
  close(): Promise<void>;
  /** Ends as a killed process does: nothing is returned, nothing more is written, and whoever waits for it waits for ever. */
  kill(): Promise<void>;
  /** Resolves when it was killed. */
  killed: Promise<void>;
}

/** Opens a replica's credit leaser on the database at `url`. */
export async function openReplica(
  url: string,
  replica: string,
  { lifeMs }: { lifeMs?: number } = {},
): Promise<Replica> {
  const [sql, line] = [connect(url, { max: 2 }), connect(url, { max: 1, plansOnce: true })];
  const notifications = await Notifications.open(url);
  const ledger = new Ledger({ sql, line, notifications, replica, ...(lifeMs !== undefined && { lifeMs }) });
  const leaser = await CreditLeaser.open(ledger);
  const leave = async (): Promise<void> => {
    await notifications.close();
    await Promise.all([sql.end(), line.end()]);
  };
  const killed = Promise.withResolvers<void>();
  return {
    leaser,
    ledger,
    sql,
    close: async () => {
      await leaser.close();
      await leave();
    },
    kill: () => {
      const never = (): Promise<never> => new Promise(() => {});
      Object.assign(ledger, { open: never, commit: never, recall: never, recover: never });
      killed.resolve();
      return leave();
    },
    killed: killed.promise,
  };
}

/** An organisation with credit and a key. */
export async function makePayer(sql: Sql, credit: number, budget?: KeyRecord["budget"]): Promise<Payer> {
  const org = await createOrg(sql, { name: "test" });
  if (credit > 0) await addCredits(sql, { orgId: org.id, amountMicro: credit });
  return { orgId: org.id, keyId: await makeKey(sql, org.id, budget) };
}

/** A key of an organisation. */
export async function makeKey(
  sql: Sql,
  orgId: string,
  budget?: KeyRecord["budget"],
  workspaceId?: string,
  parentId?: string,
): Promise<string> {
  return (await createKey(sql, { orgId, budget, workspaceId, parentId })).key.id;
}

/** An act call of 16 steps whose whole price is `price` micro-dollars. */
export const estimate = (price: number): Estimate => ({
  unit: "action_step",
  units: 16,
  priceNano: Math.round((price * 1000) / 16),
  wakeUpMicro: 0,
});

/** The promise of a call. */
export const intentOf = ({ orgId, keyId }: Payer, requestId = newId("req")): IntentRecord => ({
  orgId,
  keyId,
  requestId,
  contract: "act",
  model: "reference/reach",
  provider: "reference",
  offeringId: "off_1",
  unit: "action_step",
});

/** How a call ended that cost `costMicro`. */
export const endOf = (intent: IntentRecord, costMicro: number, more: Partial<RequestRecord> = {}): RequestRecord => ({
  ...intent,
  status: "settled",
  units: 16,
  costMicro,
  wakeUpMicro: 0,
  hedgeCostMicro: null,
  simulated: false,
  httpStatus: 200,
  errorCode: null,
  byok: false,
  latencyMs: 20.5,
  attemptMs: 20.25,
  log: { model_requested: intent.model, region: "eu-central" },
  ...more,
});

/** How a call ended that failed. */
export const failureOf = (intent: IntentRecord): RequestRecord =>
  endOf(intent, 0, { status: "failed", units: 0, httpStatus: 502, errorCode: "all_attempts_failed" });

/** A whole call of a fixed price: held, intended, answered once that is durable, settled. Resolves when the settlement is committed. */
export async function call(leaser: TestLeaser, payer: Payer, price: number, ceiling = price): Promise<void> {
  const hold = await leaser.hold(payer, ceiling, estimate(ceiling));
  const intent = intentOf(payer);
  hold.intend(intent);
  await hold.durable;
  await hold.settle(endOf(intent, price));
}

/** The end of a request, put on record beside any credit leaser. What isn't given is as usual. */
export async function addEnding(
  sql: Sql,
  ending: {
    orgId: string;
    keyId: string;
    requestId?: string;
    status?: "settled" | "failed" | "unmetered";
    model?: string;
    offeringId?: string;
    costMicro?: number;
    lease?: string;
    simulated?: boolean;
    latencyMs?: number | null;
    created?: Date;
  },
): Promise<void> {
  const { orgId, keyId, requestId = newId("req"), status = "settled", model = "", offeringId = "" } = ending;
  const { costMicro = 0, lease = null, simulated = false, latencyMs = null, created = null } = ending;
  await sql`
    insert into request_outcome (org_id, request_id, kind, cost_micro, lease, latency_ms, created)
    select ${orgId}, ${requestId}, kinds[1], ${costMicro}, ${lease}, ${latencyMs}, coalesce(${created}::timestamptz, now())
    from request_kinds(array[${keyId}, ${status}, 'act', nullif(${model}, ''), null, nullif(${offeringId}, ''), null, '0', null,
      ${String(simulated)}, 'false', null, null, null]) as kinds`;
}
