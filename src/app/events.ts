/** What leaves as events: spans to the targets of organisations, and mail. */
import { Broadcaster } from "../events/broadcast/broadcaster.ts";
import type { EventExporterDeps } from "../events/broadcast/event-exporter.ts";
import { EventBell } from "../events/event-bell.ts";
import { type Mailer, openMailer } from "../events/mail/smtp.ts";
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
  /** Sends mail; undefined where the operator has named no mail server. */
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
