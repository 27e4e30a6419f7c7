/** Keys in memory, so that no warm call asks the database who is calling. */
import { inTime, ioClock, steadyNow } from "../../clock.ts";
import { isOutage } from "../database/client.ts";
import type { NotificationChannel, Notifications } from "../database/notifications.ts";
import type { Sql } from "../database/tx.ts";
import { findKeyByHash, type KeyRecord } from "./keys.ts";
import { hashName, isSecret } from "./secret.ts";
import { findSessionKey, isSessionSecret, noteSeen } from "./sessions.ts";

/** What opens something: how its secrets look, and how what they open is read. */
interface SecretKind {
  isSecret(text: string): boolean;
  read(sql: Sql, hash: Buffer): Promise<KeyRecord | undefined>;
}

const API_KEYS: SecretKind = { isSecret, read: findKeyByHash };

/** After this long a key is read again behind the call that uses it. */
const FRESH_MS = 5_000;
/** After this long a call waits for that. */
const STALE_MS = 15_000;
/** A read that takes longer is one of a database that stands still: until it answers, a key goes on as it was read last. */
const PATIENCE_MS = 100;
/**
 * So old may what was read last be, by what it is wanted for: for calls, for stopping robots, and for stops that wait for no database. Source:
 * decisions, section 19.
 */
const OLDEST_MS = { call: 60_000, stop: 300_000, urgentStop: 300_000 } as const;

/** What a key is wanted for. */
export type KeyUse = keyof typeof OLDEST_MS;
const MOST_KEYS = 100_000;
/** A caller in a loop comes again sooner than this. */
const NAMED_MS = 1_000;
const MOST_NAMED = 1_000;

interface KeyEntry {
  /** Undefined: there is no such key. */
  key: KeyRecord | undefined;
  /** When it was read; not a number of the clock where it has to be read again before it serves. */
  readMs: number;
  /** When it was read last, however much may have changed since. */
  knownMs: number;
  reading: Promise<KeyRecord | undefined> | undefined;
}

const newEntry = (): KeyEntry => ({
  key: undefined,
  readMs: Number.NEGATIVE_INFINITY,
  knownMs: Number.NEGATIVE_INFINITY,
  reading: undefined,
});

const NOT_NOW = new Error("the key is not read yet");

/** The keys of one database. A change reaches it by notification, or within 15 seconds when notifications are lost. */
export class KeyCache {
  readonly #sql: Sql;
  readonly #kind: SecretKind;
  /** By the hash of the secret. */
  readonly #entries = new Map<string, KeyEntry>();
  /** The names of the secrets that came a moment ago. */
  readonly #named = new Map<string, string>();
  #namedSince = steadyNow();
  readonly #off: () => void;
  /** Counts forgettings: what was being read meanwhile may be what it was before the change. */
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
   * The key of a secret, from memory when it is known; undefined if there is none. Rejects when the database must be asked and is away.
   * While it stands still a key that was read not long ago serves on, for stopping robots longer than for calls.
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

  /** The key that `find` would resolve to, where it is in memory and need not be read again; undefined elsewhere. */
  known(secret: string): KeyRecord | undefined {
    const time = steadyNow();
    const entry = this.#entries.get(this.#nameOf(secret, time));
    if (entry?.key === undefined || time - entry.readMs >= FRESH_MS) return undefined;
    this.#hits++;
    return entry.key;
  }

  /** The key of a secret where it is in memory, however old; asks nobody. */
  peek(secret: string): KeyRecord | undefined {
    return this.#entries.get(this.#nameOf(secret, steadyNow()))?.key;
  }

  /** How many keys are remembered, and how often one was, since the start. */
  get figures(): { entries: number; hits: number; misses: number } {
    return { entries: this.#entries.size, hits: this.#hits, misses: this.#misses };
  }

  /** Hears no more changes. */
  close(): void {
    this.#off();
  }

  /** Keys are kept by hash: what lies in this memory must not open anything, but for the secrets of callers who are here at this moment. */
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

  /** One place for one entry: secrets of strangers push keys out one at a time, each of which is read again at its next call. */
  #dropOldest(): void {
    const [oldest = ""] = this.#entries.keys();
    this.#entries.delete(oldest);
  }

  /**
   * Reads a key with its descendants, or all of a user or an organization, again at the next look; without a name all, which are not known to
   * have changed. A new key may be one that was unknown before, so what isn't there is forgotten with every change.
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

// The keys by which people act who are signed in, in memory by the secrets of their sessions.

/** The sessions of one database. What ends one, or changes its member, reaches it as changes of keys reach the keys in memory. */
export class SessionCache {
  readonly #sql: Sql;
  readonly #keys: KeyCache;
  /** Records whose use was written down; one that is read again has the moment of it. */
  readonly #noted = new WeakSet<KeyRecord>();

  constructor(sql: Sql, notifications: Notifications) {
    this.#sql = sql;
    this.#keys = new KeyCache(sql, notifications, { isSecret: isSessionSecret, read: findSessionKey });
  }

  /** The key that a session's member acts by; undefined if there is no such session. `look` does not count as using it. */
  async find(secret: string, wantedFor: KeyUse | "look"): Promise<KeyRecord | undefined> {
    const key = await this.#keys.find(secret, wantedFor === "look" ? "call" : wantedFor);
    if (wantedFor !== "look" && key?.session !== undefined) this.#used(key, key.session);
    return key;
  }

  /** The same where it is in memory, however old; asks nobody. */
  peek(secret: string): KeyRecord | undefined {
    return this.#keys.peek(secret);
  }

  /** Reads again what is about a session, a key, a user or an organization. */
  forget(id: string): void {
    this.#keys.forget(id);
  }

  /** Hears no more changes. */
  close(): void {
    this.#keys.close();
  }

  #used(key: KeyRecord, session: NonNullable<KeyRecord["session"]>): void {
    if (this.#noted.has(key)) return;
    this.#noted.add(key);
    // A session that ends early for want of a database is signed in again.
    noteSeen(this.#sql, session).catch(() => undefined);
  }
}

// What belongs to an organization and every call looks at, in memory, so that no warm call asks the database.

/** After this long it is read again behind the call that uses it: a notification may have been lost. */
const ORG_FRESH_MS = 30_000;
const MOST_ORGS = 20_000;

interface OrgEntry<T> {
  value: T | undefined;
  readMs: number;
  reading: Promise<T> | undefined;
}

/** One thing of each organization, by the organization's id. A change reaches it by a notification that carries the id. */
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
    if (steadyNow() - entry.readMs >= ORG_FRESH_MS) this.#read(orgId, entry).catch(() => {});
    return entry.value;
  }

  /** What `of` would resolve to, where it is in memory and need not be read again; undefined elsewhere. */
  known(orgId: string): T | undefined {
    const entry = this.#entries.get(orgId);
    return entry !== undefined && steadyNow() - entry.readMs < ORG_FRESH_MS ? entry.value : undefined;
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
