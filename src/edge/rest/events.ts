/** Messages as server-sent events: the messages of a stream, and the parts of one answer that was asked for as a stream. */
import type { DescMessage, Message } from "@bufbuild/protobuf";
import { encoderOf } from "../json.ts";
import type { ServerEvent } from "../sse.ts";

/** Events, one after the other. */
export type EventSource = AsyncGenerator<ServerEvent, void, undefined>;

type Fields = Record<string, unknown>;

/** Each message as the event that its one `oneof` names; an event with an `index` bears it as its id. */
export async function* eventsOf(desc: DescMessage, messages: AsyncIterable<Message>): EventSource {
  const { encode } = encoderOf(desc);
  for await (const message of messages) {
    const [entry] = Object.entries(encode(message) as Fields);
    if (entry === undefined) throw new Error(`an event of ${desc.typeName} is empty`);
    const [event, value] = entry;
    const { index } = value as Fields;
    yield { event, data: JSON.stringify(value), ...(typeof index === "number" && { id: index }) };
  }
}

/** The one field of each message, to be written as a line. */
export async function* linesOf(desc: DescMessage, messages: AsyncIterable<Message>): EventSource {
  for await (const { event, data } of eventsOf(desc, messages)) yield { event, data };
}

/** An action chunk as `route`, one `step` each, and `done`: the answer with its steps left out, for each was sent. */
export async function* eventsOfAnswer(desc: DescMessage, answer: Message): EventSource {
  const whole = encoderOf(desc).encode(answer) as Fields & { action: Fields & { steps: unknown[] } };
  yield { event: "route", data: JSON.stringify(whole.route) };
  for (const [index, values] of whole.action.steps.entries()) {
    yield { event: "step", id: index, data: JSON.stringify({ index, values }) };
  }
  yield { event: "done", data: JSON.stringify({ ...whole, action: { ...whole.action, steps: [] } }) };
}
