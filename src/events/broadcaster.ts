/** Sends call spans to organizations' targets from bounded buffers. Spans that a target does not accept in time are dropped and counted. */
import type { Resource } from "@opentelemetry/resources";
import type { ReadableSpan } from "@opentelemetry/sdk-trace";
import { every, now, steadyNow } from "../clock.ts";
import type { Notifications } from "../store/database/notifications.ts";
import type { Sql } from "../store/database/tx.ts";
import {
  type ClaimedEvent,
  claimTargetEvents,
  delayTargetEvents,
  dropTargetEvents,
  findTargetById,
  loadTargets,
  nextTargetEvent,
  noteSent,
  type TargetRecord,
} from "../store/events/broadcast.ts";
import { Polling } from "./polling.ts";
import {
  type EndedCall,
  eventSpan,
  resourceOf,
  shareOf,
  spanIdOf,
  spansOf,
  type ToldEvent,
  traceOf,
  traceparentOf,
} from "./spans.ts";

/** The sender for one target. */
interface SpanSender {
  /** Rejects with an error: `word` is the reason, `again` whether a retry may help, `retryAfterMs` the minimum wait. */
  send(spans: ReadableSpan[]): Promise<void>;
  close(): void;
}

/** Dependencies of the broadcaster. */
interface BroadcasterDeps {
  readonly sql: Sql;
  readonly notifications: Notifications;
  /** Opens the sender for a target. */
  open(target: TargetRecord): SpanSender;
  warn(text: string, cause: unknown): void;
}

/** Handles the calls of an organization with targets. */
export interface CallWatch {
  /** Adds a finished call. */
  ended(call: EndedCall): void;
  /** The header that propagates a call's trace to the offering's server. */
  handOn(call: Pick<EndedCall, "requestId" | "sessionId" | "traceparent">, offeringId: string): string;
}

/** The most spans that are queued per target, and the batch size. */
export const MOST_WAITING = 4_096;
const BATCH = 512;
const FLUSH_MS = 1_000;
/** How often to reload targets without a notification, which may be lost. */
const RELOAD_MS = 30_000;
/** Attempts per batch. */
const TRIES = 5;
/** Milliseconds between two attempts. */
const REST_MS = [1_000, 2_000, 5_000, 10_000] as const;

/** The longest `retry-after` that is honored: spans are buffered in memory. */
const MOST_REST_MS = 300_000;

/** The error of a sender. */
interface SpansNotTaken {
  readonly word?: string;
  readonly again?: boolean;
  readonly retryAfterMs?: number;
}

/** The targets of all organizations and their queues. One per replica. */
export class Broadcaster {
  readonly #deps: BroadcasterDeps;
  readonly #orgs = new Map<string, CallWatch>();
  #queues = new Map<string, TargetQueue>();
  readonly #stops: (() => void)[];
  #loading: Promise<void> | undefined;
  #stale = false;

  /** Starts immediately. */
  constructor(deps: BroadcasterDeps) {
    this.#deps = deps;
    const reload = (): void => void this.load().catch((cause) => deps.warn("could not read span targets", cause));
    this.#stops = [
      deps.notifications.on("broadcast_changed", reload, reload),
      every(RELOAD_MS, reload),
      every(FLUSH_MS, () => this.#flush()),
    ];
    reload();
  }

  /** The handler of an organization's calls; undefined if it has no target. */
  of(orgId: string): CallWatch | undefined {
    return this.#orgs.get(orgId);
  }

  /** Loads the current targets. */
  async load(): Promise<void> {
    this.#stale = true;
    this.#loading ??= this.#load().finally(() => {
      this.#loading = undefined;
    });
    await this.#loading;
  }

  /** Sends queued spans once more, then closes. */
  async close(): Promise<void> {
    for (const stop of this.#stops) stop();
    await this.#loading?.catch(() => {});
    await Promise.all([...this.#queues.values()].map((queue) => queue.close()));
  }

  async #load(): Promise<void> {
    while (this.#stale) {
      this.#stale = false;
      this.#adopt(await loadTargets(this.#deps.sql));
    }
  }

  #adopt(targets: readonly TargetRecord[]): void {
    const before = this.#queues;
    const queues = new Map<string, TargetQueue>();
    const byOrg = new Map<string, TargetQueue[]>();
    for (const target of targets) {
      const known = before.get(target.id);
      const same = known?.revision === target.revision;
      const queue = same ? known : new TargetQueue(this.#deps, target, known?.leave());
      queues.set(target.id, queue);
      byOrg.set(target.orgId, [...(byOrg.get(target.orgId) ?? []), queue]);
    }
    this.#queues = queues;
    for (const queue of before.values()) if (!queues.has(queue.id)) queue.leave();
    for (const orgId of this.#orgs.keys()) if (!byOrg.has(orgId)) this.#orgs.delete(orgId);
    for (const [orgId, own] of byOrg) this.#orgs.set(orgId, watchOf(own));
  }

  #flush(): void {
    for (const queue of this.#queues.values()) void queue.flush();
  }
}

const watchOf = (queues: readonly TargetQueue[]): CallWatch => ({
  ended: (call) => {
    const share = shareOf(call.sessionId ?? call.requestId);
    for (const queue of queues) queue.take(call, share);
  },
  handOn: ({ requestId, sessionId, traceparent }, offeringId) => {
    const { traceId } = traceOf(traceparent, requestId);
    const share = shareOf(sessionId ?? requestId);
    const sampled = queues.some((queue) => queue.samples(share));
    return traceparentOf(traceId, spanIdOf(requestId, "upstream", offeringId), sampled);
  },
});

/** The queue of one target in one revision of its settings. */
class TargetQueue {
  readonly id: string;
  readonly revision: number;
  readonly #target: TargetRecord;
  readonly #deps: BroadcasterDeps;
  readonly #resource: Resource;
  readonly #contracts: ReadonlySet<string>;
  readonly #keyIds: ReadonlySet<string>;
  #sender: SpanSender | undefined;
  #queued: ReadableSpan[];
  #flushing: Promise<void> | undefined;
  /** How many of the queued spans are being sent. */
  #inFlight = 0;
  #tries = 0;
  #pausedUntil = 0;
  #dropped = 0;
  #error: string | undefined;
  /** The last recorded outcome; null before the first. */
  #recorded: string | undefined | null;

  /** `waiting` has the unsent spans of the previous revision. */
  constructor(deps: BroadcasterDeps, target: TargetRecord, waiting: ReadableSpan[] = []) {
    this.#queued = waiting;
    this.id = target.id;
    this.revision = target.revision;
    this.#target = target;
    this.#deps = deps;
    this.#resource = resourceOf(target);
    this.#contracts = new Set(target.filter.contracts);
    this.#keyIds = new Set(target.filter.keyIds);
    this.#error = target.lastError;
    this.#recorded = target.lastError;
  }

  samples(share: number): boolean {
    return share < this.#target.samplingRate;
  }

  take(call: EndedCall, share: number): void {
    if (!this.samples(share) || !this.#wants(call)) return;
    const spans = spansOf(call, this.#resource, this.#target.privacyMode, now());
    if (this.#queued.length + spans.length > MOST_WAITING) {
      this.#drop(spans.length, "full");
      return;
    }
    this.#queued.push(...spans);
    if (this.#queued.length >= BATCH) void this.flush();
  }

  /** Sends queued spans, one batch at a time. Never rejects. */
  flush(): Promise<void> {
    this.#flushing ??= this.#drain(false).finally(() => {
      this.#flushing = undefined;
    });
    return this.#flushing;
  }

  /** Stops and returns the unsent spans; spans in flight may still arrive. */
  leave(): ReadableSpan[] {
    const left = this.#queued.slice(this.#inFlight);
    this.#queued = [];
    const end = (): void => this.#sender?.close();
    if (this.#flushing) void this.#flushing.then(end);
    else end();
    return left;
  }

  /** Sends queued spans, one attempt per batch. */
  async close(): Promise<void> {
    await this.#flushing;
    await this.#drain(true);
    this.#sender?.close();
  }

  async #drain(last: boolean): Promise<void> {
    while (this.#queued.length > 0 && (last || steadyNow() >= this.#pausedUntil)) {
      if (!(await this.#sendOne(last))) break;
    }
    await this.#note();
  }

  /** Whether the next batch can be sent. */
  async #sendOne(last: boolean): Promise<boolean> {
    const queue = this.#queued;
    const batch = queue.slice(0, BATCH);
    try {
      this.#sender ??= this.#deps.open(this.#target);
      this.#inFlight = batch.length;
      await this.#sender.send(batch);
      queue.splice(0, batch.length);
      this.#tries = 0;
      this.#error = undefined;
      return true;
    } catch (thrown) {
      const { word = "unreachable", again = true, retryAfterMs = 0 } = thrown as SpansNotTaken;
      this.#error = word;
      this.#tries += 1;
      if (!last && again && this.#tries < TRIES) {
        this.#pausedUntil = steadyNow() + Math.max(REST_MS[this.#tries - 1]!, Math.min(retryAfterMs, MOST_REST_MS));
        return false;
      }
      const given = last ? queue.length : batch.length;
      queue.splice(0, given);
      this.#drop(given, word);
      this.#tries = 0;
      return !last;
    } finally {
      this.#inFlight = 0;
    }
  }

  #drop(spans: number, why: string): void {
    this.#dropped += spans;
    this.#error = why;
  }

  async #note(): Promise<void> {
    const [dropped, lastError] = [this.#dropped, this.#error];
    if (dropped === 0 && lastError === this.#recorded) return;
    try {
      await noteSent(this.#deps.sql, this.id, { dropped, lastError });
      this.#dropped -= dropped;
      this.#recorded = lastError;
    } catch (cause) {
      this.#deps.warn("could not record the outcome of spans; trying again", cause);
    }
  }

  #wants({ contract, model, keyId, workspaceId }: EndedCall): boolean {
    const { models, workspaceId: wanted } = this.#target.filter;
    if (this.#contracts.size > 0 && !this.#contracts.has(contract)) return false;
    if (this.#keyIds.size > 0 && !this.#keyIds.has(keyId)) return false;
    if (wanted !== undefined && wanted !== workspaceId) return false;
    return models.length === 0 || models.some((each) => each === model || isOwner(each, model));
  }
}

const isOwner = (pattern: string, model: string): boolean =>
  pattern.endsWith("/*") && model.startsWith(pattern.slice(0, -1));

// Sends events to the span targets that request them: at least once each, until they are given up like spans.

/** Dependencies of the exporter. */
export interface EventExporterDeps {
  readonly sql: Sql;
  readonly notifications: Notifications;
  /** Opens the sender for a target. */
  open(target: TargetRecord): SpanSender;
  /** Reads an event message. */
  read(payload: Uint8Array): ToldEvent;
  warn(text: string, cause: unknown): void;
}

/** Concurrent targets per process. */
const AT_ONCE = 16;

/** An event exporter. Any number of them share the events of one database. */
export class EventExporter {
  readonly #deps: EventExporterDeps;
  readonly #rounds: Polling;
  readonly #running = new Map<string, Promise<void>>();

  /** Starts immediately. */
  constructor(deps: EventExporterDeps) {
    this.#deps = deps;
    this.#rounds = new Polling({
      notifications: deps.notifications,
      channel: "broadcast_event",
      look: () => this.#fill(),
      failed: (cause) => deps.warn("event export is paused until the database is back", cause),
    });
  }

  /** Stops accepting events and waits for those in flight. */
  async close(): Promise<void> {
    await this.#rounds.close();
    await Promise.all(this.#running.values());
  }

  /** Sends the due events. Returns the milliseconds until the next is due. */
  async #fill(): Promise<number | undefined> {
    while (!this.#rounds.over && this.#running.size < AT_ONCE) {
      const claimed = await claimTargetEvents(this.#deps.sql, [...this.#running.keys()]);
      const [first] = claimed;
      if (!first) break;
      const { targetId } = first;
      const running = this.#send(targetId, claimed)
        .catch((cause) => this.#deps.warn("could not record the outcome of events; sending them again", cause))
        .then(() => {
          this.#running.delete(targetId);
          this.#rounds.wake();
        });
      this.#running.set(targetId, running);
    }
    return nextTargetEvent(this.#deps.sql);
  }

  async #send(targetId: string, claimed: readonly ClaimedEvent[]): Promise<void> {
    const { sql, open, read } = this.#deps;
    const positions = claimed.map(({ position }) => position);
    const target = await findTargetById(sql, targetId);
    if (!target) return;
    const resource = resourceOf(target);
    const spans = claimed.map(({ payload }) => eventSpan(read(payload), resource, target.privacyMode));
    let sender: SpanSender | undefined;
    try {
      sender = open(target);
      await sender.send(spans);
    } catch (thrown) {
      const { word = "unreachable", again = true } = thrown as { word?: string; again?: boolean };
      const tries = Math.max(...claimed.map((each) => each.tries));
      if (again && tries < TRIES) await delayTargetEvents(sql, positions, REST_MS[tries - 1]!);
      else await dropTargetEvents(sql, positions);
      await noteSent(sql, targetId, { dropped: again && tries < TRIES ? 0 : claimed.length, lastError: word });
      return;
    } finally {
      sender?.close();
    }
    await dropTargetEvents(sql, positions);
    if (target.lastError !== undefined) await noteSent(sql, targetId, { dropped: 0, lastError: undefined });
  }
}
