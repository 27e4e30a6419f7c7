/** Readers that have stopped reading. */
import type { ServerResponse } from "node:http";
import { constants, type Http2ServerResponse } from "node:http2";
import type { Signal } from "../../cancellation.ts";
import { after } from "../../clock.ts";

/** How long a reader may take nothing of what waits for it before it counts as gone, in milliseconds. */
export const UNREAD_MS = 60_000;

/** What is known here of a stream. */
interface ReadOptions {
  on(event: "drain" | "close", run: () => void): unknown;
  off(event: "drain" | "close", run: () => void): unknown;
}

/** Resolves when there is room for more, or no reader is left; `giveUp` is called when the reader makes none for too long. */
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

type Response = ServerResponse | Http2ServerResponse;

/**
 * The parts of `body`, each as `sent` has it, on their way to `response`, which is given up when a part is not taken for `UNREAD_MS`, or when
 * the end is not read for as long.
 */
export async function* whileRead<T>(
  body: AsyncIterable<T>,
  response: Response,
  sent = (part: T): T => part,
): AsyncGenerator<T> {
  const giveUp = (): void => cancel(response);
  try {
    for await (const part of body) {
      const forget = after(UNREAD_MS, giveUp);
      try {
        yield sent(part);
      } finally {
        forget();
      }
    }
  } finally {
    response.once("close", after(UNREAD_MS, giveUp));
  }
}

/** Ends a response early. Over HTTP/2 the code says so: a reset without one waits at the client until all before it is read. */
function cancel(response: Response): void {
  if ("stream" in response) response.stream.close(constants.NGHTTP2_CANCEL);
  else response.destroy();
}
