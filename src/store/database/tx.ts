/**
 * Database access: single statements on a pool, and transactions on their own connections.
 */
import postgres from "postgres";
import { ioClock } from "../../clock.ts";
import { type DatabaseAddress, databaseAddress } from "./address.ts";
import {
  type Client,
  type ClientOptions,
  LIMITS_MS,
  openClient,
  POOLED_LIMITS,
  type Pulse,
  type Queryable,
} from "./client.ts";
import { StoreUnavailable } from "./unavailable.ts";

export type { Queryable } from "./client.ts";

/** A pool for single statements, each its own transaction; use `tx` for longer ones. */
export type Sql = Queryable & {
  /** Closes all connections. Single statements have a second to end; open transactions are rolled back. */
  end(): Promise<void>;
};

declare const inTransaction: unique symbol;

/** An open transaction. The type prevents calling a function that needs one outside of a transaction. */
export type Tx = Queryable & { readonly [inTransaction]: true };

/** Options of a database client. */
interface ConnectOptions {
  max: number;
  /** Plan statements only once; see `ClientOptions`. */
  plansOnce?: boolean;
  /** Detects a stalled database. Without it, a statement waits until the server responds. */
  pulse?: Pulse;
  /** No statement timeout; see `ClientOptions`. */
  unbounded?: boolean;
  /** A pooler is in front of the database; see `ClientOptions`. */
  pooled?: boolean;
}

/** Seconds that single statements have to end when their pool closes. */
const GRACE = 1;

const connectionsOf = new WeakMap<Sql, TransactionConnections>();

/**
 * Opens a client of the database at `url`, with at most `max` connections for single statements and as many for transactions. A statement
 * that loses its connection rejects, and the next one gets a new connection. The driver's pool can permanently lose a connection when the
 * server dies, so it is replaced entirely. While `pulse` is silent, all statements reject with `StoreUnavailable`. For statements that were
 * sent already, the outcome is unknown.
 */
export function connect(url: string, { max, plansOnce = false, pulse, unbounded, pooled }: ConnectOptions): Sql {
  const connections = new TransactionConnections(url, max, { pulse, unbounded, pooled });
  let closed = false;
  const open = (): Client => {
    const client = openClient(url, {
      max,
      plansOnce,
      pulse,
      unbounded,
      pooled,
      onLost: () => {
        if (closed) return;
        current = open();
        void client.end({ timeout: pulse?.silent ? 0 : GRACE });
      },
    });
    return client;
  };
  let current = open();
  const end = async (): Promise<void> => {
    closed = true;
    await Promise.all([connections.close(), current.end({ timeout: GRACE })]);
  };
  const sql: Sql = new Proxy(current, {
    apply: (_, self, args) => Reflect.apply(current, self, args),
    get: (_, name) => (name === "end" ? end : Reflect.get(current, name)),
  });
  connectionsOf.set(sql, connections);
  return sql;
}

/**
 * Error codes after which a transaction must be retried from its start: serialization failure, deadlock.
 */
const RUN_AGAIN = new Set(["40001", "40P01"]);
const ATTEMPTS = 5;

/**
 * Runs `work` in a transaction and commits it. If the promise resolves, the result is durable. If it rejects, nothing is kept, except that
 * the outcome is unknown if the connection was lost during the commit. After a deadlock or serialization failure, `work` runs again, up to
 * five times in total, so it must have no effects outside its transaction. All its statements must use the given `tx`.
 */
export async function tx<T>(sql: Sql, work: (tx: Tx) => Promise<T>): Promise<T> {
  const connections = connectionsOf.get(sql);
  if (!connections) throw new TypeError("tx() requires a client made by connect()");
  for (let attempt = 1; ; attempt++) {
    const connection = await connections.take();
    try {
      return await runOnce(connection, work);
    } catch (error) {
      const again = error instanceof postgres.PostgresError && RUN_AGAIN.has(error.code);
      if (!again || attempt === ATTEMPTS) throw error;
    } finally {
      connections.give(connection);
    }
  }
}

async function runOnce<T>(connection: TransactionConnection, work: (tx: Tx) => Promise<T>): Promise<T> {
  let open = true;
  try {
    await connection.client.unsafe(connection.begin);
    const result = await connection.unlessLost(work(whileOpen(connection.client, () => open)));
    open = false;
    const { command } = await connection.client.unsafe("commit");
    // The server answers a commit after a failed statement with a rollback and no error.
    if (command !== "COMMIT") throw new Error("The transaction was rolled back: one of its statements failed");
    return result;
  } catch (error) {
    open = false;
    if (!connection.isLost())
      await connection.client.unsafe("rollback").catch(() => connection.client.end({ timeout: 0 }));
    throw error;
  }
}

/** The connection while the transaction is open. Later statements would run in another transaction. */
function whileOpen(client: Client, isOpen: () => boolean): Tx {
  const check = (): void => {
    if (!isOpen()) throw new Error("The transaction has ended");
  };
  const guarded: Queryable = new Proxy(client, {
    apply: (target, self, args) => {
      check();
      return Reflect.apply(target, self, args);
    },
    get: (target, name) => {
      check();
      return Reflect.get(target, name);
    },
  });
  // The brand exists only for the compiler; this is the only place that sets it.
  return guarded as Tx;
}

/** The settings that contain a database address. */
type AddressSetting = "DATABASE_URL" | "LIMBER_DATABASE_DIRECT_URL";

/**
 * Throws a one-line `StoreUnavailable` without secrets unless the database at `url` is reachable and writable; `lasting` if waiting does not
 * help. Unless `pooled`, rejects a pooler, because it does not pass notifications through.
 */
export async function databaseReachable(
  url: string,
  { setting = "DATABASE_URL", pooled = false }: { setting?: AddressSetting; pooled?: boolean } = {},
): Promise<void> {
  const address = addressOf(url, setting);
  let problem: Problem | undefined;
  // Try each server of an address once: the writable one may be the last.
  for (const _ of address.servers) {
    problem = await problemAt(url, pooled);
    if (problem === undefined) return;
  }
  const { why, lasting } = problem!;
  throw new StoreUnavailable(`${setting} ${address.place}: ${why === POOLER ? poolerAt(setting) : why}`, { lasting });
}

/** Throws `StoreUnavailable` unless the pooler's address and the direct one refer to the same database. */
export async function sameDatabase(pooledUrl: string, directUrl: string): Promise<void> {
  const clients = [openClient(pooledUrl, { max: 1, pooled: true }), openClient(directUrl, { max: 1 })];
  // If the account cannot read the server's control data, skip the check.
  const named = await Promise.all(
    clients.map((client) =>
      client<{ name: string }[]>`
        select (select system_identifier from pg_control_system()) || ' ' || current_database() as name`.then(
        ([row]) => row?.name,
        (cause) => (codeOf(cause) === "42501" ? undefined : Promise.reject(cause)),
      ),
    ),
  ).finally(() => Promise.all(clients.map((client) => client.end({ timeout: 0 }))));
  if (named.every((name) => name === undefined || name === named[0])) return;
  throw new StoreUnavailable("DATABASE_URL and LIMBER_DATABASE_DIRECT_URL point to different databases", {
    lasting: true,
  });
}

function addressOf(url: string, setting: AddressSetting): DatabaseAddress {
  try {
    return databaseAddress(url);
  } catch (thrown) {
    const wanted = thrown instanceof Error ? thrown.message : String(thrown);
    throw new StoreUnavailable(`${setting} is not ${wanted}`, { lasting: true });
  }
}

interface Problem {
  readonly why: string;
  readonly lasting: boolean;
}

const POOLER = "pooler";
const poolerAt = (setting: AddressSetting): string =>
  setting === "DATABASE_URL"
    ? "this is a pooler that does not pass session settings through; set LIMBER_DATABASE_DIRECT_URL to the address of PostgreSQL itself, for notifications and migrations"
    : "this is a pooler; use the address of PostgreSQL itself";

async function problemAt(url: string, pooled: boolean): Promise<Problem | undefined> {
  const client = openClient(url, { max: 1, pooled });
  const asked = client<{ standby: boolean; timeout: string }[]>`
    select pg_is_in_recovery() as standby, current_setting('statement_timeout') as timeout`;
  const problem = await asked.then(
    ([row]): Problem | undefined => {
      if (row?.standby) return { why: "the server is a read-only standby", lasting: false };
      return pooled || row?.timeout === `${LIMITS_MS.statement_timeout / 1_000}s`
        ? undefined
        : { why: POOLER, lasting: true };
    },
    (cause): Problem =>
      isRefusedParameter(cause)
        ? { why: POOLER, lasting: true }
        : { why: whyUnreachable(cause), lasting: LASTING.has(codeOf(cause)) },
  );
  await client.end({ timeout: 0 });
  return problem;
}

/** PgBouncer's errors for an unsupported session setting. */
const isRefusedParameter = (cause: unknown): boolean =>
  codeOf(cause) === "08P01" && cause instanceof Error && cause.message.includes("startup parameter");

/** Node's error codes for a certificate with an unknown issuer. */
const UNKNOWN_SIGNERS = [
  "SELF_SIGNED_CERT_IN_CHAIN",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
];
const UNKNOWN_SIGNER =
  "its certificate is signed by an unknown authority; set sslrootcert to the root certificate that the provider publishes";

/** Codes that persist: the user, password or database name is wrong. */
const LASTING = new Set(["28P01", "28000", "3D000", "ERR_TLS_CERT_ALTNAME_INVALID", ...UNKNOWN_SIGNERS]);

const WHY_UNREACHABLE: Readonly<Record<string, string>> = {
  ECONNREFUSED: "nothing listens there",
  ENOENT: "the socket does not exist",
  ENOTFOUND: "host not found",
  EAI_AGAIN: "the host name cannot be resolved right now",
  CONNECT_TIMEOUT: "no response in time",
  "28P01": "the user or password is wrong",
  "28000": "the server rejects the user",
  "3D000": "the database does not exist",
  "53300": "too many connections: max_connections is lower than the total of all processes",
  "57P03": "the server is starting up or shutting down",
  ERR_TLS_CERT_ALTNAME_INVALID: "its certificate is of another host; use the host that the provider prints",
  CERT_HAS_EXPIRED: "its certificate has expired",
  ...Object.fromEntries(UNKNOWN_SIGNERS.map((code) => [code, UNKNOWN_SIGNER])),
};

function whyUnreachable(cause: unknown): string {
  if (cause instanceof StoreUnavailable) return "the server closes the connection; it might not be PostgreSQL";
  const code = codeOf(cause);
  if (code === "28000" && cause instanceof Error && /no encryption|SSL off|insecure|sslmode/i.test(cause.message))
    return "the server requires encrypted connections; add sslmode=verify-full with sslrootcert, or at least sslmode=require";
  return WHY_UNREACHABLE[code] ?? `the connection failed${code && ` (${code})`}`;
}

const codeOf = (cause: unknown): string => (cause instanceof Error && "code" in cause ? String(cause.code) : "");

// Connections for transactions: each serves one transaction at a time, and is discarded when it is lost.

/** One connection. */
interface TransactionConnection {
  readonly client: Client;
  /** Starts a transaction on it. */
  readonly begin: string;
  /** Resolves with the result of `work`; rejects as soon as the connection is lost. Keeps nothing after the end. */
  unlessLost<T>(work: Promise<T>): Promise<T>;
  isLost(): boolean;
}

/** Options of connections. */
type ConnectionOptions = Pick<ClientOptions, "pulse" | "unbounded" | "pooled">;

interface ConnectionWaiter {
  take(connection: TransactionConnection): void;
  leave(reason: Error): void;
}

/** How long a transaction waits for a free connection. */
const WAIT_MS = 10_000;
const CLOSED = "The database client is closed";

/**
 * At most `max` connections to the database at `url`.
 *
 * The driver can reserve connections of its pool, but if a reserved one is lost, it throws an uncatchable error or never responds. Clients
 * with exactly one connection in their lifetime do neither.
 */
class TransactionConnections {
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

  /** Returns a free connection, waiting if there is none; rejects if none becomes free in time. */
  async take(): Promise<TransactionConnection> {
    if (this.#closed) throw new StoreUnavailable(CLOSED);
    return this.#free() ?? this.#wait();
  }

  /** Takes back a connection after its transaction. */
  give(connection: TransactionConnection): void {
    if (!connection.isLost()) this.#idle.push(connection);
    const free = this.#waiting.length > 0 ? this.#free() : undefined;
    if (free) this.#waiting.shift()!.take(free);
  }

  /** Closes every connection. Open transactions are rolled back. */
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
    // A race with a promise that lives as long as the connection would keep every transaction's result in memory as long.
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
    // In one message, so that a transaction through a pooler needs no additional round trip.
    const begin = this.#options.pooled && !this.#options.unbounded ? `begin; ${POOLED_LIMITS}` : "begin";
    const connection: TransactionConnection = { client, begin, unlessLost, isLost: () => isLost };
    this.#all.add(connection);
    return connection;
  }
}

/** A date in whole unix seconds. */
export const unixSeconds = (moment: Date): number => Math.floor(moment.getTime() / 1000);

/** Resolves with the rows of a query as records: SQL null is undefined, and a time is in unix seconds. Nested JSON stays as it is. */
export async function allRecords<R extends object>(rows: PromiseLike<readonly object[]>): Promise<R[]> {
  return (await rows).map((row) => recordOf<R>(row));
}

/** Resolves with the first row of a query as a record; undefined if there is none. */
export async function firstRecord<R extends object>(rows: PromiseLike<readonly object[]>): Promise<R | undefined> {
  const [row] = await rows;
  return row && recordOf<R>(row);
}

function recordOf<R extends object>(row: object): R {
  const record: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(row))
    record[name] = value === null ? undefined : value instanceof Date ? unixSeconds(value) : value;
  return record as R; // the caller states what the query selects
}

/** Rows per statement of a long delete, which would otherwise hold its locks and its snapshot throughout. */
const DELETED_AT_ONCE = 5_000;

/** Runs a delete of at most `most` rows until it finds fewer; returns the number of deleted rows. */
export async function inBatches(remove: (most: number) => PromiseLike<{ readonly count: number }>): Promise<number> {
  for (let all = 0; ; ) {
    const { count } = await remove(DELETED_AT_ONCE);
    all += count;
    if (count < DELETED_AT_ONCE) return all;
  }
}
