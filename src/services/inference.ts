/** Inference: the only place that knows the whole story of a call, from the request to the record. */
import { create } from "@bufbuild/protobuf";
import type { Dispatcher } from "undici";
import { ActionSchema } from "../../gen/limber/v1/action_pb.ts";
import {
  type ActRequest,
  type ActResponse,
  ActResponseSchema,
  FinishReason,
  type GroundRequest,
  type GroundResponse,
  GroundResponseSchema,
  type InferenceService,
  PredictDoneSchema,
  type PredictRequest,
  type PredictResponse,
  PredictResponseSchema,
  PredictStartedSchema,
  type PredictStreamResponse,
  PredictStreamResponseSchema,
  type PreviewRoutesRequest,
  type PreviewRoutesResponse,
} from "../../gen/limber/v1/inference_service_pb.ts";
import type { Frame, Observation } from "../../gen/limber/v1/observation_pb.ts";
import type { Route } from "../../gen/limber/v1/route_pb.ts";
import { ambientClock, now, nowSeconds, random, steadyNow } from "../ambient.ts";
import * as act from "../contracts/act.ts";
import { DEFAULT_ACTION_SPACE, dimensionOf } from "../contracts/action-spaces.ts";
import { violation } from "../contracts/conflicts.ts";
import {
  type ActAnswer,
  Contract,
  type Intent,
  type PredictAnswer,
  type PredictAnswerPart,
} from "../contracts/contract.ts";
import { type AttemptFailure, UpstreamFailure } from "../contracts/failure.ts";
import * as ground from "../contracts/ground.ts";
import * as predict from "../contracts/predict.ts";
import { microOf } from "../contracts/price.ts";
import { toUsd } from "../money/price.ts";
import { asRefusal, Reason, Refusal, refuse } from "../refusal.ts";
import {
  type AttemptOptions,
  type AttemptWorld,
  attemptPlan,
  attemptStream,
  contractOf,
  directRouteOf,
  explain,
  HedgeBudget,
  type Outcome,
  PinBoard,
  type Plan,
  type PlanArgs,
  type PlanStep,
  planFor,
  routeOf,
} from "../routing/index.ts";
import { FrameSet } from "../upstream/frames.ts";
import { frameSources } from "../upstream/pictures.ts";
import type { CallOptions, Wire } from "../upstream/wire.ts";
import { type Asked, Bill, type HouseTill } from "./bill.ts";
import { type Call, type Implementation, keyOf } from "./call.ts";
import type { LiveSupply } from "./live-supply.ts";

/** What inference needs of the house. */
export interface InferenceParts {
  supply: LiveSupply;
  till: HouseTill;
  /** Fetches frames; made with the same `allowPrivate`. */
  agent: Dispatcher;
  allowPrivate: boolean;
}

/** The inference RPCs. */
export function inferenceService(parts: InferenceParts): Implementation<typeof InferenceService> {
  const house: House = { ...parts, pins: new PinBoard(), hedges: new HedgeBudget() };
  return {
    act: (request, call) => answerAct(house, request, call),
    predict: (request, call) => answerPredict(house, request, call),
    predictStream: ({ predict: request }, call) => streamPredict(house, request!, call), // the schema requires it
    ground: (request, call) => answerGround(house, request, call),
    previewRoutes: (request, call) => preview(house, request, call),
  };
}

interface House extends InferenceParts {
  pins: PinBoard;
  hedges: HedgeBudget;
}

/** Act: plan, hold, attempt, settle. */
async function answerAct(house: House, request: ActRequest, call: Call): Promise<ActResponse> {
  const intent = act.intentOf(request);
  const trip = begin(house, request, intent, call);
  const input = act.inputOf(request);
  const frames = framesOf(house, trip, request.observations, request.goalImage);
  const space = intent.actionSpace ?? DEFAULT_ACTION_SPACE;

  return trip.billed(async (bill) => {
    const { answer, step, ...tried } = await attemptPlan(trip.plan, trip.world, {
      call: async (step, options) => {
        const dim = dimensionOf(space, step.offering.actionDim);
        const { wire, target } = house.supply.reach(step.offering, dim);
        const answer = await served(wire.act, wire)(target, input, frames, trip.options(options));
        assertSound(act.checkAnswer(answer, { intent, dim }));
        return answer;
      },
      unitsOf: act.unitsOf,
    });
    const charge = chargeOf(trip.plan, step, act.unitsOf(answer), tried);
    const route = routeOf({ ...tried, step }, trip.pinned(step));
    const response = actResponse(trip, request, answer, step, space, route, charge.costMicro);
    await bill.settle(charge, route, ActResponseSchema, response);
    return response;
  });
}

function actResponse(
  { call, arrivedAt }: Trip,
  request: ActRequest,
  answer: ActAnswer,
  { offering }: PlanStep,
  space: string,
  route: Route,
  costMicro: number,
): ActResponse {
  const dtMs = answer.dtMs || offering.dtMs;
  const tail = call.requestId.slice(call.requestId.indexOf("_"));
  return create(ActResponseSchema, {
    id: `act${tail}`,
    object: "world.action",
    created: nowSeconds(),
    model: offering.model,
    action: create(ActionSchema, { space, steps: answer.steps, dtMs, note: answer.note }),
    route,
    usage: { actionSteps: answer.steps.length, gpuSeconds: answer.gpuSeconds, costUsd: toUsd(costMicro) },
    chunkId: `chunk${tail}`,
    validUntilMs: dtMs * answer.steps.length,
    observationAgeMs: roundMs(steadyNow() - arrivedAt),
    prediction: request.returnPrediction ? answer.prediction : [],
  });
}

/** Predict, whole: the frames of one model, all of them or none. */
async function answerPredict(house: House, request: PredictRequest, call: Call): Promise<PredictResponse> {
  predict.refuseStream(request);
  const intent = predict.intentOf(request);
  const trip = begin(house, request, intent, call);
  const input = predict.inputOf(request);
  const frames = framesOf(house, trip, request.observations, request.goalImage);

  return trip.billed(async (bill) => {
    const { answer, step, ...tried } = await attemptPlan(trip.plan, trip.world, {
      call: async (step, options) => {
        const { wire, target } = house.supply.reach(step.offering, undefined);
        const parts = served(wire.predict, wire)(target, input, frames, trip.options(options));
        const answer = await collect(parts, intent.units);
        assertSound(predict.checkAnswer(answer, { intent }));
        return answer;
      },
      unitsOf: predict.unitsOf,
    });
    const charge = chargeOf(trip.plan, step, predict.unitsOf(answer), tried);
    const route = routeOf({ ...tried, step }, trip.pinned(step));
    const response = create(PredictResponseSchema, {
      id: predictionId(call),
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

async function collect(parts: AsyncIterable<PredictAnswerPart>, most: number): Promise<PredictAnswer> {
  const answer: PredictAnswer = { frames: [], gpuSeconds: 0, note: "" };
  for await (const part of parts) {
    if (part.kind === "summary") Object.assign(answer, { gpuSeconds: part.gpuSeconds, note: part.note });
    else answer.frames.push(part.frame);
    if (answer.frames.length > most) break; // more than was asked for is refused; there is no need to hear it all
  }
  return answer;
}

/** Predict, frame by frame. Falls back until the first frame is there; from then on the frames are one model's. */
async function* streamPredict(house: House, request: PredictRequest, call: Call): AsyncIterable<PredictStreamResponse> {
  const intent = predict.intentOf(request);
  const trip = begin(house, request, intent, call);
  const input = predict.inputOf(request);
  const frames = framesOf(house, trip, request.observations, request.goalImage);
  const bill = await Bill.open(house.till, trip.plan, call, trip.asked);

  const delivered: Delivered = { step: undefined, frames: 0, gpuSeconds: 0, tried: undefined };
  const route = (): Route =>
    routeOf({ tries: [], hedgeMicro: undefined, ...delivered.tried, step: delivered.step }, trip.pin);
  let failure: Refusal | undefined;
  try {
    await bill.durable;
    const { first, rest, step, ...tried } = await attemptStream(trip.plan, trip.world, {
      open: (step, options) => {
        const { wire, target } = house.supply.reach(step.offering, undefined);
        return soundParts(served(wire.predict, wire)(target, input, frames, trip.options(options)));
      },
      unitsOf: (part) => (part.kind === "frame" ? 1 : 0),
    });
    Object.assign(delivered, { step, tried });
    trip.pinned(step);
    yield started(trip, step, route());
    for await (const part of joined(first, rest)) {
      if (part.kind === "summary") delivered.gpuSeconds = part.gpuSeconds;
      else {
        delivered.frames += 1;
        yield eventOf("frame", part.frame);
      }
      if (delivered.frames === intent.units && part.kind === "summary") break;
    }
  } catch (thrown) {
    failure = asRefusal(thrown);
    const ranOut = failure.reason === Reason.DEADLINE_EXCEEDED && delivered.frames > 0;
    if (!ranOut) throw failure;
  } finally {
    settleStream(bill, trip.plan, delivered, failure, route);
  }
  yield eventOf("done", doneOf(trip, delivered, route(), failure));
}

/** What a stream has handed to its caller. */
interface Delivered {
  step: PlanStep | undefined;
  frames: number;
  gpuSeconds: number;
  tried: Pick<Outcome, "tries" | "hedgeMicro"> | undefined;
}

/** Frames that reached the caller are charged, whoever ended the stream, unless its provider broke it. */
function settleStream(
  bill: Bill,
  plan: Plan,
  { step, frames, tried }: Delivered,
  failure: Refusal | undefined,
  route: () => Route,
): void {
  const owed =
    failure === undefined ||
    failure.reason === Reason.DEADLINE_EXCEEDED ||
    failure.reason === Reason.CLIENT_CLOSED_REQUEST;
  if (step && frames > 0 && owed) {
    bill.close(chargeOf(plan, step, frames, tried ?? { hedgeMicro: undefined }), route());
  } else {
    bill.void(failure ?? refuse(Reason.CLIENT_CLOSED_REQUEST, "the caller left before the first frame"));
  }
}

function started({ call, plan }: Trip, step: PlanStep, route: Route): PredictStreamResponse {
  return eventOf(
    "route",
    create(PredictStartedSchema, {
      id: predictionId(call),
      created: nowSeconds(),
      model: route.model,
      region: route.region,
      precision: route.precision,
      attempts: route.attempts,
      fallbackUsed: route.fallbackUsed,
      simulated: route.simulated,
      provider: route.provider,
      offeringId: route.offeringId,
      estimatedCostUsd: toUsd(step.costMicro),
      deadlineAt: Math.round(now() + plan.endsAt - steadyNow()),
    }),
  );
}

function doneOf(
  { call, plan }: Trip,
  { step, frames, gpuSeconds }: Delivered,
  route: Route,
  failure: Refusal | undefined,
) {
  const whole = frames === plan.intent.units ? FinishReason.COMPLETE : FinishReason.LENGTH;
  return create(PredictDoneSchema, {
    id: predictionId(call),
    object: "world.prediction",
    frames,
    finishReason: failure ? FinishReason.DEADLINE : whole,
    route,
    usage: {
      frames,
      gpuSeconds,
      costUsd: step ? toUsd(chargeOf(plan, step, frames, { hedgeMicro: undefined }).costMicro) : 0,
    },
  });
}

type StreamEvent = Exclude<PredictStreamResponse["event"], { case: undefined }>;

const eventOf = <C extends StreamEvent["case"]>(
  name: C,
  value: Extract<StreamEvent, { case: C }>["value"],
): PredictStreamResponse => create(PredictStreamResponseSchema, { event: { case: name, value } as StreamEvent });

async function* joined<T>(first: T, rest: AsyncIterable<T>): AsyncIterable<T> {
  yield first;
  yield* rest;
}

/** The parts of a prediction, of which a frame that cannot be handed on is a failure. */
async function* soundParts(parts: AsyncIterable<PredictAnswerPart>): AsyncIterable<PredictAnswerPart> {
  let position = 0;
  for await (const part of parts) {
    if (part.kind === "frame") assertSound(predict.checkFrame(part.frame, position++));
    yield part;
  }
}

/** Ground: called directly, so that there is one provider and no attempts to list. */
async function answerGround(house: House, request: GroundRequest, call: Call): Promise<GroundResponse> {
  const intent = ground.intentOf(request);
  const trip = begin(house, { ...request, model: intent.model }, intent, call);
  const input = ground.inputOf(request);
  const frames = framesOf(house, trip, input.observations, undefined);

  return trip.billed(async (bill) => {
    const { answer, step } = await attemptPlan(trip.plan, trip.world, {
      call: async (step, options) => {
        const { wire, target } = house.supply.reach(step.offering, undefined);
        const answer = await served(wire.ground, wire)(target, input, frames, trip.options(options));
        assertSound(ground.checkAnswer(answer));
        return answer;
      },
      unitsOf: ground.unitsOf,
    });
    const { costMicro, ...rest } = chargeOf(trip.plan, step, ground.unitsOf(answer), { hedgeMicro: undefined });
    // Tokens are counted by the provider: what it counts beyond what was held is its own affair.
    const charge = { ...rest, costMicro: Math.min(costMicro, bill.ceilingMicro) };
    const response = create(GroundResponseSchema, {
      id: `grnd${call.requestId.slice(call.requestId.indexOf("_"))}`,
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

/** Shows the plan; nothing runs, nothing is held. */
async function preview(
  house: House,
  { contract, request }: PreviewRoutesRequest,
  call: Call,
): Promise<PreviewRoutesResponse> {
  if (!request) throw new Error("the schema requires the request of a preview");
  refusePreset(request.preset);
  if (contract === Contract.GROUND) throw violation("contract", "ground is called directly and has no plan", "enum");
  const planned = contract ?? contractOf(request.model, house.supply.snapshot);
  const intent = planned === Contract.ACT ? act.intentOf(request) : { ...predict.intentOf(request), contract: planned };
  return explain(planArgs(house, intent, call, steadyNow()));
}

/** One call on its way: its plan, its frame and its end. */
interface Trip {
  call: Call;
  plan: Plan;
  arrivedAt: number;
  asked: Asked;
  world: AttemptWorld;
  /** What became of the session's pin, once somebody served. */
  pin: ReturnType<PinBoard["served"]> | undefined;
  /** Notes who served the session, and says what that did to its pin. */
  pinned(step: PlanStep): Trip["pin"];
  options(options: AttemptOptions): CallOptions;
  /** Runs the paid part: whatever it throws leaves the bill void. */
  billed<T>(paid: (bill: Bill) => Promise<T>): Promise<T>;
}

type Routed = Pick<ActRequest, "model" | "metadata"> & Partial<Pick<ActRequest, "preset" | "provider">>;

function begin(house: House, request: Routed, intent: Intent, call: Call): Trip {
  refusePreset(request.preset);
  refuseLargeMetadata(request.metadata);
  const arrivedAt = steadyNow();
  const plan = planFor(planArgs(house, intent, call, arrivedAt));
  const session = sessionOf(intent, call);
  const asked: Asked = {
    modelRequested: request.model,
    sessionId: request.provider?.sessionId,
    deadlineMs: request.provider?.deadlineMs,
    metadata: request.metadata,
  };
  const trip: Trip = {
    call,
    plan,
    arrivedAt,
    asked,
    world: { clock: ambientClock, health: house.supply.health, hedges: house.hedges, signal: call.signal },
    pin: undefined,
    pinned(step) {
      if (session === undefined) return undefined;
      trip.pin = house.pins.served(
        session,
        { model: step.offering.model, provider: step.offering.provider },
        steadyNow(),
      );
      return trip.pin;
    },
    options: ({ signal, budgetMs }) => ({ signal, budgetMs, requestId: call.requestId }),
    async billed(paid) {
      const bill = await Bill.open(house.till, plan, call, asked);
      try {
        return await paid(bill);
      } catch (thrown) {
        const refusal = asRefusal(thrown);
        bill.void(refusal);
        throw thrown instanceof Refusal ? thrown : refusal;
      }
    },
  };
  return trip;
}

function planArgs(house: House, intent: Intent, call: Call, arrivedAt: number): PlanArgs {
  const session = sessionOf(intent, call);
  return {
    intent,
    snapshot: house.supply.snapshot,
    health: house.supply.health.view,
    scope: keyOf(call),
    pin: session === undefined ? undefined : house.pins.get(session, arrivedAt),
    seed: Math.floor(random() * 2 ** 32),
    now: arrivedAt,
    arrivedAt,
    deadline: call.deadline,
  };
}

/** Sessions of two organisations never share a pin, whatever they call themselves. */
function sessionOf({ provider }: Intent, call: Call): string | undefined {
  return provider?.sessionId === undefined ? undefined : `${keyOf(call).orgId} ${provider.sessionId}`;
}

function framesOf(
  house: House,
  { call, plan }: Trip,
  observations: readonly Observation[],
  goal: Frame | undefined,
): FrameSet {
  const options = { agent: house.agent, allowPrivate: house.allowPrivate, signal: call.signal, deadline: plan.endsAt };
  return new FrameSet(frameSources(observations, goal), options);
}

function chargeOf(plan: Plan, step: PlanStep, units: number, { hedgeMicro }: Pick<Outcome, "hedgeMicro">) {
  const costMicro = microOf(units, step.offering.priceNano[plan.contract] ?? 0) + step.wakeUpMicro;
  return { step, units, costMicro, hedgeMicro };
}

/** A wire's function for a contract. The probe let no offering live that its wire cannot serve. */
function served<A extends unknown[], R>(
  serve: ((this: Wire, ...args: A) => R) | undefined,
  wire: Wire,
): (...args: A) => R {
  if (!serve) throw new Error(`the wire ${wire.id} does not speak this contract`);
  return serve.bind(wire);
}

function assertSound(failure: AttemptFailure | undefined): void {
  if (failure !== undefined) throw new UpstreamFailure(failure, "the answer is not what the contract promises");
}

function refusePreset(name: string | undefined): void {
  if (name === undefined) return;
  throw refuse(
    Reason.PRESET_NOT_FOUND,
    `there is no preset ${JSON.stringify(name)} in this organisation`,
    {},
    { param: "preset" },
  );
}

const METADATA_KEYS = 16;
const METADATA_LETTERS = 512;

function refuseLargeMetadata(metadata: ActRequest["metadata"]): void {
  if (metadata === undefined) return;
  const entries = Object.entries(metadata);
  if (entries.length > METADATA_KEYS) throw violation("metadata", `may have at most ${METADATA_KEYS} keys`, "too_long");
  for (const [key, value] of entries) {
    const long = key.length > METADATA_LETTERS || (JSON.stringify(value)?.length ?? 0) > METADATA_LETTERS;
    if (long)
      throw violation(
        `metadata.${key.slice(0, 64)}`,
        `may have at most ${METADATA_LETTERS} characters`,
        "string_too_long",
      );
  }
}

const predictionId = (call: Call): string => `pred${call.requestId.slice(call.requestId.indexOf("_"))}`;
const roundMs = (ms: number): number => Math.round(ms * 1000) / 1000;
