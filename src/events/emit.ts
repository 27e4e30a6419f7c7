/** Emission of events: an event is written in the transaction of its cause, and published after that was committed. */
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { EventSchema } from "../../gen/limber/v1/event_pb.ts";
import { API_VERSION } from "../brand.ts";
import type { Signal } from "../cancellation.ts";
import { after, nowSeconds } from "../clock.ts";
import { newId } from "../ids.ts";
import type { Notifications } from "../store/database/notifications.ts";
import type { Tx } from "../store/database/tx.ts";
import { appendEvents, type EventRecord } from "../store/events/outbox.ts";

/** What happened: one member of `Event.data`. */
export type EventData = Extract<MessageInitShape<typeof EventSchema>["data"], { value: unknown }>;

/** The name of every event on the wire, by its member of `Event.data`: `keyCreated` is `key.created`. */
export const EVENT_NAMES: ReadonlyMap<string, string> = new Map(
  EventSchema.oneofs[0]?.fields.map(({ localName, name }) => [localName, name.replace("_", ".")]),
);

/**
 * Emits an event of an organization, if the transaction is committed. Call it after the writes of the cause: the locks that
 * those took then give the events of one thing the order in which they happened. Name the workspace that the cause belongs to, if any.
 */
export const emit = (tx: Tx, orgId: string, data: EventData, workspaceId?: string): Promise<void> =>
  appendEvents(tx, [eventOf(orgId, data, workspaceId)]);

/** The same as a record, for writes that carry their events with them. */
export function eventOf(orgId: string, data: EventData, workspaceId?: string): EventRecord {
  const name = EVENT_NAMES.get(data.case);
  if (name === undefined) throw new TypeError(`there is no event ${data.case}`);
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

// Wakes those who watch events, when events were written on any replica.

/** Where many events are written, it rings no more often. */
const PACE_MS = 100;

/** Hears of every event of the database, and rings for those who wait. */
export class EventBell {
  readonly #off: () => void;
  readonly #waiting = new Set<() => void>();
  #rings = 0;
  #pausing = false;
  #missed = false;

  constructor(notifications: Notifications) {
    const ring = (): void => this.#ring();
    this.#off = notifications.on("outbox", ring, ring);
  }

  /** How often it has rung. */
  get rings(): number {
    return this.#rings;
  }

  /** Resolves when it has rung more often than `rings`, or after `ms` milliseconds. Rejects with the reason of the signal. */
  wait(rings: number, ms: number, signal: Signal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason);
      if (this.#rings > rings) return resolve();
      const end = (settle: () => void): void => {
        forget();
        this.#waiting.delete(rung);
        signal.removeEventListener("abort", left);
        settle();
      };
      const rung = (): void => end(resolve);
      const left = (): void => end(() => reject(signal.reason));
      const forget = after(ms, rung);
      this.#waiting.add(rung);
      signal.addEventListener("abort", left, { once: true });
    });
  }

  /** Hears no more. */
  close(): void {
    this.#off();
  }

  #ring(): void {
    if (this.#pausing) {
      this.#missed = true;
      return;
    }
    this.#rings += 1;
    if (this.#waiting.size === 0) return;
    this.#pausing = true;
    for (const rung of [...this.#waiting]) rung();
    after(PACE_MS, () => {
      this.#pausing = false;
      if (this.#missed) this.#ring();
      this.#missed = false;
    });
  }
}
