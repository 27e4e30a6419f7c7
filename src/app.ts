/** The only place that builds things and joins rooms; `app/` is its two roles, faces and workers. */
import { join } from "node:path";
import { pino } from "pino";
import { OutboundService } from "../gen/limber/outbound/v1/outbound_service_pb.ts";
import { ScimService } from "../gen/limber/scim/v2/scim_service_pb.ts";
import { AccountService } from "../gen/limber/v1/account_service_pb.ts";
import { AuditService } from "../gen/limber/v1/audit_service_pb.ts";
import { BillingService } from "../gen/limber/v1/billing_service_pb.ts";
import { BroadcastService } from "../gen/limber/v1/broadcast_service_pb.ts";
import { CredentialService } from "../gen/limber/v1/credential_service_pb.ts";
import { EvaluationService } from "../gen/limber/v1/evaluation_service_pb.ts";
import { IdentityService } from "../gen/limber/v1/identity_service_pb.ts";
import { InferenceService } from "../gen/limber/v1/inference_service_pb.ts";
import { JobService } from "../gen/limber/v1/job_service_pb.ts";
import { LogService } from "../gen/limber/v1/log_service_pb.ts";
import { OauthService } from "../gen/limber/v1/oauth_service_pb.ts";
import { OperationsService } from "../gen/limber/v1/operations_service_pb.ts";
import { PresetService } from "../gen/limber/v1/preset_service_pb.ts";
import { RegistryService } from "../gen/limber/v1/registry_service_pb.ts";
import { RobotService } from "../gen/limber/v1/robot_service_pb.ts";
import { RunnerService } from "../gen/limber/v1/runner_service_pb.ts";
import { SupplyService } from "../gen/limber/v1/supply_service_pb.ts";
import { WebhookService } from "../gen/limber/v1/webhook_service_pb.ts";
import { WorkspaceService } from "../gen/limber/v1/workspace_service_pb.ts";
import { after, breatheOut, every, inSlices, newId, steadyNow } from "./ambient.ts";
import { Closers } from "./app/closers.ts";
import { openFaces } from "./app/faces.ts";
import { HOOK_MS, startWorkers } from "./app/workers.ts";
import type { Config } from "./config.ts";
import { demoKey, developmentSecrets } from "./development.ts";
import { proxiesOf } from "./edge/caller-address.ts";
import { payerOf } from "./edge/gate/principal.ts";
import { createGate } from "./edge/gate.ts";
import { Limits } from "./edge/limits.ts";
import { Metrics, type OfferingSample } from "./edge/metrics.ts";
import { SERVICES } from "./edge/services.ts";
import { Broadcaster } from "./events/broadcast/broadcaster.ts";
import { startEmbeddedNats } from "./events/embedded.ts";
import { Grapevine } from "./events/grapevine.ts";
import { JobBell } from "./events/job-bell.ts";
import { Relay } from "./events/relay.ts";
import type { Worker } from "./jobs/worker.ts";
import { Till } from "./money/till.ts";
import { stripeProcessor } from "./payments.ts";
import { type Reference, startReference } from "./reference/launch.ts";
import { loadScenarios, triedSpaces } from "./scenarios/index.ts";
import { type AccountParts, accountService } from "./services/account.ts";
import { auditService } from "./services/audit.ts";
import { BalanceAlerts } from "./services/billing/alerts.ts";
import { askForgotten } from "./services/billing/pay.ts";
import { billingService } from "./services/billing.ts";
import { broadcastService, headersOf } from "./services/broadcast.ts";
import { credentialService } from "./services/credential.ts";
import { evaluationService } from "./services/evaluation.ts";
import { identityService } from "./services/identity.ts";
import { LoopBoard } from "./services/inference/loop/board.ts";
import { Resumption } from "./services/inference/loop/resumption.ts";
import { OwnKeyBook } from "./services/inference/own-keys.ts";
import { PresetBook } from "./services/inference/presets.ts";
import { Sessions } from "./services/inference/sessions.ts";
import { inferenceService } from "./services/inference.ts";
import { jobService } from "./services/job.ts";
import { logService } from "./services/log.ts";
import { oauthService } from "./services/oauth.ts";
import { operationsService } from "./services/operations.ts";
import { Ferry } from "./services/outbound/ferry.ts";
import { outboundService } from "./services/outbound.ts";
import { presetService } from "./services/preset.ts";
import { RegistryShelf } from "./services/registry/shelf.ts";
import { registryService } from "./services/registry.ts";
import { StopBook } from "./services/robot/stop-book.ts";
import { robotService } from "./services/robot.ts";
import { runnerService } from "./services/runner.ts";
import { scimService } from "./services/scim.ts";
import { Circuits } from "./services/supply/circuits.ts";
import { SupplyOpener } from "./services/supply/facts.ts";
import { Gossip } from "./services/supply/gossip.ts";
import { LiveSupply } from "./services/supply/live.ts";
import { SupplyLoader } from "./services/supply/loader.ts";
import { bringReference, lastReferencePorts } from "./services/supply/reference.ts";
import { Rollup } from "./services/supply/rollup.ts";
import { type SupplyParts, supplyService } from "./services/supply.ts";
import { webhookService } from "./services/webhook.ts";
import { workspaceService } from "./services/workspace.ts";
import { KeyCache } from "./store/account/key-cache.ts";
import { findKey } from "./store/account/keys.ts";
import { takeRates } from "./store/account/rates.ts";
import { type EmbeddedPostgres, startPostgres } from "./store/database/embedded.ts";
import { migrate } from "./store/database/migrate.ts";
import { Notices } from "./store/database/notices.ts";
import { connect, databaseReachable } from "./store/database/tx.ts";
import type { TargetRecord } from "./store/events/broadcast.ts";
import { MOST_AT_ONE_HOOK } from "./store/events/webhooks.ts";
import { Claims, unclaim } from "./store/money/idempotency.ts";
import { Ledger } from "./store/money/ledger.ts";
import { loadLatencies, loadUptimes, putMinutes, rollUp } from "./store/replicas/rollups.ts";
import { releaseServer, takeServer } from "./store/replicas/server-leases.ts";
import { importCatalog, loadCatalog } from "./store/supply/catalog.ts";
import { SupplyReader } from "./store/supply/supply-reader.ts";
import { guardedAgent, guardedLookup } from "./upstream/guard.ts";
import { createUpstream } from "./upstream/index.ts";
import { openOtlp } from "./upstream/otlp.ts";
import { createVault } from "./vault.ts";

/** A gateway that answers. */
export interface House {
  /** Where it listens, such as `http://127.0.0.1:8080`; undefined for a process that only works off jobs. */
  url: string | undefined;
  /** The port for clients of Isaac-GR00T, where it was asked for. */
  gr00tPort?: number | undefined;
  /** A key with credit, the operator's token, and where its own NATS is, where this process made them itself. */
  demo: { key: string; adminToken: string; natsUrl: string | undefined } | undefined;
  /** Takes no new work, lets what runs end for `patienceMs`, gives everything back. */
  close(patienceMs: number): Promise<void>;
}

const MIGRATIONS = join(import.meta.dirname, "store", "migrations");
const CATALOG = join(import.meta.dirname, "..", "data");
const POOL = 10;
/** How often figures that nobody adds to are looked at, so that old ones fade. */
const AGE_MS = 5_000;
/** How often replicas tell each other what they measured. */
const GOSSIP_MS = 1_000;
/** How often what offerings did is written down; what a crash loses is no older. */
const ROLL_MS = 10_000;

/** Opens the house: database, supply, till, services, gate, faces. Whatever fails on the way leaves nothing running. */
export async function openHouse(config: Config): Promise<House> {
  const closers = new Closers();
  try {
    return await open(config, closers);
  } catch (thrown) {
    await closers.close();
    throw thrown;
  }
}

async function open(config: Config, closers: Closers): Promise<House> {
  const logged = pino.destination({ dest: 2, sync: false, minLength: 16_000, periodicFlush: 200 });
  const log = pino({ level: config.logLevel }, logged);
  closers.add(async () => log.flush());

  const url =
    config.databaseUrl ?? (await openDatabase(config, closers, (line) => log.debug({ from: "postgres" }, line))).url;
  await databaseReachable(url);
  const sql = connect(url, { max: POOL });
  closers.add(() => sql.end());
  const line = connect(url, { max: 1 });
  closers.add(() => line.end());
  await migrate(sql, MIGRATIONS);
  // A database that others share is their operator's to fill.
  if (config.databaseUrl === undefined) await importCatalog(sql, CATALOG);

  const secrets = config.databaseUrl === undefined ? developmentSecrets(config.dataDir) : undefined;
  const adminToken = config.adminToken ?? secrets?.adminToken ?? "";
  const masterKey = config.masterKey ?? Buffer.from(secrets?.masterKey ?? "", "base64");
  const vault = createVault(masterKey, config.otherMasterKeys);

  const notices = await Notices.open(url);
  closers.add(() => notices.close());
  const natsUrl = config.natsUrl ?? (await openNats(config, closers, (text) => log.warn(text)));
  if (natsUrl !== undefined) {
    const relay = new Relay({ sql, notices, url: natsUrl, warn: (text) => log.warn(text) });
    closers.add(() => relay.close());
  }
  const keys = new KeyCache(sql, notices);
  const presets = new PresetBook(sql, notices);
  const ownKeys = new OwnKeyBook(sql, notices, vault);
  const replica = newId("replica");
  const ledger = new Ledger({ sql, line, notices, replica: config.databaseUrl ? replica : "embedded" });
  const till = await Till.open(ledger);
  closers.add(() => till.close());

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
    notices,
    open: openTarget,
    warn: (text, cause) => log.warn({ err: cause }, text),
  });
  closers.add(() => broadcaster.close());
  const upstream = createUpstream(guard, {
    take: (server, session, runMs) => takeServer(sql, { server, session, runMs, taker: replica }),
    release: (server, released) => releaseServer(sql, { server, ...released }),
  });
  closers.add(() => upstream.close());
  const ferry = new Ferry({ sql, notices, dock: upstream.dock, replica, warn: (text) => log.warn(text) });
  closers.add(() => ferry.close());
  const supply = new LiveSupply(upstream);
  const scenarios = loadScenarios(config.scenarioPacks);
  const shelf = new RegistryShelf(supply, scenarios.values());
  const circuits = new Circuits({ sql, notices, health: supply.health, warn: (text) => log.warn(text) });
  closers.add(() => circuits.close());
  const reader = new SupplyReader(sql);
  const evaluated = triedSpaces(scenarios.values());
  const opener = new SupplyOpener({ vault, evaluated, log: (text) => log.error(text) });
  const loader = new SupplyLoader(async () => {
    const [known, catalog] = await Promise.all([reader.read(), loadCatalog(sql, shelf.catalog)]);
    await inSlices(supply.adopting(await inSlices(opener.facts(known), breatheOut)), breatheOut);
    await circuits.refresh();
    await inSlices(shelf.adopting(known, catalog), breatheOut);
  });
  closers.add(async () => loader.close());

  const ageing = every(AGE_MS, () => void inSlices(supply.health.age(steadyNow())));
  closers.add(async () => ageing());

  const rollup = new Rollup(supply.health, {
    put: (records) => putMinutes(sql, replica, records),
    rollUp: (minute) => rollUp(sql, minute),
    uptimes: () => loadUptimes(sql),
    latencies: (minute) => loadLatencies(sql, minute),
  });
  const rolling = every(ROLL_MS, () => void rollup.tick().catch((error) => log.warn({ err: error }, "rollup failed")));
  closers.add(async () => {
    rolling();
    await rollup.tick().catch(() => {});
  });

  const gossip = new Gossip(replica, supply.health);
  const grapevine = new Grapevine({ sql, notices, natsUrl, hear: (word) => gossip.hear(word) });
  closers.add(() => grapevine.close());
  const gossiping = every(GOSSIP_MS, () => void gossip.tell(grapevine));
  closers.add(async () => gossiping());
  const sessions = new Sessions(sql, notices);
  closers.add(() => sessions.close());

  let draining = false;
  const unready = (): string | undefined => {
    if (draining) return "the gateway is closing";
    if (!loader.loaded) return "the gateway's state is not loaded";
    return supply.snapshot.catalogued === 0 ? "the registry is empty" : undefined;
  };

  const alerts = new BalanceAlerts({ sql, notices, warn: (text) => log.warn(text) });
  closers.add(() => alerts.close());
  const { secretKey, webhookSecret, apiBase } = config.stripe;
  const processor = secretKey === undefined ? undefined : stripeProcessor({ secretKey, webhookSecret, apiBase });
  const paying = { sql, till, warn: (text: string) => log.warn(text) };

  const limits = new Limits((asks) => takeRates(sql, replica, asks));
  closers.add(() => limits.close());
  const loops = new LoopBoard((told) => log.info(told, "loop"));
  closers.add(async () => loops.close());
  const resumption = new Resumption(sql, notices, (session, stream) => loops.taken(session, stream));
  closers.add(async () => resumption.close());
  const stops = new StopBook(sql, notices, after);
  closers.add(async () => stops.close());
  await stops.load();
  loops.obey(stops);
  const supplyParts: SupplyParts = {
    sql,
    vault,
    upstream,
    agent,
    allowPrivate,
    probeEveryS: config.probeEveryS,
    refresh: () => loader.load(),
  };
  const accountParts: AccountParts = {
    sql,
    leftOf: ({ id, rateLimit }) => limits.left(id, rateLimit),
    settled: (orgId) => till.giveBack(orgId),
    changed: (id) => keys.forget(id),
  };
  const inference = inferenceService({
    supply,
    evaluated,
    till,
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
  const bell = natsUrl === undefined ? undefined : new JobBell({ url: natsUrl, wake });
  closers.add(async () => bell?.close());
  const ring = (jobId: string): void => bell?.ring(jobId);
  const claims = new Claims(sql);
  const gate = createGate({
    services: [
      [InferenceService, inference],
      [RobotService, robotService({ sql, stops })],
      [LogService, logService({ sql })],
      [WebhookService, webhookService({ sql, vault, allowPrivate })],
      [BroadcastService, broadcastService({ sql, vault, broadcaster, reach })],
      [JobService, jobService({ sql, ring })],
      [
        EvaluationService,
        evaluationService({
          sql,
          till,
          upstream,
          allowPrivate,
          scenarios,
          catalogued: () => shelf.catalog.scenarios.map(({ slug }) => slug),
          preview: inference.previewRoutes,
          ring,
        }),
      ],
      [RunnerService, runnerService({ sql, till, scenarios, payer: async (id) => payerOf(await findKey(sql, id)) })],
      [PresetService, presetService({ sql, book: presets })],
      [CredentialService, credentialService({ sql, vault, book: ownKeys })],
      [AccountService, accountService(accountParts)],
      [WorkspaceService, workspaceService(accountParts)],
      [AuditService, auditService({ sql })],
      [ScimService, scimService({ sql, changed: (id) => keys.forget(id) })],
      [OauthService, oauthService({ sql, changed: (id) => keys.forget(id) })],
      [IdentityService, identityService({ sql, services: SERVICES, changed: (id) => keys.forget(id) })],
      [BillingService, billingService({ ...paying, processor, home: homeOf(config) })],
      [SupplyService, supplyService(supplyParts)],
      [OutboundService, outboundService({ sql, dock: upstream.dock, announced: () => ferry.announced() })],
      [RegistryService, registryService({ shelf, supply, upstream })],
      [
        OperationsService,
        operationsService({
          ...{ sql, supply, unready },
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
      claim: (claimant) => claims.claim({ ...claimant, till: till.name }),
      release: (claimed) => unclaim(sql, claimed),
    },
    limits,
    adminToken,
    publicSignup: config.publicSignup,
    trustedProxies: proxiesOf(config.trustedProxies),
    closing: () => draining,
    loaded: () => loader.loaded,
  });

  if (config.referenceSupply) {
    const ports = await lastReferencePorts(sql);
    const told = { log: (text: string) => log.warn(text) };
    // Somebody else may listen there now; elsewhere its offerings are new ones.
    const reference = await startReference({ ...told, ...ports }).catch(() => startReference(told));
    closers.add(() => reference.stop());
    // Nobody calls yet, so that one look at the end is enough.
    const unwatched = { ...supplyParts, refresh: async () => {} };
    await welcomeReference(reference, unwatched, (text) => log.error(text));
  }
  upstream.dock.onChange(() => void loader.load());
  loader.follow(notices);
  await loader.load();
  // Without it figures begin anew, which is no reason not to open.
  await rollup.recall().catch((error) => log.warn({ err: error }, "the last figures could not be read"));
  const ownNatsUrl = config.natsUrl === undefined ? natsUrl : undefined;
  const demo = secrets && { key: await demoKey(sql, config.dataDir, secrets), adminToken, natsUrl: ownNatsUrl };
  if (config.roles.has("worker")) {
    startWorkers({
      ...{
        config,
        sql,
        notices,
        log,
        replica,
        natsUrl,
        till,
        vault,
        upstream,
        agent,
        hookAgent,
        openTarget,
        allowPrivate,
        gate,
        limits,
      },
      ...{ scenarios, workers, supplyParts, forgotten: processor && (() => askForgotten({ ...paying, processor })) },
      closers,
    });
  }
  if (!config.roles.has("api")) return { url: undefined, demo, close: () => closers.close() };

  const metrics = new Metrics({
    offerings: () => samplesOf(supply),
    loops: () => ({ open: loops.size, offerings: loops.offerings(), sessions: loops.sessions() }),
    till: () => till.figures,
    callsRunning: () => limits.running,
  });
  closers.add(async () => metrics.close());
  const faces = await openFaces({
    config,
    gate,
    log,
    logged,
    metrics,
    adminToken,
    ready: () => unready() === undefined,
    closers,
  });
  return {
    url: faces.url,
    demo,
    gr00tPort: faces.gr00tPort,
    async close(patienceMs) {
      draining = true;
      loops.drain();
      upstream.dock.close();
      // The door stays open meanwhile, for those who ask whether the house is ready and for those it has to turn away.
      await within(patienceMs, limits.idle());
      await faces.drain();
      await closers.close();
    },
  };
}

/** Waits for `done`, but no longer than `ms`. */
function within(ms: number, done: Promise<void>): Promise<void> {
  return new Promise((resolve) => {
    const forget = after(ms, resolve);
    done.then(() => {
      forget();
      resolve();
    });
  });
}

/** Where payers return who were given no other address: a page that needs no key. */
function homeOf({ publicUrl, tls, host, port }: Config): string {
  const base = publicUrl ?? `${tls ? "https" : "http"}://${host.includes(":") ? `[${host}]` : host}:${port}`;
  return new URL("/v1/billing", base).href;
}

async function openDatabase(config: Config, closers: Closers, log: (line: string) => void): Promise<EmbeddedPostgres> {
  const database = await startPostgres({ dataDir: config.dataDir, log });
  closers.add(() => database.stop());
  return database;
}

/** The nats-server of the embedded default; one that doesn't start is done without. */
async function openNats({ natsServer, dataDir }: Config, closers: Closers, warn: (text: string) => void) {
  if (natsServer === undefined) return undefined;
  try {
    const nats = await startEmbeddedNats({ program: natsServer, dataDir, warn });
    closers.add(() => nats.stop());
    return nats.url;
  } catch (error) {
    warn(`events stay in the outbox: ${error instanceof Error ? error.message : String(error)}`);
    return undefined;
  }
}

async function welcomeReference(reference: Reference, parts: SupplyParts, log: (text: string) => void): Promise<void> {
  for (const fault of await bringReference(parts, reference.grpc)) log(`reference provider: ${fault}`);
}

/** What the metrics show of live supply. */
function* samplesOf({ health }: LiveSupply): Iterable<OfferingSample> {
  const at = steadyNow();
  for (const { offering, breaker, p50Ms, p95Ms, p99Ms } of health.figures(at)) {
    if (offering.simulated) continue;
    const { id, provider, model } = offering;
    const { calls = 0, failures = 0 } = health.tell(id, at)?.tally ?? {};
    yield { offering: id, provider, model, breaker: breaker.state, attempts: calls, failures, p50Ms, p95Ms, p99Ms };
  }
}
