/** What belongs to an organisation and every call looks at, in memory, so that no warm call asks the database. */
import { steadyNow } from "../../clock.ts";
import type { NotificationChannel, Notifications } from "../database/notifications.ts";

/** After this long it is read again behind the call that uses it: a notification may have been lost. */
const FRESH_MS = 30_000;
const MOST_ORGS = 20_000;

interface OrgEntry<T> {
  value: T | undefined;
  readMs: number;
  reading: Promise<T> | undefined;
}

/** One thing of each organisation, by the organisation's id. A change reaches it by a notification that carries the id. */
export class OrgCache<T> {
  readonly #load: (orgId: string) => Promise<T>;
  readonly #entries = new Map<string, OrgEntry<T>>();
  readonly #off: () => void;

  constructor(notifications: Notifications, channel: NotificationChannel, load: (orgId: string) => Promise<T>) {
    this.#load = load;
    this.#off = notifications.on(
      channel,
      (orgId) => this.#entries.delete(orgId),
      () => this.#entries.clear(),
    );
  }

  /** From memory when it is known; else read. Rejects when the database must be asked and is away. */
  async of(orgId: string): Promise<T> {
    const entry = this.#entries.get(orgId);
    if (!entry) return this.#read(orgId, { value: undefined, readMs: Number.NEGATIVE_INFINITY, reading: undefined });
    if (entry.value === undefined) return this.#read(orgId, entry);
    if (steadyNow() - entry.readMs >= FRESH_MS) this.#read(orgId, entry).catch(() => {});
    return entry.value;
  }

  /** What `of` would resolve to, where it is in memory and need not be read again; undefined elsewhere. */
  known(orgId: string): T | undefined {
    const entry = this.#entries.get(orgId);
    return entry !== undefined && steadyNow() - entry.readMs < FRESH_MS ? entry.value : undefined;
  }

  /** What the database has now, after a change made here. */
  forget(orgId: string): void {
    this.#entries.delete(orgId);
  }

  /** Hears no more changes. */
  close(): void {
    this.#off();
  }

  #read(orgId: string, entry: OrgEntry<T>): Promise<T> {
    if (entry.reading) return entry.reading;
    entry.reading = this.#load(orgId)
      .then((value) => {
        // What was read while a change came in belongs to an entry that nobody finds any more.
        Object.assign(entry, { value, readMs: steadyNow() });
        return value;
      })
      .finally(() => {
        entry.reading = undefined;
        if (entry.value === undefined && this.#entries.get(orgId) === entry) this.#entries.delete(orgId);
      });
    if (this.#entries.size >= MOST_ORGS) this.#entries.clear();
    this.#entries.set(orgId, entry);
    return entry.reading;
  }
}
