/**
 * HTTP/1.1 connections in front of node:http. A connection is served here for as long as its requests are of the plainest form and for
 * paths that the handler takes. At the first that is not, it is handed to node:http for good, with every byte that no answer has used. So
 * nothing here has to be lenient, nor to know what HTTP can be: whatever is unusual, slow, large or wrong is not plain.
 */

import { STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { countArrived } from "../../app/collector.ts";
import { after, now, steadyNow } from "../../clock.ts";
import { roomFor, type SlabRoom, taken } from "../../codecs/slab.ts";
import type { OpenHttp1 } from "../../edge/server/port.ts";
import type { ConnectionServer } from "../../edge/server/whole-requests.ts";
import { countRequest, isTurnSpent } from "../../edge/server/turns.ts";
import type { WholeResponse } from "../../edge/server/whole-requests.ts";
import { ChunkedBody } from "./chunked-body.ts";
import { mayBecomePlain, type PlainHead, readPlainHead } from "./head.ts";

/** How long the rest of a request may take to come, until it is node:http that waits for it. */
const REST_MS = 250;
/** With more bytes behind a request that runs, or that waits for its turn, the socket is not read. */
const MOST_AHEAD = 64 << 10;
/** So many unsent bytes are waited for before the next answer is made. */
const MOST_UNSENT = 64 << 10;

/** The server, for the port to open. */
export const fastHttp1: OpenHttp1 = (port): ConnectionServer => {
  const connections = new Set<FastHttp1Connection>();
  let isDraining = false;
  return {
    accept(socket, greeted) {
      const connection = new FastHttp1Connection(socket, greeted, {
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
};

type FastHttp1Deps = Parameters<OpenHttp1>[0] & {
  draining(): boolean;
  /** The connection has ended, or is node:http's. */
  left(): void;
};

/** One connection. */
class FastHttp1Connection {
  readonly #socket: Socket;
  readonly #greeted: () => void;
  readonly #deps: FastHttp1Deps;
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

  constructor(socket: Socket, greeted: () => void, deps: FastHttp1Deps) {
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
    countArrived(chunk.length);
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
    this.#gone();
    this.#socket.end();
  };

  readonly #closed = (): void => {
    this.#leave();
    this.#gone();
  };

  #gone(): void {
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
  readonly #connection: FastHttp1Connection;
  #head = "";
  #onClose: (() => void) | undefined;
  #body: ChunkedBody | undefined;

  constructor(connection: FastHttp1Connection) {
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
