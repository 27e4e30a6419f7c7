/**
 * gRPC towards one model server: what a client offers to the wires, and what a server's status means. `http2-grpc.ts` is the client that
 * every upstream has unless another one is installed. Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
 */
import type { Signal } from "../../cancellation.ts";
import { now } from "../../clock.ts";
import { CodecError } from "../../codecs/error.ts";
import { retryAfterMs } from "../../codecs/retry-after.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { traceOf } from "../wire.ts";
import { lost, malformed, ownerText } from "./failures.ts";
import type { Address, UpstreamServer } from "./servers.ts";
import { failureOfGrpc, failureOfStatus } from "./status.ts";

/** The schemes of every wire that is gRPC. */
export const GRPC_SCHEMES: Readonly<Record<string, string>> = { "grpc:": "http:", "grpcs:": "https:" };

/** Calls to one server at one time, each on a stream of its own. One more fails with `UPSTREAM_BUSY`. */
export const MOST_CALLS = 1_024;

/** What a server is asked for, and for how long. */
export interface GrpcExchange {
  /** Such as `/limber.policy.v1.PolicyService/Act`. */
  readonly path: string;
  readonly signal: Signal;
  /** Milliseconds; sent as `grpc-timeout`. The signal ends the call. */
  readonly budgetMs: number;
  readonly requestId: string;
  readonly traceparent?: string | undefined;
}

/** The calls to one server under one credential. Every failure is an `UpstreamFailure`. */
export interface GrpcClient extends UpstreamServer {
  /** Sends framed messages and resolves with the one message of the answer. */
  unary(exchange: GrpcExchange, message: Buffer): Promise<Buffer>;
  /** Sends framed messages and gives what `read` makes of each message of the answer. A consumer that leaves ends the call. */
  stream<T>(
    exchange: GrpcExchange,
    message: () => Promise<Buffer>,
    read: (part: Buffer) => T,
  ): AsyncIterableIterator<T, undefined, undefined>;
  /**
   * Opens a call with messages both ways, on a connection that unary calls and streams do not share: a slow reader of those holds
   * nothing up. Throws an UpstreamFailure while no connection may be opened.
   */
  duplex(path: string, events: DuplexEvents): GrpcDuplex;
}

/** Makes a client; connections are made on first use. */
export type GrpcClientFactory = (address: Address) => GrpcClient;

/** A framed message, whole or in pieces. */
export type GrpcMessage = Buffer | readonly Buffer[];

/** A call with messages both ways. It stays open until either side ends it. */
export interface GrpcDuplex {
  /** False once it has ended, or its connection takes no new calls: what comes next needs another one. */
  readonly lasts: boolean;
  /** Bytes that wait for the server to read. */
  readonly queued: number;
  /** Sends a framed message, whose bytes have to stay as they are. */
  send(message: GrpcMessage): void;
  /** Gives the connection up unless the server answers a ping in 10 s: something that was sent found no answer. */
  proveLife(): void;
  /** Ends it for both sides; no event follows. */
  cancel(): void;
}

/** What happens on a duplex call. None of it happens before `duplex` has returned. */
export interface DuplexEvents {
  /** A message came. What it throws ends the call. */
  message(bytes: Buffer): void;
  /** It ended, once and as the last event: undefined where the server said OK. */
  ended(failure: UpstreamFailure | undefined): void;
  /** Its connection was not used for five minutes, and is closed when the call ends. */
  idle(): void;
}

/** The header fields that only this call has. */
export const fieldsOf = (exchange: Omit<GrpcExchange, "signal">): Record<string, string> => ({
  "grpc-timeout": `${Math.max(1, Math.min(99_999_999, Math.floor(exchange.budgetMs)))}m`,
  "x-request-id": exchange.requestId,
  ...traceOf(exchange),
});

/** The fields of a head or of trailers, by their names in small letters. */
export type ReplyFields = Readonly<Record<string, string | string[] | number | undefined>>;

/** The head and the trailers around the messages of one call. */
export class ReplyStatus {
  /** The first thing that went wrong. */
  failure: UpstreamFailure | undefined;
  /** The server said how the call ended. */
  isComplete = false;

  /** Reads the head of the answer. A status in it stands for trailers. */
  head(fields: ReplyFields): void {
    if (fields["grpc-status"] !== undefined) this.trailers(fields);
    else if (Number(fields[":status"]) !== 200) this.failure ??= statusFailure(fields);
    else if (!isGrpc(fields)) this.failure ??= malformed("not a gRPC answer");
  }

  trailers(fields: ReplyFields): void {
    this.failure ??= statusFailure(fields);
    this.isComplete = true;
  }

  /** How the call ended, given how its stream did: undefined where the server said OK. */
  outcome(ofStream: UpstreamFailure | undefined): UpstreamFailure | undefined {
    const failure = this.failure ?? ofStream;
    if (failure !== undefined || this.isComplete) return failure;
    return lost("the stream ended without a status");
  }
}

/** The call announced no encoding, so a compressed message cannot be meant for it. Throws a CodecError. */
export function uncompressed(message: Buffer, compressed: boolean): Buffer {
  if (compressed) throw new CodecError("unsupported");
  return message;
}

/** The failure of a unary call whose answer has a second message. */
export const severalMessages = (): UpstreamFailure => malformed("more than one message");

/** The failure of a unary call whose answer has no message. */
export const noMessage = (): UpstreamFailure =>
  new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "no message before the end");

/** The failure of a call beyond `MOST_CALLS`. */
export const tooManyCalls = (): UpstreamFailure =>
  new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "too many calls at one time");

const isGrpc = (fields: ReplyFields): boolean => String(fields["content-type"]).startsWith("application/grpc");

/** How a stream ended, by its trailers, or by its headers when they stand alone: undefined for OK. */
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

/** `grpc-message` is percent-encoded; what isn't stays as it is. */
function decoded(field: ReplyFields[string]): string {
  const text = String(field ?? "");
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
