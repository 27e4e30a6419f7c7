/** What a gateway has to give back when it closes. */

/** What closes later closes first. */
export class Closers {
  readonly #all: (() => Promise<unknown>)[] = [];

  /** Notes what is to be done at the end. */
  add(close: () => Promise<unknown>): void {
    this.#all.unshift(close);
  }

  /** Does all of it, in turn. */
  async close(): Promise<void> {
    for (const close of this.#all.splice(0)) await close();
  }
}
