/** What a process does in the role of a worker: jobs, webhooks, probes by schedule, and forgetting what is over. */
import { availableParallelism } from "node:os";
import type { Logger } from "pino";
import { EvaluationService } from "../../gen/limber/v1/evaluation_service_pb.ts";
import { every, now, nowSeconds } from "../clock.ts";
import type { Config } from "../config.ts";
import type { LoadShedder } from "../edge/gate/admission/admission.ts";
import type { Gate } from "../edge/gate/gate.ts";
import type { RateLimits } from "../edge/gate/rate-limits.ts";
import { eventText, toldEvent } from "../edge/messages/event-text.ts";
import { openJobCalls } from "../edge/transports/jobs.ts";
import { EventExporter, type EventExporterDeps } from "../events/broadcast/event-exporter.ts";
import { WebhookSender } from "../events/webhooks.ts";
import type { Leaser } from "../inference/call-billing.ts";
import { batchWork } from "../jobs/batch.ts";
import { evaluationWork } from "../jobs/evaluation.ts";
import { Worker } from "../jobs/worker.ts";
import { PIN_SILENCE_MS } from "../routing/index.ts";
import type { Scenario } from "../scenarios/scenario.ts";
import { tellOfEndingKeys } from "../services/account/expiry.ts";
import type { JobSeals } from "../services/job/seal.ts";
import { secretsOf, tellDisabled } from "../services/webhook.ts";
import { findKey } from "../store/account/keys.ts";
import { pruneCodes } from "../store/account/oauth.ts";
import { pruneRates } from "../store/account/rates.ts";
import { pruneTold } from "../store/billing/alerts.ts";
import { closeAllMonths } from "../store/billing/commitments.ts";
import { pruneIdempotency } from "../store/billing/idempotency.ts";
import type { Notifications } from "../store/database/notifications.ts";
import type { Sql } from "../store/database/tx.ts";
import { pruneTargetEvents } from "../store/events/broadcast-events.ts";
import { forgetLogs } from "../store/events/logs.ts";
import { pruneEvents, pruneUnsent } from "../store/events/outbox.ts";
import { pruneDeliveries } from "../store/events/webhooks.ts";
import { pruneJobKeys, pruneJobs } from "../store/jobs/jobs.ts";
import { pruneLoopSessions } from "../store/replicas/loop-sessions.ts";
import { pruneOutboundConnections } from "../store/replicas/outbound-connections.ts";
import { prunePins } from "../store/replicas/pins.ts";
import { pruneRollups } from "../store/replicas/rollups.ts";
import { pruneServerLeases } from "../store/replicas/server-leases.ts";
import type { SupplyDeps } from "../supply/deps.ts";
import { keepProbing } from "../supply/probe/schedule.ts";
import type { Upstream } from "../upstream/index.ts";
import type { FrameOptions } from "../upstream/pictures/frames.ts";
import { Poster } from "../upstream/post/poster.ts";
import { guardedConnector } from "../upstream/transport/guard.ts";
import type { Vault } from "../vault.ts";
import type { Closers } from "./closers.ts";

/** What the role depends on. */
export interface WorkersDeps {
  config: Config;
  sql: Sql;
  notifications: Notifications;
  log: Logger;
  /** Names this process among all. */
  replica: string;
  natsUrl: string | undefined;
  leaser: Leaser;
  vault: Vault;
  seals: JobSeals;
  upstream: Upstream;
  agent: FrameOptions["agent"];
  /** For what is posted to receivers of events. */
  hookAgent: FrameOptions["agent"];
  /** Opens the way to a target of spans. */
  openTarget: EventExporterDeps["open"];
  allowPrivate: boolean;
  gate: Gate;
  limits: RateLimits;
  load: LoadShedder;
  scenarios: ReadonlyMap<string, Scenario>;
  /** Filled with the workers, so that a bell can wake them. */
  workers: Worker[];
  supplyParts: SupplyDeps;
  /** Asks the payment processor about payments that nothing was heard of; undefined without one. */
  forgotten: (() => Promise<unknown>) | undefined;
  closers: Closers;
}

const PRUNE_MS = 3_600_000;
/** A month is closed this long after its end: clocks of replicas differ a little. */
const CLOSING_GRACE_MS = 600_000;
/** How long events are kept after they were told, or where nobody is told. */
const EVENT_DAYS = 7;
/** How long jobs are kept with their results. */
const RESULT_DAYS = 30;
/** How long the receiver of an event has, and how much of its answer is read. */
export const HOOK_MS = 10_000;
const HOOK_ANSWER_BYTES = 64 << 10;
/** Batches that one process works on at one time. */
const BATCHES_AT_ONCE = 4;
/** Callers who wait, from which on work that can wait does. */
const CROWD = 32;

/** Begins to work. */
export function startWorkers(deps: WorkersDeps): void {
  const {
    config,
    sql,
    notifications,
    log,
    replica,
    natsUrl,
    leaser,
    vault,
    upstream,
    agent,
    hookAgent,
    allowPrivate,
    gate,
  } = deps;
  const { seals, limits, load, scenarios, workers, supplyParts, forgotten, closers, openTarget } = deps;
  const jobs: (() => Promise<unknown>)[] = [
    () => pruneRates(sql),
    () => closeAllMonths(sql, now() - CLOSING_GRACE_MS),
    () => pruneIdempotency(sql),
    () => pruneLoopSessions(sql),
    () => pruneOutboundConnections(sql),
    () => pruneServerLeases(sql),
    () => pruneCodes(sql),
    () => tellOfEndingKeys(sql),
    () => pruneTold(sql, now()),
    () => pruneEvents(sql, EVENT_DAYS),
    () => pruneJobs(sql, RESULT_DAYS),
    () => pruneJobKeys(sql),
    () => pruneDeliveries(sql, RESULT_DAYS),
    () => pruneTargetEvents(sql, EVENT_DAYS),
    () => forgetLogs(sql),
    () => pruneRollups(sql, Math.floor(nowSeconds() / 60)),
    () => prunePins(sql, now() - PIN_SILENCE_MS),
  ];
  if (natsUrl === undefined) jobs.push(() => pruneUnsent(sql, EVENT_DAYS));
  if (forgotten) jobs.push(forgotten);
  const prune = (): void => {
    for (const job of jobs) job().catch((error) => log.warn({ err: error }, "pruning failed"));
  };
  prune();
  closers.add(keepProbing(supplyParts, (text) => log.warn(text)));
  const rest = every(PRUNE_MS, prune);
  closers.add(async () => rest());
  const later = openJobCalls({ gate, limits, find: (keyId) => findKey(sql, keyId) });
  const evaluation = evaluationWork({
    sql,
    seals,
    leaser,
    upstream,
    agent,
    allowPrivate,
    scenarios,
    packs: config.scenarioPacks,
    principal: async (keyId) => gate.inNameOf(EvaluationService.method.evaluate, await findKey(sql, keyId)),
    act: (keyId, rest) => (call) => later.inTurn(keyId, { ...call, contract: "act", idempotencyKey: undefined }, rest),
  });
  const working = {
    sql,
    notifications,
    owner: replica,
    warn: (text: string, cause: unknown) => log.warn({ err: cause }, text),
  };
  const batches = { batch: batchWork({ ...later, sql, seals, crowded: () => limits.running >= CROWD || load.isBusy }) };
  workers.push(
    new Worker({ ...working, work: batches, atOnce: BATCHES_AT_ONCE }),
    // Physics takes a core each.
    new Worker({ ...working, work: { evaluation }, atOnce: Math.max(1, availableParallelism() - 1) }),
  );
  const poster = new Poster({
    agent: hookAgent,
    connect: guardedConnector({ allowPrivate, dnsServers: config.dnsServers }),
    allowPrivate,
    timeoutMs: HOOK_MS,
    maxBytes: HOOK_ANSWER_BYTES,
  });
  const sender = new WebhookSender({
    ...working,
    post: (url, headers, body) => poster.post(url, headers, body),
    textOf: eventText,
    secretsOf: (hook) => secretsOf(vault, hook),
    disabled: tellDisabled,
  });
  closers.add(() => sender.close().finally(() => poster.close()));
  const teller = new EventExporter({ ...working, open: openTarget, read: toldEvent });
  closers.add(() => teller.close());
  closers.add(() => Promise.all(workers.map((worker) => worker.close())));
}
