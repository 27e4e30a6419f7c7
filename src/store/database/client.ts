/** How this gateway opens connections to PostgreSQL: the driver with our types, limits and address forms. */
import { createConnection, type Socket } from "node:net";
import postgres from "postgres";
import { everySpan, ioClock, setWall } from "../../clock.ts";
import { databaseAddress, passOver, serverNow } from "./address.ts";

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

// How values of the database become values of the program, and back. The driver could ask the server for its array
// types on each new connection, but a connection that is lost during that question ends the process: they are listed
// here.

/** A number beyond 2^53 rejects rather than lose its last digits: it may be money. */
const wholeNumber = (text: string): number => {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new RangeError(`${text} from the database exceeds the safe integer range`);
  return value;
};

/** Sums of whole numbers are numeric too, so whole values are held to the same bound. */
const numeric = (text: string): number => (/^-?\d+$/.test(text) ? wholeNumber(text) : Number(text));

/** How one type is read and written. The driver hands over whatever a statement was given. */
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

/** The numbers of a type and of its array type, as PostgreSQL has had them from its beginning (pg_type.dat). */
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

/** A quoted element with its escapes, or a bare one. */
const ELEMENT = /"((?:[^"\\]|\\.)*)"|([^,{}"]+)/gs;

function parseArray(text: string, { parse }: Codec): unknown[] {
  // Bounds come first where they don't begin at 1.
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
 * The types that the driver doesn't have by itself, or reads as text: bigint, numeric, and arrays of the common
 * types.
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

/** For each type its array type, by their numbers, as `sql.array(values, type)` looks it up. */
const ARRAY_TYPES: Readonly<Record<number, number>> = Object.fromEntries(
  ARRAYS.map(({ element, array }) => [element, array]),
);

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

/** Returns of up to so many bytes may stay in memory while a connection rests. */
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

// Whether the database answers: asked all the time on one connection, so that no statement waits long for a server that stands still.

/** Without an answer for this long, in milliseconds, the database counts as silent. */
const SILENCE_MS = 3_000;
/** How often silence is measured. */
const LOOK_MS = 250;

/**
 * The pulse of one database. The connection that listens to its notifications asks it for its time twice a second (`listen.ts`) and reports each
 * answer. A server that is frozen, or behind a network that swallows everything, closes no connection: statements would wait for it
 * without an end, and its own `statement_timeout` does not run. After three seconds of silence clients of the database give up what
 * waits, count their connections as lost, and refuse at once until it answers again. Before the first answer nothing counts as silent.
 */
export class Pulse {
  readonly #listeners = new Set<() => void>();
  readonly #stop: () => void;
  #heard = false;
  #silent = false;
  #silentForMs = 0;

  constructor() {
    this.#stop = everySpan(LOOK_MS, (spanMs) => this.#look(spanMs), ioClock);
  }

  /** Whether the database has not answered for a while. */
  get silent(): boolean {
    return this.#silent;
  }

  /** The database answered with its time in unix milliseconds; the question left and the answer came at these steady moments. */
  answered(wallMs: number, askedAt: number, answeredAt: number): void {
    setWall(wallMs, askedAt, answeredAt);
    this.#heard = true;
    this.#silentForMs = 0;
    this.#silent = false;
  }

  /** Calls `run` whenever the database falls silent, until the returned function is called. */
  onSilence(run: () => void): () => void {
    this.#listeners.add(run);
    return () => this.#listeners.delete(run);
  }

  /** Measures no more. */
  close(): void {
    this.#stop();
  }

  #look(spanMs: number): void {
    if (!this.#heard || this.#silent) return;
    this.#silentForMs += spanMs;
    if (this.#silentForMs < SILENCE_MS) return;
    this.#silent = true;
    // Who gives up a client opens the next one, which listens too.
    for (const run of [...this.#listeners]) run();
  }
}

/**
 * The store can't be used now. The message is one line for the operator, without secrets; no caller sees
 * it.
 */
export class StoreUnavailable extends Error {
  override readonly name = "StoreUnavailable";
  /** Waiting does not help: somebody has to mend the setup. */
  readonly lasting: boolean;

  constructor(message: string, { lasting = false, ...options }: ErrorOptions & { lasting?: boolean } = {}) {
    super(message, options);
    this.lasting = lasting;
  }
}

/** Whether an error tells of a database that may be there later, so that who starts waits for it. */
export const mayPass = (error: unknown): boolean =>
  isOutage(error) && !(error instanceof StoreUnavailable && error.lasting);

/** Errors of the driver and of the network that mean that the statement found no working server, by their code. */
const NETWORK =
  /^(?:CONNECTION_(?:CLOSED|DESTROYED|ENDED)|CONNECT_TIMEOUT|E(?:CONN\w+|PIPE|NOTFOUND|AI_AGAIN|TIMEDOUT))$/;
/**
 * PostgreSQL's classes for connections (08), exhausted resources (53), its own end and statements that took too long (57), locks that
 * did not come free (55P03), transactions that it ended because they stood still (25P03, 25P04) or stood in each other's way (40), a
 * standby (25006), its disk (58).
 */
const SERVER = /^(?:08|53|57|55P03|25P0[34]|40|25006|58)/;

/**
 * Whether an error of a statement or a transaction tells of a database that can't be used now, and not of the
 * statement: the same may succeed later. What was sent may have been done or not, when the connection was lost
 * meanwhile.
 */
export function isOutage(error: unknown): boolean {
  if (error instanceof StoreUnavailable) return true;
  if (!(error instanceof Error && "code" in error)) return false;
  const code = String(error.code);
  const noSocket = code === "ENOENT" && "syscall" in error && error.syscall === "connect";
  return noSocket || NETWORK.test(code) || SERVER.test(code);
}

/** PostgreSQL's codes for pages that can't be read (XX), and for tables, columns and functions that the schema has and the database lacks. */
const DAMAGE = /^(?:XX00[012]|42P01|42703|42883)$/;

/** Reports whether an error means that the store has lost or corrupted data, which neither waiting nor a restart repairs. */
export const isDamaged = (error: unknown): error is Error =>
  error instanceof Error && "code" in error && DAMAGE.test(String(error.code));

/** Whether the server refused the connection because it is starting or ending: nothing was done. */
export const isStarting = (error: unknown): boolean =>
  error instanceof Error && "code" in error && error.code === "57P03";

/** PostgreSQL's code for text that it cannot hold. */
const UNSTORABLE_TEXT = "22021";

/** Whether a statement failed for what is in a text of it: strings hold U+0000, which PostgreSQL does not. */
export const isUnstorableText = (error: unknown): boolean =>
  error instanceof Error && "code" in error && error.code === UNSTORABLE_TEXT;
