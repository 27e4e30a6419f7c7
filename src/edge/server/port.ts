/** One port for everything: HTTP/1.1, HTTP/2 with prior knowledge, and both over TLS, behind one server for Fastify. */
import * as http from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import * as https from "node:https";
import type { Socket } from "node:net";
import { after } from "../../clock.ts";
import { http1Side } from "./http1.ts";
import { type BudgetOptions, nodeHttp2, type StreamServer } from "./http2.ts";
import { plainHttp1 } from "./plain-http1.ts";
import { Penalties, Slots } from "./slots.ts";
import type { UpgradeTaker, WholeRequestHandler } from "./whole-requests.ts";
import { absorbErrors, OwnedRequest, OwnedResponse, type RefusalBody } from "./wire-faults.ts";

/** What answers a request of either protocol, as Fastify and Connect provide it. */
export type PortHandler = (
  request: http.IncomingMessage | Http2ServerRequest,
  response: http.ServerResponse | Http2ServerResponse,
) => void;

/** The port's limits and extension points; sizes in bytes, times in milliseconds. */
export interface PortOptions {
  /** The certificate and key, in PEM, that put the whole port under TLS; in cleartext when absent. */
  readonly tls?: { readonly key: string | Buffer; readonly cert: string | Buffer };
  /** Returns plain HTTP/1 requests, which then bypass node:http; absent: node:http reads every request. */
  readonly whole?: WholeRequestHandler | undefined;
  /** Serves HTTP/2 streams before the compatibility layer does. */
  readonly streams?: StreamServer | undefined;
  /** Takes over the HTTP/1 connections of requests that ask for another protocol and that it wants. */
  readonly upgrade?: UpgradeTaker;
  /** Makes the JSON body of what is refused at this level. */
  readonly refusal?: RefusalBody;
  /** How long a connection's greeting and each later HTTP/1 head may take, the TLS handshake apart. */
  readonly headersTimeoutMs?: number;
  /** How long a whole request may take to arrive, on either protocol. */
  readonly requestTimeoutMs?: number;
  /** Whether HTTP/2 requests for this path may go on for as long as they like, as conversations do. */
  readonly endless?: (path: string) => boolean;
  /** How long a connection may rest between requests; HTTP/2 sessions end between one and two of these. */
  readonly idleTimeoutMs?: number;
  /** How long a peer has to close its side after ours. */
  readonly lingerMs?: number;
  /** The most bytes of one request's headers, on either protocol. */
  readonly maxHeaderSize?: number;
  /** The most concurrent streams of one HTTP/2 session. */
  readonly maxSessionStreams?: number;
  /** The flow-control window of each HTTP/2 stream. */
  readonly streamWindow?: number;
  /** The flow-control window of each HTTP/2 session. */
  readonly sessionWindow?: number;
  /** How many HTTP/2 frames that only cost (resets before an answer, pings, settings) a session may send. */
  readonly patience?: BudgetOptions;
  /** What an address is charged as for connections that were cut off; undefined for one that all callers share, such as a trusted proxy's. */
  readonly chargedAs?: (address: string) => string | undefined;
  /** The most connections at once. Beyond, a new one replaces one that has shown no key, or is closed where there is none. Unbounded when absent. */
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
   * Tells every peer, with its next answer, to send its next request on another connection. New connections and requests are served
   * as before.
   */
  leave(): void;
  /** From now on closing the port reads idle connections for so long, and ends each behind the answer to its next request. */
  readIdleFor(ms: number): void;
};

/** How long a connection without a byte is kept when the port closes, in milliseconds: its first request may be coming. */
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
  const [attach] = server.listeners(opened) as ((socket: Socket) => void)[]; // sound: Node's own, asserted next
  if (attach === undefined) throw new Error(`this Node serves HTTP/1 without a "${opened}" listener`);
  server.removeAllListeners(opened);

  const http1 = http1Side(server, attach.bind(server), handler, limits);
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
    // Not `once`, of what comes once by nature: it would keep three objects more for each connection.
    socket.on("close", () => sockets.delete(socket));
  });

  const begin = (socket: Socket): void => {
    const greeted = after(limits.headersTimeoutMs, () => http1.expire(socket) || socket.destroy());
    socket.on("close", () => {
      greeted();
      undecided.delete(socket);
    });
    // A peer that never closes its side would hold the connection, and `close`, for ever.
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
    // Under TLS it is another socket than the one that was accepted.
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

  // The server closes before the connections that other listeners on its port gave it.
  const onceGone = (forget: () => void): void => {
    server.once("close", () => {
      if (sockets.size === 0) forget();
    });
  };
  const closeIdle = server.closeIdleConnections.bind(server);
  let idleMs = 0;
  /** Ends idle HTTP/1 connections: now, or once they were read for so long, and behind what has arrived until then. */
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
    // Node's own watch over slow heads ends with `close`, so the last of them are ended here.
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

// The HTTP/1 server has to be the one that listens: Node starts its watch over slow heads nowhere else.
function listenerFor(limits: PortLimits): http.Server | https.Server {
  // The watch looks in intervals; taking one off the limit keeps the promise that a head never takes longer.
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
  // Node would drop the headers past its count in silence, and hide them from the checks; their size is bounded anyway.
  server.maxHeadersCount = 0;
  return server;
}

/** What a client of HTTP/2 says first. */
const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");

/**
 * Reads `socket` until its bytes match the HTTP/2 preface (RFC 9113 section 3.4) or differ from it, gives them all back
 * and calls `tell`, with the socket paused. A peer that leaves before either is destroyed; a silent one is the caller's
 * to time out.
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
