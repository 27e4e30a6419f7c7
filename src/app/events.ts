/** What leaves as events: spans to the targets of organisations, and wake-ups of workers. */
import { Broadcaster } from "../events/broadcast/broadcaster.ts";
import type { EventExporterDeps } from "../events/broadcast/event-exporter.ts";
import { EventBell } from "../events/event-bell.ts";
import { JobNotifier } from "../events/job-notifier.ts";
import { type Mailer, openMailer } from "../events/mail/smtp.ts";
import type { Worker } from "../jobs/worker.ts";
import { headersOf } from "../services/broadcast.ts";
import { openOtlp } from "../upstream/post/otlp.ts";
import { guardedLookup } from "../upstream/transport/guard.ts";
import type { AppContext } from "./context.ts";
import type { Storage } from "./storage.ts";
import type { OpenedUpstream } from "./upstream.ts";

/** Events, opened. */
export interface Events {
  readonly broadcaster: Broadcaster;
  /** Rings when events were written. */
  readonly bell: EventBell;
  /** How receivers of spans are reached. */
  readonly reach: Parameters<typeof openOtlp>[0];
  readonly openTarget: EventExporterDeps["open"];
  /** The workers of this process; filled when they start, so that a notification can wake them. */
  readonly workers: Worker[];
  /** Sends mail; undefined where the operator has named no mail server. */
  readonly mailer: Mailer | undefined;
  /** Tells the workers of all replicas that a job waits. */
  notifyJob(jobId: string): void;
}

/** Opens events. */
export function openEvents(
  { config, log, closers }: AppContext,
  { sql, notifications, natsUrl, vault }: Storage,
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
  const workers: Worker[] = [];
  const wake = (): void => {
    for (const worker of workers) void worker.wake();
  };
  const jobNotifier =
    natsUrl === undefined
      ? undefined
      : new JobNotifier({ url: natsUrl, wake: config.roles.has("worker") ? wake : undefined });
  closers.add(async () => jobNotifier?.close());
  const mailer = config.mail && openMailer(config.mail.url, config.mail.from);
  closers.add(async () => mailer?.close());
  return { broadcaster, bell, mailer, reach, openTarget, workers, notifyJob: (jobId) => jobNotifier?.ring(jobId) };
}
