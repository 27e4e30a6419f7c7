/** The REST transport: every RPC that the schema gives a path, as JSON or as server-sent events. */
import type { ServerResponse } from "node:http";
import type { DescMethod, DescService, Message } from "@bufbuild/protobuf";
import type { FastifyInstance } from "fastify";
import { ADMIN_HEADER, API_VERSION } from "../../../brand.ts";
import type { Cancel } from "../../../cancellation.ts";
import { steadyNow } from "../../../clock.ts";
import { factsOf, Reason, type Refusal, refuse } from "../../../errors.ts";
import { flowOf } from "../../../flow.ts";
import { newId } from "../../../ids.ts";
import { inSlices } from "../../../slices.ts";
import type { BodyMemory } from "../../body-memory.ts";
import { type CallLog, callerIdOf } from "../../call-log.ts";
import { overloaded } from "../../gate/admission/admission.ts";
import type { Admission, Advice, Gate } from "../../gate/gate.ts";
import { type Given, refusalOf, restAnswer } from "../../messages/errors.ts";
import { encoderOf, writeJson, writingJson } from "../../messages/json.ts";
import { refuseStream, wantsStream } from "../../messages/stream.ts";
import { PlainResponse } from "../../server/fast-http1.ts";
import { RunningCalls } from "../../server/running-calls.ts";
import { type Dialect, native } from "./dialects/index.ts";
import { eventMaker, eventsOfAnswer } from "./events.ts";
import { HttpExchange, type HttpRequest, type HttpResponse, headerOf, type Parameters } from "./exchange.ts";
import { givenOf, readMessage } from "./message.ts";
import { pushEvents } from "./push-events.ts";
import { conversationsOf, type RestRoute, routesOf } from "./route.ts";
import { EVENTS, eventWriter, LINES, outletOf, type ServerEvent } from "./sse.ts";

/** What the REST transport depends on. */
export interface RestOptions {
  readonly gate: Gate;
  readonly log: CallLog;
  readonly memory: BodyMemory;
  /** Aborted when running calls have to end. */
  readonly closing: AbortSignal;
}

/** Serves the routes of `transport`; other verbs on their paths are answered with 405, and OPTIONS with what is allowed. */
export function serveRest(fastify: FastifyInstance, transport: RestTransport): void {
  const verbs = new Map<string, { taken: string[]; dialect: Dialect }>();
  for (const route of transport.routes) {
    const url = route.template.replaceAll(/\{(\w+)\}/g, ":$1");
    verbs.set(url, { taken: [...(verbs.get(url)?.taken ?? []), route.verb], dialect: route.dialect });
    fastify.route({
      method: route.verb,
      url,
      // The whole call happens here, ahead of Fastify's own reading of the body: whoever may not call is refused unread.
      onRequest: async (request, reply) => {
        reply.hijack();
        transport.serve(route, request.params as Parameters, request.raw, reply.raw);
      },
      handler: unreachable,
    });
  }
  for (const { method, url } of transport.conversations) {
    verbs.set(url, { taken: ["POST"], dialect: native });
    fastify.route({
      method: "POST",
      url,
      onRequest: async (_, reply) => {
        reply.hijack();
        refuseRequest(reply.raw, refuseConversation(method), newId("req"));
      },
      handler: unreachable,
    });
  }
  for (const [url, { taken, dialect }] of verbs) serveOtherVerbs(fastify, url, taken, dialect);
}

function refuseConversation({ parent, name }: DescMethod): Refusal {
  const where = `/${parent.typeName}/${name}`;
  return refuse(
    Reason.STREAM_UNSUPPORTED,
    `this call talks both ways, which REST cannot carry: use gRPC, or Connect over HTTP/2, at ${where}`,
  );
}

const unreachable = (): never => {
  throw new Error("the call was answered before");
};

const VERBS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

function serveOtherVerbs(fastify: FastifyInstance, url: string, taken: readonly string[], dialect: Dialect): void {
  const served = taken.includes("GET") ? [...taken, "HEAD"] : taken;
  const allow = [...served, "OPTIONS"].join(", ");
  fastify.route({
    method: VERBS.filter((verb) => !served.includes(verb)),
    url,
    onRequest: async ({ method }, reply) => {
      reply.hijack();
      const { raw } = reply;
      const requestId = newId("req");
      const refusal = refuse(Reason.METHOD_NOT_ALLOWED, `this path takes ${allow}`);
      if (method !== "OPTIONS") refuseRequest(raw, refusal, requestId, { headers: ["allow", allow], dialect });
      else raw.writeHead(204, { allow, "x-request-id": requestId }).end();
    },
    handler: unreachable,
  });
}

/** Answers with a refusal, by a convention or the gateway's own; `headers` are names and values in turn. */
export function refuseRequest(
  response: HttpResponse,
  refusal: Refusal,
  requestId: string,
  { headers = [], given, dialect = native }: { headers?: readonly string[]; given?: Given; dialect?: Dialect } = {},
): void {
  const answer = dialect.refuse(refusal, requestId, given);
  const type = ["content-type", dialect.contentType];
  send(response, answer.status, requestId, [...type, ...headers, ...answer.headers], Buffer.from(answer.body));
}

/** The answers to calls that are refused before anything is made for them, by what they say of the time: all but the request's id. */
const overloadAnswers = new WeakMap<Advice, { lines: readonly string[]; body: readonly string[] }>();

/** Stands where a request's id will, and is as long. */
const ID_MARK = `req_${"0".repeat(26)}`;

/** Refuses a call for overload, by an answer that is at hand where the caller is in the lane. */
function sayOverloaded(response: HttpResponse, advice: Advice, dialect: Dialect): void {
  const requestId = newId("req");
  if (!(response instanceof PlainResponse) || dialect !== native) {
    refuseRequest(response, overloaded(advice), requestId, { dialect });
    return;
  }
  let answer = overloadAnswers.get(advice);
  if (answer === undefined) {
    const { headers, body } = native.refuse(overloaded(advice), ID_MARK);
    let lines = linesOf(Buffer.from(body), ID_MARK, native.contentType);
    for (let i = 0; i < headers.length; i += 2) lines += `${headers[i]}: ${headers[i + 1]}\r\n`;
    answer = { lines: lines.split(ID_MARK), body: body.split(ID_MARK) };
    overloadAnswers.set(advice, answer);
  }
  const { lines, body } = answer;
  response.answer(503, `${lines[0]}${requestId}${lines[1]}`, Buffer.from(`${body[0]}${requestId}${body[1]}`, "latin1"));
}

/** Answers; `headers` are names and values in turn. */
export function send(
  response: HttpResponse,
  status: number,
  requestId: string,
  headers: readonly string[],
  body: Buffer,
): void {
  if (response.destroyed || response.headersSent) return;
  const size = BODILESS.has(status) ? [] : ["content-length", String(body.length)];
  writeHead(response, status, [...size, "cache-control", "no-store", ...headersOf(requestId), ...headers]);
  // The lane has copied the body when it returns; Node may keep it for longer than it is there.
  if (response instanceof PlainResponse) response.end(body);
  else response.end(Buffer.from(body));
}

/** What `send` says ahead of a body, as lines of HTTP/1. */
const linesOf = (body: Buffer, requestId: string, type: string): string =>
  `content-length: ${body.length}\r\ncache-control: no-store\r\nx-request-id: ${requestId}\r\n${VERSION_LINE}content-type: ${type}\r\n`;

const VERSION_LINE = `x-api-version: ${API_VERSION}\r\n`;

/** Answers of these have no body, not even an empty one. */
const BODILESS = new Set([204, 304]);

const headersOf = (requestId: string): string[] => ["x-request-id", requestId, "x-api-version", API_VERSION];

// Both kinds of response take names and values in turn, which Node writes as they are.
function writeHead(response: HttpResponse, status: number, headers: string[]): void {
  (response as ServerResponse).writeHead(status, headers);
}

/** The routes of `services`, and what serves them. */
export class RestTransport {
  readonly routes: readonly RestRoute[];
  /** What REST cannot carry. */
  readonly conversations: ReturnType<typeof conversationsOf>;
  readonly #options: RestOptions;
  /** Those whose path has no parameters, by path. */
  readonly #literal: ReadonlyMap<string, readonly RestRoute[]>;
  readonly #running = new RunningCalls<Cancel>();

  constructor(services: Iterable<DescService>, options: RestOptions) {
    this.#options = options;
    this.routes = routesOf(services);
    this.conversations = conversationsOf(services);
    this.#literal = Map.groupBy(
      this.routes.filter(({ path }) => path.length === 0),
      ({ template }) => template,
    );
    options.closing.addEventListener("abort", () => {
      const reason = refuse(Reason.NOT_READY, "the gateway is closing; call again elsewhere");
      this.#running.each((call) => call.abort(reason));
    });
  }

  /**
   * Serves a request whose path is a route's to the letter, and says so: calls in a control loop then pay for no search among
   * routes and for none of Fastify's objects. Every other is left to Fastify.
   */
  take(request: HttpRequest, response: HttpResponse): boolean {
    const route = this.#literalOf(request.url ?? "", request.method);
    if (route === undefined) return false;
    const { overload } = this.#options.gate;
    const org = overload?.refuses(route.method, request.headers.authorization, headerOf(request, ADMIN_HEADER));
    if (overload !== undefined && org !== undefined) {
      const { dialect } = route;
      const answer = (): void => sayOverloaded(response, overload.advice(), dialect);
      const isHeld = overload.pace(org, answer, () => response.destroy());
      if (isHeld && response instanceof PlainResponse) response.hold();
      return true;
    }
    this.serve(route, NO_PARAMETERS, request, response);
    return true;
  }

  /** Whether `take` would serve a POST to this path. */
  takesPost(path: string): boolean {
    return this.#literalOf(path, "POST") !== undefined;
  }

  #literalOf(path: string, verb: string | undefined): RestRoute | undefined {
    return this.#literal.get(path)?.find((route) => route.verb === verb);
  }

  /** Answers one request; `parameters` are those of its path. */
  serve(route: RestRoute, parameters: Parameters, request: HttpRequest, response: HttpResponse): void {
    const exchange = new HttpExchange(route, parameters, request, response, this.#options.memory);
    response.once("close", exchange.left);
    const leave = this.#running.enter(exchange.call);
    const end = (refusal?: Refusal): void => {
      response.off("close", exchange.left);
      leave();
      exchange.leave();
      this.#note(exchange, refusal);
    };
    const fail = (thrown: unknown): void => {
      const refusal = refusalOf(thrown, exchange.call);
      try {
        const headers = exchange.admission?.headers ?? [];
        const given = givenOf(exchange);
        refuseRequest(response, refusal, exchange.context.requestId, { headers, given, dialect: route.dialect });
      } catch {
        response.destroy();
      } finally {
        end(refusal);
      }
    };
    try {
      this.#admit(exchange, end, fail);
    } catch (thrown) {
      fail(thrown);
    }
  }

  // A call in a control loop finds its key known and its body here, and waits for its answer alone: it pays for one promise.

  #admit(exchange: HttpExchange, end: () => void, fail: (thrown: unknown) => void): void {
    const { request, context } = exchange;
    const admitted = this.#options.gate.admit(exchange.route.method, {
      authorization: request.headers.authorization,
      adminToken: headerOf(request, ADMIN_HEADER),
      remoteAddress: request.socket.remoteAddress ?? "",
      forwardedFor: headerOf(request, "x-forwarded-for"),
      requestId: context.requestId,
    });
    if (!(admitted instanceof Promise)) this.#read(exchange, admitted, end, fail);
    else admitted.then((admission) => this.#read(exchange, admission, end, fail)).catch(fail);
  }

  #read(exchange: HttpExchange, admission: Admission, end: () => void, fail: (thrown: unknown) => void): void {
    exchange.admission = admission;
    const reading = readMessage(exchange);
    const run = (message: Message): void => this.#run(exchange, admission, message, end, fail);
    if (!(reading instanceof Promise)) run(reading);
    else {
      admission.work?.reading();
      reading.then(run).catch(fail);
    }
  }

  #run(
    exchange: HttpExchange,
    admission: Admission,
    message: Message,
    end: () => void,
    fail: (thrown: unknown) => void,
  ): void {
    const { route, context } = exchange;
    const { method } = route;
    const { gate } = this.#options;
    if (method.methodKind === "server_streaming") {
      const messages = gate.serverStream(method, admission, message, context);
      this.#stream(exchange, messages, eventMaker(method.output)).then(() => end(), fail);
      return;
    }
    const streamed = wantsStream(method, message);
    if (streamed && !route.events) throw refuseStream();
    gate.unary(method, admission, message, context).then((answer) => {
      let writing: Promise<void> | undefined;
      try {
        if (streamed) writing = this.#stream(exchange, eventsOfAnswer(method.output, answer), asItIs);
        else writing = answerWhole(exchange, admission, answer);
      } catch (thrown) {
        fail(thrown);
        return;
      }
      if (writing) writing.then(() => end(), fail);
      else end();
    }, fail);
  }

  /** Refusals before the first event are answered as plain errors, later ones as an event named `error`. */
  #stream<T>(
    { route, response, context, admission }: HttpExchange,
    items: AsyncIterable<T>,
    eventOf: (item: T) => ServerEvent,
  ): Promise<void> {
    const form = route.lines ? LINES : EVENTS;
    const { signal, requestId } = context;
    return pushEvents(flowOf(items), {
      signal,
      begin() {
        writeHead(response, 200, [...form.headers, ...headersOf(requestId), ...(admission?.headers ?? [])]);
        const body = response instanceof PlainResponse ? response.stream() : outletOf(response);
        return eventWriter(body, signal, () => response.destroy(), form);
      },
      eventOf,
      errorOf: (thrown) => ({ event: "error", data: restAnswer(refusalOf(thrown, signal), requestId).body }),
    });
  }

  #note({ route, request, context, admission, response, startedAt }: HttpExchange, refusal: Refusal | undefined): void {
    const facts = refusal && factsOf(refusal.reason);
    const principal = admission?.principal;
    this.#options.log({
      requestId: context.requestId,
      transport: "rest",
      rpc: route.rpc,
      status: facts?.status ?? response.statusCode,
      latencyMs: steadyNow() - startedAt,
      code: facts?.code,
      keyId: principal?.kind === "key" ? principal.keyId : undefined,
      cause: refusal?.cause,
      callerRequestId: callerIdOf(request.headers["x-request-id"]),
    });
  }
}

const NO_PARAMETERS: Parameters = {};

const asItIs = (event: ServerEvent): ServerEvent => event;

/** What the answer is in JSON, by the schema's names. */
function plainOf({ method, answer }: RestRoute, message: Message): unknown {
  const encoder = encoderOf(method.output);
  if (answer === undefined) return encoder.encode(message);
  const value = (message as unknown as Record<string, unknown>)[answer.localName];
  return value === undefined ? null : encoder.encodeField(answer.localName, value);
}

/** Answers; what was asked to be listed may be long and takes more than one turn of the event loop. */
function answerWhole(exchange: HttpExchange, admission: Admission, message: Message): Promise<void> | undefined {
  const { route, request, response, context } = exchange;
  const { method, answer, dialect } = route;
  if (dialect.plain && answer === undefined && !BODILESS.has(route.status)) {
    const { contentType } = dialect;
    const { requestId } = context;
    const all = ["content-type", contentType];
    if (route.verb === "GET")
      return inSlices(writingJson(method.output, message)).then((body) =>
        send(response, route.status, requestId, [...all, ...admission.headers], body),
      );
    const body = writeJson(method.output, message);
    if (!(response instanceof PlainResponse) || admission.lines === undefined)
      send(response, route.status, requestId, [...all, ...admission.headers], body);
    else response.answer(route.status, linesOf(body, requestId, contentType) + admission.lines, body);
    return;
  }
  const value = plainOf(route, message);
  const { headers = [], status = route.status } = dialect.head?.(route, value, request) ?? {};
  const text = BODILESS.has(status) ? "" : dialect.write(answer?.message ?? method.output, value, request);
  const all = ["content-type", dialect.contentType, ...admission.headers, ...headers];
  send(response, status, context.requestId, BODILESS.has(status) ? all.slice(2) : all, Buffer.from(text));
}
