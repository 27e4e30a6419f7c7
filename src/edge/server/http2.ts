/** HTTP/2 by node:http2: sessions with wide windows, and budgets for frames that only cost. */
import {
  constants,
  createServer,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { Readable } from "node:stream";
import { RpcCode } from "../../../gen/limber/edge/v1/options_pb.ts";
import { after, everyTogether, steadyNow } from "../../clock.ts";
import { type Slot, slotOf } from "./slots.ts";
import { RequestTurns, RunningCalls } from "./turns.ts";
import type { ConnectionServer } from "./whole-requests.ts";
import {
  answerTo,
  FAULTS,
  OwnedHttp2Request,
  OwnedHttp2Response,
  type RefusalBody,
  sizeOf,
  type WireFault,
} from "./wire-faults.ts";

/** The limits of every session; sizes in bytes, times in milliseconds. */
interface Http2Limits {
  readonly maxSessionStreams: number;
  readonly streamWindow: number;
  readonly sessionWindow: number;
  readonly maxHeaderSize: number;
  readonly idleTimeoutMs: number;
  readonly requestTimeoutMs: number;
  /** Whether requests for this path may go on for as long as they like. */
  readonly endless: (path: string) => boolean;
  readonly patience: BudgetOptions;
}

/** How long a client's first request may take to come after a GOAWAY, in milliseconds. */
const HEARD_MS = 1_000;

/** The answer to a gRPC request that did not come in time: trailers alone, as gRPC clients read no JSON. */
const LATE_TRAILERS = {
  "grpc-status": String(RpcCode.DEADLINE_EXCEEDED),
  "grpc-message": encodeURIComponent(FAULTS.slow.message),
} as const;

/** The client of a session. */
export interface StreamPeer {
  readonly address: string;
  readonly slot: Slot | undefined;
}

/** Serves streams as they are, without a request and a response of Node's compatibility layer. */
export interface StreamServer {
  /** Serves a stream; false leaves it to the compatibility layer. */
  take(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, peer: StreamPeer): boolean;
}

/** Returns that refuse a call to its caller, for good or for now. They are charged to the connection. */
const REFUSALS = new Set([401, 403, 429]);
const GRPC_REFUSALS = new Set(
  [RpcCode.UNAUTHENTICATED, RpcCode.PERMISSION_DENIED, RpcCode.RESOURCE_EXHAUSTED].map(String),
);

/** Bytes one session may hold inside Node, in MB: its default of 10 refuses new streams behind one large answer. */
const SESSION_MEMORY_MB = 64;

/** How often the bytes that a session wastes are counted, in milliseconds. */
const WASTE_LOOK_MS = 500;

const ignore = (): void => undefined;

/** What `nodeHttp2` is opened with. */
interface NodeHttp2Options {
  readonly handler: (request: Http2ServerRequest, response: Http2ServerResponse) => void;
  /** Makes the JSON body of what is refused at this level. */
  readonly refusal: RefusalBody;
  readonly limits: Http2Limits;
  /** Serves streams before the compatibility layer does. */
  readonly streams?: StreamServer | undefined;
  /** A connection of this address was ended for what it cost. */
  readonly cutOff: (address: string) => void;
}

/** Ends a stream whose body comes in more pieces than are held. */
const endAtTooMany = (body: Readable, stream: ServerHttp2Stream, came?: (bytes: number) => void): void =>
  boundPieces(body, () => stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM), came);

/** A request of node:http2, which holds what its stream passes on. */
class BoundedRequest extends OwnedHttp2Request {
  constructor(...args: ConstructorParameters<typeof OwnedHttp2Request>) {
    super(...args);
    endAtTooMany(this, this.stream);
  }
}

/** A server that never listens and is handed its connections. */
export function nodeHttp2({ handler, refusal: bodyOf, limits, streams, cutOff }: NodeHttp2Options): ConnectionServer {
  /** Sessions, and whether each has no open stream. */
  const sessions = new Map<ServerHttp2Session, () => boolean>();
  let draining = false;
  const server = createServer(
    {
      Http2ServerRequest: BoundedRequest,
      Http2ServerResponse: OwnedHttp2Response,
      maxSessionMemory: SESSION_MEMORY_MB,
      // A wall of nghttp2's own, which stops a burst of resets in the middle of one read. It counts the resets of
      // answered streams too, so it has to give way sooner to a steady rate.
      streamResetBurst: limits.patience.burst,
      streamResetRate: 5 * limits.patience.perSecond,
      settings: {
        enablePush: false,
        initialWindowSize: limits.streamWindow,
        maxConcurrentStreams: limits.maxSessionStreams,
        maxHeaderListSize: limits.maxHeaderSize,
      },
    },
    handler,
  );

  const refuse = (stream: ServerHttp2Stream, fault: WireFault): void => {
    const { status, headers, body } = answerTo(fault, bodyOf);
    stream.respond({ ":status": status, ...headers });
    stream.end(body);
  };

  const arrivingOf = (stream: ServerHttp2Stream, since: number, type: string | undefined): Arriving => ({
    since,
    isLate: false,
    get isWhole() {
      return stream.state.state === constants.NGHTTP2_STREAM_STATE_HALF_CLOSED_REMOTE;
    },
    refuse() {
      if (!stream.headersSent) refuseLate(stream, type);
    },
    reset() {
      if (!stream.closed) stream.close(constants.NGHTTP2_NO_ERROR);
    },
  });

  const refuseLate = (stream: ServerHttp2Stream, type = ""): void => {
    if (!type.startsWith("application/grpc")) refuse(stream, FAULTS.slow);
    // A gRPC client reads no JSON, and takes headers for trailers only where they end the stream.
    else stream.respond({ ":status": 200, "content-type": type, ...LATE_TRAILERS }, { endStream: true });
  };

  const watch = (session: ServerHttp2Session, greeted: () => void): void => {
    const arriving = new RunningCalls<Arriving>();
    const arrivals = new Arrivals(limits.requestTimeoutMs, (visit) => arriving.each(visit));
    const costs = new Costs(limits.patience);
    const turns = new RequestTurns();
    const waste = new WastedBytes();
    const came = (bytes: number): void => waste.use(bytes);
    const forgetWaste = everyTogether(WASTE_LOOK_MS, () => {
      if (!session.destroyed) pay(waste.look(session.socket.bytesRead));
    });
    const address = session.socket.remoteAddress ?? "";
    const peer: StreamPeer = { address, slot: slotOf(session.socket) };
    let open = 0;
    let served = 0;

    let isCutOff = false;
    const pay = (isLeft: boolean): void => {
      if (isLeft || session.destroyed) return;
      isCutOff = true;
      session.destroy(new Error("the session's patience is spent"), constants.NGHTTP2_ENHANCE_YOUR_CALM);
    };
    const tax = (): void => {
      waste.use(0);
      pay(costs.spend());
    };
    const refused = (): void => pay(costs.spendRefused());
    const closed = function (this: ServerHttp2Stream): void {
      open--;
      if (!this.headersSent) tax();
      else if (isRefusal(this)) refused();
    };
    let forgetRest = ignore;
    const restUnlessUsed = (seen: number): void => {
      forgetRest = after(limits.idleTimeoutMs, () => {
        if (open === 0 && served === seen) session.close();
        else restUnlessUsed(served);
      });
    };

    // Node's own listener hands each stream to the server's compatibility layer, which builds a request and a response.
    session.removeAllListeners("stream");
    session.on("stream", (stream, headers, flags, rawHeaders) => {
      stream.on("error", ignore); // a stream's failure is its caller's; unheard, it would end the process
      if (stream.destroyed) return tax(); // reset in the same read that opened it
      // A refused client sends no more of the body than the window lets in.
      waste.use(sizeOf(rawHeaders) + limits.streamWindow);
      turns.begin(() => begin(stream, headers, flags, rawHeaders));
    });
    const begin = (
      stream: ServerHttp2Stream,
      headers: IncomingHttpHeaders,
      flags: number,
      rawHeaders: readonly string[],
    ): void => {
      if (stream.destroyed) {
        tax();
        return;
      }
      open++;
      served++;
      // Its GOAWAY names this stream as the last.
      if (draining) setImmediate(() => session.close());
      stream.on("close", closed);
      if (!stream.endAfterHeaders) endAtTooMany(stream, stream, came);
      // Node holds the client to the limit only once it has acknowledged our settings, which is the client's to delay.
      if (sizeOf(rawHeaders) > limits.maxHeaderSize) {
        refuse(stream, FAULTS.headers);
        return;
      }
      if (!stream.endAfterHeaders && !limits.endless(headers[":path"] ?? ""))
        stream.once("close", arriving.enter(arrivingOf(stream, arrivals.looks, headers["content-type"])));
      if (streams?.take(stream, headers, peer)) return;
      server.emit("stream", stream, headers, flags, rawHeaders);
    };
    session.on("ping", tax);
    session.on("remoteSettings", tax);
    session.once("localSettings", greeted);
    // nghttp2's own wall calls it an error of the protocol, in the middle of what the session cost.
    session.on("error", () => {
      isCutOff ||= costs.isDear;
    });
    session.once("close", () => {
      forgetRest();
      forgetWaste();
      turns.end();
      if (isCutOff) cutOff(address);
      arrivals.end();
      sessions.delete(session);
    });
    session.setLocalWindowSize(limits.sessionWindow);
    sessions.set(session, () => open === 0);
    restUnlessUsed(served);
  };

  return {
    accept(socket, greeted) {
      // A peer that half-closes is gone; else its unfinished streams would hold the connection, and `close`, for ever.
      socket.allowHalfOpen = false;
      server.once("session", (session) => {
        watch(session, greeted);
        // Its first request is on its way.
        if (draining)
          session.once(
            "close",
            after(HEARD_MS, () => session.close()),
          );
      });
      server.emit("connection", socket);
    },
    // Node has no GOAWAY after which it begins another stream: each session ends behind the answer to its next one.
    leave() {
      draining = true;
    },
    drain(idleMs = 0) {
      draining = true;
      for (const [session, isIdle] of sessions) {
        if (idleMs === 0 || !isIdle()) session.close();
        else
          session.once(
            "close",
            after(idleMs, () => session.close()),
          );
      }
    },
  };
}

function isRefusal({ sentHeaders, sentTrailers }: ServerHttp2Stream): boolean {
  if (REFUSALS.has(Number(sentHeaders[":status"]))) return true;
  return GRPC_REFUSALS.has(String(sentTrailers?.["grpc-status"] ?? sentHeaders["grpc-status"]));
}

/** A request whose body may still be coming. */
interface Arriving {
  /** How many looks its watch had taken when it began. */
  readonly since: number;
  /** Set by the watch, once. */
  isLate: boolean;
  /** Nothing more has to come. */
  readonly isWhole: boolean;
  /** Returns that the request is late, unless an answer has begun. */
  refuse(): void;
  /** Ends what is left of it, if anything is. */
  reset(): void;
}

/** How long the peer has to read why it was turned away, before its stream is reset. */
const LINGER_MS = 100;
/** How often one looks: the share of the limit that an answer may come too early by. */
const LOOKS = 10;

/** The watch over the requests of one connection. */
class Arrivals {
  /** Watches no longer. */
  readonly end: () => void;
  #looks = 0;

  /** Refuses whatever `each` shows that is not whole after `limitMs`, and then resets it. */
  constructor(limitMs: number, each: (visit: (arriving: Arriving) => void) => void) {
    this.end = everyTogether(limitMs / LOOKS, () => {
      this.#looks++;
      each(this.#look);
    });
  }

  /** How many looks it has taken: what a request notes when it begins. */
  get looks(): number {
    return this.#looks;
  }

  readonly #look = (arriving: Arriving): void => {
    if (this.#looks - arriving.since < LOOKS || arriving.isLate || arriving.isWhole) return;
    arriving.isLate = true;
    arriving.refuse();
    after(LINGER_MS, () => arriving.reset());
  };
}

/** How many frames that only cost a session may send: `burst` at once, `perSecond` in the long run. */
export interface BudgetOptions {
  readonly burst: number;
  readonly perSecond: number;
}

/** A head that is too large to be read costs as much as so many frames. */
const LARGE_HEAD = 10;
/** Refusals in words, and resets of answered streams, cost less: their budgets fill so many times as fast. */
const SPOKEN = 5;
/** A balancer sends calls of many clients over one connection, and some of them have no key. */
const REFUSED_BURST = 2.5;

/** The costs of one connection. */
class Costs {
  readonly #patience: BudgetOptions;
  readonly #idle: TimedBudget;
  /** Full, until something is spent. */
  #refused: TimedBudget | undefined;
  #resets: TimedBudget | undefined;

  constructor(patience: BudgetOptions) {
    this.#patience = patience;
    this.#idle = new TimedBudget(patience);
  }

  /** Something that asks for nothing; false when it is one too many, as below. */
  spend(): boolean {
    return this.#idle.spend();
  }

  /** As `spend`, for a head that is far too large. */
  spendLarge(): boolean {
    let isLeft = true;
    for (let i = 0; i < LARGE_HEAD; i++) isLeft = this.spend() && isLeft;
    return isLeft;
  }

  /** A call that the gate refused to its caller. */
  spendRefused(): boolean {
    const { burst, perSecond } = this.#patience;
    this.#refused ??= new TimedBudget({ burst: REFUSED_BURST * burst, perSecond: SPOKEN * perSecond });
    return this.#refused.spend();
  }

  /** A reset, whatever it was of. */
  spendReset(): boolean {
    const { burst, perSecond } = this.#patience;
    this.#resets ??= new TimedBudget({ burst, perSecond: SPOKEN * perSecond });
    return this.#resets.spend();
  }

  /** Whether it has lately cost a good part of what it may. */
  get isDear(): boolean {
    return this.#idle.isLow;
  }
}

/** Bytes that a session may waste at once, and at each look. */
const WASTE_BYTES = { burst: 4 << 20, look: 128 << 10 } as const;
/** What a frame costs beside what it carries, and what a client sends for each frame that it reads. */
const FRAME_BYTES = 64;

/**
 * Bytes of a session that reach no handler: padding, frames of closed streams, heads that nghttp2 refuses. Node counts none of them, and reads
 * them for as long as they come. So they are what a session has read beside what its handlers have received.
 */
class WastedBytes {
  #used = 0;
  #seen = 0;
  #wasted = 0;

  /** A frame came whose payload has so many bytes. */
  use(bytes: number): void {
    this.#used += bytes + FRAME_BYTES;
  }

  /** Whether a session that has read so many bytes in all has wasted no more than it may. Call it at even intervals. */
  look(read: number): boolean {
    this.#wasted = Math.max(0, this.#wasted + read - this.#seen - this.#used - WASTE_BYTES.look);
    this.#seen = read;
    this.#used = 0;
    return this.#wasted <= WASTE_BYTES.burst;
  }
}

/** A budget that fills at a steady rate: what was spent is forgotten with time. */
class TimedBudget {
  readonly #burst: number;
  readonly #perSecond: number;
  #left: number;
  #at = steadyNow();

  constructor({ burst, perSecond }: BudgetOptions) {
    this.#burst = burst;
    this.#perSecond = perSecond;
    this.#left = burst;
  }

  /** Spends one; false when there was none. */
  spend(): boolean {
    this.#fill();
    return --this.#left >= 0;
  }

  /** Whether more than half of it is spent. */
  get isLow(): boolean {
    this.#fill();
    return this.#left < this.#burst / 2;
  }

  #fill(): void {
    const time = steadyNow();
    this.#left = Math.min(this.#burst, this.#left + ((time - this.#at) * this.#perSecond) / 1000);
    this.#at = time;
  }
}

/** More pieces than these are not held unread: 64 to a kilobyte in a window of 1 MiB. */
const MOST_PIECES = 16_384;

/** Takes no more pieces once so many wait to be read, and calls `tooMany` in the next turn. `came` gets the bytes of each piece. */
function boundPieces(body: Readable, tooMany: () => void, came?: (bytes: number) => void): void {
  let held = 0;
  let isOver = false;
  const { push, read } = body;
  body.push = (piece: unknown, encoding?: BufferEncoding) => {
    if (piece instanceof Uint8Array) came?.(piece.length);
    held = body.readableLength === 0 ? 1 : held + 1;
    if (piece === null || (held <= MOST_PIECES && !isOver)) return push.call(body, piece, encoding);
    // Not now: node is in the middle of reading.
    if (!isOver) setImmediate(tooMany);
    isOver = true;
    return false;
  };
  body.read = (size?: number) => {
    const piece: unknown = read.call(body, size);
    // All that waited, or one piece where they are passed on; `push` notices the former.
    if (piece !== null) held--;
    return piece;
  };
}
