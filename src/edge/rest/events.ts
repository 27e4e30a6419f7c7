/** Messages as server-sent events: the messages of a stream, and the parts of one answer that was asked for as a stream. */
import type { DescMessage, Message } from "@bufbuild/protobuf";
import { encoderOf } from "../json.ts";
import type { ServerEvent } from "../sse.ts";

/** Events, one after the other. */
export type EventSource = AsyncGenerator<ServerEvent, void, undefined>;

type Fields = Record<string, unknown>;

/** Makes a message of this type the event that its one `oneof` names; an event with an `index` bears it as its id. */
export function eventMaker(desc: DescMessage): (message: Message) => ServerEvent {
  const { encode } = encoderOf(desc);
  return (message) => {
    const fields = encode(message) as Fields;
    for (const event in fields) {
      const value = fields[event];
      const { index } = value as Fields;
      const data = JSON.stringify(value);
      return typeof index === "number" ? { event, data, id: index } : { event, data };
    }
    throw new Error(`an event of ${desc.typeName} is empty`);
  };
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
