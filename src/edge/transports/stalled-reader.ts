/** Readers who have stopped reading. */

import type { Signal } from "../../cancellation.ts";
import { after } from "../../clock.ts";

/** How long a reader may take nothing of what waits for him before he counts as gone. */
export const UNREAD_MS = 60_000;

/** What is read, as far as waiting for its reader goes. */
interface ReadOptions {
  on(event: "drain" | "close", run: () => void): unknown;
  off(event: "drain" | "close", run: () => void): unknown;
}

/** Resolves when there is room for more, or nobody to wait for; `giveUp` is called when the reader makes none for too long. */
export function drained(stream: ReadOptions, giveUp: () => void, signal?: Signal): Promise<void> {
  return new Promise((resolve) => {
    const forget = after(UNREAD_MS, giveUp);
    const go = (): void => {
      forget();
      stream.off("drain", go);
      stream.off("close", go);
      signal?.removeEventListener("abort", go);
      resolve();
    };
    stream.on("drain", go);
    stream.on("close", go);
    signal?.addEventListener("abort", go);
    if (signal?.aborted) go();
  });
}

/** The parts of `body`; `giveUp` is called when a part is not taken for too long. */
export async function* whileRead<T>(body: AsyncIterable<T>, giveUp: () => void): AsyncGenerator<T> {
  for await (const part of body) {
    const forget = after(UNREAD_MS, giveUp);
    try {
      yield part;
    } finally {
      forget();
    }
  }
}
