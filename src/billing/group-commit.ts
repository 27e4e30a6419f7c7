/**
 * Group commit: what has gathered while a batch was under way leaves as the next one, and batches keep a little distance. An answer
 * waits for its promise alone, so ends gather for longer: to write many of them costs little more than to write one.
 */
import { after, sleep, steadyNow } from "../clock.ts";
import { Reason, Refusal, refuse } from "../errors.ts";
import { newId } from "../ids.ts";

/** The most works in one batch, and the most gathered ends beside them: what a dying process can lose of answered calls' charges. */
const MOST_OPS = 512;
/**
 * Batches keep a distance that grows with what the last one carried, because most of a batch's price is its own and not its
 * works': a lone call waits for nothing, and under load many calls share a batch, a quick call's promise and its end too. It
 * is nothing beside an inference; credit that a call waits for does not wait for it.
 */
const DISTANCE_MS = { perOp: 0.25, most: 5 };
/**
 * Ends without a waiter leave together: when there are as many as a batch takes, or when the first of them has waited for long enough.
 * A batch's own price is that of fifty ends. What a dying process loses of them is on record, since it was promised, and isn't charged.
 */
const GATHER = { ops: MOST_OPS, ms: 20 };
/** Milliseconds of a batch until calls are refused because the store is away. */
const STALL_MS = 3_000;
/** How often a closing pump tries again. */
const LAST_ATTEMPTS = 3;
const RETRY_MS = { first: 20, most: 1_000 };

/** What the group committer reports to its credit leaser. */
interface GroupCommitListener {
  /** Other credit leasers want what is idle in these leases. */
  recalled(leases: readonly string[]): void;
  /** The credit leaser was fenced: its leases are gone and everything under way has been refused. A new life has begun. */
  fenced(): void;
}

/** Writes works in batches, in the order in which they came, one batch at a time. */
export class GroupCommitter<I, S> {
  readonly #port: LedgerPort<I, S>;
  readonly #listener: GroupCommitListener;
  #leaser: string;
  #committed = 0;
  #queue: CommitOp<I, S>[] = [];
  /** Ends that gather. */
  #ends: SettlementOp<I, S>[] = [];
  /** Whether they leave with the next batch. */
  #due = false;
  /** Deletes how long the first of them has waited; undefined while none waits. */
  #patience: (() => void) | undefined;
  #underway: CommitOp<I, S>[] = [];
  #running: Promise<void> | undefined;
  #closing = false;
  #startedAt = 0;
  /** Works in the last batch that had any beside gathered ends. */
  #carried = 0;
  /** Whether no operation came while it was under way. */
  #alone = false;
  /** Ends the rest before the next batch; undefined while there is none. */
  #wake: (() => void) | undefined;
  #endedAt = steadyNow();

  constructor(port: LedgerPort<I, S>, leaser: string, listener: GroupCommitListener) {
    this.#port = port;
    this.#leaser = leaser;
    this.#listener = listener;
  }

  /** The name under which leases are held at present. */
  get leaser(): string {
    return this.#leaser;
  }

  /** Writes an intent; its `done` resolves when it is durable. */
  intend(record: I): IntentOp<I> {
    return this.#add({ kind: "intent", record, done: new Durability(), page: undefined, ended: false });
  }

  /**
   * Writes the end of a request, charged to `lease`; kept when it is committed. One that `presses`, because a caller waits for it,
   * leaves with the next batch; others gather.
   */
  settle(lease: string | null, record: S, intent: IntentOp<I> | undefined, presses: boolean): Durability {
    const op: SettlementOp<I, S> = { kind: "settlement", lease, record, intent, done: new Durability() };
    if (presses || this.#closing) this.#add(op);
    else if (this.#ends.push(op) >= GATHER.ops) this.#press();
    else this.#patience ??= after(GATHER.ms, () => this.#press());
    return op.done;
  }

  /** Moves credit; resolves when it is committed. `taken` is called with the outcome of a take. */
  move(move: CreditMove, taken?: (outcome: TakeOutcome) => void): Promise<void> {
    return this.#add({ kind: "move", move, done: new Durability(), taken }).done.promise;
  }

  /** Resolves when all that was added until now is written, or can't be. */
  async caughtUp(): Promise<void> {
    const last = [this.#ends.at(-1), this.#queue.at(-1) ?? this.#underway.at(-1)];
    this.#press();
    for (const op of last) await op?.done.promise.catch(() => {});
  }

  /** Whether the store answers. */
  get well(): boolean {
    return this.#running === undefined || steadyNow() - this.#startedAt < STALL_MS;
  }

  /** Sends the heartbeat when nothing was written for `ms`, and refuses what has waited too long because the store is away. */
  beat(ms: number): void {
    if (!this.well) this.#rejectAll([...this.#underway, ...this.#ends, ...this.#queue], new StoreAway("nothing"));
    else if (this.#running === undefined && steadyNow() - this.#endedAt >= ms) this.#start();
  }

  /** Resolves when everything that was added is written, or can't be because the store is away. */
  async close(): Promise<void> {
    this.#closing = true;
    this.#wake?.();
    while (this.#running !== undefined || this.#queue.length + this.#ends.length > 0) {
      this.#start();
      await this.#running;
    }
  }

  #add<W extends CommitOp<I, S>>(op: W): W {
    this.#queue.push(op);
    if (this.#wake && (op.kind === "move" || this.#isGathered)) this.#wake();
    // Everything that this turn of the event loop brings shares the batch.
    if (this.#running === undefined && this.#queue.length === 1) setImmediate(() => this.#start());
    return op;
  }

  /** Lets the ends that have gathered leave with the next batch, and sees to it that there is one. */
  #press(): void {
    if (this.#ends.length === 0) return;
    this.#due = true;
    if (this.#running === undefined && this.#queue.length === 0) setImmediate(() => this.#start());
  }

  /** What the next batch carries. Gathered ends come first: a lease that they are charged to may end with this batch. */
  #next(): CommitOp<I, S>[] {
    const ops = this.#queue.splice(0, MOST_OPS);
    this.#carried = ops.length || this.#carried;
    if (this.#ends.length === 0 || !(this.#due || this.#closing || ops.some(takesEndsAlong))) return ops;
    const ends = this.#ends;
    this.#ends = ends.splice(MOST_OPS);
    if (this.#ends.length === 0) this.#forgetDue();
    else this.#queue.unshift(...ops.splice(0));
    return ops.length === 0 ? ends : [...ends, ...ops];
  }

  #forgetDue(): void {
    this.#due = false;
    this.#patience?.();
    this.#patience = undefined;
  }

  /** Milliseconds until the next batch may start; 0 when it must not wait. */
  #restMs(): number {
    if (this.#closing || this.#isGathered || this.#queue.some(({ kind }) => kind === "move")) return 0;
    const distanceMs = Math.min(DISTANCE_MS.most, DISTANCE_MS.perOp * this.#carried);
    return Math.max(0, this.#startedAt + distanceMs - steadyNow());
  }

  /**
   * Whether the next batch need not wait: it is full, or has as many operations as the last one, during which none came. Those are closed
   * loops of callers, of whom a longer wait gathers no more; where calls come by themselves batches keep their distance.
   */
  get #isGathered(): boolean {
    const { length } = this.#queue;
    return length >= MOST_OPS || (this.#alone && length >= this.#carried);
  }

  /** Waits for `ms`, or until the batch is gathered. */
  async #rest(ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const forget = after(ms, resolve);
    this.#wake = () => {
      this.#wake = undefined;
      setImmediate(resolve);
    };
    await promise;
    this.#wake = undefined;
    forget();
  }

  #start(): void {
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
      this.#endedAt = steadyNow();
      if (this.#queue.length > 0 || this.#due) this.#start();
    });
  }

  /** One batch at least, so that a beat with an empty queue renews the credit leaser's life. */
  async #run(): Promise<void> {
    do {
      const restMs = this.#restMs();
      if (restMs > 0) await this.#rest(restMs);
      this.#underway = this.#next();
      this.#startedAt = steadyNow();
      try {
        await this.#commit(this.#underway, compose(this.#committed + 1, this.#underway));
      } catch {
        // Only a closing committer gives up; the replica that recovers its leases records the open intents.
        this.#rejectAll(this.#underway, new StoreAway("nothing"));
      }
      this.#underway = [];
    } while (this.#queue.length > 0 || this.#due);
  }

  async #commit(ops: CommitOp<I, S>[], batch: CommitBatch<I, S>): Promise<void> {
    const outcome = await this.#insist(() => this.#port.commit(this.#leaser, batch));
    if (outcome.kind === "fenced") return this.#beginAnew(ops);
    if (outcome.kind === "refused") return this.#commitEach(ops, outcome.cause);
    this.#committed = batch.number;
    this.#conclude(ops, outcome);
    if (outcome.recalled.length > 0) this.#listener.recalled(outcome.recalled);
  }

  #conclude(ops: CommitOp<I, S>[], outcome: CommitOutcome & { kind: "done" }): void {
    this.#alone = this.#queue.length === 0;
    for (const op of ops) {
      op.done.resolve();
      if (op.kind === "move" && op.taken) {
        const { entry } = op.move;
        op.taken(outcome.takes.find((take) => take.entry === entry));
      }
    }
  }

  /** One bad work must not sink the others: each gets a batch of its own. Intents stay in the journal until the credit leaser ends. */
  async #commitEach(ops: CommitOp<I, S>[], cause: unknown): Promise<void> {
    if (ops.length === 1) {
      const refused = refuse(Reason.INTERNAL_ERROR, "the gateway could not record this call", {}, { cause });
      this.#rejectAll(ops, refused);
      for (const op of ops) if (op.kind === "move") op.taken?.(refused);
      return;
    }
    const life = this.#leaser;
    for (const op of ops) {
      if (this.#leaser !== life) {
        op.done.reject(leaseLost());
        continue;
      }
      if (op.kind === "intent") op.ended = false;
      if (op.kind === "settlement") op.intent = undefined;
      await this.#commit([op], compose(this.#committed + 1, [op]));
    }
  }

  async #beginAnew(ops: CommitOp<I, S>[]): Promise<void> {
    this.#leaser = await this.#insist(() => this.#port.open());
    this.#committed = 0;
    this.#rejectAll([...ops, ...this.#ends, ...this.#queue], leaseLost());
    this.#queue = [];
    this.#ends = [];
    this.#forgetDue();
    this.#listener.fenced();
  }

  /** Tries until the store answers: what isn't known to be written can't be given up. */
  async #insist<T>(attempt: () => Promise<T>): Promise<T> {
    for (let failures = 0; ; failures++) {
      try {
        return await attempt();
      } catch (cause) {
        if (this.#closing && failures >= LAST_ATTEMPTS) throw cause;
        await sleep(Math.min(RETRY_MS.first * 2 ** failures, RETRY_MS.most));
      }
    }
  }

  #rejectAll(ops: CommitOp<I, S>[], refusal: Refusal): void {
    for (const op of ops) op.done.reject(refusal);
  }
}

/** The refusal of a call whose credit was taken back because this replica was thought dead. */
export const leaseLost = (): Refusal =>
  refuse(
    Reason.STORE_UNAVAILABLE,
    "the gateway lost its credit lease for this call; nothing was charged; retry",
    {},
    { retryAfter: 1 },
  );

/** What the refusal says of money when a call can't be recorded. */
const OWED = {
  nothing: "the gateway cannot record calls right now; nothing was charged; retry later",
  once: "the gateway cannot record calls right now; retry with the same idempotency key, so that the call is charged only once",
} as const;

/** The refusal of a call that can't be recorded at the moment: `nothing` is charged, or `once`, when it is repeated with its idempotency key. */
export class StoreAway extends Refusal {
  constructor(owed: keyof typeof OWED) {
    super(Reason.STORE_UNAVAILABLE, OWED[owed], {}, { retryAfter: 1 });
  }
}

/** A fresh name for a row of the ledger. */
export const newEntry = (): string => newId("entry");

/** The end of an operation. Nobody waits for most of them, and these make no promise. */
export class Durability {
  #ended: "kept" | "broken" | undefined;
  #cause: unknown;
  #awaited: PromiseWithResolvers<void> | undefined;

  resolve(): void {
    this.#end("kept", undefined);
  }

  reject(cause: unknown): void {
    this.#end("broken", cause);
  }

  /** Whether it is kept already. */
  get isKept(): boolean {
    return this.#ended === "kept";
  }

  /** Resolves when it is kept, rejects when it cannot be; may be left unawaited. */
  get promise(): Promise<void> {
    if (this.#awaited === undefined) {
      this.#awaited = Promise.withResolvers<void>();
      this.#awaited.promise.catch(() => {});
      this.#tell();
    }
    return this.#awaited.promise;
  }

  #end(how: "kept" | "broken", cause: unknown): void {
    if (this.#ended !== undefined) return;
    this.#ended = how;
    this.#cause = cause;
    this.#tell();
  }

  #tell(): void {
    if (this.#ended === "kept") this.#awaited?.resolve();
    else if (this.#ended === "broken") this.#awaited?.reject(this.#cause);
  }
}

/** A batch's intents, kept in the ledger's journal until the last of them has ended. */
interface IntentBatch {
  batch: number;
  open: number;
}

/** An intent on its way to the journal. */
export interface IntentOp<I> {
  kind: "intent";
  record: I;
  done: Durability;
  page: IntentBatch | undefined;
  /** Its settlement leaves with the same batch or has left, so the journal needs no line of it. */
  ended: boolean;
}

/** The end of a request on its way to the ledger. */
interface SettlementOp<I, S> {
  kind: "settlement";
  lease: string | null;
  record: S;
  intent: IntentOp<I> | undefined;
  done: Durability;
}

/** How a take ended: granted, short, refused for what is in it, or (undefined) not known, so that it has to be asked again. */
export type TakeOutcome = CreditGrant | CreditShortage | Refusal | undefined;

/** Credit that moves. */
interface MoveOp {
  kind: "move";
  move: CreditMove;
  done: Durability;
  taken: ((outcome: TakeOutcome) => void) | undefined;
}

/** What waits for a batch, or is in one. */
type CommitOp<I, S> = IntentOp<I> | SettlementOp<I, S> | MoveOp;

/** Whether a batch with this work takes the ends along that have gathered: it writes ends as it is, or ends a lease that they are charged to. */
const takesEndsAlong = (op: CommitOp<unknown, unknown>): boolean =>
  op.kind === "settlement" || (op.kind === "move" && op.move.kind === "end");

/** Builds a batch. An intent whose settlement is in the same batch needs no row; a batch whose last intent ends is over. */
function compose<I, S>(number: number, ops: readonly CommitOp<I, S>[]): CommitBatch<I, S> {
  const batch: CommitBatch<I, S> = { number, intents: [], settlements: [], over: [], moves: [] };
  const page: IntentBatch = { batch: number, open: 0 };
  for (const op of ops) {
    if (op.kind === "settlement" && op.intent) op.intent.ended = true;
  }
  for (const op of ops) {
    if (op.kind === "move") batch.moves.push(op.move);
    else if (op.kind === "settlement") {
      batch.settlements.push({ lease: op.lease, record: op.record });
      const open = op.intent?.page;
      if (open && --open.open === 0) batch.over.push(open.batch);
    } else if (!op.ended) {
      batch.intents.push(op.record);
      op.page = page;
      page.open += 1;
    }
  }
  return batch;
}

/** Takes credit into a lease: `need` at least, `asked` for the calls that wait, up to `want` while there is plenty. In micro-dollars. */
interface CreditTake {
  kind: "take";
  /** Names the ledger's row, so that a repeated batch is recognised. */
  entry: string;
  lease: string;
  org: string;
  key: string;
  /** The UTC day whose budget it counts against, `YYYY-MM-DD`. */
  day: string;
  need: number;
  asked: number;
  want: number;
}

/** Returns `amount` micro-dollars of a lease; `answers` a recall, even with nothing. */
interface CreditReturn {
  kind: "return";
  entry: string;
  lease: string;
  org: string;
  amount: number;
  answers: boolean;
}

/** Ends a lease: whatever is left of it is returned. */
interface LeaseEnd {
  kind: "end";
  entry: string;
  lease: string;
  org: string;
}

/** Credit that moves into or out of a lease. */
type CreditMove = CreditTake | CreditReturn | LeaseEnd;

/** What is committed together. A batch of one number is applied once, however often it is sent. */
export interface CommitBatch<I, S> {
  number: number;
  intents: I[];
  settlements: { lease: string | null; record: S }[];
  /** The batches whose intents have all ended with this one. */
  over: number[];
  moves: CreditMove[];
}

/** A take that succeeded. */
interface CreditGrant {
  entry: string;
  grantedMicro: number;
}

/** A take that did not. */
export interface CreditShortage {
  entry: string;
  short: "org_credits" | "workspace_budget" | "key_budget";
  /** Of a key's budget: the key that has it, which is the payer's own or one that it descends from. */
  holder: string | null;
  /** What is there. */
  roomMicro: number;
  /** When the budget is renewed, in unix seconds. */
  resetsAt: number | null;
  /** Leases of other credit leasers hold credit that would count. */
  heldElsewhere: boolean;
  /** Other credit leasers were asked for it and have not answered yet. */
  recalled: boolean;
}

/** How a batch ended: committed, written by a credit leaser that was fenced (nothing was applied), or refused for what is in it (likewise). */
export type CommitOutcome =
  | { kind: "done"; takes: (CreditGrant | CreditShortage)[]; recalled: string[] }
  | { kind: "fenced" }
  | { kind: "refused"; cause: unknown };

/** A ledger. */
export interface LedgerPort<I, S> {
  /** Opens a credit leaser, after recovering what its replica's earlier ones left; returns its name. */
  open(): Promise<string>;
  /** Commits a batch. Rejects when it isn't known whether it was; then the same batch is sent again. */
  commit(leaser: string, batch: CommitBatch<I, S>): Promise<CommitOutcome>;
  /** Asks the other credit leasers for what is idle in their leases of an organization, or of one key of it and its descendants. */
  recall(leaser: string, orgId: string, keyId: string | null): Promise<void>;
  /** Recovers what dead credit leasers left. */
  recover(): Promise<void>;
  /** Hears of recalls and of returned credit, by organization, until the returned function is called. */
  listen(heard: { wanted(orgId: string): void; returned(orgId: string): void }): () => void;
}
