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
import { after, everyTogether } from "../../clock.ts";
import { Arrivals, type Arriving } from "./arrivals.ts";
import { OwnedHttp2Request, OwnedHttp2Response } from "./error-listeners.ts";
import { RequestTurns } from "./event-loop-turn.ts";
import { type BudgetOptions, Costs, WastedBytes } from "./http2-costs.ts";
import { boundPieces } from "./pieces.ts";
import type { ConnectionServer } from "./port.ts";
import { RunningCalls } from "./running-calls.ts";
import { type Slot, slotOf } from "./slots.ts";
import { answerTo, FAULTS, type RefusalBody, sizeOf, type WireFault } from "./wire-faults.ts";

/** The limits of every session; sizes in bytes, times in milliseconds. */
export interface Http2Limits {
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

/** Answers that refuse a call to its caller, for good or for now. They are charged to the connection. */
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
export interface NodeHttp2Options {
  readonly handler: (request: Http2ServerRequest, response: Http2ServerResponse) => void;
  /** Makes the JSON body of what is refused at this level. */
  readonly refusal: RefusalBody;
  readonly limits: Http2Limits;
  /** What is asked first to serve a stream. */
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
