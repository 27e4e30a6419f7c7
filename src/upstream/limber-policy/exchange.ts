/**
 * gRPC towards one model server, on node:http2 itself: one stream of acts that stays open and carries all of them, and one
 * stream per other call. Acts have a connection of their own, so that no reader of predicted frames can hold one up.
 */
import type { ClientHttp2Stream } from "node:http2";
import type { ActResponse } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { MessageReader } from "../../codecs/grpc.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import type { Signal } from "../../signal.ts";
import { calledOff, failureOf, lost, malformed } from "../failures.ts";
import { Connection, cancel, type Exchange, GrpcCalls, plain, Reply } from "../grpc.ts";
import { type Address, MAX_MESSAGE_BYTES, type Server } from "../servers.ts";
import { readAct } from "./decode.ts";
import { encodeCancel } from "./encode.ts";

const MAX_CALL_ID = 2 ** 32 - 1;
/** Every connection to one server under one credential. */
export class Channel implements Server {
  readonly #acts: Connection;
  readonly #calls: GrpcCalls;
  #stream: ActStream | undefined;

  constructor(address: Address) {
    this.#acts = new Connection(address, () => this.#stream?.retire());
    this.#calls = new GrpcCalls(address);
  }

  get idle(): boolean {
    return this.#acts.idle && this.#calls.idle;
  }

  /**
   * Sends one act on the stream that all of them share and resolves with its answer. `encode` gets the id that names the call on
   * the stream and gives the framed message. Rejects with an UpstreamFailure; an aborted call is cancelled at the server.
   */
  act(path: string, encode: (callId: number) => Buffer, signal: Signal): Promise<ActResponse> {
    if (signal.aborted) return Promise.reject(calledOff(signal));
    try {
      if (this.#stream === undefined || !this.#stream.takesCalls) {
        this.#stream?.retire();
        this.#stream = new ActStream(this.#acts.request({ ":path": path }));
      }
      this.#acts.touch();
      return this.#stream.call(encode, signal).catch((failure: unknown) => {
        if (signal.aborted) this.#acts.proveLife();
        throw failure;
      });
    } catch (error) {
      return Promise.reject(failureOf(error));
    }
  }

  /** Sends one framed message and yields the answer's messages as they come; throws an UpstreamFailure. */
  stream(exchange: Exchange, message: Buffer): AsyncGenerator<Buffer, void, undefined> {
    return this.#calls.stream(exchange, message);
  }

  /** Sends one framed message and resolves with the one message of the answer. */
  unary(exchange: Exchange, message: Buffer): Promise<Buffer> {
    return this.#calls.unary(exchange, message);
  }

  close(): void {
    this.#acts.close();
    this.#calls.close();
  }
}

/** The one stream on which a server answers acts, each under its call's id and in any order. */
class ActStream {
  readonly #stream: ClientHttp2Stream;
  readonly #pending = new Map<number, PendingAct>();
  #nextId = 1;
  #retired = false;

  constructor(stream: ClientHttp2Stream) {
    this.#stream = stream;
    const reply = new Reply(stream);
    const reader = new MessageReader(MAX_MESSAGE_BYTES, (message, compressed) =>
      this.#answer(readAct(plain(message, compressed))),
    );
    stream.on("data", (chunk: Buffer) => {
      try {
        reader.push(chunk);
      } catch (error) {
        reply.fail(failureOf(error));
        cancel(stream);
      }
    });
    stream.on("end", () => cancel(stream));
    void reply.closed.then(() => this.#fail(reply.outcome() ?? lost("the server ended the stream of acts")));
  }

  /** False once the stream is ending, its session takes no new calls, or its ids are used up. */
  get takesCalls(): boolean {
    const { session } = this.#stream;
    const ending = this.#stream.destroyed || this.#stream.closed || this.#stream.readableEnded;
    return !this.#retired && !ending && session?.closed === false && this.#nextId < MAX_CALL_ID;
  }

  call(encode: (callId: number) => Buffer, signal: Signal): Promise<ActResponse> {
    if (this.#stream.writableLength > MAX_MESSAGE_BYTES) {
      throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "the server doesn't read what it was sent");
    }
    const id = this.#nextId++;
    const message = encode(id);
    return new Promise((resolve, reject) => {
      this.#pending.set(id, new PendingAct({ resolve, reject, signal, onAbort: () => this.#cancel(id) }));
      this.#stream.write(message);
    });
  }

  /** No new calls; ends when the last one has its answer. */
  retire(): void {
    this.#retired = true;
    this.#endIfDone();
  }

  #answer(response: ActResponse): void {
    if (response.callId === 0 || response.callId >= this.#nextId) {
      throw malformed("an answer to a call that was never made");
    }
    // A call that was called off may still be answered: too late, so it's dropped.
    this.#take(response.callId)?.resolve(response);
    this.#endIfDone();
  }

  #cancel(id: number): void {
    const call = this.#take(id);
    if (call === undefined) return;
    if (!this.#stream.destroyed && !this.#stream.writableEnded) this.#stream.write(encodeCancel(id));
    call.reject(calledOff(call.signal));
    this.#endIfDone();
  }

  #take(id: number): Waiting | undefined {
    const call = this.#pending.get(id)?.end();
    this.#pending.delete(id);
    return call;
  }

  #fail(failure: UpstreamFailure): void {
    this.#retired = true;
    for (const id of [...this.#pending.keys()]) this.#take(id)?.reject(failure);
  }

  #endIfDone(): void {
    if (this.#retired && this.#pending.size === 0) cancel(this.#stream);
  }
}

/** Who waits for an answer. */
interface Waiting {
  readonly resolve: (response: ActResponse) => void;
  readonly reject: (failure: UpstreamFailure) => void;
  readonly signal: Signal;
  readonly onAbort: () => void;
}

/**
 * A call that waits for its answer, and that holds nothing once it has it: a Map that makes room leaves a table behind, which
 * the collector takes for alive until its next full round, with all that was in it.
 */
class PendingAct {
  #waiting: Waiting | undefined;

  constructor(waiting: Waiting) {
    this.#waiting = waiting;
    waiting.signal.addEventListener("abort", waiting.onAbort, { once: true });
  }

  /** Ends the wait; gives who waited. */
  end(): Waiting | undefined {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.signal.removeEventListener("abort", waiting.onAbort);
    return waiting;
  }
}
