/** Calls that a job makes for its caller: the same JSON, the same gate, the same answers as if the caller had made them by REST. */
import type { DescMethod } from "@bufbuild/protobuf";
import { InferenceService } from "../../../gen/limber/v1/inference_service_pb.ts";
import { factsOf, Reason } from "../../refusal.ts";
import type { KeyPrincipal } from "../../services/call.ts";
import type { Signal } from "../../signal.ts";
import type { Gate } from "../gate.ts";
import { refusalOf, restAnswer } from "../messages/errors.ts";
import { decoderOf, encoderOf, Faults } from "../messages/json.ts";
import { invalid, violationOf, violationsOf } from "../messages/validate.ts";

/** One call to be made. */
export interface LaterCall {
  readonly contract: "act" | "predict";
  /** The request as JSON. */
  readonly request: object;
  readonly requestId: string;
  /** The call runs once under this key, however often it's made; undefined: each time. */
  readonly idempotencyKey: string | undefined;
  readonly signal: Signal;
}

/** How it was answered. A refusal that is `retryable` says nothing of the call itself. */
export type LaterAnswer =
  | { readonly kind: "answer"; readonly statusCode: number; readonly body: object; readonly costMicro: number }
  | { readonly kind: "refusal"; readonly body: object; readonly retryable: boolean };

const MICRO_PER_USD = 1_000_000;

const METHODS = { act: InferenceService.method.act, predict: InferenceService.method.predict } as const;

/** Reasons that pass by themselves: another worker's call, a gateway that is closing, a ledger that is away. */
const PASSING: ReadonlySet<Reason> = new Set([
  Reason.IDEMPOTENCY_IN_PROGRESS,
  Reason.NOT_READY,
  Reason.STORE_UNAVAILABLE,
  Reason.CLIENT_CLOSED_REQUEST,
]);

/** Makes calls through the gate, as a principal whose key was looked at just before. */
export function laterCalls(gate: Gate, principalOf: (keyId: string) => Promise<KeyPrincipal>) {
  const looking = new Map<string, Promise<KeyPrincipal>>();
  /** Calls that begin in one go look once. */
  const lookOnce = (keyId: string): Promise<KeyPrincipal> => {
    const known = looking.get(keyId);
    if (known) return known;
    const look = principalOf(keyId);
    looking.set(keyId, look);
    queueMicrotask(() => looking.delete(keyId));
    return look;
  };
  return async (keyId: string, call: LaterCall): Promise<LaterAnswer> => {
    try {
      const principal = await lookOnce(keyId);
      return await answer(gate, METHODS[call.contract], principal, call);
    } catch (thrown) {
      const refusal = refusalOf(thrown, call.signal);
      const { body } = restAnswer(refusal, call.requestId);
      const retryable = PASSING.has(refusal.reason) || factsOf(refusal.reason).status === 500;
      return { kind: "refusal", body: JSON.parse(body) as object, retryable };
    }
  };
}

async function answer(gate: Gate, method: DescMethod, principal: KeyPrincipal, call: LaterCall): Promise<LaterAnswer> {
  const { idempotency_key: _, ...fields } = call.request as Record<string, unknown>;
  const faults = new Faults();
  const message = decoderOf(method.input).decode(fields, faults);
  if (faults.list.length > 0) throw invalid([...faults.list.map(violationOf), ...violationsOf(method.input, message)]);
  const { requestId, idempotencyKey, signal } = call;
  const admission = { principal, headers: [], leave: () => {} };
  const context = { requestId, signal, deadline: undefined, idempotencyKey };
  const body = encoderOf(method.output).encode(await gate.unary(method, admission, message, context)) as AnswerJson;
  const costMicro = Math.round((body.usage.cost_usd + (body.route.hedge_cost_usd ?? 0)) * MICRO_PER_USD);
  return { kind: "answer", statusCode: 200, body, costMicro };
}

/** What the answers of both contracts have. */
interface AnswerJson {
  readonly usage: { readonly cost_usd: number };
  readonly route: { readonly hedge_cost_usd?: number };
}
