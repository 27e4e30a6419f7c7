/** Waiting that an abort signal ends. */
import type { Signal } from "../signal.ts";

/**
 * What `promise` brings, or the signal's reason as soon as it is aborted. Not `Promise.race`, which would keep a reaction
 * on the signal's own promise for every message of a long stream.
 */
export function orAbort<T>(promise: Promise<T>, signal: Signal): Promise<T> {
  return new Promise((resolve, reject) => {
    const leave = (): void => reject(signal.reason);
    const stay = (): void => signal.removeEventListener("abort", leave);
    signal.addEventListener("abort", leave, { once: true });
    if (signal.aborted) leave();
    promise.then(
      (value) => {
        stay();
        resolve(value);
      },
      (thrown) => {
        stay();
        reject(thrown);
      },
    );
  });
}

/** The items of `source` until the signal is aborted, which then throws its reason: a reader that waits is woken by nothing else. */
export async function* untilAbort<T>(source: AsyncIterable<T>, signal: Signal): AsyncGenerator<T, void, undefined> {
  const iterator = source[Symbol.asyncIterator]();
  let over = false;
  try {
    for (;;) {
      const next = await orAbort(iterator.next(), signal);
      over = next.done === true;
      if (next.done) return;
      yield next.value;
    }
  } finally {
    // Not awaited: a source that does not hear of the signal would hold its reader for ever.
    if (!over) void iterator.return?.().catch(() => undefined);
  }
}
