/** The address of a database as libpq writes it: servers, account, encryption. */
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { ConnectionOptions } from "node:tls";

/** One server of an address: a host and a port, or a unix socket. */
export type DatabaseServer = { readonly host: string; readonly port: number } | { readonly path: string };

/** Where a database is, and how it is spoken to. */
export interface DatabaseAddress {
  /** At least one. Of several the one that takes writes is used. */
  readonly servers: readonly DatabaseServer[];
  readonly user: string | undefined;
  readonly password: string | undefined;
  readonly database: string | undefined;
  /** Reads the certificates anew, so that renewed ones are used by the next connection. */
  tls(): DatabaseTls;
  /** Seconds. */
  readonly connectTimeoutS: number;
  /** What the server is told of the session when it begins. */
  readonly parameters: Readonly<Record<string, string>>;
  /** The servers and the database in words, without the account. */
  readonly place: string;
}

/** Whether a connection is encrypted: never, where the server can, or always. */
export type DatabaseTls = false | "prefer" | Pick<ConnectionOptions, (typeof TLS_FIELDS)[number]>;
const TLS_FIELDS = ["rejectUnauthorized", "ca", "cert", "key", "checkServerIdentity"] as const;

const DEFAULT_PORT = 5432;
const CONNECT_TIMEOUT_S = 10;
const SSL_MODES = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] as const;
type SslMode = (typeof SSL_MODES)[number];
/** What asks for a server that takes writes; the others of libpq ask for one that a gateway can't use. */
const TAKES_WRITES = new Set(["any", "read-write", "primary"]);
/** What an address may say of a session. Anything else is told to no server: it may be misspelt. */
const PARAMETERS = new Set(["application_name", "options"]);
const FILES = ["sslcert", "sslkey", "sslrootcert"] as const;
const ALSO = ["host", "port", "user", "password", "dbname", "sslmode", "target_session_attrs", "connect_timeout"];

/** Reads an address, or throws an error whose message says what it must have, in the words of a setting: without the address. */
export function databaseAddress(text: string): DatabaseAddress {
  const [, authority, path = "", query = ""] =
    /^postgres(?:ql)?:\/\/([^/?#]*)(\/[^?#]*)?(?:\?([^#]*))?$/.exec(text) ?? [];
  if (authority === undefined) throw new Error("an address that begins with postgres:// or postgresql://");
  const asked = new URLSearchParams(query);
  const at = authority.lastIndexOf("@");
  const [user = "", ...password] = at < 0 ? [] : authority.slice(0, at).split(":");
  const unknown = [...asked.keys()].find((name) => !isKnown(name));
  if (unknown !== undefined)
    throw new Error(`an address whose parameters are ${[...PARAMETERS, ...FILES, ...ALSO].join(", ")}, not ${unknown}`);
  const attributes = asked.get("target_session_attrs") ?? "any";
  if (!TAKES_WRITES.has(attributes))
    throw new Error(`an address with target_session_attrs of ${[...TAKES_WRITES].join(", ")}: a gateway writes`);
  const connectTimeoutS = Number(asked.get("connect_timeout") ?? CONNECT_TIMEOUT_S);
  if (!(connectTimeoutS > 0)) throw new Error("an address whose connect_timeout is a number of seconds above 0");
  const servers = serversOf(asked.get("host") ?? authority.slice(at + 1), asked.get("port"));
  const database = asked.get("dbname") ?? decoded(path.slice(1));
  return {
    servers,
    user: asked.get("user") || decoded(user) || undefined,
    password: asked.get("password") || decoded(password.join(":")) || undefined,
    database: database || undefined,
    tls: tlsOf(asked),
    connectTimeoutS,
    parameters: Object.fromEntries([...asked].filter(([name]) => PARAMETERS.has(name))),
    place: `${servers.map(placeOf).join(",")}/${database}`,
  };
}

const isKnown = (name: string): boolean =>
  PARAMETERS.has(name) || FILES.some((file) => file === name) || ALSO.includes(name);

/** `a`, `a:1,b:2`, `[::1]:5432`, `/run/postgresql`; `ports` is one for all, or one each. */
function serversOf(hosts: string, ports: string | null): DatabaseServer[] {
  const given = (ports ?? "").split(",");
  return hosts.split(",").map((each, i) => {
    const [, bracketed, plain = "", ownPort] = /^(?:\[([^\]]+)\]|([^:]*))(?::(\d+))?$/.exec(decoded(each)) ?? [];
    const port = Number(ownPort ?? given[i] ?? given[0] ?? "") || DEFAULT_PORT;
    const host = bracketed ?? plain;
    if (port > 65_535 || (host === "" && each !== ""))
      throw new Error("an address whose servers are host or host:port");
    return host.startsWith("/") ? { path: join(host, `.s.PGSQL.${port}`) } : { host: host || "localhost", port };
  });
}

function placeOf(server: DatabaseServer): string {
  if ("path" in server) return dirname(server.path);
  return server.port === DEFAULT_PORT ? server.host : `${server.host}:${server.port}`;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Error("an address in which % stands before two hexadecimal digits");
  }
}

/** What libpq makes of the same parameters; without any there is no encryption, as there was none before this could be said. */
function tlsOf(asked: URLSearchParams): () => DatabaseTls {
  const [cert, key, root] = FILES.map((name) => asked.get(name) ?? undefined);
  for (const [i, path] of [cert, key, root].entries())
    if (path !== undefined && path !== "system" && !existsSync(path))
      throw new Error(`an address whose ${FILES[i]} is the path of a file that can be read`);
  if ((cert === undefined) !== (key === undefined)) throw new Error("an address with sslcert and sslkey together");
  const said = asked.get("sslmode") ?? undefined;
  const mode = said === undefined ? (root ?? cert) && "verify-full" : SSL_MODES.find((each) => each === said);
  if (said !== undefined && mode === undefined)
    throw new Error(`an address whose sslmode is one of ${SSL_MODES.join(", ")}`);
  return () => {
    if (mode === undefined || mode === "disable") return false;
    const own = cert === undefined || key === undefined ? {} : { cert: readFileSync(cert), key: readFileSync(key) };
    const roots = root === undefined || root === "system" ? {} : { ca: readFileSync(root) };
    if ((mode === "allow" || mode === "prefer") && cert === undefined) return "prefer";
    return { ...own, ...roots, ...judging(mode as SslMode, root !== undefined) };
  };
}

/** As libpq does, `require` with a root certificate looks at the chain. */
function judging(mode: SslMode, hasRoot: boolean): ConnectionOptions {
  if (mode === "verify-full") return {};
  return mode === "verify-ca" || hasRoot
    ? { rejectUnauthorized: true, checkServerIdentity: () => undefined }
    : { rejectUnauthorized: false };
}

/** Which server of each address was last known to take writes, where there are several. */
const chosen = new Map<string, number>();

/** The server of an address to try now. */
export function serverNow(url: string, { servers }: DatabaseAddress): DatabaseServer {
  return servers[(chosen.get(url) ?? 0) % servers.length]!;
}

/** A server of an address was not there, or takes no writes: the next one is tried from now on, unless that was decided already. */
export function passOver(url: string, address: DatabaseAddress, server: DatabaseServer): void {
  const { servers } = address;
  if (servers.length === 1 || serverNow(url, address) !== server) return;
  chosen.set(url, ((chosen.get(url) ?? 0) + 1) % servers.length);
}
