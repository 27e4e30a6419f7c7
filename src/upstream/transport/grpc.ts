/**
 * A gRPC client for one model server over node:http2. A server that violates the protocol loses its call or its connection. Source:
 * https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
 */
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type OutgoingHttpHeaders,
} from "node:http2";
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { BRAND } from "../../brand.ts";
import type { Signal } from "../../cancellation.ts";
import { after, now, steadyNow } from "../../clock.ts";
import { CodecError } from "../../codecs/error.ts";
import { MessageReader } from "../../codecs/grpc.ts";
import { passed } from "../../codecs/passing.ts";
import { retryAfterMs } from "../../codecs/retry-after.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { random } from "../../random.ts";
import { traceOf } from "../wire.ts";
import {
  calledOff,
  failureOf,
  failureOfGrpc,
  failureOfStatus,
  http2Failure,
  lost,
  malformed,
  ownerText,
  unreachable,
} from "./failures.ts";
import { type Address, MAX_MESSAGE_BYTES, type UpstreamServer } from "./servers.ts";

/** The schemes of every gRPC wire. */
export const GRPC_SCHEMES: Readonly<Record<string, string>> = { "grpc:": "http:", "grpcs:": "https:" };

/** Concurrent calls to one server, each on its own stream. One more fails with `UPSTREAM_BUSY`. */
const MOST_CALLS = 1_024;

/** A request to a server, and its timeout. */
export interface GrpcExchange {
  /** Such as `/limber.policy.v1.PolicyService/Act`. */
  readonly path: string;
  readonly signal: Signal;
  /** Milliseconds; sent as `grpc-timeout`. The signal ends the call. */
  readonly budgetMs: number;
  readonly requestId: string;
  readonly traceparent?: string | undefined;
}

/** A framed message, complete or in pieces. */
export type GrpcMessage = Buffer | readonly Buffer[];

/** A bidirectional call. It stays open until either side ends it. */
export interface GrpcDuplex {
  /** False once it has ended, or its connection accepts no new calls: later messages need another one. */
  readonly lasts: boolean;
  /** Bytes that the server has not read yet. */
  readonly queued: number;
  /** Sends a framed message, whose bytes must not change. */
  send(message: GrpcMessage): void;
  /** Closes the connection unless the server answers a ping within 10 s, because a sent message got no answer. */
  proveLife(): void;
  /** Ends it for both sides, without further events. */
  cancel(): void;
}

/** The events of a duplex call, none of which occurs before `duplex` returns. */
export interface DuplexEvents {
  /** Receives a message. An error that it throws ends the call. */
  message(bytes: Buffer): void;
  /** The end, once and as the last event: undefined if the server reported OK. */
  ended(failure: UpstreamFailure | undefined): void;
  /** Its connection was idle for five minutes, and closes when the call ends. */
  idle(): void;
}

/** The header fields of this call only. */
const fieldsOf = (exchange: Omit<GrpcExchange, "signal">): Record<string, string> => ({
  "grpc-timeout": `${Math.max(1, Math.min(99_999_999, Math.floor(exchange.budgetMs)))}m`,
  "x-request-id": exchange.requestId,
  ...traceOf(exchange),
});

/** The fields of a header or trailer block, by lower-case name. */
type ReplyFields = Readonly<Record<string, string | string[] | number | undefined>>;

/** The headers and trailers of one call. */
export class ReplyStatus {
  /** The first error. */
  failure: UpstreamFailure | undefined;
  /** Whether the server reported the call's status. */
  isComplete = false;

  /** Reads the response headers. A status in them replaces trailers. */
  head(fields: ReplyFields): void {
    if (fields["grpc-status"] !== undefined) this.trailers(fields);
    else if (Number(fields[":status"]) !== 200) this.failure ??= statusFailure(fields);
    else if (!isGrpc(fields)) this.failure ??= malformed("the response is not gRPC");
  }

  trailers(fields: ReplyFields): void {
    this.failure ??= statusFailure(fields);
    this.isComplete = true;
  }

  /** Returns how the call ended, given its stream's end: undefined if the server reported OK. */
  outcome(ofStream: UpstreamFailure | undefined): UpstreamFailure | undefined {
    const failure = this.failure ?? ofStream;
    if (failure !== undefined || this.isComplete) return failure;
    return lost("the stream ended without a status");
  }
}

/** The call announced no encoding, so compressed messages are invalid. Throws a CodecError. */
function uncompressed(message: Buffer, compressed: boolean): Buffer {
  if (compressed) throw new CodecError("unsupported");
  return message;
}

/** The failure of a unary call whose response has a second message. */
const severalMessages = (): UpstreamFailure => malformed("the server sent more than one message");

/** The failure of a unary call whose response has no message. */
const noMessage = (): UpstreamFailure =>
  new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "the stream ended without a message");

/** The failure of a call beyond `MOST_CALLS`. */
const tooManyCalls = (): UpstreamFailure =>
  new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "too many concurrent calls");

const isGrpc = (fields: ReplyFields): boolean => String(fields["content-type"]).startsWith("application/grpc");

/** Returns how a stream ended, by its trailers, or by its headers if they are alone: undefined for OK. */
function statusFailure(fields: ReplyFields): UpstreamFailure | undefined {
  const status = fields["grpc-status"];
  if (status === "0") return undefined;
  const message = ownerText(decoded(fields["grpc-message"]));
  const said = ownerText(`status ${status ?? fields[":status"]}: ${message}`);
  const failure =
    status === undefined
      ? failureOfStatus(Number(fields[":status"]), said)
      : failureOfGrpc(Number(status), message, said);
  // Source: https://github.com/grpc/proposal/blob/master/A6-client-retries.md#pushback
  const pushback = Number(fields["grpc-retry-pushback-ms"] ?? Number.NaN) / 1_000;
  failure.retryAfterMs = retryAfterMs(pushback >= 0 ? String(pushback) : fields["retry-after"], now());
  return failure;
}

/** `grpc-message` is percent-encoded; invalid escapes are kept. */
function decoded(field: ReplyFields[string]): string {
  const text = String(field ?? "");
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Calls to one server with one credential; connections are opened on first use. Every failure is an UpstreamFailure. */
export class GrpcClient implements UpstreamServer {
  readonly #calls: Http2Connection;
  readonly #duplexes: Http2Connection;
  readonly #open = new Set<DuplexEvents>();
  #running = 0;

  constructor(address: Address) {
    this.#calls = new Http2Connection(address, () => undefined);
    this.#duplexes = new Http2Connection(address, () => {
      for (const events of this.#open) events.idle();
    });
  }

  get idle(): boolean {
    return this.#calls.idle && this.#duplexes.idle;
  }

  /** Sends framed messages and resolves with the single message of the response. */
  async unary({ signal, path, ...exchange }: GrpcExchange, message: Buffer): Promise<Buffer> {
    if (signal.aborted) throw calledOff(signal);
    if (this.#running >= MOST_CALLS) throw tooManyCalls();
    const opened = this.#calls.request({ ":path": path, ...fieldsOf({ path, ...exchange }) });
    this.#running++;
    return new Promise((resolve, reject) => {
      let answer: Buffer | undefined;
      const leave = (): void => {
        this.#calls.proveLife();
        call.end(calledOff(signal));
      };
      const call = new Call(opened, {
        message(part) {
          if (answer !== undefined) throw severalMessages();
          answer = part;
        },
        ended: (failure) => {
          this.#running--;
          signal.removeEventListener("abort", leave);
          if (failure !== undefined) reject(failure);
          else if (answer !== undefined) resolve(answer);
          else reject(noMessage());
        },
      });
      signal.addEventListener("abort", leave, { once: true });
      opened.stream.end(message);
    });
  }

  /** Sends framed messages and yields what `read` makes of each message of the response. A consumer that stops iterating ends the call. */
  async *stream<T>(
    exchange: GrpcExchange,
    message: () => Promise<Buffer>,
    read: (part: Buffer) => T,
  ): AsyncGenerator<T, undefined, undefined> {
    for await (const part of this.#messages(exchange, await message())) yield read(part);
    return undefined;
  }

  /**
   * Opens a bidirectional call on its own connection, so that a slow reader of other calls does not delay it. Throws while no connection can be
   * opened.
   */
  duplex(path: string, events: DuplexEvents): GrpcDuplex {
    const opened = this.#duplexes.request({ ":path": path });
    const { stream, session } = opened;
    const call = new Call(opened, {
      message: (bytes) => events.message(bytes),
      ended: (failure) => {
        this.#open.delete(events);
        events.ended(failure);
      },
    });
    this.#open.add(events);
    return {
      get lasts() {
        return !call.isOver && !stream.closed && session.takesStreams;
      },
      get queued() {
        return stream.writableLength;
      },
      send: (message) => {
        this.#duplexes.touch();
        if (call.isOver || stream.destroyed) return;
        if (message instanceof Buffer) {
          stream.write(message);
          return;
        }
        // All pieces are sent in one write.
        stream.cork();
        for (const piece of message) stream.write(piece);
        stream.uncork();
      },
      proveLife: () => this.#duplexes.proveLife(),
      cancel: () => {
        this.#open.delete(events);
        call.cancel();
      },
    };
  }

  close(): void {
    this.#calls.close();
    this.#duplexes.close();
  }

  /** Sends framed messages and yields those of the response as they arrive. A consumer that stops iterating ends the call. */
  async *#messages(exchange: GrpcExchange, message: Buffer): AsyncGenerator<Buffer, void, undefined> {
    const { signal, path } = exchange;
    if (signal.aborted) throw calledOff(signal);
    if (this.#running >= MOST_CALLS) throw tooManyCalls();
    const { stream, session } = this.#calls.request({ ":path": path, ...fieldsOf(exchange) });
    const status = new ReplyStatus();
    const closed = new Promise<void>((resolve) => stream.once("close", resolve));
    let ofStream: UpstreamFailure | undefined;
    stream.on("response", (fields) => status.head(fields));
    stream.on("trailers", (fields) => status.trailers(fields));
    stream.on("error", (error) => {
      ofStream = failureOf(error);
    });
    const leave = (): void => {
      this.#calls.proveLife();
      cancelStream(stream);
    };
    signal.addEventListener("abort", leave, { once: true });
    this.#running++;
    try {
      stream.end(message);
      const ready: Buffer[] = [];
      const reader = new MessageReader(MAX_MESSAGE_BYTES, (part, compressed) => {
        ready.push(uncompressed(part, compressed));
      });
      const chunks = stream.iterator({ destroyOnReturn: false });
      for (;;) {
        // The stream's own error is reported by its event.
        const chunk = await chunks.next().catch(() => undefined);
        if (chunk === undefined || chunk.done) break;
        if (status.failure !== undefined) throw status.failure;
        let fault: unknown;
        try {
          reader.push(chunk.value);
        } catch (error) {
          fault = error;
        }
        // Complete messages before an error are part of the response.
        for (const part of ready.splice(0)) {
          if (signal.aborted) throw calledOff(signal);
          yield part;
        }
        if (fault !== undefined) throw fault;
      }
      // The reason of a reset is known when the stream has closed. A successful stream closes later: when the entire request was sent.
      if (stream.closed || stream.destroyed) await closed;
      if (signal.aborted) throw calledOff(signal);
      const failure = outcomeOf(status, ofStream ?? session.failure ?? resetOf(stream), reader);
      if (failure !== undefined) throw failure;
    } catch (error) {
      throw failureOf(error);
    } finally {
      this.#running--;
      signal.removeEventListener("abort", leave);
      cancelStream(stream);
    }
  }
}

/** The events of a call's response. */
interface CallEvents {
  /** Receives a message. An error that it throws ends the call. */
  message(bytes: Buffer): void;
  /** The end, once and as the last event: undefined if the server reported OK. */
  ended(failure: UpstreamFailure | undefined): void;
}

/** A call whose messages are handled as they arrive. */
class Call {
  isOver = false;
  readonly #opened: OpenedStream;
  readonly #events: CallEvents;
  readonly #status = new ReplyStatus();
  readonly #reader: MessageReader;
  #ofStream: UpstreamFailure | undefined;

  constructor(opened: OpenedStream, events: CallEvents) {
    this.#opened = opened;
    this.#events = events;
    this.#reader = new MessageReader(MAX_MESSAGE_BYTES, (message, compressed) => {
      if (!this.isOver) events.message(uncompressed(message, compressed));
    });
    const { stream, session } = opened;
    stream.on("response", (fields) => this.#status.head(fields));
    stream.on("trailers", (fields) => this.#status.trailers(fields));
    stream.on("error", (error) => {
      this.#ofStream = failureOf(error);
    });
    stream.on("data", this.#data);
    // A reset stream also emits its end; its reason is known when it has closed.
    stream.on("end", () => {
      if (!stream.closed) this.#outcome(session.failure);
    });
    stream.on("close", () => this.#outcome(this.#ofStream ?? session.failure ?? resetOf(stream)));
  }

  /** Ends it for both sides, and reports it. */
  end(failure: UpstreamFailure | undefined): void {
    if (this.isOver) return;
    this.cancel();
    this.#events.ended(failure);
  }

  /** Ends it for both sides, without further events. */
  cancel(): void {
    this.isOver = true;
    cancelStream(this.#opened.stream);
  }

  readonly #data = (chunk: Buffer): void => {
    passed(chunk.length);
    try {
      if (this.#status.failure !== undefined) throw this.#status.failure;
      this.#reader.push(chunk);
    } catch (error) {
      this.end(failureOf(error));
    }
  };

  #outcome(ofStream: UpstreamFailure | undefined): void {
    if (!this.isOver) this.end(outcomeOf(this.#status, ofStream, this.#reader));
  }
}

/** How a call with a closed stream ended. */
function outcomeOf(
  status: ReplyStatus,
  ofStream: UpstreamFailure | undefined,
  reader: MessageReader,
): UpstreamFailure | undefined {
  const failure = status.outcome(ofStream);
  if (failure !== undefined) return failure;
  try {
    reader.end();
    return undefined;
  } catch (error) {
    return failureOf(error);
  }
}

/** Why the server reset a stream without an error from Node; undefined if it did not. */
function resetOf({ rstCode }: ClientHttp2Stream): UpstreamFailure | undefined {
  if (rstCode === undefined || rstCode === constants.NGHTTP2_NO_ERROR) return undefined;
  return new UpstreamFailure(http2Failure(rstCode), `the server reset the stream: code ${rstCode}`);
}

/** Ends a stream that is no longer read, with a reset to the server. */
function cancelStream(stream: ClientHttp2Stream): void {
  if (stream.destroyed) return;
  stream.close(constants.NGHTTP2_CANCEL);
  stream.destroy();
}

/** From the first packet to the server's first frame: a server that runs inference on its event loop is slow to respond. */
const CONNECT_MS = 10_000;
const IDLE_MS = 5 * 60_000;
/** The time that a server has to answer a ping. */
const PROOF_OF_LIFE_MS = 10_000;
const BACKOFF = { firstMs: 25, mostMs: 1_000 } as const;
const KEEP_ALIVE_MS = 30_000;
/** A stream with a stalled reader retains its window's data. Node replenishes the connection's own window at once. */
const WINDOW_BYTES = { stream: 2 ** 18, connection: 32 * 2 ** 20 } as const;
/** The megabytes that a session can hold before Node refuses its streams. The limits here are message bytes and concurrent calls. */
const SESSION_MEMORY_MB = 1_024;
/** The total size of a header block's fields. */
const MAX_HEAD_BYTES = 64 << 10;

/** One session of Node's, and why it ended. */
interface Session {
  readonly http2: ClientHttp2Session;
  /** Whether the server's first frame has arrived. */
  isGreeted: boolean;
  isClosed: boolean;
  /** Why its streams fail if it ends now; undefined if their own errors apply. */
  readonly failure: UpstreamFailure | undefined;
  readonly takesStreams: boolean;
}

/** A stream, and the session that it was opened on. */
interface OpenedStream {
  readonly stream: ClientHttp2Stream;
  readonly session: Session;
}

/** A connection that opens on demand, and reopens after it closed, with a delay after repeated failures. */
class Http2Connection {
  readonly #address: Address;
  readonly #onIdle: () => void;
  readonly #sessions = new Set<Session>();
  #session: Session | undefined;
  #usedAt = 0;
  #failures = 0;
  #notBefore = 0;
  #lastFailure: UpstreamFailure | undefined;
  #forgetPing: (() => void) | undefined;

  /** `onIdle` ends what would keep an unused session open. */
  constructor(address: Address, onIdle: () => void) {
    this.#address = address;
    this.#onIdle = onIdle;
  }

  get idle(): boolean {
    return this.#sessions.size === 0 && steadyNow() >= this.#notBefore;
  }

  /** Opens a stream, on a new session if necessary. Throws an UpstreamFailure while none can be opened. */
  request(headers: OutgoingHttpHeaders): OpenedStream {
    const session = this.#session?.takesStreams ? this.#session : this.#connect();
    this.touch();
    const { authorization, headers: more } = this.#address;
    const own = { ...HEADERS, ...(authorization !== undefined && { authorization }), ...more };
    try {
      return { stream: session.http2.request({ ...own, ...headers }, { endStream: false }), session };
    } catch (error) {
      session.http2.close(); // Its stream ids may be used up; the next session starts again.
      throw failureOf(error);
    }
  }

  /** Marks the connection as used, by a stream that is already open. */
  touch(): void {
    this.#usedAt = steadyNow();
  }

  /** Closes the session unless it answers a ping in time. */
  proveLife(): void {
    const session = this.#session;
    if (session === undefined || !session.isGreeted || session.isClosed || this.#forgetPing !== undefined) return;
    this.#forgetPing = after(PROOF_OF_LIFE_MS, () => session.http2.destroy(lost("the connection stopped responding")));
    session.http2.ping(() => {
      if (this.#session === session) this.#hasLife();
    });
  }

  /** Closes everything at once. */
  close(): void {
    for (const { http2 } of this.#sessions) http2.destroy(lost("the connection was closed"));
  }

  #hasLife(): void {
    this.#forgetPing?.();
    this.#forgetPing = undefined;
  }

  #connect(): Session {
    if (steadyNow() < this.#notBefore && this.#lastFailure !== undefined) throw this.#lastFailure;
    const http2 = connect(this.#address.url, {
      createConnection: () => dial(this.#address),
      settings: {
        enablePush: false,
        initialWindowSize: WINDOW_BYTES.stream,
        maxHeaderListSize: MAX_HEAD_BYTES,
      },
      maxSessionMemory: SESSION_MEMORY_MB,
    });
    let failure: UpstreamFailure | undefined;
    const session: Session = {
      http2,
      isGreeted: false,
      isClosed: false,
      get failure() {
        if (failure !== undefined || this.isGreeted) return failure;
        return unreachable("the server closed the connection before sending any data");
      },
      get takesStreams() {
        return !http2.closed && !http2.destroyed;
      },
    };
    this.#hasLife();
    this.#session = session;
    this.#sessions.add(session);

    const forgetConnect = after(CONNECT_MS, () => http2.destroy(unreachable("the connection timed out")));
    const closeIfIdle = (): void => {
      const left = this.#usedAt + IDLE_MS - steadyNow();
      if (left > 0) {
        forgetIdle = after(left, closeIfIdle);
      } else {
        http2.close();
        this.#onIdle();
      }
    };
    let forgetIdle = after(IDLE_MS, closeIfIdle);
    http2.once("connect", () => http2.setLocalWindowSize(WINDOW_BYTES.connection));
    http2.once("remoteSettings", () => {
      session.isGreeted = true;
      this.#failures = 0;
      forgetConnect();
    });
    http2.on("error", (error) => {
      failure = failureOf(error);
    });
    http2.once("close", () => {
      session.isClosed = true;
      forgetConnect();
      forgetIdle();
      this.#sessions.delete(session);
      if (this.#session === session) {
        this.#session = undefined;
        this.#hasLife();
      }
      if (!session.isGreeted && session.failure !== undefined) this.#backOff(session.failure);
    });
    return session;
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
  return socket.setNoDelay(true).setKeepAlive(true, KEEP_ALIVE_MS);
}
