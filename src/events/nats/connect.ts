/** Connections to NATS. */
import { connect, type NatsConnection, wsconnect } from "nats";
import { BRAND } from "../../brand.ts";
import { natsAddress } from "./address.ts";

/** Milliseconds that NATS may take for any answer. */
export const ANSWER_MS = 3_000;
/** Milliseconds between two pings on a silent connection. */
const PING_MS = 10_000;

/** Connects once to one of the servers of an address (`address.ts`). Rejects when that fails. */
export function dial(url: string): Promise<NatsConnection> {
  const { servers, isWebSocket, options } = natsAddress(url);
  const connectTo = isWebSocket ? wsconnect : connect;
  return connectTo({
    servers: [...servers],
    name: BRAND,
    // Its buffers outlive a reconnection, and would publish again what another replica has published since.
    reconnect: false,
    timeout: ANSWER_MS,
    pingInterval: PING_MS,
    ...options(),
  });
}
