/** What a group committer writes: promises, ends and moves of credit, and how they make a batch. */
import type { Refusal } from "../errors.ts";
import type { CommitBatch, CreditGrant, CreditMove, CreditShortage } from "./ledger-port.ts";

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
export interface SettlementOp<I, S> {
  kind: "settlement";
  lease: string | null;
  record: S;
  intent: IntentOp<I> | undefined;
  done: Durability;
}

/** How a take ended: granted, short, refused for what is in it, or (undefined) not known, so that it has to be asked again. */
export type TakeOutcome = CreditGrant | CreditShortage | Refusal | undefined;

/** Credit that moves. */
export interface MoveOp {
  kind: "move";
  move: CreditMove;
  done: Durability;
  taken: ((outcome: TakeOutcome) => void) | undefined;
}

/** What waits for a batch, or is in one. */
export type CommitOp<I, S> = IntentOp<I> | SettlementOp<I, S> | MoveOp;

/** Whether a batch with this work takes the ends along that have gathered: it writes ends as it is, or ends a lease that they are charged to. */
export const takesEndsAlong = (op: CommitOp<unknown, unknown>): boolean =>
  op.kind === "settlement" || (op.kind === "move" && op.move.kind === "end");

/** Builds a batch. An intent whose settlement is in the same batch needs no row; a batch whose last intent ends is over. */
export function compose<I, S>(number: number, ops: readonly CommitOp<I, S>[]): CommitBatch<I, S> {
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
