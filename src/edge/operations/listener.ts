/**
 * The listener for operations: its sockets, TLS and HTTP/1.1. It reads requests whole and asks the event loop that serves calls, over a
 * message port. Health, readiness and metrics are answered from memory where that loop is late. This file imports nothing that takes time to
 * load, for it may run in a thread of its own.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer, type Server as TlsServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import type { MessagePort } from "node:worker_threads";
import { after, every, steadyNow } from "../../clock.ts";
import { newId } from "../../ids.ts";
import { hearErrors, OwnedRequest, OwnedResponse } from "../server/error-listeners.ts";
import { hand, listenHanded } from "../server/handed.ts";
import { LOOK_MS, LoopWatch } from "./loop-watch.ts";
import {
  hearWaiting,
  ID_MARK,
  type LinkedRequest,
  type ListenerSetup,
  type LoopState,
  type MadeAnswer,
  MOST_BYTES,
  type RememberedRoute,
  type ToListener,
  type ToLoop,
} from "./messages.ts";
import { scraperOf } from "./scraper.ts";

/** A listener in the thread that began it. */
export interface Listener {
  /** Serves a connection that another process accepted. */
  take(socket: Socket): void;
}

/** Probes, scrapers and emergency stops are few. Further connections are closed at once. */
const MOST_CONNECTIONS = 1_000;
/** No caller of these sends many requests before it has the answer to the first. */
const MOST_PIPELINED = 4;
/** How long a request may take to come, and a connection may rest between two, in milliseconds. */
const REQUEST_MS = 10_000;
const IDLE_MS = 60_000;
/** How long running answers have when the listener closes. */
export const CLOSE_MS = 1_000;
/** Requests that the event loop has not answered yet. */
const MOST_ASKED = 4_096;

/** How long the event loop is waited for where memory can answer, in milliseconds. Metrics take it a while to write. */
const PATIENCE_MS = { health: 8, readiness: 8, metrics: 40 } as const;
/** An event loop that is silent for so long is not ready, and does not live: longer than a quota or a collection holds it. */
const NOT_READY_MS = 3_000;
const DEAD_MS = 10_000;
/** No answer takes longer. */
const LAST_MS = 10_000;
/** Metrics are remembered for so long; where the event loop is late they are renewed this often, while somebody asks for them. */
const METRICS_MS = 60_000;
const RENEW_METRICS_MS = 5_000;
const SCRAPED_MS = 300_000;

/** Listens as `setup` says, and tells so; what can't be listened at is told too. Answers until it is told to close. */
export async function listen(setup: ListenerSetup, port: MessagePort): Promise<Listener> {
  const listener = new OperationsServer(setup, port);
  await listener.listen();
  return listener;
}

/** A request whose answer is due. */
interface AskedRequest {
  /** Gone once it was answered, from memory or not. */
  response: ServerResponse | undefined;
  readonly requestId: string;
  readonly isMetrics: boolean;
  forget: () => void;
}

class OperationsServer implements Listener {
  readonly #setup: ListenerSetup;
  readonly #port: MessagePort;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #watch: LoopWatch;
  readonly #rest: () => void;
  readonly #asked = new Map<number, AskedRequest>();
  readonly #routes: ReadonlyMap<string, RememberedRoute>;
  /** Requests of a connection that are not answered. */
  readonly #pipelined = new WeakMap<Socket, number>();
  #state: LoopState | undefined;
  #metrics: { readonly answer: MadeAnswer; readonly at: number } | undefined;
  #isMeasuring = false;
  #scrapedAt = Number.NEGATIVE_INFINITY;
  #nextId = 1;
  #isClosing = false;

  constructor(setup: ListenerSetup, port: MessagePort) {
    this.#setup = setup;
    this.#port = port;
    this.#routes = new Map(Object.entries(setup.paths).map(([route, path]) => [path, route as RememberedRoute]));
    this.#server = serverOf(setup, (request, response) => this.#serve(request, response));
    port.on("message", this.#hear);
    this.#watch = new LoopWatch(() => this.#tell({ kind: "ping" }));
    this.#rest = every(LOOK_MS, () => this.#renewMetrics());
  }

  async listen(): Promise<void> {
    const { host, port, isHanded } = this.#setup;
    const server = this.#server;
    server.maxConnections = MOST_CONNECTIONS;
    server.on("connection", (socket: Socket) => {
      hearErrors(socket);
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
    server.on("secureConnection", hearErrors);
    server.on("clientError", (_, socket) => void socket.destroy());
    try {
      if (isHanded) await listenHanded(server);
      else
        await new Promise<void>((resolve, reject) => {
          server.once("error", reject);
          server.listen({ host, port, exclusive: true }, () => {
            server.off("error", reject).on("error", () => undefined);
            resolve();
          });
        });
    } catch (thrown) {
      const { code, message } = thrown as NodeJS.ErrnoException; // what a server says of an address
      this.#tell({ kind: "failed", code, message });
      this.#end();
      return;
    }
    const { port: actual = port } = server.address() as Partial<AddressInfo>; // a string where connections are given to it
    this.#tell({ kind: "listening", port: actual });
  }

  take(socket: Socket): void {
    if (this.#server.listening && this.#sockets.size < MOST_CONNECTIONS) hand(this.#server, socket);
    else socket.destroy();
  }

  #tell(message: ToLoop): void {
    this.#port.postMessage(message);
  }

  readonly #hear = (message: ToListener): void => {
    if (message.kind === "state") {
      if (message.isPong) this.#watch.heard();
      if (message.state !== undefined) this.#state = message.state;
    } else if (message.kind === "answer") this.#answered(message.id, message);
    else if (message.kind === "hangUp") {
      this.#asked.get(message.id)?.response?.destroy();
      this.#answered(message.id, undefined);
    } else if (message.kind === "measured") {
      this.#isMeasuring = false;
      if (message.answer !== undefined) this.#metrics = { answer: message.answer, at: steadyNow() };
    } else if (message.kind === "renew") {
      if ("setSecureContext" in this.#server) (this.#server as TlsServer).setSecureContext(pemOf(message.tls));
    } else this.#close();
  };

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const { socket } = request;
    const waiting = (this.#pipelined.get(socket) ?? 0) + 1;
    this.#pipelined.set(socket, waiting);
    if (waiting > MOST_PIPELINED) {
      socket.destroy();
      return;
    }
    response.once("close", () => this.#pipelined.set(socket, (this.#pipelined.get(socket) ?? 1) - 1));
    // What the event loop said a moment ago counts now.
    hearWaiting(this.#port, this.#hear);
    const startedAt = steadyNow();
    const route = this.#routeOf(request);
    if (route === "metrics") this.#scrapedAt = startedAt;
    // An answer from memory needs no look at the event loop, where that would take long.
    if (route !== undefined && this.#watch.isLate) {
      const remembered = this.#remembered(route);
      if (remembered !== undefined) {
        const requestId = newId("req");
        write(response, filled(remembered, requestId));
        const isRefused = remembered === this.#state?.silent;
        const callerRequestId = textOf(request.headers["x-request-id"]);
        const latencyMs = steadyNow() - startedAt;
        if (route !== "metrics")
          this.#tell({ kind: "answered", route, requestId, callerRequestId, isRefused, latencyMs });
        return;
      }
    }
    this.#read(request, response, (body) => {
      if (response.destroyed) return;
      if (this.#asked.size < MOST_ASKED) this.#ask(request, response, { route, body });
      else if (this.#state?.silent === undefined) response.destroy();
      else write(response, filled(this.#state.silent, newId("req")));
    });
  }

  /** What a request asks that memory may answer: nothing where it says more than its path. */
  #routeOf({ method, url = "", headers }: IncomingMessage): RememberedRoute | undefined {
    const route = this.#routes.get(url.endsWith("?") ? url.slice(0, -1) : url);
    if (route === undefined || (method !== "GET" && method !== "HEAD")) return undefined;
    if (headers["transfer-encoding"] !== undefined || (headers["content-length"] ?? "0") !== "0") return undefined;
    const scrapers = this.#state?.scrapers;
    const scraper = scrapers === undefined ? "nobody" : scraperOf(headers, scrapers);
    // Whom the event loop would refuse, or tell more, it answers itself.
    return (scraper === "known") === (route === "metrics") && (route === "metrics" || scraper === "nobody")
      ? route
      : undefined;
  }

  /** What memory answers; undefined where the event loop has to be waited for. */
  #remembered(route: RememberedRoute): MadeAnswer | undefined {
    const state = this.#state;
    if (state === undefined) return undefined;
    const { silentMs } = this.#watch;
    if (route === "metrics") {
      if (this.#metrics === undefined) return undefined;
      const ageMs = steadyNow() - this.#metrics.at;
      return ageMs > METRICS_MS ? undefined : aged(this.#metrics.answer, ageMs);
    }
    if (silentMs >= (route === "health" ? DEAD_MS : NOT_READY_MS)) return state.silent;
    if (route === "health") return state.health;
    return state.isReady ? state.readiness : undefined;
  }

  /** Reads a body; one that is too large is read no further, and is undefined. Never calls back where the caller leaves before the end. */
  #read(request: IncomingMessage, response: ServerResponse, whole: (body: Buffer | undefined) => void): void {
    const length = Number(request.headers["content-length"] ?? 0);
    if (length > MOST_BYTES) {
      response.shouldKeepAlive = false;
      request.resume();
      whole(undefined);
      return;
    }
    const chunks: Buffer[] = [];
    let size = 0;
    let isDone = false;
    const done = (body: Buffer | undefined): void => {
      if (isDone) return;
      isDone = true;
      chunks.length = 0;
      if (body !== undefined || !request.destroyed) whole(body);
    };
    request.on("data", (chunk: Buffer) => {
      // What comes after a refusal is read and dropped: a connection closed on unread bytes is reset before the answer is read.
      if (isDone) return;
      size += chunk.length;
      if (size > MOST_BYTES) {
        response.shouldKeepAlive = false;
        done(undefined);
      } else chunks.push(chunk);
    });
    request.once("end", () => done(Buffer.concat(chunks)));
    request.once("close", () => done(undefined));
  }

  #ask(
    request: IncomingMessage,
    response: ServerResponse,
    { route, body }: { route: RememberedRoute | undefined; body: Buffer | undefined },
  ): void {
    const id = this.#nextId++;
    const asked: AskedRequest = {
      response,
      requestId: newId("req"),
      isMetrics: route === "metrics",
      forget: () => undefined,
    };
    this.#asked.set(id, asked);
    response.once("close", () => {
      if (asked.response === undefined) return;
      asked.response = undefined;
      asked.forget();
      this.#tell({ kind: "left", id });
    });
    const message: LinkedRequest = {
      kind: "request",
      id,
      requestId: asked.requestId,
      method: request.method ?? "",
      url: request.url ?? "",
      headers: textsOf(request.headers),
      remoteAddress: request.socket.remoteAddress ?? "",
      body: body ?? NO_BYTES,
      isTooLarge: body === undefined,
      isUrgent: this.#watch.isLate,
    };
    this.#tell(message);
    const last = (): void => {
      asked.forget = after(LAST_MS, () => this.#giveUp(asked, this.#state?.silent));
    };
    if (route === undefined) last();
    else
      asked.forget = after(PATIENCE_MS[route], () => {
        const remembered = this.#remembered(route);
        if (remembered === undefined) last();
        else this.#giveUp(asked, remembered);
      });
  }

  /** Answers without the event loop, whose answer is still awaited: it may be worth remembering. */
  #giveUp(asked: AskedRequest, answer: MadeAnswer | undefined): void {
    const { response } = asked;
    asked.response = undefined;
    asked.forget();
    if (answer === undefined) response?.destroy();
    else if (response !== undefined) write(response, filled(answer, asked.requestId));
  }

  #answered(id: number, answer: MadeAnswer | undefined): void {
    const asked = this.#asked.get(id);
    if (asked === undefined) return;
    this.#asked.delete(id);
    asked.forget();
    if (answer === undefined) return;
    if (asked.isMetrics && answer.status === OK) this.#metrics = { answer, at: steadyNow() };
    const { response } = asked;
    asked.response = undefined;
    if (response !== undefined) write(response, answer);
  }

  /** Where scrapes are answered from memory, that is kept young. */
  #renewMetrics(): void {
    const at = steadyNow();
    const ageMs = at - (this.#metrics?.at ?? at);
    if (this.#isMeasuring || ageMs < RENEW_METRICS_MS || at - this.#scrapedAt > SCRAPED_MS || !this.#watch.isLate)
      return;
    this.#isMeasuring = true;
    this.#tell({ kind: "measure" });
  }

  #close(): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    const forget = after(CLOSE_MS, () => {
      for (const socket of this.#sockets) socket.destroy();
    });
    this.#server.close(() => {
      forget();
      this.#tell({ kind: "closed" });
      this.#end();
    });
    this.#server.closeIdleConnections();
  }

  /** Gives up what keeps the thread alive. */
  #end(): void {
    this.#watch.close();
    this.#rest();
    for (const { forget } of this.#asked.values()) forget();
    this.#port.close();
  }
}

const OK = 200;
const NO_BYTES = new Uint8Array();

function serverOf(
  { tls }: ListenerSetup,
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
    : createTlsServer({ ...limits, ...pemOf(tls), handshakeTimeout: REQUEST_MS }, answer);
}

// Bytes that came from another thread are no Buffer any more.
const pemOf = ({ key, cert }: { readonly key: Uint8Array; readonly cert: Uint8Array }) => ({
  key: Buffer.from(key),
  cert: Buffer.from(cert),
});

function write(response: ServerResponse, { status, headers, body }: MadeAnswer): void {
  if (response.destroyed || response.headersSent) return;
  response.writeHead(status, [...headers]);
  response.end(body);
}

/** The answer under the id of its request. */
const filled = ({ status, headers, body }: MadeAnswer, requestId: string): MadeAnswer => ({
  status,
  headers: headers.map((each) => (each === ID_MARK ? requestId : each)),
  body: Buffer.from(Buffer.from(body).toString().replaceAll(ID_MARK, requestId)),
});

/** Metrics that say how old they are. */
function aged({ status, headers, body }: MadeAnswer, ageMs: number): MadeAnswer {
  const text = Buffer.from(body)
    .toString()
    .replace(/^(\w+_metrics_age_seconds(?:\{[^}]*\})?) 0$/m, `$1 ${(ageMs / 1000).toFixed(3)}`);
  const bytes = Buffer.from(text);
  const others = headers.flatMap((name, i) =>
    i % 2 === 1 ? [] : [name, name === "content-length" ? String(bytes.length) : (headers[i + 1] ?? "")],
  );
  // Of an answer to another request, whose id this is not.
  const at = others.indexOf("x-request-id");
  if (at >= 0) others[at + 1] = ID_MARK;
  return { status, headers: others, body: bytes };
}

const textOf = (header: string | readonly string[] | undefined): string | undefined =>
  typeof header === "string" ? header : undefined;

/** The headers that may be given once. */
const textsOf = (headers: IncomingMessage["headers"]): Record<string, string> =>
  Object.fromEntries(
    Object.entries(headers).filter((entry): entry is [string, string] => typeof entry[1] === "string"),
  );
