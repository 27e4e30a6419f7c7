/** The Connect, gRPC and gRPC-Web transports: every RPC of the schema through the gate, by Connect. */
import {
  create,
  type DescMessage,
  type DescMethod,
  type DescService,
  type Message,
  toBinary,
  toJsonString,
} from "@bufbuild/protobuf";
import {
  Code,
  ConnectError,
  type ConnectRouter,
  type ContextValues,
  createContextKey,
  createContextValues,
  type HandlerContext,
  type MethodImpl,
} from "@connectrpc/connect";
import type {
  Compression,
  UniversalHandler,
  UniversalServerRequest,
  UniversalServerResponse,
} from "@connectrpc/connect/protocol";
import { fastifyConnectPlugin } from "@connectrpc/connect-fastify";
import { universalResponseToNodeResponse } from "@connectrpc/connect-node";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { Health } from "../../../../gen/grpc/health/v1/health_pb.ts";
import { ADMIN_HEADER, API_VERSION } from "../../../brand.ts";
import { type CallTrail, isShared, type StreamHandler, type StreamWriter } from "../../../call.ts";
import { Cancel, type Signal, untilAbort } from "../../../cancellation.ts";
import { steadyNow } from "../../../clock.ts";
import { frameMessage } from "../../../codecs/grpc.ts";
import { asRefusal, factsOf, Reason, Refusal, refuse } from "../../../errors.ts";
import { newId } from "../../../ids.ts";
import { SideNote } from "../../../side-note.ts";
import { type BodyMemory, type HeldBytes, ownerOf, UNCOUNTED_BYTES } from "../../body-memory.ts";
import { type CallLog, callerIdOf, type Transport } from "../../call-log.ts";
import type { Admission, CallContext } from "../../gate/authenticate.ts";
import { browserOf, type OwnAddress } from "../../gate/authenticate.ts";
import type { Gate } from "../../gate/gate.ts";
import { boundsOf, refuseStream, wantsStream } from "../../messages/bounds.ts";
import { complete, connectError, refusalOf, refusalOfConnect } from "../../messages/errors.ts";
import { slotOf } from "../../server/slots.ts";
import { CODINGS, type Coding, encodingsFor } from "../grpc/compression.ts";
import { NotSpoken } from "../grpc/status.ts";
import { whileRead } from "../stalled-reader.ts";
import { type BodyReader, boundedRequest } from "./body.ts";
import { healthService, type Readiness, serveReflection } from "./standard-services.ts";

/** What these transports depend on. */
interface ConnectOptions {
  readonly gate: Gate;
  readonly readiness: Readiness;
  readonly log: CallLog;
  readonly memory: BodyMemory;
  /** By which address browsers know the gateway; where it is absent no cookie is read. */
  readonly address?: OwnAddress | undefined;
  /** Aborted when running calls have to end. */
  readonly closing: AbortSignal;
  /** Called with the path of each RPC whose callers stream, when Fastify is ready. */
  readonly endless: (path: string) => void;
  /** Returns a request whose head names no host. */
  readonly unreadable: (request: FastifyRequest, reply: FastifyReply) => void;
}

/** Smaller answers are sent as they are: compressing an action chunk costs a control loop a millisecond. */
const COMPRESS_FROM_BYTES = 1 << 20;

/** Timers hold no more than 31 bits of milliseconds, and fire at once beyond. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** Serves `services`, the health protocol and server reflection. */
export function serveConnect(
  fastify: FastifyInstance,
  services: readonly DescService[],
  options: ConnectOptions,
): void {
  void fastify.register((scope, _, done) => {
    scope.addHook("onRequest", async (request, reply) => {
      const { headers } = request.raw;
      // Connect makes an address of it, and throws where it cannot.
      if (!URL.canParse(`http://${headers[":authority"] ?? headers.host ?? ""}`)) {
        options.unreadable(request, reply);
        return;
      }
      dropEndlessTimeout(headers);
      request.headers = UNPARSED;
      replies.set(request, reply);
    });
    fastifyConnectPlugin(
      scope,
      {
        acceptCompression: CODINGS.map(forQueries),
        compressMinBytes: COMPRESS_FROM_BYTES,
        readMaxBytes: boundsOf(Health.method.check).bytes,
        jsonOptions: { ignoreUnknownFields: false },
        // What the schema does not know is dropped.
        binaryOptions: { readUnknownFields: false },
        shutdownSignal: options.closing,
        contextValues(request) {
          // Connect answers alone: Fastify would answer a second time where a caller has left.
          const response = replies.of(request)!.hijack().raw;
          return createContextValues().set(wireKey, { request: request.raw, response });
        },
        routes: (router) => route(router, services, options),
      },
      done,
    );
  });
}

/** How each request is answered. */
const replies = new SideNote<FastifyRequest, FastifyReply>("reply");

/** What Fastify's parsers of bodies are shown: no body. It is read by `boundedRequest`. */
const UNPARSED = { "content-type": undefined, "content-length": undefined, "transfer-encoding": undefined };

function route(router: ConnectRouter, services: readonly DescService[], options: ConnectOptions): void {
  const requestGate = gateOf(options);
  for (const method of services.flatMap(({ methods }) => methods)) {
    router.rpc(method, handlerOf(method, options), { requestGate, readMaxBytes: boundsOf(method).bytes });
  }
  const names = services.map(({ typeName }) => typeName);
  router.service(Health, healthService(names, options.readiness));
  serveReflection(router, [...services, Health]);
  for (const [i, handle] of router.handlers.entries()) {
    router.handlers[i] = bounded(handle, options);
    if (/client|bidi/.test(handle.method.methodKind)) options.endless(handle.requestPath);
  }
}

/** Bodies come to Connect unpacked; what it unpacks itself are the messages of queries, and heads are short. */
const forQueries = ({ name, compress, decompress }: Coding): Compression => ({
  name,
  compress,
  decompress: (bytes, most) => decompress(bytes, Math.min(most, MOST_IN_QUERY)).catch(thrownAsConnect),
});

const MOST_IN_QUERY = 64 << 10;

const thrownAsConnect = (thrown: unknown): never => {
  throw thrown instanceof Refusal ? connectError(thrown, newId("req")) : thrown;
};

/** One of Connect's handlers, with bounds on the body that it reads and on the time that its answer waits for its reader. */
function bounded(handle: UniversalHandler, options: ConnectOptions): UniversalHandler {
  const answer = async (request: UniversalServerRequest): Promise<UniversalServerResponse> => {
    const { contextValues: values = createContextValues() } = request;
    const wire = values.get(wireKey);
    if (wire === undefined) throw new Error("a call came in past Fastify");
    try {
      const answered = await handle(boundedRequest(request, wire.request, readerOf(handle.method, values, options)));
      const { body } = answered;
      const isStream = body !== undefined && !(body instanceof Uint8Array) && handle.method.methodKind !== "unary";
      const bounded = isStream
        ? { ...answered, body: whileRead(body, wire.response, sentBy(values.get(exchangeKey))) }
        : answered;
      await universalResponseToNodeResponse(bounded, wire.response);
    } catch {
      // No caller is left without an end. The gate has noted why there is no answer.
      wire.response.destroy();
    }
    throw ANSWERED;
  };
  return Object.assign(answer, handle);
}

/**
 * Says to the plugin that there is nothing left to write. It prints the stack of every answer that it can't write, and a caller that leaves
 * in the middle of one is no error of the gateway: so answers are written here.
 */
const ANSWERED = new ConnectError("the call was answered", Code.Aborted);

/** What is sent for an envelope of Connect's. */
const sentBy =
  (exchange: ConnectExchange | undefined) =>
  (envelope: Uint8Array): Uint8Array =>
    exchange?.frames?.sent(envelope) ?? envelope;

/** What the reading of a body does to the call that `values` belong to. */
function readerOf(method: DescMethod, values: ContextValues, { memory }: ConnectOptions): BodyReader {
  return {
    method,
    hold(bytes) {
      const exchange = values.get(exchangeKey);
      const isWhole = method.methodKind !== "bidi_streaming";
      if (isWhole && exchange?.context.trail) exchange.context.trail.inputBytes = bytes;
      if (exchange === undefined || exchange.ended || (bytes <= UNCOUNTED_BYTES && !exchange.held)) return;
      exchange.held ??= memory.open(ownerOf(exchange.admission.principal));
      exchange.held.to(bytes);
    },
    assertOpen() {
      const exchange = values.get(exchangeKey);
      if (exchange?.ended) throw endedEarly(exchange);
    },
    refused(refusal) {
      const exchange = values.get(exchangeKey);
      if (exchange) exchange.refusal ??= refusal;
      return connectError(refusal, exchange?.context.requestId ?? newId("req"));
    },
  };
}

/** A timeout that no timer can hold is none at all, which is what clients mean by it. */
function dropEndlessTimeout(headers: Record<string, unknown>): void {
  const [, amount, unit] = /^(\d{1,8})([HMS])$/.exec(String(headers["grpc-timeout"])) ?? [];
  if (unit !== undefined && Number(amount) * UNIT_MS[unit as keyof typeof UNIT_MS] > MAX_TIMEOUT_MS)
    delete headers["grpc-timeout"];
  if (Number(headers["connect-timeout-ms"]) > MAX_TIMEOUT_MS) delete headers["connect-timeout-ms"];
}

const UNIT_MS = { H: 3_600_000, M: 60_000, S: 1000 } as const;

/** One call on its way through these transports. */
interface ConnectExchange {
  readonly admission: Admission;
  readonly context: CallContext;
  /** The gate has nothing more to say. */
  over?: boolean;
  /** How the call was refused, once it was. */
  refusal?: Refusal;
  /** What its body takes. */
  held?: HeldBytes;
  /** Nothing is held any more. */
  ended?: boolean;
  /** What Connect has of its messages that others are sent, too; absent where its method streams nothing to callers. */
  frames?: SharedFrames;
}

/** The request and the response of node's that a call came by. */
const wireKey = createContextKey<
  { readonly request: FastifyRequest["raw"]; readonly response: FastifyReply["raw"] } | undefined
>(undefined);
const exchangeKey = createContextKey<ConnectExchange | undefined>(undefined);

/** Lets a call in before its body is read, and notes the end of it. */
function gateOf(options: ConnectOptions): (context: HandlerContext) => Promise<void> {
  return async (context) => {
    const startedAt = steadyNow();
    const requestId = newId("req");
    const caller = new Cancel();
    const trail: CallTrail = {};
    let exchange: ConnectExchange | undefined;
    let refusal: Refusal | undefined;
    context.responseHeader.set("x-request-id", requestId);
    context.responseHeader.set("x-api-version", API_VERSION);
    const encodings = encodingsFor(context.requestHeader.get("grpc-encoding"));
    if (encodings !== undefined) context.responseHeader.set("grpc-accept-encoding", encodings);
    // Connect aborts its signal at the end of every call, with the error that it is about to write if there is one.
    context.signal.addEventListener("abort", () => {
      const { reason } = context.signal;
      refusal ??= exchange?.refusal ?? endOf(reason, exchange);
      const bare = reason instanceof ConnectError && reason.details.length === 0;
      // The reason of closing belongs to all calls.
      if (bare && refusal !== undefined && reason !== options.closing.reason) complete(reason, refusal, requestId);
      if (exchange !== undefined && !exchange.over) caller.abort(refusal);
      if (exchange !== undefined) {
        exchange.ended = true;
        if (refusal !== undefined) exchange.refusal ??= refusal;
      }
      exchange?.held?.release();
      exchange?.admission.leave();
      options.log({ ...lineOf(context, requestId, startedAt, exchange, refusal), trail });
    });
    // With a timeout of 0 the signal is aborted before there is a call, and notifies no listener.
    const timeless = context.signal.aborted;
    try {
      const admission = await options.gate.admit(context.method, {
        ...headOf(context, requestId, startedAt, options),
        trail,
      });
      for (let i = 0; i < admission.headers.length; i += 2) {
        context.responseHeader.set(admission.headers[i] ?? "", admission.headers[i + 1] ?? "");
      }
      const call: CallContext = { ...callContextOf(context, requestId, startedAt, caller), trail };
      if (context.signal.aborted) admission.leave();
      if (context.signal.aborted && !timeless) {
        const late = refusal ?? refuse(Reason.DEADLINE_EXCEEDED, "the operation timed out");
        context.values.set(exchangeKey, { admission, context: call, refusal: late, over: true, ended: true });
        return;
      }
      admission.work?.reading();
      exchange = { admission, context: call };
      if (timeless) throw refuse(Reason.DEADLINE_EXCEEDED, "the operation timed out");
      context.values.set(exchangeKey, exchange);
    } catch (thrown) {
      refusal = refusalOf(thrown, context.signal);
      if (timeless) options.log({ ...lineOf(context, requestId, startedAt, exchange, refusal), trail });
      throw connectError(refusal, requestId);
    }
  };
}

/** Why a call ended that the gate did not refuse; undefined where it was answered. */
function endOf(reason: unknown, exchange: ConnectExchange | undefined): Refusal | undefined {
  const plain = reason instanceof DOMException && reason.name === "AbortError";
  // What Connect itself throws before the gate has answered is about the request, and afterwards a bug.
  if (!plain) return reason instanceof ConnectError && !exchange?.over ? refusalOfConnect(reason) : asRefusal(reason);
  return exchange?.over
    ? undefined
    : refuse(Reason.CLIENT_CLOSED_REQUEST, "the client disconnected before the response");
}

function headOf(context: HandlerContext, requestId: string, startedAt: number, { address }: ConnectOptions) {
  const { requestHeader, values } = context;
  const request = values.get(wireKey)?.request;
  const authorization = requestHeader.get("authorization") ?? undefined;
  // A browser's page speaks no other of these protocols with a cookie.
  const isPage = authorization === undefined && context.protocolName === "connect";
  return {
    authorization,
    browser: isPage && request && address ? browserOf(request.headers, request.method ?? "", address) : undefined,
    adminToken: requestHeader.get(ADMIN_HEADER) ?? undefined,
    remoteAddress: request?.socket.remoteAddress ?? "",
    slot: request && slotOf(request.socket),
    forwardedFor: requestHeader.get("x-forwarded-for") ?? undefined,
    requestId,
    deadline: deadlineOf(context, startedAt),
  };
}

/** When the caller's own deadline ends, on the steady clock in milliseconds. */
function deadlineOf(context: HandlerContext, startedAt: number): number | undefined {
  const timeoutMs = context.timeoutMs();
  return timeoutMs === undefined ? undefined : startedAt + timeoutMs;
}

function callContextOf(context: HandlerContext, requestId: string, startedAt: number, signal: Signal): CallContext {
  return {
    requestId,
    signal,
    arrivedAt: startedAt,
    deadline: deadlineOf(context, startedAt),
    idempotencyKey: context.requestHeader.get("idempotency-key") ?? undefined,
    traceparent: context.requestHeader.get("traceparent") ?? undefined,
    host: hostOf(context),
  };
}

function hostOf({ values }: HandlerContext): string | undefined {
  const headers = values.get(wireKey)?.request.headers;
  const authority = headers?.[":authority"];
  return typeof authority === "string" ? authority : headers?.host;
}

const TRANSPORTS: Readonly<Record<string, Transport>> = { grpc: "grpc", "grpc-web": "grpc-web" };

function lineOf(
  context: HandlerContext,
  requestId: string,
  startedAt: number,
  exchange: ConnectExchange | undefined,
  refusal: Refusal | undefined,
) {
  const facts = refusal && factsOf(refusal.reason);
  const principal = exchange?.admission.principal;
  return {
    requestId,
    transport: TRANSPORTS[context.protocolName] ?? "connect",
    rpc: `${context.service.typeName}/${context.method.name}`,
    status: facts?.status ?? 200,
    latencyMs: steadyNow() - startedAt,
    ...(facts && { code: facts.code }),
    ...(principal?.kind === "key" && { keyId: principal.keyId }),
    ...(refusal?.cause !== undefined && { cause: refusal.cause }),
    ...(refusal && { message: refusal.message }),
    callerRequestId: callerIdOf(context.requestHeader.get("x-request-id")),
  };
}

/** The gate's answer to one RPC, with refusals in Connect's form. */
function handlerOf(method: DescMethod, { gate }: ConnectOptions): MethodImpl<DescMethod> {
  const answered = async (request: Message, context: HandlerContext): Promise<Message> => {
    const exchange = exchangeOf(context);
    try {
      if (wantsStream(method, request)) throw refuseStream();
      // Connect encodes behind this function. Its JSON has a form for every value that the binary form has.
      const encode = (answer: Message): unknown => toBinary(method.output, answer);
      const answer = await gate.unary(method, exchange.admission, request, { ...exchange.context, encode });
      if (exchange.admission.replayed) context.responseHeader.set("idempotent-replayed", "true");
      for (const cookie of exchange.admission.browser?.cookies ?? [])
        context.responseHeader.append("set-cookie", cookie);
      return answer;
    } catch (thrown) {
      throw refused(exchange, thrown);
    } finally {
      exchange.over = true;
    }
  };
  const streamed = (request: Message, context: HandlerContext): AsyncIterable<Message> => {
    const exchange = exchangeOf(context);
    const type = context.requestHeader.get("content-type") ?? "";
    const frames = new SharedFrames(method.output, /\+json\b/i.test(type));
    exchange.frames = frames;
    const shown = gate.serverStream.bind(gate, method, exchange.admission, request, exchange.context);
    return guarded(exchange, shown, (message) => frames.pass(message));
  };
  const conversed = (requests: AsyncIterable<Message>, context: HandlerContext): AsyncIterable<Message> => {
    const exchange = exchangeOf(context);
    const { admission, context: call } = exchange;
    const heard = untilAbort(readable(requests, exchange), call.signal);
    const open = (speaker: StreamWriter<Message>) => gate.conversation(method, admission, speaker, call);
    return guarded(exchange, () => converse(heard, call.signal, open));
  };
  const handlers = { unary: answered, server_streaming: streamed, bidi_streaming: conversed };
  if (method.methodKind === "client_streaming")
    throw new Error(`${method} streams to the server alone, which no face serves`);
  // Sound: each handler is taken for the kind of RPC that it serves.
  return handlers[method.methodKind] as MethodImpl<DescMethod>;
}

function exchangeOf(context: HandlerContext): ConnectExchange {
  const exchange = context.values.get(exchangeKey);
  if (exchange === undefined) throw new Error("a call came in past the gate");
  // Its time ended, or its caller left, while the gate or its body had it.
  if (exchange.ended) throw endedEarly(exchange);
  return exchange;
}

const endedEarly = ({ refusal, context }: ConnectExchange): ConnectError =>
  connectError(
    refusal ?? refuse(Reason.CLIENT_CLOSED_REQUEST, "the client disconnected before the response"),
    context.requestId,
  );

function refused(exchange: ConnectExchange, thrown: unknown): ConnectError {
  exchange.refusal = refusalOf(thrown, exchange.context.signal);
  const error = connectError(exchange.refusal, exchange.context.requestId);
  return exchange.refusal instanceof NotSpoken ? Object.assign(error, { code: Code.Unimplemented }) : error;
}

async function* guarded(
  exchange: ConnectExchange,
  open: () => AsyncIterable<Message>,
  pass = (message: Message): Message => message,
): AsyncGenerator<Message> {
  try {
    for await (const message of untilAbort(open(), exchange.context.signal)) yield pass(message);
    exchange.over = true;
  } catch (thrown) {
    exchange.over = true;
    throw refused(exchange, thrown);
  }
  // If the reader disconnects between two messages, Connect's signal cancels the call.
}

/** Messages of the caller, with complaints about them, Connect's own or of the body's reading, as refusals. */
async function* readable(messages: AsyncIterable<Message>, exchange: ConnectExchange): AsyncGenerator<Message> {
  try {
    yield* messages;
  } catch (thrown) {
    if (!(thrown instanceof ConnectError)) throw thrown;
    if (exchange.refusal !== undefined) throw exchange.refusal;
    throw thrown.code === Code.Unimplemented ? new NotSpoken(thrown.rawMessage) : refusalOfConnect(thrown);
  }
}

/** Messages that may wait to be read before the reader counts as slow. */
const MOST_UNREAD = 1;

/**
 * What a service says to `requests`. `open` begins the conversation; a refusal on either side ends it by being thrown. Where the caller
 * has `left`, the service knows.
 */
async function* converse(
  requests: AsyncIterable<Message>,
  left: Signal,
  open: (speaker: StreamWriter<Message>) => StreamHandler<Message>,
): AsyncGenerator<Message, void, undefined> {
  const said = new ConversationMessage();
  const listener = open(said);
  hearAll(requests, listener).catch((thrown: unknown) => {
    // The service brings what it began to its end; one that had ended before has nothing more to say.
    if (thrown instanceof Refusal && !left.aborted) listener.cut(thrown);
    else said.end(thrown);
  });
  yield* said.read(listener);
}

async function hearAll(requests: AsyncIterable<Message>, listener: StreamHandler<Message>): Promise<void> {
  for await (const request of requests) listener.hear(request);
  listener.close();
}

/** What was said and is not read yet. */
class ConversationMessage implements StreamWriter<Message> {
  readonly #messages: Message[] = [];
  #isOver = false;
  #refusal: unknown;
  #notify = (): void => {};

  get behind(): boolean {
    return this.#messages.length > MOST_UNREAD;
  }

  say(message: Message): void {
    if (this.#isOver) return;
    this.#messages.push(message);
    this.#notify();
  }

  end(refusal?: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#refusal = refusal;
    this.#notify();
  }

  async *read(listener: StreamHandler<Message>): AsyncGenerator<Message, void, undefined> {
    for (;;) {
      while (this.#messages.length > 0) {
        const wasBehind = this.behind;
        yield this.#messages.shift()!;
        if (wasBehind && !this.behind) listener.room();
      }
      if (this.#isOver) break;
      await new Promise<void>((resolve) => {
        this.#notify = resolve;
      });
    }
    if (this.#refusal !== undefined) throw this.#refusal;
  }
}

/** What one stream has in Connect's hands: it asks for a message only after the one before was sent. */
class SharedFrames {
  readonly #output: DescMessage;
  readonly #isJson: boolean;
  #message: Message | undefined;

  /** `output` is the type of the stream's messages; without `isJson` they are sent in binary. */
  constructor(output: DescMessage, isJson: boolean) {
    this.#output = output;
    this.#isJson = isJson;
  }

  /** What Connect is given for a message: the message itself, or an empty one for one that is shared. */
  pass(message: Message): Message {
    this.#message = isShared(message) ? message : undefined;
    return this.#message === undefined ? message : emptyOf(this.#output);
  }

  /** What is sent for an envelope of Connect's: the envelope itself, or the frame of the message that it stands for. */
  sent(envelope: Uint8Array): Uint8Array {
    const message = this.#message;
    this.#message = undefined;
    return message === undefined ? envelope : frameOf(this.#output, message, this.#isJson);
  }
}

const empties = new WeakMap<DescMessage, Message>();

function emptyOf(desc: DescMessage): Message {
  const known = empties.get(desc) ?? create(desc);
  empties.set(desc, known);
  return known;
}

/** By message: what it is in JSON, and in binary. They go with it. */
const frames = { json: new WeakMap<Message, Uint8Array>(), binary: new WeakMap<Message, Uint8Array>() };

function frameOf(desc: DescMessage, message: Message, isJson: boolean): Uint8Array {
  const known = isJson ? frames.json : frames.binary;
  const frame =
    known.get(message) ?? frameMessage(isJson ? Buffer.from(toJsonString(desc, message)) : toBinary(desc, message));
  known.set(message, frame);
  return frame;
}
