/** What a test opens, closed after it, the last first. */

/** Things that are open. */
export interface Closing {
  /** What closes each, in the order in which they were opened. */
  readonly closers: (() => unknown)[];
  /** Has it closed with the others, and hands it on. */
  kept<T extends { close(): unknown }>(opened: T): T;
  /** Closes all of them. */
  closeAll(): Promise<void>;
}

/** Nothing is open yet. */
export function closing(): Closing {
  const closers: (() => unknown)[] = [];
  return {
    closers,
    kept(opened) {
      closers.push(() => opened.close());
      return opened;
    },
    async closeAll() {
      for (const close of closers.splice(0).reverse()) await close();
    },
  };
}
