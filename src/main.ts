/** Reads the environment, opens the gateway, drains it on SIGTERM or Ctrl-C. */

import { fileURLToPath } from "node:url";
import { pino } from "pino";
import { Primary, type WorkerLink, workerLink } from "./app/cluster.ts";
import { collectBetweenSlices, missingFlags } from "./app/collector.ts";
import type { Gateway, SharedParts } from "./app/gateway.ts";
import { onUnhandledErrors, openServiceManager, type ServiceManager } from "./app/process.ts";
import { after } from "./clock.ts";
import { type Config, ConfigError, readConfig, unknownSettings } from "./config.ts";
import { nearest } from "./edge/messages/json-text.ts";
import { signInLink } from "./services/session.ts";

/** The timeout for running calls after an unhandled error. */
const BROKEN_PATIENCE_MS = 10_000;
/** The further timeout of the entire drain after an unhandled error, which might prevent its end. */
const BROKEN_END_MS = 5_000;

/** Drains this process after an unhandled error, and the timeout of calls; undefined before anything is open. */
let opened: { end(): void; readonly delayMs: number } | undefined;
let closing = false;
/** The link to the primary process, in a worker. */
let link: WorkerLink | undefined;
/** The exit code: 1 after an unhandled error. */
let exitCode = 0;

/** The supervisor that started this process and may expect its status. */
let manager: ServiceManager | undefined;

/** Drains and exits. */
function close(gateway: Gateway, patienceMs: number, delayMs = 0): void {
  closing = true;
  manager?.stopping();
  gateway.close(patienceMs, delayMs).then(() => process.exit(exitCode), end);
}

async function main(): Promise<void> {
  const config = readConfig();
  link = workerLink();
  if (link === undefined) haveStartFlags();
  if (link === undefined) warnOfUnknownSettings();
  if (link === undefined && config.processes !== 1) return runPrimary(config);
  collectBetweenSlices();
  // With several processes, the primary might need none of it.
  const { openGateway } = await import("./app/gateway.ts");
  const gateway = await openGateway(config, link);
  const { drainDelayMs: delayMs } = config;
  opened = { end: () => close(gateway, BROKEN_PATIENCE_MS, delayMs), delayMs };
  if (link !== undefined) return runWorker(link, gateway, config);

  // Install before reporting readiness, after which a supervisor can stop the process.
  const stop = (delayMs: number): void => (closing ? process.exit(1) : close(gateway, config.drainMs, delayMs)); // asked twice: at once
  process.on("SIGTERM", () => stop(config.drainDelayMs));
  // A user at the terminal does not wait for a load balancer.
  process.on("SIGINT", () => stop(0));

  // Without a certificate, SIGHUP ends the process, as a closing terminal expects.
  if (config.tls !== undefined) process.on("SIGHUP", () => renewCertificate(gateway));
  for (const line of linesOf(gateway)) console.log(line);
  manager = openServiceManager(config.serviceManager, (text) => console.error(`limber: ${text}`));
  manager.ready();
  if (gateway.demo && gateway.url) showDemo(config, gateway.demo, gateway.url);
}

/** Prints where to sign in and read on, the settings for a shell, and a call. */
function showDemo(config: Config, demo: NonNullable<Gateway["demo"]>, url: string): void {
  const home = new URL(config.publicUrl ?? url).origin;
  const places = [
    ...(demo.signIn === undefined ? [] : [["Sign in", `${signInLink(home, demo.signIn)} (once, within an hour)`]]),
    ["Docs", `${url}/docs`],
  ];
  // The ones that programs on this machine read.
  const settings = {
    LIMBER_URL: url,
    LIMBER_KEY: demo.key,
    ...(config.adminToken === undefined && { SERVICE_ADMIN_TOKEN: demo.adminToken }),
    ...(demo.natsUrl !== undefined && { NATS_URL: demo.natsUrl }),
  };
  const width = Math.max(...places.map(([name = ""]) => name.length));
  console.log(
    [
      ...places.map(([name = "", place]) => `${name.padEnd(width)}  ${place}`),
      "",
      ...Object.entries(settings).map(([name, value]) => `export ${name}=${value}`),
      "",
      `Try it:\n${FIRST_CALL}\n`,
    ].join("\n"),
  );
}

/** A call with an image, for a shell with the printed settings. */
const FIRST_CALL = `curl -s "$LIMBER_URL/v1/act" -H "authorization: Bearer $LIMBER_KEY" -H "content-type: application/json" -d '${JSON.stringify(
  {
    model: "service/auto",
    instruction: "reach the red square",
    observations: [{ frames: [{ url: "/samples/red-square.png" }] }],
  },
)}'`;

/**
 * Replaces this process by one with the start flags, keeping its id, environment and terminal. Without the flags, garbage collection takes most
 * of a loaded CPU. If the system has no such call (Windows), or the parent uses a channel that would be lost, V8's defaults stay.
 */
function haveStartFlags(): void {
  const flags = missingFlags(process.execArgv);
  const { execve } = process;
  if (flags.length === 0 || execve === undefined || process.platform === "win32" || process.connected) return;
  const main = fileURLToPath(import.meta.url);
  execve(process.execPath, [process.execPath, ...flags, ...process.execArgv, main, ...process.argv.slice(2)]);
}

/** The primary of several processes: opens shared resources, and exits when all workers have. */
async function runPrimary(config: Config): Promise<void> {
  const log = pino({ level: config.logLevel }, pino.destination({ dest: 2, sync: true }));
  const { databaseUrl, referenceSupply, operationsPort } = config;
  const isNeeded = databaseUrl === undefined || referenceSupply || operationsPort !== undefined;
  const primary = new Primary(config, log);
  const gateway = isNeeded
    ? await (await import("./app/gateway.ts")).openGateway({ ...config, roles: new Set() }, primary)
    : undefined;
  const { drainDelayMs: delayMs } = config;
  opened = { end: () => primary.end(delayMs), delayMs };
  manager = openServiceManager(config.serviceManager, (text) => log.warn(text));
  // The log has the reason: the store is damaged. Workers would start a second server on the same files.
  if (gateway !== undefined && gateway.shared === undefined && databaseUrl === undefined) process.exit(1);
  const { env, own } = gateway?.shared ?? NOTHING_SHARED;
  const code = await primary.run({
    env,
    own,
    async ready({ url, lines }) {
      const operations = gateway === undefined ? [] : linesOf(gateway).slice(1);
      console.log([...lines, ...operations, `${config.processes} processes`].join("\n"));
      manager?.ready();
      if (gateway?.demo && url !== undefined) showDemo(config, gateway.demo, url);
    },
    ending() {
      closing = true;
      manager?.stopping();
    },
    renew() {
      if (gateway !== undefined && config.tls !== undefined) renewCertificate(gateway);
    },
  });
  await gateway?.close(0);
  process.exit(exitCode || code);
}

/** What workers receive from a primary that opened nothing. */
const NOTHING_SHARED: SharedParts = { env: { LIMBER_OPERATIONS_PORT: "", LIMBER_REFERENCE_SUPPLY: "false" }, own: [] };

/** A worker of several processes: exits when the primary requests it or has exited. */
function runWorker(link: WorkerLink, gateway: Gateway, { drainMs }: Config): void {
  link.serve({
    drain(delayMs, patienceMs = drainMs) {
      if (!closing) close(gateway, patienceMs, delayMs);
    },
  });
  link.ready({ url: gateway.url, lines: linesOf(gateway) });
}

/** Prints the addresses of a gateway that is ready. */
const linesOf = (gateway: Gateway): string[] => [
  `limber ready${gateway.url === undefined ? "" : ` ${gateway.url}`}`,
  ...gateway.otherUrls.map((url) => `also at ${url}`),
  ...(gateway.operationsPort === undefined ? [] : [`operations at port ${gateway.operationsPort}`]),
];

/** Reloads the certificate; keeps the old one if the new one is invalid. */
function renewCertificate(gateway: Gateway): void {
  try {
    const { tls } = readConfig();
    if (tls === undefined) throw new ConfigError(["TLS_CERT is no longer set"]);
    gateway.renew(tls);
    console.error("limber: the certificate was reloaded");
  } catch (thrown) {
    console.error(`limber: the certificate was not reloaded: ${thrown instanceof Error ? thrown.message : thrown}`);
  }
}

/** Warns of misspelled settings, which would have no effect. */
function warnOfUnknownSettings(): void {
  const { unknown, known, prefix } = unknownSettings();
  // The common prefix does not help to guess the intended name.
  const rests = known.filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length));
  for (const name of unknown) {
    const meant = nearest(name.slice(prefix.length), rests);
    console.error(`limber: ${name} is not a setting${meant === undefined ? "" : `; did you mean ${prefix}${meant}?`}`);
  }
}

function end(thrown: unknown): never {
  const text = thrown instanceof Error ? thrown.message : String(thrown);
  for (const line of text.split("\n")) console.error(`limber: ${line}`);
  if (!(thrown instanceof ConfigError) && process.argv.includes("--trace") && thrown instanceof Error)
    console.error(thrown.stack);
  process.exit(1);
}

/** The message and location of an error, in one line. */
function oneLine(thrown: unknown): string {
  const text = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
  return text
    .split("\n")
    .map((line) => line.trim())
    .slice(0, MOST_STACK_LINES)
    .join(" | ");
}

const MOST_STACK_LINES = 8;

// Crash output omits the environment, which has secrets, and all of the error but its message.
process.report.excludeEnv = true;
onUnhandledErrors(({ kind, error }, isFirst) => {
  console.error(`limber: ${kind}, a bug${isFirst ? ": the process drains and exits" : ""}: ${oneLine(error)}`);
  if (!isFirst) return;
  exitCode = 1;
  link?.leaving();
  if (opened === undefined) process.exit(1);
  // The state of the process is unknown: running calls finish, and the supervisor starts a new process.
  after(opened.delayMs + BROKEN_PATIENCE_MS + BROKEN_END_MS, () => process.exit(1));
  if (!closing) opened.end();
});
main().catch(end);
