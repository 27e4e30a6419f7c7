/** Caches of keys, sessions and settings, so that warm calls need no database query. */
import { inTime, ioClock, steadyNow } from "../../clock.ts";
import type { NotificationChannel, Notifications } from "../database/notifications.ts";
import type { Sql } from "../database/tx.ts";
import { isOutage } from "../database/unavailable.ts";
import { findKeyByHash, type KeyRecord } from "./keys.ts";
import { hashName, isSecret } from "./secret.ts";
import { findSessionKey, isSessionSecret, noteSeen } from "./sessions.ts";

/** How a secret is recognized, and how its record is loaded. */
interface SecretKind {
  isSecret(text: string): boolean;
  read(sql: Sql, hash: Buffer): Promise<KeyRecord | undefined>;
}

const API_KEYS: SecretKind = { isSecret, read: findKeyByHash };

/** A key older than this is reloaded in the background of the call that uses it. */
const FRESH_MS = 5_000;
/** A key older than this is reloaded before the call continues. */
const STALE_MS = 15_000;
/** A slower query indicates a stalled database; until it returns, the last known record of the key is used. */
const PATIENCE_MS = 100;
/**
 * The maximum age of a record while the database is stalled, by purpose: for calls, for stopping robots, and for stops that do not wait for
 * the database. Source: decisions, section 19.
 */
const OLDEST_MS = { call: 60_000, stop: 300_000, urgentStop: 300_000 } as const;

/** The purpose of a key lookup. */
export type KeyUse = keyof typeof OLDEST_MS;
const MOST_KEYS = 100_000;
/** A caller in a loop calls again sooner than this. */
const NAMED_MS = 1_000;
const MOST_NAMED = 1_000;

interface KeyEntry {
  /** Undefined if the key does not exist. */
  key: KeyRecord | undefined;
  /** When it was loaded; NaN if it must be reloaded before use. */
  readMs: number;
  /** When it was last loaded, regardless of later changes. */
  knownMs: number;
  reading: Promise<KeyRecord | undefined> | undefined;
}

const newEntry = (): KeyEntry => ({
  key: undefined,
  readMs: Number.NEGATIVE_INFINITY,
  knownMs: Number.NEGATIVE_INFINITY,
  reading: undefined,
});

const NOT_NOW = new Error("the key is not loaded yet");

/** The keys of one database. A change arrives by notification, or within 15 s if notifications are lost. */
export class KeyCache {
  readonly #sql: Sql;
  readonly #kind: SecretKind;
  /** Keyed by the hash of the secret. */
  readonly #entries = new Map<string, KeyEntry>();
  /** Hashes of recently used secrets. */
  readonly #named = new Map<string, string>();
  #namedSince = steadyNow();
  readonly #off: () => void;
  /** Counts invalidations: a query that started before one may return the earlier state. */
  #generation = 0;
  #hits = 0;
  #misses = 0;

  constructor(sql: Sql, notifications: Notifications, kind = API_KEYS) {
    this.#sql = sql;
    this.#kind = kind;
    this.#off = notifications.on(
      "key_changed",
      (id) => this.forget(id),
      () => this.forget(undefined),
    );
  }

  /**
   * The key of a secret, cached if known; undefined if there is none. Rejects if the database is needed and unavailable. While it is stalled,
   * recently loaded keys stay valid, longer for stopping robots than for calls.
   */
  async find(secret: string, wantedFor: KeyUse = "call"): Promise<KeyRecord | undefined> {
    const time = steadyNow();
    const name = this.#nameOf(secret, time);
    const entry = this.#entries.get(name);
    if (!entry) {
      if (!this.#kind.isSecret(secret)) return undefined;
      this.#misses++;
      return this.#read(name, newEntry());
    }
    const age = time - entry.readMs;
    if (age < STALE_MS) this.#hits++;
    else this.#misses++;
    if (age < FRESH_MS) return entry.key;
    const reading = this.#read(name, entry);
    reading.catch(() => {});
    if (age < STALE_MS) return entry.key;
    if (entry.key === undefined || time - entry.knownMs >= OLDEST_MS[wantedFor]) return reading;
    const { key } = entry;
    if (wantedFor === "urgentStop") return key;
    try {
      return await inTime(reading, { ms: PATIENCE_MS, on: ioClock, late: () => NOT_NOW });
    } catch (thrown) {
      if (thrown === NOT_NOW || isOutage(thrown)) return key;
      throw thrown;
    }
  }

  /** The key that `find` would resolve to, if it is cached and fresh; else undefined. */
  known(secret: string): KeyRecord | undefined {
    const time = steadyNow();
    const entry = this.#entries.get(this.#nameOf(secret, time));
    if (entry?.key === undefined || time - entry.readMs >= FRESH_MS) return undefined;
    this.#hits++;
    return entry.key;
  }

  /** The cached key of a secret, however old; never queries. */
  peek(secret: string): KeyRecord | undefined {
    return this.#entries.get(this.#nameOf(secret, steadyNow()))?.key;
  }

  /** The number of cached keys, and of cache hits since the start. */
  get figures(): { entries: number; hits: number; misses: number } {
    return { entries: this.#entries.size, hits: this.#hits, misses: this.#misses };
  }

  /** Stops listening for changes. */
  close(): void {
    this.#off();
  }

  /** Keys are stored by hash, so that this memory holds no usable secrets except those of callers seen in the last moments. */
  #nameOf(secret: string, time: number): string {
    if (time - this.#namedSince > NAMED_MS || this.#named.size >= MOST_NAMED) {
      this.#named.clear();
      this.#namedSince = time;
    }
    let name = this.#named.get(secret);
    if (name === undefined) {
      name = hashName(secret);
      this.#named.set(secret, name);
    }
    return name;
  }

  #read(name: string, entry: KeyEntry): Promise<KeyRecord | undefined> {
    if (entry.reading) return entry.reading;
    const generation = this.#generation;
    const reading = this.#kind.read(this.#sql, Buffer.from(name, "base64")).then((key) => {
      if (generation === this.#generation) Object.assign(entry, { key, readMs: steadyNow(), knownMs: steadyNow() });
      else if (this.#entries.get(name) === entry) this.#entries.delete(name);
      return key;
    });
    entry.reading = reading.finally(() => {
      entry.reading = undefined;
    });
    entry.reading.catch(() => {});
    if (this.#entries.size >= MOST_KEYS && !this.#entries.has(name)) this.#dropOldest();
    this.#entries.set(name, entry);
    return entry.reading;
  }

  /** Evicts one entry per new one. Unknown secrets can evict keys only one at a time; each is reloaded at its next call. */
  #dropOldest(): void {
    const [oldest = ""] = this.#entries.keys();
    this.#entries.delete(oldest);
  }

  /**
   * Invalidates a key and its descendants, or all keys of a user or an organization, or all keys if no id is given, for changes that are not
   * known in detail. A new key may have been unknown before, so every change also drops the entries of unknown keys.
   */
  forget(id: string | undefined): void {
    this.#generation += 1;
    for (const [name, entry] of this.#entries) {
      const { key } = entry;
      if (id === undefined && key !== undefined) entry.readMs = Number.NEGATIVE_INFINITY;
      else if (id === undefined || key === undefined || key.orgId === id || isOf(key, id) || descends(key, id))
        this.#entries.delete(name);
    }
  }
}

const isOf = (key: KeyRecord, id: string): boolean => key.id === id || key.userId === id || key.session?.id === id;
const descends = ({ ancestors }: KeyRecord, id: string): boolean =>
  ancestors.length > 0 && ancestors.some((key) => isOf(key, id));

// The keys of signed-in users, cached by the secrets of their sessions.

/** The sessions of one database. Their ends and changes of their members arrive like changes of keys. */
export class SessionCache {
  readonly #sql: Sql;
  readonly #keys: KeyCache;
  /** Records whose use was written; a reloaded one has the time of that use. */
  readonly #noted = new WeakSet<KeyRecord>();

  constructor(sql: Sql, notifications: Notifications) {
    this.#sql = sql;
    this.#keys = new KeyCache(sql, notifications, { isSecret: isSessionSecret, read: findSessionKey });
  }

  /** The key of a session's member; undefined if the session does not exist. `look` does not count as use. */
  async find(secret: string, wantedFor: KeyUse | "look"): Promise<KeyRecord | undefined> {
    const key = await this.#keys.find(secret, wantedFor === "look" ? "call" : wantedFor);
    if (wantedFor !== "look" && key?.session !== undefined) this.#used(key, key.session);
    return key;
  }

  /** The cached record, however old; never queries. */
  peek(secret: string): KeyRecord | undefined {
    return this.#keys.peek(secret);
  }

  /** Invalidates the records of a session, key, user or organization. */
  forget(id: string): void {
    this.#keys.forget(id);
  }

  /** Stops listening for changes. */
  close(): void {
    this.#keys.close();
  }

  #used(key: KeyRecord, session: NonNullable<KeyRecord["session"]>): void {
    if (this.#noted.has(key)) return;
    this.#noted.add(key);
    // If the database is unavailable and the session ends early, the user signs in again.
    noteSeen(this.#sql, session).catch(() => undefined);
  }
}

// Cached data of organizations that every call needs.

/** An older value is reloaded in the background of the call that uses it: a notification may have been lost. */
const ORG_FRESH_MS = 30_000;
const MOST_ORGS = 20_000;

interface OrgEntry<T> {
  value: T | undefined;
  readMs: number;
  reading: Promise<T> | undefined;
}

/** One cached value per organization, by id. A notification that carries the id invalidates it. */
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

  /** The cached value if known, else the loaded one. Rejects if the database is needed and unavailable. */
  async of(orgId: string): Promise<T> {
    const entry = this.#entries.get(orgId);
    if (!entry) return this.#read(orgId, { value: undefined, readMs: Number.NEGATIVE_INFINITY, reading: undefined });
    if (entry.value === undefined) return this.#read(orgId, entry);
    if (steadyNow() - entry.readMs >= ORG_FRESH_MS) this.#read(orgId, entry).catch(() => {});
    return entry.value;
  }

  /** The value that `of` would resolve to, if it is cached and fresh; else undefined. */
  known(orgId: string): T | undefined {
    const entry = this.#entries.get(orgId);
    return entry !== undefined && steadyNow() - entry.readMs < ORG_FRESH_MS ? entry.value : undefined;
  }

  /** The value in the database, after a change made here. */
  forget(orgId: string): void {
    this.#entries.delete(orgId);
  }

  /** Stops listening for changes. */
  close(): void {
    this.#off();
  }

  #read(orgId: string, entry: OrgEntry<T>): Promise<T> {
    if (entry.reading) return entry.reading;
    entry.reading = this.#load(orgId)
      .then((value) => {
        // A value loaded while a change arrived belongs to an entry that is no longer used.
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
