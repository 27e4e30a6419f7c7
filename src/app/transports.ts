/** The ports of a process: the API transports if it has the API role, and the operations port in any role. */

import { X509Certificate } from "node:crypto";
import { hostname, networkInterfaces } from "node:os";
import type { Logger } from "pino";
import { type CertificatePair, type Config, ConfigError } from "../config.ts";
import { BodyMemory } from "../edge/body-memory.ts";
import { CallLines, type CallLog, type LogLine } from "../edge/call-log.ts";
import { buildServer, type EdgeServer } from "../edge/edge.ts";
import type { LoadShedder } from "../edge/gate/admission.ts";
import { chargedAs, proxiesOf } from "../edge/gate/authenticate.ts";
import type { Gate } from "../edge/gate/gate.ts";
import { explainAt } from "../edge/messages/errors.ts";
import { type MetricSources, Metrics, type Standing } from "../edge/metrics.ts";
import { serveOperations } from "../edge/operations.ts";
import { serveGr00t } from "../edge/transports/gr00t/gr00t.ts";
import type { Embodiment } from "../inference/robot-check.ts";
import type { AppContext, Closers } from "./context.ts";
import { LateGate } from "./gate.ts";
import { unhandledErrors } from "./process.ts";
import { SERVICES } from "./services.ts";

/** The dependencies of the transports. */
interface TransportsDeps {
  config: Config;
  gate: Gate;
  load: LoadShedder;
  log: Logger;
  /** Where log lines are written. */
  logged: { write(text: string): unknown };
  metrics: Metrics;
  memory: BodyMemory;
  adminToken(): string | undefined;
  ready(): boolean;
  embodimentOf(model: string): Embodiment | undefined;
  /** Receives the end of every call. */
  record: CallLog;
  closers: Closers;
}

/** The listening transports. */
export interface Transports {
  /** Undefined if the process serves no calls. */
  readonly url: string | undefined;
  /** Further addresses, if the host stands for every address of the machine. */
  readonly otherUrls: readonly string[];
  readonly gr00tPort: number | undefined;
  readonly operationsPort: number | undefined;
  /** Returns the number of open connections on the API port. */
  connections(): Promise<number>;
  /** Stops accepting connections, so that other processes on the same ports get them. */
  refuseConnections(): void;
  /** When the certificate expires, in unix seconds; undefined without TLS. */
  readonly certificateEnds: number | undefined;
  /** Replaces the certificate for new connections. Throws if TLS is off or the certificate is invalid. */
  renew(tls: CertificatePair): void;
  /** Reports not ready, and asks every client to use another connection for its next request. Everything is still served. */
  leave(): void;
  /**
   * Accepts no new connections, waits for running calls up to `patienceMs`, or until shortly after `enough` resolves, and closes all connections.
   * Idle connections stay open for `idleMs`, and close with their next response. Idempotent.
   */
  drain(patienceMs: number, enough?: Promise<unknown>, idleMs?: number): Promise<void>;
}

/** Opens the transports. */
async function openTransports(deps: TransportsDeps): Promise<Transports> {
  const { config, gate, load, log, logged, metrics, memory, adminToken, ready, embodimentOf, record, closers } = deps;
  const closing = new AbortController();
  const lines = new CallLines((text) => logged.write(text), { pid: process.pid, hostname: hostname() });
  closers.add(async () => lines.close());
  const note = (line: LogLine): void => {
    metrics.count(line);
    record(line);
    if (line.status >= 500 && line.cause !== undefined) {
      const { cause, trail: _, ...told } = line;
      log.error({ ...told, err: cause }, "call");
    } else if (log.isLevelEnabled("info")) lines.add(line);
  };
  const { host, tls, operationsPort, gr00tPort } = config;
  const access = { metrics, adminToken, token: config.metricsToken };
  const common = { gate, log: note, memory, closing: closing.signal };
  const operations =
    operationsPort === undefined
      ? undefined
      : await naming({ setting: "LIMBER_OPERATIONS_PORT", host, port: operationsPort }, () =>
          serveOperations({
            ...common,
            metrics: access,
            isBusy: () => load.isBusy,
            host,
            port: operationsPort,
            tls,
          }),
        );
  if (operations) closers.add(() => operations.close());
  let certificate = tls;
  const renew = (renewed: CertificatePair): void => {
    if (certificate === undefined)
      throw new ConfigError(["TLS_CERT was not set when this process started; restart the gateway"]);
    certificate = renewed;
    server?.renew(renewed);
    operations?.renew(renewed);
  };
  let server: EdgeServer | undefined;
  if (!config.roles.has("api")) {
    return {
      url: undefined,
      otherUrls: [],
      gr00tPort: undefined,
      operationsPort: operations?.port,
      connections: async () => 0,
      refuseConnections: () => undefined,
      get certificateEnds() {
        return endOf(certificate);
      },
      renew,
      leave: () => undefined,
      drain: async () => {},
    };
  }

  const proxies = proxiesOf(config.trustedProxies);
  const charged = (address: string): string | undefined => chargedAs(address, proxies);
  const edge = buildServer({
    services: SERVICES,
    gate,
    readiness: ready,
    log: note,
    memory,
    metrics: access,
    publicUrl: config.publicUrl,
    directUrl: config.directUrl,
    closing,
    corsOrigins: config.corsOrigins,
    port: {
      maxConnections: config.maxConnections,
      ...(tls && { tls }),
      chargedAs: charged,
    },
  });
  server = edge;
  const port = await naming({ setting: "PORT", host, port: config.port }, () => edge.listen(host, config.port));
  explainAt(config.publicUrl ?? addressesOf(config, port)[0]!);
  const gr00t =
    gr00tPort === undefined
      ? undefined
      : await naming({ setting: "LIMBER_GR00T_PORT", host, port: gr00tPort }, () =>
          serveGr00t({
            gate,
            log: note,
            memory,
            host,
            port: gr00tPort,
            model: config.gr00tModel,
            embodimentOf,
            chargedAs: charged,
          }),
        );
  const [url = "", ...otherUrls] = addressesOf(config, port);
  let drained: Promise<void> | undefined;
  return {
    url,
    otherUrls,
    gr00tPort: gr00t?.port,
    operationsPort: operations?.port,
    connections: () => edge.connections(),
    refuseConnections() {
      edge.refuseConnections();
      gr00t?.refuseConnections();
    },
    get certificateEnds() {
      return endOf(certificate);
    },
    renew,
    leave: () => edge.leave(),
    drain(patienceMs, enough, idleMs) {
      drained ??= Promise.all([edge.drain(patienceMs, enough, idleMs), gr00t?.close(patienceMs, idleMs)]).then(
        () => {},
      );
      return drained;
    },
  };
}

const endOf = (pair: CertificatePair | undefined): number | undefined =>
  pair && Math.floor(new X509Certificate(pair.cert).validToDate.getTime() / 1000);

const addressesOf = ({ host, tls }: Config, port: number): string[] =>
  hostsOf(host).map((each) => `${tls ? "https" : "http"}://${each.includes(":") ? `[${each}]` : each}:${port}`);

/** The host names under which it is reachable; for a wildcard address, loopback comes first, because it always exists. */
function hostsOf(host: string): string[] {
  if (host !== "0.0.0.0" && host !== "::") return [host];
  const addresses = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const others = addresses
    .filter(({ internal, family, scopeid }) => !internal && !scopeid && (host === "::" || family === "IPv4"))
    .map(({ address }) => address);
  return ["127.0.0.1", ...new Set(others)];
}

/** What the port serves once everything is open. */
interface PortContent {
  readonly sources: Omit<MetricSources, "unhandledErrors" | "bodyBytes" | "load" | "standing"> & {
    storage(): Pick<Standing, "isDatabaseUp" | "doEventsWait" | "historyAheadDays" | "archiveFailures">;
  };
  readonly adminToken: string;
  isReady(): boolean;
  embodimentOf(model: string): Embodiment | undefined;
  /** Records calls that have no charge. */
  record: CallLog;
}

/** The listening port. */
export interface OpenedPort {
  readonly transports: Transports;
  /** Refuses every call except health checks until it is opened. */
  readonly gate: LateGate;
  /** From now on, metrics and readiness report this. */
  fill(content: PortContent): void;
}

/** Opens the port. */
export async function openPort(
  { config, log, closers, member }: AppContext,
  logLines: { write(text: string): unknown },
  load: LoadShedder,
): Promise<OpenedPort> {
  let content: PortContent | undefined;
  let transports: Transports | undefined;
  const memory = new BodyMemory(config.bodyMemory);
  const metrics = new Metrics({
    standing: () => ({
      isReady: content?.isReady() ?? false,
      // A component that was not opened yet has nothing to report.
      isDatabaseUp: content?.sources.storage().isDatabaseUp ?? false,
      doEventsWait: content?.sources.storage().doEventsWait ?? false,
      historyAheadDays: content?.sources.storage().historyAheadDays,
      archiveFailures: content?.sources.storage().archiveFailures ?? 0,
      certificateEnds: transports?.certificateEnds,
    }),
    offerings: () => content?.sources.offerings() ?? [],
    loops: () => content?.sources.loops() ?? { open: 0, offerings: [], sessions: [] },
    leaser: () => content?.sources.leaser() ?? { leases: 0, idleMicro: 0, promisedMicro: 0, running: 0, waiting: 0 },
    callsRunning: () => content?.sources.callsRunning() ?? 0,
    undecidedPayments: () => content?.sources.undecidedPayments() ?? 0,
    unhandledErrors,
    bodyBytes: () => memory.held,
    load: () => load.figures,
  });
  closers.add(async () => metrics.close());
  member?.serve({ measure: () => metrics.parts() });
  if (member) metrics.join(member.name, () => member.metrics());
  const gate = new LateGate();
  transports = await openTransports({
    config,
    gate,
    load,
    log,
    logged: logLines,
    metrics,
    memory,
    adminToken: () => content?.adminToken ?? config.adminToken,
    ready: () => content?.isReady() ?? false,
    embodimentOf: (model) => content?.embodimentOf(model),
    record: (line) => content?.record(line),
    closers,
  });
  const opened = transports;
  closers.add(() => opened.drain(0));
  member?.serve({ connections: opened.connections, refuseConnections: opened.refuseConnections });
  return {
    transports: opened,
    gate,
    fill(filled) {
      content = filled;
    },
  };
}

/** Why listening on an address failed, by the error's code. */
const PORT_FAULTS: Readonly<Record<string, string>> = {
  EADDRINUSE: "the port is already in use",
  EACCES: "this user is not allowed to listen on the port",
};
const HOST_FAULTS: Readonly<Record<string, string>> = {
  EADDRNOTAVAIL: "this machine does not have the address",
  ENOTFOUND: "the host name does not resolve",
  EAI_AGAIN: "the DNS servers do not respond",
  EINVAL: "this machine does not have the address",
};

/** Listens; system errors become a `ConfigError` that names the setting. */
async function naming<T>(at: { setting: string; host: string; port: number }, listen: () => Promise<T>): Promise<T> {
  try {
    return await listen();
  } catch (cause) {
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
    const ofHost = HOST_FAULTS[code];
    if (ofHost !== undefined) throw new ConfigError([`cannot listen on HOST ${at.host}: ${ofHost}`]);
    const ofPort = PORT_FAULTS[code];
    if (ofPort !== undefined)
      throw new ConfigError([`cannot listen on ${at.setting} ${at.port} of ${at.host}: ${ofPort}`]);
    throw cause;
  }
}
