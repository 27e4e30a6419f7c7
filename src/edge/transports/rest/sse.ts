/** Streams of messages as text, no faster than the reader reads: server-sent events, or a line each. */
import type { Writable } from "node:stream";
import type { Signal } from "../../../cancellation.ts";
import { after, steadyNow } from "../../../clock.ts";
import type { Outlet } from "../../server/whole-requests.ts";
import { drained } from "../stalled-reader.ts";

/** One event. `data` is JSON, which never holds a line break. */
export interface ServerEvent {
  readonly event: string;
  readonly data: string;
  /** Position in the stream, so that a reader can see gaps, or a cursor, so that it can go on there. */
  readonly id?: number | string;
}

/** How long a stream may be silent before a comment says that it lives. */
export const HEARTBEAT_MS = 10_000;

const UNCACHED = ["cache-control", "no-store", "x-accel-buffering", "no"];

/** How a stream is written. */
export interface StreamForm {
  /** The headers that it has, names and values in turn. */
  readonly headers: readonly string[];
  /** What stands before an event's data. */
  readonly before: (event: ServerEvent) => string;
  /** What stands behind it. */
  readonly behind: string;
  /** What is written when there was nothing to write for a while; undefined where nothing may be. */
  readonly keepAlive: string | undefined;
}

/** Server-sent events. */
export const EVENTS: StreamForm = {
  headers: ["content-type", "text/event-stream; charset=utf-8", ...UNCACHED],
  before: ({ event, id }) => (id === undefined ? `event: ${event}\ndata: ` : `event: ${event}\nid: ${id}\ndata: `),
  behind: "\n\n",
  keepAlive: ": keep-alive\n\n",
};

/** JSON Lines: the data alone, a line each. */
export const LINES: StreamForm = {
  headers: ["content-type", "text/plain; charset=utf-8", ...UNCACHED],
  before: () => "",
  behind: "\n",
  keepAlive: undefined,
};

/** A response of Node's as an outlet. */
export const outletOf = (response: Writable): Outlet => ({
  send: (before, data, behind) => response.write(`${before}${data}${behind}`),
  end: () => void response.end(),
  on: (event, run) => response.on(event, run),
  off: (event, run) => response.off(event, run),
});

/** Writes events to one response. */
export interface EventWriter {
  /** Writes one event; resolves when the reader has room for the next, or has left. */
  write(event: ServerEvent): Promise<void>;
  /** Writes a comment now, where the form has one. */
  beat(): void;
  /** Ends the response. */
  end(): void;
}

/**
 * Starts an event stream on a response that has its head; `signal` is aborted when there is no more to wait for, and `giveUp` hangs
 * up on a reader who has stopped reading.
 */
export function eventWriter(outlet: Outlet, signal: Signal, giveUp: () => void, form = EVENTS): EventWriter {
  let gone = false;
  let full = false;
  let hush = (): void => undefined;
  let heardAt = steadyNow();
  const beat = (): void => {
    if (!gone && !full && form.keepAlive !== undefined) outlet.send("", form.keepAlive, "");
    heardAt = steadyNow();
  };
  // One timer that looks when the last event was, and not one for every event.
  const rest = (ms: number): void => {
    hush = after(ms, () => {
      const silentMs = steadyNow() - heardAt;
      if (silentMs < HEARTBEAT_MS) return rest(HEARTBEAT_MS - silentMs);
      beat();
      rest(HEARTBEAT_MS);
    });
  };
  outlet.on("close", () => {
    gone = true;
    hush();
  });
  rest(HEARTBEAT_MS);
  return {
    async write(event) {
      if (gone) return;
      full = !outlet.send(form.before(event), event.data, form.behind);
      heardAt = steadyNow();
      if (!full) return;
      await drained(outlet, giveUp, signal);
      full = false;
    },
    beat,
    end() {
      hush();
      if (!gone) outlet.end();
    },
  };
}
