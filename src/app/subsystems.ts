/** Opens the subsystems of a process: billing, upstream, events, supply, inference. */

import type { Logger } from "pino";
import type { InferenceService } from "../../gen/limber/v1/inference_service_pb.ts";
import { CreditLeaser } from "../billing/credit-leaser.ts";
import { type Processor, stripeProcessor } from "../billing/payments.ts";
import type { Implementation } from "../call.ts";
import { after, every, nowSeconds, steadyNow } from "../clock.ts";
import type { OfferingSample } from "../edge/metrics.ts";
import { Broadcaster, type EventExporterDeps } from "../events/broadcaster.ts";
import { EventBell } from "../events/emit.ts";
import { type Mailer, openMailer } from "../events/mail.ts";
import { GossipTransport, StopTransport } from "../events/nats/replicas.ts";
import { AttendedRobots } from "../inference/armed.ts";
import type { InferenceServiceDeps } from "../inference/call.ts";
import type { Leaser } from "../inference/call-billing.ts";
import { LiveLoops } from "../inference/control-loop/live-loops.ts";
import { LoopDetails } from "../inference/control-loop/loop-details.ts";
import { LoopRegistry } from "../inference/control-loop/loop-registry.ts";
import { Resumption } from "../inference/control-loop/resumption.ts";
import { PlanDigests } from "../inference/plan-digests.ts";
import { OwnKeyCache, PresetCache } from "../inference/prepare.ts";
import { Sessions } from "../inference/sessions.ts";
import { ActiveStops, StopOrders } from "../inference/stops.ts";
import { triedSpaces } from "../scenarios/index.ts";
import type { Scenario } from "../scenarios/scenario.ts";
import { BalanceAlerts } from "../services/billing.ts";
import { headersOf } from "../services/broadcast.ts";
import { inferenceService } from "../services/inference.ts";
import { queryPendingPayments } from "../services/payments.ts";
import { writeStop } from "../services/robot.ts";
import { inSlices, pause } from "../slices.ts";
import { addUpServed } from "../store/billing/earnings.ts";
import { Claims } from "../store/billing/idempotency.ts";
import { Ledger } from "../store/billing/ledger.ts";
import { MOST_AT_ONE_HOOK } from "../store/events/webhooks.ts";
import { keepDigests } from "../store/history/logs.ts";
import { addTroubles, addUpSeries, loadLatencies, loadUptimes, putMinutes, rollUp } from "../store/history/series.ts";
import { measuredResults } from "../store/jobs/publications.ts";
import { livingReplicas, releaseServer, takeServer } from "../store/replicas/replicas.ts";
import { loadCatalog } from "../store/supply/catalog.ts";
import { SupplyReader } from "../store/supply/supply-reader.ts";
import { SupplyOpener } from "../supply/facts.ts";
import { dividing, LiveSupply, provenProviders, SupplyLoader } from "../supply/live-supply.ts";
import { COUNTED_DIGESTS, measuredQuality } from "../supply/measured.ts";
import { Prober } from "../supply/prober.ts";
import { Registry } from "../supply/registry/registry.ts";
import { ReplicaRelay } from "../supply/replica-relay.ts";
import { Circuits, Gossip, Rollup, Troubles, Wakes } from "../supply/shared-health.ts";
import { createUpstream, type Upstream } from "../upstream/index.ts";
import { openOtlp } from "../upstream/post.ts";
import { guardedAgent, guardedLookup } from "../upstream/transport/guard.ts";
import type { AppContext, Closers } from "./context.ts";
import { openReplicaLine, type Storage, whenDatabaseAnswers } from "./storage.ts";

/** Billing, opened. */
export interface Billing {
  readonly leaser: Leaser;
  /** Undefined if no payment processor is configured. */
  readonly processor: Processor | undefined;
  readonly alerts: BalanceAlerts;
  /** Claims of idempotency keys. */
  readonly claims: Claims;
  /** Reports faults that the operator should know. */
  warn(text: string): void;
  /** Logs at level error, and counts in `/metrics`, what needs the operator's decision. */
  alert(text: string): void;
  /** The number of such faults in this process. */
  undecidedPayments(): number;
  /** Queries the payment processor about payments without a report; undefined without a processor. */
  readonly queryPendingPayments: (() => Promise<unknown>) | undefined;
}

/** Opens billing: recovers this replica's predecessors, then leases credit. Waits while the database is unavailable. */
export async function openBilling(
  { config, log, replica, closers }: AppContext,
  { sql, line, notifications }: Storage,
): Promise<Billing> {
  // The embedded database has one process at a time, so it is the same replica at each start.
  const ledger = new Ledger({ sql, line, notifications, replica: config.databaseUrl ? replica : "embedded" });
  const ledgerLog = {
    warn: (text: string, cause: unknown) => log.warn({ err: cause }, text),
    error: (text: string, cause: unknown) => log.error({ err: cause }, text),
  };
  const leaser: Leaser = await whenDatabaseAnswers(log, () => CreditLeaser.open(ledger, ledgerLog));
  closers.add(() => leaser.close());
  const warn = (text: string): void => log.warn(text);
  let undecided = 0;
  const alert = (text: string): void => {
    undecided += 1;
    log.error(text);
  };
  const alerts = new BalanceAlerts({ sql, notifications, warn });
  closers.add(() => alerts.close());
  const claims = new Claims(sql);
  closers.add(async () => claims.close());
  const { secretKey, webhookSecret, apiBase } = config.stripe;
  const processor = secretKey === undefined ? undefined : stripeProcessor({ secretKey, webhookSecret, apiBase });
  return {
    leaser,
    processor,
    alerts,
    claims,
    warn,
    alert,
    undecidedPayments: () => undecided,
    queryPendingPayments: processor && (() => queryPendingPayments({ sql, leaser, warn, alert, processor })),
  };
}

/** The timeout of event receivers, in milliseconds. */
export const HOOK_MS = 10_000;

/** Outbound connections. */
export interface OpenedUpstream {
  readonly upstream: Upstream;
  /** Fetches URLs that callers and providers supply. */
  readonly agent: ReturnType<typeof guardedAgent>;
  /** Posts events and spans to receivers. */
  readonly hookAgent: ReturnType<typeof guardedAgent>;
  /** Servers that are connected to other replicas. */
  readonly relay: ReplicaRelay;
  readonly allowPrivate: boolean;
  /** Addresses of the reference provider, which the guard allows. */
  readonly own: Set<string>;
}

/** Opens outbound connections. */
export function openUpstream(
  { config, log, replica, closers, member }: AppContext,
  { sql, notifications, replicaLine }: Storage,
): OpenedUpstream {
  const { allowPrivateAddresses: allowPrivate, dnsServers } = config;
  const guard = { allowPrivate, dnsServers };
  const agent = guardedAgent(guard);
  closers.add(() => agent.destroy());
  const hookAgent = guardedAgent(guard, { silenceMs: HOOK_MS, connections: MOST_AT_ONE_HOOK });
  closers.add(() => hookAgent.destroy());
  const own = new Set<string>(member?.own);
  const upstream = createUpstream(
    { ...guard, own },
    {
      take: (server, session, runMs) => takeServer(sql, { server, session, runMs, taker: replica }),
      release: (server, released) => releaseServer(sql, { server, ...released }),
    },
  );
  closers.add(() => upstream.close());
  const { hub } = upstream;
  const relay = new ReplicaRelay({ sql, notifications, hub, replica, replicaLine, warn: (text) => log.warn(text) });
  closers.add(() => relay.close());
  return { upstream, agent, hookAgent, relay, allowPrivate, own };
}

/** Events, opened. */
export interface Events {
  readonly broadcaster: Broadcaster;
  /** Wakes the event senders when events were written. */
  readonly bell: EventBell;
  /** The connection to span receivers. */
  readonly reach: Parameters<typeof openOtlp>[0];
  readonly openTarget: EventExporterDeps["open"];
  /** Sends mail; undefined if no mail server is configured. */
  readonly mailer: Mailer | undefined;
}

/** Opens events. */
export function openEvents(
  { config, log, closers }: AppContext,
  { sql, notifications, vault }: Storage,
  { hookAgent, allowPrivate }: OpenedUpstream,
): Events {
  const reach = {
    agent: hookAgent,
    lookup: guardedLookup({ allowPrivate, dnsServers: config.dnsServers }),
    allowPrivate,
  };
  const openTarget: EventExporterDeps["open"] = (target) =>
    openOtlp(reach, { ...target, headers: headersOf(vault, target) });
  const broadcaster = new Broadcaster({
    sql,
    notifications,
    open: openTarget,
    warn: (text, cause) => log.warn({ err: cause }, text),
  });
  closers.add(() => broadcaster.close());
  const bell = new EventBell(notifications);
  closers.add(async () => bell.close());
  const mailer = config.mail && openMailer(config.mail.url, config.mail.from);
  closers.add(async () => mailer?.close());
  return { broadcaster, bell, mailer, reach, openTarget };
}

/** The interval at which idle statistics are aged. */
const AGE_MS = 5_000;
/** The interval at which replicas exchange measurements. */
const GOSSIP_MS = 1_000;
/** The interval at which offering statistics are stored; a crash loses no more than this. */
const ROLL_MS = 10_000;

/** The dependencies of supply. */
interface OpenSupplyDeps extends Pick<Storage, "sql" | "notifications" | "replicaLine" | "vault"> {
  /** The unique name of this process. */
  replica: string;
  outward: Pick<OpenedUpstream, "upstream" | "agent" | "allowPrivate">;
  scenarios: ReadonlyMap<string, Scenario>;
  log: Logger;
  closers: Closers;
}

/** The supply that this process routes to. */
export interface OpenedSupply {
  supply: LiveSupply;
  registry: Registry;
  /** Loads it again. */
  loader: SupplyLoader;
  rollup: Rollup;
  troubles: Troubles;
  /** Action spaces that have a scenario. */
  evaluated: ReadonlySet<string>;
}

/** Opens supply, empty until `loader` loads: the offerings, their health, and measurements of other replicas. */
export function openSupply({
  sql,
  notifications,
  replicaLine,
  vault,
  replica,
  outward,
  scenarios,
  log,
  closers,
}: OpenSupplyDeps): OpenedSupply {
  const { upstream, agent, allowPrivate } = outward;
  const supply = new LiveSupply(upstream);
  const prober = new Prober(supply, { agent, allowPrivate, native: upstream.native });
  closers.add(() => prober.close());
  const registry = new Registry(supply, scenarios.values());
  const circuits = new Circuits({ sql, notifications, health: supply.health, warn: (text) => log.warn(text) });
  closers.add(() => circuits.close());
  const reader = new SupplyReader(sql);
  const evaluated = triedSpaces(scenarios.values());
  const opener = new SupplyOpener({ vault, upstream, evaluated, log: (text) => log.error(text) });
  const warn = (text: string, cause: unknown): void => log.error({ err: cause }, text);
  const loader = new SupplyLoader(async () => {
    const [all, catalog, results] = await Promise.all([
      reader.read(),
      loadCatalog(sql, registry.catalog),
      measuredResults(sql, COUNTED_DIGESTS),
    ]);
    const { open, own } = await inSlices(dividing(all), pause);
    await inSlices(supply.adopting(await inSlices(opener.facts(open, measuredQuality(results)), pause), own), pause);
    await circuits.refresh();
    const providers = await inSlices(provenProviders(all), pause);
    await inSlices(registry.adopting({ ...open, providers }, catalog), pause);
  }, warn);
  closers.add(async () => loader.close());

  const ageing = every(AGE_MS, () => void inSlices(supply.health.age(steadyNow())));
  closers.add(async () => ageing());

  const rollup = new Rollup(supply.health, {
    put: (records) => putMinutes(sql, replica, records),
    rollUp: async (minute) => {
      const rolled = await rollUp(sql, minute);
      // The replica that does the rollup also adds up earnings and series.
      if (rolled) await Promise.all([addUpServed(sql), addUpSeries(sql)]);
      return rolled;
    },
    uptimes: () => loadUptimes(sql, Math.floor(nowSeconds() / 3600)),
    latencies: (minute) => loadLatencies(sql, minute),
  });
  const troubles = new Troubles((records) => addTroubles(sql, records));
  supply.health.onTrouble = troubles.note;
  const rolling = every(ROLL_MS, () => {
    void rollup.tick().catch((error) => log.warn({ err: error }, "rollup failed"));
    void troubles.write().catch((error) => log.warn({ err: error }, "offering failures could not be written"));
  });
  closers.add(async () => {
    rolling();
    await Promise.all([rollup.tick(), troubles.write()].map((written) => written.catch(() => {})));
  });

  const gossip = new Gossip(replica, supply.health);
  const gossipTransport = new GossipTransport({
    topic: "gossip",
    ...{ sql, notifications, replicaLine },
    hear: (message) => gossip.hear(message),
  });
  closers.add(async () => gossipTransport.close());
  const gossiping = every(GOSSIP_MS, () => void gossip.tell(gossipTransport));
  closers.add(async () => gossiping());
  return { supply, registry, loader, rollup, troubles, evaluated };
}

/** Metrics of live supply. */
export function* samplesOf({ health }: LiveSupply): Iterable<OfferingSample> {
  const at = steadyNow();
  for (const { offering, breaker, p50Ms, p95Ms, p99Ms } of health.figures(at)) {
    if (offering.simulated) continue;
    const { id, provider, model } = offering;
    const { calls = 0, failures = 0 } = health.tell(id, at)?.tally ?? {};
    yield { offering: id, provider, model, breaker: breaker.state, attempts: calls, failures, p50Ms, p95Ms, p99Ms };
  }
}

/** Inference, opened. */
export interface Inference {
  /** The inference RPCs. */
  readonly service: Implementation<typeof InferenceService>;
  readonly loops: LoopRegistry;
  /** The loops of all replicas, for watching. */
  readonly liveLoops: LiveLoops;
  /** The chunks and pictures of watched loops. */
  readonly loopDetails: LoopDetails;
  readonly sessions: Sessions;
  readonly presets: PresetCache;
  readonly ownKeys: OwnKeyCache;
  readonly stops: ActiveStops;
  readonly stopOrders: StopOrders;
  /** The robots that wait on this replica for agents' runs. */
  readonly robots: AttendedRobots;
}

/** The dependencies of inference. */
interface InferenceBase {
  readonly storage: Storage;
  readonly billing: Billing;
  readonly supply: OpenedSupply;
  readonly outward: OpenedUpstream;
  readonly events: Events;
}

/** Opens inference. Emergency stops are loaded when it resolves, before any robot moves. */
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
  // The embedded database has only one process at a time.
  const others = async (): Promise<string[]> =>
    config.databaseUrl === undefined ? [] : (await livingReplicas(sql)).filter((name) => name !== replica);
  const liveLoops: LiveLoops = new LiveLoops({ replica, loops, sender: loopTransport, others });
  const detailTransport = new GossipTransport({
    topic: "loop_details",
    ...{ sql, notifications, replicaLine },
    hear: (message) => loopDetails.hear(message),
  });
  const loopDetails: LoopDetails = new LoopDetails({ replica, loops, sender: detailTransport });
  closers.add(async () => loopTransport.close());
  closers.add(async () => liveLoops.close());
  closers.add(async () => detailTransport.close());
  closers.add(async () => loopDetails.close());
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
  await whenDatabaseAnswers(log, () => stops.load());
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
  return {
    service: inferenceService(deps),
    loops,
    liveLoops,
    loopDetails,
    sessions,
    presets,
    ownKeys,
    stops,
    stopOrders,
    robots,
  };
}
