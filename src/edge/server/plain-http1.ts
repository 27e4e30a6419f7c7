/**
 * HTTP/1.1 connections in front of node:http. A connection is served here as long as every request is a plain POST to a path of the handler. The
 * first other request passes the connection to node:http permanently, with all unused bytes: unusual, slow, large or invalid requests are never
 * parsed here. Without it, an act costs 1.19 to 1.25 times as much (decision 3).
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

/** How long an incomplete request can take before node:http takes over. */
const REST_MS = 250;
/** With more unprocessed bytes after a running or queued request, the socket is paused. */
const MOST_AHEAD = 64 << 10;
/** The number of unsent bytes that delays the next response. */
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
  /** Passes a paused connection on, with all its unused bytes. */
  readonly handOver: ConnectionServer["accept"];
}

type ConnectionDeps = PlainHttp1Deps & {
  draining(): boolean;
  /** Called when the connection has ended, or was passed to node:http. */
  left(): void;
};

/** One connection. */
class PlainConnection {
  readonly #socket: Socket;
  readonly #greeted: () => void;
  readonly #deps: ConnectionDeps;
  /** The unused bytes start at `#from` of this; undefined if all were used. */
  #bytes: Buffer | undefined;
  #from = 0;
  /** The bytes received after it, concatenated at most once, on demand. */
  #behind: Buffer[] = [];
  #behindBytes = 0;
  /** The head of a request whose body is still arriving. */
  #head: PlainHead | undefined;
  /** The head of the previous request. */
  #before: PlainHead | undefined;
  #running: PlainResponse | undefined;
  /** Whether the next request waits for the client to read a response, or for the next turn. */
  #isWaiting = false;
  #isPaused = false;
  /** Whether the connection has ended, or was passed to node:http. */
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

  /** The last headers of a response, which declare whether the connection stays open. */
  get ending(): string {
    return this.#deps.draining() ? "Connection: close\r\n" : this.#keepAlive;
  }

  /** Whether written bytes are still unsent. */
  get isBehind(): boolean {
    return this.#socket.writableLength > 0;
  }

  /** A buffer for outgoing bytes. Bytes for a slow reader are copied, because a slice keeps its entire buffer in memory. */
  roomFor(size: number): SlabRoom {
    return this.isBehind ? { block: Buffer.allocUnsafeSlow(size), end: size } : roomFor(size);
  }

  /** Sends a part of the current response; false, and `drained` later, if `most` bytes are unsent and the client should read first. */
  write(part: string | Buffer, drained: () => void, most = MOST_UNSENT): boolean {
    const socket = this.#socket;
    if (socket.write(part) || socket.writableLength < most) return true;
    socket.once("drain", drained);
    return false;
  }

  /** Sends the last part of the response, and continues with the next request. */
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

  /** Passes a slow, incomplete request to node:http, which then closes the connection in time. */
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

  /** Pauses reading until the next request. */
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

  /** The number of unused bytes. */
  get #unused(): number {
    return this.#bytes === undefined ? 0 : this.#bytes.length - this.#from + this.#behindBytes;
  }

  /** All unused bytes in one buffer. */
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

  /** Serves the request at the start of the unused bytes, if it is plain and complete. */
  #look(): void {
    let head = this.#head;
    if (head !== undefined && this.#unused < head.bodyAt + head.bodyBytes) return;
    let bytes = this.#bytes?.subarray(this.#from) ?? NOTHING;
    head ??= readPlainHead(bytes, this.#before);
    // A head or body that continues in later bytes.
    if (this.#behind.length > 0 && (head === undefined || bytes.length < head.bodyAt + head.bodyBytes)) {
      bytes = this.#whole();
      head ??= readPlainHead(bytes, this.#before);
    }
    // Of several requests sent at once, every read splits one.
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

  /** Marks the bytes as used, and continues with those after them. */
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
    // Not immediately: with many pipelined requests, each response would nest in the previous one on the stack.
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

  /** A client that closes its side has disconnected, as in node:http. */
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

/** The response to a plain request. */
class PlainResponse implements WholeResponse {
  statusCode = 200;
  headersSent = false;
  /** Whether the caller has disconnected. */
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

  /** See WholeResponse. */
  answer(status: number, lines: string, body: Buffer): void {
    this.#begin(status, lines);
    this.end(body);
  }

  /** Sends the response body in chunks, as they arrive. */
  stream(): ChunkedBody {
    const head = `${this.#head}${this.#connection.ending}Transfer-Encoding: chunked\r\n\r\n`;
    this.#body = new ChunkedBody(this.#connection, head);
    return this.#body;
  }

  /** See WholeResponse. */
  hold(): void {
    this.#connection.hold();
  }

  once(_event: "close", run: () => void): void {
    this.#onClose = run;
  }

  off(_event: "close", run: () => void): void {
    if (this.#onClose === run) this.#onClose = undefined;
  }

  /** The caller disconnected before the response. */
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

/** The Date header line, updated once a second. */
function date(): string {
  const second = Math.floor(now() / 1000);
  if (dated.second !== second) dated = { second, text: `Date: ${new Date(second * 1000).toUTCString()}\r\n` };
  return dated.text;
}

/** The most bytes buffered for a reader, besides one chunk: it is better not to create chunks that cannot be read yet. */
const MOST_UNSENT_CHUNKS = 64 << 10;

/** The connection that it is sent on. */
interface ChunkedBodySource {
  /** Whether written bytes are still unsent. */
  readonly isBehind: boolean;
  roomFor(size: number): SlabRoom;
  /** False, and `drained` later, if `most` bytes are unsent. */
  write(part: Buffer, drained: () => void, most: number): boolean;
  finish(part: string): void;
}

/** A chunked response. */
class ChunkedBody extends EventEmitter<{ drain: []; close: [] }> implements Outlet {
  readonly #connection: ChunkedBodySource;
  /** The response head, which is sent with the first chunk. */
  #head: string;
  #isOver = false;

  constructor(connection: ChunkedBodySource, head: string) {
    super();
    this.#connection = connection;
    this.#head = head;
  }

  /** Sends data between two Latin-1 texts, as a chunk; false if the caller has to read first. */
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

  /** The caller has disconnected. */
  close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.emit("close");
  }

  readonly #drained = (): void => void this.emit("drain");
}

const CHUNK_END = "\r\n";

/** Writes a short text byte by byte, which is cheaper than a buffer's own method; returns its end. */
function put(into: Buffer, at: number, text: string): number {
  for (let i = 0; i < text.length; i++) into[at + i] = text.charCodeAt(i);
  return at + text.length;
}

/** A request's head, and where its body starts. */
interface PlainHead {
  /** The path, without a query. */
  readonly path: string;
  /** By lower-case names, without duplicates. */
  readonly headers: Readonly<Record<string, string>>;
  /** Where the body starts in the received bytes. */
  readonly bodyAt: number;
  readonly bodyBytes: number;
  /** The bytes of the head, including its empty line. */
  readonly bytes: Buffer;
}

/** Requests with a longer head or body are passed to node:http. */
const MOST = { headBytes: 8 << 10, bodyBytes: 1 << 20 } as const;

const HEAD_END = "\r\n\r\n";
const FORM = /^POST (\/[\w./-]*) HTTP\/1\.1\r\n(?:[!#$%&'*+.^_`|~\w-]+:[\t -~]*\r\n)+$/;
const LENGTH = /^\d{1,7}$/;

/** Common header names in their usual spelling: a lookup is cheaper than conversion to lower case. */
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

/** Headers that change how a connection or body is read, and the origin of a browser's page, whose response has more headers. */
const NOT_PLAIN = new Set(["transfer-encoding", "expect", "upgrade", "trailer", "origin"]);

/**
 * Parses the head at the start of `bytes`; undefined if it is incomplete or not plain. A caller in a loop sends the same head repeatedly: if it
 * equals `before` to the byte, it is not parsed again.
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

/** Whether these bytes, which are not a plain head, can be the start of one. */
const mayBecomePlain = (bytes: Buffer): boolean =>
  bytes.length < MOST.headBytes &&
  bytes.compare(BEGINNING, 0, Math.min(BEGINNING.length, bytes.length), 0, Math.min(BEGINNING.length, bytes.length)) ===
    0 &&
  !bytes.includes(HEAD_END);

const BEGINNING = Buffer.from("POST /", "latin1");

const isSame = (head: Buffer, bytes: Buffer): boolean =>
  bytes.length >= head.length && head.compare(bytes, 0, head.length) === 0;
