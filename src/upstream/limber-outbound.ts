/** The reversed native wire: calls use the stream that the server opened to the gateway, through the replica that holds it. */
import type { ServeRequest, ServeResponse } from "../../gen/limber/outbound/v1/outbound_service_pb.ts";
import type { CallError, PredictResponse } from "../../gen/limber/policy/v1/policy_service_pb.ts";
import { AttemptFailure, UpstreamFailure } from "../contracts/contract.ts";
import {
  actAnswerOf,
  actCallOf,
  groundAnswerOf,
  groundRequestOf,
  predictPartOf,
  predictRequestOf,
} from "./limber-policy/messages.ts";
import { calledOff, lost, malformed, unreachable } from "./transport/failures.ts";
import type { CallOptions, UpstreamTarget, Wire } from "./wire.ts";

/** The runtime's name. */
const OUTBOUND = "limber-outbound";

/** The address of a provider's registered server. */
export const outboundAddress = (provider: string): string => `outbound://${provider}`;

/** The wire over the servers of an outbound hub. */
export function limberOutbound(hub: OutboundHub): Wire {
  const connectionOf = ({ endpoint }: UpstreamTarget): OutboundConnection | undefined =>
    hub.of(endpoint.slice(outboundAddress("").length));
  const registered = (target: UpstreamTarget): OutboundConnection => {
    const connection = connectionOf(target);
    if (!connection) throw unreachable("the server is not connected to the gateway");
    return connection;
  };
  return {
    id: OUTBOUND,
    schemes: ["outbound:"],
    isHere: (target) => connectionOf(target) !== undefined,
    async act(target, input, frames, call) {
      const value = await actCallOf(target.model, input, frames, call);
      return new Promise((resolve, reject) => {
        registered(target).call(
          (callId) => ({
            case: "act",
            value: { $typeName: "limber.policy.v1.ActRequest", callId, body: { case: "call", value } },
          }),
          {
            take(reply) {
              if (reply.case !== "act") reject(malformed("the response to an act call has the wrong type"));
              else settle(resolve, reject, () => actAnswerOf(reply.value));
              return true;
            },
            fail: reject,
          },
          call,
        );
      });
    },
    async *predict(target, input, frames, call) {
      const request = await predictRequestOf(target.model, input, frames);
      const parts = new PredictedParts();
      registered(target).call(
        (callId) => ({
          case: "predict",
          value: { $typeName: "limber.outbound.v1.PredictCall", callId, request },
        }),
        {
          take(reply) {
            if (reply.case !== "predict")
              return parts.end(malformed("the response to a prediction has the wrong type"));
            const { body } = reply.value;
            if (body.case === "part") return parts.add(body.value);
            return parts.end(body.case === "error" ? failureOfCall(body.value) : undefined);
          },
          fail: (failure) => void parts.end(failure),
        },
        call,
      );
      for await (const part of parts.read()) yield predictPartOf(part);
    },
    async ground(target, input, frames, call) {
      const request = await groundRequestOf(target.model, input, frames);
      return new Promise((resolve, reject) => {
        registered(target).call(
          (callId) => ({ case: "ground", value: { $typeName: "limber.outbound.v1.GroundCall", callId, request } }),
          {
            take(reply) {
              const body = reply.case === "ground" ? reply.value.body : undefined;
              if (body?.case === "answer") resolve(groundAnswerOf(body.value));
              else
                reject(
                  body?.case === "error"
                    ? failureOfCall(body.value)
                    : malformed("the response contains no points or boxes"),
                );
              return true;
            },
            fail: reject,
          },
          call,
        );
      });
    },
    async health(target) {
      registered(target);
    },
    async close() {
      hub.close();
    },
  };
}

function settle<T>(resolve: (value: T) => void, reject: (failure: unknown) => void, read: () => T): void {
  try {
    resolve(read());
  } catch (thrown) {
    reject(thrown);
  }
}

/** How a chunk's error is read. */
function failureOfCall(error: CallError): unknown {
  try {
    actAnswerOf({ $typeName: "limber.policy.v1.ActResponse", callId: 0, body: { case: "error", value: error } });
    return malformed("the error has no valid reason");
  } catch (thrown) {
    return thrown;
  }
}

/** Maximum unread parts of one prediction. One more fails it. */
const MOST_PARTS = 1_024;

/** The received and unread parts of one prediction. */
class PredictedParts {
  readonly #ready: PredictResponse[] = [];
  #over = false;
  #failure: unknown;
  #wake = (): void => {};

  add(part: PredictResponse): boolean {
    if (this.#ready.length >= MOST_PARTS) return this.end(malformed("the prediction has too many parts"));
    this.#ready.push(part);
    this.#wake();
    return false;
  }

  end(failure: unknown): boolean {
    this.#over = true;
    this.#failure = failure;
    this.#wake();
    return true;
  }

  async *read(): AsyncGenerator<PredictResponse, void, undefined> {
    for (;;) {
      yield* this.#ready.splice(0);
      if (this.#ready.length > 0) continue;
      if (this.#over && this.#failure !== undefined) throw this.#failure;
      if (this.#over) return;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}

/** A message of the gateway on a stream, after the welcome. */
export type OutboundQuestion = Exclude<ServeResponse["message"], { case: undefined } | { case: "welcome" }>;
/** A message of a server on a stream, after its hello. */
export type OutboundReply = Exclude<ServeRequest["message"], { case: undefined } | { case: "hello" }>;

/** A server's stream if this replica holds it, otherwise the relay to the replica that does. */
interface OutboundStream {
  /** `budgetMs` is the call's remaining time, if the message starts one. */
  say(question: OutboundQuestion, budgetMs?: number): void;
  /** Whether the server has not read earlier messages yet. */
  readonly behind: boolean;
  /** Another stream of the provider has replaced it, or the gateway closes. */
  end(): void;
}

/** Maximum of concurrent waiting calls to one server. */
const MOST_PENDING = 256;
const MAX_CALL_ID = 2 ** 32 - 1;

/** Receives the answers of one call, until it returns that there are no more. */
interface PendingCall {
  /** Returns whether the call has ended. */
  take(reply: OutboundReply): boolean;
  fail(failure: unknown): void;
}

/** One registered server. */
export class OutboundConnection {
  readonly line: OutboundStream;
  readonly #pending = new Map<number, PendingCall>();
  #nextId = 1;

  constructor(line: OutboundStream) {
    this.line = line;
  }

  /** Passes a server's answer to its call. Throws an UpstreamFailure for a call that never existed. */
  hear(reply: OutboundReply): void {
    const { callId } = reply.value;
    const call = this.#pending.get(callId);
    // A canceled call may still receive a response, which is dropped.
    if (!call && callId > 0 && callId < this.#nextId) return;
    if (!call) throw malformed("the response is for an unknown call");
    if (call.take(reply)) this.#pending.delete(callId);
  }

  /** Makes a call. `fail` is called with a failure that ends it early. Throws an UpstreamFailure if too many calls wait. */
  call(
    question: (callId: number) => OutboundQuestion,
    pending: PendingCall,
    { signal, budgetMs }: Pick<CallOptions, "signal" | "budgetMs">,
  ): void {
    if (signal.aborted) throw calledOff(signal);
    if (this.line.behind || this.#pending.size >= MOST_PENDING || this.#nextId >= MAX_CALL_ID)
      throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "the server stopped reading requests");
    const id = this.#nextId++;
    const leave = (): void => {
      if (!this.#pending.delete(id)) return;
      this.line.say(cancel(id));
      pending.fail(calledOff(signal));
    };
    const settled = (over: boolean): boolean => {
      if (over) signal.removeEventListener("abort", leave);
      return over;
    };
    this.#pending.set(id, {
      take: (reply) => settled(pending.take(reply)),
      fail: (failure) => {
        settled(true);
        pending.fail(failure);
      },
    });
    signal.addEventListener("abort", leave, { once: true });
    this.line.say(question(id), budgetMs);
  }

  /** A call will not be answered. */
  fail(callId: number, failure: unknown): void {
    const call = this.#pending.get(callId);
    this.#pending.delete(callId);
    call?.fail(failure);
  }

  /** The stream has closed, so every call on it fails. */
  sink(): void {
    for (const [id, call] of [...this.#pending]) {
      this.#pending.delete(id);
      call.fail(lost("the server's stream ended"));
    }
  }
}

const cancel = (callId: number): OutboundQuestion => ({
  case: "act",
  value: {
    $typeName: "limber.policy.v1.ActRequest",
    callId,
    body: { case: "cancel", value: { $typeName: "limber.policy.v1.CancelCall" } },
  },
});

/** A server that is registered at another replica. */
export interface Elsewhere {
  readonly provider: string;
  readonly replica: string;
}

/** All servers registered at this replica, and the relays to those registered at others. */
export class OutboundHub {
  readonly #connections = new Map<string, OutboundConnection>();
  #elsewhere: readonly (Elsewhere & { readonly connection: OutboundConnection })[] = [];
  readonly #listeners: (() => void)[] = [];

  /** Calls `changed` whenever a server registers or leaves, at any replica. */
  onChange(changed: () => void): void {
    this.#listeners.push(changed);
  }

  /** The providers whose servers are registered at this replica. */
  get providers(): string[] {
    return [...this.#connections.keys()].sort();
  }

  /** Sets which servers are registered elsewhere; `open` creates the relay to a new one. Calls on a closed relay fail. */
  learn(known: readonly Elsewhere[], open: (at: Elsewhere) => OutboundConnection): void {
    const before = this.#elsewhere;
    const same = (a: Elsewhere, b: Elsewhere): boolean => a.provider === b.provider && a.replica === b.replica;
    this.#elsewhere = known.map((at) => before.find((one) => same(one, at)) ?? { ...at, connection: open(at) });
    const gone = before.filter((one) => !this.#elsewhere.includes(one));
    for (const { connection } of gone) {
      connection.sink();
      connection.line.end();
    }
    if (gone.length > 0 || this.#elsewhere.some((one) => !before.includes(one))) this.#changed();
  }

  /** Registers a server. It replaces one of the same provider. */
  register(provider: string, line: OutboundStream): OutboundConnection {
    this.#leave(provider);
    const connection = new OutboundConnection(line);
    this.#connections.set(provider, connection);
    this.#changed();
    return connection;
  }

  /** Removes a server, if it is still registered. */
  unregister(provider: string, connection: OutboundConnection): void {
    if (this.#connections.get(provider) !== connection) return;
    this.#connections.delete(provider);
    connection.sink();
    this.#changed();
  }

  /** The server of a provider, if it is registered here. */
  here(provider: string): OutboundConnection | undefined {
    return this.#connections.get(provider);
  }

  /** The server of a provider: registered here if possible, otherwise the relay to the replica of its last registration. */
  of(provider: string): OutboundConnection | undefined {
    return this.here(provider) ?? this.#elsewhere.find((one) => one.provider === provider)?.connection;
  }

  /** Closes every stream; servers reconnect to another replica. */
  close(): void {
    for (const provider of [...this.#connections.keys()]) this.#leave(provider);
    this.#changed();
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }

  #leave(provider: string): void {
    const connection = this.#connections.get(provider);
    if (!connection) return;
    this.#connections.delete(provider);
    connection.sink();
    connection.line.end();
  }
}
