/**
 * A connection between replicas that reconnects by itself. Its users share it to subscribe to subjects. Messages that are sent while it is
 * down are lost, or sent another way.
 */
import { createInbox, errors, headers, type Msg, type NatsConnection, RequestError, type Subscription } from "nats";
import { BRAND } from "../../brand.ts";
import { after, sleep, steadyNow } from "../../clock.ts";
import { newId } from "../../ids.ts";
import { type Notifications, notify } from "../../store/database/notifications.ts";
import type { Sql } from "../../store/database/tx.ts";
import type { RelayMessage } from "../../store/replicas/replicas.ts";
import { dial } from "./connect.ts";

/** Delay before a reconnection in milliseconds: after a lost connection, and after a refused subscription. */
const REDIAL_MS = { lost: 2_000, refused: 30_000 };

/** A subscriber. */
interface ReplicaHearing {
  readonly subject: string;
  /** Receives every message. */
  hear(message: Msg): void;
  /** Called with each new connection on which the subject is subscribed. */
  gained?(connection: NatsConnection): void;
  /** Called when the connection is lost: partial messages will not be completed. */
  lost?(): void;
}

/** Dependencies of a connection. */
interface ReplicaLineDeps {
  /** Where NATS is. */
  readonly url: string;
  /** Whether messages use another way while there is no connection. If so, a connection is given up when NATS refuses part of its use. */
  readonly hasOtherWay: boolean;
  /** Called the first time that NATS refuses messages between replicas. */
  warn(text: string, cause: unknown): void;
}

/** The connection of one replica. */
export class ReplicaLine {
  readonly #deps: ReplicaLineDeps;
  readonly #closing = new AbortController();
  readonly #subscriptions = new Map<ReplicaHearing, Subscription | undefined>();
  readonly #running: Promise<void>;
  #connection: NatsConnection | undefined;
  #isWarned = false;

  /** Connects. NATS need not be reachable. */
  constructor(deps: ReplicaLineDeps) {
    this.#deps = deps;
    this.#running = this.#run();
  }

  /** The current connection; undefined if there is none or NATS refuses its use. */
  get nats(): NatsConnection | undefined {
    return this.#connection?.isClosed() ? undefined : this.#connection;
  }

  /** Subscribes on this connection and all later ones. Returns a function that unsubscribes. */
  on(hearing: ReplicaHearing): () => void {
    const { nats } = this;
    this.#subscriptions.set(hearing, nats && subscribed(nats, hearing));
    if (nats !== undefined) hearing.gained?.(nats);
    return () => {
      const subscription = this.#subscriptions.get(hearing);
      this.#subscriptions.delete(hearing);
      if (this.nats !== undefined) subscription?.unsubscribe();
    };
  }

  /** Disconnects. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#connection?.close();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      const isRefused = await this.#runOnce().catch(() => false);
      if (this.#connection !== undefined) for (const hearing of this.#subscriptions.keys()) hearing.lost?.();
      this.#connection = undefined;
      await sleep(isRefused ? REDIAL_MS.refused : REDIAL_MS.lost, signal).catch(() => {});
    }
  }

  /** Runs for one connection. Resolves with whether NATS refused its use. */
  async #runOnce(): Promise<boolean> {
    const connection = await dial(this.#deps.url);
    if (this.#closing.signal.aborted) {
      await connection.close();
      return false;
    }
    let isRefused = false;
    void this.#watch(connection, () => {
      isRefused = true;
    });
    for (const hearing of this.#subscriptions.keys()) this.#subscriptions.set(hearing, subscribed(connection, hearing));
    this.#connection = connection;
    for (const hearing of this.#subscriptions.keys()) hearing.gained?.(connection);
    await connection.closed();
    return isRefused;
  }

  async #watch(connection: NatsConnection, refused: () => void): Promise<void> {
    for await (const status of connection.status()) {
      if (status.type !== "error" || !(status.error instanceof errors.PermissionViolationError)) continue;
      if (!this.#isWarned) this.#deps.warn("NATS refuses messages between replicas; using the database", status.error);
      this.#isWarned = true;
      if (!this.#deps.hasOtherWay) continue;
      refused();
      await connection.close();
    }
  }
}

const subscribed = (connection: NatsConnection, { subject, hear }: ReplicaHearing): Subscription =>
  connection.subscribe(subject, {
    callback: (error, message) => {
      if (!error) hear(message);
    },
  });

// Messages from one replica to another over NATS, acknowledged by the receiver. They need no row in the database. Messages that were not
// accepted are returned to the sender, which uses the database.

/** Dependencies of the messages. */
interface ReplicaMessengerDeps {
  /** Must stay open at least as long as this object. */
  readonly line: ReplicaLine;
  /** The unique id of this replica. */
  readonly replica: string;
  /** Handles a message for this replica, in the sender's order. */
  hear(message: RelayMessage): void;
}

/** The outcome of posted messages. */
export interface Posted {
  /** Not accepted by any replica: may be sent another way. */
  readonly returned: readonly RelayMessage[];
  /** Possibly accepted: must not be sent again. */
  readonly lost: readonly RelayMessage[];
}

const SUBJECT = `${BRAND}.replica.v1.relay`;
/** The header of a request that tests whether NATS carries requests. */
const PROOF = "Limber-Proof";
/** The part size of a large message, which fits any usual NATS configuration. */
const PART_BYTES = 512_000;
/** How long the receiver has to accept a message, in milliseconds. */
const TAKEN_MS = 2_000;
/** After a message that was not accepted, later ones to the same replica use the other way for this long, to keep their order. */
const ORDER_MS = 2_000;
/** The largest message in parts. */
const MOST_BYTES = 64 << 20;
/** The most incomplete messages in memory; the one without progress for the longest is evicted first. */
const MOST_IN_PARTS = 64;

/** All of a message except its body, as transmitted. */
interface Head extends Omit<RelayMessage, "body" | "toReplica"> {
  /** The name of its earlier parts; undefined for a message of one part. */
  readonly parts?: string;
}

/** The messages of one replica to others. */
export class ReplicaMessenger {
  readonly #deps: ReplicaMessengerDeps;
  readonly #unsubscribe: () => void;
  readonly #elsewhereUntil = new Map<string, number>();
  /** Incomplete messages by name. */
  readonly #parts = new Map<string, Buffer[]>();
  readonly #closing = new AbortController();
  /** The connection on which a test request to this replica was answered. */
  #tested: NatsConnection | undefined;

  /** Subscribes. NATS need not be reachable: messages that are posted meanwhile are returned. */
  constructor(deps: ReplicaMessengerDeps) {
    this.#deps = deps;
    this.#unsubscribe = deps.line.on({
      subject: `${SUBJECT}.${deps.replica}`,
      hear: (message) => this.#receive(message),
      gained: (connection) => void this.#prove(connection),
      lost: () => this.#parts.clear(),
    });
  }

  /** Posts messages in order. Resolves when each was accepted or not. Never rejects. */
  async post(messages: readonly RelayMessage[]): Promise<Posted> {
    const fates = await Promise.all(messages.map((message) => this.#postOne(message)));
    return {
      returned: messages.filter((_, i) => fates[i] === "returned"),
      lost: messages.filter((_, i) => fates[i] === "lost"),
    };
  }

  /** Unsubscribes. */
  close(): void {
    this.#closing.abort();
    this.#unsubscribe();
  }

  /**
   * Sends test requests to itself until one is answered. NATS may refuse to publish or subscribe to requests or responses, and reports it too
   * late for the refused message: whether that was accepted would be unknown.
   */
  async #prove(connection: NatsConnection): Promise<void> {
    const { signal } = this.#closing;
    const proof = headers();
    proof.set(PROOF, "1");
    while (!signal.aborted && !connection.isClosed() && this.#tested !== connection) {
      try {
        await connection.request(`${SUBJECT}.${this.#deps.replica}`, undefined, { headers: proof, timeout: TAKEN_MS });
        this.#tested = connection;
      } catch {
        await sleep(TAKEN_MS, signal).catch(() => {});
      }
    }
  }

  /** Writes everything before the first await, so that messages leave in the order in which they were posted. */
  async #postOne({ toReplica, body, ...head }: RelayMessage): Promise<"taken" | "returned" | "lost"> {
    const connection = this.#deps.line.nats;
    if (connection === undefined || connection !== this.#tested) return "returned";
    if ((this.#elsewhereUntil.get(toReplica) ?? 0) > steadyNow()) return "returned";
    const subject = `${SUBJECT}.${toReplica}`;
    const parts = body.length > PART_BYTES ? newId("line") : undefined;
    const messageHeaders = headers();
    messageHeaders.set(
      "Limber-Message",
      JSON.stringify({ ...head, ...(parts !== undefined && { parts }) } satisfies Head),
    );
    try {
      let at = 0;
      for (; parts !== undefined && body.length - at > PART_BYTES; at += PART_BYTES)
        connection.publish(subject, body.subarray(at, at + PART_BYTES), { reply: parts });
      const rest = { headers: messageHeaders, timeout: TAKEN_MS };
      await connection.request(subject, body.subarray(at), rest);
      return "taken";
    } catch (error) {
      if (!(error instanceof RequestError && error.isNoResponders())) return "lost";
      this.#elsewhereUntil.set(toReplica, steadyNow() + ORDER_MS);
      return "returned";
    }
  }

  #receive(message: Msg): void {
    const headText = message.headers?.get("Limber-Message");
    if (message.headers?.has(PROOF)) message.respond();
    else if (!headText) this.#keep(message.reply ?? "", Buffer.from(message.data));
    else if (message.respond()) this.#take(headText, Buffer.from(message.data));
  }

  #keep(name: string, part: Buffer): void {
    const parts = this.#parts.get(name) ?? [];
    // Reinsert at the end: the first entry is the one without progress for the longest.
    this.#parts.delete(name);
    if (parts.length * PART_BYTES >= MOST_BYTES) return;
    this.#parts.set(name, [...parts, part]);
    if (this.#parts.size > MOST_IN_PARTS) this.#parts.delete(this.#parts.keys().next().value ?? "");
  }

  #take(headText: string, last: Buffer): void {
    const head = headOf(headText);
    if (head === undefined) return;
    const { parts: name, ...message } = head;
    const parts = name === undefined ? [] : this.#parts.get(name);
    if (name !== undefined) this.#parts.delete(name);
    // A message with evicted parts is dropped; the sender's request times out.
    if (parts === undefined) return;
    this.#deps.hear({ ...message, toReplica: this.#deps.replica, body: Buffer.concat([...parts, last]) });
  }
}

/** Parses the header that replicas write; ignores anything else. */
function headOf(text: string): Head | undefined {
  try {
    const head = JSON.parse(text) as Partial<Head>; // each field is checked below
    const { fromReplica, line, provider, kind, budgetMs, parts } = head;
    const areTexts = [fromReplica, line, provider].every((each) => typeof each === "string");
    const isKind = kind === "ask" || kind === "reply" || kind === "failed";
    const isBudget = budgetMs === null || typeof budgetMs === "number";
    const isName = parts === undefined || typeof parts === "string";
    return areTexts && isKind && isBudget && isName ? (head as Head) : undefined;
  } catch {
    return undefined;
  }
}

// Short messages between replicas that may be lost: over NATS if configured, otherwise over the database.

/** Dependencies of a gossip transport. */
interface GossipTransportDeps {
  /** The topic: messages of one topic reach only its listeners. */
  topic: "gossip" | "loops" | "loop_details";
  sql: Sql;
  notifications: Notifications;
  /** Undefined without NATS. Must stay open at least as long as this object. */
  replicaLine: ReplicaLine | undefined;
  /** Receives every message; returns whether another replica sent it. */
  hear(message: Uint8Array): boolean;
}

const subjectOf = (topic: string): string => `${BRAND}.replica.v1.${topic}`;
/** The size that fits any usual NATS configuration, and, as base64, a PostgreSQL notification. */
const MOST_GOSSIP_BYTES = { nats: 512_000, database: 5_900 };
/** A replica that sent through the database has no NATS, so for this many milliseconds messages also go through the database. */
const ANSWERED_MS = 10_000;

/** The gossip of this replica. */
export class GossipTransport {
  readonly #deps: GossipTransportDeps;
  readonly #unsubscribes: readonly (() => void)[];
  #heardFromDatabaseAt = Number.NEGATIVE_INFINITY;

  /** Subscribes. Neither NATS nor the database need be reachable: messages that are sent meanwhile are lost. */
  constructor(deps: GossipTransportDeps) {
    this.#deps = deps;
    const off = deps.notifications.on(deps.topic, (payload) => {
      if (deps.hear(Buffer.from(payload, "base64"))) this.#heardFromDatabaseAt = steadyNow();
    });
    const hearing = { subject: subjectOf(deps.topic), hear: ({ data }: Msg) => void deps.hear(data) };
    const offLine = deps.replicaLine?.on(hearing);
    this.#unsubscribes = offLine === undefined ? [off] : [off, offLine];
  }

  /** The current maximum message size in bytes. */
  get mostBytes(): number {
    return this.#needsDatabase() ? MOST_GOSSIP_BYTES.database : MOST_GOSSIP_BYTES.nats;
  }

  /** Sends a message to all replicas. Never rejects. */
  async say(message: Uint8Array): Promise<void> {
    this.#deps.replicaLine?.nats?.publish(subjectOf(this.#deps.topic), message);
    if (!this.#needsDatabase()) return;
    await notify(this.#deps.sql, this.#deps.topic, Buffer.from(message).toString("base64")).catch(() => {});
  }

  /** Unsubscribes. */
  close(): void {
    for (const off of this.#unsubscribes) off();
  }

  #needsDatabase(): boolean {
    return this.#deps.replicaLine?.nats === undefined || steadyNow() - this.#heardFromDatabaseAt < ANSWERED_MS;
  }
}

// Emergency stops between replicas without the database: over NATS if configured. Each replica that applied a stop acknowledges it.

/** Dependencies of the transport. */
interface StopTransportDeps {
  /** A connection for stops only, so that no large message delays one. Undefined without NATS: then no replica is notified. */
  readonly line: ReplicaLine | undefined;
  /** The id under which this replica acknowledges. */
  readonly replica: string;
  /** Applies another replica's message before it is acknowledged. */
  hear(order: string): void;
}

const STOP_SUBJECT = `${BRAND}.replica.v1.stop`;
/** How long acknowledgments are counted, in milliseconds. */
const ANSWERS_MS = 2_000;

/** The transport of one replica. PostgreSQL stays authoritative; any message may be lost. */
export class StopTransport {
  readonly #deps: StopTransportDeps;
  readonly #unsubscribe: (() => void) | undefined;

  /** Subscribes. NATS need not be reachable. */
  constructor(deps: StopTransportDeps) {
    this.#deps = deps;
    this.#unsubscribe = deps.line?.on({ subject: STOP_SUBJECT, hear: (message) => this.#receive(message) });
  }

  /** Notifies all other replicas. The returned set collects the ids of those that acknowledge. */
  tell(order: string): ReadonlySet<string> {
    const answered = new Set<string>();
    const nats = this.#deps.line?.nats;
    if (nats === undefined) return answered;
    try {
      const reply = createInbox();
      const answers = nats.subscribe(reply, {
        callback: (error, message) => {
          if (!error) answered.add(message.string());
        },
      });
      after(ANSWERS_MS, () => answers.unsubscribe());
      nats.publish(STOP_SUBJECT, `${this.#deps.replica} ${order}`, { reply });
    } catch {
      // The connection is being lost: no replica is notified.
    }
    return answered;
  }

  /** Unsubscribes. */
  close(): void {
    this.#unsubscribe?.();
  }

  #receive(message: Msg): void {
    const { replica, hear } = this.#deps;
    const text = message.string();
    const at = text.indexOf(" ");
    if (text.slice(0, at) === replica) return;
    hear(text.slice(at + 1));
    message.respond(replica);
  }
}
