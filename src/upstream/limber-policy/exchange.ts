/**
 * gRPC towards one model server, on node:http2 itself: one stream of acts that stays open and carries all of them, and one
 * stream per other call. Acts have a connection of their own, so that no reader of predicted frames can hold one up.
 */
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
import type { ActResponse } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { after, random, steadyNow } from "../../ambient.ts";
import { BRAND } from "../../brand.ts";
import { CodecError } from "../../codecs/error.ts";
import { MessageReader } from "../../codecs/grpc.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import type { Signal } from "../../signal.ts";
import { calledOff, failureOf, lost, malformed, unreachable } from "../failures.ts";
import { type Address, MAX_MESSAGE_BYTES, type Server } from "../servers.ts";
import { readAct, statusFailure } from "./decode.ts";
import { encodeCancel } from "./encode.ts";

const MAX_CALL_ID = 2 ** 32 - 1;
/** From the first packet to the server's first frame: a server that infers in its event loop is slow to greet. */
const CONNECT_MS = 10_000;
const IDLE_MS = 5 * 60_000;
/** A call that ran out of time asks whether the connection still lives; without an answer in this time it's given up. */
const PROOF_OF_LIFE_MS = 10_000;
const BACKOFF = { firstMs: 25, mostMs: 1_000 } as const;
const WINDOW_BYTES = { stream: 4 * 2 ** 20, connection: 32 * 2 ** 20 } as const;

/** What a server is asked for, and for how long. */
export interface Exchange {
  /** Such as `/limber.policy.v1.PolicyService/Act`. */
  readonly path: string;
  readonly signal: Signal;
  readonly budgetMs: number;
  readonly requestId: string;
}

/** Every connection to one server under one credential. */
export class Channel implements Server {
  readonly #acts: Connection;
  readonly #calls: Connection;
  #stream: ActStream | undefined;

  constructor(address: Address) {
    this.#acts = new Connection(address, () => this.#stream?.retire());
    this.#calls = new Connection(address, () => undefined);
  }

  get idle(): boolean {
    return this.#acts.idle && this.#calls.idle;
  }

  /**
   * Sends one act on the stream that all of them share and resolves with its answer. `encode` gets the id that names the call on
   * the stream and gives the framed message. Rejects with an UpstreamFailure; an aborted call is cancelled at the server.
   */
  act(path: string, encode: (callId: number) => Buffer, signal: Signal): Promise<ActResponse> {
    if (signal.aborted) return Promise.reject(calledOff(signal));
    try {
      if (this.#stream === undefined || !this.#stream.takesCalls) {
        this.#stream?.retire();
        this.#stream = new ActStream(this.#acts.request({ ":path": path }));
      }
      this.#acts.touch();
      return this.#stream.call(encode, signal).catch((failure: unknown) => {
        if (signal.aborted) this.#acts.proveLife();
        throw failure;
      });
    } catch (error) {
      return Promise.reject(failureOf(error));
    }
  }

  /** Sends one framed message and yields the answer's messages as they come; throws an UpstreamFailure. */
  async *stream(exchange: Exchange, message: Buffer): AsyncGenerator<Buffer, void, undefined> {
    const { signal } = exchange;
    if (signal.aborted) throw calledOff(signal);
    const stream = this.#calls.request({
      ":path": exchange.path,
      "grpc-timeout": `${Math.max(1, Math.min(99_999_999, Math.floor(exchange.budgetMs)))}m`,
      "x-request-id": exchange.requestId,
    });
    const reply = new Reply(stream);
    const leave = (): void => cancel(stream);
    signal.addEventListener("abort", leave, { once: true });
    try {
      stream.end(message);
      yield* messagesOf(stream);
      await reply.closed;
      throwIfFailed(reply);
    } catch (error) {
      if (!signal.aborted) throw reply.failure ?? failureOf(error);
      this.#calls.proveLife();
      throw calledOff(signal);
    } finally {
      signal.removeEventListener("abort", leave);
      cancel(stream);
    }
  }

  /** Sends one framed message and resolves with the one message of the answer. */
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
    this.#acts.close();
    this.#calls.close();
  }
}

function throwIfFailed(reply: Reply): void {
  const failure = reply.outcome();
  if (failure !== undefined) throw failure;
}

async function* messagesOf(stream: ClientHttp2Stream): AsyncGenerator<Buffer, void, undefined> {
  const ready: Buffer[] = [];
  const reader = new MessageReader(MAX_MESSAGE_BYTES, (message, compressed) => ready.push(plain(message, compressed)));
  for await (const chunk of stream.iterator({ destroyOnReturn: false })) {
    reader.push(chunk);
    yield* ready.splice(0);
  }
  reader.end();
}

/** We announce no encoding, so a compressed message is one that we can't be meant to read. */
function plain(message: Buffer, compressed: boolean): Buffer {
  if (compressed) throw new CodecError("unsupported");
  return message;
}

function cancel(stream: ClientHttp2Stream): void {
  if (stream.destroyed) return;
  stream.close(constants.NGHTTP2_CANCEL);
  stream.destroy();
}

/** What a server says around the messages of one stream: headers, trailers, and how it ended. */
class Reply {
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

/** The one stream on which a server answers acts, each under its call's id and in any order. */
class ActStream {
  readonly #stream: ClientHttp2Stream;
  readonly #pending = new Map<number, PendingAct>();
  #nextId = 1;
  #retired = false;

  constructor(stream: ClientHttp2Stream) {
    this.#stream = stream;
    const reply = new Reply(stream);
    const reader = new MessageReader(MAX_MESSAGE_BYTES, (message, compressed) =>
      this.#answer(readAct(plain(message, compressed))),
    );
    stream.on("data", (chunk: Buffer) => {
      try {
        reader.push(chunk);
      } catch (error) {
        reply.fail(failureOf(error));
        cancel(stream);
      }
    });
    stream.on("end", () => cancel(stream));
    void reply.closed.then(() => this.#fail(reply.outcome() ?? lost("the server ended the stream of acts")));
  }

  /** False once the stream is ending, its session takes no new calls, or its ids are used up. */
  get takesCalls(): boolean {
    const { session } = this.#stream;
    const ending = this.#stream.destroyed || this.#stream.closed || this.#stream.readableEnded;
    return !this.#retired && !ending && session?.closed === false && this.#nextId < MAX_CALL_ID;
  }

  call(encode: (callId: number) => Buffer, signal: Signal): Promise<ActResponse> {
    if (this.#stream.writableLength > MAX_MESSAGE_BYTES) {
      throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "the server doesn't read what it was sent");
    }
    const id = this.#nextId++;
    const message = encode(id);
    return new Promise((resolve, reject) => {
      this.#pending.set(id, new PendingAct({ resolve, reject, signal, onAbort: () => this.#cancel(id) }));
      this.#stream.write(message);
    });
  }

  /** No new calls; ends when the last one has its answer. */
  retire(): void {
    this.#retired = true;
    this.#endIfDone();
  }

  #answer(response: ActResponse): void {
    if (response.callId === 0 || response.callId >= this.#nextId) {
      throw malformed("an answer to a call that was never made");
    }
    // A call that was called off may still be answered: too late, so it's dropped.
    this.#take(response.callId)?.resolve(response);
    this.#endIfDone();
  }

  #cancel(id: number): void {
    const call = this.#take(id);
    if (call === undefined) return;
    if (!this.#stream.destroyed && !this.#stream.writableEnded) this.#stream.write(encodeCancel(id));
    call.reject(calledOff(call.signal));
    this.#endIfDone();
  }

  #take(id: number): Waiting | undefined {
    const call = this.#pending.get(id)?.end();
    this.#pending.delete(id);
    return call;
  }

  #fail(failure: UpstreamFailure): void {
    this.#retired = true;
    for (const id of [...this.#pending.keys()]) this.#take(id)?.reject(failure);
  }

  #endIfDone(): void {
    if (this.#retired && this.#pending.size === 0) cancel(this.#stream);
  }
}

/** Who waits for an answer. */
interface Waiting {
  readonly resolve: (response: ActResponse) => void;
  readonly reject: (failure: UpstreamFailure) => void;
  readonly signal: Signal;
  readonly onAbort: () => void;
}

/**
 * A call that waits for its answer, and that holds nothing once it has it: a Map that makes room leaves a table behind, which
 * the collector takes for alive until its next full round, with all that was in it.
 */
class PendingAct {
  #waiting: Waiting | undefined;

  constructor(waiting: Waiting) {
    this.#waiting = waiting;
    waiting.signal.addEventListener("abort", waiting.onAbort, { once: true });
  }

  /** Ends the wait; gives who waited. */
  end(): Waiting | undefined {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.signal.removeEventListener("abort", waiting.onAbort);
    return waiting;
  }
}

/** One HTTP/2 session that is opened when it's needed and again when it has gone, not at once when that keeps failing. */
class Connection {
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
    const { authorization } = this.#address;
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
