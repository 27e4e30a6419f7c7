/** The composition root: opens the subsystems one after the other, and closes them in reverse. */
import { availableParallelism } from "node:os";
import { pino } from "pino";
import { now, sleep, steadyNow } from "../clock.ts";
import type { CertificatePair, Config } from "../config.ts";
import { type LogLine, RefusedCalls } from "../edge/call-log.ts";
import { LoadShedder } from "../edge/gate/admission.ts";
import { RateLimits } from "../edge/gate/rate-limits.ts";
import { openArmedLoops } from "../edge/transports/armed.ts";
import { demoKey, demoSignIn } from "../embedded/demo.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { newId } from "../ids.ts";
import { embodimentOf } from "../inference/robot-check.ts";
import { Cores } from "../jobs/cores.ts";
import { startReference } from "../reference/launch.ts";
import { loadScenarios } from "../scenarios/index.ts";
import { OidcClients } from "../services/issuer.ts";
import { JobSeals } from "../services/job.ts";
import { Controls } from "../services/publication-controls.ts";
import { bringReference, lastReferencePorts } from "../services/supply/reference.ts";
import { KeyCache, SessionCache } from "../store/account/caches.ts";
import { findKey } from "../store/account/keys.ts";
import { takeRates } from "../store/account/rates.ts";
import { endOf, findSession } from "../store/account/sessions.ts";
import { isDamaged } from "../store/database/unavailable.ts";
import { type AppContext, Closers, type ClusterMember } from "./context.ts";
import { openGate } from "./gate.ts";
import type { Subsystems } from "./services.ts";
import { supplyDeps } from "./services.ts";
import { openStorage, type Storage, whenDatabaseAnswers } from "./storage.ts";
import { openBilling, openEvents, openInference, openSupply, openUpstream, samplesOf } from "./subsystems.ts";
import { type OpenedPort, openPort, type Transports } from "./transports.ts";
import { startWorkers } from "./workers.ts";

/** A running gateway. */
export interface Gateway {
  /** Its address, such as `http://127.0.0.1:8080`; undefined for a process that only works on jobs. */
  url: string | undefined;
  /** Further addresses, if HOST stands for every address of the machine. */
  otherUrls: readonly string[];
  /** The port for Isaac-GR00T clients, if configured. */
  gr00tPort?: number | undefined;
  /** The operations port, if configured. */
  operationsPort?: number | undefined;
  /** What worker processes need to share this process's resources; undefined if it opened none. */
  shared?: SharedParts | undefined;
  /**
   * If this process generated them: a key with credit, the operator's token, the address of its NATS, and the one-time token that signs in the
   * first user.
   */
  demo: { key: string; adminToken: string; natsUrl: string | undefined; signIn: string | undefined } | undefined;
  /**
   * Shuts down: reports not ready, asks control loops and connections to move, and still serves for `delayMs`. Then accepts no new calls, waits
   * up to `patienceMs` for running ones, and releases everything.
   */
  close(patienceMs: number, delayMs?: number): Promise<void>;
  /** Replaces the certificate for new connections. Throws if TLS is off or the certificate is invalid. */
  renew(tls: CertificatePair): void;
}

/** Resources that exist once for all processes of a gateway. */
export interface SharedParts {
  /** Environment variables of the workers, in place of the primary's. */
  readonly env: Readonly<Record<string, string>>;
  /** Addresses of the reference provider. */
  readonly own: readonly string[];
}

/** Opens the gateway; `member` is set if there are several processes. If a step fails, everything opened so far is closed. */
export async function openGateway(config: Config, member?: ClusterMember): Promise<Gateway> {
  const closers = new Closers();
  try {
    return await open(config, closers, member);
  } catch (thrown) {
    await closers.close();
    throw thrown;
  }
}

async function open(config: Config, closers: Closers, member: ClusterMember | undefined): Promise<Gateway> {
  const logLines = pino.destination({ dest: 2, sync: false, minLength: 16_000, periodicFlush: 200 });
  const log = pino({ level: config.logLevel }, logLines);
  closers.add(async () => log.flush());
  const context: AppContext = { config, log, replica: newId("replica"), closers, member };
  const load = new LoadShedder();
  const listens = config.roles.has("api") || config.operationsPort !== undefined;
  const port = listens ? await openPort(context, logLines, load) : undefined;
  try {
    return await openBehind(context, load, port);
  } catch (thrown) {
    if (port === undefined || !isDamaged(thrown)) throw thrown;
    const mend = "restore a backup and restart; until then the process serves only the health check";
    log.error({ err: thrown }, `the store is damaged: ${thrown.message}; ${mend}`);
    port.gate.refuse(unready(Reason.STATE_UNLOADED, "state unloaded: the gateway's store is damaged"));
    const { url, otherUrls, gr00tPort, operationsPort, renew } = port.transports;
    return { url, otherUrls, gr00tPort, operationsPort, demo: undefined, renew, close: () => closers.close() };
  }
}

const unready = (reason: Reason, text: string): Refusal => refuse(reason, text, {}, { retryAfter: 1 });

/** Opens everything behind the port, and admits calls. */
async function openBehind(context: AppContext, load: LoadShedder, port: OpenedPort | undefined): Promise<Gateway> {
  const { config, closers, log, member } = context;
  const storage = await openStorage(context);
  const { sql, notifications, vault, natsUrl, adminToken, secrets } = storage;
  const keys = new KeyCache(sql, notifications);
  closers.add(async () => keys.close());
  const sessions = new SessionCache(sql, notifications);
  closers.add(async () => sessions.close());
  const limits = new RateLimits((asks) => takeRates(sql, context.replica, asks));
  closers.add(() => limits.close());
  const billing = await openBilling(context, storage);
  const outward = openUpstream(context, storage);
  const events = openEvents(context, storage, outward);
  const { scenarios, refused: refusedPacks } = await loadScenarios(config.scenarioPacks);
  const packWarnings = refusedPacks.map(({ name, faults }) => `scenario pack ${name} is skipped: ${faults.join("; ")}`);
  for (const warning of packWarnings) log.warn(warning);
  const supply = openSupply({ ...storage, ...context, outward, scenarios });
  const inference = await openInference(context, { storage, billing, supply, outward, events });

  const cores = new Cores(Math.max(1, availableParallelism() - 1));
  const phase: Phase = { isDraining: false, isRefusing: false };
  const subsystems: Subsystems = {
    config,
    storage,
    keys,
    sessions,
    oidc: new OidcClients({ vault, agent: outward.agent, allowPrivate: outward.allowPrivate }),
    limits,
    load,
    billing,
    outward,
    events,
    supply,
    scenarios,
    cores,
    controls: new Controls(scenarios, { cores, threads: new Cores(1) }),
    packWarnings,
    processWarnings: () => member?.warnings() ?? [],
    inference,
    seals: new JobSeals(sql, vault),
    url: port?.transports.url,
    unready() {
      if (phase.isDraining) return unready(Reason.NOT_READY, "the gateway is shutting down");
      const others = member?.unready();
      if (others !== undefined) return unready(Reason.NOT_READY, others);
      if (!supply.loader.loaded) return unready(Reason.STATE_UNLOADED, "state unloaded: supply can't be read");
      return supply.supply.snapshot.catalogued === 0 ? unready(Reason.NOT_READY, "the registry is empty") : undefined;
    },
  };
  const gate = openGate(subsystems, () => phase.isRefusing);
  const isOpen = async (id: string): Promise<boolean> => {
    const session = await findSession(sql, id);
    return session !== undefined && endOf(session) > now();
  };
  inference.robots.bind(openArmedLoops({ gate, limits, find: (keyId) => findKey(sql, keyId), isOpen }));

  if (config.referenceSupply) await openReference(context, subsystems);
  outward.upstream.hub.onChange(() => void supply.loader.load());
  supply.loader.follow(notifications);
  await supply.loader.load();
  // Without it, statistics start empty, which must not prevent the start.
  await supply.rollup.recall().catch((error) => log.warn({ err: error }, "the previous figures could not be loaded"));
  const key = secrets && (await whenDatabaseAnswers(log, () => demoKey(sql, config.dataDir, secrets)));
  const ownNatsUrl = config.natsUrl === undefined ? natsUrl : undefined;
  const signIn = key === undefined ? undefined : await demoSignIn(sql, key);
  const demo = key === undefined ? undefined : { key, adminToken, natsUrl: ownNatsUrl, signIn };
  const shared = sharedParts(config, storage, [...outward.own]);
  const refused = new RefusedCalls((record) => void billing.leaser.note(record).catch(() => undefined));
  const record = (line: LogLine): void => refused.take(line);
  const working = config.roles.has("worker") ? startWorkers(context, subsystems, gate, record) : undefined;
  if (port === undefined)
    return { url: undefined, otherUrls: [], demo, shared, close: () => closers.close(), renew: () => undefined };

  const { loops } = inference;
  port.fill({
    sources: {
      offerings: () => samplesOf(supply.supply),
      loops: () => ({ open: loops.size, offerings: loops.offerings(), sessions: loops.sessions() }),
      leaser: () => billing.leaser.figures,
      callsRunning: () => limits.running,
      undecidedPayments: () => billing.undecidedPayments(),
      storage: () => ({
        isDatabaseUp: !storage.pulse.silent,
        doEventsWait: storage.doEventsWait(),
        historyAheadDays: storage.historyAheadDays(),
        archiveFailures: working?.archiveFailures() ?? 0,
      }),
    },
    adminToken,
    record,
    isReady: () => subsystems.unready() === undefined,
    embodimentOf: (model) => embodimentOf(supply.supply, model),
  });
  port.gate.open(gate);
  const { url, otherUrls, gr00tPort, operationsPort, renew } = port.transports;
  if (url === undefined) {
    const close = (): Promise<void> => {
      phase.isDraining = true;
      port.transports.leave();
      return closers.close();
    };
    return { url, otherUrls, demo, shared, operationsPort, close, renew };
  }
  return {
    url,
    otherUrls,
    demo,
    gr00tPort,
    operationsPort,
    renew,
    async close(patienceMs, delayMs = 0) {
      await drain(port.transports, subsystems, phase, { patienceMs, delayMs });
      await closers.close();
    },
  };
}

function sharedParts(
  { masterKey, allowPrivateAddresses }: Config,
  { url, natsUrl, adminToken, secrets }: Storage,
  own: readonly string[],
): SharedParts {
  const env = {
    LIMBER_OPERATIONS_PORT: "",
    LIMBER_REFERENCE_SUPPLY: "false",
    ...(natsUrl !== undefined && { NATS_URL: natsUrl }),
    ...(secrets && {
      DATABASE_URL: url,
      SERVICE_ADMIN_TOKEN: adminToken,
      LIMBER_MASTER_KEY: masterKey?.toString("base64") ?? secrets.masterKey,
      LIMBER_ALLOW_PRIVATE_ADDRESSES: String(allowPrivateAddresses),
    }),
  };
  return { env, own };
}

/** The progress of the shutdown. */
interface Phase {
  /** It reports not ready, but still serves. */
  isDraining: boolean;
  /** It accepts no new calls. */
  isRefusing: boolean;
}

/**
 * How long after the delay idle connections stay open and their calls are served: a caller that was idle until then learns from its next
 * response that this replica is shutting down, rather than losing a call.
 */
const IDLE_MS = 5_000;

/** Moves callers elsewhere for `delayMs`, then accepts no new calls. Resolves when running calls have ended or `patienceMs` have passed. */
async function drain(
  transports: Transports,
  { inference: { loops, robots }, outward, limits }: Subsystems,
  phase: Phase,
  { patienceMs, delayMs }: { patienceMs: number; delayMs: number },
): Promise<void> {
  phase.isDraining = true;
  // The order matters: a robot that moves first would open its next stream here.
  transports.leave();
  if (delayMs > 0) {
    const began = steadyNow();
    // A load balancer that has not noticed yet would route it back here, and it would have to move again.
    await sleep(delayMs / 2);
    await loops.moveOver(delayMs / 4);
    await sleep(Math.max(0, began + delayMs - steadyNow()));
  }
  const idleMs = Math.min(IDLE_MS, delayMs);
  const late = new AbortController();
  const idle = (async () => {
    // Serve what callers sent before they were notified.
    if (idleMs > 0) await sleep(idleMs, late.signal).catch(() => undefined);
    phase.isRefusing = true;
    loops.drain();
    robots.drain();
    outward.upstream.hub.close();
    await limits.idle();
  })();
  transports.leave();
  loops.move();
  const patience = new AbortController();
  const over = sleep(patienceMs, patience.signal).catch(() => undefined);
  await transports.drain(patienceMs, idle, idleMs);
  late.abort();
  // A call whose caller disconnected may still need its settlement.
  await Promise.race([idle, over]);
  patience.abort();
}

/** Starts the reference provider and declares its offerings, before any call. */
async function openReference({ log, closers }: AppContext, subsystems: Subsystems): Promise<void> {
  const { storage, outward } = subsystems;
  const ports = await whenDatabaseAnswers(log, () => lastReferencePorts(storage.sql));
  const options = { log: (text: string) => log.warn(text) };
  // Another program might use the port now; at another address its offerings are new ones.
  const reference = await startReference({ ...options, ...ports }).catch(() => startReference(options));
  closers.add(() => reference.stop());
  outward.own.add(reference.grpc).add(reference.openpi);
  // Supply is loaded after all declarations.
  const deps = { ...supplyDeps(subsystems), allowPrivate: true, refresh: async () => {} };
  await whenDatabaseAnswers(log, async () => {
    for (const fault of await bringReference(deps, reference.grpc)) log.error(`reference provider: ${fault}`);
  });
}
