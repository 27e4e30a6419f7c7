/** Interfaces between the port, its HTTP/1 and HTTP/2 parts, and the transports: buffered requests, connections, upgrades. */
import type * as http from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";

/** A request with its complete body and no duplicate headers. */
export interface WholeRequest {
  readonly method: "GET" | "POST";
  /** The path and query. */
  readonly url: string;
  /** By lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
  readonly socket: Pick<Socket, "remoteAddress" | "bytesRead">;
  readonly body: Buffer;
  /** Its id, if assigned already. */
  readonly requestId?: string;
  /** Whether to skip optional waits. */
  readonly isUrgent?: boolean;
}

/** A writer for events. Emits `drain` when it can accept more, and `close` when the reader has disconnected. */
export interface Outlet {
  /** Sends data between two ASCII texts; false if the reader has to catch up first. */
  send(before: string, data: string, behind: string): boolean;
  end(): void;
  on(event: "drain" | "close", run: () => void): unknown;
  off(event: "drain" | "close", run: () => void): unknown;
}

/** The response to a buffered request: one `answer`, or one `writeHead` followed by one `end` or `stream`. */
export interface WholeResponse {
  readonly statusCode: number;
  readonly headersSent: boolean;
  /** Whether the caller has disconnected. */
  readonly destroyed: boolean;
  /** `headers` alternate names and values. */
  writeHead(status: number, headers: readonly string[]): void;
  /** Sends the body. */
  end(body: Buffer): void;
  /** Combines `writeHead` and `end`, with headers as HTTP/1 lines. */
  answer(status: number, lines: string, body: Buffer): void;
  /** Instead of `end`, for a body of unknown length. */
  stream(): Outlet;
  /** Delays the response: nothing more is read from the connection before. */
  hold(): void;
  once(event: "close", run: () => void): void;
  off(event: "close", run: () => void): void;
  destroy(): void;
}

/** The handler of buffered requests. */
export interface WholeRequestHandler {
  /** Whether POST requests for this path are served. */
  takes(path: string): boolean;
  serve(request: WholeRequest, response: WholeResponse): void;
}

/** Whether a response belongs to a buffered request. */
export const isWhole = (response: object): response is WholeResponse => "hold" in response;

/** Serves the connections of one protocol. */
export interface ConnectionServer {
  /** Serves `socket`, paused, from its first byte; calls `greeted` once, after the client's first complete head or acknowledgement. */
  accept(socket: Socket, greeted: () => void): void;
  /** Asks every client, with its next response, to use another connection; still serves what arrives on this one. */
  leave(): void;
  /**
   * Ends every connection after its pending responses. Over HTTP/2, the last GOAWAY names the last started stream, so a client can send later
   * ones elsewhere. A server that cannot notify idle clients first reads them for `idleMs`, and ends each one with its next response.
   */
  drain(idleMs?: number): void;
}

/** A handler of upgraded HTTP/1 connections, such as a WebSocket transport. */
export interface UpgradeTaker {
  wants(request: http.IncomingMessage): boolean;
  take(request: http.IncomingMessage, socket: Duplex, head: Buffer): void;
  /** Ends each connection after its next response, an idle one after at most `idleMs`, and accepts no more. */
  drain(idleMs: number): void;
}
