/** Streaming predict: one `route`, then the frames of one model, then one `done`. */
import { create } from "@bufbuild/protobuf";
import {
  FinishReason,
  type PredictDone,
  PredictDoneSchema,
  type PredictRequest,
  PredictRequestSchema,
  PredictStartedSchema,
  type PredictStreamResponse,
  PredictUsageSchema,
} from "../../gen/limber/v1/inference_service_pb.ts";
import type { Route } from "../../gen/limber/v1/route_pb.ts";
import { toUsd } from "../billing/price.ts";
import type { Call } from "../call.ts";
import type { Items } from "../cancellation.ts";
import { now, nowSeconds, steadyNow } from "../clock.ts";
import type { PredictAnswerPart } from "../contracts/contract.ts";
import { AttemptFailure } from "../contracts/contract.ts";
import * as predict from "../contracts/predict.ts";
import { asRefusal, Reason, type Refusal, refuse } from "../errors.ts";
import { attemptStream, type Outcome, owed, type PlanStep, routeOf } from "../routing/index.ts";
import { assertSound, InferenceCall, type InferenceDeps, speaking } from "./call.ts";
import type { CallBilling, Charge } from "./call-billing.ts";
import { prepareInTime } from "./prepare.ts";

/** Fails over until the first frame arrives; all later frames come from the same model. */
export async function* streamPredict(
  deps: InferenceDeps,
  asked: PredictRequest,
  call: Call,
): AsyncGenerator<PredictStreamResponse, undefined, undefined> {
  const { bill, delivered, first, rest } = await begin(deps, asked, call);
  let failure: Refusal | undefined;
  try {
    yield delivered.started();
    delivered.take(first);
    if (first.kind === "frame") yield eventOf("frame", first.frame);
    for await (const part of rest) {
      delivered.take(part);
      if (part.kind === "frame") yield eventOf("frame", part.frame);
    }
  } catch (thrown) {
    // A disconnected caller receives nothing more and is charged for the frames that reached it.
    if (call.signal.aborted) throw thrown;
    failure = asRefusal(thrown);
  } finally {
    rest.return();
    delivered.settle(bill, failure);
  }
  const ranOut = failure?.reason === Reason.DEADLINE_EXCEEDED && delivered.frames > 0;
  if (failure !== undefined && !ranOut) throw delivered.told(failure);
  yield eventOf("done", delivered.done(ranOut));
  return undefined;
}

/** A prediction whose first part has arrived. */
interface Begun {
  readonly bill: CallBilling;
  readonly delivered: Delivered;
  readonly first: PredictAnswerPart;
  readonly rest: Items<PredictAnswerPart>;
}

async function begin(deps: InferenceDeps, asked: PredictRequest, call: Call): Promise<Begun> {
  const { request, ownKeys, session } = await prepareInTime(deps, PredictRequestSchema, asked, call);
  const intent = predict.intentOf(request);
  const inferenceCall = new InferenceCall(deps, request, { intent, ownKeys, session }, call);
  const input = { ...predict.inputOf(request), sessionId: inferenceCall.upstreamSession };
  const frames = inferenceCall.frames(request.observations, request.goalImage);
  const bill = await inferenceCall.openBill();
  const delivered = new Delivered(inferenceCall);
  try {
    await bill.durableInTime;
    const attempted = await attemptStream(inferenceCall.plan, inferenceCall.world, {
      open: (step, options) => {
        const { wire, target } = inferenceCall.reach(step);
        const asked = { ...input, horizon: Math.min(input.horizon, step.units) };
        const parts = speaking(wire, "predict").predict(target, asked, frames, inferenceCall.options(options, step));
        return soundParts(parts, step.units);
      },
      unitsOf: (part) => (part.kind === "frame" ? 1 : 0),
    });
    const { first, rest } = attempted;
    try {
      await inferenceCall.pinned(attempted.step);
    } catch (thrown) {
      rest.return();
      throw thrown;
    }
    const { step, ...tried } = await owed(attempted);
    delivered.begin(step, tried);
    return { bill, delivered, first, rest };
  } catch (thrown) {
    const refusal = asRefusal(thrown);
    inferenceCall.noteRefused(refusal);
    delivered.settle(bill, refusal);
    throw thrown;
  }
}

/** The parts that a stream has sent to its caller, and their charge. */
class Delivered {
  frames = 0;
  readonly #inferenceCall: InferenceCall;
  #step: PlanStep | undefined;
  #tried: Omit<Outcome, "step"> = { tries: [], hedgeMicro: undefined };
  #gpuSeconds = 0;

  constructor(inferenceCall: InferenceCall) {
    this.#inferenceCall = inferenceCall;
  }

  /** Records the serving offering. The attempt updates `tried` while the stream runs. */
  begin(step: PlanStep, tried: Omit<Outcome, "step">): void {
    this.#step = step;
    this.#tried = tried;
  }

  take(part: PredictAnswerPart): void {
    if (part.kind === "frame") this.frames += 1;
    else this.#gpuSeconds = part.gpuSeconds;
  }

  /** Charges the frames that reached the caller, however the stream ended, unless its provider broke it. */
  settle(bill: CallBilling, failure: Refusal | undefined): void {
    const owed = failure === undefined || OWED_ALL_THE_SAME.has(failure.reason);
    if (this.#step && this.frames > 0 && owed) bill.close(this.#charge(this.#step), this.#route());
    else bill.void(failure ?? refuse(Reason.CLIENT_CLOSED_REQUEST, "the client disconnected before the first frame"));
  }

  /** The failure of a started stream, with its charge. */
  told(failure: Refusal): Refusal {
    const { reason, message, details, param, retryAfter, headers, cause } = failure;
    const isOwed = this.#step && this.frames > 0 && OWED_ALL_THE_SAME.has(reason);
    const costUsd = isOwed && this.#step ? toUsd(this.#charge(this.#step).costMicro) : 0;
    const usage = create(PredictUsageSchema, { frames: this.frames, gpuSeconds: this.#gpuSeconds, costUsd });
    return refuse(reason, message, details, {
      ...(param !== undefined && { param }),
      ...(retryAfter !== undefined && { retryAfter }),
      route: this.#route(),
      usage,
      headers,
      cause,
    });
  }

  started(): PredictStreamResponse {
    const { model, region, precision, attempts, fallbackUsed, simulated, provider, offeringId } = this.#route();
    const started = create(PredictStartedSchema, {
      id: this.#inferenceCall.named("pred"),
      created: nowSeconds(),
      model,
      region,
      precision,
      attempts,
      fallbackUsed,
      simulated,
      provider,
      offeringId,
      estimatedCostUsd: toUsd(this.#step?.costMicro ?? 0),
      deadlineAt: Math.round(now() + this.#inferenceCall.plan.endsAt - steadyNow()) / 1000,
    });
    return eventOf("route", started);
  }

  done(ranOut: boolean): PredictDone {
    const { frames } = this;
    const whole = frames === this.#step?.units;
    return create(PredictDoneSchema, {
      id: this.#inferenceCall.named("pred"),
      object: "world.prediction",
      frames,
      finishReason: ranOut ? FinishReason.DEADLINE : whole ? FinishReason.COMPLETE : FinishReason.LENGTH,
      route: this.#route(),
      usage: {
        frames,
        gpuSeconds: this.#gpuSeconds,
        costUsd: this.#step ? toUsd(this.#charge(this.#step).costMicro) : 0,
      },
    });
  }

  #charge(step: PlanStep): Charge {
    return this.#inferenceCall.charge(step, this.frames, this.#tried, this.#gpuSeconds);
  }

  #route(): Route {
    return routeOf({ ...this.#tried, step: this.#step }, this.#inferenceCall.pin);
  }
}

const OWED_ALL_THE_SAME: ReadonlySet<Reason> = new Set([
  Reason.DEADLINE_EXCEEDED,
  Reason.CLIENT_CLOSED_REQUEST,
  // The key is no longer allowed to continue.
  Reason.INVALID_API_KEY,
  Reason.KEY_DISABLED,
  Reason.KEY_EXPIRED,
  Reason.KEY_NARROWED,
  Reason.PERMISSION_DENIED,
  Reason.SCOPE_DENIED,
]);

type StreamEvent = Exclude<PredictStreamResponse["event"], { case: undefined }>;

/** Written out, because `create` looks up the schema for every frame. */
const eventOf = <C extends StreamEvent["case"]>(
  name: C,
  value: Extract<StreamEvent, { case: C }>["value"],
): PredictStreamResponse => ({
  $typeName: "limber.v1.PredictStreamResponse",
  event: { case: name, value } as StreamEvent, // the pair was just checked
});

/** Yields the parts of a prediction up to `most` frames. Fails if a frame cannot be forwarded, or if there is none. */
async function* soundParts(
  parts: AsyncIterable<PredictAnswerPart>,
  most: number,
): AsyncGenerator<PredictAnswerPart, undefined, undefined> {
  let count = 0;
  for await (const part of parts) {
    if (part.kind === "frame" && count === most) return undefined;
    if (part.kind === "summary") assertSound(count === 0 ? AttemptFailure.EMPTY_ANSWER : predict.checkSummary(part));
    else assertSound(predict.checkFrame(part.frame, count++));
    yield part;
  }
  return undefined;
}
