/**
 * The listener for operations: health, readiness, metrics and emergency stops over HTTP/1.1 on a port of its own. Its connections are
 * accepted from a queue that no flood of calls fills, and are not counted against those of the port for calls.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer, type Server as TlsServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { OperationsService } from "../../gen/limber/v1/operations_service_pb.ts";
import { RobotService } from "../../gen/limber/v1/robot_service_pb.ts";
import { after } from "../clock.ts";
import { Reason, refuse } from "../errors.ts";
import { newId } from "../ids.ts";
import { type MetricsAccess, sayMetrics } from "./metrics.ts";
import { hearErrors, OwnedRequest, OwnedResponse } from "./server/error-listeners.ts";
import { hand, listenHanded } from "./server/handed.ts";
import { type RestOptions, RestTransport, refuseRequest } from "./transports/rest/rest.ts";
import type { RestRoute } from "./transports/rest/route.ts";

/** What the listener needs. */
export interface OperationsOptions extends RestOptions {
  readonly metrics: MetricsAccess;
  readonly host: string;
  /** 0 picks a free one. */
  readonly port: number;
  /** The certificate and key, in PEM; in cleartext when absent. */
  readonly tls?: { readonly key: Buffer; readonly cert: Buffer } | undefined;
  /** Another process listens at the port, and hands connections over. */
  readonly isHanded?: boolean;
}

/** The listener, listening. */
export interface OperationsListener {
  readonly port: number;
  /** Serves a connection that another process accepted. */
  take(socket: Socket): void;
  /** Serves new connections under this certificate; only where it has one. */
  renew(tls: { readonly cert: Buffer; readonly key: Buffer }): void;
  /** Takes no new connection and ends those that there are, each after its answer or after a second. */
  close(): Promise<void>;
}

/** Probes, scrapers and emergency stops are few. Further connections are closed at once. */
const MOST_CONNECTIONS = 1_000;
/** How long a request may take to come, and a connection may rest between two, in milliseconds. */
const REQUEST_MS = 10_000;
const IDLE_MS = 60_000;
/** How long running answers have when the listener closes. */
const CLOSE_MS = 1_000;

const SERVED = new Set(
  [OperationsService.method.getHealth, OperationsService.method.getReadiness, RobotService.method.stopRobots].map(
    ({ name }) => name,
  ),
);
const METRICS = "/metrics";

/** Listens. */
export async function serveOperations(options: OperationsOptions): Promise<OperationsListener> {
  const transport = new RestTransport([OperationsService, RobotService], options);
  const routes = new Map<string, RestRoute>();
  for (const route of transport.routes) if (SERVED.has(route.method.name)) routes.set(route.template, route);

  const answer = (request: IncomingMessage, response: ServerResponse): void => {
    const [path = ""] = (request.url ?? "").split("?", 1);
    const route = routes.get(path);
    const verb = request.method === "HEAD" ? "GET" : request.method;
    const served = path === METRICS ? "GET" : route?.verb;
    if (served === undefined) {
      refuseRequest(
        response,
        refuse(Reason.NOT_FOUND, `${NOT_HERE} ${[...routes.keys(), METRICS].join(", ")}`),
        newId("req"),
      );
    } else if (verb !== served) {
      const allow = served === "GET" ? "GET, HEAD" : served;
      const refusal = refuse(Reason.METHOD_NOT_ALLOWED, `this path takes ${allow}`);
      refuseRequest(response, refusal, newId("req"), { headers: ["allow", allow] });
    } else if (route === undefined) sayMetrics(response, request.headers, options.metrics);
    else void transport.answer(route, {}, request, response);
  };

  const server = serverOf(options, answer);
  const sockets = new Set<Socket>();
  server.maxConnections = MOST_CONNECTIONS;
  server.on("connection", (socket: Socket) => {
    hearErrors(socket);
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  server.on("secureConnection", hearErrors);
  server.on("clientError", (_, socket) => void socket.destroy());
  if (options.isHanded) await listenHanded(server);
  else
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen({ host: options.host, port: options.port, exclusive: true }, () => {
        server.off("error", reject).on("error", () => undefined);
        resolve();
      });
    });
  const { port = options.port } = server.address() as Partial<AddressInfo>; // a string where the server is handed its connections
  return {
    port,
    renew: (tls) => {
      if ("setSecureContext" in server) (server as TlsServer).setSecureContext({ ...tls });
    },
    take: (socket) => {
      if (server.listening && sockets.size < MOST_CONNECTIONS) hand(server, socket);
      else socket.destroy();
    },
    close: () =>
      new Promise((resolve) => {
        const forget = after(CLOSE_MS, () => {
          for (const socket of sockets) socket.destroy();
        });
        server.close(() => {
          forget();
          resolve();
        });
        server.closeIdleConnections();
      }),
  };
}

const NOT_HERE = "this port serves operations alone:";

function serverOf(
  { tls }: OperationsOptions,
  answer: (request: IncomingMessage, response: ServerResponse) => void,
): Server {
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
    ? createServer(limits, answer)
    : createTlsServer({ ...limits, ...tls, handshakeTimeout: REQUEST_MS }, answer);
}
