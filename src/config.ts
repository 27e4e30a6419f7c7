/** The environment as one validated object: the only reader of `process.env`. */
import { accessSync, constants, readFileSync } from "node:fs";
import { isIP } from "node:net";
import { availableParallelism } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { createSecureContext } from "node:tls";
import { fileURLToPath } from "node:url";
import { natsAddress } from "./events/nats/connect.ts";
import type { ArchivePlace } from "./jobs/archive/folder.ts";
import { ORG_CAPS, type OrgCaps } from "./store/account/org-caps.ts";
import { databaseAddress } from "./store/database/address.ts";

/** The roles of a process: serving calls, working on jobs, or both. */
type Role = "api" | "worker";

/** All environment variables of the gateway, its sidecar and its tools. */
const SETTINGS = [
  "AWS_ACCESS_KEY_ID",
  "AWS_REGION",
  "AWS_SECRET_ACCESS_KEY",
  "AWS_SESSION_TOKEN",
  "DATABASE_URL",
  "DATA_DIR",
  "HOST",
  "LIMBER_ALLOW_PRIVATE_ADDRESSES",
  "LIMBER_ARCHIVE_AFTER_MONTHS",
  "LIMBER_ARCHIVE_URL",
  "LIMBER_BODY_MEMORY_MIB",
  "LIMBER_BODY_MEMORY_PER_KEY_MIB",
  "LIMBER_CORS_ORIGINS",
  "LIMBER_DIRECT_URL",
  "LIMBER_DATABASE_DIRECT_URL",
  "LIMBER_DNS_SERVERS",
  "LIMBER_DRAIN_DELAY_S",
  "LIMBER_DRAIN_S",
  "LIMBER_FFMPEG",
  "LIMBER_GR00T_MODEL",
  "LIMBER_GR00T_PORT",
  "LIMBER_IMPORT_CATALOG",
  "LIMBER_KEY",
  "LIMBER_MAIL_FROM",
  "LIMBER_MASTER_KEY",
  "LIMBER_MASTER_KEY_PREVIOUS",
  "LIMBER_MAX_CONNECTIONS",
  "LIMBER_MAX_PER_ORG",
  "LIMBER_METRICS_TOKEN",
  "LIMBER_OPERATIONS_PORT",
  "LIMBER_PROBE_EVERY_S",
  "LIMBER_PROCESSES",
  "LIMBER_PROVIDER_SECRET",
  "LIMBER_PUBLIC_SIGNUP",
  "LIMBER_PUBLIC_URL",
  "LIMBER_REFERENCE_SUPPLY",
  "LIMBER_ROLES",
  "LIMBER_SCENARIO_PACKS",
  "LIMBER_SMTP_URL",
  "LIMBER_TRUSTED_PROXIES",
  "LIMBER_NATS_REPLICAS",
  "LIMBER_URL",
  "LOG_LEVEL",
  "NOTIFY_SOCKET",
  "NATS_URL",
  "PORT",
  "SERVICE_ADMIN_TOKEN",
  "STRIPE_API_BASE",
  "STRIPE_SECRET_KEY",
  "STRIPE_WEBHOOK_SECRET",
  "TLS_CERT",
  "TLS_KEY",
  "WATCHDOG_USEC",
] as const;
type Setting = (typeof SETTINGS)[number];

/** Variables that Kubernetes sets for a service named `limber`. */
const OF_KUBERNETES = /^LIMBER_(?:SERVICE_(?:HOST|PORT)|PORT)(?:_|$)/;

/** Unknown variables that look like settings of the gateway, and the known settings. */
export function unknownSettings(env: NodeJS.ProcessEnv = process.env): {
  readonly unknown: readonly string[];
  readonly known: readonly string[];
  /** The prefixes of names to check. */
  readonly prefix: string;
} {
  const prefix = "LIMBER_";
  const known: ReadonlySet<string> = new Set(SETTINGS);
  const unknown = Object.keys(env).filter(
    (name) => name.startsWith(prefix) && !known.has(name) && !OF_KUBERNETES.test(name),
  );
  return { unknown: unknown.sort(), known: SETTINGS, prefix };
}

/** A certificate and its key, in PEM. */
export interface CertificatePair {
  readonly cert: Buffer;
  readonly key: Buffer;
}

/** The configuration of this process. */
export interface Config {
  /** The listening address; port 0 selects a free port. */
  host: string;
  port: number;
  /** The absolute path of the embedded database's data. */
  dataDir: string;
  /** An external database; undefined starts the embedded one. */
  databaseUrl: string | undefined;
  /** The address of PostgreSQL itself if `databaseUrl` is a pooler: for notifications and migrations. */
  databaseDirectUrl: string | undefined;
  /** Whether an empty catalog is filled with the gateway's own; the embedded database always has the newest. */
  importCatalog: boolean;
  /** The NATS address for events; undefined leaves them in the outbox. */
  natsUrl: string | undefined;
  /** The number of replicas of each work message in a NATS cluster. */
  natsCopies: number;
  /** The nats-server on PATH for the embedded default; undefined if there is none, or if NATS is external. */
  natsServer: string | undefined;
  /** The operator's token; undefined generates one for development. */
  adminToken: string | undefined;
  /** The 32-byte key that seals stored provider keys; undefined generates one for development. */
  masterKey: Buffer | undefined;
  /** Further master keys, which only open secrets. */
  otherMasterKeys: readonly Buffer[];
  /** The token for scraping `/metrics`; undefined requires the operator's token. */
  metricsToken: string | undefined;
  roles: ReadonlySet<Role>;
  /** The number of processes that serve calls. */
  processes: number;
  publicSignup: boolean;
  /** Whether supply and frames can be at private addresses. */
  allowPrivateAddresses: boolean;
  /** DNS servers for user-supplied host names, as `address` or `address:port`; undefined uses the system's. */
  dnsServers: readonly string[] | undefined;
  /** Addresses or networks of the operator's proxies, whose `X-Forwarded-For` is trusted. */
  trustedProxies: readonly string[];
  /** The probe interval of live offerings, in seconds. */
  probeEveryS: number;
  /** Whether to start the reference provider. */
  referenceSupply: boolean;
  /** The public URL of this gateway; undefined uses the listening address. */
  publicUrl: string | undefined;
  /** The address that bypasses the proxy and its timeout; undefined if there is none. */
  directUrl: string | undefined;
  /** Browser origins that can read responses. */
  corsOrigins: ReadonlySet<string>;
  /** A folder of scenario packs; undefined uses only the built-in scenarios. */
  scenarioPacks: string | undefined;
  /** The path of ffmpeg, which encodes films; undefined encodes them as WebP. */
  ffmpeg: string | undefined;
  /** The place of the archive of the request history, and the age of its months; undefined archives nothing. */
  archive: { place: ArchivePlace; afterMonths: number } | undefined;
  /** The mail server (`smtp:` or `smtps:`) and the sender's address; undefined sends no mail. */
  mail: { url: string; from: string } | undefined;
  /** `apiBase` replaces Stripe's address. */
  stripe: { secretKey: string | undefined; webhookSecret: string | undefined; apiBase: string | undefined };
  tls: CertificatePair | undefined;
  /** The port for Isaac-GR00T clients; undefined for none. */
  gr00tPort: number | undefined;
  /** The default model of such clients whose key does not determine one. */
  gr00tModel: string;
  /** The operations port, 0 selects a free one; undefined for none. */
  operationsPort: number | undefined;
  /** The most concurrent connections on the API port. */
  maxConnections: number;
  /** The caps of every organization. */
  orgCaps: OrgCaps;
  /** The most bytes of request bodies in memory: in total, and per key. */
  bodyMemory: { all: number; perKey: number };
  /** How long a stopping process reports not ready but still serves, in milliseconds. */
  drainDelayMs: number;
  /** The timeout for running calls after that, in milliseconds. */
  drainMs: number;
  logLevel: LogLevel;
  /** Whether a service manager waits for readiness, and its watchdog interval in milliseconds. */
  serviceManager: { isTold: boolean; watchdogMs: number | undefined };
}

const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "silent"] as const;
type LogLevel = (typeof LOG_LEVELS)[number];

/** An invalid environment. The message has one line per problem. */
export class ConfigError extends Error {
  constructor(problems: readonly string[]) {
    super(problems.join("\n"));
    this.name = "ConfigError";
  }
}

const MIB = 2 ** 20;

const LOOPBACK = new Set(["127.0.0.1", "::1", "localhost"]);

/** Parses the environment, or throws a `ConfigError` with all problems. */
export function readConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const problems: string[] = [];
  const text = (name: Setting): string | undefined => env[name]?.trim() || undefined;
  const bad = (name: Setting, wanted: string): void => void problems.push(`${name} must be ${wanted}`);

  const flag = (name: Setting, fallback: boolean): boolean => {
    const value = text(name)?.toLowerCase();
    if (value === undefined) return fallback;
    if (["1", "true", "on", "yes"].includes(value)) return true;
    if (!["0", "false", "off", "no"].includes(value)) bad(name, "true or false");
    return false;
  };
  const url = (name: Setting, schemes: readonly string[]): string | undefined => {
    const value = text(name);
    if (value === undefined) return undefined;
    const known = URL.canParse(value) && schemes.includes(new URL(value).protocol);
    if (!known) bad(name, `an address that begins with ${schemes.map((scheme) => `${scheme}//`).join(" or ")}`);
    return value;
  };
  const file = (name: Setting): Buffer | undefined => {
    const path = text(name);
    if (path === undefined) return undefined;
    try {
      return readFileSync(path);
    } catch {
      bad(name, "the path of a readable file");
      return undefined;
    }
  };

  const port = Number(text("PORT") ?? "8080");
  if (!Number.isInteger(port) || port < 0 || port > 65535) bad("PORT", "a whole number from 0 to 65535");

  const optionalPort = (name: Setting): number | undefined => {
    const value = text(name);
    if (value === undefined) return undefined;
    const number = Number(value);
    if (!Number.isInteger(number) || number < 0 || number > 65535) bad(name, "a whole number from 0 to 65535");
    return number;
  };
  const gr00tPort = optionalPort("LIMBER_GR00T_PORT");
  const gr00tModel = text("LIMBER_GR00T_MODEL") ?? "service/auto";
  if (gr00tModel.length > 256) bad("LIMBER_GR00T_MODEL", "a model or an alias of at most 256 characters");
  const operationsPort = optionalPort("LIMBER_OPERATIONS_PORT");

  const maxConnections = Number(text("LIMBER_MAX_CONNECTIONS") ?? "10000");
  if (!Number.isInteger(maxConnections) || maxConnections < 1 || maxConnections > 1_000_000)
    bad("LIMBER_MAX_CONNECTIONS", "a whole number from 1 to 1000000");

  const orgCaps: Record<keyof OrgCaps, number> = { ...ORG_CAPS };
  for (const pair of text("LIMBER_MAX_PER_ORG")?.split(",") ?? []) {
    const [what = "", most = ""] = pair.split("=").map((word) => word.trim());
    if (!(what in ORG_CAPS) || !/^[1-9][0-9]{0,11}$/.test(most))
      bad("LIMBER_MAX_PER_ORG", `a list such as keys=10000, of ${Object.keys(ORG_CAPS).join(", ")}`);
    else orgCaps[what as keyof OrgCaps] = Number(most); // seen just now
  }

  const probeEveryS = Number(text("LIMBER_PROBE_EVERY_S") ?? "3600");
  if (!Number.isInteger(probeEveryS) || probeEveryS < 10 || probeEveryS > 86_400)
    bad("LIMBER_PROBE_EVERY_S", "a whole number of seconds from 10 to 86400");

  const processesText = text("LIMBER_PROCESSES")?.toLowerCase() ?? "1";
  const processes = processesText === "auto" ? availableParallelism() : Number(processesText);
  if (!(Number.isInteger(processes) && processes >= 1 && processes <= 256))
    bad("LIMBER_PROCESSES", "auto or a whole number from 1 to 256");

  const drainDelayS = Number(text("LIMBER_DRAIN_DELAY_S") ?? "5");
  if (!(drainDelayS >= 0 && drainDelayS <= 300)) bad("LIMBER_DRAIN_DELAY_S", "a number of seconds from 0 to 300");
  const drainS = Number(text("LIMBER_DRAIN_S") ?? "30");
  if (!(drainS >= 0 && drainS <= 3600)) bad("LIMBER_DRAIN_S", "a number of seconds from 0 to 3600");

  const dnsServers = text("LIMBER_DNS_SERVERS")
    ?.split(",")
    .map((word) => word.trim());
  if (dnsServers?.some((server) => !isNameServer(server)))
    bad("LIMBER_DNS_SERVERS", "a list of IP addresses, each with a port unless it is 53");

  const trustedProxies = (text("LIMBER_TRUSTED_PROXIES") ?? "").split(",").map((word) => word.trim());
  if (trustedProxies.some((word) => word !== "" && !isNetwork(word)))
    bad("LIMBER_TRUSTED_PROXIES", "a list of IP addresses and networks such as 10.0.0.0/8");

  const corsOrigins = (text("LIMBER_CORS_ORIGINS") ?? "")
    .split(",")
    .map((word) => word.trim())
    .filter((word) => word !== "");
  if (!corsOrigins.every(isOrigin))
    bad("LIMBER_CORS_ORIGINS", "a list of origins such as https://console.example.com, without a path");

  const address = (name: Setting, read: (text: string) => unknown): string | undefined => {
    const value = text(name);
    if (value === undefined) return undefined;
    try {
      read(value);
    } catch (thrown) {
      bad(name, thrown instanceof Error ? thrown.message : String(thrown));
    }
    return value;
  };
  const databaseUrl = address("DATABASE_URL", databaseAddress);
  const databaseDirectUrl = address("LIMBER_DATABASE_DIRECT_URL", databaseAddress);
  if (databaseDirectUrl !== undefined && databaseUrl === undefined)
    problems.push("DATABASE_URL must be set when LIMBER_DATABASE_DIRECT_URL is");
  const natsUrl = address("NATS_URL", natsAddress);
  // With three or more servers of a cluster, one address can refer to any of them.
  const natsCopies = Number(text("LIMBER_NATS_REPLICAS") ?? ((natsUrl ?? "").split(",").length >= 3 ? "3" : "1"));
  if (![1, 3, 5].includes(natsCopies)) bad("LIMBER_NATS_REPLICAS", "1, 3 or 5");
  const host = text("HOST") ?? "127.0.0.1";
  const embedded = databaseUrl === undefined;

  const adminToken = text("SERVICE_ADMIN_TOKEN");
  if (adminToken !== undefined && adminToken.length < 16) bad("SERVICE_ADMIN_TOKEN", "at least 16 characters long");
  const metricsToken = text("LIMBER_METRICS_TOKEN");
  if (metricsToken !== undefined && metricsToken.length < 16)
    bad("LIMBER_METRICS_TOKEN", "at least 16 characters long");
  const masterKeyText = text("LIMBER_MASTER_KEY");
  const masterKey = masterKeyText === undefined ? undefined : Buffer.from(masterKeyText, "base64");
  if (masterKey && masterKey.length !== 32) bad("LIMBER_MASTER_KEY", "32 bytes in base64 (openssl rand -base64 32)");
  const otherMasterKeys = (text("LIMBER_MASTER_KEY_PREVIOUS") ?? "")
    .split(",")
    .filter((word) => word.trim() !== "")
    .map((word) => Buffer.from(word, "base64"));
  if (otherMasterKeys.some((key) => key.length !== 32))
    bad("LIMBER_MASTER_KEY_PREVIOUS", "a comma-separated list of keys of 32 bytes in base64");
  if (!embedded && adminToken === undefined) problems.push("SERVICE_ADMIN_TOKEN must be set when DATABASE_URL is");
  if (!embedded && masterKeyText === undefined) problems.push("LIMBER_MASTER_KEY must be set when DATABASE_URL is");

  const roles = new Set<Role>();
  for (const role of (text("LIMBER_ROLES") ?? "api,worker").split(",").map((word) => word.trim())) {
    if (role === "api" || role === "worker") roles.add(role);
    else bad("LIMBER_ROLES", "a list of api and worker");
  }

  const archiveUrl = text("LIMBER_ARCHIVE_URL");
  const archivePlace = archiveUrl === undefined ? undefined : placeOf(archiveUrl, text);
  if (archiveUrl !== undefined && archivePlace === undefined)
    bad(
      "LIMBER_ARCHIVE_URL",
      "a folder, such as file:///var/lib/limber/archive, or a bucket, such as s3://name/prefix?region=eu-central-1, with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    );
  const archiveMonths = Number(text("LIMBER_ARCHIVE_AFTER_MONTHS") ?? "13");
  if (!Number.isInteger(archiveMonths) || archiveMonths < 2 || archiveMonths > 240)
    bad("LIMBER_ARCHIVE_AFTER_MONTHS", "a whole number of months from 2 to 240");

  const smtpUrl = url("LIMBER_SMTP_URL", ["smtp:", "smtps:"]);
  const mailFrom = text("LIMBER_MAIL_FROM");
  if ((smtpUrl === undefined) !== (mailFrom === undefined))
    problems.push("LIMBER_SMTP_URL and LIMBER_MAIL_FROM must be set together");
  if (mailFrom !== undefined && !/^([^<>\p{C}]*<)?[^\s<>@,;\p{C}]+@[^\s<>@,;\p{C}]+>?$/u.test(mailFrom))
    bad("LIMBER_MAIL_FROM", "an address such as limber@example.com or Limber <limber@example.com>");

  const cert = file("TLS_CERT");
  const key = file("TLS_KEY");
  if ((text("TLS_CERT") === undefined) !== (text("TLS_KEY") === undefined)) {
    problems.push("TLS_CERT and TLS_KEY must be set together");
  }
  if (cert && key && !arePair(cert, key))
    problems.push("TLS_CERT and TLS_KEY must be a certificate and its key in PEM");

  const memoryMib = Number(text("LIMBER_BODY_MEMORY_MIB") ?? "256");
  const isMemory = Number.isInteger(memoryMib) && memoryMib >= 128 && memoryMib <= 1 << 20;
  if (!isMemory) bad("LIMBER_BODY_MEMORY_MIB", "a whole number of MiB from 128 to 1048576");
  const keyMemoryMib = Number(text("LIMBER_BODY_MEMORY_PER_KEY_MIB") ?? "128");
  if (!Number.isInteger(keyMemoryMib) || keyMemoryMib < 64 || (isMemory && keyMemoryMib > memoryMib))
    bad("LIMBER_BODY_MEMORY_PER_KEY_MIB", "a whole number of MiB from 64 to LIMBER_BODY_MEMORY_MIB");

  const watchdogUs = Number(text("WATCHDOG_USEC") ?? "0");
  if (!Number.isInteger(watchdogUs) || watchdogUs < 0) bad("WATCHDOG_USEC", "a whole number of microseconds");
  const watchdogMs = watchdogUs > 0 ? watchdogUs / 1_000 : undefined;

  const levelText = text("LOG_LEVEL")?.toLowerCase() ?? "info";
  const logLevel = LOG_LEVELS.find((level) => level === levelText);
  if (logLevel === undefined) bad("LOG_LEVEL", `one of ${LOG_LEVELS.join(", ")}`);

  const ffmpegText = text("LIMBER_FFMPEG");
  const ffmpeg = ffmpegText === "off" ? undefined : programOf(ffmpegText ?? "ffmpeg", env.PATH ?? "");
  if (ffmpegText !== undefined && ffmpegText !== "off" && ffmpeg === undefined)
    bad("LIMBER_FFMPEG", "a program on PATH, its path, or off");

  const config: Config = {
    host,
    port,
    dataDir: resolve(text("DATA_DIR") ?? ".limber"),
    databaseUrl,
    databaseDirectUrl,
    importCatalog: flag("LIMBER_IMPORT_CATALOG", true),
    natsUrl,
    natsCopies,
    natsServer: embedded && natsUrl === undefined ? onPath("nats-server", env.PATH ?? "") : undefined,
    adminToken,
    masterKey,
    otherMasterKeys,
    metricsToken,
    roles,
    processes,
    publicSignup: flag("LIMBER_PUBLIC_SIGNUP", false),
    allowPrivateAddresses: flag("LIMBER_ALLOW_PRIVATE_ADDRESSES", embedded && LOOPBACK.has(host)),
    dnsServers,
    trustedProxies: trustedProxies.filter((word) => word !== ""),
    probeEveryS,
    referenceSupply: flag("LIMBER_REFERENCE_SUPPLY", embedded),
    publicUrl: url("LIMBER_PUBLIC_URL", ["https:", "http:"]),
    directUrl: url("LIMBER_DIRECT_URL", ["https:", "http:"]),
    corsOrigins: new Set(corsOrigins),
    scenarioPacks: text("LIMBER_SCENARIO_PACKS"),
    ffmpeg,
    archive: archivePlace && { place: archivePlace, afterMonths: archiveMonths },
    mail: smtpUrl !== undefined && mailFrom !== undefined ? { url: smtpUrl, from: mailFrom } : undefined,
    stripe: {
      secretKey: text("STRIPE_SECRET_KEY"),
      webhookSecret: text("STRIPE_WEBHOOK_SECRET"),
      apiBase: url("STRIPE_API_BASE", ["https:", "http:"]),
    },
    tls: cert && key ? { cert, key } : undefined,
    gr00tPort,
    gr00tModel,
    operationsPort,
    maxConnections,
    orgCaps,
    bodyMemory: { all: memoryMib * MIB, perKey: keyMemoryMib * MIB },
    drainDelayMs: drainDelayS * 1000,
    drainMs: drainS * 1000,
    logLevel: logLevel ?? "info",
    serviceManager: { isTold: text("NOTIFY_SOCKET") !== undefined, watchdogMs },
  };
  if (problems.length > 0) throw new ConfigError(problems);
  return config;
}

/** The path of a `file:` address; undefined for other text. */
/** The place of an archive; undefined if its address is not one, or a bucket lacks its credentials. */
function placeOf(address: string, text: (name: Setting) => string | undefined): ArchivePlace | undefined {
  if (!address.startsWith("s3:")) return folderOf(address);
  if (!URL.canParse(address)) return undefined;
  const { hostname: bucket, pathname, searchParams, username, port, hash } = new URL(address);
  const { region = text("AWS_REGION"), endpoint, ...others } = Object.fromEntries(searchParams);
  const prefix = pathname.replace(/^\/+|\/+$/g, "");
  const isPlain = username === "" && port === "" && hash === "" && Object.keys(others).length === 0;
  if (!isPlain || !BUCKET.test(bucket) || !PREFIX.test(prefix)) return undefined;
  const [accessKeyId, secretAccessKey] = [text("AWS_ACCESS_KEY_ID"), text("AWS_SECRET_ACCESS_KEY")];
  const sessionToken = text("AWS_SESSION_TOKEN");
  if (accessKeyId === undefined || secretAccessKey === undefined) return undefined;
  // Stores other than S3 mostly have no regions; their clients sign with this one.
  const known = region ?? (endpoint === undefined ? undefined : "us-east-1");
  if (known === undefined || !REGION.test(known)) return undefined;
  if (endpoint !== undefined && !isOrigin(endpoint)) return undefined;
  return {
    bucket,
    prefix: prefix === "" ? "" : `${prefix}/`,
    endpoint: endpoint ?? `https://s3.${known}.amazonaws.com`,
    region: known,
    credentials: { accessKeyId, secretAccessKey, ...(sessionToken !== undefined && { sessionToken }) },
  };
}

const BUCKET = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;
const PREFIX = /^(?:[\w-][\w.-]*(?:\/[\w-][\w.-]*)*)?$/;
const REGION = /^[a-z0-9-]{1,64}$/;

function folderOf(address: string): { folder: string } | undefined {
  try {
    return { folder: fileURLToPath(address) };
  } catch {
    return undefined;
  }
}

/** The first executable with this name on a path. */
function onPath(name: string, path: string): string | undefined {
  const places = path.split(delimiter).filter((folder) => folder !== "");
  return places.map((folder) => join(folder, name)).find(isProgram);
}

/** The path of a program that is given by its path or its name. */
const programOf = (text: string, path: string): string | undefined =>
  text.includes("/") ? [resolve(text)].find(isProgram) : onPath(text, path);

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** `10.0.0.2`, `10.0.0.2:5353`, `fd00::2` or `[fd00::2]:5353`. */
function isNameServer(text: string): boolean {
  const [, bracketed, plain, port] = /^(?:\[(.+)\]|([^:]+)):(\d{1,5})$/.exec(text) ?? [];
  return isIP(bracketed ?? plain ?? text) !== 0 && Number(port ?? 53) <= 65_535;
}

/** In the format of browsers: scheme, host, and the port unless it is the scheme's default. */
const isOrigin = (text: string): boolean =>
  /^https?:/.test(text) && URL.canParse(text) && new URL(text).origin === text;

/** `10.0.0.1`, `10.0.0.0/8`, `fd00::/8`. */
function isNetwork(text: string): boolean {
  const [, address = "", prefix = "0"] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const family = isIP(address);
  return family !== 0 && Number(prefix) <= (family === 6 ? 128 : 32);
}

function arePair(cert: Buffer, key: Buffer): boolean {
  try {
    createSecureContext({ cert, key });
    return true;
  } catch {
    return false;
  }
}

/** The settings of a robot's sidecar: `LIMBER_URL`, the gateway's address, and `LIMBER_KEY`. Throws ConfigError. */
export function readSidecarConfig(env: NodeJS.ProcessEnv = process.env): { gateway: string; key: string } {
  const gateway = env.LIMBER_URL?.trim() || "http://127.0.0.1:8080";
  const key = env.LIMBER_KEY?.trim() ?? "";
  const problems: string[] = [];
  if (!URL.canParse(gateway) || !/^https?:$/.test(new URL(gateway).protocol))
    problems.push("LIMBER_URL must be an address that begins with http:// or https://");
  if (key === "") problems.push("LIMBER_KEY must be set");
  if (problems.length > 0) throw new ConfigError(problems);
  return { gateway, key };
}
