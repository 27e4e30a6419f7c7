/** An event as the webhooks of its organisation get it: thin JSON, by the REST names. */
import { fromBinary } from "@bufbuild/protobuf";
import { EventSchema } from "../../../gen/limber/v1/event_pb.ts";
import { EVENT_NAMES } from "../../events/emit.ts";
import { encoderOf } from "./json.ts";

/** The text of an event message. */
export function eventText(payload: Uint8Array): string {
  const { id, apiVersion, createdAt, orgId, workspaceId, name, data } = eventParts(payload);
  const about = { org_id: orgId, workspace_id: workspaceId };
  return JSON.stringify({ id, type: name, created_at: createdAt, api_version: apiVersion, ...about, data });
}

/** An event message as targets of spans get it. */
export function toldEvent(payload: Uint8Array): { id: string; name: string; createdAt: number; data: string } {
  const { id, createdAt, name = "", data } = eventParts(payload);
  return { id, name, createdAt, data: JSON.stringify(data) };
}

function eventParts(payload: Uint8Array) {
  const event = fromBinary(EventSchema, payload);
  const { id, apiVersion, createdAt, orgId, workspaceId, data } = event;
  const field = EventSchema.fields.find(({ localName }) => localName === data.case);
  const written = encoderOf(EventSchema).encode(event) as Record<string, unknown>;
  const name = EVENT_NAMES.get(data.case ?? "");
  return { id, apiVersion, createdAt, orgId, workspaceId, name, data: field === undefined ? {} : written[field.name] };
}
