/** What the port, its HTTP/1 and HTTP/2 sides and the transports share: requests with their bodies, connections, upgrades. */
import type * as http from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";

/** A request with its body. Its headers came once each. */
export interface WholeRequest {
  readonly method: "GET" | "POST";
  /** The path, and the query where there is one. */
  readonly url: string;
  /** By lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
  readonly socket: Pick<Socket, "remoteAddress" | "bytesRead">;
  readonly body: Buffer;
  /** Its id, where it has one already. */
  readonly requestId?: string;
  /** The answer should wait for nothing that it can do without. */
  readonly isUrgent?: boolean;
}

/** Where events are sent. Emits `drain` when there is room again, and `close` when the reader has left. */
export interface Outlet {
  /** Sends data between two texts of ASCII; false when the reader has to read first. */
  send(before: string, data: string, behind: string): boolean;
  end(): void;
  on(event: "drain" | "close", run: () => void): unknown;
  off(event: "drain" | "close", run: () => void): unknown;
}

/** The answer to a whole request: one `answer`, or one `writeHead` and then one `end` or `stream`. */
export interface WholeResponse {
  readonly statusCode: number;
  readonly headersSent: boolean;
  /** The caller has left. */
  readonly destroyed: boolean;
  /** `headers` are names and values in turn. */
  writeHead(status: number, headers: readonly string[]): void;
  /** Sends the answer. */
  end(body: Buffer): void;
  /** `writeHead` and `end` in one, of headers that are lines of HTTP/1 already. */
  answer(status: number, lines: string, body: Buffer): void;
  /** In place of `end`: a body of unknown length. */
  stream(): Outlet;
  /** The answer waits for its turn: nothing more is read of the connection before. */
  hold(): void;
  once(event: "close", run: () => void): void;
  off(event: "close", run: () => void): void;
  destroy(): void;
}

/** What answers whole requests. */
export interface WholeRequestHandler {
  /** Whether POST requests for this path are served. */
  takes(path: string): boolean;
  serve(request: WholeRequest, response: WholeResponse): void;
}

/** Whether a response is that of a whole request. */
export const isWhole = (response: object): response is WholeResponse => "hold" in response;

/** Serves the connections of one protocol. */
export interface ConnectionServer {
  /** Serves `socket`, paused, from its first byte; `greeted` is called once, when the client has said its first whole word: a head, or an acknowledgement. */
  accept(socket: Socket, greeted: () => void): void;
  /** Asks every client, with its next answer, to send its next request on another connection, and serves what it sends here all the same. */
  leave(): void;
  /**
   * Ends every connection after the answers that it owes. Over HTTP/2 the last GOAWAY names the last stream that was begun, so that a
   * client may send the later ones elsewhere. A server that cannot ask idle clients first reads them for `idleMs`, and ends each with its
   * next answer.
   */
  drain(idleMs?: number): void;
}

/** What takes over HTTP/1 connections, such as a transport that speaks WebSocket. */
export interface UpgradeTaker {
  wants(request: http.IncomingMessage): boolean;
  take(request: http.IncomingMessage, socket: Duplex, head: Buffer): void;
  /** Ends each connection behind its next answer, an idle one after `idleMs` at the latest, and takes no other. */
  drain(idleMs: number): void;
}
