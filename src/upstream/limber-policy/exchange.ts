/**
 * gRPC towards one model server: one stream of acts that stays open and carries all of them, and one stream per other call. Acts have
 * a connection of their own, so that no reader of predicted frames can hold one up.
 */

import type { Signal } from "../../cancellation.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import type { Items } from "../../flow.ts";
import { ClientConnection } from "../http2/connection.ts";
import type { Stream } from "../http2/stream.ts";
import { calledOff, failureOf, lost, malformed } from "../transport/failures.ts";
import { GrpcCalls, type GrpcExchange, GrpcReply, Heads, type ReplyHearer } from "../transport/grpc.ts";
import { type Address, MAX_MESSAGE_BYTES, type UpstreamServer } from "../transport/servers.ts";
import type { Hearer } from "../wire.ts";
import { type HeardAct, readAct } from "./decode.ts";
import { type ActMessage, encodeCancel } from "./encode.ts";
import { PendingAnswers } from "./pending.ts";

const MAX_CALL_ID = 2 ** 32 - 1;
/** Acts that wait for one server at one time. What is beyond would wait for longer than robots do, and fills memory where it is silent. */
const MOST_ACTS = 4_096;

/** Every connection to one server under one credential. */
export class PolicyChannel implements UpstreamServer {
  readonly #acts: ClientConnection;
  readonly #heads: Heads;
  readonly #calls: GrpcCalls;
  #stream: ActStream | undefined;

  constructor(address: Address) {
    this.#acts = new ClientConnection(address, () => this.#stream?.retire());
    this.#heads = new Heads(address);
    this.#calls = new GrpcCalls(address);
  }

  get idle(): boolean {
    return this.#acts.idle && this.#calls.idle;
  }

  /** As `ask`, with a promise of the answer; rejects with an UpstreamFailure. */
  act(path: string, message: ActMessage, signal: Signal): Promise<ActAnswer> {
    return new Promise((answered, failed) => this.ask(path, message, signal, { answered, failed }));
  }

  /**
   * Sends one act on the stream that all of them share. It fails with an UpstreamFailure; an aborted call is cancelled at the
   * server.
   */
  ask(path: string, message: ActMessage, signal: Signal, hearer: Hearer): void {
    try {
      if (signal.aborted) throw calledOff(signal);
      const stream = this.#stream?.takesCalls ? this.#stream : this.#begin(path);
      this.#acts.touch();
      stream.call(message, signal, hearer);
    } catch (error) {
      failSoon(hearer, failureOf(error));
    }
  }

  /** Sends one framed message and gives what `read` makes of the answer's messages, as they come; fails with an UpstreamFailure. */
  stream<T>(exchange: GrpcExchange, message: () => Promise<Buffer>, read: (part: Buffer) => T): Items<T> {
    return this.#calls.stream(exchange, message, read);
  }

  /** Sends one framed message and resolves with the one message of the answer. */
  unary(exchange: GrpcExchange, message: Buffer): Promise<Buffer> {
    return this.#calls.unary(exchange, message);
  }

  close(): void {
    this.#acts.close();
    this.#calls.close();
  }

  #begin(path: string): ActStream {
    this.#stream?.retire();
    const head = this.#heads.of(path);
    this.#stream = new ActStream(
      (reply) => this.#acts.open(head, reply),
      () => this.#acts.proveLife(),
    );
    return this.#stream;
  }
}

/** Not at once: who asks has more to do first. */
const failSoon = (hearer: Hearer, failure: UpstreamFailure): void => queueMicrotask(() => hearer.failed(failure));

/** The one stream on which a server answers acts, each under its call's id and in any order. */
class ActStream implements ReplyHearer {
  /** All answers are wanted as soon as they come. */
  readonly isFull = false;
  readonly #stream: Stream;
  /** Told of each call that was called off. */
  readonly #calledOff: () => void;
  readonly #pending = new PendingAnswers<PendingAct>();
  #nextId = 1;
  #retired = false;

  constructor(open: (reply: GrpcReply) => Stream, calledOff: () => void) {
    this.#calledOff = calledOff;
    const reply = new GrpcReply(this, () => undefined);
    this.#stream = open(reply);
    reply.stream = this.#stream;
  }

  /** False once the stream is ending, its connection takes no new calls, or its ids are used up. */
  get takesCalls(): boolean {
    return !this.#retired && this.#stream.lasts && this.#nextId < MAX_CALL_ID;
  }

  call(act: ActMessage, signal: Signal, hearer: Hearer): void {
    if (this.#stream.queued > MAX_MESSAGE_BYTES) {
      throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "the server doesn't read what it was sent");
    }
    if (this.#pending.size >= MOST_ACTS)
      throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "too many calls at one time");
    const id = this.#nextId++;
    const message = act.under(id);
    const pending = new PendingAct(this, id, signal, hearer);
    this.#pending.add(pending);
    signal.addEventListener("abort", pending, { once: true });
    this.#stream.write(message);
  }

  /** No new calls; ends when the last one has its answer. */
  retire(): void {
    this.#retired = true;
    this.#endIfDone();
  }

  /** As ReplyHearer. */
  message(bytes: Buffer): void {
    this.#answer(readAct(bytes));
  }

  /** As ReplyHearer. */
  ended(failure: UpstreamFailure | undefined): void {
    this.#fail(failure ?? lost("the server ended the stream of acts"));
  }

  #answer({ callId, answer }: HeardAct): void {
    if (callId === 0 || callId >= this.#nextId) throw malformed("an answer to a call that was never made");
    // A call that was called off may still be answered: too late, so it's dropped.
    const hearer = this.#pending.take(callId)?.end();
    if (answer instanceof UpstreamFailure) hearer?.failed(answer);
    else hearer?.answered(answer);
    this.#endIfDone();
  }

  /** Its caller waits for a call no longer. */
  cancel(id: number, signal: Signal): void {
    const hearer = this.#pending.take(id)?.end();
    if (hearer === undefined) return;
    this.#stream.write(encodeCancel(id));
    this.#calledOff();
    hearer.failed(calledOff(signal));
    this.#endIfDone();
  }

  #fail(failure: UpstreamFailure): void {
    this.#retired = true;
    for (const pending of this.#pending.takeAll()) pending.end()?.failed(failure);
  }

  #endIfDone(): void {
    if (this.#retired && this.#pending.size === 0) this.#stream.cancel();
  }
}

/** A call that waits for its answer, and that holds nothing once it has it; it hears by itself that it is called off. */
class PendingAct {
  readonly id: number;
  readonly #stream: ActStream;
  #hearer: Hearer | undefined;
  #signal: Signal | undefined;

  constructor(stream: ActStream, id: number, signal: Signal, hearer: Hearer) {
    this.#stream = stream;
    this.id = id;
    this.#signal = signal;
    this.#hearer = hearer;
  }

  /** As an AbortListener. */
  handleEvent(): void {
    if (this.#signal) this.#stream.cancel(this.id, this.#signal);
  }

  /** Ends the wait; gives who waited. */
  end(): Hearer | undefined {
    const hearer = this.#hearer;
    this.#signal?.removeEventListener("abort", this);
    this.#hearer = undefined;
    this.#signal = undefined;
    return hearer;
  }
}
