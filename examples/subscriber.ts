/**
 * Prints an organization's events as they happen:
 *
 *   node_modules/.bin/node examples/subscriber.ts nats://127.0.0.1:4222 org_01J…
 *
 * With only the NATS command line: `nats sub 'limber.v1.org_01J….>'`. Delivery is at least once, so deduplicate events by their ids.
 * To receive events that occur while the subscriber is offline, store them in a stream,
 * `nats stream add LIMBER --subjects 'limber.v1.>' --storage file --defaults`, and read from it instead.
 */
import { fromBinary, toJsonString } from "@bufbuild/protobuf";
import { connect } from "nats";
import { EventSchema } from "../gen/limber/v1/event_pb.ts";

const [url = "nats://127.0.0.1:4222", org = "*"] = process.argv.slice(2);
const connection = await connect({ servers: url, maxReconnectAttempts: -1 });
console.log("listening", connection.getServer());
const seen = new Set<string>();

for await (const { subject, data } of connection.subscribe(`limber.v1.${org}.>`)) {
  const event = fromBinary(EventSchema, data);
  if (seen.has(event.id)) continue;
  seen.add(event.id);
  const name = subject.split(".").slice(3).join(".");
  console.log(new Date(event.createdAt * 1000).toISOString(), event.orgId, name, toJsonString(EventSchema, event));
  // Events are typed. This program ignores event cases that it does not know.
  if (event.data.case === "balanceLow") console.log("time to add credit:", event.orgId);
}
