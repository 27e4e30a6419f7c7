/** Sends events to the targets of spans that ask for them: at least once each, as long as they are not given up like spans are. */
import type { Notifications } from "../../store/database/notifications.ts";
import type { Sql } from "../../store/database/tx.ts";
import { findTargetById, noteSent, type TargetRecord } from "../../store/events/broadcast.ts";
import {
  type ClaimedEvent,
  claimTargetEvents,
  delayTargetEvents,
  dropTargetEvents,
  nextTargetEvent,
} from "../../store/events/broadcast-events.ts";
import { Polling } from "../polling.ts";
import { REST_MS, type SpanSender, TRIES } from "./broadcaster.ts";
import { eventSpan, resourceOf, type ToldEvent } from "./spans.ts";

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
