/** Server-sent events: messages of a stream, or the parts of one response that is streamed on request. */
import type { Writable } from "node:stream";
import type { DescMessage, Message } from "@bufbuild/protobuf";
import { isShared } from "../../../call.ts";
import { type Signal, untilAbort } from "../../../cancellation.ts";
import { after, steadyNow } from "../../../clock.ts";
import { encoderOf, toText } from "../../messages/json.ts";
import type { Outlet } from "../../server/whole-requests.ts";
import { drained } from "../stalled-reader.ts";

/** Writes a sequence of events. */
type EventSource = AsyncGenerator<ServerEvent, void, undefined>;

type EventFields = Record<string, unknown>;

/**
 * Converts a message of this type to the event of its `oneof` or its only field. An `index` or `cursor` becomes the event's id. In a stream
 * that its reader can resume, the other events have their names as ids, so that the reader's next request confirms them.
 */
export function eventMaker(desc: DescMessage, resumed = false): (message: Message) => ServerEvent {
  const chosenIn = chooser(desc);
  const events = new Map(desc.fields.map(({ localName, name, message }) => [localName, { name, of: message }]));
  return (message) => {
    const chosen = chosenIn(message);
    const event = events.get(chosen?.case ?? "");
    if (chosen?.value === undefined || event?.of === undefined) throw new Error(`${desc.typeName} has an empty event`);
    // Messages keep it as a plain object.
    if (event.of.typeName === STRUCT) return { event: event.name, data: JSON.stringify(chosen.value) };
    const { index, cursor } = chosen.value;
    const data = isShared(chosen.value) ? sharedText(event.of, chosen.value) : toText(event.of, chosen.value);
    if (typeof index === "number") return { event: event.name, data, id: index };
    const id = typeof cursor === "string" ? cursor : resumed ? event.name : undefined;
    return id === undefined ? { event: event.name, data } : { event: event.name, data, id };
  };
}

/** Cached text of messages that are sent to several readers. */
const texts = new WeakMap<Message, string>();

function sharedText(desc: DescMessage, message: Message): string {
  const text = texts.get(message) ?? toText(desc, message);
  texts.set(message, text);
  return text;
}

const STRUCT = "google.protobuf.Struct";

/** A `oneof` of generated messages whose members are all messages. */
type Chosen =
  | { readonly case?: string; readonly value?: Message & { readonly index?: unknown; readonly cursor?: unknown } }
  | undefined;

/** The field of a message that is its event. */
function chooser({ typeName, oneofs: [oneof], fields: [only] }: DescMessage): (message: Message) => Chosen {
  if (oneof === undefined && only?.fieldKind !== "message") throw new Error(`${typeName} has no field for its events`);
  const name = (oneof ?? only)?.localName ?? "";
  const valueIn = (message: Message): unknown => (message as unknown as Record<string, unknown>)[name];
  return oneof
    ? (message) => valueIn(message) as Chosen
    : (message) => ({ case: name, value: valueIn(message) as Message });
}

/** An action chunk as `route`, one `step` each, and `done`: the response without the steps that were sent. */
export async function* eventsOfAnswer(desc: DescMessage, answer: () => Promise<Message>): EventSource {
  const whole = encoderOf(desc).encode(await answer()) as EventFields & { action: EventFields & { steps: unknown[] } };
  yield { event: "route", data: JSON.stringify(whole.route ?? {}) };
  for (const [index, values] of whole.action.steps.entries()) {
    yield { event: "step", id: index, data: JSON.stringify({ index, values }) };
  }
  yield { event: "done", data: JSON.stringify({ ...whole, action: { ...whole.action, steps: [] } }) };
}

/** One event. `data` is JSON without line breaks. */
export interface ServerEvent {
  readonly event: string;
  readonly data: string;
  /** The position in the stream, which reveals gaps, or a cursor for resuming. */
  readonly id?: number | string;
}

/** The heartbeat interval of a silent stream. */
const HEARTBEAT_MS = 10_000;

const UNCACHED = ["cache-control", "no-store", "x-accel-buffering", "no"];

/** The format of a stream. */
interface StreamForm {
  /** Its headers, alternating names and values. */
  readonly headers: readonly string[];
  /** The text before an event's data. */
  readonly before: (event: ServerEvent) => string;
  /** The text after it. */
  readonly behind: string;
  /** The heartbeat; undefined if the format has none. */
  readonly keepAlive: string | undefined;
}

/** Server-sent events. */
export const EVENTS: StreamForm = {
  headers: ["content-type", "text/event-stream; charset=utf-8", ...UNCACHED],
  before: ({ event, id }) => (id === undefined ? `event: ${event}\ndata: ` : `event: ${event}\nid: ${id}\ndata: `),
  behind: "\n\n",
  keepAlive: ": keep-alive\n\n",
};

/** JSON Lines: one event's data per line. */
export const LINES: StreamForm = {
  headers: ["content-type", "text/plain; charset=utf-8", ...UNCACHED],
  before: () => "",
  behind: "\n",
  keepAlive: undefined,
};

/** A Node.js response as a writer. */
export const outletOf = (response: Writable): Outlet => ({
  send: (before, data, behind) => response.write(`${before}${data}${behind}`),
  end: () => void response.end(),
  on: (event, run) => response.on(event, run),
  off: (event, run) => response.off(event, run),
});

/** Writes events to one response. */
export interface EventWriter {
  /** Writes one event; resolves when the reader can accept the next one, or has disconnected. */
  write(event: ServerEvent): Promise<void>;
  /** Writes a comment now, if the format has comments. */
  beat(): void;
  /** Ends the response. */
  end(): void;
}

/**
 * Starts an event stream on a response whose head was sent. `signal` is aborted when no more events follow. `giveUp` closes the connection of a
 * reader that has stopped reading.
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
  // One timer checks the time of the last event, instead of one timer per event.
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

/** How items are sent. */
interface EventPushOptions<T> {
  readonly signal: Signal;
  /** Starts the response. */
  begin(): EventWriter;
  /** Responds to a stream that ended without items before its start; if absent, it is started and ended at once. */
  nothing?: (() => void) | undefined;
  eventOf(item: T): ServerEvent;
  /** The event for an error that ends the stream. */
  errorOf(thrown: unknown): ServerEvent;
}

/**
 * Resolves when all items are sent; rejects with an error that ended the stream early. The response starts with the first item, when the source
 * calls `begin`, or after `HEARTBEAT_MS`, because proxies and clients time out requests without a response head. An earlier error is left to the
 * caller, who can still send a plain error response.
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
