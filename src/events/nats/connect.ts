/** Reaching NATS. */
import { connect, type NatsConnection, wsconnect } from "nats";
import { BRAND } from "../../brand.ts";

/** How long NATS may take to answer anything. */
export const ANSWER_MS = 3_000;
/** How often a silent connection is asked whether it still stands. */
const PING_MS = 10_000;

/** Connects to `url` once; user and password may stand in it, a user alone is a token. Rejects when that fails. */
export function dial(url: string): Promise<NatsConnection> {
  const { protocol, host, username, password } = new URL(url);
  const [user, pass] = [decodeURIComponent(username), decodeURIComponent(password)];
  const connectTo = protocol.startsWith("ws") ? wsconnect : connect;
  return connectTo({
    servers: `${protocol}//${host}`,
    name: BRAND,
    // Its buffers outlive a reconnection, and would tell again what another replica told since.
    reconnect: false,
    timeout: ANSWER_MS,
    pingInterval: PING_MS,
    ...(pass !== "" ? { user, pass } : user !== "" && { token: user }),
    ...(protocol === "tls:" && { tls: {} }),
  });
}
