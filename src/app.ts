/** The only place that builds things and joins rooms. */
import { availableParallelism, hostname } from "node:os";
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
import { SupplyService } from "../gen/limber/v1/supply_service_pb.ts";
import { WebhookService } from "../gen/limber/v1/webhook_service_pb.ts";
import { WorkspaceService } from "../gen/limber/v1/workspace_service_pb.ts";
import { after, every, inSlices, newId, now, nowSeconds, steadyNow } from "./ambient.ts";
import type { Config } from "./config.ts";
import { demoKey, developmentSecrets } from "./development.ts";
import { eventText } from "./edge/event-text.ts";
import { createGate, principalOf } from "./edge/gate.ts";
import { serveGr00t } from "./edge/gr00t.ts";
import { grpcStreams } from "./edge/grpc.ts";
import { laterCalls } from "./edge/later.ts";
import { Limits } from "./edge/limits.ts";
import { CallLines, type LogLine } from "./edge/log.ts";
import { Metrics, type OfferingSample } from "./edge/metrics.ts";
import { buildServer } from "./edge/server.ts";
import { SERVICES } from "./edge/services.ts";
import { Broadcaster } from "./events/broadcast/broadcaster.ts";
import { startEmbeddedNats } from "./events/embedded.ts";
import { Grapevine } from "./events/grapevine.ts";
import { JobBell } from "./events/job-bell.ts";
import { Relay } from "./events/relay.ts";
import { WebhookSender } from "./events/webhooks.ts";
import { batchWork } from "./jobs/batch.ts";
import { evaluationWork } from "./jobs/evaluation.ts";
import { Worker } from "./jobs/worker.ts";
import { Till } from "./money/till.ts";
import { stripeProcessor } from "./payments.ts";
import { type Reference, startReference } from "./reference/launch.ts";
import { PIN_SILENCE_MS } from "./routing/index.ts";
import { loadScenarios } from "./scenarios/index.ts";
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
import { outboundService } from "./services/outbound.ts";
import { presetService } from "./services/preset.ts";
import { RegistryShelf } from "./services/registry/shelf.ts";
import { registryService } from "./services/registry.ts";
import { StopBook } from "./services/robot/stop-book.ts";
import { robotService } from "./services/robot.ts";
import { scimService } from "./services/scim.ts";
import { Circuits } from "./services/supply/circuits.ts";
import { factsOfSupply } from "./services/supply/facts.ts";
import { Gossip } from "./services/supply/gossip.ts";
import { LiveSupply } from "./services/supply/live.ts";
import { SupplyLoader } from "./services/supply/loader.ts";
import { bringReference, lastReferencePorts } from "./services/supply/reference.ts";
import { Rollup } from "./services/supply/rollup.ts";
import { keepProbing } from "./services/supply/schedule.ts";
import { type SupplyParts, supplyService } from "./services/supply.ts";
import { secretsOf, tellDisabled, webhookService } from "./services/webhook.ts";
import { workspaceService } from "./services/workspace.ts";
import { importCatalog, loadCatalog } from "./store/catalog.ts";
import { closeAllMonths } from "./store/commitments.ts";
import { type EmbeddedPostgres, startPostgres } from "./store/embedded.ts";
import { claim, pruneIdempotency, unclaim } from "./store/idempotency.ts";
import { pruneJobs } from "./store/jobs.ts";
import { KeyCache } from "./store/key-cache.ts";
import { findKey } from "./store/keys.ts";
import { Ledger } from "./store/ledger.ts";
import { forgetLogs } from "./store/logs.ts";
import { pruneLoopSessions } from "./store/loop-sessions.ts";
import { migrate } from "./store/migrate.ts";
import { Notices } from "./store/notices.ts";
import { pruneCodes } from "./store/oauth.ts";
import { pruneEvents, pruneUnsent } from "./store/outbox.ts";
import { prunePins } from "./store/pins.ts";
import { pruneRates, takeRates } from "./store/rates.ts";
import { loadLatencies, loadUptimes, pruneRollups, putMinutes, rollUp } from "./store/rollups.ts";
import { loadSupply } from "./store/supply.ts";
import { connect, databaseReachable } from "./store/tx.ts";
import { MOST_AT_ONE_HOOK, pruneDeliveries } from "./store/webhooks.ts";
import { guardedAgent, guardedLookup } from "./upstream/guard.ts";
import { createUpstream } from "./upstream/index.ts";
import { openOtlp } from "./upstream/otlp.ts";
import { post } from "./upstream/post.ts";
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

/** What closes later closes first. */
class Closers {
  readonly #all: (() => Promise<unknown>)[] = [];

  add(close: () => Promise<unknown>): void {
    this.#all.unshift(close);
  }

  async close(): Promise<void> {
    for (const close of this.#all.splice(0)) await close();
  }
}

const MIGRATIONS = join(import.meta.dirname, "store", "migrations");
const CATALOG = join(import.meta.dirname, "..", "data");
const POOL = 10;
const PRUNE_MS = 3_600_000;
/** A month is closed this long after its end: clocks of replicas differ a little. */
const CLOSING_GRACE_MS = 600_000;
/** How often figures that nobody adds to are looked at, so that old ones fade. */
const AGE_MS = 5_000;
/** How often replicas tell each other what they measured. */
const GOSSIP_MS = 1_000;
/** How often what offerings did is written down; what a crash loses is no older. */
const ROLL_MS = 10_000;
/** How long events are kept after they were told, or where nobody is told. */
const EVENT_DAYS = 7;
/** How long jobs are kept with their results. */
const RESULT_DAYS = 30;
/** How long the receiver of an event has, and how much of its answer is read. */
const HOOK_MS = 10_000;
const HOOK_ANSWER_BYTES = 64 << 10;
/** Batches that one process works on at one time. */
const BATCHES_AT_ONCE = 4;
/** Callers who wait, from which on work that can wait does. */
const CROWD = 32;

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
  const till = await Till.open(new Ledger(sql, notices, { replica: config.databaseUrl ? replica : "embedded" }));
  closers.add(() => till.close());

  const { allowPrivateAddresses: allowPrivate } = config;
  const agent = guardedAgent({ allowPrivate });
  closers.add(() => agent.destroy());
  const hookAgent = guardedAgent({ allowPrivate }, { silenceMs: HOOK_MS, connections: MOST_AT_ONE_HOOK });
  closers.add(() => hookAgent.destroy());
  const reach = { agent: hookAgent, lookup: guardedLookup({ allowPrivate }), allowPrivate };
  const broadcaster = new Broadcaster({
    sql,
    notices,
    open: (target) => openOtlp(reach, { ...target, headers: headersOf(vault, target) }),
    warn: (text, cause) => log.warn({ err: cause }, text),
  });
  closers.add(() => broadcaster.close());
  const upstream = createUpstream({ allowPrivate });
  closers.add(() => upstream.close());
  const supply = new LiveSupply(upstream);
  const shelf = new RegistryShelf(supply);
  const circuits = new Circuits({ sql, notices, health: supply.health, warn: (text) => log.warn(text) });
  closers.add(() => circuits.close());
  const loader = new SupplyLoader(async () => {
    const [known, catalog] = await Promise.all([loadSupply(sql), loadCatalog(sql, shelf.catalog)]);
    const facts = await inSlices(factsOfSupply(known, vault, (text) => log.error(text)));
    await inSlices(supply.adopting(facts));
    await circuits.refresh();
    await inSlices(shelf.adopting(known, catalog));
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
    return supply.snapshot.catalog.size === 0 ? "the registry is empty" : undefined;
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
    unpaid: (orgId) => alerts.unpaid(orgId),
  });
  const workers: Worker[] = [];
  const wake = config.roles.has("worker") ? () => workers.forEach((worker) => void worker.wake()) : undefined;
  const bell = natsUrl === undefined ? undefined : new JobBell({ url: natsUrl, wake });
  closers.add(async () => bell?.close());
  const ring = (jobId: string): void => bell?.ring(jobId);
  const scenarios = loadScenarios(config.scenarioPacks);
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
      [OutboundService, outboundService({ sql, dock: upstream.dock })],
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
      claim: (claimant) => claim(sql, { ...claimant, till: till.name }),
      release: (claimed) => unclaim(sql, claimed),
    },
    limits,
    adminToken,
    publicSignup: config.publicSignup,
    closing: () => draining,
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
    const jobs: (() => Promise<unknown>)[] = [
      () => pruneRates(sql),
      () => closeAllMonths(sql, now() - CLOSING_GRACE_MS),
      () => pruneIdempotency(sql),
      () => pruneLoopSessions(sql),
      () => pruneCodes(sql),
      () => pruneEvents(sql, EVENT_DAYS),
      () => pruneJobs(sql, RESULT_DAYS),
      () => pruneDeliveries(sql, RESULT_DAYS),
      () => forgetLogs(sql),
      () => pruneRollups(sql, Math.floor(nowSeconds() / 60)),
      () => prunePins(sql, now() - PIN_SILENCE_MS),
    ];
    if (natsUrl === undefined) jobs.push(() => pruneUnsent(sql, EVENT_DAYS));
    if (processor) jobs.push(() => askForgotten({ ...paying, processor }));
    const prune = (): void => {
      for (const job of jobs) job().catch((error) => log.warn({ err: error }, "pruning failed"));
    };
    prune();
    closers.add(keepProbing(supplyParts, (text) => log.warn(text)));
    const rest = every(PRUNE_MS, prune);
    closers.add(async () => rest());
    const principal = async (keyId: string) => principalOf(await findKey(sql, keyId));
    const answer = laterCalls(gate, principal);
    const evaluation = evaluationWork({
      ...{ sql, till, upstream, agent, allowPrivate, scenarios, packs: config.scenarioPacks, principal },
      act: (keyId) => (call) => answer(keyId, { ...call, contract: "act", idempotencyKey: undefined }),
    });
    const working = {
      sql,
      notices,
      owner: replica,
      warn: (text: string, cause: unknown) => log.warn({ err: cause }, text),
    };
    const batches = { batch: batchWork({ sql, answer, crowded: () => limits.running >= CROWD }) };
    workers.push(
      new Worker({ ...working, work: batches, atOnce: BATCHES_AT_ONCE }),
      // Physics takes a core each.
      new Worker({ ...working, work: { evaluation }, atOnce: Math.max(1, availableParallelism() - 1) }),
    );
    const hooks = { agent: hookAgent, allowPrivate, timeoutMs: HOOK_MS, maxBytes: HOOK_ANSWER_BYTES };
    const sender = new WebhookSender({
      ...working,
      post: (url, headers, body) => post(url, { ...hooks, headers, body }),
      textOf: eventText,
      secretsOf: (hook) => secretsOf(vault, hook),
      disabled: tellDisabled,
    });
    closers.add(() => sender.close());
    closers.add(() => Promise.all(workers.map((worker) => worker.close())));
  }
  if (!config.roles.has("api")) return { url: undefined, demo, close: () => closers.close() };

  const closing = new AbortController();
  const lines = new CallLines((text) => logged.write(text), { pid: process.pid, hostname: hostname() });
  closers.add(async () => lines.close());
  const metrics = new Metrics({
    offerings: () => samplesOf(supply),
    loops: () => ({ open: loops.size, offerings: loops.offerings() }),
    till: () => till.figures,
    callsRunning: () => limits.running,
  });
  closers.add(async () => metrics.close());
  const note = (line: LogLine): void => {
    metrics.count(line);
    const { cause, ...told } = line;
    if (line.status >= 500 && cause !== undefined) log.error({ ...told, err: cause }, "call");
    else if (log.isLevelEnabled("info")) lines.add(line);
  };
  const { act, actStream, predict, predictStream } = InferenceService.method;
  const hot = [act, actStream, predict, predictStream];
  const takeStream = grpcStreams({
    gate,
    methods: hot,
    maxMessageBytes: MAX_MESSAGE_BYTES,
    closing: closing.signal,
    log: note,
  });
  const server = buildServer({
    gate,
    readiness: () => unready() === undefined,
    log: note,
    metrics: { metrics, adminToken, token: config.metricsToken },
    closing,
    port: { ...(config.tls && { tls: config.tls }), ...(config.grpcFastPath && { onStream: takeStream }) },
  });
  const port = await server.listen(config.host, config.port);
  const gr00t =
    config.gr00tPort === undefined
      ? undefined
      : await serveGr00t({ gate, log: note, host: config.host, port: config.gr00tPort });
  const host = config.host.includes(":") ? `[${config.host}]` : config.host;
  return {
    url: `${config.tls ? "https" : "http"}://${host}:${port}`,
    demo,
    gr00tPort: gr00t?.port,
    async close(patienceMs) {
      draining = true;
      loops.drain();
      upstream.dock.close();
      // The door stays open meanwhile, for those who ask whether the house is ready and for those it has to turn away.
      await within(patienceMs, limits.idle());
      await Promise.all([server.drain(LAST_WORDS_MS), gr00t?.close()]);
      await closers.close();
    },
  };
}

const MAX_MESSAGE_BYTES = 64 << 20;
/** What is still being written when no call runs any more, or when patience is over. */
const LAST_WORDS_MS = 100;

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
