/** What a process does in the role of an API: the faces that callers know. */
import { hostname } from "node:os";
import type { Logger } from "pino";
import { InferenceService } from "../../gen/limber/v1/inference_service_pb.ts";
import type { Config } from "../config.ts";
import { serveGr00t } from "../edge/faces/gr00t.ts";
import { grpcCalls } from "../edge/faces/grpc.ts";
import type { Gate } from "../edge/gate.ts";
import { CallLines, type LogLine } from "../edge/log.ts";
import type { Metrics } from "../edge/metrics.ts";
import { buildServer } from "../edge/server.ts";
import type { Closers } from "./closers.ts";

/** What the faces need of the house. */
export interface FacesHouse {
  config: Config;
  gate: Gate;
  log: Logger;
  /** Where lines of the log are written. */
  logged: { write(text: string): unknown };
  metrics: Metrics;
  adminToken: string;
  ready(): boolean;
  closers: Closers;
}

/** The faces, listening. */
export interface Faces {
  readonly url: string;
  readonly gr00tPort: number | undefined;
  /** Takes no new connection, lets last words be written, and hangs up. */
  drain(): Promise<void>;
}

const MAX_MESSAGE_BYTES = 64 << 20;
/** What is still being written when no call runs any more, or when patience is over. */
const LAST_WORDS_MS = 100;

/** Opens the faces. */
export async function openFaces({
  config,
  gate,
  log,
  logged,
  metrics,
  adminToken,
  ready,
  closers,
}: FacesHouse): Promise<Faces> {
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
  const { act, actStream, predict, predictStream } = InferenceService.method;
  const hot = [act, actStream, predict, predictStream];
  const findTaker = grpcCalls({
    gate,
    methods: hot,
    maxMessageBytes: MAX_MESSAGE_BYTES,
    closing: closing.signal,
    log: note,
  });
  const server = buildServer({
    gate,
    readiness: ready,
    log: note,
    metrics: { metrics, adminToken, token: config.metricsToken },
    closing,
    port: { ...(config.tls && { tls: config.tls }), ...(config.grpcFastPath && { findTaker }) },
  });
  const port = await server.listen(config.host, config.port);
  const gr00t =
    config.gr00tPort === undefined
      ? undefined
      : await serveGr00t({ gate, log: note, host: config.host, port: config.gr00tPort });
  const host = config.host.includes(":") ? `[${config.host}]` : config.host;
  return {
    url: `${config.tls ? "https" : "http"}://${host}:${port}`,
    gr00tPort: gr00t?.port,
    async drain() {
      await Promise.all([server.drain(LAST_WORDS_MS), gr00t?.close()]);
    },
  };
}
