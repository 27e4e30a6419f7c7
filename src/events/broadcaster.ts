/** Sends spans of calls to the targets of their organizations, from bounded buffers; what is not taken in time is dropped and counted. */
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

/** The sender to one target. */
interface SpanSender {
  /** Rejects with an error of which `word` is the reason, `again` whether trying again may help, and `retryAfterMs` how long to wait at least. */
  send(spans: ReadableSpan[]): Promise<void>;
  close(): void;
}

/** What broadcasting depends on. */
interface BroadcasterDeps {
  readonly sql: Sql;
  readonly notifications: Notifications;
  /** Opens the sender to a target. */
  open(target: TargetRecord): SpanSender;
  warn(text: string, cause: unknown): void;
}

/** What an organization with targets does with its calls. */
export interface CallWatch {
  /** Takes in a call that ended. */
  ended(call: EndedCall): void;
  /** The header that hands the trace of a call on to the server of an offering. */
  handOn(call: Pick<EndedCall, "requestId" | "sessionId" | "traceparent">, offeringId: string): string;
}

/** Spans that wait for one target, and how many travel together. */
export const MOST_WAITING = 4_096;
const BATCH = 512;
const FLUSH_MS = 1_000;
/** How often targets are read again without a notification, which may be lost. */
const RELOAD_MS = 30_000;
/** How often one batch is tried. */
const TRIES = 5;
/** Milliseconds between two tries of a target. */
const REST_MS = [1_000, 2_000, 5_000, 10_000] as const;

/** The longest that a receiver may ask for: spans wait in memory. */
const MOST_REST_MS = 300_000;

/** What a sender rejects with. */
interface SpansNotTaken {
  readonly word?: string;
  readonly again?: boolean;
  readonly retryAfterMs?: number;
}

/** The targets of all organizations, and what waits for each. One for a replica. */
export class Broadcaster {
  readonly #deps: BroadcasterDeps;
  readonly #orgs = new Map<string, CallWatch>();
  #queues = new Map<string, TargetQueue>();
  readonly #stops: (() => void)[];
  #loading: Promise<void> | undefined;
  #stale = false;

  /** Begins at once. */
  constructor(deps: BroadcasterDeps) {
    this.#deps = deps;
    const reload = (): void =>
      void this.load().catch((cause) => deps.warn("targets of spans could not be read", cause));
    this.#stops = [
      deps.notifications.on("broadcast_changed", reload, reload),
      every(RELOAD_MS, reload),
      every(FLUSH_MS, () => this.#flush()),
    ];
    reload();
  }

  /** What an organization does with its calls; undefined for all those that have no target. */
  of(orgId: string): CallWatch | undefined {
    return this.#orgs.get(orgId);
  }

  /** Reads the targets as they are now. */
  async load(): Promise<void> {
    this.#stale = true;
    this.#loading ??= this.#load().finally(() => {
      this.#loading = undefined;
    });
    await this.#loading;
  }

  /** Sends what waits once more, and ends. */
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

/** What waits for one target, as its owner described it in one revision. */
class TargetQueue {
  readonly id: string;
  readonly revision: number;
  readonly #target: TargetRecord;
  readonly #deps: BroadcasterDeps;
  readonly #resource: Resource;
  readonly #contracts: ReadonlySet<string>;
  readonly #keyIds: ReadonlySet<string>;
  #sender: SpanSender | undefined;
  #waiting: ReadableSpan[];
  #flushing: Promise<void> | undefined;
  /** How many of those that wait are being sent. */
  #underWay = 0;
  #tries = 0;
  #restsUntil = 0;
  #dropped = 0;
  #error: string | undefined;
  /** What was noted last; null before anything was. */
  #noted: string | undefined | null;

  /** `waiting` is what the revision before has not sent. */
  constructor(deps: BroadcasterDeps, target: TargetRecord, waiting: ReadableSpan[] = []) {
    this.#waiting = waiting;
    this.id = target.id;
    this.revision = target.revision;
    this.#target = target;
    this.#deps = deps;
    this.#resource = resourceOf(target);
    this.#contracts = new Set(target.filter.contracts);
    this.#keyIds = new Set(target.filter.keyIds);
    this.#error = target.lastError;
    this.#noted = target.lastError;
  }

  samples(share: number): boolean {
    return share < this.#target.samplingRate;
  }

  take(call: EndedCall, share: number): void {
    if (!this.samples(share) || !this.#wants(call)) return;
    const spans = spansOf(call, this.#resource, this.#target.privacyMode, now());
    if (this.#waiting.length + spans.length > MOST_WAITING) {
      this.#drop(spans.length, "full");
      return;
    }
    this.#waiting.push(...spans);
    if (this.#waiting.length >= BATCH) void this.flush();
  }

  /** Sends what waits, one batch after the other; never rejects. */
  flush(): Promise<void> {
    this.#flushing ??= this.#drain(false).finally(() => {
      this.#flushing = undefined;
    });
    return this.#flushing;
  }

  /** Ends without sending what waits, and returns it; what is under way may still arrive. */
  leave(): ReadableSpan[] {
    const left = this.#waiting.slice(this.#underWay);
    this.#waiting = [];
    const end = (): void => this.#sender?.close();
    if (this.#flushing) void this.#flushing.then(end);
    else end();
    return left;
  }

  /** Sends what waits, each batch once more. */
  async close(): Promise<void> {
    await this.#flushing;
    await this.#drain(true);
    this.#sender?.close();
  }

  async #drain(last: boolean): Promise<void> {
    while (this.#waiting.length > 0 && (last || steadyNow() >= this.#restsUntil)) {
      if (!(await this.#sendOne(last))) break;
    }
    await this.#note();
  }

  /** Whether the next batch may go. */
  async #sendOne(last: boolean): Promise<boolean> {
    const queue = this.#waiting;
    const batch = queue.slice(0, BATCH);
    try {
      this.#sender ??= this.#deps.open(this.#target);
      this.#underWay = batch.length;
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
        this.#restsUntil = steadyNow() + Math.max(REST_MS[this.#tries - 1]!, Math.min(retryAfterMs, MOST_REST_MS));
        return false;
      }
      const given = last ? queue.length : batch.length;
      queue.splice(0, given);
      this.#drop(given, word);
      this.#tries = 0;
      return !last;
    } finally {
      this.#underWay = 0;
    }
  }

  #drop(spans: number, why: string): void {
    this.#dropped += spans;
    this.#error = why;
  }

  async #note(): Promise<void> {
    const [dropped, lastError] = [this.#dropped, this.#error];
    if (dropped === 0 && lastError === this.#noted) return;
    try {
      await noteSent(this.#deps.sql, this.id, { dropped, lastError });
      this.#dropped -= dropped;
      this.#noted = lastError;
    } catch (cause) {
      this.#deps.warn("what became of spans could not be written down; it is tried again", cause);
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

// Sends events to the targets of spans that ask for them: at least once each, as long as they are not given up like spans are.

/** What exporting depends on. */
export interface EventExporterDeps {
  readonly sql: Sql;
  readonly notifications: Notifications;
  /** Opens the sender to a target. */
  open(target: TargetRecord): SpanSender;
  /** Reads an event message. */
  read(payload: Uint8Array): ToldEvent;
  warn(text: string, cause: unknown): void;
}

/** Targets that one process sends to at one time. */
const AT_ONCE = 16;

/** An exporter; any number of them share the events of one database. */
export class EventExporter {
  readonly #deps: EventExporterDeps;
  readonly #rounds: Polling;
  readonly #running = new Map<string, Promise<void>>();

  /** Begins at once. */
  constructor(deps: EventExporterDeps) {
    this.#deps = deps;
    this.#rounds = new Polling({
      notifications: deps.notifications,
      channel: "broadcast_event",
      look: () => this.#fill(),
      failed: (cause) => deps.warn("events for targets of spans wait until the database is back", cause),
    });
  }

  /** Takes no more, and waits for what is being sent. */
  async close(): Promise<void> {
    await this.#rounds.close();
    await Promise.all(this.#running.values());
  }

  /** Sends what is due; returns in how many milliseconds the next is. */
  async #fill(): Promise<number | undefined> {
    while (!this.#rounds.over && this.#running.size < AT_ONCE) {
      const claimed = await claimTargetEvents(this.#deps.sql, [...this.#running.keys()]);
      const [first] = claimed;
      if (!first) break;
      const { targetId } = first;
      const running = this.#send(targetId, claimed)
        .catch((cause) =>
          this.#deps.warn("what became of events could not be written down; they are sent again", cause),
        )
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
