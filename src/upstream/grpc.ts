/** gRPC towards one model server, on node:http2 itself: a connection that opens when it's needed, and calls of one answer or many. */
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
} from "node:http2";
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { after, random, steadyNow } from "../ambient.ts";
import { BRAND } from "../brand.ts";
import { CodecError } from "../codecs/error.ts";
import { MessageReader } from "../codecs/grpc.ts";
import { AttemptFailure, UpstreamFailure } from "../contracts/failure.ts";
import type { Signal } from "../signal.ts";
import { calledOff, failureOf, lost, malformed, ownerText, unreachable } from "./failures.ts";
import { type Address, MAX_MESSAGE_BYTES, type Server } from "./servers.ts";
import { traceOf } from "./wire.ts";

/** The schemes of every wire that is gRPC. */
export const GRPC_SCHEMES: Readonly<Record<string, string>> = { "grpc:": "http:", "grpcs:": "https:" };

/** From the first packet to the server's first frame: a server that infers in its event loop is slow to greet. */
const CONNECT_MS = 10_000;
const IDLE_MS = 5 * 60_000;
/** A call that ran out of time asks whether the connection still lives; without an answer in this time it's given up. */
const PROOF_OF_LIFE_MS = 10_000;
const BACKOFF = { firstMs: 25, mostMs: 1_000 } as const;
/** A stream whose reader stalls holds what its window lets in, for the connection's own window is given back at once. */
const WINDOW_BYTES = { stream: 2 ** 20, connection: 32 * 2 ** 20 } as const;

/** What a server is asked for, and for how long. */
export interface Exchange {
  /** Such as `/limber.policy.v1.PolicyService/Act`. */
  readonly path: string;
  readonly signal: Signal;
  readonly budgetMs: number;
  readonly requestId: string;
  readonly traceparent?: string | undefined;
}

/** The calls to one server under one credential, each on a stream of its own. */
export class GrpcCalls implements Server {
  readonly #connection: Connection;

  constructor(address: Address) {
    this.#connection = new Connection(address, () => undefined);
  }

  get idle(): boolean {
    return this.#connection.idle;
  }

  /** Sends framed messages and yields the answer's messages as they come; throws an UpstreamFailure. */
  async *stream(exchange: Exchange, message: Buffer): AsyncGenerator<Buffer, void, undefined> {
    const { signal } = exchange;
    if (signal.aborted) throw calledOff(signal);
    const stream = this.#connection.request({
      ":path": exchange.path,
      "grpc-timeout": `${Math.max(1, Math.min(99_999_999, Math.floor(exchange.budgetMs)))}m`,
      "x-request-id": exchange.requestId,
      ...traceOf(exchange),
    });
    const reply = new Reply(stream);
    const leave = (): void => cancel(stream);
    signal.addEventListener("abort", leave, { once: true });
    try {
      stream.end(message);
      // No generator of its own, and no `yield*`: every frame of a prediction would wait its turns in both.
      const ready: Buffer[] = [];
      const reader = new MessageReader(MAX_MESSAGE_BYTES, (part, compressed) => ready.push(plain(part, compressed)));
      for await (const chunk of stream.iterator({ destroyOnReturn: false })) {
        reader.push(chunk);
        for (const part of ready.splice(0)) yield part;
      }
      reader.end();
      await reply.closed;
      throwIfFailed(reply);
    } catch (error) {
      if (!signal.aborted) throw reply.failure ?? failureOf(error);
      this.#connection.proveLife();
      throw calledOff(signal);
    } finally {
      signal.removeEventListener("abort", leave);
      cancel(stream);
    }
  }

  /** Sends framed messages and resolves with the one message of the answer. */
  async unary(exchange: Exchange, message: Buffer): Promise<Buffer> {
    let answer: Buffer | undefined;
    for await (const part of this.stream(exchange, message)) {
      if (answer !== undefined) throw malformed("more than one message");
      answer = part;
    }
    if (answer === undefined) throw new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "no message before the end");
    return answer;
  }

  close(): void {
    this.#connection.close();
  }
}

function throwIfFailed(reply: Reply): void {
  const failure = reply.outcome();
  if (failure !== undefined) throw failure;
}

/** We announce no encoding, so a compressed message is one that we can't be meant to read. */
export function plain(message: Buffer, compressed: boolean): Buffer {
  if (compressed) throw new CodecError("unsupported");
  return message;
}

/** Ends a stream that nobody reads any more, and tells the server. */
export function cancel(stream: ClientHttp2Stream): void {
  if (stream.destroyed) return;
  stream.close(constants.NGHTTP2_CANCEL);
  stream.destroy();
}

/** What a server says around the messages of one stream: headers, trailers, and how it ended. */
export class Reply {
  /** The first thing that went wrong. */
  failure: UpstreamFailure | undefined;
  /** Resolves when nothing more can come. */
  readonly closed: Promise<void>;
  #hasStatus = false;

  constructor(stream: ClientHttp2Stream) {
    stream.on("response", (headers) => {
      if (headers["grpc-status"] !== undefined) this.#end(headers);
      else if (headers[":status"] !== 200) this.fail(statusFailure(headers));
      else if (!isGrpc(headers)) this.fail(malformed("not a gRPC answer"));
    });
    stream.on("trailers", (trailers) => this.#end(trailers));
    stream.on("error", (error) => this.fail(failureOf(error)));
    this.closed = new Promise((resolve) => stream.once("close", resolve));
  }

  fail(failure: UpstreamFailure | undefined): void {
    this.failure ??= failure;
  }

  /** How it ended, once it has: undefined when the server said OK. */
  outcome(): UpstreamFailure | undefined {
    return this.failure ?? (this.#hasStatus ? undefined : lost("the stream ended without a status"));
  }

  #end(trailers: IncomingHttpHeaders): void {
    this.fail(statusFailure(trailers));
    this.#hasStatus = true;
  }
}

const isGrpc = (headers: IncomingHttpHeaders): boolean =>
  headers["content-type"]?.startsWith("application/grpc") === true;

/** One HTTP/2 session that is opened when it's needed and again when it has gone, not at once when that keeps failing. */
export class Connection {
  readonly #address: Address;
  readonly #onIdle: () => void;
  #session: ClientHttp2Session | undefined;
  #usedAt = 0;
  #failures = 0;
  #notBefore = 0;
  #lastFailure: UpstreamFailure | undefined;
  #asked = false;

  /** `onIdle` ends what would keep an unused session open. */
  constructor(address: Address, onIdle: () => void) {
    this.#address = address;
    this.#onIdle = onIdle;
  }

  get idle(): boolean {
    return this.#session === undefined && steadyNow() >= this.#notBefore;
  }

  /** Opens a stream, on a new session if there is none; its failures come as the stream's error. Throws an UpstreamFailure. */
  request(headers: OutgoingHttpHeaders): ClientHttp2Stream {
    const session = this.#open();
    this.touch();
    try {
      return session.request({ ...this.#headers(), ...headers }, { endStream: false });
    } catch (error) {
      session.close(); // its stream ids are used up, say: the next one has fresh ones
      throw failureOf(error);
    }
  }

  /** Says that the connection is in use, on a stream that's already open. */
  touch(): void {
    this.#usedAt = steadyNow();
  }

  /** Gives the session up unless it answers a ping soon. */
  proveLife(): void {
    const session = this.#session;
    if (session === undefined || session.connecting || session.destroyed || this.#asked) return;
    this.#asked = true;
    const forget = after(PROOF_OF_LIFE_MS, () => session.destroy(lost("the connection is silent")));
    const settle = (): void => {
      this.#asked = false;
      forget();
    };
    session.once("close", settle);
    session.ping(() => {
      session.off("close", settle);
      settle();
    });
  }

  close(): void {
    this.#session?.destroy();
  }

  #headers(): OutgoingHttpHeaders {
    const { authorization, headers } = this.#address;
    if (headers !== undefined) return { ...HEADERS, ...headers };
    return authorization === undefined ? HEADERS : { ...HEADERS, authorization };
  }

  #open(): ClientHttp2Session {
    if (this.#session !== undefined && !this.#session.closed && !this.#session.destroyed) return this.#session;
    if (steadyNow() < this.#notBefore && this.#lastFailure !== undefined) throw this.#lastFailure;
    const session = connect(this.#address.url, {
      createConnection: () => dial(this.#address),
      settings: { enablePush: false, initialWindowSize: WINDOW_BYTES.stream },
      maxSessionMemory: 256,
    });
    this.#session = session;
    this.#watch(session);
    return session;
  }

  #watch(session: ClientHttp2Session): void {
    let greeted = false;
    let failure: UpstreamFailure | undefined;
    const forget = after(CONNECT_MS, () => session.destroy(unreachable("no connection in time")));
    session.once("connect", () => session.setLocalWindowSize(WINDOW_BYTES.connection));
    session.once("remoteSettings", () => {
      greeted = true;
      this.#failures = 0;
      forget();
    });
    let forgetIdle = after(IDLE_MS, () => closeIfIdle());
    const closeIfIdle = (): void => {
      const left = this.#usedAt + IDLE_MS - steadyNow();
      if (left > 0) {
        forgetIdle = after(left, closeIfIdle);
      } else {
        session.close();
        this.#onIdle();
      }
    };
    session.on("error", (error) => {
      failure = failureOf(error);
    });
    session.once("close", () => {
      forget();
      forgetIdle();
      if (this.#session === session) this.#session = undefined;
      if (!greeted) this.#backOff(failure ?? unreachable("the server hung up before it spoke"));
    });
  }

  #backOff(failure: UpstreamFailure): void {
    const longest = Math.min(BACKOFF.mostMs, BACKOFF.firstMs * 2 ** this.#failures++);
    this.#notBefore = steadyNow() + longest * (0.5 + random() / 2);
    this.#lastFailure = failure;
  }
}

const HEADERS: OutgoingHttpHeaders = {
  ":method": "POST",
  te: "trailers",
  "content-type": "application/grpc+proto",
  "user-agent": BRAND,
};

const DEFAULT_PORT: Readonly<Record<string, number>> = { "http:": 80, "https:": 443 };

function dial({ url, lookup }: Address): Socket {
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const to = { host, port: Number(url.port || DEFAULT_PORT[url.protocol]), lookup };
  const socket =
    url.protocol === "https:"
      ? connectTls({ ...to, ALPNProtocols: ["h2"], ...(isIP(host) === 0 && { servername: host }) })
      : connectTcp(to);
  return socket.setKeepAlive(true, 30_000);
}

/** How a stream ended, by its trailers, or by its headers when they stand alone: undefined for OK. */
export function statusFailure(headers: IncomingHttpHeaders): UpstreamFailure | undefined {
  const status = headers["grpc-status"];
  if (status === "0") return undefined;
  const said = ownerText(`status ${status ?? headers[":status"]}: ${ownerText(decoded(headers["grpc-message"]))}`);
  if (status !== undefined)
    return new UpstreamFailure(BY_GRPC_STATUS[Number(status)] ?? AttemptFailure.UPSTREAM_ERROR, said);
  return new UpstreamFailure(BY_HTTP_STATUS[Number(headers[":status"])] ?? AttemptFailure.UPSTREAM_ERROR, said);
}

/** `grpc-message` is percent-encoded; what isn't stays as it is. */
function decoded(text: string | string[] | undefined): string {
  try {
    return decodeURIComponent(String(text ?? ""));
  } catch {
    return String(text);
  }
}

/** gRPC's numbers; all others are errors of the server's own. Source: https://grpc.github.io/grpc/core/md_doc_statuscodes.html */
const BY_GRPC_STATUS: Readonly<Record<number, AttemptFailure>> = {
  1: AttemptFailure.CONNECTION_LOST, // CANCELLED
  3: AttemptFailure.INPUT_REJECTED, // INVALID_ARGUMENT
  4: AttemptFailure.TIMEOUT, // DEADLINE_EXCEEDED
  7: AttemptFailure.UPSTREAM_AUTH, // PERMISSION_DENIED
  8: AttemptFailure.UPSTREAM_BUSY, // RESOURCE_EXHAUSTED
  11: AttemptFailure.INPUT_REJECTED, // OUT_OF_RANGE
  14: AttemptFailure.UNREACHABLE, // UNAVAILABLE
  16: AttemptFailure.UPSTREAM_AUTH, // UNAUTHENTICATED
};

/** What stands between us and the server answers in HTTP's own words. */
const BY_HTTP_STATUS: Readonly<Record<number, AttemptFailure>> = {
  401: AttemptFailure.UPSTREAM_AUTH,
  403: AttemptFailure.UPSTREAM_AUTH,
  413: AttemptFailure.INPUT_REJECTED,
  429: AttemptFailure.UPSTREAM_BUSY,
  502: AttemptFailure.UNREACHABLE,
  503: AttemptFailure.UPSTREAM_BUSY,
  504: AttemptFailure.TIMEOUT,
};
