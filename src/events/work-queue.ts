/**
 * Queued work as JetStream messages. Each goes to one worker, and is redelivered if that worker sends no sign of life. Only a fenced claim on
 * the row in PostgreSQL entitles a worker to the work, so any message may be lost or duplicated.
 */
import {
  AckPolicy,
  type Consumer,
  type ConsumerMessages,
  type JetStreamClient,
  type JetStreamManager,
  type JsMsg,
  jetstream,
  jetstreamManager,
  RetentionPolicy,
  StorageType,
} from "@nats-io/jetstream";
import type { NatsConnection } from "nats";
import { BRAND } from "../brand.ts";
import { sleep } from "../clock.ts";
import { random } from "../random.ts";
import type { Notifications } from "../store/database/notifications.ts";
import type { Sql } from "../store/database/tx.ts";
import { beginSending, noteUnsent, type WaitingWork } from "../store/events/outbox.ts";
import type { JobKind } from "../store/jobs/jobs.ts";
import { ANSWER_MS, dial, natsAddress } from "./nats/connect.ts";
import { Leadership } from "./nats/leadership.ts";
import { Polling } from "./polling.ts";

/** The consumers: webhook senders, and the workers of three kinds of jobs. */
export type WorkKind = "webhook" | "batch" | "evaluation" | "film";

/** A received message. Its acknowledgments may be lost; then it is redelivered. */
export interface WorkMessage {
  /** The payload: ids, separated by spaces. */
  readonly text: string;
  /** Prevents a redelivery. */
  done(): void;
  /** Requests a redelivery after this many milliseconds, to any worker. */
  later(ms: number): void;
  /** Extends the processing time before a redelivery. */
  working(): void;
}

/** A message to send. */
interface WorkToSend {
  readonly kind: WorkKind;
  readonly text: string;
  /** Messages with the same name within two minutes are duplicates. */
  readonly name: string;
}

/** Dependencies of a queue. */
interface WorkQueueDeps {
  readonly url: string;
  /** The unique id of this replica. */
  readonly replica: string;
  /** Replicas that a cluster keeps of each message. */
  readonly copies: number;
  /** Called once each time that work falls back to the database although NATS is configured. */
  warn(text: string, cause: unknown): void;
}

const STREAM = `${BRAND.toUpperCase()}_WORK`;
const SUBJECT = `${BRAND}.work.v1`;
const NANOS_PER_MS = 1_000_000;
/** Longer than any message waits for its next attempt: messages that NATS drops are sent again. */
const MAX_AGE_MS = 3_600_000;
/** When an unacknowledged message is redelivered: after its claim in the database expires. */
const SILENCE_MS: Readonly<Record<WorkKind, number>> = {
  webhook: 75_000,
  batch: 45_000,
  evaluation: 45_000,
  film: 45_000,
};
/** How long a pull request waits; the server sends two heartbeats in that time. */
const ASK_MS = 20_000;
/** The valid payload. Anything else is not from a gateway, and would fail the statement that looks it up. */
const TEXT = /^[\w-]{1,64}(?: [\w-]{1,64})?$/;
/** The most pending pull requests of all workers. */
const MOST_ASKING = 8_192;
const REDIAL_MS = { first: 500, most: 30_000 };

/** A connection that carries work. */
interface QueueSession {
  readonly manager: JetStreamManager;
  readonly client: JetStreamClient;
  readonly leadership: Leadership;
  readonly consumers: Map<WorkKind, Promise<Consumer>>;
  /** Gives the connection up after a failure. */
  broke(cause: unknown): void;
}

/** One replica's view of the queue. */
export class WorkQueue {
  readonly #deps: WorkQueueDeps;
  readonly #closing = new AbortController();
  readonly #running: Promise<void>;
  readonly #changed = new Set<() => void>();
  #session: QueueSession | undefined;
  #failures = 0;

  /** Connects. NATS need not be reachable. */
  constructor(deps: WorkQueueDeps) {
    this.#deps = deps;
    this.#running = this.#run();
  }

  /** Whether work currently arrives by messages. Otherwise the database is polled. */
  get isUp(): boolean {
    return this.#session !== undefined;
  }

  /** Whether this replica sends the messages for queued work. */
  get leads(): boolean {
    return this.#session?.leadership.leads ?? false;
  }

  /** Calls `changed` when the queue goes up or down, or this replica becomes leader. Returns a function that unsubscribes. */
  onChange(changed: () => void): () => void {
    this.#changed.add(changed);
    return () => this.#changed.delete(changed);
  }

  /** The stream's creation time, which identifies it: a lost stream is replaced by an empty one. Rejects if NATS does not respond. */
  async born(): Promise<string> {
    const session = this.#open();
    const { created } = await session.manager.streams.info(STREAM).catch((cause) => this.#give(session, cause));
    return created;
  }

  /** Sends messages. Resolves when the stream has stored them all; rejects if it may lack one. */
  async send(work: readonly WorkToSend[]): Promise<void> {
    const session = this.#open();
    const sent = work.map(({ kind, text, name }) =>
      session.client.publish(`${SUBJECT}.${kind}`, text, {
        msgID: name,
        expect: { streamName: STREAM },
        timeout: ANSWER_MS,
      }),
    );
    const failed = (await Promise.allSettled(sent)).find(({ status }) => status === "rejected");
    if (failed?.status === "rejected") this.#give(session, failed.reason);
  }

  /** Receives messages while there is free capacity. */
  take(kind: WorkKind, places: () => number, handle: (message: WorkMessage) => void): WorkTaking {
    return new WorkTaking({
      places,
      handle,
      ask: async (most) => {
        const session = this.#session;
        if (session === undefined) return undefined;
        try {
          const known = session.consumers.get(kind) ?? session.client.consumers.get(STREAM, kind);
          session.consumers.set(kind, known);
          return await (await known).fetch({ max_messages: most, expires: ASK_MS });
        } catch (cause) {
          session.broke(cause);
          return undefined;
        }
      },
      broke: (cause) => this.#session?.broke(cause),
      onChange: (changed) => this.onChange(changed),
    });
  }

  /** Disconnects. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.#session?.broke(undefined);
    await this.#running;
  }

  #open(): QueueSession {
    if (this.#session === undefined) throw new Error("NATS is not available for work");
    return this.#session;
  }

  #give(session: QueueSession, cause: unknown): never {
    session.broke(cause);
    throw cause;
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      const cause = await this.#runOnce(signal).catch((error: unknown) => error);
      if (signal.aborted) return;
      if (++this.#failures === 1)
        this.#deps.warn("NATS is not available for work; using the database until it is", cause);
      const longest = Math.min(REDIAL_MS.first * 2 ** (this.#failures - 1), REDIAL_MS.most);
      await sleep(longest * (0.5 + random() / 2), signal).catch(() => {});
    }
  }

  /** Carries work over one connection. Resolves with the reason why it ended; rejects if it could not begin. */
  async #runOnce(signal: AbortSignal): Promise<unknown> {
    const connection = await dial(this.#deps.url);
    let leadership: Leadership | undefined;
    try {
      const { domain } = natsAddress(this.#deps.url);
      const options = { timeout: ANSWER_MS, ...(domain !== undefined && { domain }) };
      const manager = await jetstreamManager(connection, options);
      await prepare(manager, this.#deps.copies);
      if (signal.aborted) return undefined;
      const broken = Promise.withResolvers<unknown>();
      const { replica } = this.#deps;
      leadership = new Leadership({ connection, matter: "work", replica, begins: () => this.#notify() });
      void watch(connection, broken.resolve);
      const client = jetstream(connection, options);
      this.#session = { manager, client, leadership, consumers: new Map(), broke: broken.resolve };
      this.#failures = 0;
      this.#notify();
      const cause = await Promise.race([connection.closed(), broken.promise]);
      return cause ?? new Error("the connection to NATS was closed");
    } finally {
      leadership?.leave();
      this.#session = undefined;
      this.#notify();
      await connection.flush().catch(() => {});
      await connection.close();
    }
  }

  #notify(): void {
    for (const changed of [...this.#changed]) changed();
  }
}

/** Reports permission errors, which NATS reports only on the connection: without this, a request would wait forever. */
async function watch(connection: NatsConnection, broke: (cause: unknown) => void): Promise<void> {
  for await (const status of connection.status()) if (status.type === "error") broke(status.error);
}

/** Creates the stream and its consumers if they are missing. Rejects if their configuration cannot be made to match. */
async function prepare(manager: JetStreamManager, copies: number): Promise<void> {
  const wanted = {
    subjects: [`${SUBJECT}.>`],
    retention: RetentionPolicy.Workqueue,
    storage: StorageType.File,
    max_age: MAX_AGE_MS * NANOS_PER_MS,
  };
  const known = await manager.streams.info(STREAM).catch((cause) => {
    if (isNotFound(cause)) return undefined;
    throw cause;
  });
  if (known === undefined) {
    await manager.streams.add({ name: STREAM, ...wanted, num_replicas: copies });
  } else {
    if (known.config.retention !== RetentionPolicy.Workqueue)
      throw new Error(`the stream ${STREAM} is not a work queue; delete it, so that it is created again`);
    if (known.config.num_replicas < copies)
      await manager.streams.update(STREAM, { ...known.config, num_replicas: copies });
  }
  for (const [kind, ms] of Object.entries(SILENCE_MS)) {
    await manager.consumers.add(STREAM, {
      durable_name: kind,
      filter_subject: `${SUBJECT}.${kind}`,
      ack_policy: AckPolicy.Explicit,
      ack_wait: ms * NANOS_PER_MS,
      // Messages that await a retry count as pending: with a limit, a few slow receivers could stop all work.
      max_ack_pending: -1,
      max_deliver: -1,
      max_waiting: MOST_ASKING,
    });
  }
}

const isNotFound = (cause: unknown): boolean => cause instanceof Error && /stream not found/.test(cause.message);

/** Dependencies of a receiver. */
interface WorkTakingDeps {
  places(): number;
  handle(message: WorkMessage): void;
  ask(most: number): Promise<ConsumerMessages | undefined>;
  broke(cause: unknown): void;
  onChange(changed: () => void): () => void;
}

/** Receives messages by successive pull requests, each for the free capacity. */
export class WorkTaking {
  readonly #deps: WorkTakingDeps;
  readonly #unsubscribe: () => void;
  readonly #running: Promise<void>;
  #pull: ConsumerMessages | undefined;
  #wakeUp = Promise.withResolvers<void>();
  #isClosed = false;

  /** Starts immediately. */
  constructor(deps: WorkTakingDeps) {
    this.#deps = deps;
    this.#unsubscribe = deps.onChange(() => this.wake());
    this.#running = this.#run();
  }

  /** Reports that capacity may be free. */
  wake(): void {
    this.#wakeUp.resolve();
  }

  /** Stops; resolves when all received messages are returned. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#unsubscribe();
    this.wake();
    await this.#pull?.close();
    await this.#running;
  }

  async #run(): Promise<void> {
    while (!this.#isClosed) {
      // Clear the flag first, so that capacity that becomes free meanwhile triggers another check.
      this.#wakeUp = Promise.withResolvers();
      const most = this.#deps.places();
      const asked = most > 0 ? await this.#deps.ask(most) : undefined;
      if (asked === undefined) await this.#wakeUp.promise;
      else await this.#receive(asked);
    }
  }

  async #receive(asked: ConsumerMessages): Promise<void> {
    this.#pull = asked;
    if (this.#isClosed) asked.stop();
    try {
      for await (const message of asked) {
        if (this.#isClosed) message.nak();
        else if (TEXT.test(message.string())) this.#deps.handle(messageOf(message));
        else message.term();
      }
    } catch (cause) {
      this.#deps.broke(cause);
    }
    this.#pull = undefined;
  }
}

function messageOf(message: JsMsg): WorkMessage {
  const say = (word: () => void): void => {
    try {
      word();
    } catch {
      // The connection is lost; the message is redelivered.
    }
  };
  return {
    text: message.string(),
    done: () => say(() => message.ack()),
    later: (ms) => say(() => message.nak(Math.max(0, Math.ceil(ms)))),
    working: () => say(() => message.working()),
  };
}

// Sends messages for queued work in the database, from the leading replica only.

/** Dependencies of the sender. */
interface WorkFeederDeps {
  readonly sql: Sql;
  readonly notifications: Notifications;
  readonly queue: WorkQueue;
  warn(text: string, cause: unknown): void;
}

/** The consumer of each kind of job. */
const KIND_OF_JOB: Readonly<Partial<Record<JobKind, WorkKind>>> = {
  batch: "batch",
  export: "batch",
  evaluation: "evaluation",
  share: "evaluation",
  film: "film",
};

const LIMIT = 512;
/** The most consecutive messages of one webhook while another has some. */
const AT_ONE_HOOK = 128;
/** Milliseconds until more is sent for a webhook whose due deliveries reached the message limit. */
const BEHIND_MS = 25;
/** Seconds after which a message that NATS had, but did not deliver, is sent again. */
const [JOB_S, DELIVERY_S] = [300, 90];

/** The sender of one replica. Idle unless the replica leads. */
export class WorkFeeder {
  readonly #deps: WorkFeederDeps;
  readonly #rounds: Polling;
  readonly #stops: (() => void)[];
  /** The last webhook of the round robin. */
  #lastHook = "";

  /** Starts immediately. */
  constructor(deps: WorkFeederDeps) {
    this.#deps = deps;
    const { notifications, queue, warn } = deps;
    this.#rounds = new Polling({
      notifications,
      channel: "webhook",
      look: () => this.#feed(),
      failed: (cause) => {
        if (queue.isUp) warn("could not send queued work; trying again", cause);
      },
    });
    const wake = (): void => this.#rounds.wake();
    this.#stops = [notifications.on("job", wake, wake), queue.onChange(wake)];
  }

  /** Stops sending. */
  close(): Promise<void> {
    for (const stop of this.#stops) stop();
    return this.#rounds.close();
  }

  /** Sends queued work. Returns the milliseconds until more is due. */
  async #feed(): Promise<number | undefined> {
    const { sql, queue } = this.#deps;
    while (queue.leads && !this.#rounds.over) {
      const born = await queue.born();
      const kinds = Object.keys(KIND_OF_JOB) as JobKind[]; // the keys of the table
      const round = {
        born,
        kinds,
        limit: LIMIT,
        jobS: JOB_S,
        deliveryS: DELIVERY_S,
        atOneHook: AT_ONE_HOOK,
        after: this.#lastHook,
      };
      const done = await beginSending(sql, round);
      // Another replica is sending, or the previous leader has not left yet.
      if (done === undefined) return BEHIND_MS;
      await queue.send(messagesOf(done)).catch(async (cause) => {
        await noteUnsent(sql, done);
        throw cause;
      });
      const { jobs, deliveries } = done;
      const isWhole = this.#lastHook === "" && deliveries.last === undefined;
      this.#lastHook = deliveries.last ?? "";
      if (jobs.length === LIMIT || deliveries.queued.length === LIMIT || !isWhole) continue;
      return deliveries.isBehind ? BEHIND_MS : deliveries.nextMs;
    }
    return undefined;
  }
}

function messagesOf({ jobs, deliveries }: WaitingWork): WorkToSend[] {
  return [
    ...jobs.flatMap(({ id, kind, turn }) => {
      const taker = KIND_OF_JOB[kind];
      return taker === undefined ? [] : [{ kind: taker, text: id, name: `${id}.${turn}` }];
    }),
    ...deliveries.queued.map(({ id, hookId, turn }) => ({
      kind: "webhook" as const,
      text: `${id} ${hookId}`,
      name: `${id}.${turn}`,
    })),
  ];
}
