/**
 * The credit leases of one replica: lease, intent, settle. A lease is credit that the ledger has already debited, so that a call is covered
 * without a query. Group commits record every intent and every end, and unused credit is returned. Amounts are whole micro-dollars.
 */
import { after, now, steadyNow } from "../clock.ts";
import { Reason, Refusal, refuse } from "../errors.ts";
import { newId } from "../ids.ts";
import {
  type CommitLog,
  type CreditShortage,
  Durability,
  GroupCommitter,
  type IntentOp,
  type LedgerPort,
  leaseLost,
  newEntry,
  StoreAway,
  type TakeOutcome,
} from "./group-commit.ts";
import { type Estimate, Remainders, shortage } from "./price.ts";

const TICK_MS = 1_000;
/** The heartbeat interval in milliseconds, well below the time after which the ledger considers the replica dead. */
const HEARTBEAT_MS = 3_000;
const RECOVER_MS = 5_000;
/** Milliseconds without use after which a lease is returned. */
const IDLE_MS = 5_000;
/** How long a call waits for credit that may be returned. */
const PATIENCE_MS = 1_000;
const LOOK_MS = 200;
const CONTENT_MS = 250;

const NO_LOG: CommitLog = { warn: () => {}, error: () => {} };

/** The credit leases of one replica. */
export class CreditLeaser<I, S extends Charged> {
  readonly #port: LedgerPort<I, S>;
  readonly #committer: GroupCommitter<I, S>;
  readonly #credits = new KeyCredits();
  /** Fractions of a micro-dollar that charges of keys left open. */
  readonly remainders = new Remainders();
  readonly #leases = new Map<string, Lease>();
  /** The key credits with waiting calls. */
  readonly #hungry = new Set<KeyCredit>();
  #unlisten: () => void = () => {};
  #untick: () => void = () => {};
  /** Recovery of dead leasers starts with the first heartbeat: this gateway itself might not live long. */
  #recoveredAt = Number.NEGATIVE_INFINITY;
  #closed = false;

  private constructor(port: LedgerPort<I, S>, leaser: string, log: CommitLog) {
    this.#port = port;
    this.#committer = new GroupCommitter(port, leaser, {
      recalled: (leases) => {
        for (const id of leases) this.#returnIdle(this.#leases.get(id), true);
      },
      fenced: () => this.#beginAnew(),
      log,
    });
  }

  /** Opens a credit leaser on a ledger, after recovering this replica's predecessor. `log` receives its failures. */
  static async open<I, S extends Charged>(
    port: LedgerPort<I, S>,
    log: CommitLog = NO_LOG,
  ): Promise<CreditLeaser<I, S>> {
    const leaser = new CreditLeaser(port, await port.open(), log);
    leaser.#unlisten = port.listen({
      wanted: (orgId) => {
        for (const credit of leaser.#credits.of(orgId)) leaser.#returnIdle(credit.lease, true);
      },
      returned: (orgId) => {
        for (const credit of leaser.#credits.of(orgId)) leaser.#look(credit);
      },
    });
    leaser.#untick = after(TICK_MS, () => leaser.#tick());
    return leaser;
  }

  /** The current name, which idempotency claims carry. It changes when the credit leaser was fenced. */
  get name(): string {
    return this.#committer.leaser;
  }

  /** The current holdings; amounts in micro-dollars. */
  get figures(): { leases: number; idleMicro: number; promisedMicro: number; running: number; waiting: number } {
    const sum = { leases: this.#leases.size, idleMicro: 0, promisedMicro: 0, running: 0, waiting: 0 };
    for (const { idle, promised, running } of this.#leases.values()) {
      sum.idleMicro += idle;
      sum.promisedMicro += promised;
      sum.running += running;
    }
    for (const { waiters } of this.#hungry) sum.waiting += waiters.length;
    return sum;
  }

  /**
   * Holds credit for the most expensive outcome of a call if the key's lease covers it; undefined if the ledger must be queried. Throws
   * `store_unavailable` if the ledger is unavailable.
   */
  tryHold(payer: Payer, ceilingMicro: number): Hold<I, S> | undefined {
    if (!Number.isSafeInteger(ceilingMicro) || ceilingMicro < 0)
      throw new RangeError(`invalid ceiling: ${ceilingMicro} micro-dollars`);
    if (this.#closed || !this.#committer.well) throw new StoreAway("nothing");
    const credit = this.#credits.by(payer);
    const time = steadyNow();
    credit.usedAt = time;
    const lease = this.#leaseOf(credit);
    if (lease.state !== "open" || lease.idle < ceilingMicro) return undefined;
    const hold = this.#promise(lease, ceilingMicro);
    if (!credit.taking && time >= credit.contentUntil && lease.idle < credit.pace(time) / 2) this.#take(credit);
    return hold;
  }

  /**
   * Holds credit for the most expensive outcome of a call, from the key's lease or else from the ledger. Rejects with `insufficient_credits` or
   * `key_budget_exhausted` if there is too little credit and none can be recalled, with `store_unavailable` if the ledger is unavailable.
   */
  async hold(payer: Payer, ceilingMicro: number, estimate: Estimate): Promise<Hold<I, S>> {
    return this.tryHold(payer, ceilingMicro) ?? this.#wait(this.#credits.by(payer), ceilingMicro, estimate);
  }

  /** Records a request that ended before any credit was held for it, without a charge. Rejects while the ledger is unavailable. */
  async note(record: S): Promise<void> {
    if (record.costMicro !== 0) throw new RangeError("a call without a hold cannot be charged");
    if (this.#closed || !this.#committer.well) throw new StoreAway("nothing");
    return this.#committer.settle(null, record, undefined, record.claim !== undefined).promise;
  }

  /** Returns the idle credit of an organization's leases; resolves when the balance shows it. */
  async giveBack(orgId: string): Promise<void> {
    const returned = [...this.#credits.of(orgId)].map((credit) => this.#returnIdle(credit.lease, false));
    // The end of a call that just finished may not have reached the ledger yet.
    await Promise.all([...returned, this.#committer.caughtUp()]);
  }

  /** Resolves when all ends until now are recorded. */
  caughtUp(): Promise<unknown> {
    return this.#committer.caughtUp();
  }

  /** Accepts no new calls, returns every lease and writes pending records. Running calls can settle until then. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#untick();
    for (const credit of this.#credits.all()) {
      this.#refuse(credit, credit.waiters, () => new StoreAway("nothing"));
      if (credit.lease) this.#retire(credit.lease);
    }
    await this.#committer.close();
    this.#unlisten();
  }

  /** Reserves part of a lease for a call. */
  #promise(lease: Lease, ceiling: number): Hold<I, S> {
    lease.idle -= ceiling;
    lease.promised += ceiling;
    lease.running += 1;
    lease.credit.promised += ceiling;
    lease.credit.running += 1;
    return new Hold(this.#committer, lease, ceiling, (spent) => this.#ended(lease, ceiling, spent));
  }

  #ended(lease: Lease, ceiling: number, spent: number): void {
    const { credit } = lease;
    lease.idle += ceiling - spent;
    lease.promised -= ceiling;
    lease.running -= 1;
    credit.promised -= ceiling;
    credit.running -= 1;
    credit.spend(spent, steadyNow());
    if (lease.state === "old") this.#retire(lease);
    for (const other of this.#hungry) if (other.payer.orgId === credit.payer.orgId) this.#look(other);
  }

  #wait(credit: KeyCredit, ceiling: number, estimate: Estimate): Promise<Hold<I, S>> {
    const { promise, resolve, reject } = Promise.withResolvers<Hold<I, S>>();
    const serve = (lease: Lease): void => resolve(this.#promise(lease, ceiling));
    credit.waiters.push({ ceiling, estimate, since: steadyNow(), serve, refuse: reject });
    this.#hungry.add(credit);
    this.#watch(credit);
    this.#take(credit);
    return promise;
  }

  /** Requests credit from the ledger for the waiting calls and the key's spending rate. One request per key at a time. */
  #take(credit: KeyCredit): void {
    if (credit.taking) return;
    credit.taking = true;
    const lease = this.#leaseOf(credit);
    const { id, day, idle } = lease;
    const hasRecalled = credit.recalled && !credit.recalling;
    const { orgId: org, keyId: key } = credit.payer;
    const waiting = credit.waiters.reduce((sum, waiter) => sum + waiter.ceiling, 0);
    const need = Math.max(0, (credit.waiters[0]?.ceiling ?? 0) - idle);
    const asked = Math.max(need, waiting - idle);
    const want = asked + Math.max(0, credit.pace(steadyNow()) - Math.max(0, idle - waiting));
    this.#committer.move(
      { kind: "take", entry: newEntry(), lease: id, org, key, day, need, asked, want },
      (outcome) => {
        credit.taking = false;
        this.#taken(credit, lease, outcome, hasRecalled);
      },
    );
  }

  #taken(credit: KeyCredit, lease: Lease, outcome: TakeOutcome, hasRecalled: boolean): void {
    if (outcome === undefined) this.#take(credit);
    else if (outcome instanceof Refusal) this.#refuse(credit, credit.waiters, () => outcome);
    else if ("short" in outcome) this.#foundShort(credit, lease, outcome, hasRecalled);
    else {
      if (lease.state === "new") lease.state = "open";
      if (lease.state !== "gone") lease.idle += outcome.grantedMicro;
      credit.recalled = false;
      credit.contentUntil = steadyNow() + CONTENT_MS;
      if (lease !== credit.lease) this.#retire(lease);
      this.#look(credit);
    }
  }

  /**
   * Looks for credit that can be recalled, nearest first, and refuses the call only if there is none. A request that was sent before other
   * credit leasers were notified (`hasRecalled`) does not include what they would return.
   */
  #foundShort(credit: KeyCredit, lease: Lease, short: CreditShortage, hasRecalled: boolean): void {
    credit.serve(lease);
    const head = credit.waiters[0];
    if (this.#sated(credit) || !head) return;
    if (this.#gather(credit, short)) this.#take(credit);
    else if (short.heldElsewhere && !credit.recalled) this.#recall(credit, short);
    else if (short.heldElsewhere && !hasRecalled) {
      credit.short = short;
      if (!credit.recalling) this.#take(credit);
    } else if (!short.recalled && short.roomMicro + this.#promised(credit, short) < head.ceiling) {
      credit.recalled = false;
      const hopeless = credit.waiters.filter((waiter) => waiter.ceiling >= head.ceiling);
      this.#refuse(credit, hopeless, (waiter) => shortage(short, waiter.ceiling, waiter.estimate));
      this.#look(credit);
    } else credit.short = short;
  }

  /**
   * Returns this replica's idle credit, so that the next lease gets all or nothing: waiting calls must not hold parts of what each of them
   * needs in full. Includes other keys that share the exhausted budget, unless calls wait for them as well. Reports whether there was any.
   */
  #gather(credit: KeyCredit, short: CreditShortage): boolean {
    const rich = this.#sharing(credit, short).filter(
      (any) => (any.lease?.idle ?? 0) > 0 && (any === credit || any.waiters.length === 0),
    );
    for (const { lease } of rich) this.#returnIdle(lease, false);
    return rich.length > 0;
  }

  #recall(credit: KeyCredit, short: CreditShortage): void {
    credit.recalled = true;
    credit.recalling = true;
    credit.short = short;
    const { orgId, keyId } = credit.payer;
    const look = (): void => {
      credit.recalling = false;
      this.#look(credit);
    };
    const holder = short.short === "key_budget" ? (short.holder ?? keyId) : null;
    this.#port.recall(this.#committer.leaser, orgId, holder).then(look, look);
  }

  /** The key credits that share the exhausted budget: a key and its descendants, a workspace, or the organization. */
  #sharing(credit: KeyCredit, { short, holder }: CreditShortage): KeyCredit[] {
    const all = [...this.#credits.of(credit.payer.orgId)];
    if (short === "key_budget") {
      const whose = holder ?? credit.payer.keyId;
      return all.filter(({ payer }) => payer.keyId === whose || payer.ancestors?.includes(whose) === true);
    }
    const { workspaceId } = credit.payer;
    return short === "org_credits" ? all : all.filter(({ payer }) => payer.workspaceId === workspaceId);
  }

  /** Credit that is reserved for running calls and might not be spent. */
  #promised(credit: KeyCredit, short: CreditShortage): number {
    let sum = 0;
    for (const other of this.#sharing(credit, short)) sum += other.promised;
    return sum;
  }

  #refuse(credit: KeyCredit, waiters: readonly CreditWaiter[], why: (waiter: CreditWaiter) => Refusal): void {
    credit.waiters = credit.waiters.filter((waiter) => !waiters.includes(waiter));
    this.#sated(credit);
    for (const waiter of waiters) waiter.refuse(why(waiter));
  }

  /** Called when waiting calls might be served: uses idle credit, and queries the ledger again. */
  #look(credit: KeyCredit): void {
    if (credit.waiters.length === 0) return;
    if (credit.lease) credit.serve(credit.lease);
    if (!this.#sated(credit)) this.#take(credit);
  }

  #sated(credit: KeyCredit): boolean {
    if (credit.waiters.length > 0) return false;
    credit.short = undefined;
    credit.recalled = false;
    this.#hungry.delete(credit);
    return true;
  }

  /** Rechecks while calls wait, because a message between credit leasers can be lost and waits time out. */
  #watch(credit: KeyCredit): void {
    if (credit.watched) return;
    credit.watched = true;
    after(LOOK_MS, () => {
      credit.watched = false;
      const { short } = credit;
      if (!this.#committer.well) this.#refuse(credit, credit.waiters, () => new StoreAway("nothing"));
      else if (short) {
        const tired = credit.waiters.filter((waiter) => steadyNow() - waiter.since >= PATIENCE_MS);
        this.#refuse(credit, tired, (waiter) => shortage(short, waiter.ceiling, waiter.estimate));
      }
      if (credit.waiters.length === 0) return;
      this.#watch(credit);
      this.#look(credit);
    });
  }

  /** Returns idle credit; as an `answer` to a recall, even if it is zero. */
  #returnIdle(lease: Lease | undefined, answers: boolean): Promise<void> {
    if (lease === undefined || !inLedger(lease) || (lease.idle === 0 && !answers)) return Promise.resolve();
    const { id, credit, idle: amount } = lease;
    lease.idle = 0;
    credit.contentUntil = steadyNow() + CONTENT_MS;
    return this.#committer.move({
      kind: "return",
      entry: newEntry(),
      lease: id,
      org: credit.payer.orgId,
      amount,
      answers,
    });
  }

  /** Ends a lease: returns idle credit at once, and the remainder when its last call has ended. */
  #retire(lease: Lease): void {
    const { id, credit } = lease;
    if (credit.lease === lease) credit.lease = undefined;
    if (lease.state === "new") this.#leases.delete(id);
    if (!inLedger(lease)) return;
    lease.state = lease.running > 0 ? "old" : "gone";
    if (lease.state === "old") this.#returnIdle(lease, false);
    else {
      lease.idle = 0;
      this.#leases.delete(id);
      this.#committer.move({ kind: "end", entry: newEntry(), lease: id, org: credit.payer.orgId });
    }
  }

  #leaseOf(credit: KeyCredit): Lease {
    const { lease, before } = credit.leaseOf(today.name);
    if (before !== undefined) this.#retire(before);
    if (lease.state === "new") this.#leases.set(lease.id, lease);
    return lease;
  }

  #tick(): void {
    this.#untick = after(TICK_MS, () => this.#tick());
    this.#committer.beat(HEARTBEAT_MS);
    const time = steadyNow();
    for (const credit of this.#credits.all()) {
      if (credit.running > 0 || credit.waiters.length > 0 || credit.taking || time - credit.usedAt < IDLE_MS) continue;
      if (credit.lease) this.#retire(credit.lease);
      this.#credits.forget(credit);
    }
    if (time - this.#recoveredAt < RECOVER_MS) return;
    this.#recoveredAt = time;
    this.#port.recover().catch(() => {});
  }

  /** The ledger recovered all credit; waiting calls request it again under the new name. */
  #beginAnew(): void {
    for (const lease of this.#leases.values()) lease.state = "gone";
    this.#leases.clear();
    for (const credit of this.#credits.all()) {
      credit.lease = undefined;
      credit.taking = false;
      credit.recalled = false;
      if (credit.waiters.length > 0) this.#take(credit);
    }
  }
}

/** Whether the ledger holds credit under its name. */
const inLedger = ({ state }: Lease): boolean => state === "open" || state === "old";

/** The payer of a call. */
export interface Payer {
  orgId: string;
  keyId: string;
  /** The workspace whose budget also counts; undefined if none. */
  workspaceId?: string | undefined;
  /** The ancestors of its key, whose budgets also count; undefined if none. */
  ancestors?: readonly string[] | undefined;
}

/** A lease in its credit leaser. `idle`, in micro-dollars, is not reserved for any running call. */
interface Lease {
  readonly id: string;
  readonly credit: KeyCredit;
  /** The UTC day of the budget that it counts against, `YYYY-MM-DD`. */
  readonly day: string;
  idle: number;
  /** The number of running calls that it is reserved for. */
  running: number;
  /** The amount reserved for them. */
  promised: number;
  /** `new` until the ledger confirms it; `old` when a later lease replaced it and its calls still run; `gone` when it was ended or lost. */
  state: "new" | "open" | "old" | "gone";
}

/** A call that waits for credit. */
interface CreditWaiter {
  ceiling: number;
  estimate: Estimate;
  /** On the monotonic clock, in milliseconds. */
  since: number;
  serve(lease: Lease): void;
  refuse(cause: unknown): void;
}

/** The window of the spending rate, in milliseconds: a key credit keeps as much as it spends in this time. */
const PACE_MS = 2_000;

/** One key's credit in one replica. */
class KeyCredit {
  readonly payer: Payer;
  lease: Lease | undefined;
  waiters: CreditWaiter[] = [];
  /** Whether a request to the ledger is pending. */
  taking = false;
  /** Whether the other credit leasers were notified since the last grant. */
  recalled = false;
  /** Whether they are being notified. */
  recalling = false;
  /** The last failed request. */
  short: CreditShortage | undefined;
  /** The total reserved for its running calls, from any lease. */
  promised = 0;
  running = 0;
  /** When a call last started, on the monotonic clock in milliseconds. */
  usedAt = 0;
  /** Until this time, no credit is requested in advance. */
  contentUntil = 0;
  /** Whether a later check of the waiting calls is scheduled. */
  watched = false;
  #spent = 0;
  #spentAt = 0;

  constructor(payer: Payer) {
    this.payer = payer;
  }

  /** Records that `micro` was spent at `steadyMs`. */
  spend(micro: number, steadyMs: number): void {
    this.#spent = this.pace(steadyMs) + micro;
    this.#spentAt = steadyMs;
  }

  /** The approximate spending in two seconds, in micro-dollars. */
  pace(steadyMs: number): number {
    return Math.floor(this.#spent * Math.exp((this.#spentAt - steadyMs) / PACE_MS));
  }

  /** The lease of `day`, created if missing. The lease that it replaces is returned in `before`. */
  leaseOf(day: string): { lease: Lease; before: Lease | undefined } {
    const before = this.lease;
    if (before?.day === day) return { lease: before, before: undefined };
    const lease: Lease = { id: newId("lease"), credit: this, day, idle: 0, running: 0, promised: 0, state: "new" };
    this.lease = lease;
    return { lease, before };
  }

  /** Reserves idle credit for the waiting calls, in order, as far as it goes. */
  serve(lease: Lease): void {
    while (this.waiters.length > 0 && lease.state === "open" && this.waiters[0]!.ceiling <= lease.idle) {
      const waiter = this.waiters.shift()!;
      waiter.serve(lease);
    }
  }
}

/** The key credits of this replica. */
class KeyCredits {
  readonly #keys = new Map<string, KeyCredit>();
  readonly #orgs = new Map<string, Set<KeyCredit>>();

  /** All of them. */
  all(): Iterable<KeyCredit> {
    return this.#keys.values();
  }

  /** The credit of a payer's key, created if missing. */
  by(payer: Payer): KeyCredit {
    const known = this.#keys.get(payer.keyId);
    if (known) return known;
    const credit = new KeyCredit(payer);
    this.#keys.set(payer.keyId, credit);
    const siblings = this.#orgs.get(payer.orgId);
    if (siblings) siblings.add(credit);
    else this.#orgs.set(payer.orgId, new Set([credit]));
    return credit;
  }

  /** The key credits of an organization. */
  of(orgId: string): ReadonlySet<KeyCredit> {
    return this.#orgs.get(orgId) ?? NOBODY;
  }

  /** Deletes an unused one. */
  forget(credit: KeyCredit): void {
    const { keyId, orgId } = credit.payer;
    this.#keys.delete(keyId);
    const siblings = this.#orgs.get(orgId);
    siblings?.delete(credit);
    if (siblings?.size === 0) this.#orgs.delete(orgId);
  }
}

const NOBODY: ReadonlySet<KeyCredit> = new Set();

const DAY_MS = 86_400_000;

/** The current UTC day, computed once a day. */
class Today {
  #number = Number.NaN;
  #name = "";

  /** `YYYY-MM-DD`. */
  get name(): string {
    const number = Math.floor(now() / DAY_MS);
    if (number !== this.#number) this.#name = new Date(number * DAY_MS).toISOString().slice(0, 10);
    this.#number = number;
    return this.#name;
  }
}

const today = new Today();

/** What a credit leaser needs of an ended request's record. */
interface Charged {
  /** The charge; at most the held ceiling. */
  costMicro: number;
  /** If set, a response waits until it is stored along with the charge. */
  claim?: object | undefined;
}

/** Credit held for one call: first its intent, then its end. */
export class Hold<I, S extends Charged> {
  /** The maximum cost of the call. */
  readonly ceilingMicro: number;
  readonly #committer: GroupCommitter<I, S>;
  readonly #lease: Lease;
  readonly #ended: (spent: number) => void;
  #intent: IntentOp<I> | undefined;
  #isOver = false;

  /** Created only by `CreditLeaser.hold`. */
  constructor(committer: GroupCommitter<I, S>, lease: Lease, ceilingMicro: number, ended: (spent: number) => void) {
    this.ceilingMicro = ceilingMicro;
    this.#committer = committer;
    this.#lease = lease;
    this.#ended = ended;
  }

  /** Writes the intent before dispatch, with the next group commit. */
  intend(record: I): void {
    if (this.#intent || this.#isOver)
      throw new Error("the intent of a hold can be written only once, before the hold ends");
    this.#intent = this.#committer.intend(record);
    if (this.#lease.state === "gone") this.#intent.done.reject(leaseLost());
  }

  /** Resolves when the intent is durable; no response is sent earlier. Rejects with `store_unavailable` if that fails. */
  get durable(): Promise<void> {
    if (!this.#intent) throw new Error("the hold has no intent yet");
    return this.#intent.done.promise;
  }

  /** Whether the intent is durable already. */
  get isDurable(): boolean {
    return this.#intent?.done.isKept === true;
  }

  /** Ends the call with its charge; the unused part of the ceiling is free at once. Resolves when it is committed. */
  settle(record: S): Promise<void> {
    return this.charge(record).promise;
  }

  /** Like `settle`, without waiting. */
  charge(record: S): Durability {
    if (this.#isOver) throw new Error("the hold has already ended");
    const { costMicro } = record;
    if (!Number.isSafeInteger(costMicro) || costMicro < 0 || costMicro > this.ceilingMicro) {
      throw new RangeError(`a charge of ${costMicro} micro-dollars exceeds the ceiling of ${this.ceilingMicro}`);
    }
    this.#isOver = true;
    if (this.#lease.state === "gone") {
      const lost = new Durability();
      lost.reject(leaseLost());
      this.#ended(0);
      return lost;
    }
    const done = this.#committer.settle(this.#lease.id, record, this.#intent, record.claim !== undefined);
    this.#ended(costMicro);
    return done;
  }

  /** Ends the call without a charge. `record` describes the end, and is required if there was an intent. */
  release(record?: S): Promise<void> {
    if (record) {
      if (record.costMicro !== 0) throw new RangeError("a released call must have a cost of 0");
      return this.settle(record);
    }
    if (this.#intent) throw refuse(Reason.INTERNAL_ERROR, "a call with an intent must be settled with a record");
    if (this.#isOver) throw new Error("the hold has already ended");
    this.#isOver = true;
    this.#ended(0);
    return Promise.resolve();
  }
}
