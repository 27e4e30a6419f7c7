/** The REST transport: every RPC with a path in the schema, as JSON or server-sent events. */
import type { ServerResponse } from "node:http";
import type { DescField, DescMethod, DescService, Message } from "@bufbuild/protobuf";
import type { FastifyInstance } from "fastify";
import { PublicationService } from "../../../../gen/limber/v1/publication_service_pb.ts";
import { ADMIN_HEADER, API_VERSION } from "../../../brand.ts";
import type { BrowserHead } from "../../../call.ts";
import type { Cancel } from "../../../cancellation.ts";
import { steadyNow } from "../../../clock.ts";
import { factsOf, Reason, type Refusal, refuse } from "../../../errors.ts";
import { newId } from "../../../ids.ts";
import { PAGE_HEADERS, publicationPage } from "../../../services/publication-page.ts";
import { inSlices } from "../../../slices.ts";
import type { BodyMemory } from "../../body-memory.ts";
import { type CallLog, callerIdOf } from "../../call-log.ts";
import { overloaded } from "../../gate/admission.ts";
import type { Admission } from "../../gate/authenticate.ts";
import { browserOf, type OwnAddress } from "../../gate/authenticate.ts";
import { type Advice, type Gate, headersOfAnswer } from "../../gate/gate.ts";
import { refuseStream, wantsStream } from "../../messages/bounds.ts";
import { type Given, refusalOf, restAnswer } from "../../messages/errors.ts";
import { encodedOnce, encoderOf, toText, writingJson } from "../../messages/json.ts";
import { slotOf } from "../../server/slots.ts";
import { RunningCalls } from "../../server/turns.ts";
import { isWhole, type WholeRequestHandler } from "../../server/whole-requests.ts";
import { type HttpRequest, type HttpResponse, headerOf } from "./body.ts";
import {
  EVENTS,
  type EventWriter,
  eventMaker,
  eventsOfAnswer,
  eventWriter,
  LINES,
  outletOf,
  pushEvents,
  type ServerEvent,
} from "./events.ts";
import { partOf } from "./files.ts";
import { givenOf, HttpExchange, type Parameters, readMessage } from "./request.ts";
import { conversationsOf, type Dialect, native, type RestRoute, routesOf } from "./routes.ts";

/** The dependencies of the REST transport. */
export interface RestOptions {
  readonly gate: Gate;
  readonly log: CallLog;
  readonly memory: BodyMemory;
  /** The gateway's origin for browsers; if absent, cookies are ignored. */
  readonly address?: OwnAddress | undefined;
  /** Aborted to end running calls. */
  readonly closing: AbortSignal;
}

/** Serves the routes of `transport`; other methods on their paths get 405, and OPTIONS the allowed methods. */
export function serveRest(fastify: FastifyInstance, transport: RestTransport): void {
  const verbs = new Map<string, { taken: string[]; dialect: Dialect }>();
  for (const route of transport.routes) {
    const path = route.template.replaceAll(/\{(\w+)\}/g, ":$1");
    for (const url of route.dialect.trailingSlash ? [path, `${path}/`] : [path]) {
      verbs.set(url, { taken: [...(verbs.get(url)?.taken ?? []), route.verb], dialect: route.dialect });
      fastify.route({
        method: route.verb,
        url,
        // The call is handled here, before Fastify reads the body: a refused call's body is not read.
        onRequest: async (request, reply) => {
          reply.hijack();
          transport.begin(route, request.params as Parameters, request.raw, reply.raw);
        },
        handler: unreachable,
      });
    }
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
  const templates = [...verbs]
    .filter(([url]) => url.includes(":"))
    .map(([url, { taken }]) => ({ parts: url.split("/"), taken }));
  for (const [url, { taken, dialect }] of verbs) {
    // A robot can be named `arm`, and `/v1/robots/arm` is another route.
    const segments = url.includes(":") ? [] : url.split("/");
    const named = templates.filter(({ parts }) => names(parts, segments)).flatMap(({ taken }) => taken);
    serveOtherVerbs(fastify, url, [...new Set([...taken, ...named])], dialect);
  }
}

/** Whether a path with parameters also matches this path without parameters. */
const names = (parts: readonly string[], segments: readonly string[]): boolean =>
  parts.length === segments.length && parts.every((part, i) => part.startsWith(":") || part === segments[i]);

function refuseConversation({ parent, name }: DescMethod): Refusal {
  const where = `/${parent.typeName}/${name}`;
  return refuse(
    Reason.STREAM_UNSUPPORTED,
    `REST does not support bidirectional streams; use gRPC, or Connect over HTTP/2, at ${where}`,
  );
}

const unreachable = (): never => {
  throw new Error("the call already has a response");
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
      const refusal = refuse(Reason.METHOD_NOT_ALLOWED, `this path accepts only ${allow}`);
      if (method !== "OPTIONS") refuseRequest(raw, refusal, requestId, { headers: ["allow", allow], dialect });
      else raw.writeHead(204, { allow, "x-request-id": requestId }).end();
    },
    handler: unreachable,
  });
}

/** Sends a refusal in the format of a convention or the gateway's own; `headers` alternate names and values. */
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

/** Prepared responses for refused calls by retry delay, without the request id. */
const overloadAnswers = new WeakMap<Advice, { lines: readonly string[]; body: readonly string[] }>();

/** The placeholder of a request id, of the same length. */
const ID_MARK = `req_${"0".repeat(26)}`;

/** Refuses a call for overload; a buffered request gets a prepared response. */
function refuseOverloaded(response: HttpResponse, advice: Advice, dialect: Dialect): void {
  const requestId = newId("req");
  if (!isWhole(response) || dialect !== native) {
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

/** Sends a response; `headers` alternate names and values. */
export function send(
  response: HttpResponse,
  status: number,
  requestId: string,
  headers: readonly string[],
  body: Buffer,
): void {
  if (response.destroyed || response.headersSent) return;
  const size = BODILESS.has(status) ? [] : ["content-length", String(body.length)];
  const cached = headers.includes("cache-control") ? [] : ["cache-control", "no-store"];
  writeHead(response, status, [...size, ...cached, ...headersOf(requestId), ...headers]);
  // The kinds of responses have no common signature, but all accept a buffer.
  (response as ServerResponse).end(body);
}

/** The constant headers of `send`, as HTTP/1 lines. */
const linesOf = (body: Buffer, requestId: string, type: string): string =>
  `content-length: ${body.length}\r\ncache-control: no-store\r\nx-request-id: ${requestId}\r\n${VERSION_LINE}content-type: ${type}\r\n`;

const VERSION_LINE = `x-api-version: ${API_VERSION}\r\n`;

/** Statuses whose responses have no body, not even an empty one. */
const BODILESS = new Set([204, 304]);

const headersOf = (requestId: string): string[] => ["x-request-id", requestId, "x-api-version", API_VERSION];

// Both kinds of responses accept alternating names and values, which Node.js writes unchanged.
function writeHead(response: HttpResponse, status: number, headers: string[]): void {
  (response as ServerResponse).writeHead(status, headers);
}

/** The routes of `services`, and their handlers. */
export class RestTransport implements WholeRequestHandler {
  readonly routes: readonly RestRoute[];
  /** RPCs that REST does not support. */
  readonly conversations: ReturnType<typeof conversationsOf>;
  readonly #options: RestOptions;
  /** POST routes without path parameters, by path. */
  readonly #posts: ReadonlyMap<string, RestRoute>;
  readonly #running = new RunningCalls<Cancel>();

  constructor(services: Iterable<DescService>, options: RestOptions) {
    this.#options = options;
    this.routes = routesOf(services);
    this.conversations = conversationsOf(services);
    const posts = this.routes.filter(({ path, verb }) => path.length === 0 && verb === "POST");
    this.#posts = new Map(posts.map((route) => [route.template, route]));
    options.closing.addEventListener("abort", () => {
      const reason = refuse(Reason.NOT_READY, "the gateway is shutting down; retry on another connection");
      this.#running.each((call) => call.abort(reason));
    });
  }

  /** See WholeRequestHandler. */
  takes(path: string): boolean {
    return this.#posts.has(path);
  }

  /** See WholeRequestHandler. */
  serve(request: HttpRequest, response: HttpResponse): void {
    const route = this.#posts.get(request.url ?? "");
    if (route === undefined) throw new Error(`no route matches POST ${request.url}`);
    this.begin(route, NO_PARAMETERS, request, response);
  }

  /** Serves one request, or refuses it for overload before allocating anything; `parameters` are from its path. */
  begin(route: RestRoute, parameters: Parameters, request: HttpRequest, response: HttpResponse): void {
    const { overload } = this.#options.gate;
    const { authorization } = request.headers;
    const org = overload?.refuses(
      route.method,
      authorization,
      headerOf(request, ADMIN_HEADER),
      authorization === undefined && request.headers.cookie !== undefined ? this.#browserOf(route, request) : undefined,
    );
    if (overload === undefined || org === undefined) {
      void this.answer(route, parameters, request, response);
      return;
    }
    const answer = (): void => refuseOverloaded(response, overload.advice(), route.dialect);
    const isHeld = overload.pace(org, answer, () => response.destroy());
    if (isHeld && isWhole(response)) response.hold();
  }

  /** Serves one request, and resolves when the call has ended. Never rejects. */
  async answer(route: RestRoute, parameters: Parameters, request: HttpRequest, response: HttpResponse): Promise<void> {
    const exchange = new HttpExchange(route, parameters, request, response, this.#options.memory);
    const { call } = exchange;
    response.once("close", exchange.left);
    const leave = this.#running.enter(call);
    let refusal: Refusal | undefined;
    try {
      await this.#call(exchange);
    } catch (thrown) {
      refusal = refusalOf(thrown, call);
      refuseCall(exchange, refusal);
    }
    response.off("close", exchange.left);
    leave();
    exchange.leave();
    this.#note(exchange, refusal);
  }

  /** The browser of a request without a key, read on demand. */
  #browserOf({ verb }: RestRoute, { headers }: HttpRequest): () => BrowserHead | undefined {
    const { address } = this.#options;
    return () => address && browserOf(headers, verb, address);
  }

  async #call(exchange: HttpExchange): Promise<void> {
    const { route, request, context } = exchange;
    const { method } = route;
    const { gate, address } = this.#options;
    const { authorization } = request.headers;
    const admission = await gate.admit(method, {
      authorization,
      browser: authorization === undefined && address ? browserOf(request.headers, route.verb, address) : undefined,
      adminToken: headerOf(request, ADMIN_HEADER),
      remoteAddress: request.socket.remoteAddress ?? "",
      slot: slotOf(request.socket),
      forwardedFor: headerOf(request, "x-forwarded-for"),
      requestId: context.requestId,
      isUrgent: context.isUrgent,
      trail: exchange.trail,
    });
    exchange.admission = admission;
    if (!("body" in request)) admission.work?.reading();
    const message = await readMessage(exchange);
    if (method.methodKind === "server_streaming") {
      const items = (begin: () => void) => gate.serverStream(method, admission, message, { ...context, begin });
      await this.#stream(exchange, items, eventMaker(method.output, route.resumed));
      return;
    }
    if (wantsStream(method, message)) {
      if (!route.events) throw refuseStream();
      const answer = () => gate.unary(method, admission, message, context);
      await this.#stream(exchange, () => eventsOfAnswer(method.output, answer), asItIs);
      return;
    }
    const encode = encodedOnce((answer) => Buffer.from(toText(method.output, answer)));
    if (isPlainJson(route)) context.encode = encode;
    const answer = await gate.unary(method, admission, message, context);
    if (route.file) answerFile(exchange, route.file, admission, answer);
    else if (!isPlainJson(route)) answerByDialect(exchange, admission, answer);
    else if (route.verb === "GET") await answerList(exchange, admission, answer);
    else answerJson(exchange, admission, encode(answer));
  }

  /** Refusals before the start of the response are plain errors, later ones an event named `error`. */
  #stream<T>(
    { route, request, response, context, admission }: HttpExchange,
    items: (begin: () => void) => AsyncIterable<T>,
    eventOf: (item: T) => ServerEvent,
  ): Promise<void> {
    const form = route.lines ? LINES : EVENTS;
    const { signal, requestId } = context;
    return pushEvents(items, {
      signal,
      begin() {
        writeHead(response, 200, [...form.headers, ...headersOf(requestId), ...(admission?.headers ?? [])]);
        // The head alone was requested; the end of the response ends the call.
        if (request.method === "HEAD") {
          (response as ServerResponse).end();
          return SILENT;
        }
        // A format without comments has no first bytes. Both kinds of Node.js responses have this method, but only one type declares it.
        if (route.lines) (response as ServerResponse).flushHeaders();
        const body = isWhole(response) ? response.stream() : outletOf(response);
        return eventWriter(body, signal, () => response.destroy(), form);
      },
      // A browser stops reconnecting the stream at this status (the HTML standard, 9.2.3).
      nothing: route.resumed ? () => send(response, 204, requestId, admission?.headers ?? [], NO_BODY) : undefined,
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
      message: refusal?.message,
      callerRequestId: callerIdOf(request.headers["x-request-id"]),
      trail: context.trail,
    });
  }
}

const NO_PARAMETERS: Parameters = {};
const NO_BODY = Buffer.alloc(0);

/** Sends the refusal of a call. */
function refuseCall(exchange: HttpExchange, refusal: Refusal): void {
  const { route, response, context, admission } = exchange;
  const about = { headers: admission?.headers ?? [], dialect: route.dialect };
  try {
    refuseRequest(response, refusal, context.requestId, { ...about, given: givenOf(exchange) });
  } catch {
    response.destroy();
  }
}

/** Writes nothing. */
const SILENT: EventWriter = { write: async () => undefined, beat: () => undefined, end: () => undefined };

const asItIs = (event: ServerEvent): ServerEvent => event;

/** The response as JSON, with the schema's names. */
function plainOf({ method, answer }: RestRoute, message: Message): unknown {
  const encoder = encoderOf(method.output);
  if (answer === undefined) return encoder.encode(message);
  const value = (message as unknown as Record<string, unknown>)[answer.localName];
  return value === undefined ? null : encoder.encodeField(answer.localName, value);
}

/** Responds to a GET. Lists can be long, and are serialized in slices. */
async function answerList(exchange: HttpExchange, admission: Admission, message: Message): Promise<void> {
  answerJson(exchange, admission, await inSlices(writingJson(exchange.route.method.output, message)));
}

/** Whether a request names HTML before any JSON, as browsers do. */
function prefersPage(request: HttpRequest): boolean {
  const accepted = (headerOf(request, "accept") ?? "").toLowerCase();
  const [html, json] = [accepted.indexOf("text/html"), accepted.indexOf("application/json")];
  return html >= 0 && (json < 0 || html < json);
}

/** Responds with a message in the format of the route's convention. */
function answerByDialect(exchange: HttpExchange, admission: Admission, message: Message): void {
  const { route, request, response, context } = exchange;
  const { method, answer, dialect } = route;
  const value = plainOf(route, message);
  if (method === PublicationService.method.getPublication && prefersPage(request)) {
    send(
      response,
      200,
      context.requestId,
      [...PAGE_HEADERS, ...headersOfAnswer(admission)],
      Buffer.from(publicationPage(value)),
    );
    return;
  }
  const { headers = [], status = route.status } = dialect.head?.(route, value, request) ?? {};
  const text = BODILESS.has(status) ? "" : dialect.write(answer?.message ?? method.output, value, request);
  const type = BODILESS.has(status) ? [] : ["content-type", dialect.contentType];
  send(response, status, context.requestId, [...type, ...headersOfAnswer(admission), ...headers], Buffer.from(text));
}

/** Shared caches must not store a file, and a browser must revalidate it before each use. */
const FILE_HEADERS = ["cache-control", "private, no-cache", "x-content-type-options", "nosniff"];

/** Responds with the bytes of a field, or with a range of them. `fields` are sent as headers, by name. */
function answerFile(
  { route, request, response, context }: HttpExchange,
  fields: ReadonlyMap<string, DescField>,
  admission: Admission,
  message: Message,
): void {
  const value = ({ localName }: DescField) => (message as unknown as Record<string, unknown>)[localName];
  const own = [...fields].map(([name, field]) => [name, String(value(field))] as const);
  const { status, bytes, headers } = partOf(value(route.answer!) as Uint8Array, new Map(own).get("etag")!, {
    method: request.method,
    range: headerOf(request, "range"),
    ifRange: headerOf(request, "if-range"),
    ifNoneMatch: headerOf(request, "if-none-match"),
  });
  const all = [...FILE_HEADERS, ...own.flat(), ...headers, ...headersOfAnswer(admission)];
  send(response, status, context.requestId, all, bytes);
}

/** Whether the response is the message itself in the gateway's own JSON. */
const isPlainJson = ({ dialect, answer, status }: RestRoute): boolean =>
  dialect.plain === true && answer === undefined && !BODILESS.has(status);

function answerJson({ route, response, context }: HttpExchange, admission: Admission, body: Buffer): void {
  const { requestId } = context;
  const { contentType } = route.dialect;
  const isPlain = !admission.replayed && !admission.browser?.cookies.length;
  if (isWhole(response) && admission.lines !== undefined && isPlain)
    response.answer(route.status, linesOf(body, requestId, contentType) + admission.lines, body);
  else send(response, route.status, requestId, ["content-type", contentType, ...headersOfAnswer(admission)], body);
}
