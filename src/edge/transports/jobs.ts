/** Calls that a job makes for its caller: the same JSON, the same gate, the same answers as if the caller had made them by REST. */
import type { DescMethod } from "@bufbuild/protobuf";
import { InferenceService } from "../../../gen/limber/v1/inference_service_pb.ts";
import type { CallTrail, KeyPrincipal } from "../../call.ts";
import type { Signal } from "../../cancellation.ts";
import { steadyNow } from "../../clock.ts";
import { factsOf, Reason, Refusal } from "../../errors.ts";
import type { KeyRecord } from "../../store/account/keys.ts";
import type { CallLog } from "../call-log.ts";
import { aboveOf, principalOf } from "../gate/authenticate.ts";
import type { Gate } from "../gate/gate.ts";
import type { ConcurrencySlot, KeyLimit, RateLimits } from "../gate/rate-limits.ts";
import { refusalOf, restAnswer } from "../messages/errors.ts";
import { decoderOf, encodedOnce, encoderOf } from "../messages/json.ts";
import { Faults } from "../messages/json-text.ts";
import { invalid, violationOf, violationsOf } from "../messages/validate.ts";

/** One call to be made. */
interface JobCall {
  readonly contract: "act" | "predict";
  /** The request as JSON. */
  readonly request: object;
  readonly requestId: string;
  /** The call runs once under this key, however often it's made; undefined: each time. */
  readonly idempotencyKey: string | undefined;
  /** The batch that it is an item of; undefined for the calls of evaluations. */
  readonly batchId?: string | undefined;
  readonly signal: Signal;
}

/** How it was answered. A refusal that is `retryable` says nothing of the call itself; `againMs` is when the caller may come again. */
type JobAnswer =
  | { readonly kind: "answer"; readonly statusCode: number; readonly body: object; readonly costMicro: number }
  | { readonly kind: "refusal"; readonly body: object; readonly retryable: boolean; readonly againMs?: number };

const MICRO_PER_USD = 1_000_000;

const METHODS = { act: InferenceService.method.act, predict: InferenceService.method.predict } as const;

/** Reasons that pass by themselves: another worker's call, a gateway that is closing, a ledger that is away. */
const PASSING: ReadonlySet<Reason> = new Set([
  Reason.IDEMPOTENCY_IN_PROGRESS,
  Reason.NOT_READY,
  Reason.STORE_UNAVAILABLE,
  Reason.CLIENT_CLOSED_REQUEST,
  Reason.TOO_MANY_FAILED_CALLS,
]);

/** A place in the limits of a key, taken before its call is made. */
type JobCallSlot = Pick<ConcurrencySlot, "leave" | "unused">;

/** What calls that are made later depends on. */
interface JobCallsDeps {
  readonly gate: Gate;
  readonly limits: Pick<RateLimits, "spare" | "turn">;
  /** A key as the database has it now. */
  find(keyId: string): Promise<KeyRecord | undefined>;
  /** Puts calls on record that were refused before they had a bill. */
  log: CallLog;
}

/** Calls in the name of keys, within their limits; the key is looked at just before, and asked for what its own call would need. */
interface JobCalls {
  /**
   * Places for up to `most` calls of a key, and after how many milliseconds there may be more. A key that may not call at all gets places that
   * take nothing: its calls are refused each by its own answer.
   */
  places(keyId: string, most: number): Promise<{ places: JobCallSlot[]; againMs: number }>;
  /** Makes a call when it is its turn. */
  inTurn(keyId: string, call: JobCall): Promise<JobAnswer & { readonly waitedMs: number }>;
  /** Makes a call; its place is given back at the end. */
  answer(keyId: string, call: JobCall, place: JobCallSlot): Promise<JobAnswer>;
}

const NO_PLACE: JobCallSlot = { leave: () => {}, unused: () => {} };

/** Makes calls through the gate. */
export function openJobCalls({ gate, limits, find, log }: JobCallsDeps): JobCalls {
  const looking = new Map<string, Promise<KeyRecord | undefined>>();
  /** Calls that begin in one go look once. */
  const lookOnce = (keyId: string): Promise<KeyRecord | undefined> => {
    const known = looking.get(keyId);
    if (known) return known;
    const look = find(keyId);
    looking.set(keyId, look);
    queueMicrotask(() => looking.delete(keyId));
    return look;
  };
  /** A key with the limits that its calls count against; undefined for one that may not call at all. */
  const lineOf = (key: KeyRecord | undefined): readonly KeyLimit[] | undefined => {
    try {
      const { keyId: id } = principalOf(key);
      return key && [{ id, limit: key.rateLimit }, ...(aboveOf(key) ?? [])];
    } catch (thrown) {
      if (thrown instanceof Refusal) return undefined;
      throw thrown;
    }
  };
  const answered = async (key: KeyRecord | undefined, call: JobCall): Promise<JobAnswer> => {
    const method = METHODS[call.contract];
    const trail: CallTrail = call.batchId === undefined ? {} : { batchId: call.batchId };
    const startedAt = steadyNow();
    try {
      const principal = gate.inNameOf(method, key);
      trail.principal = principal;
      return await answer(gate, { method, principal, trail }, call);
    } catch (thrown) {
      const { code, status } = factsOf(refusalOf(thrown, call.signal).reason);
      const rpc = `${method.parent.typeName}/${method.name}`;
      const { requestId } = call;
      log({ requestId, transport: "rest", rpc, status, code, latencyMs: steadyNow() - startedAt, trail });
      return refused(thrown, call);
    }
  };
  return {
    async places(keyId, most) {
      const line = lineOf(await lookOnce(keyId));
      return line ? limits.spare(line, most) : { places: Array.from({ length: most }, () => NO_PLACE), againMs: 0 };
    },
    async inTurn(keyId, call) {
      const came = steadyNow();
      let place = NO_PLACE;
      try {
        let key = await lookOnce(keyId);
        const line = lineOf(key);
        if (line) place = await limits.turn(line, call.signal);
        const waitedMs = steadyNow() - came;
        // It may do less by now.
        if (waitedMs > FRESH_MS) key = await lookOnce(keyId);
        return { ...(await answered(key, call)), waitedMs };
      } catch (thrown) {
        return { ...refused(thrown, call), waitedMs: steadyNow() - came };
      } finally {
        place.leave();
      }
    },
    async answer(keyId, call, place) {
      try {
        return await answered(await lookOnce(keyId), call);
      } catch (thrown) {
        return refused(thrown, call);
      } finally {
        place.leave();
      }
    },
  };
}

/** A key that was read longer ago is read again before its call is made. */
const FRESH_MS = 500;

function refused(thrown: unknown, { requestId, signal }: JobCall): JobAnswer {
  const refusal = refusalOf(thrown, signal);
  const { body } = restAnswer(refusal, requestId);
  const retryable = PASSING.has(refusal.reason) || factsOf(refusal.reason).status === 500;
  const isSlowed = refusal.reason === Reason.TOO_MANY_FAILED_CALLS;
  const againMs = isSlowed ? (refusal.retryAfter ?? 1) * 1000 : undefined;
  return { kind: "refusal", body: JSON.parse(body) as object, retryable, ...(againMs !== undefined && { againMs }) };
}

/** Whose call a job makes, and what becomes known of it. */
interface JobCaller {
  readonly method: DescMethod;
  readonly principal: KeyPrincipal;
  readonly trail: CallTrail;
}

async function answer(gate: Gate, { method, principal, trail }: JobCaller, call: JobCall): Promise<JobAnswer> {
  const { idempotency_key: _, ...fields } = call.request as Record<string, unknown>;
  const faults = new Faults();
  const message = decoderOf(method.input).decode(fields, faults);
  if (faults.list.length > 0) throw invalid([...faults.list.map(violationOf), ...violationsOf(method.input, message)]);
  const { requestId, idempotencyKey, signal } = call;
  const admission = { principal, headers: [], leave: () => {} };
  const encode = encodedOnce((answer) => encoderOf(method.output).encode(answer) as AnswerJson);
  const context = { requestId, signal, arrivedAt: steadyNow(), deadline: undefined, idempotencyKey, trail, encode };
  const body = encode(await gate.unary(method, admission, message, context));
  const costMicro = Math.round((body.usage.cost_usd + (body.route.hedge_cost_usd ?? 0)) * MICRO_PER_USD);
  return { kind: "answer", statusCode: 200, body, costMicro };
}

/** What the answers of both contracts have. */
interface AnswerJson {
  readonly usage: { readonly cost_usd: number };
  readonly route: { readonly hedge_cost_usd?: number };
}
