/** Answers the listener for operations in the event loop that serves calls. */
import type { MessagePort } from "node:worker_threads";
import { OperationsService } from "../../../gen/limber/v1/operations_service_pb.ts";
import { RobotService } from "../../../gen/limber/v1/robot_service_pb.ts";
import { factsOf, Reason, type Refusal, refuse } from "../../errors.ts";
import { callerIdOf } from "../call-log.ts";
import { tooLarge } from "../messages/bounds.ts";
import { type MetricsAccess, sayMetrics, sendMetrics } from "../metrics.ts";
import type { Outlet, WholeRequest, WholeResponse } from "../server/whole-requests.ts";
import { type RestOptions, RestTransport, refuseRequest } from "../transports/rest/rest.ts";
import type { RestRoute } from "../transports/rest/route.ts";
import {
  hearWaiting,
  ID_MARK,
  type LinkedRequest,
  type ListenerSetup,
  type LoopState,
  type MadeAnswer,
  MOST_BYTES,
  type ToListener,
  type ToLoop,
} from "./messages.ts";
import { scraperDigests } from "./scraper.ts";

/** What answers depend on. */
export interface DeskOptions extends RestOptions {
  readonly metrics: MetricsAccess;
  /** Whether this process should receive traffic. */
  ready(): boolean;
}

/** What a listener says of itself, once in its life or twice. */
export type ListenerNews = Extract<ToLoop, { readonly kind: "listening" | "failed" | "closed" }>;

const { getHealth, getReadiness } = OperationsService.method;
const SERVED = new Set([getHealth, getReadiness, RobotService.method.stopRobots].map(({ name }) => name));
const METRICS = "/metrics";
/** Messages that are taken between two calls. */
const MOST_AT_ONCE = 4;
const NOT_HERE = "this port serves operations alone:";

/** The routes of operations, served to whatever listener asks. */
export class OperationsRoutes {
  readonly options: DeskOptions;
  readonly #transport: RestTransport;
  readonly #routes = new Map<string, RestRoute>();

  constructor(options: DeskOptions) {
    this.options = options;
    this.#transport = new RestTransport([OperationsService, RobotService], {
      ...options,
      // What is asked to be remembered is no call.
      log: (line) => line.requestId !== ID_MARK && options.log(line),
    });
    for (const route of this.#transport.routes)
      if (SERVED.has(route.method.name)) this.#routes.set(route.template, route);
  }

  get paths(): ListenerSetup["paths"] {
    return { health: this.#of(getHealth).template, readiness: this.#of(getReadiness).template, metrics: METRICS };
  }

  /** Answers a request. */
  answer(asked: LinkedRequest, response: WholeResponse): void {
    const [path = ""] = asked.url.split("?", 1);
    const route = this.#routes.get(path);
    const verb = asked.method === "HEAD" ? "GET" : asked.method;
    const served = path === METRICS ? "GET" : route?.verb;
    const { requestId } = asked;
    if (served === undefined) {
      const here = [...this.#routes.keys(), METRICS].join(", ");
      refuseRequest(response, refuse(Reason.NOT_FOUND, `${NOT_HERE} ${here}`), requestId);
    } else if (verb !== served) {
      const allow = served === "GET" ? "GET, HEAD" : served;
      const refusal = refuse(Reason.METHOD_NOT_ALLOWED, `this path takes ${allow}`);
      refuseRequest(response, refusal, requestId, { headers: ["allow", allow] });
    } else if (asked.isTooLarge) refuseRequest(response, tooLarge(MOST_BYTES), requestId);
    else if (route === undefined) sayMetrics(response, asked.headers, this.options.metrics);
    else void this.#transport.answer(route, {}, wholeOf(asked), response);
  }

  /** A call that was answered from memory counts as one that was answered here. */
  note({ route, requestId, callerRequestId, isRefused, latencyMs }: Extract<ToLoop, { kind: "answered" }>): void {
    const facts = isRefused ? factsOf(silence().reason) : undefined;
    const { rpc, status } = this.#of(route === "health" ? getHealth : getReadiness);
    this.options.log({
      requestId,
      transport: "rest",
      rpc,
      status: facts?.status ?? status,
      code: facts?.code,
      callerRequestId: callerIdOf(callerRequestId),
      latencyMs,
    });
  }

  /** What this process says of itself; health and readiness are as callers are answered who show nothing. */
  async state(): Promise<LoopState> {
    const { ready, metrics } = this.options;
    const isReady = ready();
    const [health, readiness] = await Promise.all([this.#said(getHealth), this.#said(getReadiness)]);
    const silent = await made((response) => refuseRequest(response, silence(), ID_MARK));
    return {
      isReady,
      health: onlyGood(health),
      readiness: onlyGood(readiness),
      silent,
      scrapers: scraperDigests(metrics.token, metrics.adminToken()),
    };
  }

  /** The metrics, as a scraper is answered. */
  async measured(): Promise<MadeAnswer | undefined> {
    return onlyGood(await made((response) => sendMetrics(response, this.options.metrics.metrics, ID_MARK)));
  }

  #of(method: { readonly name: string }): RestRoute {
    const route = [...this.#routes.values()].find((route) => route.method.name === method.name);
    if (route === undefined) throw new Error(`${method.name} has no route`);
    return route;
  }

  #said(method: { readonly name: string }): Promise<MadeAnswer | undefined> {
    const route = this.#of(method);
    const request: WholeRequest = {
      method: "GET",
      url: route.template,
      headers: {},
      socket: { remoteAddress: undefined, bytesRead: 0 },
      body: NO_BYTES,
      requestId: ID_MARK,
    };
    return made((response) => void this.#transport.answer(route, {}, request, response));
  }
}

/** Answers one listener over a message port. */
export class OperationsDesk {
  readonly #port: MessagePort;
  readonly #routes: OperationsRoutes;
  /** Requests that are being answered. */
  readonly #open = new Map<number, LinkedResponse>();
  readonly #news: (news: ListenerNews) => void;
  #told: { readonly isReady: boolean; readonly adminToken: string | undefined } | undefined;
  #telling: Promise<void> | undefined;
  #tellAgain = false;

  /** `news` is told what the listener says of itself. */
  constructor(port: MessagePort, routes: OperationsRoutes, news: (news: ListenerNews) => void) {
    this.#port = port;
    this.#routes = routes;
    this.#news = news;
    port.on("message", this.#hear);
  }

  /** Tells the listener what this process says of itself now. */
  refresh(): void {
    if (this.#telling !== undefined) {
      this.#tellAgain = true;
      return;
    }
    const { ready, metrics } = this.#routes.options;
    this.#told = { isReady: ready(), adminToken: metrics.adminToken() };
    this.#telling = this.#routes.state().then((state) => {
      this.tell({ kind: "state", isPong: false, state });
      this.#telling = undefined;
      if (this.#tellAgain) this.refresh();
    });
    this.#tellAgain = false;
  }

  /** Takes what has come from the listener before the event loop gets to it. */
  lookAround(): void {
    hearWaiting(this.#port, this.#hear, MOST_AT_ONCE);
  }

  tell(message: ToListener): void {
    this.#port.postMessage(message);
  }

  /** The listener is gone, and its callers with it. */
  end(): void {
    // What it said last may say why.
    hearWaiting(this.#port, this.#hear);
    for (const response of this.#open.values()) response.leave();
    this.#open.clear();
    this.#port.close();
  }

  readonly #hear = (message: ToLoop): void => {
    if (message.kind === "request") this.#answer(message);
    else if (message.kind === "ping") this.#pong();
    else if (message.kind === "left") {
      this.#open.get(message.id)?.leave();
      this.#open.delete(message.id);
      // No answer is to come.
      this.tell({ kind: "hangUp", id: message.id });
    } else if (message.kind === "answered") {
      this.#routes.note(message);
      this.refresh();
    } else if (message.kind === "measure")
      void this.#routes.measured().then((answer) => this.tell({ kind: "measured", answer }));
    else this.#news(message);
  };

  #pong(): void {
    const { ready, metrics } = this.#routes.options;
    this.tell({ kind: "state", isPong: true, state: undefined });
    const isSame = this.#told?.isReady === ready() && this.#told.adminToken === metrics.adminToken();
    if (!isSame) this.refresh();
  }

  #answer(asked: LinkedRequest): void {
    const { id } = asked;
    const response = new LinkedResponse((answer) => {
      this.#open.delete(id);
      this.tell(answer === undefined ? { kind: "hangUp", id } : { kind: "answer", id, ...answer });
    });
    this.#open.set(id, response);
    this.#routes.answer(asked, response);
  }
}

/** An answer that goes to another thread. */
class LinkedResponse implements WholeResponse {
  statusCode = 200;
  headersSent = false;
  destroyed = false;
  readonly #done: (answer: MadeAnswer | undefined) => void;
  readonly #leavers = new Set<() => void>();
  #headers: readonly string[] = [];

  /** `done` gets the answer; nothing where there is none. */
  constructor(done: (answer: MadeAnswer | undefined) => void) {
    this.#done = done;
  }

  writeHead(status: number, headers: readonly string[]): void {
    this.statusCode = status;
    this.#headers = headers;
    this.headersSent = true;
  }

  end(body: Buffer): void {
    if (this.destroyed) return;
    this.destroyed = true;
    this.#done({ status: this.statusCode, headers: this.#headers, body });
  }

  answer(status: number, lines: string, body: Buffer): void {
    const headers = lines.split("\r\n").flatMap((line) => {
      const colon = line.indexOf(":");
      return colon < 0 ? [] : [line.slice(0, colon), line.slice(colon + 1).trim()];
    });
    this.writeHead(status, headers);
    this.end(body);
  }

  /** No operation is answered by a stream. */
  stream(): Outlet {
    throw new Error("this answer is no stream");
  }

  hold(): void {
    // One request of a connection is asked about at a time, or few.
  }

  once(_event: "close", run: () => void): void {
    this.#leavers.add(run);
  }

  off(_event: "close", run: () => void): void {
    this.#leavers.delete(run);
  }

  /** The caller has left. */
  leave(): void {
    if (this.destroyed) return;
    this.destroyed = true;
    for (const run of [...this.#leavers]) run();
  }

  destroy(): void {
    if (this.destroyed) return;
    this.leave();
    this.#done(undefined);
  }
}

const NO_BYTES = Buffer.alloc(0);

const wholeOf = ({ method, url, headers, remoteAddress, body, requestId, isUrgent }: LinkedRequest): WholeRequest => ({
  method: method === "POST" ? "POST" : "GET",
  url,
  headers,
  socket: { remoteAddress, bytesRead: 0 },
  // Sound: a view of the bytes that came.
  body: Buffer.from(body.buffer, body.byteOffset, body.byteLength),
  requestId,
  isUrgent,
});

/** What is answered to nobody in particular. */
const made = (answer: (response: WholeResponse) => void): Promise<MadeAnswer | undefined> =>
  new Promise((resolve) => answer(new LinkedResponse(resolve)));

const onlyGood = (answer: MadeAnswer | undefined): MadeAnswer | undefined =>
  answer?.status === 200 ? answer : undefined;

const silence = (): Refusal =>
  refuse(Reason.NOT_READY, "the event loop of this process does not answer", {}, { retryAfter: 1 });
