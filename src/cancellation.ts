/**
 * Cancellation: AbortSignal's interface at a hundredth of its cost, since every call creates one. An AbortSignal is a `Signal`; for libraries
 * that need the native type, `nativeOf` creates one.
 */

/** A cancellation handler: a function, or an object that every call has anyway, which saves an allocation. */
export type AbortListener = (() => void) | { handleEvent(): void };

/** The part of AbortSignal that the gateway uses. */
export interface Signal {
  readonly aborted: boolean;
  /** The reason; undefined until it is aborted. */
  readonly reason: unknown;
  addEventListener(type: "abort", run: AbortListener, options?: { once?: boolean }): void;
  removeEventListener(type: "abort", run: AbortListener): void;
  /** Throws the reason of an aborted signal. */
  throwIfAborted(): void;
}

/** Cancels work, once. It is its own signal. */
export class Cancel implements Signal {
  aborted = false;
  reason: unknown = undefined;
  /** Most signals have one listener at a time; further ones are in the list. */
  #first: AbortListener | undefined;
  #others: AbortListener[] | undefined;

  /** Notifies all listeners; later calls do nothing. */
  abort(reason: unknown): void {
    if (this.aborted) return;
    this.aborted = true;
    this.reason = reason;
    const [first, others] = [this.#first, this.#others];
    this.#first = undefined;
    this.#others = undefined;
    if (first) tell(first);
    if (others) for (const run of others) tell(run);
  }

  /** As in AbortSignal: no listener is called twice, or added after the abort. */
  addEventListener(_type: "abort", run: AbortListener): void {
    if (this.aborted || this.#first === run || this.#others?.includes(run)) return;
    if (this.#first === undefined) this.#first = run;
    else if (this.#others === undefined) this.#others = [run];
    else this.#others.push(run);
  }

  removeEventListener(_type: "abort", run: AbortListener): void {
    if (this.#first === run) this.#first = undefined;
    else if (this.#others) this.#others = this.#others.filter((other) => other !== run);
  }

  throwIfAborted(): void {
    if (this.aborted) throw this.reason;
  }
}

function tell(run: AbortListener): void {
  if (typeof run === "function") run();
  else run.handleEvent();
}

/** The signal as a native AbortSignal. */
export function nativeOf(signal: Signal): AbortSignal {
  if (signal instanceof AbortSignal) return signal;
  const native = new AbortController();
  if (signal.aborted) native.abort(signal.reason);
  else signal.addEventListener("abort", () => native.abort(signal.reason), { once: true });
  return native.signal;
}

/** An async iterator that can be closed at any time: `return` waits for nothing. */
export interface Items<T> extends AsyncIterableIterator<T, undefined, undefined> {
  return(): Promise<IteratorReturnResult<undefined>>;
}

/** The items of `source` until the signal aborts, which then throws its reason, even if the source does not react. */
export const untilAbort = <T>(source: AsyncIterable<T>, signal: Signal): Items<T> => new UntilAbort(source, signal);

/** Not a generator, and one listener for all items: both would cost time for every frame of a stream. */
class UntilAbort<T> implements Items<T> {
  readonly #source: AsyncIterator<T>;
  readonly #signal: Signal;
  #listens = false;
  #over = false;
  /** Rejects the pending read. */
  #interrupt: ((reason: unknown) => void) | undefined;

  constructor(source: AsyncIterable<T>, signal: Signal) {
    this.#source = source[Symbol.asyncIterator]();
    this.#signal = signal;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<T, undefined>> {
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
          resolve(item.done ? OVER : item);
        },
        (thrown) => {
          this.#leave();
          reject(thrown);
        },
      );
    });
  }

  return(): Promise<IteratorReturnResult<undefined>> {
    this.#leave();
    return DONE;
  }

  readonly #aborted = (): void => {
    const interrupt = this.#interrupt;
    // A reader that is not waiting gets the reason at its next read.
    if (interrupt === undefined) return;
    this.#leave();
    interrupt(this.#signal.reason);
  };

  /** Not awaited: a source that ignores the signal would block the reader forever. */
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

const OVER: IteratorReturnResult<undefined> = { done: true, value: undefined };
const DONE = Promise.resolve(OVER);
