/** Emission of events: an event is written in the transaction of its cause, and published after that was committed. */
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { EventSchema } from "../../gen/limber/v1/event_pb.ts";
import { API_VERSION } from "../brand.ts";
import { nowSeconds } from "../clock.ts";
import { newId } from "../ids.ts";
import type { Tx } from "../store/database/tx.ts";
import { appendEvents, type EventRecord } from "../store/events/outbox.ts";

/** What happened: one member of `Event.data`. */
export type EventData = Extract<MessageInitShape<typeof EventSchema>["data"], { value: unknown }>;

/** The name of every event on the wire, by its member of `Event.data`: `keyCreated` is `key.created`. */
export const EVENT_NAMES: ReadonlyMap<string, string> = new Map(
  EventSchema.oneofs[0]?.fields.map(({ localName, name }) => [localName, name.replace("_", ".")]),
);

/**
 * Emits an event of an organisation, if the transaction is committed. Call it after the writes of the cause: the locks that
 * those took then give the events of one thing the order in which they happened. Name the workspace that the cause belongs to, if any.
 */
export const emit = (tx: Tx, orgId: string, data: EventData, workspaceId?: string): Promise<void> =>
  appendEvents(tx, [eventOf(orgId, data, workspaceId)]);

/** The same as a record, for writes that carry their events with them. */
export function eventOf(orgId: string, data: EventData, workspaceId?: string): EventRecord {
  const name = EVENT_NAMES.get(data.case);
  if (name === undefined) throw new TypeError(`there is no event ${data.case}`);
  const event = create(EventSchema, {
    id: newId("evt"),
    apiVersion: API_VERSION,
    createdAt: nowSeconds(),
    orgId,
    ...(workspaceId !== undefined && { workspaceId }),
    data,
  });
  return { id: event.id, name, orgId, payload: toBinary(EventSchema, event) };
}
