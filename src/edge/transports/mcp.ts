/**
 * The Model Context Protocol at `/mcp`: streamable HTTP without sessions, so that any replica answers any message. Each RPC that the schema
 * makes a tool is called through the gate that all transports share.
 */

import { readFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { type DescMethod, type DescService, getOption } from "@bufbuild/protobuf";
import type { FastifyInstance } from "fastify";
import { rpc } from "../../../gen/limber/edge/v1/options_pb.ts";
import { AccountService } from "../../../gen/limber/v1/account_service_pb.ts";
import { API_VERSION } from "../../brand.ts";
import type { CallTrail, KeyPrincipal } from "../../call.ts";
import { Cancel } from "../../cancellation.ts";
import { steadyNow } from "../../clock.ts";
import { factsOf, Reason, type Refusal, refuse } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { denialOf } from "../../services/permissions.ts";
import { type BodyMemory, ownerOf } from "../body-memory.ts";
import { type CallLog, callerIdOf } from "../call-log.ts";
import type { Gate } from "../gate/gate.ts";
import { boundsFor, refuseStream, wantsStream } from "../messages/bounds.ts";
import { refusalOf, restAnswer } from "../messages/errors.ts";
import { decoderOf, encodedOnce, toText } from "../messages/json.ts";
import { Faults, parseCounted } from "../messages/json-text.ts";
import { invalid, violationOf, violationsOf } from "../messages/validate.ts";
import { slotOf } from "../server/slots.ts";
import { RunningCalls } from "../server/turns.ts";
import type { ToolAnswer, ToolFacts } from "./mcp-protocol.ts";
import { type HttpRequest, type HttpResponse, headerOf, readBody, typeOf } from "./rest/body.ts";
import { refuseRequest } from "./rest/rest.ts";
import { originOf } from "./rest/routes.ts";

/** What this transport depends on. */
interface McpOptions {
  readonly services: readonly DescService[];
  readonly gate: Gate;
  readonly log: CallLog;
  readonly memory: BodyMemory;
  /** Aborted when running calls have to end. */
  readonly closing: AbortSignal;
  /** Where callers reach the gateway from outside; what a request itself says where it is absent. */
  readonly publicUrl?: string | undefined;
  /** Further origins whose pages may call. */
  readonly corsOrigins?: ReadonlySet<string> | undefined;
}

/** Where agents call. */
export const MCP_PATH = "/mcp";
/** Where RFC 9728 puts what is said of it. */
const METADATA_PATH = `/.well-known/oauth-protected-resource${MCP_PATH}`;
const TOOLS = new URL("../../../gen/tools.json", import.meta.url);
const JSON_TYPE = typeOf("application/json");
/** As any other call of a key. */
const MOST_BYTES = 32 << 20;
/** The most messages in a batch, which versions of the protocol until 2025-03-26 have. */
const MOST_MESSAGES = 32;
/** What a message that is no tool call counts as: it shows the caller no more than its own key does. */
const PLAIN = AccountService.method.getKey;

/** A tool, and the RPC behind it. */
interface Tool {
  readonly facts: ToolFacts;
  readonly method: DescMethod;
  /** The fields that it takes. */
  readonly fields: ReadonlySet<string>;
}

/** Serves `/mcp` and what RFC 9728 says of it. */
export function serveMcp(fastify: FastifyInstance, options: McpOptions): void {
  const transport = new McpTransport(options);
  for (const slash of ["", "/"]) {
    const url = MCP_PATH + slash;
    fastify.route({
      method: "POST",
      url,
      onRequest: async (request, reply) => {
        reply.hijack();
        void transport.answer(request.raw, reply.raw);
      },
      handler: unreachable,
    });
    fastify.route({
      // No session, so that there is nothing to listen to and nothing to end.
      method: ["GET", "HEAD", "PUT", "PATCH", "DELETE"],
      url,
      onRequest: async (_, reply) => {
        reply.hijack();
        const refusal = refuse(Reason.METHOD_NOT_ALLOWED, "this path accepts only POST");
        refuseRequest(reply.raw, refusal, newId("req"), { headers: ["allow", "POST"] });
      },
      handler: unreachable,
    });
    fastify.options(url, async (_, reply) => reply.code(204).header("allow", "POST, OPTIONS").send());
    fastify.get(METADATA_PATH + slash, async (request, reply) => {
      const home = options.publicUrl === undefined ? originOf(request.raw) : new URL(options.publicUrl).origin;
      return reply
        .header("cache-control", "no-store")
        .type("application/json")
        .send(JSON.stringify(metadataOf(home)));
    });
  }
}

const unreachable = (): never => {
  throw new Error("the call already has a response");
};

const metadataOf = (home: string): object => ({
  resource: `${home}${MCP_PATH}`,
  authorization_servers: [home],
  bearer_methods_supported: ["header"],
  resource_documentation: `${home}/docs`,
});

class McpTransport {
  readonly #options: McpOptions;
  readonly #tools: ReadonlyMap<string, Tool>;
  readonly #running = new RunningCalls<Cancel>();

  constructor(options: McpOptions) {
    this.#options = options;
    this.#tools = toolsFor(options.services);
    options.closing.addEventListener("abort", () => {
      const reason = refuse(Reason.NOT_READY, "the gateway is shutting down; retry on another connection");
      this.#running.each((call) => call.abort(reason));
    });
  }

  /** Returns one message. Never rejects. */
  async answer(request: HttpRequest, response: HttpResponse): Promise<void> {
    const call = new Cancel();
    const requestId = newId("req");
    const left = (): void =>
      call.abort(refuse(Reason.CLIENT_CLOSED_REQUEST, "the client disconnected before the response"));
    response.once("close", left);
    const leave = this.#running.enter(call);
    const exchange = new Exchange(this.#options, request, requestId, call);
    try {
      const answer = await this.#answered(exchange);
      write(response, answer.status, [...answer.headers].flat(), requestId, await answer.text());
    } catch (thrown) {
      this.#refuse(response, exchange, refusalOf(thrown, call));
    }
    response.off("close", left);
    leave();
    exchange.release();
  }

  async #answered(exchange: Exchange): Promise<Response> {
    const { gate } = this.#options;
    exchange.assertOrigin();
    const { request } = exchange;
    exchange.principal = await gate.identify(request.headers.authorization);
    slotOf(request.socket)?.authenticated();
    const body = await exchange.read().catch(async (thrown: unknown) => {
      // What cannot be read counts as a call, too.
      await exchange.plainly();
      throw thrown;
    });
    const form = formFor(headerOf(request, "accept"));
    if (!Array.isArray(body)) return this.#one(exchange, body as object, form);
    const answers: Response[] = [];
    for (const message of body) {
      // A later refusal must not take the earlier answers, which may be charged.
      const failed = (thrown: unknown) => this.#failed(exchange, message, refusalOf(thrown, exchange.signal), form);
      answers.push(await this.#one(exchange, message, form).catch(failed));
    }
    return joined(answers, form);
  }

  /** The answer to one message of a batch that is refused: nothing for a notification. */
  #failed(exchange: Exchange, message: object, refusal: Refusal, form: Form): Response {
    exchange.note(PLAIN, refusal, {});
    const { id } = message as { id?: unknown };
    if (id === undefined) return new Response(null, { status: 202 });
    const data = restAnswer(refusal, exchange.requestId).body;
    const error = { code: -32000, message: refusal.message, data: JSON.parse(data).error };
    const text = JSON.stringify({ jsonrpc: "2.0", id, error });
    return new Response(form === "events" ? `event: message\ndata: ${text}\n\n` : text);
  }

  /** Returns the answer to one message. */
  async #one(exchange: Exchange, sent: object, form: Form): Promise<Response> {
    const { request, principal } = exchange;
    const body = await meantBy(sent);
    const tool = this.#tools.get(toolIn(body) ?? "");
    if (tool === undefined) await exchange.plainly();
    // The protocol is loaded when the first agent calls.
    const { answerMcp } = await import("./mcp-protocol.ts");
    const headers = new Headers({ "content-type": "application/json" });
    const version = headerOf(request, "mcp-protocol-version");
    if (version !== undefined) headers.set("mcp-protocol-version", version);
    // The SDK asks clients to accept both forms, whichever of them it answers with.
    if (form !== undefined) headers.set("accept", "application/json, text/event-stream");
    return answerMcp(
      { url: `http://gateway${MCP_PATH}`, headers, body, events: form === "events" },
      {
        list: () =>
          [...this.#tools.values()]
            .filter(({ method }) => denialOf(principal, getOption(method, rpc)) === undefined)
            .map(({ facts }) => facts),
        find: (name) => {
          const tool = this.#tools.get(name);
          return tool && ((input) => exchange.call(tool, input));
        },
      },
    );
  }

  #refuse(response: HttpResponse, exchange: Exchange, refusal: Refusal): void {
    const { requestId, home } = exchange;
    const { status } = factsOf(refusal.reason);
    const cause = exchange.request.headers.authorization === undefined ? "" : 'error="invalid_token", ';
    const headers =
      status === 401 ? ["www-authenticate", `Bearer ${cause}resource_metadata="${home}${METADATA_PATH}"`] : [];
    exchange.note(PLAIN, refusal, {});
    const answer = restAnswer(refusal, requestId);
    const plain = answer.headers.filter((_, i) => status !== 401 || answer.headers[i - (i % 2)] !== "www-authenticate");
    write(response, answer.status, ["content-type", "application/json", ...plain, ...headers], requestId, answer.body);
  }
}

/** Whether an origin is no page of the web: its scheme is a program's own. */
const isOfProgram = (origin: string): boolean =>
  URL.canParse(origin) && !["http:", "https:", "file:", "data:", "blob:"].includes(new URL(origin).protocol);

/** One message on its way. */
class Exchange {
  readonly request: HttpRequest;
  readonly requestId: string;
  /** Known once the key is. */
  principal!: KeyPrincipal;
  readonly #options: McpOptions;
  readonly #call: Cancel;
  readonly #startedAt = steadyNow();
  #release = (): void => {};

  constructor(options: McpOptions, request: HttpRequest, requestId: string, call: Cancel) {
    this.#options = options;
    this.request = request;
    this.requestId = requestId;
    this.#call = call;
  }

  get signal(): Cancel {
    return this.#call;
  }

  /** Where the caller reached the gateway. */
  get home(): string {
    const { publicUrl } = this.#options;
    return publicUrl === undefined ? originOf(this.request) : new URL(publicUrl).origin;
  }

  /**
   * A page may call from the gateway's public address and from the origins that are named, whatever name its server took on. Programs that show
   * pages of their own, such as editors, name an origin of no web page (`vscode-file://vscode-app`).
   */
  assertOrigin(): void {
    const origin = headerOf(this.request, "origin");
    if (origin === undefined || isOfProgram(origin) || this.#options.corsOrigins?.has(origin)) return;
    if (this.#options.publicUrl !== undefined && origin === this.home) return;
    throw refuse(Reason.PERMISSION_DENIED, "pages of this origin are not allowed to call this gateway");
  }

  /** The message, or the batch of messages, once it is whole. */
  async read(): Promise<object> {
    const held = this.#options.memory.open(ownerOf(this.principal));
    this.#release = () => held.release();
    const limits = { most: MOST_BYTES, hold: (bytes: number) => held.to(bytes), signal: this.#call };
    const bytes = await readBody(this.request, JSON_TYPE, "application/json", limits);
    const body = await parseCounted(bytes, { bounds: boundsFor(MOST_BYTES) });
    const messages = Array.isArray(body) ? body : [body];
    if (!messages.every(isObject) || messages.length === 0 || messages.length > MOST_MESSAGES)
      throw refuse(Reason.MALFORMED_BODY, `the body must be one JSON-RPC message, or a list of 1 to ${MOST_MESSAGES}`);
    return body as object; // sound: an object, or a list of them
  }

  /** Counts a message that calls no tool. */
  async plainly(): Promise<void> {
    const admission = await this.#options.gate.admit(PLAIN, this.#head({}));
    admission.leave();
  }

  /** Carries a tool out as its RPC's own call. Never rejects. */
  async call({ method, fields }: Tool, input: unknown): Promise<ToolAnswer> {
    const trail: CallTrail = {};
    let refusal: Refusal | undefined;
    let text: string;
    try {
      text = await this.#answer(method, fields, input, trail);
    } catch (thrown) {
      refusal = refusalOf(thrown, this.#call);
      text = restAnswer(refusal, this.requestId).body;
    }
    this.note(method, refusal, trail);
    return { text, isRefusal: refusal !== undefined };
  }

  async #answer(method: DescMethod, fields: ReadonlySet<string>, input: unknown, trail: CallTrail): Promise<string> {
    const { gate } = this.#options;
    const admission = await gate.admit(method, this.#head(trail));
    try {
      const faults = new Faults();
      // The decoder reports the fields that the RPC lacks too.
      for (const name of Object.keys(input as object))
        if (!fields.has(name) && method.input.fields.some((field) => field.name === name))
          faults.add("extra_forbidden", "is not a field of this tool", name);
      const message = decoderOf(method.input).decode(input, faults);
      if (faults.list.length > 0) {
        const read = faults.list.map(violationOf);
        throw invalid([...read, ...violationsOf(method.input, message)]);
      }
      if (wantsStream(method, message)) throw refuseStream();
      const encode = encodedOnce((answer) => toText(method.output, answer));
      const context = {
        requestId: this.requestId,
        signal: this.#call,
        arrivedAt: this.#startedAt,
        deadline: undefined,
        idempotencyKey: undefined,
        traceparent: headerOf(this.request, "traceparent"),
        trail,
        encode,
      };
      return encode(await gate.unary(method, admission, message, context));
    } finally {
      admission.leave();
    }
  }

  /** Puts the end of a call on record. */
  note(method: DescMethod, refusal: Refusal | undefined, trail: CallTrail): void {
    const facts = refusal && factsOf(refusal.reason);
    this.#options.log({
      requestId: this.requestId,
      transport: "mcp",
      rpc: `${method.parent.typeName}/${method.name}`,
      status: facts?.status ?? 200,
      latencyMs: steadyNow() - this.#startedAt,
      code: facts?.code,
      keyId: (this.principal as KeyPrincipal | undefined)?.keyId,
      cause: refusal?.cause,
      message: refusal?.message,
      callerRequestId: callerIdOf(this.request.headers["x-request-id"]),
      trail,
    });
  }

  release(): void {
    this.#release();
  }

  #head(trail: CallTrail) {
    const { request, requestId } = this;
    return {
      authorization: request.headers.authorization,
      // What the operator may do is no tool.
      adminToken: undefined,
      remoteAddress: request.socket.remoteAddress ?? "",
      slot: slotOf(request.socket),
      forwardedFor: headerOf(request, "x-forwarded-for"),
      requestId,
      trail,
    };
  }
}

/** JSON or an event stream; undefined where the caller accepts neither. */
type Form = "json" | "events" | undefined;

/** How a caller that sends this header `accept` can be answered: JSON wherever it is acceptable; undefined where neither form is. */
function formFor(accept = "*/*"): Form {
  const ranges = accept
    .toLowerCase()
    .split(",")
    .map((each) => each.split(";").map((part) => part.trim()));
  const accepts = (...names: string[]): boolean =>
    ranges.some(
      ([range = "", ...parameters]) => names.includes(range) && !parameters.some((each) => /^q=0(\.0*)?$/.test(each)),
    );
  if (accept.trim() === "" || accepts("*/*", "application/*", "application/json")) return "json";
  return accepts("text/*", "text/event-stream") ? "events" : undefined;
}

const isObject = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The answers to a batch in one: a list, or one event after the other. Nothing answers notifications. */
async function joined(answers: readonly Response[], form: Form): Promise<Response> {
  const said = answers.filter(({ status }) => status !== 202);
  const [first] = said;
  if (first === undefined) return answers[0]!;
  if (form === undefined) return first;
  const texts = await Promise.all(said.map((each) => each.text()));
  const type = form === "json" ? "application/json" : "text/event-stream";
  return new Response(form === "json" ? `[${texts.join(",")}]` : texts.join(""), { headers: { "content-type": type } });
}

/**
 * A message without what clients write for nothing: null for a parameter, and an empty string for a tool's arguments. Arguments that an agent
 * wrote as the text of a JSON object are that object. The metadata of a task has no effect, because the server declares none.
 */
async function meantBy(message: object): Promise<object> {
  const { params, ...others } = message as { params?: unknown };
  if (params === null) return others;
  if (!isObject(params)) return message;
  const { task: _, ...known } = Object.fromEntries(Object.entries(params).filter(([, value]) => value !== null));
  const { arguments: text, ...rest } = known as { arguments?: unknown };
  if (typeof text !== "string") return { ...others, params: known };
  if (text.trim() === "") return { ...others, params: rest };
  // Text that is no JSON stays, and the protocol refuses it.
  const parse = async (): Promise<unknown> => parseCounted(Buffer.from(text), { bounds: boundsFor(MOST_BYTES) });
  return { ...others, params: { ...rest, arguments: await parse().catch(() => text) } };
}

/** The tool that a message calls; undefined where it calls none. */
function toolIn(body: unknown): string | undefined {
  const { method, params } = body as { method?: unknown; params?: { name?: unknown } | null };
  return method === "tools/call" && typeof params?.name === "string" ? params.name : undefined;
}

function toolsFor(services: readonly DescService[]): ReadonlyMap<string, Tool> {
  const methods = new Map(
    services.flatMap(({ typeName, methods }) => methods.map((each) => [`${typeName}/${each.name}`, each] as const)),
  );
  const facts = JSON.parse(readFileSync(TOOLS, "utf8")) as readonly ToolFacts[];
  return new Map(
    facts.map((each) => {
      const method = methods.get(each.rpc);
      if (method === undefined) throw new Error(`gen/tools.json names ${each.rpc}, which does not exist`);
      const { properties = {} } = each.inputSchema as { properties?: object };
      return [each.name, { facts: each, method, fields: new Set(Object.keys(properties)) }];
    }),
  );
}

function write(
  response: HttpResponse,
  status: number,
  headers: readonly string[],
  requestId: string,
  body: string,
): void {
  if (response.destroyed || response.headersSent) return;
  const bytes = Buffer.from(body);
  const length = body === "" ? [] : ["content-length", String(bytes.length)];
  const own = ["cache-control", "no-store", "x-request-id", requestId, "x-api-version", API_VERSION];
  // Both kinds of response take names and values in turn, and have no signature in common.
  (response as ServerResponse).writeHead(status, [...headers, ...length, ...own]);
  (response as ServerResponse).end(bytes);
}
