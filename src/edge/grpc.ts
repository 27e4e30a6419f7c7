/**
 * gRPC for the calls that robots make in their loops, on bare HTTP/2 streams: the same gate and the same service functions
 * as every other face, without the request and response objects that a general handler builds for each call. What it says
 * is what the general handler says, to the last header, so that no client can tell them apart.
 * Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
 */
import {
  constants,
  type Http2Session,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Stream,
} from "node:http2";
import type { DescMethod, Message } from "@bufbuild/protobuf";
import { after, newId, steadyNow } from "../ambient.ts";
import { ADMIN_HEADER, API_VERSION } from "../brand.ts";
import { CodecError } from "../codecs/error.ts";
import { frameMessage, frameOf, MessageReader, PREFIX } from "../codecs/grpc.ts";
import { readMessage } from "../codecs/protobuf/read.ts";
import { factsOf, Reason, type Refusal, refuse } from "../refusal.ts";
import type { Speaker } from "../services/call.ts";
import { Cancel } from "../signal.ts";
import { refusalOf } from "./errors.ts";
import type { Admission, CallContext, Gate } from "./gate.ts";
import { type Coding, encodingsFor, requestCoding, responseCoding } from "./grpc/compression.ts";
import { QUICK, type Quick } from "./grpc/quick.ts";
import { grpcTrailersOf, NotSpoken } from "./grpc-status.ts";
import { callerIdOf, type Log } from "./log.ts";
import { Running } from "./running.ts";
import { refuseStream, wantsStream } from "./stream.ts";
import { drained, UNREAD_MS } from "./unread.ts";

/** What the fast path serves, and how. */
export interface GrpcOptions {
  gate: Gate;
  /** The RPCs that it takes: unary ones, server streams and conversations. Every other is left to the general handler. */
  methods: readonly DescMethod[];
  /** The most bytes of one request message, decompressed. */
  maxMessageBytes: number;
  /** Aborted when the house closes; running calls then end as unavailable. */
  closing: AbortSignal;
  log: Log;
}

/** Takes a stream when it is a gRPC call of one of its methods, and says so. */
export type TakeStream = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => boolean;

const GRPC_TYPES = new Set(["application/grpc", "application/grpc+proto"]);

/** The fast path as the port's first look at every HTTP/2 stream. */
export function grpcStreams(options: GrpcOptions): TakeStream {
  const methods = new Map(options.methods.map((method) => [`/${method.parent.typeName}/${method.name}`, method]));
  const running = new Running<GrpcCall>();
  options.closing.addEventListener("abort", () => {
    running.each((call) => call.fail(refuse(Reason.NOT_READY, "the gateway is closing; call again elsewhere")));
  });
  return (stream, headers) => {
    const method = methods.get(headers[":path"] ?? "");
    if (!method || headers[":method"] !== "POST" || !GRPC_TYPES.has(headers["content-type"] ?? "")) return false;
    const call = new GrpcCall(options, method, stream, headers);
    call.begin(running.enter(call));
    return true;
  };
}

/** Smaller messages are sent as they are: compressing an action chunk costs a control loop a millisecond. */
const COMPRESS_FROM_BYTES = 1 << 20;

/** Timers hold no more than 31 bits of milliseconds; a longer time is none at all, which is what clients mean by it. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** How long a refused caller has to end his side. */
const LINGER_MS = 1_000;

const RESPONSE = { waitForTrailers: true };

const OK_TRAILERS: OutgoingHttpHeaders = { "grpc-status": "0" };

/** One call, from its headers to its trailers. */
class GrpcCall {
  readonly #options: GrpcOptions;
  readonly #method: DescMethod;
  readonly #stream: ServerHttp2Stream;
  readonly #headers: IncomingHttpHeaders;
  #forget: (() => void) | undefined;
  readonly #responseCoding: Coding | undefined;
  readonly #quick: Quick | undefined;
  /** The caller's time; undefined where he has no end to it, and not a number where it is no time. */
  readonly #timeoutMs: number | undefined;
  readonly #requestId = newId("req");
  readonly #startedAt = steadyNow();
  readonly #caller = new Cancel();
  #forgetTimeout: (() => void) | undefined;
  #admission: Admission | undefined;
  /** The gate has nothing more to say: the answer is complete, or the caller is gone. */
  #over = false;
  #refusal: Refusal | undefined;

  constructor(options: GrpcOptions, method: DescMethod, stream: ServerHttp2Stream, headers: IncomingHttpHeaders) {
    this.#options = options;
    this.#method = method;
    this.#stream = stream;
    this.#headers = headers;
    this.#responseCoding = responseCoding(headers);
    this.#quick = QUICK.get(method);
    this.#timeoutMs = timeoutOf(textOf(headers["grpc-timeout"]));
  }

  /** `forget` is called when nothing more comes of the call. */
  begin(forget: () => void): void {
    this.#forget = forget;
    this.#stream.once("close", this.#closed);
    if (this.#timeoutMs! > 0) this.#forgetTimeout = after(this.#timeoutMs!, () => this.fail(timedOut()));
    try {
      const admission = this.#options.gate.admit(this.#method, {
        authorization: this.#headers.authorization,
        adminToken: textOf(this.#headers[ADMIN_HEADER]),
        remoteAddress: addressOf(this.#stream.session),
        requestId: this.#requestId,
      });
      if (admission instanceof Promise) admission.then(this.#read).catch(this.fail);
      else this.#read(admission);
    } catch (thrown) {
      this.fail(thrown);
    }
  }

  /** Ends the call with a refusal, in trailers behind whatever was answered so far; does nothing once the call is over. */
  readonly fail = (thrown: unknown): void => {
    if (this.#over) return;
    const refusal = refusalOf(thrown, this.#caller);
    this.#refusal = refusal;
    this.#end(grpcTrailersOf(refusal, this.#requestId));
    this.#caller.abort(refusal);
  };

  readonly #closed = (): void => {
    if (!this.#over) {
      this.#over = true;
      this.#refusal = refuse(Reason.CLIENT_CLOSED_REQUEST, "the caller left before the answer");
      this.#caller.abort(this.#refusal);
    }
    this.#forget?.();
    this.#forgetTimeout?.();
    this.#admission?.leave();
    this.#note();
  };

  readonly #read = (admission: Admission): void => {
    if (this.#over) {
      admission.leave();
      return;
    }
    this.#admission = admission;
    if (this.#timeoutMs! <= 0) throw timedOut();
    const coding = requestCoding(this.#headers);
    const context = this.#context();
    const { maxMessageBytes } = this.#options;
    if (this.#method.methodKind === "bidi_streaming") {
      this.#converse(admission, context, coding);
      return;
    }
    let body: { message: Buffer; compressed: boolean } | undefined;
    const reader = new MessageReader(
      maxMessageBytes,
      (message, compressed) => {
        if (body) throw new NotSpoken(`protocol error: received extra input message for ${this.#kind} method`);
        body = { message, compressed };
      },
      "ignored",
    );
    this.#stream.on("data", (chunk: Buffer) => this.#guarded(() => reader.push(chunk)));
    this.#stream.once("end", () =>
      this.#guarded(() => {
        reader.end();
        if (!body) throw new NotSpoken(`protocol error: missing input message for ${this.#kind} method`);
        if (!body.compressed) this.#answer(admission, body.message, context).catch(this.fail);
        else if (!coding) throw refuse(Reason.MALFORMED_BODY, UNREADABLE);
        else
          coding
            .decompress(body.message, maxMessageBytes)
            .then((message) => this.#answer(admission, message, context))
            .catch(this.fail);
      }),
    );
  };

  /** Both sides talk as they like. Messages are heard in the order in which they came, compressed ones too. */
  #converse(admission: Admission, context: CallContext, coding: Coding | undefined): void {
    const { gate, maxMessageBytes } = this.#options;
    const listener = gate.conversation(this.#method, admission, this.#speaker(), context);
    let before: Promise<void> | undefined;
    const hear = (bytes: Buffer): void => {
      if (this.#over) return;
      const plain = this.#quick?.read(bytes);
      if (plain) listener.hear(plain, true);
      else listener.hear(this.#decode(bytes));
    };
    const reader = new MessageReader(
      maxMessageBytes,
      (message, compressed) => {
        if (!compressed && before === undefined) return hear(message);
        if (compressed && !coding) throw refuse(Reason.MALFORMED_BODY, UNREADABLE);
        const bytes = Promise.resolve(compressed ? coding!.decompress(message, maxMessageBytes) : message);
        bytes.catch(() => {}); // told of in its turn
        const last = (before ?? Promise.resolve()).then(async () => hear(await bytes)).catch(this.fail);
        before = last;
        this.#stream.pause();
        void last.then(() => {
          if (before !== last) return;
          before = undefined;
          this.#stream.resume();
        });
      },
      "ignored",
    );
    this.#stream.on("data", (chunk: Buffer) => {
      try {
        reader.push(chunk);
      } catch (thrown) {
        this.#failRead(thrown);
      }
    });
    this.#stream.once("end", () => {
      const close = (): void =>
        this.#guarded(() => {
          reader.end();
          listener.close();
        });
      if (before === undefined) close();
      else void before.then(close);
    });
    this.#stream.on("drain", () => this.#guarded(() => listener.room()));
  }

  /** What the caller hears. Large messages are compressed, and keep those behind them waiting. */
  #speaker(): Speaker<Message> {
    let before: Promise<void> | undefined;
    let unsent = 0;
    const inTurn = (send: () => void | Promise<void>): void => {
      if (before === undefined) {
        const sending = send();
        if (!(sending instanceof Promise)) return;
        before = sending.catch(this.fail);
      } else before = before.then(send).catch(this.fail);
      unsent += 1;
      void before.then(() => {
        unsent -= 1;
        if (unsent === 0) before = undefined;
      });
    };
    const send = (frame: Buffer | Promise<Buffer>): void | Promise<void> => {
      if (frame instanceof Promise) return frame.then((framed) => void this.#write(framed));
      this.#write(frame);
    };
    const stream = this.#stream;
    return {
      say: (message) => {
        if (before !== undefined) return inTurn(() => send(this.#framed(message)));
        const frame = this.#framed(message);
        if (frame instanceof Promise) inTurn(() => send(frame));
        else this.#write(frame);
      },
      get behind() {
        return unsent > 1 || stream.writableNeedDrain;
      },
      end: (refusal) =>
        inTurn(() => {
          if (refusal !== undefined) this.fail(refusal);
          else this.#end(OK_TRAILERS);
        }),
    };
  }

  readonly #guarded = (run: () => void): void => {
    if (this.#over) return;
    try {
      run();
    } catch (thrown) {
      this.#failRead(thrown);
    }
  };

  #failRead(thrown: unknown): void {
    this.fail(thrown instanceof CodecError ? refusalOfCodec(thrown, this.#options.maxMessageBytes) : thrown);
  }

  async #answer(admission: Admission, bytes: Buffer, context: CallContext): Promise<void> {
    if (this.#over) return;
    const { gate } = this.#options;
    const request = this.#decode(bytes);
    if (this.#method.methodKind === "unary") {
      if (wantsStream(this.#method, request)) throw refuseStream();
      const frame = this.#framed(await gate.unary(this.#method, admission, request, context));
      this.#end(OK_TRAILERS, frame instanceof Promise ? await frame : frame);
      return;
    }
    for await (const message of gate.serverStream(this.#method, admission, request, context)) {
      const frame = this.#framed(message);
      if (!this.#write(frame instanceof Promise ? await frame : frame)) await drained(this.#stream, this.#giveUp);
      if (this.#over) return;
    }
    this.#end(OK_TRAILERS);
  }

  #context(): CallContext {
    const timeoutMs = this.#timeoutMs;
    if (Number.isNaN(timeoutMs)) {
      const value = textOf(this.#headers["grpc-timeout"]);
      throw refuse(Reason.MALFORMED_BODY, `protocol error: invalid grpc timeout value: ${value}`);
    }
    return {
      requestId: this.#requestId,
      signal: this.#caller,
      deadline: timeoutMs === undefined ? undefined : this.#startedAt + timeoutMs,
      idempotencyKey: textOf(this.#headers["idempotency-key"]),
      traceparent: textOf(this.#headers.traceparent),
    };
  }

  get #kind(): string {
    return this.#method.methodKind.replace("_", "-");
  }

  #decode(bytes: Buffer): Message {
    try {
      return readMessage(this.#method.input, bytes);
    } catch (thrown) {
      throw refuse(Reason.MALFORMED_BODY, UNREADABLE, {}, { cause: thrown });
    }
  }

  #framed(message: Message): Buffer | Promise<Buffer> {
    const frame = this.#quick?.write(message) ?? frameOf(this.#method.output, message);
    const coding = this.#responseCoding;
    const bytes = frame.subarray(PREFIX);
    if (!coding || bytes.length < COMPRESS_FROM_BYTES) return frame;
    return coding.compress(bytes).then((compressed) => frameMessage(compressed, true));
  }

  get #gone(): boolean {
    return this.#over || this.#stream.closed || this.#stream.destroyed;
  }

  /** Sends a message of the answer; false asks to wait until the caller has read some of it. */
  #write(frame: Buffer): boolean {
    if (this.#gone) return true;
    this.#respond();
    return this.#stream.write(frame);
  }

  #end(trailers: OutgoingHttpHeaders, frame?: Buffer): void {
    if (this.#gone) return;
    this.#over = true;
    // The end waits behind what is not read yet.
    if (this.#stream.headersSent) this.#stream.once("close", after(UNREAD_MS, this.#giveUp));
    this.#respond();
    this.#stream.once("wantTrailers", () => {
      this.#stream.sendTrailers(trailers);
      if (!this.#stream.readableEnded) this.#hangUp();
    });
    this.#stream.end(frame);
  }

  /** The caller reads nothing any more. */
  readonly #giveUp = (): void => this.#stream.close(constants.NGHTTP2_CANCEL);

  /** What a refused caller still sends is of no use; the reset must not overtake the trailers. */
  #hangUp(): void {
    this.#stream.resume();
    const cancel = after(LINGER_MS, () => this.#stream.close(constants.NGHTTP2_NO_ERROR));
    this.#stream.once("close", cancel);
  }

  #respond(): void {
    if (this.#stream.headersSent) return;
    // Names and values in turn: Node then makes no object of them, only to take it apart again.
    const headers = [":status", "200", "content-type", "application/grpc+proto"];
    headers.push("x-request-id", this.#requestId, "x-api-version", API_VERSION);
    if (this.#responseCoding) headers.push("grpc-encoding", this.#responseCoding.name);
    const known = encodingsFor(this.#headers["grpc-encoding"]);
    if (known !== undefined) headers.push("grpc-accept-encoding", known);
    if (this.#admission) headers.push(...this.#admission.headers);
    this.#stream.respond(headers, RESPONSE);
  }

  #note(): void {
    const facts = this.#refusal && factsOf(this.#refusal.reason);
    const principal = this.#admission?.principal;
    this.#options.log({
      requestId: this.#requestId,
      face: "grpc",
      rpc: `${this.#method.parent.typeName}/${this.#method.name}`,
      status: facts?.status ?? 200,
      latencyMs: steadyNow() - this.#startedAt,
      code: facts?.code,
      keyId: principal?.kind === "key" ? principal.keyId : undefined,
      cause: this.#refusal?.cause,
      callerRequestId: callerIdOf(this.#headers["x-request-id"]),
    });
  }
}

const addresses = new WeakMap<Http2Session, string>();

/** The address at the other end; asked for once, as a session's socket stands behind a proxy. */
function addressOf(session: Http2Session | undefined): string {
  if (session === undefined) return "";
  const known = addresses.get(session);
  if (known !== undefined) return known;
  const address = session.socket.remoteAddress ?? "";
  addresses.set(session, address);
  return address;
}

const timedOut = (): Refusal => refuse(Reason.DEADLINE_EXCEEDED, "the operation timed out");

const UNREADABLE = "the message cannot be read";

function refusalOfCodec({ reason }: CodecError, maxBytes: number): Refusal {
  if (reason === "too_large") return refuse(Reason.PAYLOAD_TOO_LARGE, `a message may have at most ${maxBytes} bytes`);
  return refuse(Reason.MALFORMED_BODY, "protocol error: incomplete envelope");
}

const textOf = (header: string | string[] | undefined): string | undefined =>
  Array.isArray(header) ? header[0] : header;

const UNIT_MS: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1000, m: 1, u: 1e-3, n: 1e-6 };

/** A `grpc-timeout` in milliseconds; undefined where no timer can hold it, and not a number where it is no time. */
function timeoutOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const [, amount, unit] = /^(\d{1,8})([HMSmun])$/.exec(text) ?? [];
  const timeoutMs = Number(amount) * (UNIT_MS[unit ?? ""] ?? Number.NaN);
  return timeoutMs > MAX_TIMEOUT_MS ? undefined : timeoutMs;
}
