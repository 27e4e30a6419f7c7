/**
 * Lets all replicas call servers that are registered at one of them. The database has the replica of each stream. Requests and responses
 * travel over NATS (`events/replica-messenger.ts`) if both replicas have it, else through the database, where they are deleted once read.
 */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { ServeRequestSchema, ServeResponseSchema } from "../../gen/limber/outbound/v1/outbound_service_pb.ts";
import { Cancel } from "../cancellation.ts";
import { after, every } from "../clock.ts";
import { AttemptFailure, UpstreamFailure } from "../contracts/contract.ts";
import { type ReplicaLine, ReplicaMessenger } from "../events/nats/replicas.ts";
import { newId } from "../ids.ts";
import type { Notifications } from "../store/database/notifications.ts";
import type { Sql } from "../store/database/tx.ts";
import {
  connectionsElsewhere,
  keepConnections,
  type RelayMessage,
  sendRelayMessages,
  takeRelayMessages,
} from "../store/replicas/replicas.ts";
import {
  type Elsewhere,
  OutboundConnection,
  type OutboundHub,
  type OutboundQuestion,
  type OutboundReply,
} from "../upstream/limber-outbound.ts";

/** Dependencies of a replica relay. */
interface ReplicaRelayDeps {
  sql: Sql;
  notifications: Notifications;
  hub: OutboundHub;
  /** The name of this replica. */
  replica: string;
  /** The NATS messenger; undefined without NATS. It stays open as long as the relay. */
  replicaLine: ReplicaLine | undefined;
  warn(text: string): void;
}

/** Interval at which a replica confirms its streams and looks up those of others. */
const RENEW_MS = 5_000;
/** Maximum size of a batch. */
const AT_ONCE = { messages: 64, bytes: 16 << 20 };
/** Maximum number of messages waiting for the database; more are refused. */
const MOST_WAITING_BYTES = 128 << 20;
/** Milliseconds after its deadline at which a relayed call ends on the far side, if it was not cancelled. */
const GRACE_MS = 1_000;
/** Retry interval and count for a server that has not read a request yet. */
const LOOK_MS = 2;
const LOOKS = 100;

/** Why a relayed call failed. */
interface Failed {
  callId: number;
  failure: AttemptFailure;
  text: string;
}

/** The relay of one replica. */
export class ReplicaRelay {
  readonly #deps: ReplicaRelayDeps;
  /** Connections to servers at other replicas, by the name under which their responses arrive. */
  readonly #lines = new Map<string, OutboundConnection>();
  /** Calls of other replicas on this replica's streams. */
  readonly #carried = new Map<string, Cancel>();
  readonly #offs: (() => void)[];
  readonly #messenger: ReplicaMessenger | undefined;
  #told: readonly string[] = [];
  #work: Promise<void> = Promise.resolve();
  #waiting: RelayMessage[] = [];
  #waitingBytes = 0;
  #sending: Promise<void> | undefined;
  #taking: Promise<void> | undefined;
  #again = false;
  #closed = false;

  constructor(deps: ReplicaRelayDeps) {
    this.#deps = deps;
    const { notifications, hub, replica, replicaLine: line } = deps;
    this.#messenger =
      line === undefined
        ? undefined
        : new ReplicaMessenger({ line, replica, hear: (message) => this.#closed || this.#unpack(message) });
    this.#offs = [
      notifications.on(
        "outbound_connection_changed",
        () => this.#look(),
        () => this.#look(),
      ),
      notifications.on(
        "relay_message",
        (to) => to === replica && this.#take(),
        () => this.#take(),
      ),
      every(RENEW_MS, () => {
        void this.#tell(true).catch(() => {});
        this.#look();
      }),
    ];
    hub.onChange(() => void this.#tell().catch(() => {}));
    this.#look();
  }

  /** Resolves when the database lists the servers registered here; rejects if it cannot. */
  announced(): Promise<void> {
    return this.#tell();
  }

  /** Stops relaying; the other replicas are notified that this one holds no streams. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const off of this.#offs) off();
    for (const cancel of this.#carried.values()) cancel.abort(undefined);
    await this.#sending;
    this.#messenger?.close();
    await this.#taking;
    await this.#work;
    await keepConnections(this.#deps.sql, this.#deps.replica, []).catch(() => {});
  }

  /** Sequential, so that the last write is the current one. */
  #tell(always = false): Promise<void> {
    const { sql, replica, hub } = this.#deps;
    const told = this.#work.then(async () => {
      const { providers } = hub;
      const same = providers.join() === this.#told.join();
      if (this.#closed || (same && (!always || providers.length === 0))) return;
      await keepConnections(sql, replica, providers);
      this.#told = providers;
    });
    this.#work = told.catch(() => {
      this.#told = ["?"]; // unknown state of the others: send it again
      this.#deps.warn("failed to write to the database which servers are registered here");
    });
    return told;
  }

  /** Loads the servers registered at other replicas; keeps the known ones if the database is down. */
  #look(): void {
    const { sql, replica, hub } = this.#deps;
    const looked = this.#work.then(async () => {
      if (this.#closed) return;
      hub.learn(await connectionsElsewhere(sql, replica), (at) => this.#open(at));
    });
    this.#work = looked.catch(() => {});
  }

  #open({ provider, replica }: Elsewhere): OutboundConnection {
    const line = newId("line");
    const to = { toReplica: replica, line, provider };
    const connection = new OutboundConnection({
      say: (question, budgetMs = 0) => {
        const body = toBinary(ServeResponseSchema, create(ServeResponseSchema, { message: question }));
        if (!this.#send({ ...to, kind: "ask", budgetMs, body: Buffer.from(body) }))
          connection.fail(
            question.value.callId,
            new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "too many messages are queued"),
          );
      },
      behind: false,
      end: () => this.#lines.delete(line),
    });
    this.#lines.set(line, connection);
    return connection;
  }

  /** Returns whether the message will be relayed: not if too many are waiting. */
  #send(message: Omit<RelayMessage, "fromReplica">): boolean {
    if (this.#closed || this.#waitingBytes + message.body.length > MOST_WAITING_BYTES) return false;
    this.#waiting.push({ ...message, fromReplica: this.#deps.replica });
    this.#waitingBytes += message.body.length;
    this.#sending ??= this.#carry();
    return true;
  }

  async #carry(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch: RelayMessage[] = [];
      for (let bytes = 0; this.#waiting.length > 0 && batch.length < AT_ONCE.messages && bytes < AT_ONCE.bytes; ) {
        const message = this.#waiting.shift()!; // there is one
        batch.push(message);
        bytes += message.body.length;
      }
      await this.#post(batch);
      for (const { body } of batch) this.#waitingBytes -= body.length;
    }
    this.#sending = undefined;
  }

  async #post(batch: readonly RelayMessage[]): Promise<void> {
    const { returned, lost } = (await this.#messenger?.post(batch)) ?? { returned: batch, lost: [] };
    // Messages that may have been received are not sent again: a policy would act twice.
    this.#lose(lost);
    if (returned.length > 0) await sendRelayMessages(this.#deps.sql, returned).catch(() => this.#lose(returned));
  }

  /** Requests that were never sent fail at once. */
  #lose(batch: readonly RelayMessage[]): void {
    const failure = new UpstreamFailure(
      AttemptFailure.UNREACHABLE,
      "the replica that holds the stream cannot be reached",
    );
    for (const { kind, line, body } of batch) if (kind === "ask") this.#lines.get(line)?.fail(callIdOf(body), failure);
  }

  #take(): void {
    this.#again = true;
    this.#taking ??= this.#takeAll();
  }

  async #takeAll(): Promise<void> {
    while (this.#again && !this.#closed) {
      this.#again = false;
      const messages = await takeRelayMessages(this.#deps.sql, this.#deps.replica, AT_ONCE.messages).catch(() => []);
      if (messages.length === AT_ONCE.messages) this.#again = true;
      for (const message of messages) this.#unpack(message);
    }
    this.#taking = undefined;
  }

  #unpack(message: RelayMessage): void {
    try {
      if (message.kind === "ask") this.#answer(message);
      else if (message.kind === "reply") this.#lines.get(message.line)?.hear(replyIn(message.body));
      else {
        const { callId, failure, text } = JSON.parse(message.body.toString()) as Failed; // only #answer writes it
        this.#lines.get(message.line)?.fail(callId, new UpstreamFailure(failure, text));
      }
    } catch {
      this.#deps.warn("another replica sent a message that this one cannot read");
    }
  }

  /** A request from another replica on a stream held here. */
  #answer({ fromReplica, line, provider, budgetMs, body }: RelayMessage): void {
    const { message } = fromBinary(ServeResponseSchema, body);
    if (message.case === undefined || message.case === "welcome") return;
    const { callId } = message.value;
    const name = `${line} ${callId}`;
    if (message.case === "act" && message.value.body.case === "cancel") {
      this.#carried.get(name)?.abort(undefined);
      return;
    }
    const cancel = new Cancel();
    const forget = after((budgetMs ?? 0) + GRACE_MS, () => cancel.abort(undefined));
    const over = (): void => {
      forget();
      this.#carried.delete(name);
    };
    const back = (kind: "reply" | "failed", said: Uint8Array): boolean =>
      this.#send({ toReplica: fromReplica, line, provider, kind, budgetMs: null, body: Buffer.from(said) });
    const fail = (thrown: unknown): void => {
      over();
      const known = thrown instanceof UpstreamFailure ? thrown : undefined;
      const failure = known?.failure ?? AttemptFailure.UPSTREAM_ERROR;
      const told: Failed = {
        callId,
        failure,
        text: known?.message ?? "the call failed at the replica that holds the stream",
      };
      back("failed", Buffer.from(JSON.stringify(told)));
    };
    const take = (reply: OutboundReply): boolean => {
      const last = isLast(reply);
      if (last) over();
      const renamed = { ...reply, value: { ...reply.value, callId } } as OutboundReply; // the same case with another number
      const said = toBinary(ServeRequestSchema, create(ServeRequestSchema, { message: renamed }));
      // After a response that cannot be relayed, continuing is useless.
      if (!back("reply", said)) queueMicrotask(() => cancel.abort(undefined));
      return last;
    };
    const ask = (looks: number): void => {
      try {
        const connection = this.#deps.hub.here(provider);
        if (!connection) throw new UpstreamFailure(AttemptFailure.UNREACHABLE, "the server has left that replica");
        // Many arrive at once where callers would have come one after the other.
        if (connection.line.behind && looks > 0 && !cancel.aborted) return void after(LOOK_MS, () => ask(looks - 1));
        const question = (id: number) => ({ ...message, value: { ...message.value, callId: id } }) as OutboundQuestion;
        connection.call(question, { take, fail }, { signal: cancel, budgetMs: budgetMs ?? 0 });
      } catch (thrown) {
        fail(thrown);
      }
    };
    this.#carried.set(name, cancel);
    ask(LOOKS);
  }
}

/** A prediction has several parts; all other responses have one. */
const isLast = (reply: OutboundReply): boolean => reply.case !== "predict" || reply.value.body.case !== "part";

function replyIn(body: Buffer): OutboundReply {
  const { message } = fromBinary(ServeRequestSchema, body);
  if (message.case === undefined || message.case === "hello")
    throw new Error("a reply is neither empty nor a greeting");
  return message;
}

function callIdOf(body: Buffer): number {
  const { message } = fromBinary(ServeResponseSchema, body);
  return message.case === undefined || message.case === "welcome" ? 0 : message.value.callId;
}
