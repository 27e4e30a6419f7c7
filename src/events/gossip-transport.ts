/** Short messages between replicas that may be lost: over NATS where there is one, else over the database. */
import type { Msg } from "nats";
import { BRAND } from "../brand.ts";
import { steadyNow } from "../clock.ts";
import { type Notifications, notify } from "../store/database/notifications.ts";
import type { Sql } from "../store/database/tx.ts";
import type { ReplicaLine } from "./nats/replica-line.ts";

/** What a gossip transport depends on. */
export interface GossipTransportDeps {
  /** What the messages are about: those of one topic reach no listener of another. */
  topic: "gossip" | "loops";
  sql: Sql;
  notifications: Notifications;
  /** Undefined where there is no NATS. It stays open for as long as this is. */
  replicaLine: ReplicaLine | undefined;
  /** Gets every message; returns whether another replica sent it. */
  hear(message: Uint8Array): boolean;
}

const subjectOf = (topic: string): string => `${BRAND}.replica.v1.${topic}`;
/** What fits into a message of NATS in any usual configuration, and as base64 into a notification of PostgreSQL. */
const MOST_BYTES = { nats: 512_000, database: 5_900 };
/** A replica that sent through the database has no NATS: it is answered there for this many milliseconds. */
const ANSWERED_MS = 10_000;

/** The gossip of this replica. */
export class GossipTransport {
  readonly #deps: GossipTransportDeps;
  readonly #offs: readonly (() => void)[];
  #heardFromDatabaseAt = Number.NEGATIVE_INFINITY;

  /** Subscribes. Neither NATS nor the database need be reachable: what is sent meanwhile is lost. */
  constructor(deps: GossipTransportDeps) {
    this.#deps = deps;
    const off = deps.notifications.on(deps.topic, (payload) => {
      if (deps.hear(Buffer.from(payload, "base64"))) this.#heardFromDatabaseAt = steadyNow();
    });
    const hearing = { subject: subjectOf(deps.topic), hear: ({ data }: Msg) => void deps.hear(data) };
    const offLine = deps.replicaLine?.on(hearing);
    this.#offs = offLine === undefined ? [off] : [off, offLine];
  }

  /** The most bytes of a message at the moment. */
  get mostBytes(): number {
    return this.#needsDatabase() ? MOST_BYTES.database : MOST_BYTES.nats;
  }

  /** Sends a message to all replicas. Never rejects. */
  async say(message: Uint8Array): Promise<void> {
    this.#deps.replicaLine?.nats?.publish(subjectOf(this.#deps.topic), message);
    if (!this.#needsDatabase()) return;
    await notify(this.#deps.sql, this.#deps.topic, Buffer.from(message).toString("base64")).catch(() => {});
  }

  /** Unsubscribes. */
  close(): void {
    for (const off of this.#offs) off();
  }

  #needsDatabase(): boolean {
    return this.#deps.replicaLine?.nats === undefined || steadyNow() - this.#heardFromDatabaseAt < ANSWERED_MS;
  }
}
