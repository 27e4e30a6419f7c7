/** Short messages between replicas that may be lost: over NATS where there is one, else over the database. */
import type { NatsConnection } from "nats";
import { BRAND } from "../brand.ts";
import { sleep, steadyNow } from "../clock.ts";
import { type Notifications, notify } from "../store/database/notifications.ts";
import type { Sql } from "../store/database/tx.ts";
import { dial } from "./nats/connect.ts";

/** What a gossip transport depends on. */
export interface GossipTransportDeps {
  /** What the messages are about: those of one topic reach no listener of another. */
  topic: "gossip" | "loops";
  sql: Sql;
  notifications: Notifications;
  /** Where NATS is; undefined where there is none. */
  natsUrl: string | undefined;
  /** Gets every message; returns whether another replica sent it. */
  hear(word: Uint8Array): boolean;
}

const subjectOf = (topic: string): string => `${BRAND}.replica.v1.${topic}`;
/** What fits into a message of NATS in any usual configuration, and as base64 into a notification of PostgreSQL. */
const MOST_BYTES = { nats: 512_000, database: 5_900 };
const REDIAL_MS = 2_000;
/** A replica that sent through the database has no NATS: it is answered there for this many milliseconds. */
const ANSWERED_MS = 10_000;

/** The gossip of this replica. */
export class GossipTransport {
  readonly #deps: GossipTransportDeps;
  readonly #leaving = new AbortController();
  readonly #off: () => void;
  readonly #stay: Promise<void>;
  #nats: NatsConnection | undefined;
  #heardFromDatabaseAt = Number.NEGATIVE_INFINITY;

  /** Subscribes. Neither NATS nor the database need be reachable: what is sent meanwhile is lost. */
  constructor(deps: GossipTransportDeps) {
    this.#deps = deps;
    this.#off = deps.notifications.on(deps.topic, (payload) => {
      if (deps.hear(Buffer.from(payload, "base64"))) this.#heardFromDatabaseAt = steadyNow();
    });
    this.#stay = deps.natsUrl === undefined ? Promise.resolve() : this.#dialOn(deps.natsUrl);
  }

  /** The most bytes of a message at the moment. */
  get mostBytes(): number {
    return this.#needsDatabase() ? MOST_BYTES.database : MOST_BYTES.nats;
  }

  /** Sends a message to all replicas. Never rejects. */
  async say(word: Uint8Array): Promise<void> {
    this.#nats?.publish(subjectOf(this.#deps.topic), word);
    if (!this.#needsDatabase()) return;
    await notify(this.#deps.sql, this.#deps.topic, Buffer.from(word).toString("base64")).catch(() => {});
  }

  /** Unsubscribes. */
  async close(): Promise<void> {
    this.#off();
    this.#leaving.abort();
    await this.#nats?.close();
    await this.#stay;
  }

  #needsDatabase(): boolean {
    return this.#nats === undefined || steadyNow() - this.#heardFromDatabaseAt < ANSWERED_MS;
  }

  async #dialOn(url: string): Promise<void> {
    const { signal } = this.#leaving;
    while (!signal.aborted) {
      await this.#once(url).catch(() => {});
      this.#nats = undefined;
      await sleep(REDIAL_MS, signal).catch(() => {});
    }
  }

  async #once(url: string): Promise<void> {
    const connection = await dial(url);
    if (this.#leaving.signal.aborted) return connection.close();
    connection.subscribe(subjectOf(this.#deps.topic), {
      callback: (error, message) => {
        if (!error) this.#deps.hear(message.data);
      },
    });
    this.#nats = connection;
    await connection.closed();
  }
}
