/** HTTP/2 by node: sessions with wide windows and a short patience for frames that only cost. */
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import { constants, createServer, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { RpcCode } from "../../../../gen/limber/edge/v1/options_pb.ts";
import { after } from "../../../clock.ts";
import { Arrivals, type Arriving } from "../arrivals.ts";
import { OwnedHttp2Request, OwnedHttp2Response } from "../error-listeners.ts";
import { RunningCalls } from "../running-calls.ts";
import { answerTo, FAULTS, type RefusalBody, sizeOf, type WireFault } from "../wire-faults.ts";
import type { BudgetOptions } from "./budget.ts";
import { Costs } from "./costs.ts";
import { HEARD_MS } from "./goaway.ts";
import { LATE_TRAILERS } from "./late-answer.ts";

/** The limits of every session; sizes in bytes, times in milliseconds. */
export interface Http2Limits {
  readonly maxSessionStreams: number;
  readonly streamWindow: number;
  readonly sessionWindow: number;
  readonly maxHeaderSize: number;
  /** What clients are told instead of it: node resets the streams of those who heard a limit and passed it, and leaves none to answer. */
  readonly toldHeaderSize?: number;
  readonly idleTimeoutMs: number;
  /** Whether sessions of our own read into one block that all share. */
  readonly sharedReads: boolean;
  readonly requestTimeoutMs: number;
  /** Whether requests for this path may go on for as long as they like. */
  readonly endless: (path: string) => boolean;
  readonly patience: BudgetOptions;
}

/** The HTTP/2 sessions of one port. */
export interface Http2Side {
  /** Serves `socket`, paused, from its preface; `greeted` is called once, when it has acknowledged our settings. */
  accept(socket: Socket, greeted: () => void): void;
  /** Asks every client, with its next answer, to open its next streams elsewhere, and serves those that it opens here all the same. */
  leave(): void;
  /**
   * Ends every session when its open streams have finished. Its last GOAWAY names the last of them, so that a client may
   * send the later ones elsewhere: they were not begun.
   */
  drain(): void;
}

/** Node's side, which serves what goes through no socket of its own too, as if it came from there. */
interface GeneralSide extends Http2Side {
  accept(socket: Socket | Duplex, greeted: () => void, from?: From): void;
}

/** Where what has no socket of its own comes from. */
export interface From {
  readonly address: string;
  readonly isSecure: boolean;
  /** A call was refused to its caller. */
  refused(): void;
}

/** Answers that tell a caller that it may not make a call, or not now: they cost who asked. */
const REFUSALS = new Set([401, 403, 429]);
const GRPC_REFUSALS = new Set(
  [RpcCode.UNAUTHENTICATED, RpcCode.PERMISSION_DENIED, RpcCode.RESOURCE_EXHAUSTED].map(String),
);

/** Bytes one session may hold inside Node, in MB: its default of 10 refuses new streams behind one large answer. */
const SESSION_MEMORY_MB = 64;

const ignore = (): void => undefined;

/** A server that never listens and is handed its sockets. */
export function generalSide(
  handler: (request: Http2ServerRequest, response: Http2ServerResponse) => void,
  bodyOf: RefusalBody,
  limits: Http2Limits,
  cutOff: (address: string) => void,
): GeneralSide {
  const sessions = new Set<ServerHttp2Session>();
  let draining = false;
  const server = createServer(
    {
      Http2ServerRequest: OwnedHttp2Request,
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
        maxHeaderListSize: limits.toldHeaderSize ?? limits.maxHeaderSize,
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

  const watch = (session: ServerHttp2Session, greeted: () => void, from: From | undefined): void => {
    const arriving = new RunningCalls<Arriving>();
    const arrivals = new Arrivals(limits.requestTimeoutMs, (visit) => arriving.each(visit));
    const costs = new Costs(limits.patience);
    const address = session.socket.remoteAddress ?? "";
    let open = 0;
    let served = 0;

    let isCutOff = false;
    const pay = (isLeft: boolean): void => {
      if (isLeft || session.destroyed) return;
      isCutOff = true;
      session.destroy(new Error("the session's patience is spent"), constants.NGHTTP2_ENHANCE_YOUR_CALM);
    };
    const tax = (): void => pay(costs.spend());
    const refused = from?.refused ?? (() => pay(costs.spendRefused()));
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
      open++;
      served++;
      stream.on("close", closed);
      // Node holds the client to the limit only once it has acknowledged our settings, which is the client's to delay.
      if (sizeOf(rawHeaders) > limits.maxHeaderSize) return refuse(stream, FAULTS.headers);
      if (!stream.endAfterHeaders && !limits.endless(headers[":path"] ?? ""))
        stream.once("close", arriving.enter(arrivingOf(stream, arrivals.looks, headers["content-type"])));
      server.emit("stream", stream, headers, flags, rawHeaders);
    });
    session.on("ping", tax);
    session.on("remoteSettings", tax);
    session.once("localSettings", greeted);
    // nghttp2's own wall calls it an error of the protocol, in the middle of what the session cost.
    session.on("error", () => {
      isCutOff ||= costs.isDear;
    });
    session.once("close", () => {
      forgetRest();
      if (isCutOff) cutOff(address);
      arrivals.end();
      sessions.delete(session);
    });
    session.setLocalWindowSize(limits.sessionWindow);
    sessions.add(session);
    restUnlessUsed(served);
  };

  return {
    accept(socket, greeted, from) {
      // A peer that half-closes is gone; else its unfinished streams would hold the connection, and `close`, for ever.
      socket.allowHalfOpen = false;
      server.once("session", (session) => {
        if (from !== undefined) comesFrom(session, from);
        watch(session, greeted, from);
        // Its first request is on its way.
        if (draining)
          session.once(
            "close",
            after(HEARD_MS, () => session.close()),
          );
      });
      server.emit("connection", socket);
    },
    // Node has no GOAWAY after which it begins another stream.
    leave: ignore,
    drain() {
      draining = true;
      for (const session of sessions) session.close();
    },
  };
}

function isRefusal({ sentHeaders, sentTrailers }: ServerHttp2Stream): boolean {
  if (REFUSALS.has(Number(sentHeaders[":status"]))) return true;
  return GRPC_REFUSALS.has(String(sentTrailers?.["grpc-status"] ?? sentHeaders["grpc-status"]));
}

/** What requests are told of the connection that they came by. */
function comesFrom(session: ServerHttp2Session, { address, isSecure }: From): void {
  // Node shows its sockets from behind a proxy, of which this answer is the way out.
  const socket = session.socket.once("close", ignore);
  Object.defineProperty(socket, "remoteAddress", { value: address });
  if (isSecure) Object.defineProperty(socket, "encrypted", { value: true });
}
