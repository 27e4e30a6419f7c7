/** Inference: the only module that handles a complete call, from the request to its record. */
import { create, type DescMethod } from "@bufbuild/protobuf";
import type { SafetyBounds } from "../../gen/limber/v1/action_pb.ts";
import { EvaluationService } from "../../gen/limber/v1/evaluation_service_pb.ts";
import {
  type ActRequest,
  ActRequestSchema,
  type ActResponse,
  ActResponseSchema,
  type GroundRequest,
  GroundRequestSchema,
  type GroundResponse,
  GroundResponseSchema,
  InferenceService,
  type PredictRequest,
  PredictRequestSchema,
  type PredictResponse,
  PredictResponseSchema,
  type PreviewedRequest,
  PreviewedRequestSchema,
  type PreviewRoutesRequest,
  type PreviewRoutesResponse,
} from "../../gen/limber/v1/inference_service_pb.ts";
import type { Route } from "../../gen/limber/v1/route_pb.ts";
import { toUsd } from "../billing/price.ts";
import { type Call, type Implementation, keyOf } from "../call.ts";
import { nowSeconds, steadyNow } from "../clock.ts";
import * as act from "../contracts/act.ts";
import { poseOf, SentAction } from "../contracts/act.ts";
import {
  type ActAnswer,
  Contract,
  DEFAULT_ACTION_SPACE,
  dimensionOf,
  episodeName,
  type Intent,
  type PredictAnswer,
  type PredictAnswerPart,
  violation,
} from "../contracts/contract.ts";
import * as ground from "../contracts/ground.ts";
import * as predict from "../contracts/predict.ts";
import { asRefusal, factsOf } from "../errors.ts";
import {
  assertSound,
  earlierAction,
  earlierAnswer,
  FailingCallers,
  InferenceCall,
  type InferenceDeps,
  type InferenceServiceDeps,
  moverOf,
  planArgs,
  speaking,
} from "../inference/call.ts";
import { availableOf, type Charge } from "../inference/call-billing.ts";
import { actStream } from "../inference/control-loop/control-loop.ts";
import { streamPredict } from "../inference/predict-stream.ts";
import { inItsActionSpace, prepareInTime } from "../inference/prepare.ts";
import {
  type AvailableCredit,
  attemptPlan,
  contractOf,
  directRouteOf,
  explain,
  HedgeBudgets,
  nearNames,
  owed,
  routeOf,
} from "../routing/index.ts";
import { assertMayCall } from "./permissions.ts";

/** The inference RPCs. */
export function inferenceService(given: InferenceServiceDeps): Implementation<typeof InferenceService> {
  const deps: InferenceDeps = { ...given, hedges: new HedgeBudgets(), failing: new FailingCallers() };
  return {
    act: (request, call) => answerAct(deps, request, call),
    actStream: (speaker, call) => actStream(deps, speaker, call),
    predict: (request, call) => answerPredict(deps, request, call),
    predictStream: ({ predict: request }, call) => streamPredict(deps, request!, call), // the schema requires it
    ground: (request, call) => answerGround(deps, request, call),
    previewRoutes: (request, call) => preview(deps, request, call),
  };
}

/** Act: plan, reserve, attempt, settle. */
async function answerAct(deps: InferenceDeps, asked: ActRequest, call: Call): Promise<ActResponse> {
  const { request: whole, ownKeys, session } = await prepareInTime(deps, ActRequestSchema, asked, call);
  const request = inItsActionSpace(whole, deps.supply);
  const intent = act.intentOf(request);
  const mover = moverOf(intent, call, request);
  deps.stops.assertMayMove(mover);
  const wanted = { intent, ownKeys, session };
  const earlier = earlierAction(deps, wanted, call, request);
  if (earlier) return earlier;
  const inferenceCall = new InferenceCall(deps, request, wanted, call);
  const sessionId = inferenceCall.upstreamSession;
  const episode = sessionId && episodeName(sessionId, request.episode);
  const input = { ...act.inputOf(request), sessionId, episode };
  const frames = inferenceCall.frames(request.observations, request.goalImage);
  const space = intent.actionSpace ?? DEFAULT_ACTION_SPACE;

  return await inferenceCall.billed(async (bill) => {
    call.work?.away();
    const outcome = await attemptPlan(inferenceCall.plan, inferenceCall.world, {
      call: async (step, options) => {
        const dim = dimensionOf(space, step.offering.actionDim);
        const { wire, target, bounds } = inferenceCall.reach(step, dim);
        const asked = { ...input, horizon: step.units };
        const answer = await speaking(wire, "act").act(target, asked, frames, inferenceCall.options(options, step));
        const limits = limitsOf(bounds, keyOf(call).bounds, poseOf(space, request.observations, dim));
        assertSound(act.checkAnswer(answer, { units: step.units, dim }, limits));
        return answer;
      },
      unitsOf: act.unitsOf,
    });
    call.work?.back();
    const attempted = await owed(outcome);
    // A stop during the call also blocks this action.
    deps.stops.assertMayMove(mover);
    const { answer, step } = attempted;
    const charge = inferenceCall.charge(step, act.unitsOf(answer), attempted, answer.gpuSeconds);
    const pin = sessionId === undefined ? undefined : await inferenceCall.pinned(step);
    const route = routeOf(outcome, pin);
    const response = actResponse(inferenceCall, request, answer, charge, route);
    await bill.settle(charge, route, ActResponseSchema, response);
    return response;
  });
}

/** Applies the bounds of the offering and of the key to a chunk. Returns the input if neither has any. */
const limitsOf = (
  offering: SafetyBounds | undefined,
  key: SafetyBounds | undefined,
  pose: readonly number[] | undefined,
) =>
  offering || key
    ? [
        { bounds: offering, pose },
        { bounds: key, pose },
      ]
    : undefined;

function actResponse(
  inferenceCall: InferenceCall,
  request: ActRequest,
  answer: ActAnswer,
  charge: Charge,
  route: Route,
): ActResponse {
  const { model, dtMs: usualMs } = charge.step.offering;
  const dtMs = answer.dtMs || usualMs;
  const { gpuSeconds } = answer;
  const units = act.unitsOf(answer);
  // Plain objects: `create` reads the schema for every field, too slow for calls in a control loop.
  return {
    $typeName: "limber.v1.ActResponse",
    id: inferenceCall.named("act"),
    object: "world.action",
    created: nowSeconds(),
    model,
    action: new SentAction(inferenceCall.plan.intent.actionSpace ?? "", answer, dtMs),
    route,
    usage: {
      $typeName: "limber.v1.ActUsage",
      actionSteps: units,
      gpuSeconds,
      costUsd: toUsd(charge.costMicro),
    },
    chunkId: inferenceCall.named("chunk"),
    validUntilMs: dtMs * units,
    observationAgeMs: Math.round((steadyNow() - inferenceCall.observedAt) * 1000) / 1000,
    prediction: request.returnPrediction ? answer.prediction : [],
  };
}

/** Predict: all frames of one model, or none. */
async function answerPredict(deps: InferenceDeps, asked: PredictRequest, call: Call): Promise<PredictResponse> {
  const { request, ownKeys, session } = await prepareInTime(deps, PredictRequestSchema, asked, call);
  predict.refuseStream(request);
  const wanted = { intent: predict.intentOf(request), ownKeys, session };
  const earlier = earlierAnswer<PredictResponse>(deps, wanted, call);
  if (earlier) return earlier;
  const inferenceCall = new InferenceCall(deps, request, wanted, call);
  const input = { ...predict.inputOf(request), sessionId: inferenceCall.upstreamSession };
  const frames = inferenceCall.frames(request.observations, request.goalImage);

  return await inferenceCall.billed(async (bill) => {
    call.work?.away();
    const attempted = await attemptPlan(inferenceCall.plan, inferenceCall.world, {
      call: async (step, options) => {
        const { wire, target } = inferenceCall.reach(step);
        const asked = { ...input, horizon: Math.min(input.horizon, step.units) };
        const deps = speaking(wire, "predict").predict(target, asked, frames, inferenceCall.options(options, step));
        const answer = await collect(deps, step.units);
        assertSound(predict.checkAnswer(answer, step));
        return answer;
      },
      unitsOf: predict.unitsOf,
    });
    call.work?.back();
    const { answer, ...outcome } = await owed(attempted);
    const { step } = outcome;
    const charge = inferenceCall.charge(step, predict.unitsOf(answer), outcome, answer.gpuSeconds);
    const route = routeOf(outcome, await inferenceCall.pinned(step));
    const response = create(PredictResponseSchema, {
      id: inferenceCall.named("pred"),
      object: "world.prediction",
      created: nowSeconds(),
      model: step.offering.model,
      frames: answer.frames,
      dtMs: step.offering.dtMs,
      route,
      usage: { frames: answer.frames.length, gpuSeconds: answer.gpuSeconds, costUsd: toUsd(charge.costMicro) },
    });
    await bill.settle(charge, route, PredictResponseSchema, response);
    return response;
  });
}

async function collect(deps: AsyncIterable<PredictAnswerPart>, most: number): Promise<PredictAnswer> {
  const answer: PredictAnswer = { frames: [], gpuSeconds: 0, note: "" };
  for await (const part of deps) {
    if (part.kind === "summary") Object.assign(answer, { gpuSeconds: part.gpuSeconds, note: part.note });
    else answer.frames.push(part.frame);
    if (answer.frames.length > most) break; // too many frames are refused; stop reading early
  }
  return answer;
}

/** Ground: called directly, with one provider and no list of attempts. */
async function answerGround(deps: InferenceDeps, asked: GroundRequest, call: Call): Promise<GroundResponse> {
  const { request, ownKeys, session } = await prepareInTime(deps, GroundRequestSchema, asked, call);
  const wanted = { intent: ground.intentOf(request), ownKeys, session };
  const earlier = earlierAnswer<GroundResponse>(deps, wanted, call);
  if (earlier) return earlier;
  const inferenceCall = new InferenceCall(deps, request, wanted, call);
  const input = { ...ground.inputOf(request), sessionId: inferenceCall.upstreamSession };
  const frames = inferenceCall.frames(input.observations);

  return await inferenceCall.billed(async (bill) => {
    call.work?.away();
    const attempted = await attemptPlan(inferenceCall.plan, inferenceCall.world, {
      call: async (step, options) => {
        const { wire, target } = inferenceCall.reach(step);
        const answer = await speaking(wire, "ground").ground(
          target,
          input,
          frames,
          inferenceCall.options(options, step),
        );
        assertSound(ground.checkAnswer(answer, input.observations[0].frames.length));
        return answer;
      },
      unitsOf: ground.unitsOf,
    });
    call.work?.back();
    const { answer, step } = await owed(attempted);
    const asked = inferenceCall.charge(step, ground.unitsOf(answer));
    // The provider counts tokens; tokens beyond the reservation are not charged.
    const isBeyond = asked.costMicro > bill.ceilingMicro;
    const charge = isBeyond ? { ...asked, costMicro: bill.ceilingMicro, restNano: 0 } : asked;
    const response = create(GroundResponseSchema, {
      id: inferenceCall.named("grnd"),
      object: "world.grounding",
      created: nowSeconds(),
      model: step.offering.model,
      points: answer.points,
      boxes: answer.boxes,
      route: directRouteOf(step),
      usage: { inputTokens: answer.inputTokens, outputTokens: answer.outputTokens, costUsd: toUsd(charge.costMicro) },
      note: answer.note,
    });
    await bill.settle(charge, undefined, GroundResponseSchema, response);
    return response;
  });
}

/** Returns the plan without a call or a reservation. */
async function preview(
  deps: InferenceDeps,
  { contract, request: asked }: PreviewRoutesRequest,
  call: Call,
): Promise<PreviewRoutesResponse> {
  if (!asked) throw new Error("the schema requires the request of a preview");
  const { request: whole, ownKeys, session } = await prepareInTime(deps, PreviewedRequestSchema, asked, call);
  if (contract === Contract.GROUND)
    throw violation("contract", "must not be ground, which is called directly and has no plan", "enum");
  const planned = contract ?? contractOf(whole.model, deps.supply.snapshot);
  const request = planned === Contract.ACT ? inItsActionSpace(whole, deps.supply) : whole;
  assertMayCall(keyOf(call), PREVIEWED[planned] ?? InferenceService.method.act);
  const intent = intentOf(planned, request, deps.evaluated);
  const args = planArgs(deps, { intent, ownKeys, session }, call, steadyNow());
  const answer = explain(args);
  const purse = await purseOf(deps, call, answer);
  return withSizes(deps, purse ? explain(args, purse) : answer);
}

/** Only the wire knows the frame size that a server announced. */
function withSizes({ supply }: InferenceDeps, answer: PreviewRoutesResponse): PreviewRoutesResponse {
  for (const step of answer.plan) {
    const live = step.input && supply.find(step.offeringId);
    const input = live && supply.inputOf(live.offering);
    if (input) step.input = input;
  }
  return answer;
}

/** The available credit for a previewed plan; undefined if it suffices or is unknown. Reserves nothing. */
async function purseOf(
  { leaser }: InferenceDeps,
  call: Call,
  { plan, estimatedCostUsd }: PreviewRoutesResponse,
): Promise<AvailableCredit | undefined> {
  if (plan.length === 0) return undefined;
  const { orgId, keyId, workspaceId, ancestors } = keyOf(call);
  const ceilingMicro = Math.round((estimatedCostUsd?.max ?? 0) * 1e6);
  const estimate = { unit: "", units: 1, priceNano: ceilingMicro * 1000, wakeUpMicro: 0 };
  try {
    const hold = await leaser.hold({ orgId, keyId, workspaceId, ancestors }, ceilingMicro, estimate);
    await hold.release();
    return undefined;
  } catch (thrown) {
    const refusal = asRefusal(thrown);
    const availableMicro = availableOf(refusal);
    // The plan is returned even if the ledger is unavailable.
    return availableMicro === undefined ? undefined : { availableMicro, code: factsOf(refusal.reason).code };
  }
}

/** The call that a preview of a contract describes. */
const PREVIEWED: Readonly<Partial<Record<Contract, DescMethod>>> = {
  [Contract.ACT]: InferenceService.method.act,
  [Contract.PREDICT]: InferenceService.method.predict,
  [Contract.EVALUATE]: EvaluationService.method.evaluate,
};

/** The input of a preview's plan. An evaluation is one episode, in the requested action space or any supported one. */
function intentOf(contract: Contract, request: PreviewedRequest, evaluated: ReadonlySet<string>): Intent {
  if (contract === Contract.PREDICT) return predict.intentOf(request);
  const intent = act.intentOf(request);
  if (contract === Contract.ACT) return intent;
  const { actionSpace } = request;
  if (actionSpace !== undefined && !evaluated.has(actionSpace)) {
    const list = `has no scenario for ${actionSpace}; available: ${[...evaluated].sort().join(", ")}`;
    throw violation("action_space", list, "enum", nearNames(actionSpace, evaluated));
  }
  // The scenario determines the policy's observation.
  return { ...intent, contract, actionSpace, units: 1, extent: undefined, given: undefined };
}
