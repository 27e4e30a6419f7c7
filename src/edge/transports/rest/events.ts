/** Messages as server-sent events: the messages of a stream, and the parts of one answer that was asked for as a stream. */
import type { DescMessage, Message } from "@bufbuild/protobuf";
import { isShared } from "../../../call.ts";
import { encoderOf, toText } from "../../messages/json.ts";
import type { ServerEvent } from "./sse.ts";

/** Events, one after the other. */
export type EventSource = AsyncGenerator<ServerEvent, void, undefined>;

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
    if (chosen?.value === undefined || event?.of === undefined)
      throw new Error(`an event of ${desc.typeName} is empty`);
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
