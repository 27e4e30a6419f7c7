/** Work that several wait for and that is done once: the pictures of a request, whichever offerings are asked about it. */
import { Cancel, type Signal } from "../../cancellation.ts";

/** What is told of a piece of work while it is done. */
export interface WorkProgress {
  /** Aborted when nobody waits for the work any more and it has not begun. */
  readonly signal: Signal;
  /** From now on the work is done to its end and kept, whether anybody waits or not. */
  readonly begun: () => void;
}

class Work<T> implements WorkProgress {
  readonly signal = new Cancel();
  readonly done: Promise<T>;
  waiting = 0;
  hasBegun = false;

  constructor(make: (progress: WorkProgress) => Promise<T>) {
    this.done = make(this);
    // Nobody may be left to hear it.
    this.done.catch(() => undefined);
  }

  readonly begun = (): void => {
    this.hasBegun = true;
  };
}

/** Pieces of work by their names. What failed is kept as well. */
export class SharedWork<T> {
  readonly #all = new Map<string, Work<T>>();

  /** What `make` gives for the name, made on first demand only. Rejects with the signal's reason when that is aborted. */
  join(name: string, signal: Signal, make: (progress: WorkProgress) => Promise<T>): Promise<T> {
    if (signal.aborted) return Promise.reject(signal.reason);
    const work = this.#all.get(name) ?? new Work(make);
    this.#all.set(name, work);
    return this.#wait(name, signal, work);
  }

  #wait(name: string, signal: Signal, work: Work<T>): Promise<T> {
    work.waiting += 1;
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        work.waiting -= 1;
        if (work.waiting === 0 && !work.hasBegun) {
          this.#all.delete(name);
          work.signal.abort(signal.reason);
        }
        reject(signal.reason);
      };
      signal.addEventListener("abort", leave, { once: true });
      work.done.then(resolve, reject).finally(() => signal.removeEventListener("abort", leave));
    });
  }
}
