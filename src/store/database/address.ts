/** Database addresses in libpq's format: servers, account, encryption. */
import { existsSync, readFileSync } from "node:fs";
import { isIP } from "node:net";
import { dirname, join } from "node:path";
import type { ConnectionOptions } from "node:tls";
import ipaddr from "ipaddr.js";

/** One server of an address: a host and a port, or a unix socket. */
export type DatabaseServer = { readonly host: string; readonly port: number } | { readonly path: string };

/** Where a database is and how to connect to it. */
export interface DatabaseAddress {
  /** At least one. If there are several, the writable one is used. */
  readonly servers: readonly DatabaseServer[];
  readonly user: string | undefined;
  readonly password: string | undefined;
  readonly database: string | undefined;
  /** Reads the certificates again, so that the next connection uses renewed ones. */
  tls(): DatabaseTls;
  /** Seconds. */
  readonly connectTimeoutS: number;
  /** Session settings that are sent when a session starts. */
  readonly parameters: Readonly<Record<string, string>>;
  /** The servers and the database for messages, without the account. */
  readonly place: string;
  /** Parameters for other clients that have no effect here. */
  readonly withoutEffect: readonly string[];
}

/** When a connection is encrypted: never, if the server supports it, or always. */
export type DatabaseTls = false | "prefer" | Pick<ConnectionOptions, (typeof TLS_FIELDS)[number]>;
const TLS_FIELDS = [
  "rejectUnauthorized",
  "ca",
  "cert",
  "key",
  "passphrase",
  "minVersion",
  "maxVersion",
  "checkServerIdentity",
] as const;

const DEFAULT_PORT = 5432;
const CONNECT_TIMEOUT_S = 10;
const SSL_MODES = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] as const;
type SslMode = (typeof SSL_MODES)[number];
/** Values that select a writable server; a gateway cannot use libpq's other values. */
const TAKES_WRITES = new Set(["any", "read-write", "primary"]);
/** Allowed session settings. Other names are rejected, since they might be typing errors. */
const PARAMETERS = new Set(["application_name", "options"]);
const FILES = ["sslcert", "sslkey", "sslrootcert"] as const;
const ALSO = ["host", "port", "user", "password", "dbname", "sslmode", "target_session_attrs", "connect_timeout"];

/**
 * Parameters for other clients (Prisma, JDBC, pgx, sqlx, node-postgres, Rails, Django, Supabase, libpq). The gateway has its own pool, timeouts and prepared statements,
 * so they are safe to ignore.
 */
const TUNING: ReadonlySet<string> = new Set(
  `pgbouncer connection_limit pool_timeout pool_size pool_mode max_idle_connection_lifetime max_connection_lifetime statement_cache_size
  prepared_statement_cache_size single_use_connections socket_timeout uselibpqcompat supa workaround preparethreshold binarytransfer
  tcpkeepalive sockettimeout logintimeout keepalives keepalives_idle keepalives_interval keepalives_count tcp_user_timeout sslcompression
  sslsni sslnegotiation fallback_application_name load_balance_hosts krbsrvname gsslib min_protocol_version max_protocol_version
  statement_timeout lock_timeout idle_in_transaction_session_timeout timezone prepare prepared_statements pool_recycle applicationname
  pool_max_conns pool_min_conns pool_min_idle_conns pool_max_conn_lifetime pool_max_conn_lifetime_jitter pool_max_conn_idle_time
  pool_health_check_period default_query_exec_mode statement_cache_capacity statement-cache-capacity statement_cache_mode
  description_cache_capacity max min idletimeoutmillis connectiontimeoutmillis query_timeout keepalive keepaliveinitialdelaymillis
  idle_timeout max_lifetime fetch_types max_connections min_connections acquire_timeout connecttimeout rewritebatchedinserts stringtype
  loadbalancehosts preparedstatementcachequeries preparedstatementcachesizemib defaultrowfetchsize cancelsignaltimeout hostrecheckseconds
  autosave cleanupsavepoints assumeminserverversion logunclosedconnections tcpnodelay receivebuffersize sendbuffersize adaptivefetch
  serverversion pool pooled reconnect reaping_frequency checkout_timeout advisory_locks conn_max_age conn_health_checks binary_parameters
  disable_prepared_binary_result command_timeout max_cached_statement_lifetime max_cacheable_statement_size gssdelegation load_balance
  topology_keys`.split(/\s+/),
);

/** Parameters with some values that are safe to ignore; the text says what to do about any other value. */
const CHECKED: Readonly<Record<string, readonly [harmless: RegExp, instead: string]>> = {
  schema: [/^public$/, "without schema, or with options=-c%20search_path%3D and its name"],
  currentschema: [/^public$/, "without currentSchema, or with options=-c%20search_path%3D and its name"],
  search_path: [/^public$/, "with options=-c%20search_path%3D and its names instead of search_path"],
  client_encoding: [/^(utf-?8|unicode|auto)$/i, "with client_encoding=UTF8, the only supported encoding"],
  encoding: [/^(utf-?8|unicode)$/i, "with encoding=UTF8, the only supported encoding"],
  charset: [/^(utf-?8|unicode)$/i, "with charset=UTF8, the only supported encoding"],
  schema_search_path: [/^public$/, "with options=-c%20search_path%3D and its names instead of schema_search_path"],
  targetservertype: [/^(any|primary|master)$/i, "whose targetServerType is primary or any: a gateway writes"],
  sslfactory: [
    /^org\.postgresql\.ssl\.(NonValidatingFactory|DefaultJavaSSLFactory)$/,
    "with sslmode and sslrootcert instead of sslfactory",
  ],
  rejectunauthorized: [/^(true|false)$/i, "with sslmode instead of rejectUnauthorized"],
  gssencmode: [/^(disable|prefer)$/, "without gssencmode=require: use sslmode=verify-full"],
  channel_binding: [/^(disable|prefer|require)$/, "whose channel_binding is disable, prefer or require"],
  sslaccept: [/^(strict|accept_invalid_certs)$/, "whose sslaccept is strict or accept_invalid_certs"],
  sslcertmode: [/^(disable|allow)$/, "without sslcertmode=require: sslcert and sslkey set the certificate"],
  ssl: [/^(true|false|1|0|require|prefer|disable|no-verify)$/i, "whose ssl is true or false, or with sslmode"],
  requiressl: [/^[01]$/, "with sslmode instead of requiressl"],
  ssl_min_protocol_version: [/^TLSv1(\.[123])?$/i, "whose ssl_min_protocol_version is TLSv1.2 or TLSv1.3"],
  ssl_max_protocol_version: [/^TLSv1\.[23]$/i, "whose ssl_max_protocol_version is TLSv1.2 or TLSv1.3"],
  sslpassword: [/^/, ""],
};

/** Parameters that secure a connection in an unsupported way, or refer to unsupported files: what to do instead. */
const REFUSED: Readonly<Record<string, string>> = {
  require_auth: "without require_auth: set the method in pg_hba.conf, and sslmode=verify-full",
  requirepeer: "without requirepeer: set the permissions of the socket's folder",
  sslcrl: "without sslcrl: the gateway reads no revocation lists; renew the root certificate in sslrootcert",
  sslcrldir: "without sslcrldir: the gateway reads no revocation lists; renew the root certificate in sslrootcert",
  sslidentity: "with sslcert and sslkey instead of sslidentity: extract both from the PKCS #12 file",
  sslinline: "with the paths of files in sslcert, sslkey and sslrootcert instead of sslinline",
  hostaddr: "with the address in host instead of hostaddr",
  service: "with the service's parameters instead of service",
  passfile: "with the password in the address instead of passfile",
  scram_client_key: "with the password instead of scram_client_key",
};

/** Parses an address. Errors say what the address must be, as the end of a sentence about the setting, and do not contain it. */
export function databaseAddress(text: string): DatabaseAddress {
  const plain = plainOf(text);
  if (/^prisma(\+postgres)?:/i.test(plain))
    throw new Error("an address that begins with postgres://: Prisma Accelerate uses another protocol");
  const { authority, path, pairs } = partsOf(plain);
  const asked = parametersOf(pairs);
  const at = authority.lastIndexOf("@");
  const [user = "", ...password] = at < 0 ? [] : authority.slice(0, at).split(":");
  if (PLACEHOLDER.test(password.join(":")))
    throw new Error("an address with the password instead of a placeholder such as [YOUR-PASSWORD]");
  const attributes = asked.get("target_session_attrs") ?? "any";
  if (!TAKES_WRITES.has(attributes))
    throw new Error(
      `an address whose target_session_attrs is one of ${[...TAKES_WRITES].join(", ")}: a gateway writes`,
    );
  const connectTimeoutS = Number(asked.get("connect_timeout") ?? CONNECT_TIMEOUT_S);
  if (Number.isNaN(connectTimeoutS)) throw new Error("an address whose connect_timeout is a number of seconds");
  const host = asked.get("host");
  const servers = (host === null ? authority.slice(at + 1) : host)
    .split(",")
    .map((each, i) => serverOf(each, host === null ? decoded : plainText, portAt(asked.get("port"), i)));
  const database = asked.get("dbname") ?? decoded(path.slice(1));
  return {
    servers,
    user: asked.get("user") || decoded(user) || undefined,
    password: asked.get("password") || decoded(password.join(":")) || undefined,
    database: database || undefined,
    tls: tlsOf(asked, servers),
    // 0 means no limit to libpq: a server that drops packets would block forever.
    connectTimeoutS: connectTimeoutS > 0 ? connectTimeoutS : CONNECT_TIMEOUT_S,
    parameters: Object.fromEntries([...asked].filter(([name]) => PARAMETERS.has(name))),
    place: `${servers.map(placeOf).join(",")}/${database}`,
    withoutEffect: [...asked.keys()].filter((name) => TUNING.has(name)),
  };
}

/** Passwords that hosts print in place of the real one. */
const PLACEHOLDER = /^(\[your[-_ ]?password\]|your[-_ ]?password|<[^<>]*>|\$\{[^{}]*\}|\*{3,})$/i;
const SCHEME = "an address that begins with postgres:// or postgresql://";
const UNENCODED = "an address whose password has # / and ? percent-encoded: %23 %2F %3F";

/** The parts of an address as written: users, servers, database and parameters. libpq's other form has only parameters. */
interface Parts {
  readonly authority: string;
  readonly path: string;
  readonly pairs: readonly (readonly [string, string])[];
}

function partsOf(plain: string): Parts {
  if (!/^postgres(ql)?:\/\//.test(plain)) return { authority: "", path: "", pairs: keywordsOf(plain) };
  const [, authority, path = "", query = ""] =
    /^postgres(?:ql)?:\/\/([^/?#]*)(\/[^?#]*)?(?:\?([^#]*))?$/.exec(plain) ?? [];
  if (authority === undefined) throw new Error(UNENCODED);
  const pairs = [...new URLSearchParams(query)];
  // The account ended at a character that belongs to its password.
  const isCut =
    path.includes("@") || pairs[0]?.[0].includes("@") || (query.includes("@") && /^[^[]*:.*\D/.test(authority));
  if (!authority.includes("@") && isCut) throw new Error(UNENCODED);
  return { authority, path, pairs };
}

const KEYWORD = /\s*([A-Za-z_]+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s'\\]|\\.)*))(?=\s|$)/sy;

/** Parses libpq's form of keywords and values: `host=db port=5432 user=u password='p w'`. The first is a keyword of libpq. */
function keywordsOf(plain: string): [string, string][] {
  const pairs: [string, string][] = [];
  KEYWORD.lastIndex = 0;
  while (KEYWORD.lastIndex < plain.length) {
    const [, name, quoted, bare = ""] = KEYWORD.exec(plain) ?? [];
    // .NET separates its pairs by semicolons.
    if (name === undefined || !isKnown(pairs[0]?.[0] ?? name) || bare.includes(";")) throw new Error(SCHEME);
    pairs.push([name, (quoted ?? bare).replaceAll(/\\(.)/gs, "$1")]);
  }
  if (pairs.length === 0) throw new Error(SCHEME);
  return pairs;
}

/** Strips what surrounds an address in documents and files: an assignment, a command, quotes, a driver name in the scheme. */
const plainOf = (text: string): string =>
  text
    .trim()
    .replace(/^(?:export\s+)?\w+\s*=\s*(?=["'`]?(?:jdbc:)?postgres)/i, "")
    .replace(/^psql\s+(?:-d\s+|--dbname[=\s])?/, "")
    .replace(/;$/, "")
    .replace(/^(["'`])(.*)\1$/s, "$2")
    .replace(/^<(.*)>$/s, "$1")
    .replace(/^jdbc:/i, "")
    .replace(/^(postgres(?:ql)?)(\+\w+)?:/i, (_, scheme: string) => `${scheme.toLowerCase()}:`);

/** The parameters of an address; each name must be known, and have one value. Names of other clients are in lower case. */
function parametersOf(pairs: Parts["pairs"]): URLSearchParams {
  const asked = new URLSearchParams();
  for (const [given, value] of pairs) {
    const name = isKnown(given) ? given : given.toLowerCase();
    if (value === "" && (REFUSED[name] !== undefined || FILES.some((file) => file === name))) continue;
    const refused = REFUSED[name];
    if (refused !== undefined) throw new Error(`an address ${refused}`);
    const [harmless, instead] = CHECKED[name] ?? [];
    if (harmless !== undefined && !harmless.test(value)) throw new Error(`an address ${instead}`);
    if (harmless === undefined && !isKnown(name) && !TUNING.has(name)) {
      const known = [...PARAMETERS, ...FILES, ...ALSO].join(", ");
      throw new Error(
        `an address whose parameters are ${known}, got ${/^[\w-]{1,64}$/.test(given) ? given : "another name"}`,
      );
    }
    if ((asked.get(name) ?? value) !== value) throw new Error(`an address that sets ${name} once`);
    asked.set(name, value);
  }
  return asked;
}

const isKnown = (name: string): boolean =>
  PARAMETERS.has(name) || FILES.some((file) => file === name) || ALSO.includes(name);

const plainText = (text: string): string => text;

/** The port of a server in `port`, which has one for all, or one each. */
function portAt(ports: string | null, i: number): string | undefined {
  const given = (ports ?? "").split(",");
  return given[i] || given[0] || undefined;
}

/** Parses `a`, `a:1`, `[::1]:5432`, `/run/postgresql`. A socket's path may contain colons. The parameter `port` has precedence, as in libpq. */
function serverOf(text: string, decode: (text: string) => string, given: string | undefined): DatabaseServer {
  const isSocket = /^(\/|%2f)/i.test(text);
  const form = isSocket
    ? /^(?<plain>.*?)(?::(?<own>\d+))?$/
    : /^(?:\[(?<inner>[^\]]+)\]|(?<plain>[^:]*))(?::(?<own>\d+))?$/;
  const { inner, plain = "", own } = form.exec(isSocket ? text : decode(text))?.groups ?? {};
  const host = inner ?? (isSocket ? decode(plain) : plain);
  const port = Number(given ?? own ?? "") || DEFAULT_PORT;
  if (port > 65_535 || (host === "" && text !== ""))
    throw new Error("an address whose servers are host, host:port or [IPv6 address]:port");
  return host.startsWith("/") ? { path: join(host, `.s.PGSQL.${port}`) } : { host: host || "localhost", port };
}

function placeOf(server: DatabaseServer): string {
  if ("path" in server) return dirname(server.path);
  return server.port === DEFAULT_PORT ? server.host : `${server.host}:${server.port}`;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Error("an address in which two hexadecimal digits follow each %; % itself is %25");
  }
}

/** The strongest TLS mode that any parameter requests; undefined if none does. */
function modeOf(asked: URLSearchParams): SslMode | undefined {
  const said = asked.get("sslmode")?.toLowerCase().replace("_", "-");
  // From node-postgres: encrypted without verification.
  const named = said === "no-verify" ? "require" : SSL_MODES.find((each) => each === said);
  if (said !== undefined && named === undefined)
    throw new Error(`an address whose sslmode is one of ${SSL_MODES.join(", ")}`);
  const ssl = asked.get("ssl")?.toLowerCase();
  const factory = asked.get("sslfactory") ?? "";
  const isOn =
    asked.get("requiressl") === "1" ||
    factory.endsWith("NonValidatingFactory") ||
    (ssl !== undefined && /^(true|1|require|no-verify)$/.test(ssl));
  const isChecked =
    asked.get("channel_binding") === "require" ||
    asked.get("sslaccept") === "strict" ||
    asked.get("rejectunauthorized")?.toLowerCase() === "true" ||
    factory.endsWith("DefaultJavaSSLFactory");
  if (named === "disable" && (isOn || isChecked))
    throw new Error("an address that does not both require encryption and set sslmode=disable");
  // The driver does not support channel binding, which prevents a man in the middle. Full certificate verification prevents the same.
  if (isChecked) return "verify-full";
  if (isOn && (named === undefined || named === "allow" || named === "prefer")) return "require";
  return named ?? (ssl === "prefer" ? "prefer" : ssl === undefined ? undefined : "disable");
}

/** Whether a server is on the internet: a public IP address, or a name with a dot that is not a private one. */
function isPublic(server: DatabaseServer): boolean {
  if ("path" in server) return false;
  const { host } = server;
  if (isIP(host) !== 0) return ipaddr.process(host).range() === "unicast";
  return (
    host.includes(".") && !/\.(internal|local|localhost|lan|home|corp|flycast|svc|test|cluster\.local)\.?$/i.test(host)
  );
}

/**
 * The TLS options, as libpq derives them. Without parameters, encryption is preferred for servers on the internet, where libpq prefers it for
 * every server.
 */
function tlsOf(asked: URLSearchParams, servers: readonly DatabaseServer[]): () => DatabaseTls {
  const [cert, key, root] = FILES.map((name) => asked.get(name) ?? undefined);
  for (const [i, path] of [cert, key, root].entries())
    if (path !== undefined && path !== "system" && !existsSync(path))
      throw new Error(`an address whose ${FILES[i]} is the path of a readable file`);
  if ((cert === undefined) !== (key === undefined))
    throw new Error("an address with sslcert and sslkey together; the server's root certificate is sslrootcert");
  const mode = modeOf(asked) ?? ((root ?? cert) ? "verify-full" : servers.some(isPublic) ? "prefer" : undefined);
  const versions = versionsOf(asked);
  const passphrase = asked.get("sslpassword") ?? undefined;
  return () => {
    if (mode === undefined || mode === "disable") return false;
    const own =
      cert === undefined || key === undefined
        ? {}
        : { cert: readFileSync(cert), key: readFileSync(key), ...(passphrase !== undefined && { passphrase }) };
    const roots = root === undefined || root === "system" ? {} : { ca: readFileSync(root) };
    if ((mode === "allow" || mode === "prefer") && cert === undefined) return "prefer";
    return { ...own, ...roots, ...versions, ...judging(mode, root !== undefined) };
  };
}

/** Node.js has no version below 1.2, so an older minimum has no effect. */
function versionsOf(asked: URLSearchParams): Pick<ConnectionOptions, "minVersion" | "maxVersion"> {
  const [min, max] = ["min", "max"].map((end) => /1\.[23]$/.exec(asked.get(`ssl_${end}_protocol_version`) ?? "")?.[0]);
  return {
    ...(min !== undefined && { minVersion: `TLSv${min}` as "TLSv1.2" | "TLSv1.3" }),
    ...(max !== undefined && { maxVersion: `TLSv${max}` as "TLSv1.2" | "TLSv1.3" }),
  };
}

/** As in libpq, `require` with a root certificate verifies the chain. */
function judging(mode: SslMode, hasRoot: boolean): ConnectionOptions {
  if (mode === "verify-full") return {};
  return mode === "verify-ca" || hasRoot
    ? { rejectUnauthorized: true, checkServerIdentity: () => undefined }
    : { rejectUnauthorized: false };
}

/** The server of each address that was last known as writable, for addresses with several. */
const chosen = new Map<string, number>();

/** The server of an address to connect to now. */
export function serverNow(url: string, { servers }: DatabaseAddress): DatabaseServer {
  return servers[(chosen.get(url) ?? 0) % servers.length]!;
}

/** Reports that a server is unreachable or read-only: the next one is used from now on, unless that was decided already. */
export function passOver(url: string, address: DatabaseAddress, server: DatabaseServer): void {
  const { servers } = address;
  if (servers.length === 1 || serverNow(url, address) !== server) return;
  chosen.set(url, ((chosen.get(url) ?? 0) + 1) % servers.length);
}
