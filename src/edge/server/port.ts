/** One port for everything: HTTP/1.1, HTTP/2 with prior knowledge, and both over TLS, behind one server for Fastify. */
import * as http from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import * as https from "node:https";
import type { Socket } from "node:net";
import { after } from "../../clock.ts";
import type { BudgetOptions } from "./budgets.ts";
import { http1Side } from "./http1.ts";
import { nodeHttp2, type StreamServer } from "./http2.ts";
import { absorbErrors, OwnedRequest, OwnedResponse } from "./owned.ts";
import { plainHttp1 } from "./plain-http1.ts";
import { Penalties, Slots } from "./slots.ts";
import type { UpgradeTaker, WholeRequestHandler } from "./whole-requests.ts";
import type { RefusalBody } from "./wire-faults.ts";

/** The handlers of requests on both protocols, from Fastify and Connect. */
export type PortHandler = (
  request: http.IncomingMessage | Http2ServerRequest,
  response: http.ServerResponse | Http2ServerResponse,
) => void;

/** The port's limits and extension points; sizes in bytes, times in milliseconds. */
export interface PortOptions {
  /** The certificate and key, in PEM, that put the whole port under TLS; in cleartext when absent. */
  readonly tls?: { readonly key: string | Buffer; readonly cert: string | Buffer };
  /** Serves plain HTTP/1 requests, which then bypass node:http; if absent, node:http reads every request. */
  readonly whole?: WholeRequestHandler | undefined;
  /** Serves HTTP/2 streams before the compatibility layer. */
  readonly streams?: StreamServer | undefined;
  /** Accepts HTTP/1 upgrades to the protocols that it supports. */
  readonly upgrade?: UpgradeTaker;
  /** Creates the JSON body of refusals at this level. */
  readonly refusal?: RefusalBody;
  /** The timeout of a connection's first bytes and of each later HTTP/1 head, after the TLS handshake. */
  readonly headersTimeoutMs?: number;
  /** The timeout of a complete request, on either protocol. */
  readonly requestTimeoutMs?: number;
  /** Whether HTTP/2 requests for this path can last indefinitely, like bidirectional streams. */
  readonly endless?: (path: string) => boolean;
  /** The idle timeout of a connection; HTTP/2 sessions end after one to two of these. */
  readonly idleTimeoutMs?: number;
  /** How long a client has to close its side after ours. */
  readonly lingerMs?: number;
  /** The most bytes of one request's headers, on either protocol. */
  readonly maxHeaderSize?: number;
  /** The most concurrent streams of one HTTP/2 session. */
  readonly maxSessionStreams?: number;
  /** The flow-control window of each HTTP/2 stream. */
  readonly streamWindow?: number;
  /** The flow-control window of each HTTP/2 session. */
  readonly sessionWindow?: number;
  /** The budget of an HTTP/2 session for frames without work: resets before a response, pings, settings. */
  readonly patience?: BudgetOptions;
  /** The address that is charged for connections closed for their costs; undefined for one that all callers share, such as a trusted proxy. */
  readonly chargedAs?: (address: string) => string | undefined;
  /**
   * The most concurrent connections; unlimited if absent. Above it, a new one replaces an unauthenticated one, or is closed if there is
   * none.
   */
  readonly maxConnections?: number;
}

const DEFAULTS = {
  endless: () => false,
  chargedAs: (address) => address,
  refusal: (status, code, message, request_id) => JSON.stringify({ error: { code, status, message, request_id } }),
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 120_000,
  idleTimeoutMs: 120_000,
  lingerMs: 1000,
  maxHeaderSize: 16 * 1024,
  maxSessionStreams: 1000,
  streamWindow: 1 << 20,
  sessionWindow: 8 << 20,
  patience: { burst: 200, perSecond: 50 },
} as const satisfies PortOptions;

type PortLimits = PortOptions & Required<Pick<PortOptions, keyof typeof DEFAULTS>>;

/** A port as a server. */
export type Port = (http.Server | https.Server) & {
  /**
   * Asks every client, with its next response, to use another connection for its next request. New connections and requests are still served.
   */
  leave(): void;
  /** When the port closes, keeps reading idle connections for so long, and ends each one after its next response. */
  readIdleFor(ms: number): void;
};

/** How long a connection without data stays open when the port closes, in milliseconds: its first request may be arriving. */
const FIRST_WORD_MS = 1_000;

/**
 * A server that speaks HTTP/1.1 and HTTP/2 on one port, for Fastify's `serverFactory`.
 * `close` drains: idle connections end at once, the others after the answers they owe, and nothing a peer leaves unsaid
 * or unread holds its callback; only a running request does, and `closeAllConnections` ends those. What is refused here
 * is answered here: Fastify is to be given a `clientErrorHandler` that does nothing.
 */
export function onePort(handler: PortHandler, options: PortOptions = {}): Port {
  const limits: PortLimits = { ...DEFAULTS, ...options };
  const server = listenerFor(limits);
  const opened = options.tls === undefined ? "connection" : "secureConnection";
  const secure = options.tls === undefined ? undefined : takeListener(server, "connection");

  const http1 = http1Side(server, takeListener(server, opened), handler, limits);
  const { chargedAs, refusal, idleTimeoutMs } = limits;
  const { whole } = limits;
  const ahead = whole && plainHttp1({ handler: whole, idleTimeoutMs, handOver: http1.accept });
  const penalties = new Penalties();
  const cutOff = (address: string): void => {
    const charged = chargedAs(address);
    if (charged !== undefined) penalties.add(charged);
  };
  const http2 = nodeHttp2({ handler, refusal, limits, streams: limits.streams, cutOff });
  const slots = new Slots(limits.maxConnections, chargedAs);
  const sockets = new Set<Socket>();
  const undecided = new Set<Socket>();

  // The error of a connection that could not be accepted belongs to no call; that of a port that is taken goes to `listen`.
  server.on("listening", () => server.on("error", () => undefined));
  server.on("connection", (socket: Socket) => {
    absorbErrors(socket);
    // Counted here: a server knows of what it accepted itself, and not of what other listeners on its port gave it.
    if (!slots.take(socket)) {
      socket.destroy();
      return;
    }
    sockets.add(socket);
    // Not `once`, for events that occur once anyway: it would allocate three more objects per connection.
    socket.on("close", () => sockets.delete(socket));
    // The objects of TLS cost several times as much as the connection itself.
    if (secure !== undefined) onFirstBytes(socket, limits.headersTimeoutMs, () => secure(socket));
  });

  const begin = (socket: Socket): void => {
    const greeted = after(limits.headersTimeoutMs, () => http1.expire(socket) || socket.destroy());
    socket.on("close", () => {
      greeted();
      undecided.delete(socket);
    });
    // A client that never closes its side would block the connection, and `close`, forever.
    socket.on("finish", () =>
      socket.once(
        "close",
        after(limits.lingerMs, () => socket.destroy()),
      ),
    );
    const serve = (protocol: "http1" | "http2"): void => {
      undecided.delete(socket);
      (protocol === "http2" ? http2 : (ahead ?? http1)).accept(socket, greeted);
    };
    if ("alpnProtocol" in socket) {
      serve(socket.alpnProtocol === "h2" ? "http2" : "http1");
      return;
    }
    undecided.add(socket);
    detectProtocol(socket, serve);
  };

  server.on(opened, (socket: Socket) => {
    // Under TLS, it is not the accepted socket.
    if (options.tls !== undefined) {
      absorbErrors(socket);
      slots.secured(socket);
    }
    if (socket.destroyed) return;
    const charged = chargedAs(socket.remoteAddress ?? "");
    const waitMs = charged === undefined ? 0 : penalties.waitMs(charged);
    if (waitMs === 0) {
      begin(socket);
      return;
    }
    undecided.add(socket);
    const forget = after(waitMs, () => {
      socket.off("close", forget);
      if (!socket.destroyed) begin(socket);
    });
    socket.once("close", forget).once("close", () => undecided.delete(socket));
  });

  // The server closes before the connections that other listeners on its port passed to it.
  const onceGone = (forget: () => void): void => {
    server.once("close", () => {
      if (sockets.size === 0) forget();
    });
  };
  const closeIdle = server.closeIdleConnections.bind(server);
  let idleMs = 0;
  /** Ends idle HTTP/1 connections: now, or after reading them for so long, and after requests that arrive until then. */
  const endIdle = (end: () => void): void => {
    if (idleMs === 0) end();
    else onceGone(after(idleMs, () => setImmediate(end)));
  };
  server.closeIdleConnections = () => {
    endIdle(() => {
      closeIdle();
      ahead?.drain();
    });
    http2.drain(idleMs);
    limits.upgrade?.drain(idleMs);
    const forget = after(Math.max(FIRST_WORD_MS, idleMs), () => {
      for (const socket of undecided) socket.destroy();
    });
    onceGone(forget);
  };
  server.closeAllConnections = () => {
    for (const socket of sockets) socket.destroy();
  };
  const close = server.close.bind(server);
  server.close = (done) => {
    endIdle(() => ahead?.drain());
    http1.drain();
    // Node's own check of slow heads stops with `close`, so the last of them are ended here.
    onceGone(after(limits.headersTimeoutMs, http1.destroyIdle));
    return close(done);
  };
  return Object.assign(server, {
    leave() {
      ahead?.leave();
      http1.leave();
      http2.leave();
    },
    readIdleFor(ms: number) {
      idleMs = ms;
      ahead?.leave();
    },
  });
}

// The HTTP/1 server must be the one that listens: Node.js starts its check of slow heads only there.
function listenerFor(limits: PortLimits): http.Server | https.Server {
  // The check runs at intervals; subtracting one ensures that a head never takes longer than the limit.
  const interval = Math.min(1000, Math.ceil(limits.headersTimeoutMs / 10));
  const headersTimeout = limits.headersTimeoutMs - interval;
  const options = {
    connectionsCheckingInterval: interval,
    headersTimeout,
    requestTimeout: Math.max(limits.requestTimeoutMs, headersTimeout),
    keepAliveTimeout: limits.idleTimeoutMs,
    maxHeaderSize: limits.maxHeaderSize,
    IncomingMessage: OwnedRequest,
    ServerResponse: OwnedResponse,
    shouldUpgradeCallback: (request: http.IncomingMessage) => limits.upgrade?.wants(request) === true,
    requireHostHeader: false, // checked with the rest of the head, for an answer in the gateway's form
    noDelay: true,
    keepAlive: true,
  };
  const server =
    limits.tls === undefined
      ? http.createServer(options)
      : https.createServer({
          ...options,
          ...limits.tls,
          ALPNProtocols: ["h2", "http/1.1"],
          handshakeTimeout: limits.headersTimeoutMs,
        });
  // Node.js would silently drop headers above its count and hide them from validation; their size is limited anyway.
  server.maxHeadersCount = 0;
  return server;
}

/** Removes the listener that Node's server has for new connections, and returns it. */
function takeListener(server: http.Server | https.Server, event: string): (socket: Socket) => void {
  const [own] = server.listeners(event) as ((socket: Socket) => void)[]; // sound: Node's own, asserted next
  if (own === undefined) throw new Error(`this Node serves HTTP/1 without a "${event}" listener`);
  server.removeAllListeners(event);
  return own.bind(server);
}

/** Calls `then` when the first bytes have arrived, with the socket paused and the bytes unshifted; destroys a socket that is silent for longer. */
function onFirstBytes(socket: Socket, silentMs: number, then: () => void): void {
  const heard = after(silentMs, () => socket.destroy());
  const leave = (): unknown => socket.destroy();
  socket.once("close", heard).on("end", leave);
  socket.once("data", (chunk: Buffer) => {
    heard();
    socket.off("close", heard).off("end", leave);
    socket.pause();
    socket.unshift(chunk);
    then();
  });
}

/** The HTTP/2 connection preface. */
const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");

/**
 * Reads `socket` until its bytes match the HTTP/2 preface (RFC 9113 section 3.4) or differ from it, unshifts them all, and calls `tell` with
 * the socket paused. A client that disconnects earlier is destroyed; the caller times out a silent one.
 */
function detectProtocol(socket: Socket, tell: (protocol: "http1" | "http2") => void): void {
  let got: Buffer = Buffer.alloc(0);
  const leave = (): unknown => socket.destroy();
  const read = (chunk: Buffer): void => {
    got = got.length === 0 ? chunk : Buffer.concat([got, chunk]);
    const length = Math.min(got.length, PREFACE.length);
    const same = got.compare(PREFACE, 0, length, 0, length) === 0;
    if (same && length < PREFACE.length) return;
    socket.off("data", read).off("end", leave);
    socket.pause();
    socket.unshift(got);
    tell(same ? "http2" : "http1");
  };
  socket.on("data", read).on("end", leave);
}
