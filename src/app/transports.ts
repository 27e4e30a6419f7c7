/** What a process does in the role of an API: the transports that callers know. */

import { hostname, networkInterfaces } from "node:os";
import type { Logger } from "pino";
import type { Config } from "../config.ts";
import type { BodyMemory } from "../edge/body-memory.ts";
import { CallLines, type LogLine } from "../edge/call-log.ts";
import { buildServer } from "../edge/edge.ts";
import { chargedAs, proxiesOf } from "../edge/gate/caller-address.ts";
import type { Gate } from "../edge/gate/gate.ts";
import type { Metrics } from "../edge/metrics.ts";
import { serveOperations } from "../edge/operations.ts";
import { serveGr00t } from "../edge/transports/gr00t/gr00t.ts";
import { fastPort } from "../fast/install.ts";
import type { Embodiment } from "../inference/embodiment.ts";
import type { Closers } from "./closers.ts";
import { SERVICES } from "./services.ts";

/** What the transports depend on. */
export interface TransportsDeps {
  config: Config;
  gate: Gate;
  log: Logger;
  /** Where lines of the log are written. */
  logged: { write(text: string): unknown };
  metrics: Metrics;
  memory: BodyMemory;
  adminToken(): string | undefined;
  ready(): boolean;
  embodimentOf(model: string): Embodiment | undefined;
  closers: Closers;
}

/** The transports, listening. */
export interface Transports {
  readonly url: string;
  /** Where else they listen, where the host stands for every address of the machine. */
  readonly otherUrls: readonly string[];
  readonly gr00tPort: number | undefined;
  readonly operationsPort: number | undefined;
  /** Asks every peer to send its next request on another connection. Everything is served as before. */
  leave(): void;
  /**
   * Takes no new connection, lets what runs end for `patienceMs`, or until shortly after `enough` resolves, and hangs up. Calling it
   * twice is calling it once.
   */
  drain(patienceMs: number, enough?: Promise<unknown>): Promise<void>;
}

/** Opens the transports. */
export async function openTransports({
  config,
  gate,
  log,
  logged,
  metrics,
  memory,
  adminToken,
  ready,
  embodimentOf,
  closers,
}: TransportsDeps): Promise<Transports> {
  const closing = new AbortController();
  const lines = new CallLines((text) => logged.write(text), { pid: process.pid, hostname: hostname() });
  closers.add(async () => lines.close());
  const note = (line: LogLine): void => {
    metrics.count(line);
    if (line.status >= 500 && line.cause !== undefined) {
      const { cause, ...told } = line;
      log.error({ ...told, err: cause }, "call");
    } else if (log.isLevelEnabled("info")) lines.add(line);
  };
  const proxies = proxiesOf(config.trustedProxies);
  const metricsAccess = { metrics, adminToken, token: config.metricsToken };
  const { host, tls } = config;
  const operations =
    config.operationsPort === undefined
      ? undefined
      : await serveOperations({
          gate,
          log: note,
          memory,
          closing: closing.signal,
          metrics: metricsAccess,
          host,
          port: config.operationsPort,
          tls,
        });
  if (operations) closers.add(() => operations.close());
  const server = buildServer({
    services: SERVICES,
    gate,
    readiness: ready,
    log: note,
    memory,
    metrics: metricsAccess,
    closing,
    port: {
      maxConnections: config.maxConnections,
      ...(config.tls && { tls: config.tls }),
      ...fastPort(config.fast, { gate, memory, closing: closing.signal, log: note }),
      chargedAs: (address) => chargedAs(address, proxies),
    },
  });
  const port = await server.listen(config.host, config.port);
  const gr00t =
    config.gr00tPort === undefined
      ? undefined
      : await serveGr00t({
          gate,
          log: note,
          memory,
          host: config.host,
          port: config.gr00tPort,
          model: config.gr00tModel,
          embodimentOf,
        });
  const [url = "", ...otherUrls] = hostsOf(config.host).map((host) => {
    const written = host.includes(":") ? `[${host}]` : host;
    return `${config.tls ? "https" : "http"}://${written}:${port}`;
  });
  let drained: Promise<void> | undefined;
  return {
    url,
    otherUrls,
    gr00tPort: gr00t?.port,
    operationsPort: operations?.port,
    leave: () => server.leave(),
    drain(patienceMs, enough) {
      drained ??= Promise.all([server.drain(patienceMs, enough), gr00t?.close(patienceMs)]).then(() => {});
      return drained;
    },
  };
}

/** The hosts by which callers reach it: of one that stands for all of the machine's addresses loopback first, which is always there. */
function hostsOf(host: string): string[] {
  if (host !== "0.0.0.0" && host !== "::") return [host];
  const addresses = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const others = addresses
    .filter(({ internal, family, scopeid }) => !internal && !scopeid && (host === "::" || family === "IPv4"))
    .map(({ address }) => address);
  return ["127.0.0.1", ...new Set(others)];
}
