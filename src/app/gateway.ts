/** The only place that builds things and joins rooms; `app/` is what it stands on, its supply, and its two roles: transports and workers. */
import { type Logger, pino } from "pino";
import { OutboundService } from "../../gen/limber/outbound/v1/outbound_service_pb.ts";
import { ScimService } from "../../gen/limber/scim/v2/scim_service_pb.ts";
import { AccountService } from "../../gen/limber/v1/account_service_pb.ts";
import { AuditService } from "../../gen/limber/v1/audit_service_pb.ts";
import { BillingService } from "../../gen/limber/v1/billing_service_pb.ts";
import { BroadcastService } from "../../gen/limber/v1/broadcast_service_pb.ts";
import { CredentialService } from "../../gen/limber/v1/credential_service_pb.ts";
import { EvaluationService } from "../../gen/limber/v1/evaluation_service_pb.ts";
import { IdentityService } from "../../gen/limber/v1/identity_service_pb.ts";
import { InferenceService } from "../../gen/limber/v1/inference_service_pb.ts";
import { JobService } from "../../gen/limber/v1/job_service_pb.ts";
import { LogService } from "../../gen/limber/v1/log_service_pb.ts";
import { OauthService } from "../../gen/limber/v1/oauth_service_pb.ts";
import { OperationsService } from "../../gen/limber/v1/operations_service_pb.ts";
import { PresetService } from "../../gen/limber/v1/preset_service_pb.ts";
import { RegistryService } from "../../gen/limber/v1/registry_service_pb.ts";
import { RobotService } from "../../gen/limber/v1/robot_service_pb.ts";
import { RunnerService } from "../../gen/limber/v1/runner_service_pb.ts";
import { SupplyService } from "../../gen/limber/v1/supply_service_pb.ts";
import { WebhookService } from "../../gen/limber/v1/webhook_service_pb.ts";
import { WorkspaceService } from "../../gen/limber/v1/workspace_service_pb.ts";
import { CreditLeaser } from "../billing/credit-leaser.ts";
import { stripeProcessor } from "../billing/payments.ts";
import { after, sleep } from "../clock.ts";
import type { Config } from "../config.ts";
import { BodyMemory } from "../edge/body-memory.ts";
import { LoadShedder } from "../edge/gate/admission/admission.ts";
import { aboveOf } from "../edge/gate/authenticate.ts";
import { proxiesOf } from "../edge/gate/caller-address.ts";
import { createGate } from "../edge/gate/gate.ts";
import { payerOf } from "../edge/gate/principal.ts";
import { RateLimits } from "../edge/gate/rate-limits.ts";
import { type MetricSources, Metrics } from "../edge/metrics.ts";
import { demoKey } from "../embedded/demo.ts";
import { Broadcaster } from "../events/broadcast/broadcaster.ts";
import { JobNotifier } from "../events/job-notifier.ts";
import { StopTransport } from "../events/stop-transport.ts";
import { newId } from "../ids.ts";
import { LoopRegistry } from "../inference/loops/loop-registry.ts";
import { Resumption } from "../inference/loops/resumption.ts";
import { OwnKeyCache } from "../inference/own-keys.ts";
import { PresetCache } from "../inference/presets.ts";
import { Sessions } from "../inference/sessions.ts";
import { ActiveStops } from "../inference/stops/active-stops.ts";
import { StopOrders } from "../inference/stops/stop-orders.ts";
import type { Worker } from "../jobs/worker.ts";
import { type Reference, startReference } from "../reference/launch.ts";
import { loadScenarios } from "../scenarios/index.ts";
import { type AccountDeps, accountService } from "../services/account.ts";
import { auditService } from "../services/audit.ts";
import { BalanceAlerts } from "../services/billing/alerts.ts";
import { askForgotten } from "../services/billing/pay.ts";
import { billingService } from "../services/billing.ts";
import { broadcastService, headersOf } from "../services/broadcast.ts";
import { credentialService } from "../services/credential.ts";
import { evaluationService } from "../services/evaluation.ts";
import { identityService } from "../services/identity.ts";
import { inferenceService } from "../services/inference.ts";
import { JobSeals } from "../services/job/seal.ts";
import { jobService } from "../services/job.ts";
import { logService } from "../services/log.ts";
import { oauthService } from "../services/oauth.ts";
import { operationsService } from "../services/operations.ts";
import { outboundService } from "../services/outbound.ts";
import { presetService } from "../services/preset.ts";
import { registryService } from "../services/registry.ts";
import { robotService, writeStop } from "../services/robot.ts";
import { runnerService } from "../services/runner.ts";
import { scimService } from "../services/scim.ts";
import { bringReference, lastReferencePorts } from "../services/supply/reference.ts";
import { supplyService } from "../services/supply.ts";
import { webhookService } from "../services/webhook.ts";
import { workspaceService } from "../services/workspace.ts";
import { KeyCache } from "../store/account/key-cache.ts";
import { findKey } from "../store/account/keys.ts";
import { takeRates } from "../store/account/rates.ts";
import { Claims } from "../store/billing/idempotency.ts";
import { Ledger } from "../store/billing/ledger.ts";
import type { TargetRecord } from "../store/events/broadcast.ts";
import { MOST_AT_ONE_HOOK } from "../store/events/webhooks.ts";
import { releaseServer, takeServer } from "../store/replicas/server-leases.ts";
import type { SupplyDeps } from "../supply/deps.ts";
import { ReplicaRelay } from "../supply/replica-relay.ts";
import { createUpstream } from "../upstream/index.ts";
import { openOtlp } from "../upstream/post/otlp.ts";
import { guardedAgent, guardedLookup } from "../upstream/transport/guard.ts";
import { type Vault, VaultError } from "../vault.ts";
import { Closers } from "./closers.ts";
import { LateGate } from "./late-gate.ts";
import { SERVICES } from "./services.ts";
import { openStorage, patiently } from "./storage.ts";
import { openSupply, samplesOf } from "./supply.ts";
import { openTransports, type Transports } from "./transports.ts";
import { unhandledErrors } from "./unhandled.ts";
import { HOOK_MS, startWorkers } from "./workers.ts";

/** A gateway that answers. */
export interface Gateway {
  /** Where it listens, such as `http://127.0.0.1:8080`; undefined for a process that only works off jobs. */
  url: string | undefined;
  /** Where else it listens, where HOST stands for every address of the machine. */
  otherUrls: readonly string[];
  /** The port for clients of Isaac-GR00T, where it was asked for. */
  gr00tPort?: number | undefined;
  /** The port of the listener for operations, where it was asked for. */
  operationsPort?: number | undefined;
  /** A key with credit, the operator's token, and where its own NATS is, where this process made them itself. */
  demo: { key: string; adminToken: string; natsUrl: string | undefined } | undefined;
  /**
   * Says that it is not ready and asks control loops and connections to go elsewhere, serves on for `delayMs`, takes no new work, lets
   * what runs end for `patienceMs`, and gives everything back.
   */
  close(patienceMs: number, delayMs?: number): Promise<void>;
}

/** Opens the gateway: database, supply, till, services, gate, transports. Whatever fails on the way leaves nothing running. */
export async function openGateway(config: Config): Promise<Gateway> {
  const closers = new Closers();
  try {
    return await open(config, closers);
  } catch (thrown) {
    await closers.close();
    throw thrown;
  }
}

/** What the port shows before the gateway is open, and what the gateway has then. */
interface Opening {
  sources?: Omit<MetricSources, "unhandledErrors" | "bodyBytes" | "load">;
  adminToken?: string;
  ready: () => boolean;
}

async function open(config: Config, closers: Closers): Promise<Gateway> {
  const logged = pino.destination({ dest: 2, sync: false, minLength: 16_000, periodicFlush: 200 });
  const log = pino({ level: config.logLevel }, logged);
  closers.add(async () => log.flush());

  // The port opens first: whoever asks hears that the process lives and is not ready, however long the database is away.
  const door = new LateGate();
  const opening: Opening = { ready: () => false };
  const load = new LoadShedder();
  const transports = config.roles.has("api")
    ? await openPort(config, closers, { log, logged, door, opening, load })
    : undefined;

  const ground = await openStorage(config, closers, log);
  const { sql, line, notifications, natsUrl, vault, adminToken, secrets } = ground;
  const keys = new KeyCache(sql, notifications);
  const presets = new PresetCache(sql, notifications);
  const ownKeys = new OwnKeyCache(sql, notifications, vault);
  const replica = newId("replica");
  const ledger = new Ledger({ sql, line, notifications, replica: config.databaseUrl ? replica : "embedded" });
  const leaser = await patiently(log, () => CreditLeaser.open(ledger));
  closers.add(() => leaser.close());

  const { allowPrivateAddresses: allowPrivate, dnsServers } = config;
  const guard = { allowPrivate, dnsServers };
  const agent = guardedAgent(guard);
  closers.add(() => agent.destroy());
  const hookAgent = guardedAgent(guard, { silenceMs: HOOK_MS, connections: MOST_AT_ONE_HOOK });
  closers.add(() => hookAgent.destroy());
  const reach = { agent: hookAgent, lookup: guardedLookup(guard), allowPrivate };
  const openTarget = (target: TargetRecord) => openOtlp(reach, { ...target, headers: headersOf(vault, target) });
  const broadcaster = new Broadcaster({
    sql,
    notifications,
    open: openTarget,
    warn: (text, cause) => log.warn({ err: cause }, text),
  });
  closers.add(() => broadcaster.close());
  const own = new Set<string>();
  const upstream = createUpstream(
    { ...guard, own },
    {
      take: (server, session, runMs) => takeServer(sql, { server, session, runMs, taker: replica }),
      release: (server, released) => releaseServer(sql, { server, ...released }),
    },
  );
  closers.add(() => upstream.close());
  const relay = new ReplicaRelay({ sql, notifications, hub: upstream.hub, replica, warn: (text) => log.warn(text) });
  closers.add(() => relay.close());
  const scenarios = loadScenarios(config.scenarioPacks);
  const routed = openSupply({ ...ground, replica, upstream, scenarios, log, closers });
  const { supply, registry, loader, rollup, evaluated } = routed;
  const sessions = new Sessions(sql, notifications);
  closers.add(() => sessions.close());

  let draining = false;
  let refusing = false;
  const unready = (): string | undefined => {
    if (draining) return "the gateway is closing";
    if (!loader.loaded) return "the gateway's state is not loaded";
    return supply.snapshot.catalogued === 0 ? "the registry is empty" : undefined;
  };

  const alerts = new BalanceAlerts({ sql, notifications, warn: (text) => log.warn(text) });
  closers.add(() => alerts.close());
  const { secretKey, webhookSecret, apiBase } = config.stripe;
  const processor = secretKey === undefined ? undefined : stripeProcessor({ secretKey, webhookSecret, apiBase });
  const paying = { sql, leaser, warn: (text: string) => log.warn(text) };

  const limits = new RateLimits((asks) => takeRates(sql, replica, asks));
  closers.add(() => limits.close());
  const loops = new LoopRegistry((told) => log.info(told, "loop"));
  closers.add(async () => loops.close());
  const resumption = new Resumption({ sql, notifications, vault }, loops);
  closers.add(async () => resumption.close());
  const stops = new ActiveStops(sql, notifications, after);
  closers.add(async () => stops.close());
  const orders: StopOrders = new StopOrders({
    stops,
    replica,
    write: (order) => writeStop(sql, order),
    tell: (word) => stopLine.tell(word),
    warn: (text, cause) => log.error({ err: cause }, text),
  });
  const stopLine = new StopTransport({ url: natsUrl, replica, hear: (word) => orders.hear(word) });
  closers.add(() => stopLine.close());
  closers.add(async () => orders.close());
  await patiently(log, () => stops.load());
  loops.obey(stops);
  const supplyParts: SupplyDeps = {
    sql,
    vault,
    upstream,
    agent,
    allowPrivate,
    probeEveryS: config.probeEveryS,
    refresh: () => loader.load(),
  };
  const accountParts: AccountDeps = {
    sql,
    leftOf: (key) => limits.left(key.id, key.rateLimit, aboveOf(key)),
    settled: (orgId) => leaser.giveBack(orgId),
    changed: (id) => keys.forget(id),
  };
  const inference = inferenceService({
    supply,
    evaluated,
    leaser,
    loops,
    resumption,
    stops,
    agent,
    allowPrivate,
    presets,
    ownKeys,
    sessions,
    broadcast: broadcaster,
    unpaid: (reason, key) => alerts.unpaid(reason, key),
  });
  const workers: Worker[] = [];
  const wake = config.roles.has("worker") ? () => workers.forEach((worker) => void worker.wake()) : undefined;
  const jobNotifier = natsUrl === undefined ? undefined : new JobNotifier({ url: natsUrl, wake });
  closers.add(async () => jobNotifier?.close());
  const ring = (jobId: string): void => jobNotifier?.ring(jobId);
  const claims = new Claims(sql);
  closers.add(async () => claims.close());
  const seals = new JobSeals(sql, vault);
  const gate = createGate({
    services: [
      [InferenceService, inference],
      [RobotService, robotService({ sql, stops, orders })],
      [LogService, logService({ sql })],
      [WebhookService, webhookService({ sql, vault, allowPrivate })],
      [BroadcastService, broadcastService({ sql, vault, broadcaster, reach })],
      [JobService, jobService({ sql, seals, ring })],
      [
        EvaluationService,
        evaluationService({
          sql,
          seals,
          leaser,
          upstream,
          allowPrivate,
          scenarios,
          catalogued: () => registry.catalog.scenarios.map(({ slug }) => slug),
          preview: inference.previewRoutes,
          ring,
        }),
      ],
      [
        RunnerService,
        runnerService({ sql, seals, leaser, scenarios, payer: async (id) => payerOf(await findKey(sql, id)) }),
      ],
      [PresetService, presetService({ sql, book: presets })],
      [CredentialService, credentialService({ sql, vault, book: ownKeys })],
      [AccountService, accountService(accountParts)],
      [WorkspaceService, workspaceService(accountParts)],
      [AuditService, auditService({ sql })],
      [ScimService, scimService({ sql, changed: (id) => keys.forget(id) })],
      [OauthService, oauthService({ sql, changed: (id) => keys.forget(id) })],
      [IdentityService, identityService({ sql, services: SERVICES, changed: (id) => keys.forget(id) })],
      [BillingService, billingService({ ...paying, processor, home: homeOf(config, transports?.url) })],
      [SupplyService, supplyService(supplyParts)],
      [OutboundService, outboundService({ sql, hub: upstream.hub, announced: () => relay.announced() })],
      [RegistryService, registryService({ registry, supply, upstream })],
      [
        OperationsService,
        operationsService({
          sql,
          supply,
          unready,
          warnings: () => loader.warnings,
          cache: () => keys.figures,
          setup: {
            nats: config.natsUrl !== undefined,
            payments: processor !== undefined,
            publicSignup: config.publicSignup,
            scenarioPacks: config.scenarioPacks !== undefined,
          },
        }),
      ],
    ],
    keys,
    idempotency: {
      claim: (claimant) => claims.claim({ ...claimant, leaser: leaser.name }),
      release: (claimed) => claims.release(claimed),
      seal: (answer, place) => vault.seal(answer, place),
      hashes: (hash, isKeyed, place) => vault.hashes(hash, isKeyed, place),
      open: (sealed, place) => openedBy(vault, sealed, place),
    },
    limits,
    load,
    adminToken,
    publicSignup: config.publicSignup,
    trustedProxies: proxiesOf(config.trustedProxies),
    closing: () => refusing,
    loaded: () => loader.loaded,
  });

  if (config.referenceSupply) {
    const ports = await patiently(log, () => lastReferencePorts(sql));
    const told = { log: (text: string) => log.warn(text) };
    // Somebody else may listen there now; elsewhere its offerings are new ones.
    const reference = await startReference({ ...told, ...ports }).catch(() => startReference(told));
    closers.add(() => reference.stop());
    own.add(reference.grpc).add(reference.openpi);
    // Nobody calls yet, so that one look at the end is enough.
    const unwatched = { ...supplyParts, allowPrivate: true, refresh: async () => {} };
    await patiently(log, () => welcomeReference(reference, unwatched, (text) => log.error(text)));
  }
  upstream.hub.onChange(() => void loader.load());
  loader.follow(notifications);
  await loader.load();
  // Without it figures begin anew, which is no reason not to open.
  await rollup.recall().catch((error) => log.warn({ err: error }, "the last figures could not be read"));
  const ownNatsUrl = config.natsUrl === undefined ? natsUrl : undefined;
  const key = secrets && (await patiently(log, () => demoKey(sql, config.dataDir, secrets)));
  const demo = key === undefined ? undefined : { key, adminToken, natsUrl: ownNatsUrl };
  if (config.roles.has("worker")) {
    startWorkers({
      config,
      sql,
      notifications,
      log,
      replica,
      natsUrl,
      leaser,
      vault,
      seals,
      upstream,
      agent,
      hookAgent,
      openTarget,
      allowPrivate,
      gate,
      limits,
      load,
      scenarios,
      workers,
      supplyParts,
      forgotten: processor && (() => askForgotten({ ...paying, processor })),
      closers,
    });
  }
  if (transports === undefined) return { url: undefined, otherUrls: [], demo, close: () => closers.close() };

  opening.sources = {
    offerings: () => samplesOf(supply),
    loops: () => ({ open: loops.size, offerings: loops.offerings(), sessions: loops.sessions() }),
    leaser: () => leaser.figures,
    callsRunning: () => limits.running,
  };
  opening.adminToken = adminToken;
  opening.ready = () => unready() === undefined;
  door.open(gate);
  return {
    url: transports.url,
    otherUrls: transports.otherUrls,
    demo,
    gr00tPort: transports.gr00tPort,
    operationsPort: transports.operationsPort,
    async close(patienceMs, delayMs = 0) {
      draining = true;
      // In this order: a robot that moves would open its next stream here.
      transports.leave();
      loops.move();
      if (delayMs > 0) await sleep(delayMs);
      const idle = (async () => {
        // What callers sent before they knew is served.
        if (delayMs > 0) await sleep(Math.min(LATE_CALLS_MS, delayMs));
        refusing = true;
        loops.drain();
        upstream.hub.close();
        await limits.idle();
      })();
      transports.leave();
      loops.move();
      const patience = new AbortController();
      const over = sleep(patienceMs, patience.signal).catch(() => undefined);
      await transports.drain(patienceMs, idle);
      // A call whose caller has left may still have to be settled.
      await Promise.race([idle, over]);
      patience.abort();
      await closers.close();
    },
  };
}

/** How long calls are still served that were sent before their callers knew that this replica takes no new connection. */
const LATE_CALLS_MS = 1_000;

/** Opens the port, on which nothing is served yet. */
async function openPort(
  config: Config,
  closers: Closers,
  {
    log,
    logged,
    door,
    opening,
    load,
  }: { log: Logger; logged: { write(text: string): unknown }; door: LateGate; opening: Opening; load: LoadShedder },
): Promise<Transports> {
  const memory = new BodyMemory(config.bodyMemory);
  const metrics = new Metrics({
    offerings: () => opening.sources?.offerings() ?? [],
    loops: () => opening.sources?.loops() ?? { open: 0, offerings: [], sessions: [] },
    leaser: () => opening.sources?.leaser() ?? { leases: 0, idleMicro: 0, promisedMicro: 0, running: 0, waiting: 0 },
    callsRunning: () => opening.sources?.callsRunning() ?? 0,
    unhandledErrors,
    bodyBytes: () => memory.held,
    load: () => load.figures,
  });
  closers.add(async () => metrics.close());
  const adminToken = (): string | undefined => opening.adminToken ?? config.adminToken;
  const ready = (): boolean => opening.ready();
  const transports = await openTransports({
    config,
    gate: door,
    log,
    logged,
    metrics,
    memory,
    adminToken,
    ready,
    closers,
  });
  closers.add(() => transports.drain(0));
  return transports;
}

/** What was sealed; undefined where its master key is not loaded any more. */
function openedBy(vault: Vault, sealed: Uint8Array, place: string): Uint8Array | undefined {
  try {
    return vault.openBytes(sealed, place);
  } catch (thrown) {
    if (thrown instanceof VaultError) return undefined;
    throw thrown;
  }
}

/** Where payers return who were given no other address: a page that needs no key. */
function homeOf({ publicUrl }: Config, listensAt = "http://127.0.0.1"): string {
  return new URL("/v1/billing", publicUrl ?? listensAt).href;
}

async function welcomeReference(reference: Reference, deps: SupplyDeps, log: (text: string) => void): Promise<void> {
  for (const fault of await bringReference(deps, reference.grpc)) log(`reference provider: ${fault}`);
}
