/**
 * A replica's till: lease, intent, settle. It holds credit that the ledger has already debited, so that a call finds its money
 * without asking the database; it puts every promise and every end on record in group commits; and it gives back what it
 * doesn't need. Amounts are whole micro-dollars.
 */
import { after, steadyNow } from "../ambient.ts";
import { Refusal } from "../errors.ts";
import { type Charged, Hold } from "./hold.ts";
import type { LedgerPort, Short } from "./ledger-port.ts";
import { newEntry, Pump, StoreAway } from "./group-commit.ts";
import type { Lease, Payer, Purse, Waiter } from "./key-credit.ts";
import { Purses, today } from "./key-credits.ts";
import { type Estimate, shortage } from "./insufficient-credit.ts";
import type { TakeOutcome } from "./commit-ops.ts";

const TICK_MS = 1_000;
/** A life is renewed this often; it must be well below the life that the ledger gives. */
const HEARTBEAT_MS = 3_000;
const RECOVER_MS = 5_000;
/** A lease that nobody used for this long is returned. */
const IDLE_MS = 5_000;
/** How long a call waits for credit that may come back. */
const PATIENCE_MS = 1_000;
const LOOK_MS = 200;
const CONTENT_MS = 250;

/** One replica's till. */
export class Till<I, S extends Charged> {
  readonly #port: LedgerPort<I, S>;
  readonly #pump: Pump<I, S>;
  readonly #purses = new Purses();
  readonly #leases = new Map<string, Lease>();
  /** The purses that calls wait for. */
  readonly #hungry = new Set<Purse>();
  #unlisten: () => void = () => {};
  #untick: () => void = () => {};
  /** The first look at what others left comes with the first tick: a gateway may not live for long itself. */
  #recoveredAt = Number.NEGATIVE_INFINITY;
  #closed = false;

  private constructor(port: LedgerPort<I, S>, till: string) {
    this.#port = port;
    this.#pump = new Pump(port, till, {
      recalled: (leases) => {
        for (const id of leases) this.#returnIdle(this.#leases.get(id), true);
      },
      fenced: () => this.#beginAnew(),
    });
  }

  /** Opens a till on a ledger; what this replica's former life left is recovered by then. */
  static async open<I, S extends Charged>(port: LedgerPort<I, S>): Promise<Till<I, S>> {
    const till = new Till(port, await port.open());
    till.#unlisten = port.listen({
      wanted: (orgId) => {
        for (const purse of till.#purses.of(orgId)) till.#returnIdle(purse.lease, true);
      },
      returned: (orgId) => {
        for (const purse of till.#purses.of(orgId)) till.#look(purse);
      },
    });
    till.#untick = after(TICK_MS, () => till.#tick());
    return till;
  }

  /** The name of the present life, which idempotency claims carry. It changes when the till was fenced. */
  get name(): string {
    return this.#pump.till;
  }

  /** What it holds at the moment; amounts in micro-dollars. */
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
   * Holds credit for the dearest way that a call may go, at once when the key's lease has it. Refuses with `insufficient_credits`
   * or `key_budget_exhausted` when there isn't enough and none can be called back, with `store_unavailable` when the ledger is away.
   */
  hold(payer: Payer, ceilingMicro: number, estimate: Estimate): Hold<I, S> | Promise<Hold<I, S>> {
    if (!Number.isSafeInteger(ceilingMicro) || ceilingMicro < 0)
      throw new RangeError(`a ceiling of ${ceilingMicro} micro-dollars`);
    if (this.#closed || !this.#pump.well) throw new StoreAway("nothing");
    const purse = this.#purses.by(payer);
    const time = steadyNow();
    purse.usedAt = time;
    const lease = this.#leaseOf(purse);
    if (lease.state !== "open" || lease.idle < ceilingMicro) return this.#wait(purse, ceilingMicro, estimate);
    const hold = this.#promise(lease, ceilingMicro);
    if (!purse.taking && time >= purse.contentUntil && lease.idle < purse.pace(time) / 2) this.#take(purse);
    return hold;
  }

  /** Puts a request on record that ended before any credit was held for it; it costs nothing. */
  note(record: S): Promise<void> {
    if (record.costMicro !== 0) throw new RangeError("only a held call can be charged");
    return this.#pump.settle(null, record, undefined, record.claim !== undefined).promise;
  }

  /** Returns what is idle in this till's leases of an organisation; resolves when the balance shows it. */
  async giveBack(orgId: string): Promise<void> {
    const returned = [...this.#purses.of(orgId)].map((purse) => this.#returnIdle(purse.lease, false));
    // A call that was just answered may still be on its way to the ledger.
    await Promise.all([...returned, this.#pump.caughtUp()]);
  }

  /** Takes no new calls, returns every lease and writes what is under way. Calls that still run may settle until then. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#untick();
    for (const purse of this.#purses.all()) {
      this.#refuse(purse, purse.waiters, () => new StoreAway("nothing"));
      if (purse.lease) this.#retire(purse.lease);
    }
    await this.#pump.close();
    this.#unlisten();
  }

  /** Takes part of a lease for a call. */
  #promise(lease: Lease, ceiling: number): Hold<I, S> {
    lease.idle -= ceiling;
    lease.promised += ceiling;
    lease.running += 1;
    lease.purse.promised += ceiling;
    lease.purse.running += 1;
    return new Hold(this.#pump, lease, ceiling, (spent) => this.#ended(lease, ceiling, spent));
  }

  #ended(lease: Lease, ceiling: number, spent: number): void {
    const { purse } = lease;
    lease.idle += ceiling - spent;
    lease.promised -= ceiling;
    lease.running -= 1;
    purse.promised -= ceiling;
    purse.running -= 1;
    purse.spend(spent, steadyNow());
    if (lease.state === "old") this.#retire(lease);
    for (const other of this.#hungry) if (other.payer.orgId === purse.payer.orgId) this.#look(other);
  }

  #wait(purse: Purse, ceiling: number, estimate: Estimate): Promise<Hold<I, S>> {
    const { promise, resolve, reject } = Promise.withResolvers<Hold<I, S>>();
    const serve = (lease: Lease): void => resolve(this.#promise(lease, ceiling));
    purse.waiters.push({ ceiling, estimate, since: steadyNow(), serve, refuse: reject });
    this.#hungry.add(purse);
    this.#watch(purse);
    this.#take(purse);
    return promise;
  }

  /** Asks the ledger for what the waiters need and what the purse's pace suggests. One take per purse at a time. */
  #take(purse: Purse): void {
    if (purse.taking) return;
    purse.taking = true;
    const lease = this.#leaseOf(purse);
    const { id, day, idle } = lease;
    const hasRecalled = purse.recalled && !purse.recalling;
    const { orgId: org, keyId: key } = purse.payer;
    const waiting = purse.waiters.reduce((sum, waiter) => sum + waiter.ceiling, 0);
    const need = Math.max(0, (purse.waiters[0]?.ceiling ?? 0) - idle);
    const asked = Math.max(need, waiting - idle);
    const want = asked + Math.max(0, purse.pace(steadyNow()) - Math.max(0, idle - waiting));
    this.#pump.move({ kind: "take", entry: newEntry(), lease: id, org, key, day, need, asked, want }, (outcome) => {
      purse.taking = false;
      this.#taken(purse, lease, outcome, hasRecalled);
    });
  }

  #taken(purse: Purse, lease: Lease, outcome: TakeOutcome, hasRecalled: boolean): void {
    if (outcome === undefined) this.#take(purse);
    else if (outcome instanceof Refusal) this.#refuse(purse, purse.waiters, () => outcome);
    else if ("short" in outcome) this.#foundShort(purse, lease, outcome, hasRecalled);
    else {
      if (lease.state === "new") lease.state = "open";
      if (lease.state !== "gone") lease.idle += outcome.grantedMicro;
      purse.recalled = false;
      purse.contentUntil = steadyNow() + CONTENT_MS;
      if (lease !== purse.lease) this.#retire(lease);
      this.#look(purse);
    }
  }

  /**
   * Looks for credit that may come back, nearest first; only when there is none the call is refused. A take that was sent before other
   * tills were asked (`hasRecalled` says so) can't tell what they would have given back.
   */
  #foundShort(purse: Purse, lease: Lease, short: Short, hasRecalled: boolean): void {
    purse.serve(lease);
    const head = purse.waiters[0];
    if (this.#sated(purse) || !head) return;
    if (this.#gather(purse, short)) this.#take(purse);
    else if (short.heldElsewhere && !purse.recalled) this.#recall(purse, short);
    else if (short.heldElsewhere && !hasRecalled) {
      purse.short = short;
      if (!purse.recalling) this.#take(purse);
    } else if (!short.recalled && short.roomMicro + this.#promised(purse, short) < head.ceiling) {
      purse.recalled = false;
      const hopeless = purse.waiters.filter((waiter) => waiter.ceiling >= head.ceiling);
      this.#refuse(purse, hopeless, (waiter) => shortage(short, waiter.ceiling, waiter.estimate));
      this.#look(purse);
    } else purse.short = short;
  }

  /**
   * Returns what is idle in this very till, so that the next take finds all of it or nothing: calls that wait must not hold parts of
   * what each of them needs whole. Other keys count when what is short is theirs too, unless calls wait for them as well. Answers
   * whether there was anything.
   */
  #gather(purse: Purse, short: Short): boolean {
    const rich = this.#sharing(purse, short).filter(
      (any) => (any.lease?.idle ?? 0) > 0 && (any === purse || any.waiters.length === 0),
    );
    for (const { lease } of rich) this.#returnIdle(lease, false);
    return rich.length > 0;
  }

  #recall(purse: Purse, short: Short): void {
    purse.recalled = true;
    purse.recalling = true;
    purse.short = short;
    const { orgId, keyId } = purse.payer;
    const look = (): void => {
      purse.recalling = false;
      this.#look(purse);
    };
    const holder = short.short === "key_budget" ? (short.holder ?? keyId) : null;
    this.#port.recall(this.#pump.till, orgId, holder).then(look, look);
  }

  /** The purses that live on what is short: those of the key whose budget it is and of its descendants, those of its workspace or of its organisation for theirs. */
  #sharing(purse: Purse, { short, holder }: Short): Purse[] {
    const all = [...this.#purses.of(purse.payer.orgId)];
    if (short === "key_budget") {
      const whose = holder ?? purse.payer.keyId;
      return all.filter(({ payer }) => payer.keyId === whose || payer.ancestors?.includes(whose) === true);
    }
    const { workspaceId } = purse.payer;
    return short === "org_credits" ? all : all.filter(({ payer }) => payer.workspaceId === workspaceId);
  }

  /** What running calls were promised and might not cost. */
  #promised(purse: Purse, short: Short): number {
    let sum = 0;
    for (const other of this.#sharing(purse, short)) sum += other.promised;
    return sum;
  }

  #refuse(purse: Purse, waiters: readonly Waiter[], why: (waiter: Waiter) => Refusal): void {
    purse.waiters = purse.waiters.filter((waiter) => !waiters.includes(waiter));
    this.#sated(purse);
    for (const waiter of waiters) waiter.refuse(why(waiter));
  }

  /** Something may have changed for those who wait: serves them from what is idle, and asks the ledger again. */
  #look(purse: Purse): void {
    if (purse.waiters.length === 0) return;
    if (purse.lease) purse.serve(purse.lease);
    if (!this.#sated(purse)) this.#take(purse);
  }

  #sated(purse: Purse): boolean {
    if (purse.waiters.length > 0) return false;
    purse.short = undefined;
    purse.recalled = false;
    this.#hungry.delete(purse);
    return true;
  }

  /** While calls wait, looks again from time to time: a message between tills may be lost, and patience ends. */
  #watch(purse: Purse): void {
    if (purse.watched) return;
    purse.watched = true;
    after(LOOK_MS, () => {
      purse.watched = false;
      const { short } = purse;
      if (!this.#pump.well) this.#refuse(purse, purse.waiters, () => new StoreAway("nothing"));
      else if (short) {
        const tired = purse.waiters.filter((waiter) => steadyNow() - waiter.since >= PATIENCE_MS);
        this.#refuse(purse, tired, (waiter) => shortage(short, waiter.ceiling, waiter.estimate));
      }
      if (purse.waiters.length === 0) return;
      this.#watch(purse);
      this.#look(purse);
    });
  }

  /** Returns what no call was promised; as an `answer` to a recall even when that is nothing. */
  #returnIdle(lease: Lease | undefined, answers: boolean): Promise<void> | undefined {
    if (lease === undefined || !inLedger(lease) || (lease.idle === 0 && !answers)) return undefined;
    const { id, purse, idle: amount } = lease;
    lease.idle = 0;
    purse.contentUntil = steadyNow() + CONTENT_MS;
    return this.#pump.move({ kind: "return", entry: newEntry(), lease: id, org: purse.payer.orgId, amount, answers });
  }

  /** Gives up a lease: what is idle at once, the rest when its last call has ended. */
  #retire(lease: Lease): void {
    const { id, purse } = lease;
    if (purse.lease === lease) purse.lease = undefined;
    if (lease.state === "new") this.#leases.delete(id);
    if (!inLedger(lease)) return;
    lease.state = lease.running > 0 ? "old" : "gone";
    if (lease.state === "old") this.#returnIdle(lease, false);
    else {
      lease.idle = 0;
      this.#leases.delete(id);
      this.#pump.move({ kind: "end", entry: newEntry(), lease: id, org: purse.payer.orgId });
    }
  }

  #leaseOf(purse: Purse): Lease {
    const { lease, before } = purse.leaseOf(today());
    if (before !== undefined) this.#retire(before);
    if (lease.state === "new") this.#leases.set(lease.id, lease);
    return lease;
  }

  #tick(): void {
    this.#untick = after(TICK_MS, () => this.#tick());
    this.#pump.beat(HEARTBEAT_MS);
    const time = steadyNow();
    for (const purse of this.#purses.all()) {
      if (purse.running > 0 || purse.waiters.length > 0 || purse.taking || time - purse.usedAt < IDLE_MS) continue;
      if (purse.lease) this.#retire(purse.lease);
      this.#purses.forget(purse);
    }
    if (time - this.#recoveredAt < RECOVER_MS) return;
    this.#recoveredAt = time;
    this.#port.recover().catch(() => {});
  }

  /** The ledger took everything back; those who wait ask again under the new name. */
  #beginAnew(): void {
    for (const lease of this.#leases.values()) lease.state = "gone";
    this.#leases.clear();
    for (const purse of this.#purses.all()) {
      purse.lease = undefined;
      purse.taking = false;
      purse.recalled = false;
      if (purse.waiters.length > 0) this.#take(purse);
    }
  }
}

/** Whether the ledger holds credit under its name. */
const inLedger = ({ state }: Lease): boolean => state === "open" || state === "old";
