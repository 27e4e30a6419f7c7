/** The worker role of a process: jobs, webhooks, scheduled probes, and deletion of expired data. */
import { EvaluationService } from "../../gen/limber/v1/evaluation_service_pb.ts";
import { every, now, nowSeconds } from "../clock.ts";
import type { CallLog } from "../edge/call-log.ts";
import type { Gate } from "../edge/gate/gate.ts";
import { eventForSpans, eventText } from "../edge/messages/json.ts";
import { openJobCalls } from "../edge/transports/jobs.ts";
import { EventExporter } from "../events/broadcaster.ts";
import { MailSender } from "../events/mail.ts";
import { WebhookSender } from "../events/webhooks.ts";
import { WorkFeeder, WorkQueue } from "../events/work-queue.ts";
import { batchWork, exportWork } from "../jobs/batch.ts";
import { ExtraLanes } from "../jobs/cores.ts";
import type { EvaluationDeps } from "../jobs/episodes.ts";
import { evaluationWork } from "../jobs/evaluation.ts";
import { filmWork } from "../jobs/film.ts";
import { shareWork } from "../jobs/share.ts";
import { Worker } from "../jobs/worker.ts";
import { PIN_SILENCE_MS } from "../routing/index.ts";
import { notifyExpiringKeys } from "../services/keys.ts";
import { AutoTopUps } from "../services/payments.ts";
import { emitWebhookDisabled, secretsOf } from "../services/webhook.ts";
import { findKey } from "../store/account/keys.ts";
import { pruneRates } from "../store/account/rates.ts";
import { pruneCodes, pruneSessions } from "../store/account/sessions.ts";
import { pruneTold } from "../store/billing/alerts.ts";
import { pruneIdempotency } from "../store/billing/idempotency.ts";
import { closeAllMonths } from "../store/billing/statements.ts";
import type { Sql } from "../store/database/tx.ts";
import { pruneTargetEvents } from "../store/events/broadcast.ts";
import { pruneMail } from "../store/events/mail.ts";
import { EVENT_DAYS, pruneEvents, pruneUnsent } from "../store/events/outbox.ts";
import { pruneDeliveries } from "../store/events/webhooks.ts";
import { pruneDigests } from "../store/history/logs.ts";
import { forgetLogs } from "../store/history/partitions.ts";
import { pruneRollups, pruneSeries } from "../store/history/series.ts";
import { pruneJobKeys, pruneJobs } from "../store/jobs/jobs.ts";
import { pruneLoopSessions, prunePins } from "../store/replicas/loop-sessions.ts";
import { pruneOutboundConnections, pruneServerLeases } from "../store/replicas/replicas.ts";
import { keepProbing } from "../supply/probe/probe.ts";
import { post } from "../upstream/post.ts";
import type { AppContext } from "./context.ts";
import { addressOf, type Subsystems, supplyDeps } from "./services.ts";
import { HOOK_MS } from "./subsystems.ts";

const PRUNE_MS = 3_600_000;
const ARCHIVE_MS = 6 * 3_600_000;
/** A month is closed this long after its end, because clocks of replicas differ slightly. */
const CLOSING_GRACE_MS = 600_000;
/** The retention of jobs and their results. */
const RESULT_DAYS = 30;
/** The most bytes read of a receiver's response. */
const HOOK_ANSWER_BYTES = 64 << 10;
/** Concurrent batches of one process. */
const BATCHES_AT_ONCE = 4;
/** Concurrent evaluations and shares: most wait for their policies, and each needs 64 MB. */
const EVALUATIONS_AT_ONCE = 16;
const EXTRA_LANES = 16;
/** The number of queued callers from which low-priority work waits. */
const CROWD = 32;

/** The figures of the workers. */
interface Working {
  archiveFailures(): number;
}

/** Starts the workers. */
export function startWorkers(
  { config, log, replica, closers }: AppContext,
  subsystems: Subsystems,
  gate: Gate,
  record: CallLog,
): Working {
  const { limits, load, scenarios, cores, seals } = subsystems;
  const { sql, notifications, natsUrl, vault } = subsystems.storage;
  const { leaser, queryPendingPayments, processor, warn, alert } = subsystems.billing;
  const { upstream, agent, hookAgent, allowPrivate } = subsystems.outward;
  const { openTarget, mailer } = subsystems.events;
  const jobs: (() => Promise<unknown>)[] = [
    () => pruneRates(sql),
    () => closeAllMonths(sql, now() - CLOSING_GRACE_MS),
    () => pruneIdempotency(sql),
    () => pruneLoopSessions(sql),
    () => pruneOutboundConnections(sql),
    () => pruneServerLeases(sql),
    () => pruneCodes(sql),
    () => pruneSessions(sql),
    () => notifyExpiringKeys(sql),
    () => pruneTold(sql, now()),
    () => pruneEvents(sql, EVENT_DAYS),
    () => pruneJobs(sql, RESULT_DAYS),
    () => pruneJobKeys(sql),
    () => pruneDeliveries(sql, RESULT_DAYS),
    () => pruneTargetEvents(sql, EVENT_DAYS),
    () => pruneMail(sql, EVENT_DAYS),
    () => forgetLogs(sql),
    () => pruneDigests(sql),
    () => pruneRollups(sql, Math.floor(nowSeconds() / 60)),
    () => pruneSeries(sql, now()),
    () => prunePins(sql, now() - PIN_SILENCE_MS),
  ];
  if (natsUrl === undefined) jobs.push(() => pruneUnsent(sql, EVENT_DAYS));
  if (queryPendingPayments) jobs.push(queryPendingPayments);
  const prune = (): void => {
    for (const job of jobs) job().catch((error) => log.warn({ err: error }, "pruning failed"));
  };
  prune();
  closers.add(keepProbing(supplyDeps(subsystems), (text) => log.warn(text)));
  if (processor) {
    const topUps = new AutoTopUps({ sql, notifications, processor, leaser, warn, alert });
    closers.add(() => topUps.close());
  }
  const rest = every(PRUNE_MS, prune);
  closers.add(async () => rest());
  const archive = startArchive({ config, log, closers }, sql);
  const later = openJobCalls({ gate, limits, find: (keyId) => findKey(sql, keyId), log: record });
  const evaluations: EvaluationDeps = {
    sql,
    seals,
    vault,
    leaser,
    upstream,
    agent,
    allowPrivate,
    scenarios,
    principal: async (keyId) => gate.inNameOf(EvaluationService.method.evaluate, await findKey(sql, keyId)),
    act: (keyId) => (call) => later.inTurn(keyId, { ...call, contract: "act", idempotencyKey: undefined }),
    cores,
    extraLanes: new ExtraLanes({ inAll: EXTRA_LANES, ofOrg: EXTRA_LANES / 2 }),
  };
  const working = {
    sql,
    notifications,
    owner: replica,
    warn: (text: string, cause: unknown) => log.warn({ err: cause }, text),
  };
  const film = filmWork({ sql, scenarios, cores, ffmpeg: config.ffmpeg, warn: working.warn });
  const batches = {
    export: exportWork({ sql }),
    batch: batchWork({ ...later, sql, seals, crowded: () => limits.running >= CROWD || load.isBusy }),
  };
  const queue =
    natsUrl === undefined
      ? undefined
      : new WorkQueue({ url: natsUrl, replica, copies: config.natsCopies, warn: working.warn });
  const feeder = queue && new WorkFeeder({ ...working, queue });
  const queueOf = (kind: "batch" | "evaluation" | "film") => queue && { of: queue, kind };
  const workers = [
    new Worker({ ...working, queue: queueOf("batch"), work: batches, atOnce: BATCHES_AT_ONCE }),
    new Worker({
      ...working,
      queue: queueOf("evaluation"),
      work: { evaluation: evaluationWork(evaluations), share: shareWork(evaluations) },
      atOnce: EVALUATIONS_AT_ONCE,
      atOncePerOrg: EVALUATIONS_AT_ONCE / 2,
    }),
    // One at a time: a film of 300 frames of 480 x 480 pixels added 341 to 365 MB to the process.
    new Worker({ ...working, queue: queueOf("film"), work: { film }, atOnce: 1 }),
  ];
  // Cleanup runs in reverse order: workers must return their messages before the connection closes.
  closers.add(async () => {
    await feeder?.close();
    await queue?.close();
  });
  const hookLimits = { agent: hookAgent, allowPrivate, timeoutMs: HOOK_MS, maxBytes: HOOK_ANSWER_BYTES };
  const sender = new WebhookSender({
    ...working,
    queue,
    post: (url, headers, body) => post(url, { ...hookLimits, headers, body }),
    textOf: eventText,
    secretsOf: (hook) => secretsOf(vault, hook),
    disabled: emitWebhookDisabled,
  });
  closers.add(() => sender.close());
  const teller = new EventExporter({ ...working, open: openTarget, read: eventForSpans });
  closers.add(() => teller.close());
  if (mailer !== undefined) {
    const mails = new MailSender({ ...working, mailer, vault, home: addressOf(config, subsystems.url) });
    closers.add(() => mails.close());
  }
  closers.add(() => Promise.all(workers.map((worker) => worker.close())));
  return { archiveFailures: archive };
}

/** Archives due months, at once and every few hours; returns the number of failures so far. */
function startArchive(
  { config, log, closers }: Pick<AppContext, "config" | "log" | "closers">,
  sql: Sql,
): () => number {
  const { archive } = config;
  if (archive === undefined) return () => 0;
  let [failures, isClosing] = [0, false];
  let running: Promise<unknown> | undefined;
  const run = async (): Promise<void> => {
    // Most processes archive nothing, and need no Parquet.
    const { archiveHistory, openArchive } = await import("../jobs/archive.ts");
    const { place, afterMonths } = archive;
    const deps = { sql, folder: openArchive(place), afterMonths, isClosing: () => isClosing };
    const requests = await archiveHistory(deps, new Date(now()));
    if (requests > 0) log.info({ requests }, "archived requests of past months");
  };
  const start = (): void => {
    running ??= run()
      .catch((error) => {
        failures += 1;
        log.warn({ err: error }, "the request history could not be archived; nothing was dropped");
      })
      .finally(() => {
        running = undefined;
      });
  };
  start();
  const rest = every(ARCHIVE_MS, start);
  closers.add(async () => {
    isClosing = true;
    rest();
    await running;
  });
  return () => failures;
}
