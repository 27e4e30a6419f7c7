/**
 * gRPC for the calls that robots make in their loops, on bare HTTP/2 streams: the same gate and the same service functions
 * as every other face, without the request and response objects that a general handler builds for each call.
 * Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
 */
import { constants, type IncomingHttpHeaders, type OutgoingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import { promisify } from "node:util";
import { brotliDecompress, gunzip } from "node:zlib";
import { type DescMethod, fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import { newId, steadyNow } from "../ambient.ts";
import { ADMIN_HEADER, API_VERSION } from "../brand.ts";
import { CodecError } from "../codecs/error.ts";
import { frameMessage, MessageReader } from "../codecs/grpc.ts";
import { factsOf, Reason, type Refusal, refuse } from "../refusal.ts";
import { refusalOf } from "./errors.ts";
import type { Admission, CallContext, Gate } from "./gate.ts";
import { grpcTrailersOf } from "./grpc-status.ts";
import { callerIdOf, type Log } from "./log.ts";
import { refuseStream, wantsStream } from "./stream.ts";

/** What the fast path serves, and how. */
export interface GrpcOptions {
  gate: Gate;
  /** The RPCs that it takes: unary ones and server streams. Every other is left to the general handler. */
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
const OK_TRAILERS = { "grpc-status": "0" };

/** The fast path as the port's first look at every HTTP/2 stream. */
export function grpcStreams(options: GrpcOptions): TakeStream {
  const methods = new Map(options.methods.map((method) => [`/${method.parent.typeName}/${method.name}`, method]));
  return (stream, headers) => {
    const method = methods.get(headers[":path"] ?? "");
    if (!method || headers[":method"] !== "POST" || !GRPC_TYPES.has(headers["content-type"] ?? "")) return false;
    new GrpcCall(options, method, stream, headers).begin();
    return true;
  };
}

/** One call, from its headers to its trailers. */
class GrpcCall {
  readonly #options: GrpcOptions;
  readonly #method: DescMethod;
  readonly #stream: ServerHttp2Stream;
  readonly #headers: IncomingHttpHeaders;
  readonly #requestId = newId("req");
  readonly #caller = new AbortController();
  #admission: Admission | undefined;
  #message: Buffer | undefined;
  #compressed = false;
  #over = false;
  #refusal: Refusal | undefined;
  readonly #startedAt = steadyNow();

  constructor(options: GrpcOptions, method: DescMethod, stream: ServerHttp2Stream, headers: IncomingHttpHeaders) {
    this.#options = options;
    this.#method = method;
    this.#stream = stream;
    this.#headers = headers;
  }

  begin(): void {
    const { closing } = this.#options;
    const houseCloses = (): void =>
      this.#fail(refuse(Reason.NOT_READY, "the gateway is closing; call again elsewhere"));
    closing.addEventListener("abort", houseCloses, { once: true });
    this.#stream.once("close", () => {
      closing.removeEventListener("abort", houseCloses);
      this.#admission?.leave();
      if (!this.#over) {
        this.#refusal = refuse(Reason.CLIENT_CLOSED_REQUEST, "the caller left before the answer");
        this.#caller.abort(this.#refusal);
      }
      this.#note();
    });
    try {
      const admission = this.#options.gate.admit(this.#method, {
        authorization: this.#headers.authorization,
        adminToken: textOf(this.#headers[ADMIN_HEADER]),
        remoteAddress: this.#stream.session?.socket.remoteAddress ?? "",
        requestId: this.#requestId,
      });
      if (admission instanceof Promise) admission.then(this.#read, this.#fail);
      else this.#read(admission);
    } catch (thrown) {
      this.#fail(thrown);
    }
  }

  readonly #read = (admission: Admission): void => {
    if (this.#stream.destroyed) {
      admission.leave();
      return;
    }
    this.#admission = admission;
    const reader = new MessageReader(this.#options.maxMessageBytes, (message, compressed) => {
      if (this.#message) throw new CodecError("trailing_bytes");
      this.#message = message;
      this.#compressed = compressed;
    });
    this.#stream.on("data", (chunk: Buffer) => this.#guarded(() => reader.push(chunk)));
    this.#stream.once("end", () =>
      this.#guarded(() => {
        reader.end();
        this.#answer(admission).catch(this.#fail);
      }),
    );
  };

  async #answer(admission: Admission): Promise<void> {
    if (this.#over) return;
    const request = this.#decode(this.#compressed ? await this.#decompressed() : this.#message);
    const { gate } = this.#options;
    if (this.#method.methodKind === "unary") {
      if (wantsStream(this.#method, request)) throw refuseStream();
      const answer = await gate.unary(this.#method, admission, request, this.#context());
      if (this.#over || this.#stream.destroyed) return;
      this.#respond(admission);
      this.#over = true;
      this.#stream.end(frameMessage(toBinary(this.#method.output, answer)));
      return;
    }
    for await (const message of gate.serverStream(this.#method, admission, request, this.#context())) {
      if (this.#over || this.#stream.destroyed) return;
      if (!this.#stream.headersSent) this.#respond(admission);
      if (!this.#stream.write(frameMessage(toBinary(this.#method.output, message)))) await drained(this.#stream);
    }
    if (this.#over || this.#stream.destroyed) return;
    if (!this.#stream.headersSent) this.#respond(admission);
    this.#over = true;
    this.#stream.end();
  }

  #context(): CallContext {
    return {
      requestId: this.#requestId,
      signal: this.#caller.signal,
      deadline: deadlineOf(textOf(this.#headers["grpc-timeout"])),
      idempotencyKey: textOf(this.#headers["idempotency-key"]),
    };
  }

  #decode(bytes: Buffer | undefined): Message {
    if (!bytes) throw refuse(Reason.MALFORMED_BODY, "the call carries no message");
    try {
      return fromBinary(this.#method.input, bytes);
    } catch {
      throw refuse(Reason.MALFORMED_BODY, `the message is not a ${this.#method.input.typeName}`);
    }
  }

  async #decompressed(): Promise<Buffer> {
    const encoding = textOf(this.#headers["grpc-encoding"]) ?? "identity";
    const decompress = DECOMPRESS[encoding];
    if (!decompress) throw refuse(Reason.MALFORMED_BODY, `messages may be compressed with gzip or br, not ${encoding}`);
    try {
      return await decompress(this.#message ?? Buffer.alloc(0), { maxOutputLength: this.#options.maxMessageBytes });
    } catch (thrown) {
      if (thrown instanceof RangeError) throw tooLarge(this.#options.maxMessageBytes);
      throw refuse(Reason.MALFORMED_BODY, `the message is not compressed with ${encoding}`);
    }
  }

  #respond(admission: Admission): void {
    const headers = this.#head();
    for (let i = 0; i < admission.headers.length; i += 2) headers[admission.headers[i]!] = admission.headers[i + 1];
    this.#stream.once("wantTrailers", () => this.#stream.sendTrailers(OK_TRAILERS));
    this.#stream.respond(headers, { waitForTrailers: true });
  }

  /** Ends the call with a refusal: as trailers after what was sent, or as trailers alone. */
  readonly #fail = (thrown: unknown): void => {
    if (this.#over || this.#stream.destroyed) return;
    this.#over = true;
    const refusal = refusalOf(thrown, this.#caller.signal);
    this.#refusal = refusal;
    this.#caller.abort(refusal);
    const trailers = grpcTrailersOf(refusal, this.#requestId);
    if (this.#stream.headersSent) {
      this.#stream.removeAllListeners("wantTrailers");
      this.#stream.once("wantTrailers", () => this.#stream.sendTrailers(trailers));
      this.#stream.end();
      return;
    }
    this.#stream.respond({ ...this.#head(), ...trailers }, { endStream: true });
    // The caller may still be sending; what it sends is of no use any more.
    if (!this.#stream.readableEnded) this.#stream.close(constants.NGHTTP2_NO_ERROR);
  };

  #head(): OutgoingHttpHeaders {
    return {
      ":status": 200,
      "content-type": "application/grpc+proto",
      "x-request-id": this.#requestId,
      "x-api-version": API_VERSION,
    };
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
      ...(facts && { code: facts.code }),
      ...(principal?.kind === "key" && { keyId: principal.keyId }),
      ...(this.#refusal?.cause !== undefined && { cause: this.#refusal.cause }),
      ...callerIdOf(this.#headers["x-request-id"]),
    });
  }

  #guarded(run: () => void): void {
    if (this.#over) return;
    try {
      run();
    } catch (thrown) {
      this.#fail(thrown instanceof CodecError ? this.#refusalOf(thrown) : thrown);
    }
  }

  #refusalOf(error: CodecError): unknown {
    if (error.reason === "too_large") return tooLarge(this.#options.maxMessageBytes);
    return refuse(Reason.MALFORMED_BODY, "the call must carry exactly one whole gRPC message");
  }
}

const tooLarge = (bytes: number): unknown =>
  refuse(Reason.PAYLOAD_TOO_LARGE, `a message may have at most ${bytes >> 20} MiB`);

const DECOMPRESS: Readonly<Record<string, (bytes: Buffer, options: { maxOutputLength: number }) => Promise<Buffer>>> = {
  gzip: promisify(gunzip) as (bytes: Buffer, options: { maxOutputLength: number }) => Promise<Buffer>,
  br: promisify(brotliDecompress) as (bytes: Buffer, options: { maxOutputLength: number }) => Promise<Buffer>,
  identity: async (bytes) => bytes,
};

const textOf = (header: string | string[] | undefined): string | undefined =>
  Array.isArray(header) ? header[0] : header;

const UNIT_MS: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1000, m: 1, u: 1e-3, n: 1e-6 };

/** The moment at which a `grpc-timeout` ends, on the steady clock. */
function deadlineOf(timeout: string | undefined): number | undefined {
  if (timeout === undefined) return undefined;
  const [, amount, unit] = /^(\d{1,8})([HMSmun])$/.exec(timeout) ?? [];
  if (amount === undefined || unit === undefined) throw refuse(Reason.MALFORMED_BODY, "grpc-timeout is not a time");
  return steadyNow() + Number(amount) * UNIT_MS[unit]!;
}

function drained(stream: ServerHttp2Stream): Promise<void> {
  return new Promise((resolve) => {
    const go = (): void => {
      stream.off("drain", go);
      stream.off("close", go);
      resolve();
    };
    stream.on("drain", go);
    stream.on("close", go);
  });
}
