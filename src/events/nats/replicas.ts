/**
 * A connection over which replicas say things to one another, made again whenever it was lost. Those that share it hear its subjects; what is
 * said while there is none is lost, or goes another way.
 */
import { createInbox, errors, headers, type Msg, type NatsConnection, RequestError, type Subscription } from "nats";
import { BRAND } from "../../brand.ts";
import { after, sleep, steadyNow } from "../../clock.ts";
import { newId } from "../../ids.ts";
import { type Notifications, notify } from "../../store/database/notifications.ts";
import type { Sql } from "../../store/database/tx.ts";
import type { RelayMessage } from "../../store/replicas/replicas.ts";
import { dial } from "./connect.ts";

/** How long it waits before it connects again, in milliseconds: after a connection that was lost, and after one that was refused its subjects. */
const REDIAL_MS = { lost: 2_000, refused: 30_000 };

/** What hears a subject. */
interface ReplicaHearing {
  readonly subject: string;
  /** Gets every message. */
  hear(message: Msg): void;
  /** Called with each connection that it is heard over, as soon as that is there. */
  gained?(connection: NatsConnection): void;
  /** Called when the connection is lost: what had begun to come does not go on. */
  lost?(): void;
}

/** What a line depends on. */
interface ReplicaLineDeps {
  /** Where NATS is. */
  readonly url: string;
  /** What is said goes another way while there is no connection: so one of which NATS refuses a part is given up. */
  readonly hasOtherWay: boolean;
  /** Told the first time that NATS refuses to carry what replicas say. */
  warn(text: string, cause: unknown): void;
}

/** The line of one replica. */
export class ReplicaLine {
  readonly #deps: ReplicaLineDeps;
  readonly #leaving = new AbortController();
  readonly #hearings = new Map<ReplicaHearing, Subscription | undefined>();
  readonly #running: Promise<void>;
  #connection: NatsConnection | undefined;
  #isWarned = false;

  /** Connects. NATS need not be reachable. */
  constructor(deps: ReplicaLineDeps) {
    this.#deps = deps;
    this.#running = this.#run();
  }

  /** The connection; undefined while there is none, or NATS refuses it. */
  get nats(): NatsConnection | undefined {
    return this.#connection?.isClosed() ? undefined : this.#connection;
  }

  /** Hears a subject over this connection and all later ones; the returned function ends that. */
  on(hearing: ReplicaHearing): () => void {
    const { nats } = this;
    this.#hearings.set(hearing, nats && subscribed(nats, hearing));
    if (nats !== undefined) hearing.gained?.(nats);
    return () => {
      const subscription = this.#hearings.get(hearing);
      this.#hearings.delete(hearing);
      if (this.nats !== undefined) subscription?.unsubscribe();
    };
  }

  /** Disconnects. */
  async close(): Promise<void> {
    this.#leaving.abort();
    await this.#connection?.close();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#leaving;
    while (!signal.aborted) {
      const isRefused = await this.#runOnce().catch(() => false);
      if (this.#connection !== undefined) for (const hearing of this.#hearings.keys()) hearing.lost?.();
      this.#connection = undefined;
      await sleep(isRefused ? REDIAL_MS.refused : REDIAL_MS.lost, signal).catch(() => {});
    }
  }

  /** Lasts as long as one connection. Answers whether it was given up because NATS refused what it is for. */
  async #runOnce(): Promise<boolean> {
    const connection = await dial(this.#deps.url);
    if (this.#leaving.signal.aborted) {
      await connection.close();
      return false;
    }
    let isRefused = false;
    void this.#watch(connection, () => {
      isRefused = true;
    });
    for (const hearing of this.#hearings.keys()) this.#hearings.set(hearing, subscribed(connection, hearing));
    this.#connection = connection;
    for (const hearing of this.#hearings.keys()) hearing.gained?.(connection);
    await connection.closed();
    return isRefused;
  }

  async #watch(connection: NatsConnection, refused: () => void): Promise<void> {
    for await (const status of connection.status()) {
      if (status.type !== "error" || !(status.error instanceof errors.PermissionViolationError)) continue;
      if (!this.#isWarned)
        this.#deps.warn("NATS does not carry what replicas say: it goes over the database", status.error);
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

// What one replica says to another over NATS, where both have it: each message is acknowledged by the replica that it is for. What NATS
// carries needs no row of the database; what nobody took is given back, and goes there.

/** What it depends on. */
interface ReplicaMessengerDeps {
  /** It stays open for as long as this is. */
  readonly line: ReplicaLine;
  /** Names this replica among all. */
  readonly replica: string;
  /** Takes a message for this replica, in the order of its sender. */
  hear(message: RelayMessage): void;
}

/** What became of messages. */
export interface Posted {
  /** No replica took them: they may be sent by another way. */
  readonly returned: readonly RelayMessage[];
  /** They may have been taken: they must not be sent again. */
  readonly lost: readonly RelayMessage[];
}

const SUBJECT = `${BRAND}.replica.v1.relay`;
/** The header of a question that asks whether NATS carries questions. */
const PROOF = "Limber-Proof";
/** The parts of a large message: what fits into a message of NATS in any usual configuration. */
const PART_BYTES = 512_000;
/** How long the other replica has to take a message, in milliseconds. */
const TAKEN_MS = 2_000;
/** After a message that nobody took, others for that replica go the other way for as long: they would overtake it. */
const ORDER_MS = 2_000;
/** The most of one message that comes in parts. */
const MOST_BYTES = 64 << 20;
/** Messages whose parts are kept; that of which nothing came for longest is forgotten first. */
const MOST_IN_PARTS = 64;

/** All of a message but its body, as it travels. */
interface Head extends Omit<RelayMessage, "body" | "toReplica"> {
  /** Under which name all but the last of its parts came; undefined for a message of one part. */
  readonly parts?: string;
}

/** The messages of one replica to others. */
export class ReplicaMessenger {
  readonly #deps: ReplicaMessengerDeps;
  readonly #off: () => void;
  readonly #elsewhereUntil = new Map<string, number>();
  /** Parts of messages that are not whole yet, by their names. */
  readonly #parts = new Map<string, Buffer[]>();
  readonly #leaving = new AbortController();
  /** The connection over which a question to this replica itself was answered. */
  #proven: NatsConnection | undefined;

  /** Subscribes. NATS need not be reachable: what is posted meanwhile is returned. */
  constructor(deps: ReplicaMessengerDeps) {
    this.#deps = deps;
    this.#off = deps.line.on({
      subject: `${SUBJECT}.${deps.replica}`,
      hear: (message) => this.#hear(message),
      gained: (connection) => void this.#prove(connection),
      lost: () => this.#parts.clear(),
    });
  }

  /** Posts messages in order; resolves when each was taken or not. Never rejects. */
  async post(messages: readonly RelayMessage[]): Promise<Posted> {
    const fates = await Promise.all(messages.map((message) => this.#postOne(message)));
    return {
      returned: messages.filter((_, i) => fates[i] === "returned"),
      lost: messages.filter((_, i) => fates[i] === "lost"),
    };
  }

  /** Unsubscribes. */
  close(): void {
    this.#leaving.abort();
    this.#off();
  }

  /**
   * Asks itself until it is answered. NATS may refuse any of four things, to say and to hear questions and answers, and tells so too late for the
   * message that it refused: nobody knows whether that was taken.
   */
  async #prove(connection: NatsConnection): Promise<void> {
    const { signal } = this.#leaving;
    const proof = headers();
    proof.set(PROOF, "1");
    while (!signal.aborted && !connection.isClosed() && this.#proven !== connection) {
      try {
        await connection.request(`${SUBJECT}.${this.#deps.replica}`, undefined, { headers: proof, timeout: TAKEN_MS });
        this.#proven = connection;
      } catch {
        await sleep(TAKEN_MS, signal).catch(() => {});
      }
    }
  }

  /** Everything is written before the first await, so that messages leave in the order in which they were posted. */
  async #postOne({ toReplica, body, ...head }: RelayMessage): Promise<"taken" | "returned" | "lost"> {
    const connection = this.#deps.line.nats;
    if (connection === undefined || connection !== this.#proven) return "returned";
    if ((this.#elsewhereUntil.get(toReplica) ?? 0) > steadyNow()) return "returned";
    const subject = `${SUBJECT}.${toReplica}`;
    const parts = body.length > PART_BYTES ? newId("line") : undefined;
    const told = headers();
    told.set("Limber-Message", JSON.stringify({ ...head, ...(parts !== undefined && { parts }) } satisfies Head));
    try {
      let at = 0;
      for (; parts !== undefined && body.length - at > PART_BYTES; at += PART_BYTES)
        connection.publish(subject, body.subarray(at, at + PART_BYTES), { reply: parts });
      const rest = { headers: told, timeout: TAKEN_MS };
      await connection.request(subject, body.subarray(at), rest);
      return "taken";
    } catch (error) {
      if (!(error instanceof RequestError && error.isNoResponders())) return "lost";
      this.#elsewhereUntil.set(toReplica, steadyNow() + ORDER_MS);
      return "returned";
    }
  }

  #hear(message: Msg): void {
    const told = message.headers?.get("Limber-Message");
    if (message.headers?.has(PROOF)) message.respond();
    else if (!told) this.#keep(message.reply ?? "", Buffer.from(message.data));
    else if (message.respond()) this.#take(told, Buffer.from(message.data));
  }

  #keep(name: string, part: Buffer): void {
    const parts = this.#parts.get(name) ?? [];
    // Anew at the end: the first is the one of which nothing came for longest.
    this.#parts.delete(name);
    if (parts.length * PART_BYTES >= MOST_BYTES) return;
    this.#parts.set(name, [...parts, part]);
    if (this.#parts.size > MOST_IN_PARTS) this.#parts.delete(this.#parts.keys().next().value ?? "");
  }

  #take(told: string, last: Buffer): void {
    const head = headOf(told);
    if (head === undefined) return;
    const { parts: name, ...message } = head;
    const parts = name === undefined ? [] : this.#parts.get(name);
    if (name !== undefined) this.#parts.delete(name);
    // One whose parts were forgotten is no message: who asked waits until its time is over.
    if (parts === undefined) return;
    this.#deps.hear({ ...message, toReplica: this.#deps.replica, body: Buffer.concat([...parts, last]) });
  }
}

/** Only replicas write it; what is not theirs is left alone. */
function headOf(text: string): Head | undefined {
  try {
    const head = JSON.parse(text) as Partial<Head>; // each field is looked at below
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

// Short messages between replicas that may be lost: over NATS where there is one, else over the database.

/** What a gossip transport depends on. */
interface GossipTransportDeps {
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
const MOST_GOSSIP_BYTES = { nats: 512_000, database: 5_900 };
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
    for (const off of this.#offs) off();
  }

  #needsDatabase(): boolean {
    return this.#deps.replicaLine?.nats === undefined || steadyNow() - this.#heardFromDatabaseAt < ANSWERED_MS;
  }
}

// Emergency stops between replicas without the database: over NATS, where there is one. Each replica that holds a stop answers.

/** What the transport depends on. */
interface StopTransportDeps {
  /** A connection for stops alone, so that no large message is ahead of one; undefined where there is no NATS: then no replica is notified. */
  readonly line: ReplicaLine | undefined;
  /** Names this replica among those that answer. */
  readonly replica: string;
  /** Applies the message of another replica, before it is answered. */
  hear(order: string): void;
}

const STOP_SUBJECT = `${BRAND}.replica.v1.stop`;
/** Milliseconds in which answers are counted. */
const ANSWERS_MS = 2_000;

/** The transport of one replica. PostgreSQL stays the truth; any message may be lost. */
export class StopTransport {
  readonly #deps: StopTransportDeps;
  readonly #off: (() => void) | undefined;

  /** Subscribes. NATS need not be reachable. */
  constructor(deps: StopTransportDeps) {
    this.#deps = deps;
    this.#off = deps.line?.on({ subject: STOP_SUBJECT, hear: (message) => this.#hear(message) });
  }

  /** Notifies all other replicas; the names of those that answer come into the returned set as they do. */
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
      // The connection is just being lost: no replica is notified.
    }
    return answered;
  }

  /** Unsubscribes. */
  close(): void {
    this.#off?.();
  }

  #hear(message: Msg): void {
    const { replica, hear } = this.#deps;
    const text = message.string();
    const at = text.indexOf(" ");
    if (text.slice(0, at) === replica) return;
    hear(text.slice(at + 1));
    message.respond(replica);
  }
}
