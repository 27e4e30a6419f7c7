/**
 * A connection over which replicas say things to one another, made again whenever it was lost. Those that share it hear its subjects; what is
 * said while there is none is lost, or goes another way.
 */
import { errors, type Msg, type NatsConnection, type Subscription } from "nats";
import { sleep } from "../../clock.ts";
import { dial } from "./connect.ts";

/** How long it waits before it connects again, in milliseconds: after a connection that was lost, and after one that was refused its subjects. */
const REDIAL_MS = { lost: 2_000, refused: 30_000 };

/** What hears a subject. */
export interface ReplicaHearing {
  readonly subject: string;
  /** Gets every message. */
  hear(message: Msg): void;
  /** Called with each connection that it is heard over, as soon as that is there. */
  gained?(connection: NatsConnection): void;
  /** Called when the connection is lost: what had begun to come does not go on. */
  lost?(): void;
}

/** What a line depends on. */
export interface ReplicaLineDeps {
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
