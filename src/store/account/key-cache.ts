/** Keys in memory, so that no warm call asks the database who is calling. */
import { steadyNow } from "../../ambient.ts";
import type { Notices } from "../database/notices.ts";
import type { Sql } from "../database/tx.ts";
import { findKeyByHash, type KeyRecord } from "./keys.ts";
import { hashName, isSecret } from "./secret.ts";

/** After this long a key is read again behind the call that uses it. */
const FRESH_MS = 5_000;
/** After this long a call waits for that. */
const STALE_MS = 15_000;
const MOST_KEYS = 100_000;
/** A caller in a loop comes again sooner than this. */
const NAMED_MS = 1_000;
const MOST_NAMED = 1_000;

interface Entry {
  /** Undefined: there is no such key. */
  key: KeyRecord | undefined;
  readMs: number;
  reading: Promise<KeyRecord | undefined> | undefined;
}

/** The keys of one database. A change reaches it by notification, or within 15 seconds when notifications are lost. */
export class KeyCache {
  readonly #sql: Sql;
  /** By the hash of the secret. */
  readonly #entries = new Map<string, Entry>();
  /** The names of the secrets that came a moment ago. */
  readonly #named = new Map<string, string>();
  #namedSince = steadyNow();
  readonly #off: () => void;
  /** Counts forgettings: what was being read meanwhile may be what it was before the change. */
  #generation = 0;
  #hits = 0;
  #misses = 0;

  constructor(sql: Sql, notices: Notices) {
    this.#sql = sql;
    this.#off = notices.on(
      "key_changed",
      (id) => this.forget(id),
      () => this.forget(undefined),
    );
  }

  /** The key of a secret, at once when it is known; undefined when there is none. Rejects when the database must be asked and is away. */
  find(secret: string): KeyRecord | undefined | Promise<KeyRecord | undefined> {
    const time = steadyNow();
    const name = this.#nameOf(secret, time);
    const entry = this.#entries.get(name);
    if (!entry) {
      if (!isSecret(secret)) return undefined;
      this.#misses++;
      return this.#read(name, { key: undefined, readMs: Number.NEGATIVE_INFINITY, reading: undefined });
    }
    const age = time - entry.readMs;
    if (age < STALE_MS) this.#hits++;
    else this.#misses++;
    if (age < FRESH_MS) return entry.key;
    const reading = this.#read(name, entry);
    if (age >= STALE_MS) return reading;
    reading.catch(() => {});
    return entry.key;
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

  #read(name: string, entry: Entry): Promise<KeyRecord | undefined> {
    if (entry.reading) return entry.reading;
    const generation = this.#generation;
    const reading = findKeyByHash(this.#sql, Buffer.from(name, "base64")).then((key) => {
      if (generation === this.#generation) Object.assign(entry, { key, readMs: steadyNow() });
      else if (this.#entries.get(name) === entry) this.#entries.delete(name);
      return key;
    });
    entry.reading = reading.finally(() => {
      entry.reading = undefined;
    });
    entry.reading.catch(() => {});
    if (this.#entries.size >= MOST_KEYS) this.#entries.clear();
    this.#entries.set(name, entry);
    return entry.reading;
  }

  /**
   * Reads a key, or all of an organisation, anew at the next look; without a name all. A new key may be one that was unknown
   * before, so what isn't there is forgotten with every change.
   */
  forget(id: string | undefined): void {
    this.#generation += 1;
    for (const [name, { key }] of this.#entries) {
      if (id === undefined || key === undefined || key.id === id || key.orgId === id || key.userId === id)
        this.#entries.delete(name);
    }
  }
}
