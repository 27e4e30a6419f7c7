/** The native wire: gRPC to a server of `limber.policy.v1`, which partners implement from generated stubs. */
import {
  DescribeResponseSchema,
  GroundRequestSchema,
  GroundResponseSchema,
  PolicyService,
  PredictRequestSchema,
  PredictResponseSchema,
  type ServedModel,
} from "../../gen/limber/policy/v1/policy_service_pb.ts";
import type { Signal } from "../cancellation.ts";
import { type ActAnswer, AttemptFailure, UpstreamFailure } from "../contracts/contract.ts";
import { encodeAct, loopEncoder, readAct, readMessage } from "./limber-policy/codec.ts";
import {
  type ActMessage,
  framed,
  framedCancel,
  framedDescribe,
  groundAnswerOf,
  groundRequestOf,
  type HeardAct,
  messageIn,
  predictPartOf,
  predictRequestOf,
} from "./limber-policy/messages.ts";
import { calledOff, failureOf, lost, malformed } from "./transport/failures.ts";
import { type DuplexEvents, GRPC_SCHEMES, GrpcClient, type GrpcDuplex, type GrpcExchange } from "./transport/grpc.ts";
import { MAX_MESSAGE_BYTES, type ServerReach, Servers, type UpstreamServer } from "./transport/servers.ts";
import type { AnswerHandler, CallOptions, UpstreamTarget, Wire } from "./wire.ts";

/** The native wire, with its Describe query. */
export interface LimberPolicyWire extends Wire {
  /** Resolves with the server's description; rejects with an UpstreamFailure. */
  describe(target: UpstreamTarget, call: CallOptions): Promise<ServedModel[]>;
}

/** Opens the wire; connections are made on first use. */
export function limberPolicy(reach: ServerReach): LimberPolicyWire {
  const channels = new Servers(reach, GRPC_SCHEMES, (address) => new PolicyChannel(new GrpcClient(address)));

  const describe = async (target: UpstreamTarget, call: CallOptions): Promise<ServedModel[]> => {
    const bytes = await channels.of(target).unary(exchange("describe", call), framedDescribe());
    return messageIn(DescribeResponseSchema, bytes, readMessage).models;
  };

  return {
    id: "limber-policy",
    asksHorizon: true,
    schemes: Object.keys(GRPC_SCHEMES),
    describe,
    async act(target, input, frames, call) {
      const message = await encodeAct(target.model, input, frames, call);
      return await channels.of(target).act(PATH.act, message, call.signal);
    },
    line(target, input, { requestId }) {
      const messageOf = loopEncoder(target.model, input, requestId);
      return {
        ask(observations, budgetMs, signal, handler) {
          channels.of(target).ask(PATH.act, messageOf(observations, budgetMs), signal, handler);
        },
      };
    },
    predict(target, input, frames, call) {
      const encode = async () => framed(PredictRequestSchema, await predictRequestOf(target.model, input, frames));
      const read = (part: Buffer) => predictPartOf(messageIn(PredictResponseSchema, part, readMessage));
      return channels.of(target).stream(exchange("predict", call), encode, read);
    },
    async ground(target, input, frames, call) {
      const message = framed(GroundRequestSchema, await groundRequestOf(target.model, input, frames));
      const bytes = await channels.of(target).unary(exchange("ground", call), message);
      return groundAnswerOf(messageIn(GroundResponseSchema, bytes, readMessage));
    },
    async health(target, call) {
      await describe(target, call);
    },
    async close() {
      channels.close();
    },
  };
}

type PolicyMethod = keyof typeof PolicyService.method;

const pathOf = (method: PolicyMethod): string => `/${PolicyService.typeName}/${PolicyService.method[method].name}`;

const PATH: Readonly<Record<PolicyMethod, string>> = {
  describe: pathOf("describe"),
  act: pathOf("act"),
  predict: pathOf("predict"),
  ground: pathOf("ground"),
};

const exchange = (method: PolicyMethod, { signal, budgetMs, requestId, traceparent }: CallOptions): GrpcExchange => ({
  path: PATH[method],
  signal,
  budgetMs,
  requestId,
  traceparent,
});

const MAX_CALL_ID = 2 ** 32 - 1;
/** Maximum of waiting acts per server. More would wait for longer than robots do, and fill memory while a server is silent. */
const MOST_ACTS = 4_096;

/** The calls to one server with one credential. */
class PolicyChannel implements UpstreamServer {
  readonly #client: GrpcClient;
  #stream: ActStream | undefined;

  constructor(client: GrpcClient) {
    this.#client = client;
  }

  get idle(): boolean {
    return this.#client.idle;
  }

  /** As `ask`, with a promise of the answer; rejects with an UpstreamFailure. */
  act(path: string, message: ActMessage, signal: Signal): Promise<ActAnswer> {
    return new Promise((answered, failed) => this.ask(path, message, signal, { answered, failed }));
  }

  /** Sends one act on the shared stream. It fails with an UpstreamFailure; an aborted call is canceled at the server. */
  ask(path: string, message: ActMessage, signal: Signal, handler: AnswerHandler): void {
    try {
      if (signal.aborted) throw calledOff(signal);
      const stream = this.#stream?.takesCalls ? this.#stream : this.#begin(path);
      stream.call(message, signal, handler);
    } catch (error) {
      failSoon(handler, failureOf(error));
    }
  }

  /** Sends one framed message and passes on what `read` returns for the answer's messages as they arrive; fails with an UpstreamFailure. */
  stream<T>(
    exchange: GrpcExchange,
    message: () => Promise<Buffer>,
    read: (part: Buffer) => T,
  ): AsyncIterableIterator<T, undefined, undefined> {
    return this.#client.stream(exchange, message, read);
  }

  /** Sends one framed message and resolves with the answer's single message. */
  unary(exchange: GrpcExchange, message: Buffer): Promise<Buffer> {
    return this.#client.unary(exchange, message);
  }

  close(): void {
    this.#client.close();
  }

  #begin(path: string): ActStream {
    this.#stream?.retire();
    this.#stream = new ActStream((events) => this.#client.duplex(path, events));
    return this.#stream;
  }
}

/** Deferred, because the caller first completes its own work. */
const failSoon = (handler: AnswerHandler, failure: UpstreamFailure): void =>
  queueMicrotask(() => handler.failed(failure));

/** The single stream on which a server answers acts, each under its call's id and in any order. */
class ActStream implements DuplexEvents {
  readonly #duplex: GrpcDuplex;
  readonly #pending = new Map<number, PendingAct>();
  #nextId = 1;
  #retired = false;

  constructor(open: (events: DuplexEvents) => GrpcDuplex) {
    this.#duplex = open(this);
  }

  /** False once the stream is ending, its connection accepts no new calls, or its ids are used up. */
  get takesCalls(): boolean {
    return !this.#retired && this.#duplex.lasts && this.#nextId < MAX_CALL_ID;
  }

  call(act: ActMessage, signal: Signal, handler: AnswerHandler): void {
    if (this.#duplex.queued > MAX_MESSAGE_BYTES) {
      throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "the server stopped reading requests");
    }
    if (this.#pending.size >= MOST_ACTS)
      throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "too many concurrent calls");
    const id = this.#nextId++;
    const message = act.under(id);
    const pending = new PendingAct(this, id, signal, handler);
    this.#pending.set(id, pending);
    signal.addEventListener("abort", pending, { once: true });
    this.#duplex.send(message);
  }

  /** Accepts no new calls; ends when the last one has its answer. */
  retire(): void {
    this.#retired = true;
    this.#endIfDone();
  }

  /** As DuplexEvents. */
  message(bytes: Buffer): void {
    this.#answer(readAct(bytes));
  }

  /** As DuplexEvents. */
  ended(failure: UpstreamFailure | undefined): void {
    this.#fail(failure ?? lost("the server ended the stream of acts"));
  }

  /** As DuplexEvents. */
  idle(): void {
    this.retire();
  }

  #answer({ callId, answer }: HeardAct): void {
    if (callId === 0 || callId >= this.#nextId) throw malformed("the response is for an unknown call");
    // A canceled call may still receive a response, which is dropped.
    const handler = this.#take(callId);
    if (answer instanceof UpstreamFailure) handler?.failed(answer);
    else handler?.answered(answer);
    this.#endIfDone();
  }

  /** Its caller no longer waits for a call. */
  cancel(id: number, signal: Signal): void {
    const handler = this.#take(id);
    if (handler === undefined) return;
    this.#duplex.send(framedCancel(id));
    this.#duplex.proveLife();
    handler.failed(calledOff(signal));
    this.#endIfDone();
  }

  #take(id: number): AnswerHandler | undefined {
    const pending = this.#pending.get(id);
    if (pending === undefined) return undefined;
    this.#pending.delete(id);
    return pending.end();
  }

  #fail(failure: UpstreamFailure): void {
    this.#retired = true;
    const all = [...this.#pending.values()];
    this.#pending.clear();
    for (const pending of all) pending.end()?.failed(failure);
  }

  #endIfDone(): void {
    if (this.#retired && this.#pending.size === 0) this.#duplex.cancel();
  }
}

/** A call that waits for its answer, and retains nothing afterwards; it listens to its own signal. */
class PendingAct {
  readonly id: number;
  readonly #stream: ActStream;
  #handler: AnswerHandler | undefined;
  #signal: Signal | undefined;

  constructor(stream: ActStream, id: number, signal: Signal, handler: AnswerHandler) {
    this.#stream = stream;
    this.id = id;
    this.#signal = signal;
    this.#handler = handler;
  }

  /** As an AbortListener. */
  handleEvent(): void {
    if (this.#signal) this.#stream.cancel(this.id, this.#signal);
  }

  /** Ends the wait, and returns the handler. */
  end(): AnswerHandler | undefined {
    const handler = this.#handler;
    this.#signal?.removeEventListener("abort", this);
    this.#handler = undefined;
    this.#signal = undefined;
    return handler;
  }
}
