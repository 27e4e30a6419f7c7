/** An event as the webhooks of its organisation get it: thin JSON, by the REST names. */
import { fromBinary } from "@bufbuild/protobuf";
import { EventSchema } from "../../gen/limber/v1/event_pb.ts";
import { EVENT_NAMES } from "../services/emit.ts";
import { encoderOf } from "./json.ts";

/** The text of an event message. */
export function eventText(payload: Uint8Array): string {
  const event = fromBinary(EventSchema, payload);
  const { id, apiVersion, createdAt, orgId, data } = event;
  const field = EventSchema.fields.find(({ localName }) => localName === data.case);
  const written = encoderOf(EventSchema).encode(event) as Record<string, unknown>;
  return JSON.stringify({
    id,
    type: EVENT_NAMES.get(data.case ?? ""),
    created_at: createdAt,
    api_version: apiVersion,
    org_id: orgId,
    data: field === undefined ? {} : written[field.name],
  });
}
