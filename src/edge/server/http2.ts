/** HTTP/2 on node:http2: sessions with large windows, and budgets for frames that cause only costs. */
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
import { after, everyTogether } from "../../clock.ts";
import { type BudgetOptions, TimedBudget, TinyPieces } from "./budgets.ts";
import { OwnedHttp2Request, OwnedHttp2Response } from "./owned.ts";
import { type Slot, slotOf } from "./slots.ts";
import { RequestTurns, RunningCalls } from "./turns.ts";
import type { ConnectionServer } from "./whole-requests.ts";
import { answerTo, FAULTS, type RefusalBody, sizeOf, type WireFault } from "./wire-faults.ts";

/** The limits of every session; sizes in bytes, times in milliseconds. */
interface Http2Limits {
  readonly maxSessionStreams: number;
  readonly streamWindow: number;
  readonly sessionWindow: number;
  readonly maxHeaderSize: number;
  readonly idleTimeoutMs: number;
  readonly requestTimeoutMs: number;
  /** Whether requests for this path can last indefinitely. */
  readonly endless: (path: string) => boolean;
  readonly patience: BudgetOptions;
}

/** How long to wait for a client's first request after a GOAWAY, in milliseconds. */
const HEARD_MS = 1_000;

/** The response to a gRPC request that was too slow: trailers only, as gRPC clients cannot read JSON. */
const LATE_TRAILERS = {
  "grpc-status": String(RpcCode.DEADLINE_EXCEEDED),
  "grpc-message": encodeURIComponent(FAULTS.slow.message),
} as const;

/** The client of a session. */
export interface StreamPeer {
  readonly address: string;
  readonly slot: Slot | undefined;
}

/** Serves streams directly, without the request and response objects of Node's compatibility layer. */
export interface StreamServer {
  /** Serves a stream; returns false to leave it to the compatibility layer. */
  take(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, peer: StreamPeer): boolean;
}

/** Responses that refuse a call, permanently or temporarily. They count against the connection's budget. */
const REFUSALS = new Set([401, 403, 429]);
const GRPC_REFUSALS = new Set(
  [RpcCode.UNAUTHENTICATED, RpcCode.PERMISSION_DENIED, RpcCode.RESOURCE_EXHAUSTED].map(String),
);

/** Node's memory limit per session, in MB: the default of 10 refuses new streams after one large response. */
const SESSION_MEMORY_MB = 64;

/** How often the wasted bytes of a session are counted, in milliseconds. */
const WASTE_LOOK_MS = 500;

const ignore = (): void => undefined;

/** The options of `nodeHttp2`. */
interface NodeHttp2Options {
  readonly handler: (request: Http2ServerRequest, response: Http2ServerResponse) => void;
  /** Creates the JSON body of refusals at this level. */
  readonly refusal: RefusalBody;
  readonly limits: Http2Limits;
  /** Serves streams before the compatibility layer. */
  readonly streams?: StreamServer | undefined;
  /** Called when a connection of this address was closed for its costs. */
  readonly cutOff: (address: string) => void;
}

/** Ends a stream whose body arrives in too many pieces. */
const endAtTooMany = (body: Readable, stream: ServerHttp2Stream, came?: (bytes: number) => void): void =>
  boundPieces(body, () => stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM), came);

/** A request of node:http2, which buffers its stream's data. */
class BoundedRequest extends OwnedHttp2Request {
  constructor(...args: ConstructorParameters<typeof OwnedHttp2Request>) {
    super(...args);
    endAtTooMany(this, this.stream);
  }
}

/** A server that never listens and receives its connections from the port. */
export function nodeHttp2({ handler, refusal: bodyOf, limits, streams, cutOff }: NodeHttp2Options): ConnectionServer {
  /** Sessions, and whether each one is idle. */
  const sessions = new Map<ServerHttp2Session, () => boolean>();
  let draining = false;
  const server = createServer(
    {
      Http2ServerRequest: BoundedRequest,
      Http2ServerResponse: OwnedHttp2Response,
      maxSessionMemory: SESSION_MEMORY_MB,
      // A limit of nghttp2 itself, which stops a burst of resets within one read. It counts resets of answered streams too, so it
      // must yield earlier to a steady rate.
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
    // A gRPC client cannot read JSON, and treats headers as trailers only if they end the stream.
    else stream.respond({ ":status": 200, "content-type": type, ...LATE_TRAILERS }, { endStream: true });
  };

  const watch = (session: ServerHttp2Session, greeted: () => void): void => {
    const arriving = new RunningCalls<Arriving>();
    const arrivals = new Arrivals(limits.requestTimeoutMs, (visit) => arriving.each(visit));
    const costs = new Costs(limits.patience);
    const turns = new RequestTurns();
    const waste = new WastedBytes();
    const tiny = new TinyPieces();
    const came = (bytes: number): void => {
      waste.use(bytes);
      pay(tiny.take(bytes));
    };
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

    // Node's own listener passes each stream to the server's compatibility layer, which creates a request and a response.
    session.removeAllListeners("stream");
    session.on("stream", (stream, headers, flags, rawHeaders) => {
      stream.on("error", ignore); // a stream's failure is its caller's; unheard, it would end the process
      if (stream.destroyed) return tax(); // reset in the same read that opened it
      // A refused client sends no more of the body than the window allows.
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
      // Node.js enforces the limit only after the client has acknowledged our settings, which the client can delay.
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
    // nghttp2's own limit reports a protocol error, although the session exceeded its budget.
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
      // A client that half-closes is gone; otherwise its unfinished streams would block the connection, and `close`, forever.
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
    // Node.js cannot send a GOAWAY that still admits a stream, so each session ends after its next response.
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

/** A request whose body may still be arriving. */
interface Arriving {
  /** The watch's tick when it started. */
  readonly since: number;
  /** Set by the watch, once. */
  isLate: boolean;
  /** Whether it is complete. */
  readonly isWhole: boolean;
  /** Responds that the request is late, unless a response has started. */
  refuse(): void;
  /** Ends what remains of it. */
  reset(): void;
}

/** How long the client has to read the refusal before its stream is reset. */
const LINGER_MS = 100;
/** The tick interval, as the share of the limit by which a timeout may be early. */
const LOOKS = 10;

/** Watches the requests of one connection for timeouts. */
class Arrivals {
  /** Stops watching. */
  readonly end: () => void;
  #looks = 0;

  /** Refuses every request from `each` that is incomplete after `limitMs`, and then resets it. */
  constructor(limitMs: number, each: (visit: (arriving: Arriving) => void) => void) {
    this.end = everyTogether(limitMs / LOOKS, () => {
      this.#looks++;
      each(this.#look);
    });
  }

  /** The number of ticks; stored when a request starts. */
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

/** Refusals with a body cost less: their budget refills this many times as fast. */
const SPOKEN = 5;
/** A load balancer sends the calls of many clients over one connection, and some have no key. */
const REFUSED_BURST = 2.5;

/** The budgets of one connection. */
class Costs {
  readonly #patience: BudgetOptions;
  readonly #idle: TimedBudget;
  /** Full, until something is spent. */
  #refused: TimedBudget | undefined;

  constructor(patience: BudgetOptions) {
    this.#patience = patience;
    this.#idle = new TimedBudget(patience);
  }

  /** Counts a frame without work; false if it exceeds the budget, as below. */
  spend(): boolean {
    return this.#idle.spend();
  }

  /** Counts a refused call. */
  spendRefused(): boolean {
    const { burst, perSecond } = this.#patience;
    this.#refused ??= new TimedBudget({ burst: REFUSED_BURST * burst, perSecond: SPOKEN * perSecond });
    return this.#refused.spend();
  }

  /** Whether it recently spent a large part of its budget. */
  get isDear(): boolean {
    return this.#idle.isLow;
  }
}

/** The wasted bytes that a session is allowed at once, and per tick. */
const WASTE_BYTES = { burst: 4 << 20, look: 128 << 10 } as const;
/** The overhead of a received frame, and of the client's frame for each frame that it reads. */
const FRAME_BYTES = 64;

/**
 * Bytes of a session that reach no handler: padding, frames of closed streams, heads that nghttp2 rejects. Node.js does not count them, and
 * reads them as long as they come. They are computed as what a session has read, less what its handlers have received.
 */
class WastedBytes {
  #used = 0;
  #seen = 0;
  #wasted = 0;

  /** Counts a frame with a payload of so many bytes. */
  use(bytes: number): void {
    this.#used += bytes + FRAME_BYTES;
  }

  /** Whether a session with so many read bytes is within its waste budget. Call it at regular intervals. */
  look(read: number): boolean {
    this.#wasted = Math.max(0, this.#wasted + read - this.#seen - this.#used - WASTE_BYTES.look);
    this.#seen = read;
    this.#used = 0;
    return this.#wasted <= WASTE_BYTES.burst;
  }
}

/** The most unread pieces: 64 per kilobyte in a window of 1 MiB. */
const MOST_PIECES = 16_384;

/** Limits the number of unread pieces; calls `tooMany` in the next turn if it is exceeded. `came` receives the size of each piece. */
function boundPieces(body: Readable, tooMany: () => void, came?: (bytes: number) => void): void {
  let held = 0;
  let isOver = false;
  const { push, read } = body;
  body.push = (piece: unknown, encoding?: BufferEncoding) => {
    if (piece instanceof Uint8Array) came?.(piece.length);
    held = body.readableLength === 0 ? 1 : held + 1;
    if (piece === null || (held <= MOST_PIECES && !isOver)) return push.call(body, piece, encoding);
    // Not now: Node.js is in the middle of reading.
    if (!isOver) setImmediate(tooMany);
    isOver = true;
    return false;
  };
  body.read = (size?: number) => {
    const piece: unknown = read.call(body, size);
    // All buffered pieces, or one if they are passed on; `push` detects the former.
    if (piece !== null) held--;
    return piece;
  };
}
