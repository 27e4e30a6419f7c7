/** Connections to NATS. */

import { existsSync, readFileSync } from "node:fs";
import { type ConnectionOptions, connect, credsAuthenticator, type NatsConnection, wsconnect } from "nats";
import { BRAND } from "../../brand.ts";

/** NATS response timeout in milliseconds. */
export const ANSWER_MS = 3_000;
/** Milliseconds between two pings on an idle connection. */
const PING_MS = 10_000;

/** Connects once, to any server of the address. Rejects on failure. */
export function dial(url: string): Promise<NatsConnection> {
  const { servers, isWebSocket, options } = natsAddress(url);
  const connectTo = isWebSocket ? wsconnect : connect;
  return connectTo({
    servers: [...servers],
    name: BRAND,
    // The client's reconnection would publish its buffer again, which another replica may have published since.
    reconnect: false,
    timeout: ANSWER_MS,
    pingInterval: PING_MS,
    ...options(),
  });
}

// The address of NATS: its servers, and the gateway's credentials.

/** NATS schemes: its own protocol with and without TLS, and the same over WebSocket. */
const SCHEMES = /^(nats|tls|ws|wss):\/\/([^/?#]*)\/?(?:\?([^#]*))?$/;
/** Parameters of an address that name files. */
const FILES = ["creds", "ca", "cert", "key"] as const;
/** The JetStream domain behind a leaf node, as a part of a subject. */
const DOMAIN = /^[\w-]{1,64}$/;

/** The servers and credentials of NATS. */
interface NatsAddress {
  /** One server, or several of a cluster. */
  readonly servers: readonly string[];
  readonly isWebSocket: boolean;
  /** The JetStream domain; undefined for the server's own. */
  readonly domain: string | undefined;
  /** The user and certificate. Files are read again for each connection. */
  options(): Pick<ConnectionOptions, "user" | "pass" | "token" | "tls" | "authenticator">;
}

/**
 * Parses `nats://user:password@a:4222,b:4222?creds=/path`. A user without a password is a token; `creds` is a file with a user's JWT and seed;
 * `ca`, `cert` and `key` are TLS files; `domain` is that of a JetStream behind a leaf node. Throws an error that states what the address must be.
 */
export function natsAddress(text: string): NatsAddress {
  const [, scheme = "", authority = "", query = ""] = SCHEMES.exec(text) ?? [];
  const at = authority.lastIndexOf("@");
  const hosts = authority.slice(at + 1).split(",");
  if (!hosts.every((host) => host !== "" && URL.canParse(`nats://${host}`)))
    throw new Error("an address that begins with nats://, tls://, ws:// or wss://, with commas between servers");
  const asked = new URLSearchParams(query);
  const files = new Map<string, string>();
  const domain = asked.get("domain") ?? undefined;
  if (domain !== undefined && !DOMAIN.test(domain))
    throw new Error("an address whose domain is letters, digits, - and _");
  asked.delete("domain");
  for (const [name, path] of asked) {
    if (!FILES.some((file) => file === name))
      throw new Error(`an address whose parameters are ${FILES.join(", ")}, domain, got ${name}`);
    if (!existsSync(path)) throw new Error(`an address whose ${name} is the path of a readable file`);
    files.set(name, path);
  }
  if (files.has("cert") !== files.has("key")) throw new Error("an address with cert and key together");
  const [user = "", ...password] = (at < 0 ? "" : authority.slice(0, at)).split(":").map(decodeURIComponent);
  const pass = password.join(":");
  const isEncrypted = scheme === "tls" || files.has("ca") || files.has("cert");
  return {
    servers: hosts.map((host) => `${scheme}://${host}`),
    isWebSocket: scheme.startsWith("ws"),
    domain,
    options: () => ({
      ...(pass !== "" ? { user, pass } : user !== "" && { token: user }),
      ...(files.has("creds") && { authenticator: credsAuthenticator(readFileSync(files.get("creds")!)) }),
      ...(isEncrypted && {
        tls: Object.fromEntries(
          ["ca", "cert", "key"].flatMap((name) => (files.has(name) ? [[`${name}File`, files.get(name)]] : [])),
        ),
      }),
    }),
  };
}
