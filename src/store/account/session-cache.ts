/** The keys by which people act who are signed in, in memory by the secrets of their sessions. */
import type { Notifications } from "../database/notifications.ts";
import type { Sql } from "../database/tx.ts";
import { KeyCache, type KeyUse } from "./key-cache.ts";
import type { KeyRecord } from "./keys.ts";
import { findSessionKey, isSessionSecret, noteSeen } from "./sessions.ts";

/** The sessions of one database. What ends one, or changes its member, reaches it as changes of keys reach the keys in memory. */
export class SessionCache {
  readonly #sql: Sql;
  readonly #keys: KeyCache;
  /** Records whose use was written down; one that is read anew has the moment of it. */
  readonly #noted = new WeakSet<KeyRecord>();

  constructor(sql: Sql, notifications: Notifications) {
    this.#sql = sql;
    this.#keys = new KeyCache(sql, notifications, { isSecret: isSessionSecret, read: findSessionKey });
  }

  /** The key that a session's member acts by; undefined where there is no such session. `look` does not count as using it. */
  async find(secret: string, wantedFor: KeyUse | "look"): Promise<KeyRecord | undefined> {
    const key = await this.#keys.find(secret, wantedFor === "look" ? "call" : wantedFor);
    if (wantedFor !== "look" && key?.session !== undefined) this.#used(key, key.session);
    return key;
  }

  /** The same where it is in memory, however old; asks nobody. */
  peek(secret: string): KeyRecord | undefined {
    return this.#keys.peek(secret);
  }

  /** Reads anew what is about a session, a key, a user or an organisation. */
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
    // A session that ends early for want of a database is signed in anew.
    noteSeen(this.#sql, session).catch(() => undefined);
  }
}
