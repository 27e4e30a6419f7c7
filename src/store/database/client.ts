/** The PostgreSQL driver with our types, limits and address formats. */
import { createConnection, type Socket } from "node:net";
import postgres from "postgres";
import { everySpan, ioClock, setWall } from "../../clock.ts";
import { databaseAddress, passOver, serverNow } from "./address.ts";
import { StoreUnavailable } from "./unavailable.ts";

/** The driver's pool. It does not survive a lost connection; see `connect`. */
export type Client = postgres.Sql;

/**
 * Runs statements, on a pool or in a transaction. bigint and numeric values are numbers; inexact ones reject. A result column `org_id` is
 * `orgId` in its row, and `sql(row)` converts names back. Digits are not separated (`uptime_30d` is read as `uptime30d` and cannot be written
 * that way). Arrays of common types are arrays; write an array of numbers or texts as `${values}::bigint[]`, any other with
 * `sql.array(values, type)`.
 */
export type Queryable = postgres.ISql;

/**
 * Timeouts of statements and idle transactions. No statement takes this long, and no transaction waits for anything but its own statements,
 * so a stalled process loses its locks before others time out.
 */
export const LIMITS_MS = { statement_timeout: 30_000, idle_in_transaction_session_timeout: 15_000 };

/** The error of a statement while the database is stalled. */
const SILENT = "The database does not answer";

// Conversion of database values. The driver could query the server's array types on each new connection, but a
// connection lost during that query crashes the process, so they are listed here.

/** Rejects a number above 2^53 instead of rounding it: it may be money. */
const wholeNumber = (text: string): number => {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new RangeError(`${text} from the database exceeds the safe integer range`);
  return value;
};

/** Sums of integers are numeric too, so integers have the same bound. */
const numeric = (text: string): number => (/^-?\d+$/.test(text) ? wholeNumber(text) : Number(text));

/** How to parse and serialize one type. The driver passes any value that a statement was given. */
interface Codec {
  parse(text: string): unknown;
  serialize(value: unknown): string;
}

const TEXT: Codec = { parse: String, serialize: String };
const NUMBER: Codec = { parse: Number, serialize: String };
const EXACT: Codec = { parse: wholeNumber, serialize: String };
const NUMERIC: Codec = { parse: numeric, serialize: String };
const JSON_TEXT: Codec = { parse: JSON.parse, serialize: JSON.stringify };
const BOOLEAN: Codec = { parse: (text) => text === "t", serialize: String };
const TIME: Codec = {
  parse: (text) => new Date(text),
  serialize: (value) => (value instanceof Date ? value.toISOString() : String(value)),
};

/** The fixed OIDs of a type and its array type (pg_type.dat). */
const ARRAYS: readonly { element: number; array: number; codec: Codec }[] = [
  { element: 16, array: 1000, codec: BOOLEAN },
  { element: 20, array: 1016, codec: EXACT },
  { element: 21, array: 1005, codec: NUMBER },
  { element: 23, array: 1007, codec: NUMBER },
  { element: 25, array: 1009, codec: TEXT },
  { element: 114, array: 199, codec: JSON_TEXT },
  { element: 701, array: 1022, codec: NUMBER },
  { element: 1043, array: 1015, codec: TEXT },
  { element: 1184, array: 1185, codec: TIME },
  { element: 1700, array: 1231, codec: NUMERIC },
  { element: 2950, array: 2951, codec: TEXT },
  { element: 3802, array: 3807, codec: JSON_TEXT },
];

/** A quoted element with its escapes, or an unquoted one. */
const ELEMENT = /"((?:[^"\\]|\\.)*)"|([^,{}"]+)/gs;

function parseArray(text: string, { parse }: Codec): unknown[] {
  // Bounds precede arrays that do not start at 1.
  const elements = text.slice(text.indexOf("{"));
  if (elements.startsWith("{{")) throw new RangeError("nested arrays from the database are not supported");
  return Array.from(elements.matchAll(ELEMENT), ([, quoted, bare]) => {
    if (quoted !== undefined) return parse(quoted.replace(/\\(.)/gs, "$1"));
    return bare === "NULL" ? null : parse(bare!);
  });
}

function writeArray(values: unknown, { serialize }: Codec): string {
  if (!Array.isArray(values) || values.includes(undefined)) {
    throw new TypeError("a statement parameter must be an array without undefined elements");
  }
  const elements = values.map((value) => (value === null ? "NULL" : `"${serialize(value).replace(/["\\]/g, "\\$&")}"`));
  return `{${elements.join(",")}}`;
}

const driverType = (oid: number, codec: Codec) => ({ to: oid, from: [oid], ...codec });

/**
 * Types that the driver lacks or reads as text: bigint, numeric, and arrays of the common types.
 */
const TYPES = Object.fromEntries([
  ["int8", driverType(20, EXACT)],
  ["numeric", driverType(1700, NUMERIC)],
  ...ARRAYS.map(({ array, codec }) => [
    `array_${array}`,
    driverType(array, {
      parse: (text) => parseArray(text, codec),
      serialize: (values) => writeArray(values, codec),
    }),
  ]),
]);

/** The array type of each type, by OID, as `sql.array(values, type)` looks it up. */
const ARRAY_TYPES: Readonly<Record<number, number>> = Object.fromEntries(
  ARRAYS.map(({ element, array }) => [element, array]),
);

const DRIVER_OPTIONS = {
  types: TYPES,
  fetch_types: false,
  // A connection ends only when it is lost or when its client ends.
  max_lifetime: null,
  onnotice: () => {},
  // Only columns and rows written by `sql(row)`: names inside JSON stay unchanged.
  transform: { column: { from: postgres.toCamel, to: postgres.fromCamel } },
};

/** Options of a client. */
export interface ClientOptions {
  max: number;
  /** Plan statements only once, regardless of parameters: for connections that run few statements, by key, very often. */
  plansOnce?: boolean;
  /** Called once, when its first connection is lost or cannot be made. The caller must then end the client. */
  onLost?: () => void;
  /** Called for each notification of a subscribed channel. */
  onNotify?: (channel: string, payload: string) => void;
  /** While it is silent, no connection is made: a frozen server's kernel accepts connections that then hang. */
  pulse?: Pulse | undefined;
  /** No statement timeout, for migrations. */
  unbounded?: boolean | undefined;
  /**
   * A pooler can assign each transaction another server session, so session settings and named prepared statements are disabled. Each
   * transaction must set its own limits (`POOLED_LIMITS`).
   */
  pooled?: boolean | undefined;
}

/** Sets the limits of one transaction. */
export const POOLED_LIMITS = Object.entries(LIMITS_MS)
  .map(([name, ms]) => `set local ${name} = ${ms}`)
  .join("; ");

/**
 * A client of the database at `url` (`address.ts`). Connections are made on demand until one is lost; after that, the client makes no new
 * ones. All connect to the same server of the address. If that is unreachable or read-only, later clients try the next server.
 *
 * The driver's own reconnection is unsafe. It runs the rest of a transaction on the next connection, outside of any transaction; it stops
 * using a connection that ends while a statement is being sent; and it retries a server that closes connections at once without end.
 */
export function openClient(url: string, options: ClientOptions): Client {
  const { max, plansOnce, onLost, onNotify, pulse, unbounded, pooled } = options;
  const address = databaseAddress(url);
  const server = serverNow(url, address);
  const tls = "path" in server ? false : address.tls();
  const sockets = new Set<Socket>();
  let isLost = false;
  /** The server responded and is writable; behind a pooler that is unknown. */
  let isGood = false;
  const lose = (): void => {
    if (isLost) return;
    isLost = true;
    forgetPulse?.();
    if (!isGood || pulse?.silent) passOver(url, address, server);
    onLost?.();
    // A stalled server sends nothing any more, not even the end of a connection.
    if (pulse?.silent) for (const socket of sockets) socket.destroy();
  };
  const forgetPulse = pulse?.onSilence(lose);
  const call = (): Socket => {
    if (pulse?.silent) lose();
    if (isLost) throw new StoreUnavailable(pulse?.silent ? SILENT : "The database connection was lost");
    const socket = createConnection({ ...server, timeout: OWED_MS });
    sockets.add(socket);
    if (!unbounded) closeStalled(socket);
    releaseResponses(socket);
    socket.once("close", () => {
      sockets.delete(socket);
      lose();
    });
    // The driver verifies a TLS server's certificate against this name.
    return Object.assign(socket, { host: "path" in server ? undefined : server.host });
  };
  const client = postgres({
    max,
    ...DRIVER_OPTIONS,
    // Used only in the driver's error messages; `call` has the address.
    ...("path" in server ? { host: "localhost", path: server.path } : { host: server.host, port: server.port }),
    ...(address.user !== undefined && { user: address.user }),
    ...(address.password !== undefined && { pass: address.password }),
    ...(address.database !== undefined && { database: address.database }),
    // With several servers, the driver disconnects from a standby before it sends a statement.
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
  // The driver's `array` looks up array types here.
  Object.assign(client.options, { shared: { retries: 0, typeArrayMap: ARRAY_TYPES } });
  return client;
}

/** The server ends statements after 30 seconds. A connection without a response for longer is not being served. */
const OWED_MS = LIMITS_MS.statement_timeout + 5_000;

/**
 * Destroys a connection whose server owes an answer for too long, as one does whose process alone stands still. Of several statements
 * under way on one connection only the first that is late is seen; under TLS none is, and the pulse alone judges.
 */
function closeStalled(socket: Socket): void {
  let owes = false;
  const { write } = socket;
  socket.write = ((...written: Parameters<typeof write>) => {
    owes = true;
    return write.apply(socket, written);
  }) as typeof write; // the same in all of its forms
  socket.on("data", (bytes: Buffer) => {
    if (bytes.length > 0) owes = !isReadyForQuery(bytes);
  });
  // Emitted when nothing was sent or received for the socket's timeout.
  socket.on("timeout", () => {
    if (owes) socket.destroy();
  });
}

/** Responses of up to this many bytes can stay in memory while a connection is idle. */
const KEPT_BYTES = 64 << 10;
const NOTHING = Buffer.alloc(0);

/**
 * Releases large responses. The driver keeps the last bytes that it read until the next read, which can be a large response on an idle
 * connection, so an empty read follows it. Under TLS the driver reads from another socket, and keeps one response per connection.
 */
function releaseResponses(socket: Socket): void {
  let read = 0;
  socket.on("data", (bytes: Buffer) => {
    read += bytes.length;
    if (!isReadyForQuery(bytes)) return;
    if (read > KEPT_BYTES) setImmediate(() => socket.emit("data", NOTHING));
    read = 0;
  });
}

/** Whether the received data ends with `ReadyForQuery`: the letter Z, a length of five, and one more byte. */
const isReadyForQuery = (bytes: Buffer): boolean =>
  bytes.length >= 6 && bytes[bytes.length - 6] === 0x5a && bytes.readUInt32BE(bytes.length - 5) === 5;

// The heartbeat: one connection queries the database continuously, so that no statement waits long for a stalled server.

/** Milliseconds without a response after which the database counts as silent. */
const SILENCE_MS = 3_000;
/** The interval of the silence check. */
const LOOK_MS = 250;

/**
 * The heartbeat of one database. The listening connection queries its time twice a second (`notifications.ts`) and reports each response. A
 * frozen server, or one behind a network that drops everything, closes no connection: statements would wait forever, and its
 * `statement_timeout` does not run. After three seconds of silence, clients reject waiting statements, drop their connections, and refuse
 * new statements until the database responds again. Before the first response, it does not count as silent.
 */
export class Pulse {
  readonly #listeners = new Set<() => void>();
  readonly #stop: () => void;
  #hasResponded = false;
  #silent = false;
  #silentForMs = 0;

  constructor() {
    this.#stop = everySpan(LOOK_MS, (spanMs) => this.#look(spanMs), ioClock);
  }

  /** Whether the database is silent. */
  get silent(): boolean {
    return this.#silent;
  }

  /** Reports a response with the database's unix milliseconds, and the monotonic times of the query and the response. */
  answered(wallMs: number, askedAt: number, answeredAt: number): void {
    setWall(wallMs, askedAt, answeredAt);
    this.#hasResponded = true;
    this.#silentForMs = 0;
    this.#silent = false;
  }

  /** Calls `run` whenever the database becomes silent, until the returned function is called. */
  onSilence(run: () => void): () => void {
    this.#listeners.add(run);
    return () => this.#listeners.delete(run);
  }

  /** Stops the silence check. */
  close(): void {
    this.#stop();
  }

  #look(spanMs: number): void {
    if (!this.#hasResponded || this.#silent) return;
    this.#silentForMs += spanMs;
    if (this.#silentForMs < SILENCE_MS) return;
    this.#silent = true;
    // A handler that drops a client opens a new one, which registers too.
    for (const run of [...this.#listeners]) run();
  }
}
