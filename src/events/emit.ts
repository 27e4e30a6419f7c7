/** Emits events: writes an event in the transaction of its cause; it is published after the commit. */
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { EventSchema } from "../../gen/limber/v1/event_pb.ts";
import { API_VERSION } from "../brand.ts";
import type { Signal } from "../cancellation.ts";
import { after, nowSeconds } from "../clock.ts";
import { newId } from "../ids.ts";
import type { Notifications } from "../store/database/notifications.ts";
import type { Tx } from "../store/database/tx.ts";
import { appendEvents, type EventRecord } from "../store/events/outbox.ts";

/** The data of an event: one member of `Event.data`. */
export type EventData = Extract<MessageInitShape<typeof EventSchema>["data"], { value: unknown }>;

/** The published name of every event, by its member of `Event.data`: `keyCreated` is `key.created`. */
export const EVENT_NAMES: ReadonlyMap<string, string> = new Map(
  EventSchema.oneofs[0]?.fields.map(({ localName, name }) => [localName, name.replace("_", ".")]),
);

/**
 * Emits an event of an organization if the transaction commits. Call it after the writes of the cause: their locks then order the events of
 * one resource as they happened. Pass the workspace that the cause belongs to, if any.
 */
export const emit = (tx: Tx, orgId: string, data: EventData, workspaceId?: string): Promise<void> =>
  appendEvents(tx, [eventOf(orgId, data, workspaceId)]);

/** The event as a record, for statements that write it themselves. */
export function eventOf(orgId: string, data: EventData, workspaceId?: string): EventRecord {
  const name = EVENT_NAMES.get(data.case);
  if (name === undefined) throw new TypeError(`unknown event ${data.case}`);
  const event = create(EventSchema, {
    id: newId("evt"),
    apiVersion: API_VERSION,
    createdAt: nowSeconds(),
    orgId,
    ...(workspaceId !== undefined && { workspaceId }),
    data,
  });
  return { id: event.id, name, orgId, payload: toBinary(EventSchema, event) };
}

// Notifies watchers when any replica writes events.

/** The minimum time between two notifications. */
const PACE_MS = 100;

/** Listens to the database's event notifications and notifies local watchers. */
export class EventBell {
  readonly #unlistenEvents: () => void;
  readonly #waiters = new Set<() => void>();
  #notifications = 0;
  #pausing = false;
  #missed = false;

  constructor(notifications: Notifications) {
    const ring = (): void => this.#notify();
    this.#unlistenEvents = notifications.on("outbox", ring, ring);
  }

  /** The number of notifications so far. */
  get rings(): number {
    return this.#notifications;
  }

  /** Resolves once there were more than `rings` notifications, or after `ms` milliseconds. Rejects with the signal's reason. */
  wait(rings: number, ms: number, signal: Signal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason);
      if (this.#notifications > rings) return resolve();
      const end = (settle: () => void): void => {
        forget();
        this.#waiters.delete(rung);
        signal.removeEventListener("abort", left);
        settle();
      };
      const rung = (): void => end(resolve);
      const left = (): void => end(() => reject(signal.reason));
      const forget = after(ms, rung);
      this.#waiters.add(rung);
      signal.addEventListener("abort", left, { once: true });
    });
  }

  /** Stops listening. */
  close(): void {
    this.#unlistenEvents();
  }

  #notify(): void {
    if (this.#pausing) {
      this.#missed = true;
      return;
    }
    this.#notifications += 1;
    if (this.#waiters.size === 0) return;
    this.#pausing = true;
    for (const rung of [...this.#waiters]) rung();
    after(PACE_MS, () => {
      this.#pausing = false;
      if (this.#missed) this.#notify();
      this.#missed = false;
    });
  }
}
