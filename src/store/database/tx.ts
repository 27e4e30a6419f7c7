/**
 * The two ways to speak to the database: single statements on a pool, and transactions on a connection of their own.
 */
import postgres from "postgres";
import { type Client, openClient, type Queryable } from "./client.ts";
import type { Pulse } from "./pulse.ts";
import { type TransactionConnection, TransactionConnections } from "./transaction-connections.ts";
import { StoreUnavailable } from "./unavailable.ts";

export type { Queryable } from "./client.ts";

/** A pool for single statements, each its own transaction; `tx` opens longer ones. */
export type Sql = Queryable & {
  /** Closes all connections: single statements get a second to end, open transactions are rolled back. */
  end(): Promise<void>;
};

declare const inTransaction: unique symbol;

/** An open transaction. A function that takes one can't be called outside of a transaction by mistake. */
export type Tx = Queryable & { readonly [inTransaction]: true };

/** How a client of the database differs from the next. */
export interface ConnectOptions {
  max: number;
  /** Statements are planned once and for all: see `ClientOptions`. */
  plansOnce?: boolean;
  /** Tells when the database stands still. Without it a statement waits for as long as the server owes its answer. */
  pulse?: Pulse;
  /** Statements may take as long as they like: see `ClientOptions`. */
  unbounded?: boolean;
}

/** Seconds that single statements get to end when their pool is closed. */
const GRACE = 1;

const connectionsOf = new WeakMap<Sql, TransactionConnections>();

/**
 * Opens a client of the database at `url`, with at most `max` connections for single statements and as many for
 * transactions. A statement that loses its connection rejects, and the next one gets a new connection: the driver's
 * own pool can lose the use of a connection for ever when the server dies, so it is replaced whole. While `pulse` is silent
 * every statement rejects with `StoreUnavailable`, also those that were sent; whether these were carried out is not known then.
 */
export function connect(url: string, { max, plansOnce = false, pulse, unbounded }: ConnectOptions): Sql {
  const connections = new TransactionConnections(url, max, { pulse, unbounded });
  let closed = false;
  const open = (): Client => {
    const client = openClient(url, {
      max,
      plansOnce,
      pulse,
      unbounded,
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
 * What the server says when a transaction has to be run again from its beginning: serialization failure, deadlock.
 */
const RUN_AGAIN = new Set(["40001", "40P01"]);
const ATTEMPTS = 5;

/**
 * Runs `work` in a transaction and commits it: when the promise resolves, the outcome is durable; when it rejects,
 * nothing of it is kept, except that a connection lost during the commit leaves the outcome unknown. `work` is run
 * again, up to five times in all, when the server breaks a deadlock or a serialization conflict by ending it, so it
 * must touch nothing but its transaction. Inside, every statement goes through the given `tx`.
 */
export async function tx<T>(sql: Sql, work: (tx: Tx) => Promise<T>): Promise<T> {
  const connections = connectionsOf.get(sql);
  if (!connections) throw new TypeError("tx() takes a client that connect() made");
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
    await connection.client.unsafe("begin");
    const result = await connection.unlessLost(work(whileOpen(connection.client, () => open)));
    open = false;
    const { command } = await connection.client.unsafe("commit");
    // A commit after a failed statement is answered with a rollback and no error.
    if (command !== "COMMIT") throw new Error("The transaction was rolled back: one of its statements failed");
    return result;
  } catch (error) {
    open = false;
    if (!connection.isLost())
      await connection.client.unsafe("rollback").catch(() => connection.client.end({ timeout: 0 }));
    throw error;
  }
}

/** The connection for as long as the transaction is open; later its statements would land in somebody else's. */
function whileOpen(client: Client, isOpen: () => boolean): Tx {
  const check = (): void => {
    if (!isOpen()) throw new Error("This transaction is over");
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
  // The mark exists for the compiler alone, and this is the one place where it is true.
  return guarded as Tx;
}

/**
 * Throws `StoreUnavailable`, in one line without any secret, unless the database at `url` answers and takes writes; `lasting`
 * where waiting for it does not help.
 */
export async function databaseReachable(url: string): Promise<void> {
  if (!/^postgres(?:ql)?:/.test(url) || !URL.canParse(url))
    throw new StoreUnavailable("DATABASE_URL is not an address", { lasting: true });
  const { hostname, port, searchParams, pathname } = new URL(url);
  const place = `${searchParams.get("host") ?? hostname}${port && `:${port}`}${pathname}`;
  const client = openClient(url, { max: 1 });
  const problem = await client<{ standby: boolean }[]>`select pg_is_in_recovery() as standby`.then(
    ([row]) => (row?.standby ? { why: "the server is a standby and takes no writes", lasting: false } : undefined),
    (cause) => ({ why: whyUnreachable(cause), lasting: LASTING.has(codeOf(cause)) }),
  );
  await client.end({ timeout: 0 });
  if (problem !== undefined)
    throw new StoreUnavailable(`DATABASE_URL ${place}: ${problem.why}`, { lasting: problem.lasting });
}

/** Who is refused, or asks for a database that is not there, is refused later too: user, password or name are wrong. */
const LASTING = new Set(["28P01", "28000", "3D000"]);

const WHY_UNREACHABLE: Readonly<Record<string, string>> = {
  ECONNREFUSED: "nothing listens there",
  ENOENT: "there is no such socket",
  ENOTFOUND: "no such host is known",
  EAI_AGAIN: "the name of the host can't be resolved now",
  CONNECT_TIMEOUT: "no answer in time",
  "28P01": "the user or the password is refused",
  "28000": "the user is refused",
  "3D000": "there is no such database",
  "57P03": "the server is starting up or shutting down",
};

function whyUnreachable(cause: unknown): string {
  if (cause instanceof StoreUnavailable) return "what listens there hangs up: it may not be PostgreSQL";
  const code = codeOf(cause);
  return WHY_UNREACHABLE[code] ?? `the connection failed${code && ` (${code})`}`;
}

const codeOf = (cause: unknown): string => (cause instanceof Error && "code" in cause ? String(cause.code) : "");
