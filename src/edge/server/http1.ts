/** The HTTP/1 part of the port: validates each head before the handler receives it, and responds to invalid ones. */
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { RequestTurns } from "./turns.ts";
import type { ConnectionServer, UpgradeTaker } from "./whole-requests.ts";
import {
  answerTo,
  bytesOf,
  FAULTS,
  faultOfError,
  faultOfHead,
  type RefusalBody,
  type WireFault,
} from "./wire-faults.ts";

/** The state of one HTTP/1 connection. */
interface Http1Peer {
  /** Called when a complete head has arrived. */
  greeted: () => void;
  /** The response to the newest request; those of earlier, pipelined ones end before it. */
  last?: ServerResponse;
  /** The response before that one. */
  before?: ServerResponse | undefined;
  refused: boolean;
  /** Node.js parses all pipelined requests of a read at once. */
  readonly turns: RequestTurns;
}

/** The HTTP/1 connections of one server. Idle ones are closed by the server's own `close`. */
interface Http1Side extends ConnectionServer {
  /** Destroys the connections that owe no response. */
  destroyIdle(): void;
  /** Returns 408 to a connection whose head is overdue; false when `socket` is not one of these. */
  expire(socket: Socket): boolean;
}

/** Puts `handler` behind the checks on `server`, whose own listener for new connections is `attach`. */
export function http1Side(
  server: Server,
  attach: (socket: Socket) => void,
  handler: (request: IncomingMessage, response: ServerResponse) => void,
  { refusal: bodyOf, upgrade }: { refusal: RefusalBody; upgrade?: UpgradeTaker },
): Http1Side {
  const peers = new Map<Socket, Http1Peer>();
  let leaving = false;
  let draining = false;

  const refuse = (socket: Socket, peer: Http1Peer, fault: WireFault): void => {
    if (peer.refused) return;
    peer.refused = true;
    const answer = (): void => {
      // Not destroyed at once: unread bytes would turn the close into a reset, which can arrive before the response.
      if (socket.writable) socket.end(bytesOf(answerTo(fault, bodyOf)));
    };
    const { last } = peer;
    if (last === undefined || last.writableFinished) answer();
    // The fault follows a valid request, whose response comes first.
    else if (last.req.complete) last.once("close", answer);
    // The fault is in the body of the newest request, which can be answered only in its turn and from the start.
    else
      inTurn(last, peer, () => {
        if (last.writableEnded) last.once("close", () => socket.end());
        else if (last.headersSent) socket.destroy();
        else answer();
      });
  };

  /** Runs `then` when `response`, the newest, is the next to be sent; never if its connection ends before. */
  const inTurn = (response: ServerResponse, { before }: Http1Peer, then: () => void): void => {
    if (response.socket !== null) then();
    else before?.once("close", () => response.socket !== null && then());
  };

  const admit = (request: IncomingMessage, response: ServerResponse, expectation?: WireFault): boolean => {
    const peer = peers.get(request.socket);
    const fault = faultOfHead(request) ?? expectation;
    // Node.js parses pipelined requests ahead; none after a refused one may run.
    if (peer === undefined || peer.refused || fault !== undefined) {
      request.resume();
      if (peer !== undefined && fault !== undefined) refuse(request.socket, peer, fault);
      return false;
    }
    peer.greeted();
    peer.before = peer.last;
    peer.last = response;
    if (leaving) response.shouldKeepAlive = false;
    return true;
  };

  const begin = (request: IncomingMessage, response: ServerResponse): void => {
    peers.get(request.socket)?.turns.begin(() => handler(request, response));
  };

  server.on("request", (request, response) => {
    if (admit(request, response)) begin(request, response);
  });
  server.on("checkContinue", (request, response) => {
    if (!admit(request, response)) return;
    const peer = peers.get(request.socket);
    // Written into a queued response, the bytes would appear inside another response.
    if (peer !== undefined)
      inTurn(response, peer, () => {
        response.writeContinue();
        begin(request, response);
      });
  });
  server.on("checkExpectation", (request, response) => void admit(request, response, FAULTS.expectation));
  // Only supported upgrades come here; all others are ordinary requests.
  server.on("upgrade", (request, stream, head) => {
    const peer = peers.get(request.socket);
    const fault = faultOfHead(request);
    if (peer === undefined || peer.refused || draining || fault !== undefined) {
      stream.on("error", () => stream.destroy()).resume();
      if (peer !== undefined && fault !== undefined) refuse(request.socket, peer, fault);
      else stream.destroy();
      return;
    }
    peer.greeted();
    peers.delete(request.socket);
    upgrade?.take(request, stream, head);
  });
  server.on("connect", (request, stream) => {
    const peer = peers.get(request.socket);
    // Node.js no longer handles the socket's errors.
    stream.on("error", () => stream.destroy()).resume();
    if (peer !== undefined) refuse(request.socket, peer, FAULTS.method);
  });
  server.on("clientError", (error, stream) => {
    const socket = stream as Socket; // sound: an HTTP server's streams are the sockets it was given
    const peer = peers.get(socket);
    const fault = faultOfError(error);
    if (peer === undefined || fault === undefined) return void socket.destroy();
    refuse(socket, peer, fault);
  });

  const owes = ({ last }: Http1Peer): boolean => last !== undefined && !last.writableFinished;

  return {
    accept(socket, greeted) {
      const turns = new RequestTurns();
      peers.set(socket, { greeted, refused: false, turns });
      socket.once("close", () => {
        peers.delete(socket);
        turns.end();
      });
      attach(socket);
      socket.resume();
    },
    leave() {
      leaving = true;
      for (const { last } of peers.values()) if (last !== undefined) last.shouldKeepAlive = false;
    },
    drain() {
      leaving = true;
      draining = true;
      for (const [socket, peer] of peers) {
        const { last } = peer;
        if (last === undefined || !owes(peer)) continue;
        last.shouldKeepAlive = false;
        // If a response already promised keep-alive, the connection ends after it, unless another request arrived.
        last.once("close", () => peer.last === last && socket.end());
      }
    },
    destroyIdle() {
      for (const [socket, peer] of peers) if (!owes(peer)) socket.destroy();
    },
    expire(socket) {
      const peer = peers.get(socket);
      if (peer !== undefined) refuse(socket, peer, FAULTS.slow);
      return peer !== undefined;
    },
  };
}
