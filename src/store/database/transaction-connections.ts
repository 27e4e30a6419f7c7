/** Connections for transactions: each is lent to one transaction at a time, and thrown away when it is lost. */
import { ioClock } from "../../clock.ts";
import { type Client, type ClientOptions, openClient, POOLED_LIMITS } from "./client.ts";
import { StoreUnavailable } from "./unavailable.ts";

/** One connection. */
export interface TransactionConnection {
  readonly client: Client;
  /** What begins a transaction on it. */
  readonly begin: string;
  /** What `work` resolves to; rejects as soon as the connection is lost. Nothing of it is kept when it is over. */
  unlessLost<T>(work: Promise<T>): Promise<T>;
  isLost(): boolean;
}

/** How connections differ from others. */
type ConnectionOptions = Pick<ClientOptions, "pulse" | "unbounded" | "pooled">;

interface ConnectionWaiter {
  take(connection: TransactionConnection): void;
  leave(reason: Error): void;
}

/** How long a transaction waits for a connection. */
const WAIT_MS = 10_000;
const CLOSED = "The database client is closed";

/**
 * At most `max` connections to the database at `url`.
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

  /** Lends a connection, waiting for one when all are lent; rejects when none comes back in time. */
  async take(): Promise<TransactionConnection> {
    if (this.#closed) throw new StoreUnavailable(CLOSED);
    return this.#free() ?? this.#wait();
  }

  /** Takes a connection back whose transaction is over. */
  give(connection: TransactionConnection): void {
    if (!connection.isLost()) this.#idle.push(connection);
    const free = this.#waiting.length > 0 ? this.#free() : undefined;
    if (free) this.#waiting.shift()!.take(free);
  }

  /** Closes every connection. A transaction that is still under way is rolled back. */
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
    const cancel = ioClock.after(WAIT_MS, () => {
      this.#waiting.splice(this.#waiting.indexOf(waiter), 1);
      reject(new StoreUnavailable(`No database connection came free within ${WAIT_MS} ms`));
    });
    const waiter: ConnectionWaiter = {
      take: (connection) => {
        cancel();
        resolve(connection);
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
    // A race with one promise that lives as long as the connection would keep the outcome of every transaction as long.
    const held = new Set<(reason: Error) => void>();
    let isLost = false;
    const lost = (): Error => new StoreUnavailable("The database connection was lost");
    const onLost = (): void => {
      isLost = true;
      this.#all.delete(connection);
      const place = this.#idle.indexOf(connection);
      if (place >= 0) this.#idle.splice(place, 1);
      void connection.client.end({ timeout: 0 });
      for (const reject of held) reject(lost());
      held.clear();
    };
    const unlessLost = <T>(work: Promise<T>): Promise<T> =>
      new Promise((resolve, reject) => {
        if (isLost) reject(lost());
        else held.add(reject);
        work.then(resolve, reject).finally(() => held.delete(reject));
      });
    const client = openClient(this.#url, { ...this.#options, max: 1, onLost });
    // In one message, so that a pooler's transaction costs no round trip more.
    const begin = this.#options.pooled && !this.#options.unbounded ? `begin; ${POOLED_LIMITS}` : "begin";
    const connection: TransactionConnection = { client, begin, unlessLost, isLost: () => isLost };
    this.#all.add(connection);
    return connection;
  }
}
