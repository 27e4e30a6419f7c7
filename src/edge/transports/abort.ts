/** Waiting that an abort signal ends. */
import type { Signal } from "../../cancellation.ts";

/** Items that a reader may leave. */
export interface Items<T> extends AsyncIterableIterator<T, void, undefined> {
  return(): Promise<IteratorResult<T, void>>;
}

/** The items of `source` until the signal is aborted, which then throws its reason: a reader that waits is woken by nothing else. */
export const untilAbort = <T>(source: AsyncIterable<T>, signal: Signal): Items<T> => new UntilAbort(source, signal);

/** No generator, and one listener for all items: each that is read through another costs every frame of a stream its part. */
class UntilAbort<T> implements Items<T> {
  readonly #source: AsyncIterator<T>;
  readonly #signal: Signal;
  #listens = false;
  #over = false;
  /** Ends the wait of the reader. */
  #interrupt: ((reason: unknown) => void) | undefined;

  constructor(source: AsyncIterable<T>, signal: Signal) {
    this.#source = source[Symbol.asyncIterator]();
    this.#signal = signal;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<T, void>> {
    if (this.#over) return DONE;
    if (this.#signal.aborted) {
      this.#leave();
      return Promise.reject(this.#signal.reason);
    }
    if (!this.#listens) this.#signal.addEventListener("abort", this.#aborted, { once: true });
    this.#listens = true;
    return new Promise((resolve, reject) => {
      this.#interrupt = reject;
      this.#source.next().then(
        (item) => {
          this.#interrupt = undefined;
          if (item.done) this.#rest();
          resolve(item);
        },
        (thrown) => {
          this.#leave();
          reject(thrown);
        },
      );
    });
  }

  return(): Promise<IteratorResult<T, void>> {
    this.#leave();
    return DONE;
  }

  readonly #aborted = (): void => {
    const interrupt = this.#interrupt;
    // A reader that does not wait gets the reason when it asks for the next item.
    if (interrupt === undefined) return;
    this.#leave();
    interrupt(this.#signal.reason);
  };

  /** Not awaited: a source that does not hear of the signal would hold its reader for ever. */
  #leave(): void {
    if (this.#over) return;
    this.#rest();
    void this.#source.return?.().catch(() => undefined);
  }

  #rest(): void {
    this.#over = true;
    this.#interrupt = undefined;
    this.#signal.removeEventListener("abort", this.#aborted);
  }
}

const DONE: Promise<IteratorReturnResult<void>> = Promise.resolve({ done: true, value: undefined });
