/**
 * Items that come one at a time, each when it is asked for: async iteration without its promises. What is read through many hands pays
 * for a few of those at each of them, and frames of predictions come by the thousand a second.
 */

/** Who is told what became of a question, once, at once or later. None of these may throw. */
export interface Taker<T> {
  item(item: T): void;
  /** There is nothing more. */
  over(): void;
  failed(thrown: unknown): void;
}

/** Where items come from. */
export interface Flow<T> {
  /** Asks for the next item; one question at a time, and none after the end. */
  next(taker: Taker<T>): void;
  /** Nothing more is wanted; a pending request is never answered. */
  leave(): void;
}

/** A flow for those who iterate. */
export class Items<T> implements AsyncIterableIterator<T, undefined, undefined> {
  readonly flow: Flow<T>;
  #isOver = false;
  #settle: (() => void) | undefined;

  constructor(flow: Flow<T>) {
    this.flow = flow;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<T, undefined>> {
    if (this.#isOver) return Promise.resolve(OVER);
    return new Promise((resolve, reject) => {
      const over = (): void => {
        this.#isOver = true;
        resolve(OVER);
      };
      this.#settle = over;
      this.flow.next({
        item: (value) => resolve({ done: false, value }),
        over,
        failed: (thrown) => {
          this.#isOver = true;
          reject(thrown);
        },
      });
    });
  }

  return(): Promise<IteratorReturnResult<undefined>> {
    if (!this.#isOver) this.flow.leave();
    this.#isOver = true;
    this.#settle?.();
    return Promise.resolve(OVER);
  }
}

const OVER: IteratorReturnResult<undefined> = { done: true, value: undefined };

/** What is iterated as a flow; what was made of one is that flow again. */
export const flowOf = <T>(items: AsyncIterable<T>): Flow<T> =>
  items instanceof Items ? items.flow : new Iterated(items[Symbol.asyncIterator]());

class Iterated<T> implements Flow<T> {
  readonly #items: AsyncIterator<T>;
  #hasLeft = false;

  constructor(items: AsyncIterator<T>) {
    this.#items = items;
  }

  next(taker: Taker<T>): void {
    this.#items.next().then(
      (read) => {
        if (this.#hasLeft) return;
        if (read.done) taker.over();
        else taker.item(read.value);
      },
      (thrown) => {
        if (!this.#hasLeft) taker.failed(thrown);
      },
    );
  }

  leave(): void {
    this.#hasLeft = true;
    this.#items.return?.().catch(() => undefined);
  }
}
