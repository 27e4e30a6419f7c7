/**
 * How work is called off, and waiting that this ends: AbortSignal's interface at a hundredth of its price, for what every call makes. An
 * AbortSignal is a `Signal`; where a library insists on its own kind, `nativeOf` makes one.
 */

/** Who hears that work is called off: a function, or what every call has anyway, so that none is made for it. */
export type AbortListener = (() => void) | { handleEvent(): void };

/** What is listened to: the part of AbortSignal that the gateway uses. */
export interface Signal {
  readonly aborted: boolean;
  /** Why; undefined until then. */
  readonly reason: unknown;
  addEventListener(type: "abort", run: AbortListener, options?: { once?: boolean }): void;
  removeEventListener(type: "abort", run: AbortListener): void;
  /** Throws the reason of a signal that is aborted. */
  throwIfAborted(): void;
}

/** Calls work off, once. It is its own signal. */
export class Cancel implements Signal {
  aborted = false;
  reason: unknown = undefined;
  /** Most have one listener at a time; further ones wait in the list. */
  #first: AbortListener | undefined;
  #others: AbortListener[] | undefined;

  /** Tells everyone who listens; later calls do nothing. */
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

  /** As of AbortSignal: nobody is called twice, nor once it is too late. */
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

/** The signal as the platform's own kind. */
export function nativeOf(signal: Signal): AbortSignal {
  if (signal instanceof AbortSignal) return signal;
  const native = new AbortController();
  if (signal.aborted) native.abort(signal.reason);
  else signal.addEventListener("abort", () => native.abort(signal.reason), { once: true });
  return native.signal;
}

/** Items that come one at a time, and that a reader may leave at any moment: `return` waits for nothing. */
export interface Items<T> extends AsyncIterableIterator<T, undefined, undefined> {
  return(): Promise<IteratorReturnResult<undefined>>;
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

const OVER: IteratorReturnResult<undefined> = { done: true, value: undefined };
const DONE = Promise.resolve(OVER);
