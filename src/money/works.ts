/** What a pump writes: promises, ends and moves of credit, and how they make a batch. */
import type { Refusal } from "../refusal.ts";
import type { Batch, Grant, Move, Short } from "./port.ts";

/** A promise that is kept elsewhere, and that nobody has to wait for. */
export interface Deferred {
  promise: Promise<void>;
  resolve(): void;
  reject(cause: unknown): void;
}

/** Makes one; nobody has to hear that it can't be kept. */
export function deferred(): Deferred {
  const made = Promise.withResolvers<void>();
  made.promise.catch(() => {});
  return made;
}

/** A batch's intents, kept in the ledger's journal until the last of them has ended. */
interface Page {
  batch: number;
  open: number;
}

/** An intent on its way to the journal. */
export interface IntentWork<I> {
  kind: "intent";
  record: I;
  done: Deferred;
  page: Page | undefined;
  /** Its settlement leaves with the same batch or has left, so the journal needs no line of it. */
  ended: boolean;
}

/** The end of a request on its way to the ledger. */
export interface SettlementWork<I, S> {
  kind: "settlement";
  lease: string | null;
  record: S;
  intent: IntentWork<I> | undefined;
  done: Deferred;
}

/** How a take ended: granted, short, refused for what is in it, or (undefined) not known, so that it has to be asked again. */
export type TakeOutcome = Grant | Short | Refusal | undefined;

/** Credit that moves. */
export interface MoveWork {
  kind: "move";
  move: Move;
  done: Deferred;
  taken: ((outcome: TakeOutcome) => void) | undefined;
}

/** What waits for a batch, or is in one. */
export type Work<I, S> = IntentWork<I> | SettlementWork<I, S> | MoveWork;

/** Whether a batch with this work takes the ends along that have gathered: it writes ends as it is, or ends a lease that they are charged to. */
export const takesEndsAlong = (work: Work<unknown, unknown>): boolean =>
  work.kind === "settlement" || (work.kind === "move" && work.move.kind === "end");

/** Builds a batch. An intent whose settlement is in the same batch needs no page; a page whose last intent ends is over. */
export function compose<I, S>(number: number, works: readonly Work<I, S>[]): Batch<I, S> {
  const batch: Batch<I, S> = { number, intents: [], settlements: [], over: [], moves: [] };
  const page: Page = { batch: number, open: 0 };
  for (const work of works) {
    if (work.kind === "settlement" && work.intent) work.intent.ended = true;
  }
  for (const work of works) {
    if (work.kind === "move") batch.moves.push(work.move);
    else if (work.kind === "settlement") {
      batch.settlements.push({ lease: work.lease, record: work.record });
      const open = work.intent?.page;
      if (open && --open.open === 0) batch.over.push(open.batch);
    } else if (!work.ended) {
      batch.intents.push(work.record);
      work.page = page;
      page.open += 1;
    }
  }
  return batch;
}
