/** The edge server: every transport on one port. */
import cluster from "node:cluster";
import { type EventEmitter, setMaxListeners } from "node:events";
import type { ServerResponse } from "node:http";
import type { Http2ServerResponse } from "node:http2";
import { createServer as createListener, isIP, type Server } from "node:net";
import type { DescService } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { FastifyInstance, FastifyReply, FastifyRequest, FastifyServerFactory } from "fastify";
import Fastify from "fastify";
import { API_VERSION, BRAND } from "../brand.ts";
import { after } from "../clock.ts";
import { samplePictures } from "../codecs/pictures/samples.ts";
import { asRefusal, Reason, type Refusal, refuse } from "../errors.ts";
import { newId } from "../ids.ts";
import { BodyMemory } from "./body-memory.ts";
import type { CallLog } from "./call-log.ts";
import { serveConsole } from "./console.ts";
import { serveDocs } from "./docs-pages.ts";
import type { Gate } from "./gate/gate.ts";
import { wireBody } from "./messages/errors.ts";
import { nearest } from "./messages/json-text.ts";
import { warmUp } from "./messages/validate.ts";
import { type MetricsAccess, serveMetrics } from "./metrics.ts";
import { onePort, type Port, type PortHandler, type PortOptions } from "./server/port.ts";
import { serveSignIn } from "./sign-in.ts";
import { serveConnect } from "./transports/connect/connect.ts";
import type { Readiness } from "./transports/connect/standard-services.ts";
import { grpcStreams } from "./transports/grpc/grpc.ts";
import { grpcTrailersOf } from "./transports/grpc/status.ts";
import { MCP_PATH, serveMcp } from "./transports/mcp.ts";
import { openpiTransport } from "./transports/openpi/openpi.ts";
import { RestTransport, refuseRequest, serveRest } from "./transports/rest/rest.ts";
import { dialectAt, routesOf } from "./transports/rest/routes.ts";

/** The dependencies of the edge. */
interface ServerOptions {
  /** The services, in the order of the documentation. */
  readonly services: readonly DescService[];
  readonly gate: Gate;
  readonly readiness: Readiness;
  readonly log: CallLog;
  /** Counts the memory of request bodies; with the default limits if absent. */
  readonly memory?: BodyMemory;
  /** Serves `/metrics`; path not found if undefined. */
  readonly metrics?: MetricsAccess;
  /** The gateway's public URL, for its documents. */
  readonly publicUrl?: string | undefined;
  /** An address without a proxy timeout, for the OpenAPI document. */
  readonly directUrl?: string | undefined;
  /** Aborted to end running calls; `drain` aborts it after `patienceMs`. */
  readonly closing?: AbortController;
  /** The port's limits, its certificate, and handlers in front of Node's servers. */
  readonly port?: PortOptions;
  /** The browser origins that can read responses; none if absent. */
  readonly corsOrigins?: ReadonlySet<string>;
}

/** The edge, not yet listening. */
export interface EdgeServer {
  readonly fastify: FastifyInstance;
  /** Listens; resolves with the port number, a free one for 0. */
  listen(host: string, port: number): Promise<number>;
  /** Returns the number of open connections. */
  connections(): Promise<number>;
  /** Stops accepting connections, so that other processes on the port get them. */
  refuseConnections(): void;
  /** Replaces the certificate for new connections; only if the port has one. */
  renew(tls: { readonly cert: Buffer; readonly key: Buffer }): void;
  /** Asks every client to use another connection for its next request. Everything is still served. */
  leave(): void;
  /**
   * Accepts no new connections, waits for running calls up to `patienceMs`, or until shortly after `enough` resolves, then ends them. Resolves
   * when all have ended. Idle connections stay open for `idleMs`, and close with their next response.
   */
  drain(patienceMs: number, enough?: Promise<unknown>, idleMs?: number): Promise<void>;
}

/** How long ended calls have for their last response, in milliseconds. */
const LAST_WORDS_MS = 1000;
/** How long responses have to be written after the wait for calls has ended. */
const WRITTEN_MS = 100;

/** Builds the edge over a gate: REST, Connect, gRPC, gRPC-Web, health, reflection and the documentation. */
export function buildServer(options: ServerOptions): EdgeServer {
  const closing = options.closing ?? new AbortController();
  // Every running call has a listener.
  setMaxListeners(0, closing.signal);
  const unreadable = (request: FastifyRequest, reply: FastifyReply): void =>
    answerAny(request, reply, refuse(Reason.MALFORMED_BODY, "the `Host` header is missing"));
  const transports = {
    unreadable,
    gate: options.gate,
    readiness: options.readiness,
    log: options.log,
    memory: options.memory ?? new BodyMemory(),
    address: { publicUrl: options.publicUrl, isTls: options.port?.tls !== undefined },
    closing: closing.signal,
  };
  warmUp(options.services.flatMap(({ methods }) => methods.map(({ input }) => input)));
  const rest = new RestTransport(options.services, transports);
  const endless = new Set<string>();
  let port: Port | undefined;
  const streams = grpcStreams(transports);
  const open = portFactory(rest, endless, { upgrade: openpiTransport(transports), streams, ...options.port });
  const fastify = Fastify({
    serverFactory: (handler) => {
      port = open(handler);
      return port;
    },
    forceCloseConnections: "idle",
    return503OnClosing: false,
    routerOptions: { maxParamLength: MAX_PARAMETER },
    // The port responds to invalid HTTP, after pending responses.
    clientErrorHandler: () => undefined,
    frameworkErrors: (_, request, reply) => noSuchPath(request, reply),
  });
  fastify.addHook("onSend", async (_, reply) => void reply.header("x-request-id", newId("req")));
  serveCors(fastify, options.corsOrigins ?? new Set());
  leaveBodiesAlone(fastify);
  const known = knownPaths(options.services);
  fastify.setNotFoundHandler((request, reply) => noSuchPath(request, reply, known));
  fastify.setErrorHandler((error, request, reply) => answerAny(request, reply, frameworkRefusal(error)));
  const signInPage = serveConsole(fastify, WELCOME);
  serveDocs(fastify, options);
  if (options.metrics) serveMetrics(fastify, options.metrics);
  serveSignIn(fastify, { ...transports, page: signInPage });
  serveRest(fastify, rest);
  const { services, publicUrl, corsOrigins } = options;
  serveMcp(fastify, { ...transports, services, publicUrl, corsOrigins });
  serveConnect(fastify, options.services, { ...transports, endless: (path) => endless.add(path) });

  const more: Server[] = [];
  let ended: Promise<unknown> = Promise.resolve();
  fastify.addHook("preClose", async () => {
    ended = Promise.all(more.map((listener) => new Promise((resolve) => listener.close(resolve))));
  });
  // Each listener knows only the connections that it accepted.
  fastify.addHook("onClose", () => ended);

  return {
    fastify,
    async listen(host, port) {
      const shares = canShare(host);
      if (shares && port !== 0) await assertFree(host, port);
      await fastify.listen({ host, port, ...(shares && { reusePort: true, backlog: BACKLOG }) });
      const address = fastify.server.address();
      if (address === null || typeof address === "string") throw new Error("the server listens on no port");
      if (shares) more.push(...(await listenMore(fastify.server, host, address.port)));
      return address.port;
    },
    connections() {
      return new Promise((resolve) => fastify.server.getConnections((_, count = 0) => resolve(count)));
    },
    refuseConnections() {
      // node:cluster offers a connection that is refused for this reason to another process.
      fastify.server.maxConnections = 0;
    },
    renew(tls) {
      if (port !== undefined && "setSecureContext" in port) port.setSecureContext({ ...tls });
    },
    leave() {
      port?.leave();
    },
    async drain(patienceMs, enough, idleMs = 0) {
      const reason = new ConnectError("the gateway is shutting down; retry on another connection", Code.Unavailable);
      const timers: (() => void)[] = [];
      let closed = false;
      const endAfter = (ms: number): void => {
        if (closed) return;
        timers.push(after(ms, () => closing.abort(reason)));
        timers.push(after(ms + LAST_WORDS_MS, () => fastify.server.closeAllConnections()));
      };
      endAfter(patienceMs);
      void enough?.then(() => endAfter(WRITTEN_MS));
      port?.readIdleFor(idleMs);
      await fastify.close();
      closed = true;
      for (const forget of timers) forget();
    },
  };
}

/**
 * The kernel gives each listener one new connection per event loop turn: with a single listener, a health check would wait behind hundreds of
 * new connections. So 32 listen on one port, and Linux distributes connections among them.
 */
const MORE_LISTENERS = 31;
/**
 * Connections that wait in the kernel for each listener. Longer queues are full of callers who gave up. A connection that finds its queue full dials
 * again after a second.
 */
const BACKLOG = 64;

/** Whether several can listen on one port. `localhost` may be two addresses; a worker's port belongs to its primary. */
const canShare = (host: string): boolean => process.platform === "linux" && isIP(host) !== 0 && !cluster.isWorker;

/** Fails if another process listens: a shared port would be shared with it, too. */
function assertFree(host: string, port: number): Promise<void> {
  const probe = createListener();
  return new Promise((resolve, reject) => {
    probe.once("error", reject);
    probe.listen({ host, port, exclusive: true }, () => probe.close(() => resolve()));
  });
}

/** Further listeners on a server's port, which pass their connections to it. */
function listenMore(server: EventEmitter, host: string, port: number): Promise<Server[]> {
  const options = { allowHalfOpen: true, noDelay: true, keepAlive: true };
  const listeners = Array.from({ length: MORE_LISTENERS }, () =>
    createListener(options, (socket) => void server.emit("connection", socket)),
  );
  const listening = listeners.map(
    (listener) =>
      new Promise<Server>((resolve, reject) => {
        listener.once("error", reject);
        // An error while accepting a connection belongs to no call.
        listener.on("listening", () => listener.on("error", () => undefined));
        listener.listen({ host, port, reusePort: true, exclusive: true, backlog: BACKLOG }, () => resolve(listener));
      }),
  );
  return Promise.all(listening);
}

const WELCOME = JSON.stringify({ name: BRAND, version: API_VERSION, docs: "/docs", openapi: "/openapi.json" });

/** The longest path parameter: the longest name in the schema, percent-encoded. */
const MAX_PARAMETER = 1024;

function portFactory(
  rest: RestTransport,
  endless: ReadonlySet<string>,
  port: PortOptions | undefined,
): (handler: Parameters<FastifyServerFactory>[0]) => Port {
  return (handler) => {
    // Fastify's type for the handler knows HTTP/1 only; it serves both, as its own `http2` option shows.
    const route = handler as PortHandler;
    const defaults = { refusal: wireBody, whole: rest, endless: (path: string) => endless.has(path) };
    return onePort(route, { ...defaults, ...port });
  };
}

/** Only the transport that knows the body's type reads it. */
function leaveBodiesAlone(fastify: FastifyInstance): void {
  fastify.removeAllContentTypeParsers();
  fastify.addContentTypeParser("*", (_request, _payload, done) => done(null, undefined));
}

const GRPC = /^application\/grpc/;

function noSuchPath(request: FastifyRequest, reply: FastifyReply, known: readonly string[] = []): void {
  const reason = isGrpc(request) ? Reason.METHOD_NOT_ALLOWED : Reason.NOT_FOUND;
  const [path = ""] = request.url.split("?", 1);
  const meant = isGrpc(request) ? undefined : nearest(path, known);
  const text = isGrpc(request) ? "method not found" : "path not found";
  answerAny(request, reply, refuse(reason, meant === undefined ? text : `${text}; did you mean ${meant}?`));
}

/** Paths without parameters, for suggestions. */
const knownPaths = (services: readonly DescService[]): readonly string[] => [
  ...new Set(routesOf(services).map(({ template }) => template)),
  "/docs",
  "/docs/errors",
  "/openapi.json",
  ...samplePictures.keys(),
  MCP_PATH,
];

const isGrpc = (request: FastifyRequest): boolean => GRPC.test(request.headers["content-type"] ?? "");

/** Responds to requests that no transport serves. A gRPC client cannot read JSON, so it gets trailers only. */
function answerAny(request: FastifyRequest, reply: FastifyReply, refusal: Refusal): void {
  reply.hijack();
  const requestId = newId("req");
  if (!isGrpc(request)) {
    refuseRequest(reply.raw, refusal, requestId, { dialect: dialectAt(request.url) });
    return;
  }
  const head = { "content-type": request.headers["content-type"], "x-request-id": requestId };
  const trailers = { ...head, ...grpcTrailersOf(refusal, requestId) };
  // Fastify's type knows HTTP/1 only.
  const raw = reply.raw as ServerResponse | Http2ServerResponse;
  // Over HTTP/2, the header frame itself must end the stream, or clients do not treat it as trailers.
  if ("stream" in raw) raw.stream.respond({ ":status": 200, ...trailers }, { endStream: true });
  else raw.writeHead(200, trailers).end();
}

function frameworkRefusal(error: unknown): Refusal {
  const status = typeof error === "object" && error !== null && "statusCode" in error ? error.statusCode : undefined;
  if (status === 415) return refuse(Reason.UNSUPPORTED_MEDIA_TYPE, "unsupported content type", {}, { cause: error });
  if (status === 400) return refuse(Reason.MALFORMED_BODY, "malformed request", {}, { cause: error });
  return asRefusal(error);
}

/** Response headers that pages can read, in addition to the safelisted ones. No cookies are sent, so `*` stands for all. */
const EXPOSED = "*";
/** Request headers that pages can send: `*` stands for all but this one. */
const ACCEPTED = "authorization, *";
const METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE";
/** How long a browser caches the preflight response, in seconds. */
const REMEMBERED_S = "600";

/** Handles CORS, including preflight requests, for these origins. Does nothing for others. */
function serveCors(fastify: FastifyInstance, origins: ReadonlySet<string>): void {
  if (origins.size === 0) return;
  fastify.addHook("onRequest", async ({ raw: { method, headers } }, reply) => {
    const { raw } = reply;
    // A cached response for one origin must not be used for another.
    raw.setHeader("vary", "origin");
    const { origin } = headers;
    if (origin === undefined || !origins.has(origin)) return;
    raw.setHeader("access-control-allow-origin", origin);
    raw.setHeader("access-control-expose-headers", EXPOSED);
    if (method !== "OPTIONS" || headers["access-control-request-method"] === undefined) return;
    reply.hijack();
    raw.setHeader("access-control-allow-methods", METHODS);
    raw.setHeader("access-control-allow-headers", ACCEPTED);
    raw.setHeader("access-control-max-age", REMEMBERED_S);
    raw.writeHead(204).end();
  });
}
