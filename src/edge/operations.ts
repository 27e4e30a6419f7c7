/**
 * The operations port: health, readiness, metrics and emergency stops over HTTP/1.1, on a listener of its own with small limits. Its
 * connections are not counted against those of the port for calls, and nothing is refused here for overload. It shares the event loop with
 * the calls, so health gets no answer while that loop is blocked.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer, Server as TlsServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { OperationsService } from "../../gen/limber/v1/operations_service_pb.ts";
import { RobotService } from "../../gen/limber/v1/robot_service_pb.ts";
import { after, every } from "../clock.ts";
import { Reason, refuse } from "../errors.ts";
import { newId } from "../ids.ts";
import { tooLarge } from "./messages/bounds.ts";
import { type MetricsAccess, writeMetrics } from "./metrics.ts";
import { absorbErrors, OwnedRequest, OwnedResponse } from "./server/owned.ts";
import { type RestOptions, RestTransport, refuseRequest } from "./transports/rest/rest.ts";
import type { RestRoute } from "./transports/rest/routes.ts";

/** The dependencies of the operations port. */
interface OperationsOptions extends RestOptions {
  readonly metrics: MetricsAccess;
  /** Returns whether calls are queued. */
  isBusy(): boolean;
  readonly host: string;
  /** 0 selects a free port. */
  readonly port: number;
  /** The certificate and key, in PEM; in cleartext when absent. */
  readonly tls?: { readonly cert: Buffer; readonly key: Buffer } | undefined;
}

/** The operations port, listening. */
interface OperationsListener {
  readonly port: number;
  /** Serves new connections under this certificate; only if it has one. Throws if it is not a certificate and its key. */
  renew(tls: { readonly cert: Buffer; readonly key: Buffer }): void;
  /** Accepts no new connection and ends the open ones, each after its answer or after a second. */
  close(): Promise<void>;
}

/** Probes, scrapers and emergency stops are few. Further connections are closed at once. */
const MOST_CONNECTIONS = 1_000;
/** Requests that a connection may send before the first is answered. */
const MOST_PIPELINED = 4;
/** The largest body. An emergency stop has a few hundred bytes. */
const MOST_BYTES = 16 << 10;
/** How long a request may take to arrive, and a connection may be idle, in milliseconds. */
const REQUEST_MS = 10_000;
const IDLE_MS = 60_000;
/** The event loop is saturated if it was idle for less than this in the last period, in milliseconds. */
const SATURATED = { utilization: 0.8, periodMs: 500 };
/** How long running responses have when the listener closes. */
const CLOSE_MS = 1_000;

const METRICS = "/metrics";
const { getHealth, getReadiness } = OperationsService.method;
const SERVED = new Set([getHealth, getReadiness, RobotService.method.stopRobots].map(({ name }) => name));

/** Listens. Rejects with the system's error. */
export async function serveOperations(options: OperationsOptions): Promise<OperationsListener> {
  const transport = new RestTransport([OperationsService, RobotService], options);
  const routes = new Map(
    transport.routes.filter(({ method }) => SERVED.has(method.name)).map((route) => [route.template, route]),
  );
  let isSaturated = false;
  // A stop then skips optional waits: its write takes several turns of the loop.
  const isUrgent = (): boolean => isSaturated || options.isBusy();
  const unanswered = new WeakMap<Socket, number>();
  const server = serverOf(options, (request, response) => {
    const { socket } = request;
    const count = (unanswered.get(socket) ?? 0) + 1;
    unanswered.set(socket, count);
    if (count > MOST_PIPELINED) {
      socket.destroy();
      return;
    }
    response.once("close", () => unanswered.set(socket, (unanswered.get(socket) ?? 1) - 1));
    void answer(request, response, { transport, routes, metrics: options.metrics, isUrgent });
  });
  server.maxConnections = MOST_CONNECTIONS;
  server.on("connection", absorbErrors).on("secureConnection", absorbErrors);
  server.on("clientError", (_, socket) => void socket.destroy());
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host: options.host, port: options.port, exclusive: true }, () => {
      server.off("error", reject).on("error", () => undefined);
      resolve();
    });
  });
  let before = performance.eventLoopUtilization();
  const rest = every(SATURATED.periodMs, () => {
    const now = performance.eventLoopUtilization();
    isSaturated = performance.eventLoopUtilization(now, before).utilization > SATURATED.utilization;
    before = now;
  });
  return {
    port: (server.address() as AddressInfo).port, // it listens at a port
    renew(tls) {
      if (server instanceof TlsServer) server.setSecureContext({ ...tls });
    },
    close: () =>
      new Promise((resolve) => {
        const forget = after(CLOSE_MS, () => server.closeAllConnections());
        server.close(() => {
          rest();
          forget();
          resolve();
        });
      }),
  };
}

function serverOf(
  { tls }: OperationsOptions,
  serve: (request: IncomingMessage, response: ServerResponse) => void,
): Server | TlsServer {
  const limits = {
    headersTimeout: REQUEST_MS,
    requestTimeout: REQUEST_MS,
    connectionsCheckingInterval: 1_000,
    keepAliveTimeout: IDLE_MS,
    maxHeaderSize: 16 << 10,
    IncomingMessage: OwnedRequest,
    ServerResponse: OwnedResponse,
    noDelay: true,
  };
  return tls === undefined
    ? createServer(limits, serve)
    : createTlsServer({ ...limits, ...tls, handshakeTimeout: REQUEST_MS }, serve);
}

/** Responds to a request. */
async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  {
    transport,
    routes,
    metrics,
    isUrgent,
  }: {
    transport: RestTransport;
    routes: ReadonlyMap<string, RestRoute>;
    metrics: MetricsAccess;
    isUrgent(): boolean;
  },
): Promise<void> {
  const { method, url = "", socket } = request;
  const body = await bodyOf(request);
  if (body === undefined) response.shouldKeepAlive = false;
  if (response.destroyed) return;
  const [path = ""] = url.split("?", 1);
  const route = routes.get(path);
  const served = path === METRICS ? "GET" : route?.verb;
  if (served === undefined) {
    const here = [...routes.keys(), METRICS].join(", ");
    refuseRequest(response, refuse(Reason.NOT_FOUND, `this port serves only operations: ${here}`), newId("req"));
  } else if ((method === "HEAD" ? "GET" : method) !== served) {
    const allow = served === "GET" ? "GET, HEAD" : served;
    const refusal = refuse(Reason.METHOD_NOT_ALLOWED, `this path accepts only ${allow}`);
    refuseRequest(response, refusal, newId("req"), { headers: ["allow", allow] });
  } else if (body === undefined) refuseRequest(response, tooLarge(MOST_BYTES), newId("req"));
  else if (route === undefined) writeMetrics(response, request.headers, metrics);
  else {
    const headers = Object.fromEntries(
      Object.entries(request.headers).filter((entry): entry is [string, string] => typeof entry[1] === "string"),
    );
    const verb = served === "POST" ? "POST" : "GET";
    await transport.answer(route, {}, { method: verb, url, headers, socket, body, isUrgent: isUrgent() }, response);
  }
}

/** Reads a body; undefined if it is too large. Resolves with what arrived if the caller disconnects before its end. */
function bodyOf(request: IncomingMessage): Promise<Buffer | undefined> {
  if (Number(request.headers["content-length"] ?? 0) > MOST_BYTES) {
    // The body is read and dropped: closing a connection with unread bytes resets it before the response is read.
    request.resume();
    return Promise.resolve(undefined);
  }
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let size = 0;
    request.on("data", (chunk: Buffer) => {
      size += chunk.length;
      if (size <= MOST_BYTES) chunks.push(chunk);
      else resolve(undefined);
    });
    request.once("close", () => resolve(Buffer.concat(chunks))).once("end", () => resolve(Buffer.concat(chunks)));
  });
}
