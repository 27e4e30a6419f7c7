/**
 * Hears of an organisation's events as they happen: `node examples/subscriber.ts nats://127.0.0.1:4222 org_01J…`. With the NATS
 * command line alone: `nats sub 'limber.v1.org_01J….>'`. Events come at least once: whoever acts on them remembers their ids.
 * To miss none while away, keep them in a stream, `nats stream add LIMBER --subjects 'limber.v1.>' --storage file --defaults`,
 * and read from that instead.
 */
import { fromBinary } from "@bufbuild/protobuf";
import { connect } from "nats";
import { EventSchema } from "../gen/limber/v1/event_pb.ts";

const [url = "nats://127.0.0.1:4222", org = "*"] = process.argv.slice(2);
const connection = await connect({ servers: url, maxReconnectAttempts: -1 });
console.log("listening", connection.getServer());
const seen = new Set<string>();

for await (const { data } of connection.subscribe(`limber.v1.${org}.>`)) {
  const event = fromBinary(EventSchema, data);
  if (seen.has(event.id)) continue;
  seen.add(event.id);
  switch (event.data.case) {
    case "keyCreated":
      console.log(event.orgId, "has a new key", event.data.value.keyId);
      break;
    case "offeringVerified":
      console.log(event.orgId, "has a live offering", event.data.value.offeringId);
      break;
    case "offeringRejected":
      console.log(event.orgId, "has a rejected offering", event.data.value.offeringId);
      break;
    default:
      console.log("an event that a newer version knows", event.id);
  }
}
