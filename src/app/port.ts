/** The port of a process: open before its database is there, so that probes hear that it lives and is not ready. */
import { BodyMemory } from "../edge/body-memory.ts";
import type { CallLog } from "../edge/call-log.ts";
import type { LoadShedder } from "../edge/gate/admission.ts";
import { type MetricSources, Metrics, type Standing } from "../edge/metrics.ts";
import type { Embodiment } from "../inference/embodiment.ts";
import type { AppContext } from "./context.ts";
import { LateGate } from "./late-gate.ts";
import { openTransports, type Transports } from "./transports.ts";
import { unhandledErrors } from "./unhandled.ts";

/** What the port serves once everything else is open. */
interface PortContent {
  readonly sources: Omit<MetricSources, "unhandledErrors" | "bodyBytes" | "load" | "standing"> & {
    storage(): Pick<Standing, "isDatabaseUp" | "doEventsWait">;
  };
  readonly adminToken: string;
  isReady(): boolean;
  embodimentOf(model: string): Embodiment | undefined;
  /** Puts calls on record that no bill does. */
  record: CallLog;
}

/** The port, listening. */
export interface OpenedPort {
  readonly transports: Transports;
  /** Refuses every call but health until it is opened. */
  readonly gate: LateGate;
  /** From now on metrics and readiness show this. */
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
      // What was never reached does not answer.
      isDatabaseUp: content?.sources.storage().isDatabaseUp ?? false,
      doEventsWait: content?.sources.storage().doEventsWait ?? false,
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
