/** Every event as it is carried: the JSON of webhooks and the bytes of subscribers, against what was recorded. A difference is a review. */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  create,
  type DescField,
  type DescMessage,
  type MessageInitShape,
  ScalarType,
  toBinary,
} from "@bufbuild/protobuf";
import { expect, it } from "vitest";
import { EventSchema } from "../../gen/limber/v1/event_pb.ts";
import { eventText } from "../../src/edge/messages/json.ts";
import { EVENT_NAMES } from "../../src/events/emit.ts";

const FILE = join(import.meta.dirname, "../golden/events.json");

/** A value for a field that tells where it stands: its name, or its number. */
function example(field: DescField): unknown {
  if (field.fieldKind === "list") return [`${field.name} 1`, `${field.name} 2`];
  if (field.fieldKind === "message") return init(field.message);
  if (field.fieldKind === "enum") return field.enum.values.at(1)?.number;
  if (field.fieldKind !== "scalar") throw new Error(`${field.name} has no example`);
  if (field.scalar === ScalarType.STRING) return `${field.name} of the example`;
  if (field.scalar === ScalarType.BOOL) return true;
  return field.scalar === ScalarType.DOUBLE ? field.number + 0.25 : 1_700_000_000 + field.number;
}

const init = (message: DescMessage): Record<string, unknown> =>
  Object.fromEntries(message.fields.map((field) => [field.localName, example(field)]));

it("every event has its recorded wire format", () => {
  const cases = EventSchema.oneofs[0]?.fields ?? [];
  const shaped = (field: DescField, about: object = {}) => {
    if (field.fieldKind !== "message") throw new Error(`${field.name} is no message`);
    const data = { case: field.localName, value: init(field.message) };
    const envelope = { id: "evt_example", apiVersion: "0.1.0", createdAt: 1_700_000_000, orgId: "org_example" };
    // The schema says which members there are; the compiler cannot, of one that is chosen while it runs.
    const event = create(EventSchema, { ...envelope, ...about, data } as MessageInitShape<typeof EventSchema>);
    const bytes = toBinary(EventSchema, event);
    return { json: JSON.parse(eventText(bytes)), base64: Buffer.from(bytes).toString("base64") };
  };
  const ofWorkspace = cases.find(({ localName }) => localName === "requestFailed");
  const now = Object.fromEntries([
    ...cases.map((field) => [EVENT_NAMES.get(field.localName), shaped(field)] as const),
    ["request.failed, of a workspace", shaped(ofWorkspace!, { workspaceId: "ws_example" })],
  ]);
  const text = `${JSON.stringify(Object.fromEntries(Object.entries(now).sort(([a], [b]) => (a < b ? -1 : 1))), null, 2)}\n`;
  if (process.env.GOLDEN === "write") writeFileSync(FILE, text);
  expect(JSON.parse(text)).toEqual(JSON.parse(readFileSync(FILE, "utf8")));
});
