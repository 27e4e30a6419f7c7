/** Connections to NATS. */
import { connect, type NatsConnection, wsconnect } from "nats";
import { BRAND } from "../../brand.ts";

/** Milliseconds that NATS may take for any answer. */
export const ANSWER_MS = 3_000;
/** Milliseconds between two pings on a silent connection. */
const PING_MS = 10_000;

/** Connects to `url` once; user and password may stand in it, a user alone is a token. Rejects when that fails. */
export function dial(url: string): Promise<NatsConnection> {
  const { protocol, host, username, password } = new URL(url);
  const [user, pass] = [decodeURIComponent(username), decodeURIComponent(password)];
  const connectTo = protocol.startsWith("ws") ? wsconnect : connect;
  return connectTo({
    servers: `${protocol}//${host}`,
    name: BRAND,
    // Its buffers outlive a reconnection, and would publish again what another replica has published since.
    reconnect: false,
    timeout: ANSWER_MS,
    pingInterval: PING_MS,
    ...(pass !== "" ? { user, pass } : user !== "" && { token: user }),
    ...(protocol === "tls:" && { tls: {} }),
  });
}
