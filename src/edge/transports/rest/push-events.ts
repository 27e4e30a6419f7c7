/** Sends items to a reader as events, as fast as they come and no faster than they are read. */
import { type Signal, untilAbort } from "../../../cancellation.ts";
import type { EventWriter, ServerEvent } from "./sse.ts";

/** How items are sent. */
export interface EventPushOptions<T> {
  readonly signal: Signal;
  /** Begins the answer, when the first item or the end is there. */
  begin(): EventWriter;
  eventOf(item: T): ServerEvent;
  /** The event that says why there is nothing more. */
  errorOf(thrown: unknown): ServerEvent;
}

/** Resolves when all is sent; rejects with what ended it early. The answer is not begun where that came first. */
export async function pushEvents<T>(items: AsyncIterable<T>, options: EventPushOptions<T>): Promise<void> {
  let writer: EventWriter | undefined;
  try {
    for await (const item of untilAbort(items, options.signal)) {
      writer ??= options.begin();
      await writer.write(options.eventOf(item));
    }
  } catch (thrown) {
    if (writer !== undefined) {
      await writer.write(options.errorOf(thrown));
      writer.end();
    }
    throw thrown;
  }
  writer ??= options.begin();
  writer.end();
}
