/**
 * Group commit: operations that arrive while a batch is being written form the next one, with a short pause between batches. Responses wait
 * only for their intents, so ends gather for longer: writing many costs little more than writing one.
 */
import { after, everySpan, sleep, steadyNow } from "../clock.ts";
import { Reason, Refusal, refuse } from "../errors.ts";
import { newId } from "../ids.ts";

/** The most operations in one batch, and the most gathered ends besides: the charges that a crashing process can lose. */
const MOST_OPS = 512;
/**
 * The pause between batches grows with the size of the last one, because most of a batch's cost is fixed. A single call does not wait; under
 * load many calls share a batch, even the intent and the end of a fast call. The pause is negligible compared with an inference, and credit
 * that a call waits for is not delayed.
 */
const DISTANCE_MS = { perOp: 0.25, most: 5 };
/**
 * Ends without a waiter are written together: when there are as many as fit into a batch, or when the first has waited long enough. The fixed
 * cost of a batch is that of fifty ends. If the process crashes, their intents are on record, and they are not charged.
 */
const GATHER = { ops: MOST_OPS, ms: 20 };
/** Milliseconds without a response of the store to a batch after which calls are refused because the store is unavailable. */
const STALL_MS = 3_000;
/** The interval at which they are counted. */
const LOOK_MS = 250;
/** The minimum interval between two equal lines of the log. */
const LOG_MS = 60_000;
/** The retry interval of a closing committer. */
const LAST_ATTEMPTS = 3;
const RETRY_MS = { first: 20, most: 1_000 };

/** What the group committer reports to its credit leaser. */
interface GroupCommitListener {
  /** Other credit leasers request the idle credit in these leases. */
  recalled(leases: readonly string[]): void;
  /** The credit leaser was fenced: its leases are gone and pending operations were refused. It continues under a new name. */
  fenced(): void;
  readonly log: CommitLog;
}

/** Receives failures of the ledger, each text at most once a minute. */
export interface CommitLog {
  warn(text: string, cause: unknown): void;
  error(text: string, cause: unknown): void;
}

/** Writes operations in batches, in arrival order, one batch at a time. */
export class GroupCommitter<I, S> {
  readonly #port: LedgerPort<I, S>;
  readonly #listener: GroupCommitListener;
  #leaser: string;
  #committed = 0;
  #queue: CommitOp<I, S>[] = [];
  /** Gathered ends. */
  #ends: SettlementOp<I, S>[] = [];
  /** Whether they are written with the next batch. */
  #due = false;
  /** Cancels the timer of the first one; undefined while none waits. */
  #patience: (() => void) | undefined;
  #underway: CommitOp<I, S>[] = [];
  #running: Promise<void> | undefined;
  #closing = false;
  #startedAt = 0;
  /** How long the store has not responded, without the time for which this process itself was stalled. */
  #silentMs = 0;
  /** When each text was last logged. */
  readonly #loggedAt = new Map<string, number>();
  /** The number of operations in the last batch that had any besides gathered ends. */
  #carried = 0;
  /** Whether no operation arrived while it was being written. */
  #alone = false;
  /** Ends the pause before the next batch; undefined if there is none. */
  #endPause: (() => void) | undefined;
  #endedAt = steadyNow();

  constructor(port: LedgerPort<I, S>, leaser: string, listener: GroupCommitListener) {
    this.#port = port;
    this.#leaser = leaser;
    this.#listener = listener;
  }

  /** The name that currently holds the leases. */
  get leaser(): string {
    return this.#leaser;
  }

  /** Writes an intent; its `done` resolves when it is durable. */
  intend(record: I): IntentOp<I> {
    return this.#add({ kind: "intent", record, done: new Durability(), page: undefined, ended: false });
  }

  /**
   * Writes the end of a request, charged to `lease`; it is kept once committed. An end that `presses`, because a caller waits for it, is written
   * with the next batch; others gather.
   */
  settle(lease: string | null, record: S, intent: IntentOp<I> | undefined, presses: boolean): Durability {
    const op: SettlementOp<I, S> = { kind: "settlement", lease, record, intent, done: new Durability() };
    if (presses || this.#closing) this.#add(op);
    else if (this.#ends.push(op) >= GATHER.ops) this.#press();
    else this.#patience ??= after(GATHER.ms, () => this.#press());
    return op.done;
  }

  /** Moves credit; resolves when it is committed. Calls `taken` with the outcome of a take. */
  move(move: CreditMove, taken?: (outcome: TakeOutcome) => void): Promise<void> {
    return this.#add({ kind: "move", move, done: new Durability(), taken }).done.promise;
  }

  /** Resolves when all operations until now are written or have failed. */
  async caughtUp(): Promise<void> {
    const last = [this.#ends.at(-1), this.#queue.at(-1) ?? this.#underway.at(-1)];
    this.#press();
    for (const op of last) await op?.done.promise.catch(() => {});
  }

  /** Whether the store responds. */
  get well(): boolean {
    return this.#silentMs < STALL_MS;
  }

  /** Sends a heartbeat if nothing was written for `ms`, and refuses operations that waited too long for the store. */
  beat(ms: number): void {
    if (!this.well) this.#rejectAll([...this.#underway, ...this.#ends, ...this.#queue], new StoreAway("nothing"));
    else if (this.#running === undefined && steadyNow() - this.#endedAt >= ms) this.#start();
  }

  /** Resolves when all operations are written, or cannot be because the store is unavailable. */
  async close(): Promise<void> {
    this.#closing = true;
    this.#endPause?.();
    while (this.#running !== undefined || this.#queue.length + this.#ends.length > 0) {
      this.#start();
      await this.#running;
    }
  }

  #add<W extends CommitOp<I, S>>(op: W): W {
    this.#queue.push(op);
    if (this.#endPause && (op.kind === "move" || this.#isGathered)) this.#endPause();
    // All operations of this event loop turn share the batch.
    if (this.#running === undefined && this.#queue.length === 1) setImmediate(() => this.#start());
    return op;
  }

  /** Writes the gathered ends with the next batch, and schedules one. */
  #press(): void {
    if (this.#ends.length === 0) return;
    this.#due = true;
    if (this.#running === undefined && this.#queue.length === 0) setImmediate(() => this.#start());
  }

  /** The content of the next batch. Gathered ends come first: this batch may end the lease that they are charged to. */
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

  /** Milliseconds until the next batch can start; 0 if it must not wait. */
  #restMs(): number {
    if (this.#closing || this.#isGathered || this.#queue.some(({ kind }) => kind === "move")) return 0;
    const distanceMs = Math.min(DISTANCE_MS.most, DISTANCE_MS.perOp * this.#carried);
    return Math.max(0, this.#startedAt + distanceMs - steadyNow());
  }

  /**
   * Whether the next batch can start at once: it is full, or has as many operations as the last one, during which none arrived. In the latter
   * case the callers are closed loops, and waiting gathers no more. If calls arrive independently, batches keep their pause.
   */
  get #isGathered(): boolean {
    const { length } = this.#queue;
    return length >= MOST_OPS || (this.#alone && length >= this.#carried);
  }

  /** Waits for `ms`, or until the batch is full. */
  async #rest(ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const forget = after(ms, resolve);
    this.#endPause = () => {
      this.#endPause = undefined;
      setImmediate(resolve);
    };
    await promise;
    this.#endPause = undefined;
    forget();
  }

  #start(): void {
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
      this.#endedAt = steadyNow();
      if (this.#queue.length > 0 || this.#due) this.#start();
    });
  }

  /** Writes at least one batch, so that a heartbeat without operations renews the credit leaser. */
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
    if (outcome.kind === "refused") return this.#commitHalves(ops, outcome.cause);
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

  /**
   * Commits the halves of a refused batch one after the other, down to the invalid operations, so that these do not fail the others and cost
   * few batches. An intent whose settlement is refused stays in the journal until the leaser ends.
   */
  async #commitHalves(ops: CommitOp<I, S>[], cause: unknown): Promise<void> {
    withdraw(ops);
    if (ops.length === 1) {
      this.#log("error", "the ledger refused the record of a call, which was not charged", cause);
      const refused = refuse(Reason.INTERNAL_ERROR, "the gateway could not record this call", {}, { cause });
      this.#rejectAll(ops, refused);
      for (const op of ops) if (op.kind === "move") op.taken?.(refused);
      return;
    }
    const life = this.#leaser;
    const middle = Math.ceil(ops.length / 2);
    for (const half of [ops.slice(0, middle), ops.slice(middle)]) {
      if (this.#leaser === life) await this.#commit(half, compose(this.#committed + 1, half));
      else this.#rejectAll(half, leaseLost());
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

  /** Retries until the store responds: an operation with an unknown outcome cannot be dropped. */
  async #insist<T>(attempt: () => Promise<T>): Promise<T> {
    const stop = everySpan(LOOK_MS, (spanMs) => {
      this.#silentMs += spanMs;
    });
    try {
      for (let failures = 0; ; failures++) {
        try {
          return await attempt();
        } catch (cause) {
          this.#log("warn", "the ledger could not be written; trying again", cause);
          if (this.#closing && failures >= LAST_ATTEMPTS) throw cause;
          await sleep(Math.min(RETRY_MS.first * 2 ** failures, RETRY_MS.most));
        }
      }
    } finally {
      stop();
      this.#silentMs = 0;
    }
  }

  #log(level: keyof CommitLog, text: string, cause: unknown): void {
    const at = steadyNow();
    if (at - (this.#loggedAt.get(text) ?? Number.NEGATIVE_INFINITY) < LOG_MS) return;
    this.#loggedAt.set(text, at);
    this.#listener.log[level](text, cause);
  }

  #rejectAll(ops: CommitOp<I, S>[], refusal: Refusal): void {
    for (const op of ops) op.done.reject(refusal);
  }
}

/** The refusal of a call whose credit was recovered because this replica was considered dead. */
export const leaseLost = (): Refusal =>
  refuse(
    Reason.STORE_UNAVAILABLE,
    "the gateway lost its credit lease for this call; nothing was charged; retry",
    {},
    { retryAfter: 1 },
  );

/** What the refusal states about charges if a call cannot be recorded. */
const OWED = {
  nothing: "the gateway cannot record calls right now; nothing was charged; retry later",
  once: "the gateway cannot record calls right now; retry with the same idempotency key, so that the call is charged only once",
} as const;

/** The refusal of a call that cannot be recorded now: `nothing` is charged, or `once` if it is retried with its idempotency key. */
export class StoreAway extends Refusal {
  constructor(owed: keyof typeof OWED) {
    super(Reason.STORE_UNAVAILABLE, OWED[owed], {}, { retryAfter: 1 });
  }
}

/** A new id for a row of the ledger. */
export const newEntry = (): string => newId("entry");

/** The completion of an operation. Most have no waiter, and then create no promise. */
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

  /** Whether it is committed already. */
  get isKept(): boolean {
    return this.#ended === "kept";
  }

  /** Resolves when it is committed, rejects if it cannot be; does not have to be awaited. */
  get promise(): Promise<void> {
    if (this.#awaited === undefined) {
      this.#awaited = Promise.withResolvers<void>();
      this.#awaited.promise.catch(() => {});
      this.#settleWaiters();
    }
    return this.#awaited.promise;
  }

  #end(how: "kept" | "broken", cause: unknown): void {
    if (this.#ended !== undefined) return;
    this.#ended = how;
    this.#cause = cause;
    this.#settleWaiters();
  }

  #settleWaiters(): void {
    if (this.#ended === "kept") this.#awaited?.resolve();
    else if (this.#ended === "broken") this.#awaited?.reject(this.#cause);
  }
}

/** A batch's intents, kept in the ledger's journal until the last of them has ended. */
interface IntentBatch {
  batch: number;
  open: number;
}

/** A pending intent. */
export interface IntentOp<I> {
  kind: "intent";
  record: I;
  done: Durability;
  page: IntentBatch | undefined;
  /** Whether its settlement is in the same batch or was written, so that the journal needs no row of it. */
  ended: boolean;
}

/** A pending end of a request. */
interface SettlementOp<I, S> {
  kind: "settlement";
  lease: string | null;
  record: S;
  intent: IntentOp<I> | undefined;
  done: Durability;
}

/** The outcome of a take: granted, short, refused for its content, or undefined if unknown, which requires a retry. */
export type TakeOutcome = CreditGrant | CreditShortage | Refusal | undefined;

/** A movement of credit. */
interface MoveOp {
  kind: "move";
  move: CreditMove;
  done: Durability;
  taken: ((outcome: TakeOutcome) => void) | undefined;
}

/** An operation that waits for a batch, or is in one. */
type CommitOp<I, S> = IntentOp<I> | SettlementOp<I, S> | MoveOp;

/** Whether a batch with this operation includes the gathered ends: it writes ends anyway, or ends the lease that they are charged to. */
const takesEndsAlong = (op: CommitOp<unknown, unknown>): boolean =>
  op.kind === "settlement" || (op.kind === "move" && op.move.kind === "end");

/** Builds a batch. An intent whose settlement is in the same batch needs no row. A batch ends with its last intent. */
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

/** Undoes what composing a batch that was not applied changed in its operations. */
function withdraw(ops: readonly CommitOp<unknown, unknown>[]): void {
  for (const op of ops) {
    if (op.kind === "intent") op.page = undefined;
    else if (op.kind === "settlement" && op.intent) {
      op.intent.ended = false;
      if (op.intent.page) op.intent.page.open += 1;
    }
  }
}

/** Takes credit into a lease: at least `need`, `asked` for the waiting calls, up to `want` while there is plenty. In micro-dollars. */
interface CreditTake {
  kind: "take";
  /** The id of the ledger row, which identifies a repeated batch. */
  entry: string;
  lease: string;
  org: string;
  key: string;
  /** The UTC day of the budget that it counts against, `YYYY-MM-DD`. */
  day: string;
  need: number;
  asked: number;
  want: number;
}

/** Returns `amount` micro-dollars of a lease; `answers` a recall, even with zero. */
interface CreditReturn {
  kind: "return";
  entry: string;
  lease: string;
  org: string;
  amount: number;
  answers: boolean;
}

/** Ends a lease and returns its remaining credit. */
interface LeaseEnd {
  kind: "end";
  entry: string;
  lease: string;
  org: string;
}

/** Credit that moves into or out of a lease. */
type CreditMove = CreditTake | CreditReturn | LeaseEnd;

/** The parts of one commit. A batch with the same number is applied once, however often it is sent. */
export interface CommitBatch<I, S> {
  number: number;
  intents: I[];
  settlements: { lease: string | null; record: S }[];
  /** The batches whose last intent ends with this one. */
  over: number[];
  moves: CreditMove[];
}

/** A successful take. */
interface CreditGrant {
  entry: string;
  grantedMicro: number;
}

/** A take without enough credit. */
export interface CreditShortage {
  entry: string;
  short: "org_credits" | "workspace_budget" | "key_budget";
  /** For a key's budget, the key that has it: the payer's key or an ancestor. */
  holder: string | null;
  /** The available amount. */
  roomMicro: number;
  /** When the budget resets, in unix seconds. */
  resetsAt: number | null;
  /** Whether leases of other credit leasers hold usable credit. */
  heldElsewhere: boolean;
  /** Whether other credit leasers were notified and have not responded yet. */
  recalled: boolean;
}

/** The outcome of a batch: committed, fenced (nothing was applied), or refused for its content (likewise). */
export type CommitOutcome =
  | { kind: "done"; takes: (CreditGrant | CreditShortage)[]; recalled: string[] }
  | { kind: "fenced" }
  | { kind: "refused"; cause: unknown };

/** A ledger. */
export interface LedgerPort<I, S> {
  /** Opens a credit leaser, after recovering this replica's predecessors; returns its name. */
  open(): Promise<string>;
  /** Commits a batch. Rejects if the outcome is unknown; then the same batch is sent again. */
  commit(leaser: string, batch: CommitBatch<I, S>): Promise<CommitOutcome>;
  /** Requests idle credit from other credit leasers: from leases of an organization, or of one key and its descendants. */
  recall(leaser: string, orgId: string, keyId: string | null): Promise<void>;
  /** Recovers dead credit leasers. */
  recover(): Promise<void>;
  /** Calls the handler on recalls and returned credit, by organization, until the returned function is called. */
  listen(heard: { wanted(orgId: string): void; returned(orgId: string): void }): () => void;
}
