/** The native wire, reversed: calls go out on the stream by which the server dialled the gateway, through the replica that holds it. */
import type { CallError, PredictResponse } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { actAnswerOf, groundAnswerOf, predictPartOf } from "../limber-policy/decode.ts";
import { actCallOf, groundRequestOf, predictRequestOf } from "../limber-policy/encode.ts";
import { malformed, unreachable } from "../transport/failures.ts";
import type { UpstreamTarget, Wire } from "../wire.ts";
import type { OutboundConnection, OutboundHub } from "./hub.ts";

/** The runtime's name. */
export const OUTBOUND = "limber-outbound";

/** The address of a provider's registered server. */
export const outboundAddress = (provider: string): string => `outbound://${provider}`;

/** The wire over the servers of an outbound hub. */
export function limberOutbound(hub: OutboundHub): Wire {
  const connectionOf = ({ endpoint }: UpstreamTarget): OutboundConnection | undefined =>
    hub.of(endpoint.slice(outboundAddress("").length));
  const registered = (target: UpstreamTarget): OutboundConnection => {
    const connection = connectionOf(target);
    if (!connection) throw unreachable("the server has not dialled the gateway");
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
              if (reply.case !== "act") reject(malformed("an act was answered with something else"));
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
            if (reply.case !== "predict") return parts.end(malformed("a prediction was answered with something else"));
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
              else reject(body?.case === "error" ? failureOfCall(body.value) : malformed("no points and boxes"));
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

/** As a chunk's error is read. */
function failureOfCall(error: CallError): unknown {
  try {
    actAnswerOf({ $typeName: "limber.policy.v1.ActResponse", callId: 0, body: { case: "error", value: error } });
    return malformed("an error that is none");
  } catch (thrown) {
    return thrown;
  }
}

/** Unread parts of one prediction. One more fails it. */
const MOST_PARTS = 1_024;

/** The parts of one prediction that came and are not read yet. */
class PredictedParts {
  readonly #ready: PredictResponse[] = [];
  #over = false;
  #failure: unknown;
  #wake = (): void => {};

  add(part: PredictResponse): boolean {
    if (this.#ready.length >= MOST_PARTS) return this.end(malformed("more parts than a prediction has"));
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
