/**
 * Work that waits, as messages of JetStream: each goes to one worker, and comes again where that one was not heard of. A message entitles to
 * nothing: the row in PostgreSQL does, by a claim that is fenced. Any message may be lost or come twice.
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

/** Who takes it: senders of webhooks, and the workers of two kinds of jobs. */
export type WorkKind = "webhook" | "batch" | "evaluation";

/** A message that a worker was given. What it says of it may be lost: then the message comes again. */
export interface WorkMessage {
  /** What was sent: ids, with spaces between. */
  readonly text: string;
  /** It never comes again. */
  done(): void;
  /** It comes again after so many milliseconds, here or elsewhere. */
  later(ms: number): void;
  /** It is being worked on: it comes to no other for a while. */
  working(): void;
}

/** A message that is sent. */
interface WorkToSend {
  readonly kind: WorkKind;
  readonly text: string;
  /** A message of the same name within two minutes is the same message. */
  readonly name: string;
}

/** What a queue depends on. */
interface WorkQueueDeps {
  readonly url: string;
  /** Names this replica among all. */
  readonly replica: string;
  /** Copies that a cluster keeps of each message. */
  readonly copies: number;
  /** Told once whenever work begins to go over the database although there is a NATS. */
  warn(text: string, cause: unknown): void;
}

const STREAM = `${BRAND.toUpperCase()}_WORK`;
const SUBJECT = `${BRAND}.work.v1`;
const NANOS_PER_MS = 1_000_000;
/** Longer than any message waits for its next try: what NATS forgets is sent again. */
const MAX_AGE_MS = 3_600_000;
/** When a message comes again whose worker said nothing: later than its claim in the database ends. */
const SILENCE_MS: Readonly<Record<WorkKind, number>> = { webhook: 75_000, batch: 45_000, evaluation: 45_000 };
/** How long a request for messages waits; the server has a sign of life for it twice in that time. */
const ASK_MS = 20_000;
/** What a message says: anything else is from no gateway, and would fail the statement in which it is looked for. */
const TEXT = /^[\w-]{1,64}(?: [\w-]{1,64})?$/;
/** Requests that wait at one time, of all workers. */
const MOST_ASKING = 8_192;
const REDIAL_MS = { first: 500, most: 30_000 };

/** A connection on which work travels. */
interface QueueSession {
  readonly manager: JetStreamManager;
  readonly client: JetStreamClient;
  readonly leadership: Leadership;
  readonly consumers: Map<WorkKind, Promise<Consumer>>;
  /** Gives the connection up: something of it does not work. */
  broke(cause: unknown): void;
}

/** The queue as one replica sees it. */
export class WorkQueue {
  readonly #deps: WorkQueueDeps;
  readonly #leaving = new AbortController();
  readonly #running: Promise<void>;
  readonly #changed = new Set<() => void>();
  #session: QueueSession | undefined;
  #failures = 0;

  /** Connects. NATS need not be reachable. */
  constructor(deps: WorkQueueDeps) {
    this.#deps = deps;
    this.#running = this.#run();
  }

  /** Work comes by messages at the moment; while it does not, it is looked for in the database. */
  get isUp(): boolean {
    return this.#session !== undefined;
  }

  /** This replica is the one that sends messages for what waits. */
  get leads(): boolean {
    return this.#session?.leadership.leads ?? false;
  }

  /** Calls `changed` whenever it comes up, goes down or this replica begins to lead; the returned function ends that. */
  onChange(changed: () => void): () => void {
    this.#changed.add(changed);
    return () => this.#changed.delete(changed);
  }

  /** When the stream was made, which no other stream was: one that is lost is replaced by an empty one. Rejects where NATS does not answer. */
  async born(): Promise<string> {
    const session = this.#open();
    const { created } = await session.manager.streams.info(STREAM).catch((cause) => this.#give(session, cause));
    return created;
  }

  /** Sends messages; resolves when the stream has them all. Rejects where it may lack one. */
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

  /** Takes messages as long as there are places. */
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
    this.#leaving.abort();
    this.#session?.broke(undefined);
    await this.#running;
  }

  #open(): QueueSession {
    if (this.#session === undefined) throw new Error("NATS carries no work at the moment");
    return this.#session;
  }

  #give(session: QueueSession, cause: unknown): never {
    session.broke(cause);
    throw cause;
  }

  async #run(): Promise<void> {
    const { signal } = this.#leaving;
    while (!signal.aborted) {
      const cause = await this.#runOnce(signal).catch((error: unknown) => error);
      if (signal.aborted) return;
      if (++this.#failures === 1) this.#deps.warn("work goes over the database until NATS carries it", cause);
      const longest = Math.min(REDIAL_MS.first * 2 ** (this.#failures - 1), REDIAL_MS.most);
      await sleep(longest * (0.5 + random() / 2), signal).catch(() => {});
    }
  }

  /** Carries work over one connection. Answers why it ended; rejects where it could not begin. */
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
      leadership = new Leadership({ connection, matter: "work", replica, begins: () => this.#tell() });
      void watch(connection, broken.resolve);
      const client = jetstream(connection, options);
      this.#session = { manager, client, leadership, consumers: new Map(), broke: broken.resolve };
      this.#failures = 0;
      this.#tell();
      const cause = await Promise.race([connection.closed(), broken.promise]);
      return cause ?? new Error("the connection to NATS was closed");
    } finally {
      leadership?.leave();
      this.#session = undefined;
      this.#tell();
      await connection.flush().catch(() => {});
      await connection.close();
    }
  }

  #tell(): void {
    for (const changed of [...this.#changed]) changed();
  }
}

/** What is refused on a connection is told nowhere else: a user without the permission waits for ever otherwise. */
async function watch(connection: NatsConnection, broke: (cause: unknown) => void): Promise<void> {
  for await (const status of connection.status()) if (status.type === "error") broke(status.error);
}

/** Makes the stream and its consumers where they are not there. Rejects where they can't be as they have to. */
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
      throw new Error(`the stream ${STREAM} is no work queue: delete it, and it is made anew`);
    if (known.config.num_replicas < copies)
      await manager.streams.update(STREAM, { ...known.config, num_replicas: copies });
  }
  for (const [kind, ms] of Object.entries(SILENCE_MS)) {
    await manager.consumers.add(STREAM, {
      durable_name: kind,
      filter_subject: `${SUBJECT}.${kind}`,
      ack_policy: AckPolicy.Explicit,
      ack_wait: ms * NANOS_PER_MS,
      // What waits for its next try counts as given out: a limit would let some slow receivers stop all work.
      max_ack_pending: -1,
      max_deliver: -1,
      max_waiting: MOST_ASKING,
    });
  }
}

const isNotFound = (cause: unknown): boolean => cause instanceof Error && /stream not found/.test(cause.message);

/** What a taking depends on. */
interface WorkTakingDeps {
  places(): number;
  handle(message: WorkMessage): void;
  ask(most: number): Promise<ConsumerMessages | undefined>;
  broke(cause: unknown): void;
  onChange(changed: () => void): () => void;
}

/** Messages that are taken, one request after the other, each for as many as there are places. */
export class WorkTaking {
  readonly #deps: WorkTakingDeps;
  readonly #off: () => void;
  readonly #running: Promise<void>;
  #asked: ConsumerMessages | undefined;
  #woken = Promise.withResolvers<void>();
  #isOver = false;

  /** Begins at once. */
  constructor(deps: WorkTakingDeps) {
    this.#deps = deps;
    this.#off = deps.onChange(() => this.wake());
    this.#running = this.#run();
  }

  /** There may be places again. */
  wake(): void {
    this.#woken.resolve();
  }

  /** Takes no more; resolves when what had come is given back. */
  async close(): Promise<void> {
    this.#isOver = true;
    this.#off();
    this.wake();
    await this.#asked?.close();
    await this.#running;
  }

  async #run(): Promise<void> {
    while (!this.#isOver) {
      // Before looking, so that what is freed meanwhile is looked for again.
      this.#woken = Promise.withResolvers();
      const most = this.#deps.places();
      const asked = most > 0 ? await this.#deps.ask(most) : undefined;
      if (asked === undefined) await this.#woken.promise;
      else await this.#hear(asked);
    }
  }

  async #hear(asked: ConsumerMessages): Promise<void> {
    this.#asked = asked;
    if (this.#isOver) asked.stop();
    try {
      for await (const message of asked) {
        if (this.#isOver) message.nak();
        else if (TEXT.test(message.string())) this.#deps.handle(messageOf(message));
        else message.term();
      }
    } catch (cause) {
      this.#deps.broke(cause);
    }
    this.#asked = undefined;
  }
}

function messageOf(message: JsMsg): WorkMessage {
  const say = (word: () => void): void => {
    try {
      word();
    } catch {
      // The connection is lost: the message comes again.
    }
  };
  return {
    text: message.string(),
    done: () => say(() => message.ack()),
    later: (ms) => say(() => message.nak(Math.max(0, Math.ceil(ms)))),
    working: () => say(() => message.working()),
  };
}

// Sends messages for work that waits in the database, from the one replica that leads.

/** What it depends on. */
interface WorkFeederDeps {
  readonly sql: Sql;
  readonly notifications: Notifications;
  readonly queue: WorkQueue;
  warn(text: string, cause: unknown): void;
}

/** Which workers take which jobs. */
const KIND_OF_JOB: Readonly<Partial<Record<JobKind, WorkKind>>> = {
  batch: "batch",
  export: "batch",
  evaluation: "evaluation",
};

const LIMIT = 512;
/** Of one webhook: so many stand before another's at most. */
const AT_ONE_HOOK = 128;
/** Milliseconds until more is sent for a webhook of which as much is due as may have a message. */
const BEHIND_MS = 25;
/** What NATS had and did not bring for as long is sent again: seconds. */
const [JOB_S, DELIVERY_S] = [300, 90];

/** The sender of one replica; it does something while that one leads. */
export class WorkFeeder {
  readonly #deps: WorkFeederDeps;
  readonly #rounds: Polling;
  readonly #stops: (() => void)[];
  /** The webhook that was visited last. */
  #visited = "";

  /** Begins at once. */
  constructor(deps: WorkFeederDeps) {
    this.#deps = deps;
    const { notifications, queue, warn } = deps;
    this.#rounds = new Polling({
      notifications,
      channel: "webhook",
      look: () => this.#feed(),
      failed: (cause) => {
        if (queue.isUp) warn("work that waits can't be sent at the moment", cause);
      },
    });
    const wake = (): void => this.#rounds.wake();
    this.#stops = [notifications.on("job", wake, wake), queue.onChange(wake)];
  }

  /** Sends no more. */
  close(): Promise<void> {
    for (const stop of this.#stops) stop();
    return this.#rounds.close();
  }

  /** Sends what waits; returns in how many milliseconds more is due. */
  async #feed(): Promise<number | undefined> {
    const { sql, queue } = this.#deps;
    while (queue.leads && !this.#rounds.over) {
      const born = await queue.born();
      const kinds = Object.keys(KIND_OF_JOB) as JobKind[]; // the table's own keys
      const round = {
        born,
        kinds,
        limit: LIMIT,
        jobS: JOB_S,
        deliveryS: DELIVERY_S,
        atOneHook: AT_ONE_HOOK,
        after: this.#visited,
      };
      const done = await beginSending(sql, round);
      // Another replica is at it, or the last one has not left yet.
      if (done === undefined) return BEHIND_MS;
      await queue.send(messagesOf(done)).catch(async (cause) => {
        await noteUnsent(sql, done);
        throw cause;
      });
      const { jobs, deliveries } = done;
      const isWhole = this.#visited === "" && deliveries.last === undefined;
      this.#visited = deliveries.last ?? "";
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
