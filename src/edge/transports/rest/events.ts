/** Messages as server-sent events: the messages of a stream, and the parts of one answer that is streamed on request. */
import type { Writable } from "node:stream";
import type { DescMessage, Message } from "@bufbuild/protobuf";
import { isShared } from "../../../call.ts";
import { type Signal, untilAbort } from "../../../cancellation.ts";
import { after, steadyNow } from "../../../clock.ts";
import { encoderOf, toText } from "../../messages/json.ts";
import type { Outlet } from "../../server/whole-requests.ts";
import { drained } from "../stalled-reader.ts";

/** Events, one after the other. */
type EventSource = AsyncGenerator<ServerEvent, void, undefined>;

type EventFields = Record<string, unknown>;

/**
 * Makes a message of this type the event that its `oneof`, or its only field, names. An event with an `index` or a `cursor` bears it as its id. In
 * a stream that is `resumed` by its reader, every other event bears its name: the reader's next request says that it was read.
 */
export function eventMaker(desc: DescMessage, resumed = false): (message: Message) => ServerEvent {
  const chosenIn = chooser(desc);
  const events = new Map(desc.fields.map(({ localName, name, message }) => [localName, { name, of: message }]));
  return (message) => {
    const chosen = chosenIn(message);
    const event = events.get(chosen?.case ?? "");
    if (chosen?.value === undefined || event?.of === undefined) throw new Error(`${desc.typeName} has an empty event`);
    // A message holds it as the object that it stands for.
    if (event.of.typeName === STRUCT) return { event: event.name, data: JSON.stringify(chosen.value) };
    const { index, cursor } = chosen.value;
    const data = isShared(chosen.value) ? sharedText(event.of, chosen.value) : toText(event.of, chosen.value);
    if (typeof index === "number") return { event: event.name, data, id: index };
    const id = typeof cursor === "string" ? cursor : resumed ? event.name : undefined;
    return id === undefined ? { event: event.name, data } : { event: event.name, data, id };
  };
}

/** The text of messages that several readers are sent. */
const texts = new WeakMap<Message, string>();

function sharedText(desc: DescMessage, message: Message): string {
  const text = texts.get(message) ?? toText(desc, message);
  texts.set(message, text);
  return text;
}

const STRUCT = "google.protobuf.Struct";

/** A `oneof` as generated messages have it; here each of its members is a message. */
type Chosen =
  | { readonly case?: string; readonly value?: Message & { readonly index?: unknown; readonly cursor?: unknown } }
  | undefined;

/** Which field of a message is its event. */
function chooser({ oneofs: [oneof], fields: [only] }: DescMessage): (message: Message) => Chosen {
  const name = (oneof ?? only)?.localName ?? "";
  const valueIn = (message: Message): unknown => (message as unknown as Record<string, unknown>)[name];
  return oneof
    ? (message) => valueIn(message) as Chosen
    : (message) => ({ case: name, value: valueIn(message) as Message });
}

/** An action chunk as `route`, one `step` each, and `done`: the answer with its steps left out, for each was sent. */
export async function* eventsOfAnswer(desc: DescMessage, answer: () => Promise<Message>): EventSource {
  const whole = encoderOf(desc).encode(await answer()) as EventFields & { action: EventFields & { steps: unknown[] } };
  yield { event: "route", data: JSON.stringify(whole.route ?? {}) };
  for (const [index, values] of whole.action.steps.entries()) {
    yield { event: "step", id: index, data: JSON.stringify({ index, values }) };
  }
  yield { event: "done", data: JSON.stringify({ ...whole, action: { ...whole.action, steps: [] } }) };
}

/** One event. `data` is JSON, which never holds a line break. */
export interface ServerEvent {
  readonly event: string;
  readonly data: string;
  /** Position in the stream, so that a reader can see gaps, or a cursor, so that it can go on there. */
  readonly id?: number | string;
}

/** How long a stream may be silent before a comment says that it lives. */
const HEARTBEAT_MS = 10_000;

const UNCACHED = ["cache-control", "no-store", "x-accel-buffering", "no"];

/** How a stream is written. */
interface StreamForm {
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

/** How items are sent. */
interface EventPushOptions<T> {
  readonly signal: Signal;
  /** Begins the answer. */
  begin(): EventWriter;
  /** Returns a stream that has ended without an item before it was begun; begun and ended at once where it is absent. */
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
