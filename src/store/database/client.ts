/** How this gateway opens connections to PostgreSQL: the driver with our types, limits and address forms. */
import { createConnection, type Socket } from "node:net";
import postgres from "postgres";
import { databaseAddress, passOver, serverNow } from "./address.ts";
import type { Pulse } from "./pulse.ts";
import { ARRAY_TYPES, TYPES } from "./types.ts";
import { StoreUnavailable } from "./unavailable.ts";

/** The driver's pool. It doesn't survive a lost connection: see `connect`. */
export type Client = postgres.Sql;

/**
 * What can be done with a pool as with a transaction: run statements. bigint and numeric come as numbers, exact or
 * not at all. A column `org_id` of a result is `orgId` of its row, and a row that is written by `sql(row)` is named likewise; digits
 * make no part of a name (`uptime_30d` comes as `uptime30d` and can't be written so). Arrays of the common types are arrays; one of
 * numbers or texts may be written as `${values}::bigint[]`, any other needs `sql.array(values, type)`.
 */
export type Queryable = postgres.ISql;

/**
 * No statement of a gateway takes this long, and no transaction waits for anything but its own statements: one whose process stands
 * still must not hold its locks for longer than others have patience.
 */
export const LIMITS_MS = { statement_timeout: 30_000, idle_in_transaction_session_timeout: 15_000 };

/** The error of a statement to a database that stands still. */
const SILENT = "The database does not answer";

const DRIVER_OPTIONS = {
  types: TYPES,
  fetch_types: false,
  // A connection ends only when it is lost or when its client is ended.
  max_lifetime: null,
  onnotice: () => {},
  // Columns and what is written by `sql(row)` alone: what is inside of JSON keeps its names.
  transform: { column: { from: postgres.toCamel, to: postgres.fromCamel } },
};

/** How a client differs from the next. */
export interface ClientOptions {
  max: number;
  /** Statements are planned once and for all, whatever they are given: for connections that run a few of them, by keys, very often. */
  plansOnce?: boolean;
  /** Called once, when the first of its connections is lost or can't be made. End the client then. */
  onLost?: () => void;
  /** Called for each notification of a channel that this client listens to. */
  onNotify?: (channel: string, payload: string) => void;
  /** While it is silent no connection is made: a frozen server's system accepts them, and they wait there. */
  pulse?: Pulse | undefined;
  /** Statements may take as long as they like, as those of migrations do. */
  unbounded?: boolean | undefined;
  /**
   * A pooler may give each transaction another session of the server: none is told anything when it begins, and no statement is
   * prepared under a name. A transaction has to set its own limits (`POOLED_LIMITS`).
   */
  pooled?: boolean | undefined;
}

/** What sets the limits of one transaction. */
export const POOLED_LIMITS = Object.entries(LIMITS_MS)
  .map(([name, ms]) => `set local ${name} = ${ms}`)
  .join("; ");

/**
 * A client of the database at `url` (`address.ts`). Connections are made when they are needed, until one of them is lost: from then
 * on it makes no other. All of them are to one server of the address; when that is not there or takes no writes, clients that are
 * opened later try the next one.
 *
 * The driver itself goes on for ever, and wrongly. It runs the rest of a transaction on the next connection, outside
 * of any; it stops using a connection whose end met a statement on its way out; and it calls a server that hangs up
 * at once again and again, without an end.
 */
export function openClient(url: string, options: ClientOptions): Client {
  const { max, plansOnce, onLost, onNotify, pulse, unbounded, pooled } = options;
  const address = databaseAddress(url);
  const server = serverNow(url, address);
  const tls = "path" in server ? false : address.tls();
  const sockets = new Set<Socket>();
  let isLost = false;
  /** The server answered, and said that it takes writes; what stands behind a pooler says nothing of itself. */
  let isGood = false;
  const lose = (): void => {
    if (isLost) return;
    isLost = true;
    forgetPulse?.();
    if (!isGood || pulse?.silent) passOver(url, address, server);
    onLost?.();
    // Of a server that stands still nothing is heard any more, not even the end of a connection.
    if (pulse?.silent) for (const socket of sockets) socket.destroy();
  };
  const forgetPulse = pulse?.onSilence(lose);
  const call = (): Socket => {
    if (pulse?.silent) lose();
    if (isLost) throw new StoreUnavailable(pulse?.silent ? SILENT : "The database connection was lost");
    const socket = createConnection({ ...server, timeout: OWED_MS });
    sockets.add(socket);
    if (!unbounded) endOwing(socket);
    letGoOfAnswers(socket);
    socket.once("close", () => {
      sockets.delete(socket);
      lose();
    });
    // The driver asks a TLS server for the certificate of this name.
    return Object.assign(socket, { host: "path" in server ? undefined : server.host });
  };
  const client = postgres({
    max,
    ...DRIVER_OPTIONS,
    // For the driver's errors alone: `call` knows where to.
    ...("path" in server ? { host: "localhost", path: server.path } : { host: server.host, port: server.port }),
    ...(address.user !== undefined && { user: address.user }),
    ...(address.password !== undefined && { pass: address.password }),
    ...(address.database !== undefined && { database: address.database }),
    // Of several servers the driver leaves one that is a standby before it sends it a statement.
    ...(address.servers.length > 1 && { target_session_attrs: "primary" as const }),
    ssl: tls,
    connect_timeout: address.connectTimeoutS,
    connection: {
      application_name: "limber",
      ...(!pooled && { ...LIMITS_MS, ...(plansOnce && { plan_cache_mode: "force_generic_plan" }) }),
      ...address.parameters,
    },
    ...(pooled && { prepare: false }),
    onparameter: (name: string, value: string) => {
      if (name === "in_hot_standby") isGood = value === "off";
    },
    ...{ socket: call, onclose: lose, ...(onNotify && { onnotify: onNotify }) },
  });
  // Where the driver's `array` looks for the type of an array.
  Object.assign(client.options, { shared: { retries: 0, typeArrayMap: ARRAY_TYPES } });
  return client;
}

/** The server ends what takes 30 seconds. A connection that owes an answer for longer is one that nobody serves. */
const OWED_MS = LIMITS_MS.statement_timeout + 5_000;

/**
 * Destroys a connection whose server owes an answer for too long, as one does whose process alone stands still. Of several statements
 * under way on one connection only the first that is late is seen; under TLS none is, and the pulse alone judges.
 */
function endOwing(socket: Socket): void {
  let owes = false;
  const { write } = socket;
  socket.write = ((...written: Parameters<typeof write>) => {
    owes = true;
    return write.apply(socket, written);
  }) as typeof write; // the same in all of its forms
  socket.on("data", (bytes: Buffer) => {
    if (bytes.length > 0) owes = !isReadyForQuery(bytes);
  });
  // Told of once nothing has come or gone for as long as the socket was made to wait.
  socket.on("timeout", () => {
    if (owes) socket.destroy();
  });
}

/** Answers of up to so many bytes may stay in memory while a connection rests. */
const KEPT_BYTES = 64 << 10;
const NOTHING = Buffer.alloc(0);

/**
 * The driver keeps the last bytes that it read until it reads others: a large answer, for as long as its connection rests. So it reads
 * nothing at all once it has read that. Under TLS the driver reads from another socket, and keeps one answer for each connection.
 */
function letGoOfAnswers(socket: Socket): void {
  let read = 0;
  socket.on("data", (bytes: Buffer) => {
    read += bytes.length;
    if (!isReadyForQuery(bytes)) return;
    if (read > KEPT_BYTES) setImmediate(() => socket.emit("data", NOTHING));
    read = 0;
  });
}

/** Whether what the server sent ends with its `ReadyForQuery`: the letter Z, a length of five, and one byte more. */
const isReadyForQuery = (bytes: Buffer): boolean =>
  bytes.length >= 6 && bytes[bytes.length - 6] === 0x5a && bytes.readUInt32BE(bytes.length - 5) === 5;
