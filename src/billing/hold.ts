/** What a call does with the credit that it was promised: it intends, and it ends. */
import { Reason, refuse } from "../errors.ts";
import { Durability, type IntentOp } from "./commit-ops.ts";
import { type GroupCommitter, leaseLost } from "./group-commit.ts";
import type { Lease } from "./key-credit.ts";

/** What a credit leaser has to know of the record of an ended request. */
export interface Charged {
  /** What is deducted; at most the ceiling that was held. */
  costMicro: number;
  /** Where there is one, an answer waits for it to be kept with the charge. */
  claim?: object | undefined;
}

/** Credit that is held for one call: first its intent, then its end. */
export class Hold<I, S extends Charged> {
  /** The most that the call may cost. */
  readonly ceilingMicro: number;
  readonly #committer: GroupCommitter<I, S>;
  readonly #lease: Lease;
  readonly #ended: (spent: number) => void;
  #intent: IntentOp<I> | undefined;
  #over = false;

  /** Made by `Till.hold` alone. */
  constructor(committer: GroupCommitter<I, S>, lease: Lease, ceilingMicro: number, ended: (spent: number) => void) {
    this.ceilingMicro = ceilingMicro;
    this.#committer = committer;
    this.#lease = lease;
    this.#ended = ended;
  }

  /** Puts on record what is about to be dispatched; joins the next group commit. */
  intend(record: I): void {
    if (this.#intent || this.#over) throw new Error("a hold is intended once, before it ends");
    this.#intent = this.#committer.intend(record);
    if (this.#lease.state === "gone") this.#intent.done.reject(leaseLost());
  }

  /** Resolves when the intent is durable: no answer leaves before. Rejects with `store_unavailable` when it can't be made so. */
  get durable(): Promise<void> {
    if (!this.#intent) throw new Error("nothing was intended yet");
    return this.#intent.done.promise;
  }

  /** Whether the intent is durable already. */
  get isDurable(): boolean {
    return this.#intent?.done.isKept === true;
  }

  /** Ends the call with its charge; what is left of the ceiling is free at once. Resolves when it is committed. */
  settle(record: S): Promise<void> {
    return this.charge(record).promise;
  }

  /** As `settle`, without waiting. */
  charge(record: S): Durability {
    if (this.#over) throw new Error("a hold ends once");
    const { costMicro } = record;
    if (!Number.isSafeInteger(costMicro) || costMicro < 0 || costMicro > this.ceilingMicro) {
      throw new RangeError(`a charge of ${costMicro} micro-dollars on a ceiling of ${this.ceilingMicro}`);
    }
    this.#over = true;
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

  /** Ends the call without a charge. `record` says how, and is required once the call was intended. */
  release(record?: S): Promise<void> {
    if (record) {
      if (record.costMicro !== 0) throw new RangeError("a released call costs nothing");
      return this.settle(record);
    }
    if (this.#intent) throw refuse(Reason.INTERNAL_ERROR, "an intended call ends with a record");
    if (this.#over) throw new Error("a hold ends once");
    this.#over = true;
    this.#ended(0);
    return Promise.resolve();
  }
}
