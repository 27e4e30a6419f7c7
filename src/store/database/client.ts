/** How this house opens connections to PostgreSQL: the driver with our types, limits and address forms. */
import { createConnection, type Socket } from "node:net";
import postgres from "postgres";
import { ARRAY_TYPES, TYPES } from "./types.ts";
import { StoreUnavailable } from "./unavailable.ts";

/** The driver's pool. It doesn't survive a lost connection: see `connect`. */
export type Client = postgres.Sql;

/**
 * What can be done with a pool as with a transaction: run statements. bigint and numeric come as numbers, exact or
 * not at all. Arrays of the common types are arrays; one of numbers or texts may be written as
 * `${values}::bigint[]`, any other needs `sql.array(values, type)`.
 */
export type Queryable = postgres.ISql;

/**
 * No statement of a gateway takes this long, and no transaction waits for anything but its own statements: one whose process stands
 * still must not hold its locks for longer than others have patience.
 */
const LIMITS_MS = { statement_timeout: 30_000, idle_in_transaction_session_timeout: 15_000 };

const DRIVER_OPTIONS = {
  types: TYPES,
  fetch_types: false,
  /** Seconds. */
  connect_timeout: 10,
  // A connection ends only when it is lost or when its client is ended.
  max_lifetime: null,
  connection: { application_name: "limber", ...LIMITS_MS },
  onnotice: () => {},
};

/** What the driver wants to reach: a unix socket, or a host. */
interface Destination {
  path: string | false | undefined;
  host: string[];
  port: number[];
}

/** How a client differs from the next. */
export interface ClientOptions {
  max: number;
  /** Statements are planned once and for all, whatever they are given: for connections that run a few of them, by keys, very often. */
  plansOnce?: boolean;
  /** Called once, when the first of its connections is lost or can't be made. End the client then. */
  onLost?: () => void;
  /** Called for each notification of a channel that this client listens to. */
  onNotify?: (channel: string, payload: string) => void;
}

/**
 * A client of the database at `url`; `?host=/directory` leads to a unix socket. Connections are made when they are
 * needed, until one of them is lost: from then on it makes no other.
 *
 * The driver itself goes on for ever, and wrongly. It runs the rest of a transaction on the next connection, outside
 * of any; it stops using a connection whose end met a statement on its way out; and it calls a server that hangs up
 * at once again and again, without an end.
 */
export function openClient(url: string, { max, plansOnce, onLost, onNotify }: ClientOptions): Client {
  const address = new URL(url);
  const directory = address.searchParams.get("host");
  address.searchParams.delete("host");
  let isLost = false;
  const lose = (): void => {
    if (!isLost) onLost?.();
    isLost = true;
  };
  const call = ({ path, host, port }: Destination): Socket => {
    if (isLost) throw new StoreUnavailable("The database connection was lost");
    const socket = path ? createConnection(path) : createConnection(port[0]!, host[0]);
    // The driver asks a TLS server for the certificate of this name.
    return Object.assign(socket.once("close", lose), { host: host[0] });
  };
  const client = postgres(address.href, {
    max,
    ...DRIVER_OPTIONS,
    ...(plansOnce && { connection: { ...DRIVER_OPTIONS.connection, plan_cache_mode: "force_generic_plan" } }),
    ...(directory === null ? {} : { host: directory }),
    ...{ socket: call, onclose: lose, ...(onNotify && { onnotify: onNotify }) },
  });
  // Where the driver's `array` looks for the type of an array.
  Object.assign(client.options, { shared: { retries: 0, typeArrayMap: ARRAY_TYPES } });
  return client;
}
