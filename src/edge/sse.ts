/** Server-sent events: streams of messages as text, no faster than the reader reads. */
import type { Writable } from "node:stream";
import { after } from "../ambient.ts";
import type { Signal } from "../signal.ts";

/** One event. `data` is JSON, which never holds a line break. */
export interface ServerEvent {
  readonly event: string;
  readonly data: string;
  /** Position in the stream, so that a reader can see gaps. */
  readonly id?: number;
}

/** How long a stream may be silent before a comment says that it lives. */
const HEARTBEAT_MS = 10_000;

/** The headers that every event stream has, names and values in turn. */
export const EVENT_HEADERS = [
  "content-type",
  "text/event-stream; charset=utf-8",
  "cache-control",
  "no-store",
  "x-accel-buffering",
  "no",
];

/** Writes events to one response. */
export interface EventWriter {
  /** Writes one event; resolves when the reader has room for the next, or has left. */
  write(event: ServerEvent): Promise<void> | undefined;
  /** Ends the response. */
  end(): void;
}

/** Starts an event stream on a response that has its head; `signal` is aborted when there is no more to wait for. */
export function eventWriter(response: Writable, signal: Signal): EventWriter {
  let gone = false;
  let full = false;
  let hush = (): void => undefined;
  const rest = (): void => {
    hush = after(HEARTBEAT_MS, () => {
      if (!full) response.write(": keep-alive\n\n");
      rest();
    });
  };
  const empty = (): void => {
    full = false;
  };
  response.once("close", () => {
    gone = true;
    hush();
  });
  rest();
  return {
    write(event) {
      if (gone) return undefined;
      hush();
      full = !response.write(textOf(event));
      rest();
      return full ? drained(response, signal).then(empty) : undefined;
    },
    end() {
      hush();
      if (!gone) response.end();
    },
  };
}

function drained(response: Writable, signal: Signal): Promise<void> {
  return new Promise((resolve) => {
    const go = (): void => {
      response.off("drain", go).off("close", go);
      signal.removeEventListener("abort", go);
      resolve();
    };
    response.on("drain", go).on("close", go);
    signal.addEventListener("abort", go);
    if (signal.aborted) go();
  });
}

const textOf = ({ event, data, id }: ServerEvent): string =>
  `event: ${event}\n${id === undefined ? "" : `id: ${id}\n`}data: ${data}\n\n`;
