/** Replicas, payers and time that a seed plays with, and what callers were told meanwhile. */
import { expect } from "vitest";
import type { Payer } from "../../../src/billing/credit-leaser.ts";
import { Reason, Refusal } from "../../../src/errors.ts";
import { newId } from "../../../src/ids.ts";
import type { BudgetInterval } from "../../../src/store/account/keys.ts";
import { createWorkspace } from "../../../src/store/account/members.ts";
import { addCredits, balanceOf } from "../../../src/store/account/orgs.ts";
import type { IntentRecord } from "../../../src/store/billing/ledger.ts";
import { addPayment, conclude, reverse } from "../../../src/store/billing/payments.ts";
import { type Tx, tx } from "../../../src/store/database/tx.ts";
import { StoreUnavailable } from "../../../src/store/database/unavailable.ts";
import { seeded } from "../../support/chance.ts";
import type { FreshDatabase } from "../../support/database.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import {
  endOf,
  estimate,
  failureOf,
  intentOf,
  makeKey,
  makePayer,
  openReplica,
  type Replica,
  type TestHold,
} from "../../support/money.ts";

/** The most operations under way at once. */
const MOST_PENDING = 48;

/** A clock whose wall can be set forth and back, as an operator or NTP does, while the steady one runs on. */
export class JumpyClock extends ManualClock {
  #offset = 0;

  override wall(): number {
    return super.wall() + this.#offset;
  }

  jump(ms: number): void {
    this.#offset += ms;
  }
}

interface Running {
  hold: TestHold;
  intent: IntentRecord;
}

/** Who waits for a killed process waits for ever; the test goes on, with nothing. */
const unlessKilled = <T>(replica: Replica, promise: T | Promise<T>): Promise<T | undefined> =>
  Promise.race([promise, replica.killed.then(() => undefined)]);

/** Asks again as long as no connection came free: jumps of the clock outrun a busy database, and nothing was done then. */
async function again<T>(work: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await work();
    } catch (thrown) {
      if (!(thrown instanceof StoreUnavailable)) throw thrown;
    }
  }
}

/** Replicas, payers and everything that was promised to a caller. */
export class World {
  readonly #db: FreshDatabase;
  readonly #random: () => number;
  readonly #clock: JumpyClock;
  readonly #payers: Payer[] = [];
  readonly #replicas = new Map<string, Replica>();
  readonly #running = new Map<Replica, Running[]>();
  /** Calls that were answered: their intent was durable. */
  readonly #answered = new Set<string>();
  /** What callers were told that a call cost. */
  readonly #charged = new Map<string, number>();
  /** Every charge that was ever asked for. */
  readonly #asked = new Map<string, number>();
  readonly #pending = new Set<Promise<void>>();
  /** What replicas wait for at the database. */
  readonly #asking = new Map<Replica, Set<Promise<unknown>>>();
  /** Things that went wrong without anybody waiting for them. */
  readonly #mishaps: unknown[] = [];
  /** Payments that were paid, by the processor's name of what was paid, and what went back of them. */
  readonly #paid: { id: string; intentId: string; amountMicro: number }[] = [];
  readonly #taken = new Map<string, number>();
  granted = 0;

  constructor(db: FreshDatabase, seed: number, clock: JumpyClock) {
    this.#db = db;
    this.#random = seeded(seed);
    this.#clock = clock;
  }

  async begin(): Promise<void> {
    const intervals: (BudgetInterval | undefined)[] = [undefined, "daily", "weekly", "lifetime"];
    for (let org = 0; org < 3; org++) {
      const first = await makePayer(this.#db.sql, this.#credit(60_000));
      this.#payers.push(first);
      const workspace = await tx(this.#db.sql, (tx) =>
        createWorkspace(tx, {
          orgId: first.orgId,
          name: "shared",
          slug: "shared",
          budget: { limitMicro: 1 + this.#upTo(120_000), interval: "daily" },
          settings: {},
        }),
      );
      for (const interval of intervals) {
        const budget = interval && { limitMicro: 1 + this.#upTo(80_000), interval };
        const inside = this.#upTo(2) === 0 ? workspace : undefined;
        const keyId = await makeKey(this.#db.sql, first.orgId, budget, inside);
        this.#payers.push({ orgId: first.orgId, keyId });
        // And one that it made, which spends from its budget too.
        const child = await makeKey(this.#db.sql, first.orgId, undefined, inside, keyId);
        this.#payers.push({ orgId: first.orgId, keyId: child, ancestors: [keyId] });
      }
    }
    for (const name of ["a", "b", "c"]) await this.#open(name);
  }

  /** One operation; it may be under way when this resolves. */
  async operate(): Promise<void> {
    const draw = this.#random();
    const chosen = OPERATIONS_BY_SHARE.find(({ until }) => draw < until)!.operation;
    this.#track(this[chosen]());
    await this.#let(this.#upTo(10));
    while (this.#pending.size >= MOST_PENDING) await this.#let(20);
  }

  #track(operation: Promise<void>): void {
    const done = operation.catch((thrown: unknown) => {
      // A replica that found no connection free tells its caller to come again.
      if (thrown instanceof StoreUnavailable) return;
      if (!(thrown instanceof Refusal) || thrown.reason === Reason.INTERNAL_ERROR) this.#mishaps.push(thrown);
    });
    this.#pending.add(done);
    done.finally(() => this.#pending.delete(done));
  }

  /** Resolves when nothing is under way. */
  async rest(): Promise<void> {
    while (this.#pending.size > 0) await this.#let(20);
    expect(this.#mishaps).toEqual([]);
  }

  /** Ends every call and every replica after so many operations, then compares what callers were told with what is on record. */
  async end(operations: number): Promise<void> {
    await this.rest();
    for (const replica of this.#replicas.values()) {
      for (const call of this.#running.get(replica)!.splice(0)) this.#track(this.#finish(replica, call));
    }
    await this.rest();
    for (const replica of this.#replicas.values()) this.#track(replica.close());
    await this.rest();
    await this.#db.sql`select leaser_recover(id, true) from leaser where fenced_at is null`;
    const rows = await this.#db.sql<{ requestId: string; status: string; costMicro: number }[]>`
      select request_id, status, cost_micro from request`;
    const onRecord = new Map(rows.map((row) => [row.requestId, row]));
    for (const id of this.#answered) expect(onRecord.has(id), `${id} was answered and is not on record`).toBe(true);
    for (const [id, cost] of this.#charged)
      expect(onRecord.get(id)).toMatchObject({ status: "settled", costMicro: cost });
    for (const row of rows.filter((row) => row.status === "settled")) {
      expect(this.#asked.get(row.requestId), row.requestId).toBe(row.costMicro);
    }
    const orgs = new Set(this.#payers.map((payer) => payer.orgId));
    let spent = 0;
    let granted = 0;
    for (const org of orgs) {
      const balance = await balanceOf(this.#db.sql, org);
      expect(balance.heldMicro).toBe(0);
      spent += balance.spentMicro;
      granted += balance.grantedMicro;
    }
    const [reversed] = await this.#db.sql<
      { owed: number }[]
    >`select coalesce(sum(owed_micro), 0) as owed from payment_reversal`;
    const taken = [...this.#taken.values()].reduce((sum, amount) => sum + amount, 0);
    expect(granted).toBe(this.granted - taken + (reversed?.owed ?? 0));
    expect(spent).toBe(rows.reduce((sum, row) => sum + row.costMicro, 0));
    expect(rows.filter((row) => row.status === "settled").length).toBeGreaterThan(operations / 10);
  }

  async begins(): Promise<void> {
    const replica = this.#anyReplica();
    const payer = this.#payers[this.#upTo(this.#payers.length)]!;
    const ceiling = this.#upTo(10) === 0 ? 0 : this.#upTo(4_000);
    const hold = await unlessKilled(replica, replica.leaser.hold(payer, ceiling, estimate(ceiling)));
    if (!hold) return;
    const intent = intentOf(payer, newId("req"));
    hold.intend(intent);
    hold.durable.then(
      () => this.#answered.add(intent.requestId),
      () => {},
    );
    this.#running.get(replica)!.push({ hold, intent });
  }

  async ends(): Promise<void> {
    const replica = this.#anyReplica();
    const running = this.#running.get(replica)!;
    if (running.length > 0) await this.#finish(replica, running.splice(this.#upTo(running.length), 1)[0]!);
  }

  async topUp(): Promise<void> {
    const { orgId } = this.#payers[this.#upTo(this.#payers.length)]!;
    const amountMicro = this.#credit(1 + this.#upTo(12_000));
    await again(() => addCredits(this.#db.sql, { orgId, amountMicro }));
  }

  /** A payment is paid, and told of twice at once; a bank that takes its time says so before. */
  async pays(): Promise<void> {
    const { orgId, keyId } = this.#payers[this.#upTo(this.#payers.length)]!;
    const [id, sessionId, intentId] = [newId("pay"), `cs_${newId("pay")}`, `pi_${newId("pay")}`];
    const amountMicro = 5_000 * (1 + this.#upTo(4));
    const urls = { successUrl: "https://a.test", cancelUrl: "https://a.test" };
    await this.#inTx((tx) =>
      addPayment(tx, { id, orgId, keyId, amountMicro, ...urls, idempotencyKey: undefined, expiresAt: 2 ** 31 }),
    );
    const word = { kind: "checkout", paymentId: id, sessionId, intentId, amountMicro } as const;
    const statuses = (["pending", "failed", "expired"] as const).slice(this.#upTo(3));
    const words = [...statuses, "succeeded", "succeeded"] as const;
    await Promise.all(words.map((status) => this.#inTx((tx) => conclude(tx, { ...word, status }))));
    this.#credit(amountMicro);
    this.#paid.push({ id, intentId, amountMicro });
  }

  /** A part of a payment goes back, or what went back comes back; told of twice. */
  async refunds(): Promise<void> {
    const payment = this.#paid[this.#upTo(this.#paid.length)];
    if (!payment) return;
    const known = [...this.#taken].find(([name, amount]) => amount > 0 && name.startsWith(payment.id));
    const returns = known !== undefined && this.#upTo(3) === 0;
    const id = returns ? known[0] : `${payment.id}-${this.#taken.size}`;
    const amountMicro = returns ? known[1] : 1 + this.#upTo(payment.amountMicro);
    this.#taken.set(id, returns ? 0 : amountMicro);
    const state = returns ? "returned" : "taken";
    const fact = {
      kind: "reversal",
      id,
      of: "refund",
      intentId: payment.intentId,
      amount: { micro: amountMicro },
      state,
    } as const;
    await Promise.all([1, 2].map(() => this.#inTx((tx) => reverse(tx, payment.id, fact))));
  }

  /** Every budget begins anew, and some are raised. */
  async resets(): Promise<void> {
    this.#clock.jump(7 * 86_400_000);
    const { keyId } = this.#payers[this.#upTo(this.#payers.length)]!;
    await this.#db.sql`update key set budget_micro = budget_micro + ${this.#upTo(10_000)} where id = ${keyId}`;
  }

  /** A process is killed and starts again under its old name. */
  async crash(): Promise<void> {
    const [name, dead] = [...this.#replicas][this.#upTo(this.#replicas.size)]!;
    if (this.#replicas.size === 1) return;
    this.#replicas.delete(name);
    this.#asking.delete(dead);
    await dead.kill();
    await this.#open(name);
  }

  /** A process sleeps for so long that another takes over, and wakes up. */
  async sleepOver(): Promise<void> {
    const { leaser } = this.#anyReplica();
    await this.#db
      .sql`update leaser set alive_until = now() - interval '1 second' where id = ${leaser.name} and fenced_at is null`;
    const other = this.#anyReplica();
    await unlessKilled(other, other.ledger.recover());
  }

  /** The next commit of a replica is made and not heard of. */
  async loseAnswer(): Promise<void> {
    const { ledger } = this.#anyReplica();
    const commit = ledger.commit;
    ledger.commit = async (leaser, batch) => {
      ledger.commit = commit;
      await commit.call(ledger, leaser, batch);
      throw new Error("the connection was lost during the commit");
    };
  }

  async giveBack(): Promise<void> {
    const { orgId } = this.#payers[this.#upTo(this.#payers.length)]!;
    const replica = this.#anyReplica();
    await unlessKilled(replica, replica.leaser.giveBack(orgId));
  }

  async jump(): Promise<void> {
    this.#clock.jump((this.#random() - 0.4) * 3 * 86_400_000);
  }

  async idle(): Promise<void> {
    for (let seconds = this.#upTo(8); seconds > 0; seconds--) await this.#let(1_000);
  }

  async #finish(replica: Replica, { hold, intent }: Running): Promise<void> {
    if (this.#upTo(4) === 0) return void (await unlessKilled(replica, hold.release(failureOf(intent))));
    const cost = this.#upTo(hold.ceilingMicro + 1);
    this.#asked.set(intent.requestId, cost);
    const settled = hold.settle(endOf(intent, cost)).then(() => true);
    if (await unlessKilled(replica, settled)) this.#charged.set(intent.requestId, cost);
  }

  /** The database stands still for four seconds, as far as replicas can tell. */
  async stall(): Promise<void> {
    await this.#clock.advance(4_000);
  }

  async #open(name: string): Promise<void> {
    const replica = await openReplica(this.#db.url, name);
    this.#asking.set(replica, this.#watch(replica));
    this.#running.set(replica, []);
    this.#replicas.set(name, replica);
  }

  #anyReplica(): Replica {
    return [...this.#replicas.values()][this.#upTo(this.#replicas.size)]!;
  }

  #credit(amount: number): number {
    this.granted += amount;
    return amount;
  }

  #upTo(end: number): number {
    return Math.floor(this.#random() * end);
  }

  /** Keeps in sight what a replica asks of the ledger until it is answered. */
  #watch({ ledger }: Replica): Set<Promise<unknown>> {
    const asking = new Set<Promise<unknown>>();
    const watched =
      <A extends unknown[], T>(ask: (...args: A) => Promise<T>) =>
      (...args: A): Promise<T> => {
        const asked = ask.apply(ledger, args);
        asking.add(asked);
        const forget = () => asking.delete(asked);
        asked.then(forget, forget);
        return asked;
      };
    const { open, commit, recall, recover } = ledger;
    Object.assign(ledger, {
      open: watched(open),
      commit: watched(commit),
      recall: watched(recall),
      recover: watched(recover),
    });
    return asking;
  }

  #inTx<T>(work: (tx: Tx) => Promise<T>): Promise<T> {
    return again(() => tx(this.#db.sql, work));
  }

  /**
   * Moves time by `ms`, which stands still while a replica waits for the database: else the pace of the machine would decide how many
   * calls find the ledger away.
   */
  async #let(ms: number): Promise<void> {
    for (let left = ms; left >= 0; left -= 50) {
      await this.#clock.advance(Math.min(50, left));
      await this.#db.sql`select`;
      for (const [replica, asking] of this.#asking) await unlessKilled(replica, Promise.allSettled(asking));
    }
  }
}

const SHARES = {
  begins: 44,
  ends: 40,
  topUp: 3,
  crash: 1,
  sleepOver: 1,
  loseAnswer: 4,
  giveBack: 3,
  pays: 2,
  refunds: 2,
  resets: 1,
  jump: 2,
  idle: 2,
  stall: 1,
} as const;

const TOTAL = Object.values(SHARES).reduce((sum, share) => sum + share, 0);
let sum = 0;
const OPERATIONS_BY_SHARE = Object.entries(SHARES).map(([operation, share]) => {
  sum += share;
  // The names are those of the table above.
  return { operation: operation as keyof typeof SHARES, until: sum / TOTAL };
});
