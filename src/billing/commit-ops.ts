/** What a pump writes: promises, ends and moves of credit, and how they make a batch. */
import type { Refusal } from "../errors.ts";
import type { Batch, Grant, Move, Short } from "./ledger-port.ts";

/** Hears how something ended. Neither may throw: the others of its batch hear next. */
interface Hearer {
  kept(): void;
  broken(cause: unknown): void;
}

/** How a work ends. Most have one who waits for it or nobody, and pay for no promise. */
export class Done {
  #ended: "kept" | "broken" | undefined;
  #cause: unknown;
  #hearers: Hearer[] | undefined;

  resolve(): void {
    this.#end("kept", undefined);
  }

  reject(cause: unknown): void {
    this.#end("broken", cause);
  }

  /** Calls one of the two when it ends, at once when it has. */
  hear(kept: () => void, broken: (cause: unknown) => void): void {
    if (this.#ended === "kept") kept();
    else if (this.#ended === "broken") broken(this.#cause);
    else if (this.#hearers === undefined) this.#hearers = [{ kept, broken }];
    else this.#hearers.push({ kept, broken });
  }

  /** The same as a promise, which nobody has to wait for. */
  get promise(): Promise<void> {
    const promise = new Promise<void>((kept, broken) => this.hear(kept, broken));
    promise.catch(() => {});
    return promise;
  }

  #end(how: "kept" | "broken", cause: unknown): void {
    if (this.#ended !== undefined) return;
    this.#ended = how;
    this.#cause = cause;
    const hearers = this.#hearers;
    this.#hearers = undefined;
    if (hearers === undefined) return;
    for (const { kept, broken } of hearers) {
      if (how === "kept") kept();
      else broken(cause);
    }
  }
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
  done: Done;
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
  done: Done;
}

/** How a take ended: granted, short, refused for what is in it, or (undefined) not known, so that it has to be asked again. */
export type TakeOutcome = Grant | Short | Refusal | undefined;

/** Credit that moves. */
export interface MoveWork {
  kind: "move";
  move: Move;
  done: Done;
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
