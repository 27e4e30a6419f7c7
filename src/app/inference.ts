/** Inference: control loops and their resumption, sessions, presets, own keys at providers, and emergency stops. */
import type { InferenceService } from "../../gen/limber/v1/inference_service_pb.ts";
import type { Implementation } from "../call.ts";
import { after } from "../clock.ts";
import { GossipTransport } from "../events/gossip-transport.ts";
import { StopTransport } from "../events/stop-transport.ts";
import { AttendedRobots } from "../inference/armed/attended.ts";
import type { InferenceServiceDeps } from "../inference/call.ts";
import { LiveLoops } from "../inference/loops/live-loops.ts";
import { LoopRegistry } from "../inference/loops/loop-registry.ts";
import { Resumption } from "../inference/loops/resumption.ts";
import { OwnKeyCache } from "../inference/own-keys.ts";
import { PlanDigests } from "../inference/plan-digests.ts";
import { PresetCache } from "../inference/presets.ts";
import { Sessions } from "../inference/sessions.ts";
import { ActiveStops } from "../inference/stops/active-stops.ts";
import { StopOrders } from "../inference/stops/stop-orders.ts";
import { inferenceService } from "../services/inference.ts";
import { writeStop } from "../services/robot.ts";
import { keepDigests } from "../store/events/plan-digests.ts";
import { livingReplicas } from "../store/replicas/replicas.ts";
import { Wakes } from "../supply/wakes.ts";
import type { Billing } from "./billing.ts";
import type { AppContext } from "./context.ts";
import type { Events } from "./events.ts";
import { openReplicaLine, patiently, type Storage } from "./storage.ts";
import type { OpenedSupply } from "./supply.ts";
import type { OpenedUpstream } from "./upstream.ts";

/** Inference, opened. */
export interface Inference {
  /** The inference RPCs. */
  readonly service: Implementation<typeof InferenceService>;
  readonly loops: LoopRegistry;
  /** The loops of all replicas, for those who watch. */
  readonly liveLoops: LiveLoops;
  readonly sessions: Sessions;
  readonly presets: PresetCache;
  readonly ownKeys: OwnKeyCache;
  readonly stops: ActiveStops;
  readonly stopOrders: StopOrders;
  /** The robots that wait here for runs of agents. */
  readonly robots: AttendedRobots;
}

/** The subsystems that inference is opened over. */
interface InferenceBase {
  readonly storage: Storage;
  readonly billing: Billing;
  readonly supply: OpenedSupply;
  readonly outward: OpenedUpstream;
  readonly events: Events;
}

/** Opens inference. Emergency stops are known when it resolves: no robot moves before. */
export async function openInference(
  { config, log, replica, closers }: AppContext,
  { storage, billing, supply: { supply, evaluated }, outward: { agent, allowPrivate }, events }: InferenceBase,
): Promise<Inference> {
  const { sql, notifications, natsUrl, replicaLine, vault } = storage;
  const sessions = new Sessions(sql, notifications);
  closers.add(() => sessions.close());
  const loops = new LoopRegistry((summary) => log.info(summary, "loop"));
  closers.add(async () => loops.close());
  const loopTransport = new GossipTransport({
    topic: "loops",
    ...{ sql, notifications, replicaLine },
    hear: (message) => liveLoops.hear(message),
  });
  // The embedded database has one process at a time.
  const others = async (): Promise<string[]> =>
    config.databaseUrl === undefined ? [] : (await livingReplicas(sql)).filter((name) => name !== replica);
  const liveLoops: LiveLoops = new LiveLoops({ replica, loops, sender: loopTransport, others });
  closers.add(async () => loopTransport.close());
  closers.add(async () => liveLoops.close());
  const resumption = new Resumption({ sql, notifications, vault }, loops);
  closers.add(async () => resumption.close());

  const stops = new ActiveStops(sql, notifications, after);
  closers.add(async () => stops.close());
  const stopOrders: StopOrders = new StopOrders({
    stops,
    replica,
    write: (order) => writeStop(sql, order),
    tell: (order) => stopTransport.tell(order),
    warn: (text, cause) => log.error({ err: cause }, text),
  });
  const stopLine = openReplicaLine({ log, closers }, natsUrl, false);
  const stopTransport = new StopTransport({ line: stopLine, replica, hear: (order) => stopOrders.hear(order) });
  closers.add(async () => stopTransport.close());
  closers.add(async () => stopOrders.close());
  await patiently(log, () => stops.load());
  loops.obey(stops);
  const warn = (text: string, cause: unknown): void => log.warn({ err: cause }, text);
  const robots = new AttendedRobots({ sql, notifications, stops, warn });
  closers.add(async () => robots.close());

  const presets = new PresetCache(sql, notifications);
  closers.add(async () => presets.close());
  const ownKeys = new OwnKeyCache(sql, notifications, vault);
  closers.add(async () => ownKeys.close());
  const digests = new PlanDigests((kept) => keepDigests(sql, kept));
  closers.add(() => digests.close());
  const deps: InferenceServiceDeps = {
    supply,
    evaluated,
    leaser: billing.leaser,
    loops,
    resumption,
    stops,
    agent,
    allowPrivate,
    presets,
    ownKeys,
    sessions,
    wakes: new Wakes(sql, supply.health),
    digests,
    broadcast: events.broadcaster,
    unpaid: (reason, key) => billing.alerts.unpaid(reason, key),
  };
  return { service: inferenceService(deps), loops, liveLoops, sessions, presets, ownKeys, stops, stopOrders, robots };
}
