/** Wakes workers over NATS: a job's id goes onto a work queue once the job is committed. PostgreSQL stays the truth, and any message may be lost. */
import { AckPolicy, jetstream, jetstreamManager, RetentionPolicy } from "@nats-io/jetstream";
import { headers, type NatsConnection } from "nats";
import { BRAND } from "../brand.ts";
import { sleep } from "../clock.ts";
import { dial } from "./nats/connect.ts";

/** What a notifier depends on. */
export interface JobNotifierDeps {
  readonly url: string;
  /** Hears of a job that waits; undefined for a process that works off none. */
  readonly wake: (() => void) | undefined;
}

const SUBJECT = `${BRAND}.job.v1`;
const WORKERS = "workers";
const STREAM = {
  name: `${BRAND.toUpperCase()}_JOBS`,
  subjects: [`${SUBJECT}.>`],
  retention: RetentionPolicy.Workqueue,
};
const NANOS_PER_S = 1_000_000_000;
/** By then a sweep has found the job. */
const MAX_AGE_S = 60;
const REDIAL_MS = 2_000;

/** The notifier of one replica. All replicas share one queue where NATS has JetStream; else every worker gets every message. */
export class JobNotifier {
  readonly #deps: JobNotifierDeps;
  readonly #leaving = new AbortController();
  readonly #stay: Promise<void>;
  #nats: NatsConnection | undefined;

  /** Subscribes. NATS need not be reachable. */
  constructor(deps: JobNotifierDeps) {
    this.#deps = deps;
    this.#stay = this.#dialOn();
  }

  /** Announces a job that was committed. What is announced while NATS is away is lost: workers find it in the database. */
  ring(jobId: string): void {
    const told = headers();
    told.set("Nats-Msg-Id", jobId);
    this.#nats?.publish(`${SUBJECT}.${jobId}`, "", { headers: told });
  }

  /** Unsubscribes. */
  async close(): Promise<void> {
    this.#leaving.abort();
    await this.#nats?.close();
    await this.#stay;
  }

  async #dialOn(): Promise<void> {
    const { signal } = this.#leaving;
    while (!signal.aborted) {
      await this.#once().catch(() => {});
      this.#nats = undefined;
      await sleep(REDIAL_MS, signal).catch(() => {});
    }
  }

  async #once(): Promise<void> {
    const connection = await dial(this.#deps.url);
    try {
      await this.#listen(connection);
      if (this.#leaving.signal.aborted) return;
      this.#nats = connection;
      this.#deps.wake?.();
      await connection.closed();
    } finally {
      await connection.close();
    }
  }

  async #listen(connection: NatsConnection): Promise<void> {
    const { wake } = this.#deps;
    if (connection.info?.jetstream && (await this.#hasQueue(connection))) {
      if (!wake) return;
      const queue = await jetstream(connection).consumers.get(STREAM.name, WORKERS);
      await queue.consume({
        callback: (message) => {
          message.ack();
          wake();
        },
      });
    } else if (wake) connection.subscribe(`${SUBJECT}.>`, { callback: wake });
  }

  /** Makes the queue where it isn't there. An account without JetStream, or without the right to it, does without. */
  async #hasQueue(connection: NatsConnection): Promise<boolean> {
    try {
      const manager = await jetstreamManager(connection);
      await manager.streams.add({ ...STREAM, max_age: MAX_AGE_S * NANOS_PER_S });
      await manager.consumers.add(STREAM.name, { durable_name: WORKERS, ack_policy: AckPolicy.Explicit });
      return true;
    } catch {
      return false;
    }
  }
}
