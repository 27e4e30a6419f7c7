/** Reads the environment, opens the gateway, drains it on SIGTERM or Ctrl-C. */

import { pino } from "pino";
import type { Gateway } from "./app/gateway.ts";
import { handedOf, ParentLink } from "./app/processes/child.ts";
import { openServiceManager, type ServiceManager } from "./app/service-manager.ts";
import { onUnhandledErrors } from "./app/unhandled.ts";
import { after } from "./clock.ts";
import { type Config, ConfigError, readConfig, unknownSettings } from "./config.ts";
import { nearest } from "./edge/messages/json/near.ts";
import { collectBetweenSlices } from "./fast/collector.ts";
import { signInLink } from "./services/session/link.ts";

/** How long running calls have to end after an unhandled error. */
const BROKEN_PATIENCE_MS = 10_000;
/** How much longer the drain after an unhandled error may take in all: what went wrong may keep it from ever ending. */
const BROKEN_END_MS = 5_000;

/** What an unhandled error drains, and how long it is served meanwhile; nothing is open before. */
let opened: { readonly gateway: Gateway; readonly delayMs: number } | undefined;
let closing = false;
/** What accepts the connections of this process, where it is one of several. */
let parent: ParentLink | undefined;
/** Not 0 once there was an unhandled error, however the process was told to end. */
let exitCode = 0;

/** What started this process, and may want to know how it is. */
let manager: ServiceManager | undefined;

/** Drains and exits. */
function close(gateway: Gateway, patienceMs: number, delayMs = 0): void {
  closing = true;
  manager?.stopping();
  gateway.close(patienceMs, delayMs).then(() => process.exit(exitCode), end);
}

async function main(): Promise<void> {
  const config = readConfig();
  const handed = handedOf(process.argv);
  if (handed === undefined) warnOfUnknownSettings();
  if (handed === undefined && config.processes !== 1) return superviseProcesses(config);
  if (config.fast.has("collector")) collectBetweenSlices();
  parent = handed && new ParentLink(handed);
  // A parent of several has no use for any of it.
  const { openGateway } = await import("./app/gateway.ts");
  const gateway = await openGateway(config, parent);
  opened = { gateway, delayMs: config.drainDelayMs };
  if (parent !== undefined) return serveParent(parent, gateway, config);

  // Before anybody is told that it is ready, and may end it.
  const stop = (delayMs: number): void => (closing ? process.exit(1) : close(gateway, config.drainMs, delayMs)); // asked twice: at once
  process.on("SIGTERM", () => stop(config.drainDelayMs));
  // Who sits at the terminal waits for no balancer.
  process.on("SIGINT", () => stop(0));

  // Without a certificate it ends the process, as a terminal that goes means it to.
  if (config.tls !== undefined) process.on("SIGHUP", () => renewCertificate(gateway));
  for (const line of linesOf(gateway)) console.log(line);
  manager = openServiceManager(config.serviceManager, (text) => console.error(`limber: ${text}`));
  manager.ready();
  if (gateway.demo && gateway.url) {
    if (config.adminToken === undefined) console.log(`SERVICE_ADMIN_TOKEN=${gateway.demo.adminToken}`);
    console.log(`LIMBER_KEY=${gateway.demo.key}`);
    if (gateway.demo.natsUrl !== undefined) console.log(`NATS_URL=${gateway.demo.natsUrl}`);
    if (gateway.demo.signIn !== undefined) {
      const home = new URL(config.publicUrl ?? gateway.url).origin;
      console.log(`\nSign in, once and within an hour:\n${signInLink(home, gateway.demo.signIn)}`);
    }
    console.log(`\nTry it:\n${await firstCall(gateway.url, gateway.demo.key)}\n`);
  }
}

/** Several processes on the same ports; ends when all of them have. */
async function superviseProcesses(config: Config): Promise<void> {
  const { supervise } = await import("./app/processes/supervisor.ts");
  const log = pino({ level: config.logLevel }, pino.destination({ dest: 2, sync: true }));
  const manager = openServiceManager(config.serviceManager, (text) => log.warn(text));
  const begun = (lines: string): void => {
    console.log(lines);
    manager.ready();
  };
  process.exit(await supervise({ config, log, print: begun, ending: manager.stopping }));
}

/** One of several processes: ends when its parent says so, and when there is none any more. */
function serveParent(parent: ParentLink, gateway: Gateway, { drainMs }: Config): void {
  const drain = (delayMs: number, patienceMs: number): void => {
    if (!closing) close(gateway, patienceMs, delayMs);
  };
  parent.serve({ drain, orphaned: () => drain(0, drainMs) });
  parent.ready(linesOf(gateway));
}

/** What an operator is shown of a gateway that is ready. */
const linesOf = (gateway: Gateway): string[] => [
  `limber ready${gateway.url === undefined ? "" : ` ${gateway.url}`}`,
  ...gateway.otherUrls.map((url) => `also at ${url}`),
  ...(gateway.operationsPort === undefined ? [] : [`operations at port ${gateway.operationsPort}`]),
];

/** Reads the certificate again. One that can't be used leaves the old one. */
function renewCertificate(gateway: Gateway): void {
  try {
    const { tls } = readConfig();
    if (tls === undefined) throw new ConfigError(["TLS_CERT is not set any more"]);
    gateway.renew(tls);
    console.error("limber: the certificate was read again");
  } catch (thrown) {
    console.error(`limber: the certificate was not read again: ${thrown instanceof Error ? thrown.message : thrown}`);
  }
}

/** A limit of a misspelt name would hold nothing. */
function warnOfUnknownSettings(): void {
  const { unknown, known, prefix } = unknownSettings();
  // The prefix that all of them share says nothing of what was meant.
  const rests = known.filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length));
  for (const name of unknown) {
    const meant = nearest(name.slice(prefix.length), rests);
    console.error(`limber: ${name} is no setting${meant === undefined ? "" : `; the nearest is ${prefix}${meant}`}`);
  }
}

/** A curl command that works as pasted, with a picture in it. */
async function firstCall(url: string, key: string): Promise<string> {
  const { redSquare } = await import("./upstream/pictures/test-picture.ts");
  const picture = (await redSquare(0.7, 0.3, 64)).toString("base64");
  const body = {
    model: "service/auto",
    instruction: "reach the red square",
    observations: [{ frames: [{ camera: "wrist", url: `data:image/png;base64,${picture}` }] }],
  };
  return `curl -s ${url}/v1/act -H 'authorization: Bearer ${key}' -H 'content-type: application/json' -d '${JSON.stringify(body)}'`;
}

function end(thrown: unknown): never {
  const text = thrown instanceof Error ? thrown.message : String(thrown);
  for (const line of text.split("\n")) console.error(`limber: ${line}`);
  if (!(thrown instanceof ConfigError) && process.argv.includes("--trace") && thrown instanceof Error)
    console.error(thrown.stack);
  process.exit(1);
}

/** The message of an error and where it was made, in one line. */
function oneLine(thrown: unknown): string {
  const text = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
  return text
    .split("\n")
    .map((line) => line.trim())
    .slice(0, MOST_STACK_LINES)
    .join(" | ");
}

const MOST_STACK_LINES = 8;

// What is written down of a crash holds no environment, where secrets are, and nothing of an error but its message.
process.report.excludeEnv = true;
onUnhandledErrors(({ kind, error }, isFirst) => {
  console.error(`limber: ${kind}, a bug${isFirst ? ": the process drains and exits" : ""}: ${oneLine(error)}`);
  if (!isFirst) return;
  exitCode = 1;
  parent?.leaving();
  if (opened === undefined) process.exit(1);
  // The state of the process is no longer known: running calls end, and the supervisor starts a fresh process.
  const { gateway, delayMs } = opened;
  after(delayMs + BROKEN_PATIENCE_MS + BROKEN_END_MS, () => process.exit(1));
  if (!closing) close(gateway, BROKEN_PATIENCE_MS, delayMs);
});
main().catch(end);
