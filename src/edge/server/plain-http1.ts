/**
 * HTTP/1.1 connections in front of node:http. It serves a connection as long as every request is a plain POST to a path that the handler takes.
 * The first other request passes the connection to node:http for good, with all unused bytes: unusual, slow, large or invalid requests are
 * never parsed here. An act costs 1.19 to 1.25 times as much without it (decision 3).
 */
import { EventEmitter } from "node:events";
import { STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { after, now, steadyNow } from "../../clock.ts";
import { passed } from "../../codecs/passing.ts";
import { givenBack, roomFor, type SlabRoom, taken } from "../../codecs/slab.ts";
import { countRequest, isTurnSpent } from "./turns.ts";
import type { ConnectionServer, Outlet, WholeRequestHandler, WholeResponse } from "./whole-requests.ts";
import { isHost } from "./wire-faults.ts";

/** How long the rest of a request may take to come, until it is node:http that waits for it. */
const REST_MS = 250;
/** With more bytes behind a request that runs, or that waits for its turn, the socket is not read. */
const MOST_AHEAD = 64 << 10;
/** So many unsent bytes are waited for before the next answer is made. */
const MOST_UNSENT = 64 << 10;

/** The server, for the port to open. */
export function plainHttp1(port: PlainHttp1Deps): ConnectionServer {
  const connections = new Set<PlainConnection>();
  let isDraining = false;
  return {
    accept(socket, greeted) {
      const connection = new PlainConnection(socket, greeted, {
        ...port,
        draining: () => isDraining,
        left: () => connections.delete(connection),
      });
      connections.add(connection);
      connection.begin();
    },
    leave() {
      isDraining = true;
    },
    drain() {
      isDraining = true;
      for (const connection of connections) connection.drain();
    },
  };
}

interface PlainHttp1Deps {
  readonly handler: WholeRequestHandler;
  readonly idleTimeoutMs: number;
  /** Passes a paused connection on, with all its unused bytes before it. */
  readonly handOver: ConnectionServer["accept"];
}

type ConnectionDeps = PlainHttp1Deps & {
  draining(): boolean;
  /** The connection has ended, or is node:http's. */
  left(): void;
};

/** One connection. */
class PlainConnection {
  readonly #socket: Socket;
  readonly #greeted: () => void;
  readonly #deps: ConnectionDeps;
  /** What came and was not used begins at `#from` of this; undefined where all was used. */
  #bytes: Buffer | undefined;
  #from = 0;
  /** What came behind it, as it was read: put together at most once, when it is needed. */
  #behind: Buffer[] = [];
  #behindBytes = 0;
  /** The head of a request whose body is still coming. */
  #head: PlainHead | undefined;
  /** The head of the request before. */
  #before: PlainHead | undefined;
  #running: PlainResponse | undefined;
  /** The next request waits for the peer to take an answer, or for the next turn. */
  #isWaiting = false;
  #isPaused = false;
  /** The connection has ended, or is node:http's. */
  #isOver = false;
  #usedAt = steadyNow();
  readonly #keepAlive: string;
  #forgetIdle: () => void;
  #forgetRest: () => void = nothing;

  constructor(socket: Socket, greeted: () => void, deps: ConnectionDeps) {
    this.#socket = socket;
    this.#greeted = greeted;
    this.#deps = deps;
    this.#keepAlive = `Connection: keep-alive\r\nKeep-Alive: timeout=${Math.floor(deps.idleTimeoutMs / 1000)}\r\n`;
    this.#forgetIdle = after(deps.idleTimeoutMs, this.#restUnlessUsed);
  }

  begin(): void {
    this.#socket.on("data", this.#read).on("end", this.#ended).on("close", this.#closed).resume();
  }

  #unlisten(): void {
    this.#socket.off("data", this.#read).off("end", this.#ended).off("close", this.#closed).pause();
  }

  /** The last headers of an answer, which say what becomes of the connection. */
  get ending(): string {
    return this.#deps.draining() ? "Connection: close\r\n" : this.#keepAlive;
  }

  /** Whether the peer has not been sent all that was written. */
  get isBehind(): boolean {
    return this.#socket.writableLength > 0;
  }

  /** Room for what is to be sent. What a slow reader leaves unsent has bytes of its own: a piece keeps all of its block. */
  roomFor(size: number): SlabRoom {
    return this.isBehind ? { block: Buffer.allocUnsafeSlow(size), end: size } : roomFor(size);
  }

  /** Sends a part of the answer to the running request; false, and `drained` later, when the peer should read first: `most` bytes are unsent. */
  write(part: string | Buffer, drained: () => void, most = MOST_UNSENT): boolean {
    const socket = this.#socket;
    if (socket.write(part) || socket.writableLength < most) return true;
    socket.once("drain", drained);
    return false;
  }

  /** Sends the last part of the answer, and goes on to the next request. */
  finish(part: string | Buffer): void {
    this.#running = undefined;
    if (this.#deps.draining()) {
      this.#socket.end(part);
      return;
    }
    this.#isWaiting = true;
    if (!this.write(part, this.#goOn)) return;
    this.#goOn();
  }

  /** A request that has begun to come is node:http's to wait for, which then closes. */
  drain(): void {
    if (this.#running !== undefined) return;
    if (this.#bytes === undefined) this.#socket.end();
    else this.#handOver();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  readonly #read = (chunk: Buffer): void => {
    passed(chunk.length);
    if (this.#bytes === undefined) {
      this.#bytes = chunk;
      this.#from = 0;
    } else {
      this.#behind.push(chunk);
      this.#behindBytes += chunk.length;
    }
    if (this.#running === undefined && !this.#isWaiting) this.#look();
    else if (this.#unused > MOST_AHEAD) this.#pause();
  };

  /** Reads nothing before the next request. */
  hold(): void {
    if (this.#running !== undefined) this.#pause();
  }

  #pause(): void {
    this.#isPaused = true;
    this.#socket.pause();
  }

  #resume(): void {
    if (this.#isPaused) this.#socket.resume();
    this.#isPaused = false;
  }

  /** How many bytes came and were not used. */
  get #unused(): number {
    return this.#bytes === undefined ? 0 : this.#bytes.length - this.#from + this.#behindBytes;
  }

  /** All that came and was not used, in one piece. */
  #whole(): Buffer {
    const bytes = this.#bytes?.subarray(this.#from) ?? NOTHING;
    if (this.#behind.length === 0) return bytes;
    const whole = Buffer.concat([bytes, ...this.#behind]);
    this.#bytes = whole;
    this.#from = 0;
    this.#behind = [];
    this.#behindBytes = 0;
    return whole;
  }

  /** Serves the request at the start of what came, if it is plain and whole. */
  #look(): void {
    let head = this.#head;
    if (head !== undefined && this.#unused < head.bodyAt + head.bodyBytes) return;
    let bytes = this.#bytes?.subarray(this.#from) ?? NOTHING;
    head ??= readPlainHead(bytes, this.#before);
    // A head, or a body, that goes on in what came later.
    if (this.#behind.length > 0 && (head === undefined || bytes.length < head.bodyAt + head.bodyBytes)) {
      bytes = this.#whole();
      head ??= readPlainHead(bytes, this.#before);
    }
    // Of several requests that were sent at once one is cut by every read.
    if (head === undefined && this.#before !== undefined && mayBecomePlain(bytes)) {
      this.#waitForRest();
      return;
    }
    if (head === undefined || !this.#deps.handler.takes(head.path)) {
      this.#handOver();
      return;
    }
    this.#before = head;
    this.#greeted();
    const { path, headers, bodyAt, bodyBytes } = head;
    const end = bodyAt + bodyBytes;
    if (bytes.length < end) {
      this.#head = head;
      this.#waitForRest();
      return;
    }
    if (isTurnSpent()) {
      this.#head = head;
      this.#isWaiting = true;
      setImmediate(this.#next);
      return;
    }
    countRequest();
    this.#forgetRest();
    this.#forgetRest = nothing;
    this.#head = undefined;
    this.#from += end;
    if (bytes.length === end) this.#advance();
    this.#usedAt = steadyNow();
    this.#running = new PlainResponse(this);
    const body = bytes.subarray(bodyAt, end);
    this.#deps.handler.serve({ method: "POST", url: path, headers, socket: this.#socket, body }, this.#running);
  }

  /** The bytes are used up: the next are those that came behind them. */
  #advance(): void {
    this.#bytes = this.#behind.shift();
    this.#behindBytes -= this.#bytes?.length ?? 0;
    this.#from = 0;
  }

  #waitForRest(): void {
    if (this.#forgetRest === nothing) this.#forgetRest = after(REST_MS, () => this.#handOver());
    this.#resume();
  }

  readonly #goOn = (): void => {
    // Not at once: a long row of requests would stand on the stack, each answered inside the one before.
    if (this.#bytes !== undefined) setImmediate(this.#next);
    else {
      this.#isWaiting = false;
      this.#resume();
    }
  };

  readonly #next = (): void => {
    this.#isWaiting = false;
    if (this.#isOver || this.#bytes === undefined) return;
    if (this.#unused <= MOST_AHEAD / 2) this.#resume();
    this.#look();
  };

  #handOver(): void {
    const socket = this.#socket;
    this.#leave();
    this.#unlisten();
    if (this.#bytes !== undefined) socket.unshift(this.#whole());
    this.#deps.handOver(socket, this.#greeted);
  }

  /** A peer that closes its side has left, as node:http has it. */
  readonly #ended = (): void => {
    this.#bytes = undefined;
    this.#behind = [];
    this.#onClose();
    this.#socket.end();
  };

  readonly #closed = (): void => {
    this.#leave();
    this.#onClose();
  };

  #onClose(): void {
    const running = this.#running;
    this.#running = undefined;
    running?.close();
  }

  #leave(): void {
    this.#isOver = true;
    this.#forgetIdle();
    this.#forgetRest();
    this.#deps.left();
  }

  readonly #restUnlessUsed = (): void => {
    const left = this.#usedAt + this.#deps.idleTimeoutMs - steadyNow();
    if (left <= 0 && this.#running === undefined) this.#socket.destroy();
    else this.#forgetIdle = after(left > 0 ? left : this.#deps.idleTimeoutMs, this.#restUnlessUsed);
  };
}

const nothing = (): void => undefined;
const NOTHING = Buffer.alloc(0);

/** The answer to a plain request. */
class PlainResponse implements WholeResponse {
  statusCode = 200;
  headersSent = false;
  /** The caller has left. */
  destroyed = false;
  readonly #connection: PlainConnection;
  #head = "";
  #onClose: (() => void) | undefined;
  #body: ChunkedBody | undefined;

  constructor(connection: PlainConnection) {
    this.#connection = connection;
  }

  writeHead(status: number, headers: readonly string[]): void {
    let lines = "";
    for (let i = 0; i < headers.length; i += 2) lines += `${headers[i]}: ${headers[i + 1]}\r\n`;
    this.#begin(status, lines);
  }

  #begin(status: number, lines: string): void {
    this.statusCode = status;
    this.headersSent = true;
    this.#head = `${status === 200 ? OK_LINE : statusLine(status)}${lines}${date()}`;
  }

  /** Sends head and body in one piece. */
  end(body: Buffer): void {
    if (this.destroyed) return;
    const head = `${this.#head}${this.#connection.ending}\r\n`;
    const size = head.length + body.length;
    const room = this.#connection.roomFor(size);
    const at = room.end - size;
    room.block.write(head, at, "latin1");
    room.block.set(body, at + head.length);
    this.#connection.finish(taken(room, at));
  }

  /** As WholeResponse. */
  answer(status: number, lines: string, body: Buffer): void {
    this.#begin(status, lines);
    this.end(body);
  }

  /** Sends the returned body in chunks, as they come. */
  stream(): ChunkedBody {
    const head = `${this.#head}${this.#connection.ending}Transfer-Encoding: chunked\r\n\r\n`;
    this.#body = new ChunkedBody(this.#connection, head);
    return this.#body;
  }

  /** As WholeResponse. */
  hold(): void {
    this.#connection.hold();
  }

  once(_event: "close", run: () => void): void {
    this.#onClose = run;
  }

  off(_event: "close", run: () => void): void {
    if (this.#onClose === run) this.#onClose = undefined;
  }

  /** The caller has left before the answer. */
  close(): void {
    this.destroyed = true;
    this.#body?.close();
    this.#onClose?.();
  }

  destroy(): void {
    this.#connection.destroy();
  }
}

const statusLine = (status: number): string => `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n`;

const OK_LINE = statusLine(200);

let dated = { second: -1, text: "" };

/** The line of the Date header, made once a second. */
function date(): string {
  const second = Math.floor(now() / 1000);
  if (dated.second !== second) dated = { second, text: `Date: ${new Date(second * 1000).toUTCString()}\r\n` };
  return dated.text;
}

/** Bytes that wait at most for a reader, beside one chunk: a chunk that cannot be read yet is better not made yet. */
const MOST_UNSENT_CHUNKS = 64 << 10;

/** The connection that it leaves by. */
interface ChunkedBodySource {
  /** Whether the peer has not been sent all that was written. */
  readonly isBehind: boolean;
  roomFor(size: number): SlabRoom;
  /** False, and `drained` later, when `most` bytes wait for the peer to read. */
  write(part: Buffer, drained: () => void, most: number): boolean;
  finish(part: string): void;
}

/** An answer that is sent in chunks. */
class ChunkedBody extends EventEmitter<{ drain: []; close: [] }> implements Outlet {
  readonly #connection: ChunkedBodySource;
  /** The head of the answer, until the first chunk takes it along. */
  #head: string;
  #isOver = false;

  constructor(connection: ChunkedBodySource, head: string) {
    super();
    this.#connection = connection;
    this.#head = head;
  }

  /** Sends data between two texts of which each letter is one byte, as a chunk; false when the caller has to read first. */
  send(before: string, data: string, behind: string): boolean {
    if (this.#isOver) return true;
    const length = before.length + Buffer.byteLength(data) + behind.length;
    const start = `${this.#head}${length.toString(16)}\r\n`;
    this.#head = "";
    const size = start.length + length + CHUNK_END.length;
    const room = this.#connection.roomFor(size);
    const { block } = room;
    const from = room.end - size;
    let at = put(block, put(block, from, start), before);
    at += block.write(data, at);
    put(block, put(block, at, behind), CHUNK_END);
    const hasRoom = this.#connection.write(taken(room, from), this.#drained, MOST_UNSENT_CHUNKS);
    if (!this.#connection.isBehind) givenBack(room);
    return hasRoom;
  }

  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#connection.finish(`${this.#head}0${CHUNK_END}${CHUNK_END}`);
  }

  /** The caller has left. */
  close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.emit("close");
  }

  readonly #drained = (): void => void this.emit("drain");
}

const CHUNK_END = "\r\n";

/** Writes a short text letter by letter, for less than the price of having it written; returns where it ends. */
function put(into: Buffer, at: number, text: string): number {
  for (let i = 0; i < text.length; i++) into[at + i] = text.charCodeAt(i);
  return at + text.length;
}

/** A request's head, and where its body lies behind it. */
interface PlainHead {
  /** The path, without a query. */
  readonly path: string;
  /** By lower-case names; none came twice. */
  readonly headers: Readonly<Record<string, string>>;
  /** Where the body begins in the bytes that were read. */
  readonly bodyAt: number;
  readonly bodyBytes: number;
  /** The head as it came, to its empty line. */
  readonly bytes: Buffer;
}

/** Longer heads are left to node:http, and longer bodies too. */
const MOST = { headBytes: 8 << 10, bodyBytes: 1 << 20 } as const;

const HEAD_END = "\r\n\r\n";
const FORM = /^POST (\/[\w./-]*) HTTP\/1\.1\r\n(?:[!#$%&'*+.^_`|~\w-]+:[\t -~]*\r\n)+$/;
const LENGTH = /^\d{1,7}$/;

/** The names that most calls bear, as they are often written: looked up for less than the price of making them small. */
const KNOWN: ReadonlyMap<string, string> = new Map(
  [
    "host",
    "connection",
    "authorization",
    "content-type",
    "content-length",
    "user-agent",
    "accept",
    "accept-encoding",
  ].flatMap((name) =>
    [name, name.replaceAll(/\b\w/g, (letter) => letter.toUpperCase())].map((written) => [written, name]),
  ),
);

/** Headers that change how a connection or a body is read, and that of a browser's page, to which more is answered. */
const NOT_PLAIN = new Set(["transfer-encoding", "expect", "upgrade", "trailer", "origin"]);

/**
 * The head at the start of `bytes`; undefined when it is not whole, or not plain. A caller in a loop says the same head again and
 * again: where it is that of `before`, to the byte, it is not read again.
 */
export function readPlainHead(bytes: Buffer, before?: PlainHead): PlainHead | undefined {
  if (before !== undefined && isSame(before.bytes, bytes)) return before;
  const end = bytes.indexOf(HEAD_END);
  if (end < 0 || end > MOST.headBytes) return undefined;
  const text = bytes.toString("latin1", 0, end + 2);
  const path = FORM.exec(text)?.[1];
  if (path === undefined) return undefined;
  const headers: Record<string, string> = Object.create(null);
  for (let at = text.indexOf("\r\n") + 2; at < text.length; ) {
    const colon = text.indexOf(":", at);
    const over = text.indexOf("\r\n", colon);
    const written = text.slice(at, colon);
    const name = KNOWN.get(written) ?? written.toLowerCase();
    if (name in headers || NOT_PLAIN.has(name)) return undefined;
    headers[name] = text.slice(colon + 1, over).trim();
    at = over + 2;
  }
  const { host, connection = "keep-alive", "content-length": length = "" } = headers;
  if (host === undefined || !isHost(host) || connection.toLowerCase() !== "keep-alive") return undefined;
  const bodyBytes = Number(length);
  if (!LENGTH.test(length) || bodyBytes > MOST.bodyBytes) return undefined;
  const bodyAt = end + HEAD_END.length;
  return { path, headers, bodyAt, bodyBytes, bytes: Buffer.from(bytes.subarray(0, bodyAt)) };
}

/** Whether these bytes, which are no plain head, may be the beginning of one. */
const mayBecomePlain = (bytes: Buffer): boolean =>
  bytes.length < MOST.headBytes &&
  bytes.compare(BEGINNING, 0, Math.min(BEGINNING.length, bytes.length), 0, Math.min(BEGINNING.length, bytes.length)) ===
    0 &&
  !bytes.includes(HEAD_END);

const BEGINNING = Buffer.from("POST /", "latin1");

const isSame = (head: Buffer, bytes: Buffer): boolean =>
  bytes.length >= head.length && head.compare(bytes, 0, head.length) === 0;
