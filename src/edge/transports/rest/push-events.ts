/** Sends items to a reader as events, as fast as they come and no faster than they are read. */
import { type Signal, untilAbort } from "../../../cancellation.ts";
import { after } from "../../../clock.ts";
import { type EventWriter, HEARTBEAT_MS, type ServerEvent } from "./sse.ts";

/** How items are sent. */
export interface EventPushOptions<T> {
  readonly signal: Signal;
  /** Begins the answer. */
  begin(): EventWriter;
  /** Answers a stream that has ended without an item before it was begun; begun and ended at once where it is absent. */
  nothing?: (() => void) | undefined;
  eventOf(item: T): ServerEvent;
  /** The event that says why there is nothing more. */
  errorOf(thrown: unknown): ServerEvent;
}

/**
 * Resolves when all is sent; rejects with what ended it early. The answer begins with the first item, when the source calls `begin`, or after
 * `HEARTBEAT_MS` of silence, whichever comes first: proxies and clients end requests whose answer has no head. What ends the stream before that
 * is left to the caller, who can still answer with a plain error.
 */
export async function pushEvents<T>(
  items: (begin: () => void) => AsyncIterable<T>,
  options: EventPushOptions<T>,
): Promise<void> {
  let writer: EventWriter | undefined;
  const begun = (): EventWriter => {
    hush();
    writer ??= options.begin();
    return writer;
  };
  const early = (): void => {
    if (writer === undefined && !options.signal.aborted) begun().beat();
  };
  const hush = after(HEARTBEAT_MS, early);
  try {
    for await (const item of untilAbort(items(early), options.signal)) await begun().write(options.eventOf(item));
  } catch (thrown) {
    hush();
    if (writer !== undefined) {
      await writer.write(options.errorOf(thrown));
      writer.end();
    }
    throw thrown;
  }
  hush();
  if (writer === undefined && options.nothing !== undefined) options.nothing();
  else begun().end();
}
