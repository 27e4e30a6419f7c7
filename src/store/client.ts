/** How this house opens connections to PostgreSQL: the driver with our types, limits and address forms. */
import postgres from "postgres";
import { StoreUnavailable } from "./unavailable.ts";

const wholeNumber = (text: string): number => {
  const value = Number(text);
  if (!Number.isSafeInteger(value))
    throw new RangeError(`The database holds ${text}, beyond what a number can hold exactly`);
  return value;
};

/** Sums of whole numbers are numeric too, so whole values are held to the same bound. */
const numeric = (text: string): number => (/^-?\d+$/.test(text) ? wholeNumber(text) : Number(text));

const TYPES = {
  int8: { to: 20, from: [20], serialize: String, parse: wholeNumber },
  numeric: { to: 1700, from: [1700], serialize: String, parse: numeric },
};

/** The types that a statement's parameters may have beyond the driver's own. */
export type StoreTypes = { int8: number; numeric: number };

/** The driver's pool. It doesn't survive a lost connection: see `connect`. */
export type Client = postgres.Sql<StoreTypes>;

/**
 * What every room of the store may do with a pool as with a transaction: run statements. bigint and numeric come as
 * numbers.
 */
export type Queryable = postgres.ISql<StoreTypes>;

/** Seconds. */
const CONNECT_TIMEOUT = 10;
const RECONNECT = 0.05;
/** No statement of a gateway takes this long, and one whose caller is gone must not hold its locks. */
const LIMITS_MS = { statement_timeout: 30_000, idle_in_transaction_session_timeout: 60_000 };

/** How a client differs from the next. */
export interface ClientOptions {
  max: number;
  /** Called whenever a connection of an open client is lost, or can't be made. */
  onLost?: () => void;
  /** Called for each notification of a channel that this client listens to. */
  onNotify?: (channel: string, payload: string) => void;
}

/**
 * A client of the database at `url`; `?host=/directory` leads to a unix socket. Connections are made when they are
 * needed.
 */
export function openClient(url: string, { max, onLost, onNotify }: ClientOptions): Client {
  const address = new URL(url);
  const host = address.searchParams.get("host");
  address.searchParams.delete("host");
  const options = {
    max,
    types: TYPES,
    // A connection ends only when it is lost: any end is a reason to make a new one.
    max_lifetime: null,
    connect_timeout: CONNECT_TIMEOUT,
    backoff: () => RECONNECT,
    connection: { application_name: "limber", ...LIMITS_MS },
    onnotice: () => {},
    ...(host === null ? {} : { host }),
    ...(onLost && { onclose: onLost }),
    ...(onNotify && { onnotify: onNotify }),
  };
  return postgres(address.href, options);
}

/**
 * Closes a client whose connection was lost: what is under way on its other connections has `grace` seconds to end,
 * and what waits for a connection rejects. Left alone, and even when it is merely ended, the driver makes new
 * connections for what is still queued: it would run the rest of a transaction outside of it, and leave them open
 * for ever.
 */
export function retire(client: Client, grace: number): void {
  // The driver asks this option for each new socket.
  Object.assign(client.options, { socket: refuseSocket });
  void client.end({ timeout: grace });
}

function refuseSocket(): never {
  throw new StoreUnavailable("The database connection was lost");
}
