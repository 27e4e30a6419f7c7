/** Wrong settings: each is named in one clear line, and all of them at once. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { ConfigError, readConfig } from "../../src/config.ts";
import { selfSigned } from "../support/wire-client.ts";

const folder = mkdtempSync(join(tmpdir(), "limber-config-"));
const write = (name: string, text: string): string => {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
};
const [one, other] = [selfSigned(), selfSigned()];
const [CERT, KEY, OTHER_KEY, NONSENSE] = [
  write("tls.crt", one.cert),
  write("tls.key", one.key),
  write("other.key", other.key),
  write("nonsense", "nonsense"),
];
afterAll(() => rmSync(folder, { recursive: true }));

const SECRET = "hunter2hunter2hunter2";
const OUTSIDE = {
  DATABASE_URL: `postgres://limber:${SECRET}@db/limber`,
  SERVICE_ADMIN_TOKEN: SECRET,
  LIMBER_MASTER_KEY: Buffer.alloc(32).toString("base64"),
};

const AWS = { AWS_ACCESS_KEY_ID: "AKIA", AWS_SECRET_ACCESS_KEY: SECRET };

const problemsOf = (env: Record<string, string>): string[] => {
  try {
    readConfig(env);
    return [];
  } catch (thrown) {
    if (thrown instanceof ConfigError) return thrown.message.split("\n");
    throw thrown;
  }
};

/** What is set, beside an outside database, and how the one line begins. */
const WRONG: readonly (readonly [env: Record<string, string>, line: string])[] = [
  [{ PORT: "http" }, "PORT must be a whole number from 0 to 65535"],
  [{ LIMBER_FFMPEG: "/nowhere/ffmpeg" }, "LIMBER_FFMPEG must be a program on PATH, its path, or off"],
  [{ PORT: "70000" }, "PORT must be a whole number"],
  [{ PORT: "-1" }, "PORT must be a whole number"],
  [{ PORT: "80.5" }, "PORT must be a whole number"],
  [{ LIMBER_OPERATIONS_PORT: "nine" }, "LIMBER_OPERATIONS_PORT must be a whole number"],
  [{ LIMBER_GR00T_PORT: "65536" }, "LIMBER_GR00T_PORT must be a whole number"],
  [{ LIMBER_GR00T_MODEL: "m".repeat(257) }, "LIMBER_GR00T_MODEL must be a model or an alias"],
  ...[
    "s3://acme-archive?region=eu-central-1", // without credentials
    "http://acme.example/archive",
    "s3:",
  ].map((LIMBER_ARCHIVE_URL) => [{ LIMBER_ARCHIVE_URL }, "LIMBER_ARCHIVE_URL must be a folder"] as const),
  ...[
    "s3://acme-archive", // without a region
    "s3://Acme_Archive?region=eu-central-1",
    "s3://acme-archive?region=eu-central-1&acl=public",
    "s3://acme-archive?endpoint=ftp://store.example",
    "s3://acme-archive?endpoint=https://store.example/path",
    "s3://key@acme-archive?region=eu-central-1",
    "s3://acme-archive/a%2Fb?region=eu-central-1",
  ].map((LIMBER_ARCHIVE_URL) => [{ LIMBER_ARCHIVE_URL, ...AWS }, "LIMBER_ARCHIVE_URL must be a folder"] as const),
  [{ LIMBER_MAX_CONNECTIONS: "0" }, "LIMBER_MAX_CONNECTIONS must be a whole number from 1"],
  [{ LIMBER_MAX_CONNECTIONS: "many" }, "LIMBER_MAX_CONNECTIONS must be a whole number"],
  [{ DATABASE_URL: "mysql://db/limber" }, "DATABASE_URL must be an address that begins with postgres://"],
  [{ DATABASE_URL: `limber:${SECRET}@db` }, "DATABASE_URL must be an address that begins"],
  [{ DATABASE_URL: "postgres://db:port/limber" }, "DATABASE_URL must be an address whose servers are"],
  [{ DATABASE_URL: "postgres://db/limber?sslmode=on" }, "DATABASE_URL must be an address whose sslmode is one of"],
  [
    { DATABASE_URL: "postgres://db/limber?sslrootcert=/nowhere" },
    "DATABASE_URL must be an address whose sslrootcert is",
  ],
  [{ DATABASE_URL: `postgres://db/limber?sslkey=${KEY}` }, "DATABASE_URL must be an address with sslcert and sslkey"],
  [
    { DATABASE_URL: "postgres://a,b/limber?target_session_attrs=read-only" },
    "DATABASE_URL must be an address whose target",
  ],
  [{ DATABASE_URL: "postgres://db/limber?pool_max=3" }, "DATABASE_URL must be an address whose parameters are"],
  [{ LIMBER_DATABASE_DIRECT_URL: "db" }, "LIMBER_DATABASE_DIRECT_URL must be an address"],
  [{ NATS_URL: "localhost:4222" }, "NATS_URL must be an address that begins with nats://"],
  [{ NATS_URL: "http://nats" }, "NATS_URL must be an address"],
  [{ SERVICE_ADMIN_TOKEN: "short" }, "SERVICE_ADMIN_TOKEN must be at least 16 characters long"],
  [{ SERVICE_ADMIN_TOKEN: "" }, "SERVICE_ADMIN_TOKEN must be set when DATABASE_URL is"],
  [{ LIMBER_MASTER_KEY: "" }, "LIMBER_MASTER_KEY must be set when DATABASE_URL is"],
  [{ LIMBER_MASTER_KEY: "dG9vIHNob3J0" }, "LIMBER_MASTER_KEY must be 32 bytes in base64"],
  [{ LIMBER_MASTER_KEY_PREVIOUS: "dG9vIHNob3J0" }, "LIMBER_MASTER_KEY_PREVIOUS must be a comma-separated list"],
  [{ LIMBER_METRICS_TOKEN: "short" }, "LIMBER_METRICS_TOKEN must be at least 16 characters long"],
  [{ LIMBER_ROLES: "api,chef" }, "LIMBER_ROLES must be a list of api and worker"],
  [{ LIMBER_PROCESSES: "0" }, "LIMBER_PROCESSES must be auto or a whole number"],
  [{ LIMBER_PROCESSES: "all" }, "LIMBER_PROCESSES must be auto or a whole number"],
  [{ LIMBER_PROCESSES: "257" }, "LIMBER_PROCESSES must be auto or a whole number"],
  [{ LIMBER_PUBLIC_SIGNUP: "maybe" }, "LIMBER_PUBLIC_SIGNUP must be true or false"],
  [{ LIMBER_IMPORT_CATALOG: "2" }, "LIMBER_IMPORT_CATALOG must be true or false"],
  [{ LIMBER_REFERENCE_SUPPLY: "ja" }, "LIMBER_REFERENCE_SUPPLY must be true or false"],
  [{ LIMBER_ALLOW_PRIVATE_ADDRESSES: "some" }, "LIMBER_ALLOW_PRIVATE_ADDRESSES must be true or false"],
  [{ LIMBER_DNS_SERVERS: "dns.example.com" }, "LIMBER_DNS_SERVERS must be a list of IP addresses"],
  [{ LIMBER_DNS_SERVERS: "10.0.0.2:99999" }, "LIMBER_DNS_SERVERS must be a list of IP addresses"],
  [{ LIMBER_TRUSTED_PROXIES: "10.0.0.0/33" }, "LIMBER_TRUSTED_PROXIES must be a list of IP addresses and networks"],
  [{ LIMBER_TRUSTED_PROXIES: "proxy" }, "LIMBER_TRUSTED_PROXIES must be a list"],
  [{ LIMBER_CORS_ORIGINS: "https://console.example.com/" }, "LIMBER_CORS_ORIGINS must be a list of origins"],
  [{ LIMBER_CORS_ORIGINS: "*" }, "LIMBER_CORS_ORIGINS must be a list of origins"],
  [{ LIMBER_PUBLIC_URL: "api.example.com" }, "LIMBER_PUBLIC_URL must be an address that begins with https://"],
  [{ LIMBER_PROBE_EVERY_S: "1" }, "LIMBER_PROBE_EVERY_S must be a whole number of seconds from 10"],
  [{ LIMBER_DRAIN_DELAY_S: "-1" }, "LIMBER_DRAIN_DELAY_S must be a number of seconds from 0 to 300"],
  [{ LIMBER_DRAIN_S: "1h" }, "LIMBER_DRAIN_S must be a number of seconds from 0 to 3600"],
  [{ LIMBER_BODY_MEMORY_MIB: "64" }, "LIMBER_BODY_MEMORY_MIB must be a whole number of MiB from 128"],
  [
    { LIMBER_BODY_MEMORY_PER_KEY_MIB: "512" },
    "LIMBER_BODY_MEMORY_PER_KEY_MIB must be a whole number of MiB from 64 to",
  ],
  [{ STRIPE_API_BASE: "ftp://stripe" }, "STRIPE_API_BASE must be an address that begins with https://"],
  [{ TLS_CERT: CERT }, "TLS_CERT and TLS_KEY must be set together"],
  [{ TLS_CERT: CERT, TLS_KEY: "/nowhere" }, "TLS_KEY must be the path of a readable file"],
  [{ TLS_CERT: CERT, TLS_KEY: OTHER_KEY }, "TLS_CERT and TLS_KEY must be a certificate and its key in PEM"],
  [{ TLS_CERT: NONSENSE, TLS_KEY: KEY }, "TLS_CERT and TLS_KEY must be a certificate and its key in PEM"],
  [{ LOG_LEVEL: "loud" }, "LOG_LEVEL must be one of trace, debug, info"],
  [{ WATCHDOG_USEC: "soon" }, "WATCHDOG_USEC must be a whole number of microseconds"],
];

it.each(WRONG)("the settings %j cause %s", (env, line) => {
  const problems = problemsOf({ ...OUTSIDE, ...env });
  expect(problems).toEqual([expect.stringContaining(line)]);
  expect(problems[0]).not.toContain(SECRET);
});

it("the settings number more than forty, and all invalid ones are reported at once", () => {
  expect(WRONG.length).toBeGreaterThan(40);
  expect(problemsOf({ ...OUTSIDE, PORT: "x", LOG_LEVEL: "y", LIMBER_ROLES: "z" })).toHaveLength(3);
});

it("valid settings are accepted", () => {
  expect(problemsOf({ ...OUTSIDE, TLS_CERT: CERT, TLS_KEY: KEY, LIMBER_PROCESSES: "auto", PORT: "0" })).toEqual([]);
  expect(problemsOf({ LIMBER_PROCESSES: "auto" })).toEqual([]);
  const { DATABASE_URL: _, ...inside } = OUTSIDE;
  expect(problemsOf({ ...inside, LIMBER_DATABASE_DIRECT_URL: OUTSIDE.DATABASE_URL })).toEqual([
    "DATABASE_URL must be set when LIMBER_DATABASE_DIRECT_URL is",
  ]);
});

it.each([
  ["file:///var/lib/archive", { folder: "/var/lib/archive" }],
  [
    "s3://acme-archive?region=eu-central-1",
    { bucket: "acme-archive", prefix: "", region: "eu-central-1", endpoint: "https://s3.eu-central-1.amazonaws.com" },
  ],
  [
    "s3://acme.archive/limber/one/?endpoint=https://store.example:9000",
    { bucket: "acme.archive", prefix: "limber/one/", region: "us-east-1", endpoint: "https://store.example:9000" },
  ],
])("LIMBER_ARCHIVE_URL %s is a place of the archive", (LIMBER_ARCHIVE_URL, place) => {
  expect(readConfig({ ...OUTSIDE, ...AWS, LIMBER_ARCHIVE_URL }).archive?.place).toMatchObject(place);
});

it("ffmpeg is the one on PATH, or the given program, and none if it is off", () => {
  const program = join(folder, "ffmpeg");
  writeFileSync(program, "", { mode: 0o755 });
  const ffmpegOf = (env: Record<string, string>) => readConfig({ ...OUTSIDE, ...env }).ffmpeg;
  expect(ffmpegOf({ PATH: folder })).toBe(program);
  expect(ffmpegOf({ LIMBER_FFMPEG: program })).toBe(program);
  expect(ffmpegOf({ PATH: folder, LIMBER_FFMPEG: "off" })).toBeUndefined();
  expect(ffmpegOf({})).toBeUndefined();
});
