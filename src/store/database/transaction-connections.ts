/** Connections for transactions: each is lent to one transaction at a time, and thrown away when it is lost. */
import { after } from "../../clock.ts";
import { type Client, type ClientOptions, openClient } from "./client.ts";
import { StoreUnavailable } from "./unavailable.ts";

/** One connection. */
export interface TransactionConnection {
  readonly client: Client;
  /** Rejects when the connection is lost. */
  readonly lost: Promise<never>;
  isLost(): boolean;
}

/** How lanes differ from others. */
type ConnectionOptions = Pick<ClientOptions, "pulse" | "unbounded">;

interface ConnectionWaiter {
  take(lane: TransactionConnection): void;
  leave(reason: Error): void;
}

/** How long a transaction waits for a connection. */
const WAIT_MS = 10_000;
const CLOSED = "The database client is closed";

/**
 * At most `max` lanes to the database at `url`.
 *
 * The driver lends connections of its pool itself, but when a lent one is lost it throws where nobody can catch it,
 * or never answers. A client that has one connection in all its life can do neither.
 */
export class TransactionConnections {
  readonly #url: string;
  readonly #max: number;
  readonly #all = new Set<TransactionConnection>();
  readonly #idle: TransactionConnection[] = [];
  readonly #waiting: ConnectionWaiter[] = [];
  readonly #options: ConnectionOptions;
  #closed = false;

  constructor(url: string, max: number, options: ConnectionOptions = {}) {
    this.#url = url;
    this.#max = max;
    this.#options = options;
  }

  /** Lends a lane, waiting for one when all are lent; rejects when none comes back in time. */
  async take(): Promise<TransactionConnection> {
    if (this.#closed) throw new StoreUnavailable(CLOSED);
    return this.#free() ?? this.#wait();
  }

  /** Takes a lane back whose transaction is over. */
  give(lane: TransactionConnection): void {
    if (!lane.isLost()) this.#idle.push(lane);
    const free = this.#waiting.length > 0 ? this.#free() : undefined;
    if (free) this.#waiting.shift()!.take(free);
  }

  /** Closes every lane. A transaction that is still under way is rolled back. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const waiter of this.#waiting.splice(0)) waiter.leave(new StoreUnavailable(CLOSED));
    await Promise.all([...this.#all].map(({ client }) => client.end({ timeout: 0 })));
  }

  #free(): TransactionConnection | undefined {
    return this.#idle.pop() ?? (this.#all.size < this.#max ? this.#open() : undefined);
  }

  #wait(): Promise<TransactionConnection> {
    const { promise, resolve, reject } = Promise.withResolvers<TransactionConnection>();
    const cancel = after(WAIT_MS, () => {
      this.#waiting.splice(this.#waiting.indexOf(waiter), 1);
      reject(new StoreUnavailable(`No database connection came free within ${WAIT_MS} ms`));
    });
    const waiter: ConnectionWaiter = {
      take: (lane) => {
        cancel();
        resolve(lane);
      },
      leave: (reason) => {
        cancel();
        reject(reason);
      },
    };
    this.#waiting.push(waiter);
    return promise;
  }

  #open(): TransactionConnection {
    const lost = Promise.withResolvers<never>();
    lost.promise.catch(() => {});
    let isLost = false;
    const onLost = (): void => {
      isLost = true;
      this.#all.delete(lane);
      const place = this.#idle.indexOf(lane);
      if (place >= 0) this.#idle.splice(place, 1);
      void lane.client.end({ timeout: 0 });
      lost.reject(new StoreUnavailable("The database connection was lost"));
    };
    const client = openClient(this.#url, { ...this.#options, max: 1, onLost });
    const lane: TransactionConnection = { client, lost: lost.promise, isLost: () => isLost };
    this.#all.add(lane);
    return lane;
  }
}
