/** Answers to earlier calls with the same idempotency key, given again: what a new call would be refused, they are refused too. */
import type { Message } from "@bufbuild/protobuf";
import type { SafetyBounds } from "../../gen/limber/v1/action_pb.ts";
import type {
  ActRequest,
  ActResponse,
  GroundResponse,
  PredictResponse,
} from "../../gen/limber/v1/inference_service_pb.ts";
import { AttemptStatus } from "../../gen/limber/v1/route_pb.ts";
import { type Call, type EarlierAnswer, keyOf } from "../call.ts";
import { steadyNow } from "../clock.ts";
import { exceeds, poseOf } from "../contracts/bounds.ts";
import { AttemptFailure } from "../contracts/failure.ts";
import { Reason, refuse } from "../errors.ts";
import { assertMayReplay } from "../routing/index.ts";
import { type InferenceDeps, planArgs, type WantedInference } from "./call.ts";

/** The response of an earlier call, if this one may have it; undefined for a call that is no repetition. */
export function earlierAnswer<T extends ActResponse | PredictResponse | GroundResponse>(
  deps: Pick<InferenceDeps, "supply" | "sessions">,
  wanted: WantedInference,
  call: Call,
): T | undefined {
  if (!call.earlier) return undefined;
  const answer = call.earlier.message as Message as T; // the idempotency key's hash names the RPC
  const { model, route } = answer;
  const { offeringId = "", simulated = false } = route ?? {};
  assertMayReplay(planArgs(deps, wanted, call, call.arrivedAt ?? steadyNow()), { model, offeringId, simulated });
  call.replayed?.();
  return answer;
}

/**
 * The same of an action: it keeps the bounds that hold now, its age has counted on, and past its validity it says that it must not be
 * executed.
 */
export function earlierAction(
  deps: Pick<InferenceDeps, "supply" | "sessions">,
  wanted: WantedInference,
  call: Call,
  request: ActRequest,
): ActResponse | undefined {
  const answer = earlierAnswer<ActResponse>(deps, wanted, call);
  if (!answer || !call.earlier) return answer;
  assertWithinBounds(answer, request, [deps.supply.find(answer.route?.offeringId ?? "")?.bounds, keyOf(call).bounds]);
  return aged(answer, call.earlier);
}

function assertWithinBounds(
  { action, route }: ActResponse,
  { observations }: ActRequest,
  bounds: readonly (SafetyBounds | undefined)[],
): void {
  if (!action) return;
  const pose = poseOf(action.space, observations, action.steps[0]?.values.length);
  if (!bounds.some((each) => exceeds(each, action, pose))) return;
  const attempts = route?.attempts.map((each) =>
    each.status === AttemptStatus.OK
      ? { ...each, status: AttemptStatus.ERROR, reason: AttemptFailure.UNSAFE_ACTION }
      : each,
  );
  const text = "the action that answered the first call is beyond the bounds that hold for this key now";
  throw refuse(Reason.ALL_ATTEMPTS_FAILED, text, {}, route && attempts ? { route: { ...route, attempts } } : {});
}

function aged(answer: ActResponse, { ageMs, readAt }: EarlierAnswer): ActResponse {
  const { observationAgeMs: firstMs = 0, validUntilMs } = answer;
  const now = Math.max(firstMs, ageMs + steadyNow() - readAt);
  const expired = now - firstMs > validUntilMs;
  return {
    ...answer,
    replayed: true,
    observationAgeMs: Math.round(now * 1000) / 1000,
    ...(expired && { expired }),
  };
}
