/** The gRPC client on the own HTTP/2 client: no stream object of Node, and no promise, for a message. */
import { BRAND } from "../../brand.ts";
import type { Items, Signal } from "../../cancellation.ts";
import { MessageReader } from "../../codecs/grpc.ts";
import type { UpstreamFailure } from "../../contracts/failure.ts";
import { calledOff, failureOf } from "../../upstream/transport/failures.ts";
import {
  type DuplexEvents,
  fieldsOf,
  type GrpcClient,
  type GrpcClientFactory,
  type GrpcDuplex,
  type GrpcExchange,
  type GrpcMessage,
  MOST_CALLS,
  noMessage,
  ReplyStatus,
  severalMessages,
  tooManyCalls,
  uncompressed,
} from "../../upstream/transport/grpc.ts";
import { type Address, MAX_MESSAGE_BYTES } from "../../upstream/transport/servers.ts";
import { type Field, packFields } from "../http2-frames/hpack.ts";
import { ClientConnection } from "./connection.ts";
import type { HeaderFields } from "./fields.ts";
import type { Stream, StreamHearer } from "./stream.ts";

/** Makes the client; its connections are made on first use. */
export const openFastGrpc: GrpcClientFactory = (address) => new FastGrpcClient(address);

class FastGrpcClient implements GrpcClient {
  readonly #calls: ClientConnection;
  readonly #duplexes: ClientConnection;
  readonly #open = new Set<DuplexCall>();
  readonly #heads: Heads;
  #running = 0;

  constructor(address: Address) {
    this.#calls = new ClientConnection(address, () => undefined);
    this.#duplexes = new ClientConnection(address, () => {
      for (const duplex of this.#open) duplex.events.idle();
    });
    this.#heads = new Heads(address);
  }

  get idle(): boolean {
    return this.#calls.idle && this.#duplexes.idle;
  }

  stream<T>(exchange: GrpcExchange, message: () => Promise<Buffer>, read: (part: Buffer) => T): Items<T> {
    const begin = async (hearer: ReplyHearer): Promise<GrpcReply> => this.#begin(exchange, await message(), hearer);
    return new Answers(begin, read, exchange.signal);
  }

  unary(exchange: GrpcExchange, message: Buffer): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      let answer: Buffer | undefined;
      this.#begin(exchange, message, {
        isFull: false,
        message(part) {
          if (answer !== undefined) throw severalMessages();
          answer = part;
        },
        ended(failure) {
          if (failure !== undefined) reject(failure);
          else if (answer !== undefined) resolve(answer);
          else reject(noMessage());
        },
      });
    });
  }

  duplex(path: string, events: DuplexEvents): GrpcDuplex {
    const duplex = new DuplexCall(events, this.#duplexes, () => this.#open.delete(duplex));
    const reply = new GrpcReply(duplex, duplex.over);
    duplex.stream = this.#duplexes.open(this.#heads.of(path), reply);
    reply.stream = duplex.stream;
    this.#open.add(duplex);
    return duplex;
  }

  close(): void {
    this.#calls.close();
    this.#duplexes.close();
  }

  #begin({ signal, ...exchange }: GrpcExchange, message: Buffer, hearer: ReplyHearer): GrpcReply {
    if (signal.aborted) throw calledOff(signal);
    if (this.#running >= MOST_CALLS) throw tooManyCalls();
    const leave = (): void => {
      this.#calls.proveLife();
      reply.end(calledOff(signal));
    };
    const reply = new GrpcReply(hearer, () => {
      this.#running--;
      signal.removeEventListener("abort", leave);
    });
    const head = this.#heads.of(exchange.path, Object.entries(fieldsOf(exchange)));
    this.#running++;
    try {
      reply.stream = this.#calls.open(head, reply);
    } catch (thrown) {
      this.#running--;
      throw thrown;
    }
    signal.addEventListener("abort", leave, { once: true });
    reply.stream.end(message);
    return reply;
  }
}

/** One call with messages both ways, all of which are wanted as soon as they come. */
class DuplexCall implements GrpcDuplex, ReplyHearer {
  readonly isFull = false;
  readonly events: DuplexEvents;
  readonly over: () => void;
  readonly #connection: ClientConnection;
  stream: Stream | undefined;

  constructor(events: DuplexEvents, connection: ClientConnection, over: () => void) {
    this.events = events;
    this.#connection = connection;
    this.over = over;
  }

  get lasts(): boolean {
    return this.stream!.lasts;
  }

  get queued(): number {
    return this.stream!.queued;
  }

  send(message: GrpcMessage): void {
    this.#connection.touch();
    this.stream!.write(message);
  }

  proveLife(): void {
    this.#connection.proveLife();
  }

  cancel(): void {
    this.over();
    this.stream!.cancel();
  }

  message(bytes: Buffer): void {
    this.events.message(bytes);
  }

  ended(failure: UpstreamFailure | undefined): void {
    this.events.ended(failure);
  }
}

/** The messages of one reply, for a reader that takes them at its own pace. */
class Answers<T> implements Items<T>, ReplyHearer {
  readonly #begin: (hearer: ReplyHearer) => Promise<GrpcReply>;
  readonly #read: (message: Buffer) => T;
  readonly #signal: Signal;
  #reply: GrpcReply | undefined;
  #hasBegun = false;
  /** Nothing is given any more: its reader has left, or knows how it ended. */
  #isDone = false;
  /** The reader, where it waits for the next message. */
  #reader: PromiseWithResolvers<IteratorResult<T, undefined>> | undefined;
  /** Messages that came, those from `#next` on not taken yet: a window holds more than can be taken off the front of an array in time. */
  #messages: Buffer[] = [];
  #next = 0;
  #isOver = false;
  /** How it ended, once it is over: undefined when all is well. */
  #failure: unknown;

  constructor(begin: (hearer: ReplyHearer) => Promise<GrpcReply>, read: (message: Buffer) => T, signal: Signal) {
    this.#begin = begin;
    this.#read = read;
    this.#signal = signal;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<T, undefined>> {
    if (this.#isDone) return Promise.resolve(END);
    this.#reader = Promise.withResolvers();
    const { promise } = this.#reader;
    if (!this.#hasBegun) {
      this.#hasBegun = true;
      this.#begin(this).then(this.#begun, (thrown) => this.ended(thrown));
      return promise;
    }
    const message = this.#messages[this.#next];
    if (message !== undefined) {
      this.#next++;
      if (!this.isFull) {
        this.#messages = [];
        this.#next = 0;
        this.#reply?.release();
      }
      this.#give(message);
    } else if (this.#isOver) this.#tellEnd();
    return promise;
  }

  return(): Promise<IteratorReturnResult<undefined>> {
    this.#leave();
    this.#reader?.resolve(END);
    this.#reader = undefined;
    return Promise.resolve(END);
  }

  /** As ReplyHearer. */
  get isFull(): boolean {
    return this.#next < this.#messages.length;
  }

  /** As ReplyHearer. */
  message(bytes: Buffer): void {
    if (this.#isDone) return;
    if (this.#reader === undefined) this.#messages.push(kept(bytes));
    else this.#give(bytes);
  }

  /** As ReplyHearer. */
  ended(failure: unknown): void {
    this.#isOver = true;
    this.#failure = failure;
    if (!this.isFull) this.#tellEnd();
  }

  #leave(): void {
    this.#isDone = true;
    this.#messages = [];
    this.#next = 0;
    this.#reply?.cancel();
  }

  readonly #begun = (reply: GrpcReply): void => {
    this.#reply = reply;
    if (this.#isDone) reply.cancel();
  };

  /** Gives a message to the reader, who waits. */
  #give(message: Buffer): void {
    const reader = this.#reader;
    this.#reader = undefined;
    try {
      if (this.#signal.aborted) throw calledOff(this.#signal);
      reader?.resolve({ done: false, value: this.#read(message) });
    } catch (thrown) {
      this.#leave();
      reader?.reject(thrown);
    }
  }

  /** Tells the reader how it ended, who waits or will ask. */
  #tellEnd(): void {
    const reader = this.#reader;
    if (reader === undefined) return;
    this.#reader = undefined;
    this.#isDone = true;
    if (this.#failure === undefined) reader.resolve(END);
    else reader.reject(this.#failure);
  }
}

const END: IteratorReturnResult<undefined> = { done: true, value: undefined };

/** A message that waits is copied: a view would keep the whole block that many messages were read into. */
const kept = (bytes: Buffer): Buffer => (2 * bytes.length > bytes.buffer.byteLength ? bytes : Buffer.from(bytes));

/** The header fields that begin every call to one server, packed once for each path. */
class Heads {
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

/** The receiver of one reply: its messages in order, and then how it ended, undefined where the server said OK. */
interface ReplyHearer {
  /** The server is held off while this is true; `release` lets it go on. */
  readonly isFull: boolean;
  /** What it throws ends the reply. */
  message(bytes: Buffer): void;
  /** Once, and nothing after it. */
  ended(failure: UpstreamFailure | undefined): void;
}

/** One reply on its stream: the messages, the head and the trailers around them, and how it ended. */
class GrpcReply implements StreamHearer {
  /** The stream that it comes on, which is opened with it. */
  stream: Stream | undefined;
  readonly #hearer: ReplyHearer;
  readonly #onOver: () => void;
  readonly #reader: MessageReader;
  readonly #status = new ReplyStatus();
  #isOver = false;
  #unreleased = 0;

  /** `onOver` is called once, when the reply has ended for whatever reason. */
  constructor(hearer: ReplyHearer, onOver: () => void) {
    this.#hearer = hearer;
    this.#onOver = onOver;
    this.#reader = new MessageReader(MAX_MESSAGE_BYTES, (message, compressed) => {
      if (!this.#isOver) hearer.message(uncompressed(message, compressed));
    });
  }

  /** Lets the server go on. */
  release(): void {
    this.stream?.release(this.#unreleased);
    this.#unreleased = 0;
  }

  /** Ends it for both sides, if it has not ended; the receiver gets this failure. */
  end(failure: UpstreamFailure | undefined): void {
    if (this.#isOver) return;
    this.cancel();
    this.#hearer.ended(failure);
  }

  /** Ends it for both sides; the receiver gets nothing. */
  cancel(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#onOver();
    this.stream?.cancel();
  }

  /** As StreamHearer. */
  head(fields: HeaderFields): void {
    this.#status.head(fields);
  }

  /** As StreamHearer. */
  data(bytes: Buffer): boolean {
    let isKept = true;
    try {
      if (this.#status.failure !== undefined) throw this.#status.failure;
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
    this.#status.trailers(fields);
  }

  /** As StreamHearer. */
  closed(failure: UpstreamFailure | undefined): void {
    this.end(this.#status.outcome(failure) ?? this.#incomplete());
  }

  #incomplete(): UpstreamFailure | undefined {
    try {
      this.#reader.end();
    } catch (error) {
      return failureOf(error);
    }
    return undefined;
  }
}
