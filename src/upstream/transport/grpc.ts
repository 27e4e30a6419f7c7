/** gRPC towards one model server, on connections of our own: calls of one answer or many. */
import { BRAND } from "../../brand.ts";
import type { Signal } from "../../cancellation.ts";
import { CodecError } from "../../codecs/error.ts";
import { MessageReader } from "../../codecs/grpc.ts";
import { type Field, packFields } from "../../codecs/http2/hpack.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { type Flow, Items, type Taker } from "../../flow.ts";
import { ClientConnection } from "../http2/connection.ts";
import type { HeaderFields } from "../http2/fields.ts";
import type { Stream, StreamHearer } from "../http2/stream.ts";
import { traceOf } from "../wire.ts";
import { calledOff, failureOf, lost, malformed, ownerText } from "./failures.ts";
import { type Address, MAX_MESSAGE_BYTES, type UpstreamServer } from "./servers.ts";

/** The schemes of every wire that is gRPC. */
export const GRPC_SCHEMES: Readonly<Record<string, string>> = { "grpc:": "http:", "grpcs:": "https:" };

/** Calls to one server at one time, each on a stream of its own: more than it answers in anybody's time. */
const MOST_CALLS = 1_024;

/** What a server is asked for, and for how long. */
export interface GrpcExchange {
  /** Such as `/limber.policy.v1.PolicyService/Act`. */
  readonly path: string;
  readonly signal: Signal;
  readonly budgetMs: number;
  readonly requestId: string;
  readonly traceparent?: string | undefined;
}

/** The calls to one server under one credential, each on a stream of its own. */
export class GrpcCalls implements UpstreamServer {
  readonly #connection: ClientConnection;
  readonly #heads: Heads;
  #running = 0;

  constructor(address: Address) {
    this.#connection = new ClientConnection(address, () => undefined);
    this.#heads = new Heads(address);
  }

  get idle(): boolean {
    return this.#connection.idle;
  }

  /** Sends framed messages and gives what `read` makes of the answer's, as they come; fails with an UpstreamFailure. */
  stream<T>(exchange: GrpcExchange, message: () => Promise<Buffer>, read: (part: Buffer) => T): Items<T> {
    const begin = async (hearer: ReplyHearer): Promise<GrpcReply> => this.#begin(exchange, await message(), hearer);
    return new Items(new Answers(begin, read, exchange.signal));
  }

  /** Sends framed messages and resolves with the one message of the answer. */
  unary(exchange: GrpcExchange, message: Buffer): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      let answer: Buffer | undefined;
      this.#begin(exchange, message, {
        isFull: false,
        message(part) {
          if (answer !== undefined) throw malformed("more than one message");
          answer = part;
        },
        ended(failure) {
          if (failure !== undefined) reject(failure);
          else if (answer !== undefined) resolve(answer);
          else reject(new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "no message before the end"));
        },
      });
    });
  }

  close(): void {
    this.#connection.close();
  }

  #begin({ signal, ...exchange }: GrpcExchange, message: Buffer, hearer: ReplyHearer): GrpcReply {
    if (signal.aborted) throw calledOff(signal);
    if (this.#running >= MOST_CALLS)
      throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "too many calls at one time");
    const leave = (): void => {
      this.#connection.proveLife();
      reply.end(calledOff(signal));
    };
    const reply = new GrpcReply(hearer, () => {
      this.#running--;
      signal.removeEventListener("abort", leave);
    });
    const head = this.#heads.of(exchange.path, fieldsOf(exchange));
    this.#running++;
    try {
      reply.stream = this.#connection.open(head, reply);
    } catch (thrown) {
      this.#running--;
      throw thrown;
    }
    signal.addEventListener("abort", leave, { once: true });
    reply.stream.end(message);
    return reply;
  }
}

const fieldsOf = (exchange: Omit<GrpcExchange, "signal">): Field[] => [
  ["grpc-timeout", `${Math.max(1, Math.min(99_999_999, Math.floor(exchange.budgetMs)))}m`],
  ["x-request-id", exchange.requestId],
  ...Object.entries(traceOf(exchange)),
];

/** The messages of one reply for a reader that takes them when it likes, and who is told of the next one as it comes. */
class Answers<T> implements Flow<T>, ReplyHearer {
  readonly #begin: (hearer: ReplyHearer) => Promise<GrpcReply>;
  readonly #read: (message: Buffer) => T;
  readonly #signal: Signal;
  #reply: GrpcReply | undefined;
  #hasBegun = false;
  #hasLeft = false;
  /** Who waits. */
  #taker: Taker<T> | undefined;
  /** What nobody has taken yet. */
  #messages: Buffer[] = [];
  #isOver = false;
  /** How it ended, once it is over: undefined when all is well. */
  #failure: unknown;

  constructor(begin: (hearer: ReplyHearer) => Promise<GrpcReply>, read: (message: Buffer) => T, signal: Signal) {
    this.#begin = begin;
    this.#read = read;
    this.#signal = signal;
  }

  next(taker: Taker<T>): void {
    this.#taker = taker;
    if (!this.#hasBegun) {
      this.#hasBegun = true;
      this.#begin(this).then(this.#begun, (thrown) => this.ended(thrown));
      return;
    }
    const message = this.#messages.shift();
    if (message === undefined) {
      if (this.#isOver) this.#tellEnd();
      return;
    }
    if (!this.isFull) this.#reply?.release();
    this.#give(message);
  }

  leave(): void {
    this.#hasLeft = true;
    this.#taker = undefined;
    this.#messages = [];
    this.#reply?.cancel();
  }

  /** As ReplyHearer. */
  get isFull(): boolean {
    return this.#messages.length > 0;
  }

  /** As ReplyHearer. */
  message(bytes: Buffer): void {
    if (this.#taker === undefined) this.#messages.push(kept(bytes));
    else this.#give(bytes);
  }

  /** As ReplyHearer. */
  ended(failure: unknown): void {
    this.#isOver = true;
    this.#failure = failure;
    if (!this.isFull) this.#tellEnd();
  }

  readonly #begun = (reply: GrpcReply): void => {
    this.#reply = reply;
    if (this.#hasLeft) reply.cancel();
  };

  #give(message: Buffer): void {
    const taker = this.#taker;
    this.#taker = undefined;
    let part: T;
    try {
      if (this.#signal.aborted) throw calledOff(this.#signal);
      part = this.#read(message);
    } catch (thrown) {
      this.leave();
      taker?.failed(thrown);
      return;
    }
    taker?.item(part);
  }

  #tellEnd(): void {
    const taker = this.#taker;
    this.#taker = undefined;
    if (this.#failure === undefined) taker?.over();
    else taker?.failed(this.#failure);
  }
}

/** What waits has bytes of its own: a few would keep the whole block that many were read into. */
const kept = (bytes: Buffer): Buffer => (2 * bytes.length > bytes.buffer.byteLength ? bytes : Buffer.from(bytes));

/** The header fields that begin every call to one server, packed once for each path. */
export class Heads {
  readonly #before: Field[];
  readonly #after: Field[];
  readonly #packed = new Map<string, Buffer>();

  constructor({ url, authorization, headers }: Address) {
    this.#before = [
      [":method", "POST"],
      [":scheme", url.protocol.slice(0, -1)],
      [":authority", url.host],
    ];
    const own: Record<string, string> = {
      ...HEADERS,
      ...(authorization !== undefined && { authorization }),
      ...headers,
    };
    this.#after = Object.entries(own);
  }

  /** A block of fields, with those that only this call has. */
  of(path: string, more: readonly Field[] = []): Buffer {
    let head = this.#packed.get(path);
    if (head === undefined) {
      head = packFields([...this.#before, [":path", path], ...this.#after]);
      this.#packed.set(path, head);
    }
    return more.length === 0 ? head : Buffer.concat([head, packFields(more)]);
  }
}

const HEADERS = { te: "trailers", "content-type": "application/grpc+proto", "user-agent": BRAND } as const;

/** We announce no encoding, so a compressed message is one that we can't be meant to read. */
function plain(message: Buffer, compressed: boolean): Buffer {
  if (compressed) throw new CodecError("unsupported");
  return message;
}

/** Who hears the messages of one reply, in order, and then how it ended: undefined when the server said OK. */
export interface ReplyHearer {
  /** The server is held off while this is true; `release` lets it go on. */
  readonly isFull: boolean;
  /** What it throws ends the reply. */
  message(bytes: Buffer): void;
  /** Once, and nothing after it. */
  ended(failure: UpstreamFailure | undefined): void;
}

/** What a server says on one stream: its messages, and around them headers, trailers, and how it ended. */
export class GrpcReply implements StreamHearer {
  /** The stream that it comes on, which is opened with it. */
  stream: Stream | undefined;
  readonly #hearer: ReplyHearer;
  readonly #onOver: () => void;
  readonly #reader: MessageReader;
  /** The first thing that went wrong. */
  #failure: UpstreamFailure | undefined;
  #hasStatus = false;
  #isOver = false;
  #unreleased = 0;

  /** `onOver` is called once when nothing more is heard, whoever ended it. */
  constructor(hearer: ReplyHearer, onOver: () => void) {
    this.#hearer = hearer;
    this.#onOver = onOver;
    this.#reader = new MessageReader(MAX_MESSAGE_BYTES, (message, compressed) => {
      if (!this.#isOver) hearer.message(plain(message, compressed));
    });
  }

  /** Lets the server go on. */
  release(): void {
    this.stream?.release(this.#unreleased);
    this.#unreleased = 0;
  }

  /** Ends it for both sides, if it has not ended: the hearer is told of this failure. */
  end(failure: UpstreamFailure | undefined): void {
    if (this.#isOver) return;
    this.cancel();
    this.#hearer.ended(failure);
  }

  /** Ends it for both sides without a word to the hearer. */
  cancel(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#onOver();
    this.stream?.cancel();
  }

  /** As StreamHearer. */
  head(fields: HeaderFields): void {
    if (fields["grpc-status"] !== undefined) this.trailers(fields);
    else if (fields[":status"] !== "200") this.#failure = statusFailure(fields);
    else if (!isGrpc(fields)) this.#failure = malformed("not a gRPC answer");
  }

  /** As StreamHearer. */
  data(bytes: Buffer): boolean {
    let isKept = true;
    try {
      if (this.#failure !== undefined) throw this.#failure;
      isKept = this.#reader.push(bytes);
    } catch (error) {
      this.end(failureOf(error));
    }
    this.#unreleased += bytes.length;
    if (!this.#hearer.isFull) this.release();
    return isKept;
  }

  /** As StreamHearer. */
  trailers(fields: HeaderFields): void {
    this.#failure ??= statusFailure(fields);
    this.#hasStatus = true;
  }

  /** As StreamHearer. */
  closed(failure: UpstreamFailure | undefined): void {
    this.end(this.#failure ?? failure ?? this.#incomplete());
  }

  #incomplete(): UpstreamFailure | undefined {
    if (!this.#hasStatus) return lost("the stream ended without a status");
    try {
      this.#reader.end();
    } catch (error) {
      return failureOf(error);
    }
    return undefined;
  }
}

const isGrpc = (fields: HeaderFields): boolean => fields["content-type"]?.startsWith("application/grpc") === true;

/** How a stream ended, by its trailers, or by its headers when they stand alone: undefined for OK. */
function statusFailure(fields: HeaderFields): UpstreamFailure | undefined {
  const status = fields["grpc-status"];
  if (status === "0") return undefined;
  const said = ownerText(`status ${status ?? fields[":status"]}: ${ownerText(decoded(fields["grpc-message"]))}`);
  if (status !== undefined)
    return new UpstreamFailure(BY_GRPC_STATUS[Number(status)] ?? AttemptFailure.UPSTREAM_ERROR, said);
  return new UpstreamFailure(BY_HTTP_STATUS[Number(fields[":status"])] ?? AttemptFailure.UPSTREAM_ERROR, said);
}

/** `grpc-message` is percent-encoded; what isn't stays as it is. */
function decoded(text: string | undefined): string {
  try {
    return decodeURIComponent(text ?? "");
  } catch {
    return text ?? "";
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
