/** Predict, frame by frame: one `route`, then the frames of one model, then one `done`. */
import { create } from "@bufbuild/protobuf";
import {
  FinishReason,
  type PredictDone,
  PredictDoneSchema,
  type PredictRequest,
  PredictRequestSchema,
  PredictStartedSchema,
  type PredictStreamResponse,
} from "../../../gen/limber/v1/inference_service_pb.ts";
import type { Route } from "../../../gen/limber/v1/route_pb.ts";
import { now, nowSeconds, steadyNow } from "../../ambient.ts";
import type { PredictAnswerPart } from "../../contracts/contract.ts";
import { AttemptFailure } from "../../contracts/failure.ts";
import * as predict from "../../contracts/predict.ts";
import { toUsd } from "../../money/price.ts";
import { asRefusal, Reason, type Refusal, refuse } from "../../refusal.ts";
import { attemptStream, type Outcome, type PlanStep, routeOf } from "../../routing/index.ts";
import type { Call } from "../call.ts";
import type { Bill, Charge } from "./bill.ts";
import { prepare } from "./prepare.ts";
import { assertSound, type InferenceHouse, speaking, Trip } from "./trip.ts";

/** Falls back until the first frame is there; from then on the frames are one model's. */
export async function* streamPredict(
  house: InferenceHouse,
  asked: PredictRequest,
  call: Call,
): AsyncIterable<PredictStreamResponse> {
  const { request, ownKeys, session } = await prepare(house, PredictRequestSchema, asked, call);
  const intent = predict.intentOf(request);
  const trip = new Trip(house, request, { intent, ownKeys, session }, call);
  const input = { ...predict.inputOf(request), sessionId: trip.upstreamSession };
  const frames = trip.frames(request.observations, request.goalImage);
  const bill = await trip.openBill();
  const delivered = new Delivered(trip);
  let failure: Refusal | undefined;
  try {
    await bill.durable;
    const { first, rest, step, ...tried } = await attemptStream(trip.plan, trip.world, {
      open: (step, options) => {
        const { wire, target } = trip.reach(step);
        const parts = speaking(wire, "predict").predict(target, input, frames, trip.options(options, step));
        return new SoundParts(parts, intent.units);
      },
      unitsOf: (part) => (part.kind === "frame" ? 1 : 0),
    });
    await trip.pinned(step);
    delivered.begin(step, tried);
    yield delivered.started();
    // Not one stream of both: each that is read through another costs every frame its part.
    delivered.take(first);
    if (first.kind === "frame") yield eventOf("frame", first.frame);
    for await (const part of rest) {
      delivered.take(part);
      if (part.kind === "frame") yield eventOf("frame", part.frame);
    }
  } catch (thrown) {
    failure = asRefusal(thrown);
    const ranOut = failure.reason === Reason.DEADLINE_EXCEEDED && delivered.frames > 0;
    if (!ranOut) throw failure;
  } finally {
    delivered.settle(bill, failure);
  }
  yield eventOf("done", delivered.done(failure !== undefined));
}

/** What a stream has handed to its caller, and what that owes. */
class Delivered {
  frames = 0;
  readonly #trip: Trip;
  #step: PlanStep | undefined;
  #tried: Omit<Outcome, "step"> = { tries: [], hedgeMicro: undefined };
  #gpuSeconds = 0;

  constructor(trip: Trip) {
    this.#trip = trip;
  }

  /** Notes who serves. `tried` is brought up to date by the attempt while the stream runs. */
  begin(step: PlanStep, tried: Omit<Outcome, "step">): void {
    this.#step = step;
    this.#tried = tried;
  }

  take(part: PredictAnswerPart): void {
    if (part.kind === "frame") this.frames += 1;
    else this.#gpuSeconds = part.gpuSeconds;
  }

  /** Frames that reached the caller are charged, whoever ended the stream, unless its provider broke it. */
  settle(bill: Bill, failure: Refusal | undefined): void {
    const owed = failure === undefined || OWED_ALL_THE_SAME.has(failure.reason);
    if (this.#step && this.frames > 0 && owed) bill.close(this.#charge(this.#step), this.#route());
    else bill.void(failure ?? refuse(Reason.CLIENT_CLOSED_REQUEST, "the caller left before the first frame"));
  }

  started(): PredictStreamResponse {
    const { model, region, precision, attempts, fallbackUsed, simulated, provider, offeringId } = this.#route();
    const started = create(PredictStartedSchema, {
      id: this.#trip.named("pred"),
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
      deadlineAt: Math.round(now() + this.#trip.plan.endsAt - steadyNow()),
    });
    return eventOf("route", started);
  }

  done(ranOut: boolean): PredictDone {
    const { frames } = this;
    const whole = frames === this.#trip.plan.intent.units;
    return create(PredictDoneSchema, {
      id: this.#trip.named("pred"),
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
    return this.#trip.charge(step, this.frames, this.#tried.hedgeMicro);
  }

  #route(): Route {
    return routeOf({ ...this.#tried, step: this.#step }, this.#trip.pin);
  }
}

const OWED_ALL_THE_SAME: ReadonlySet<Reason> = new Set([
  Reason.DEADLINE_EXCEEDED,
  Reason.CLIENT_CLOSED_REQUEST,
  // The key may not go on.
  Reason.INVALID_API_KEY,
  Reason.KEY_DISABLED,
  Reason.KEY_EXPIRED,
  Reason.KEY_NARROWED,
  Reason.PERMISSION_DENIED,
  Reason.SCOPE_DENIED,
]);

type StreamEvent = Exclude<PredictStreamResponse["event"], { case: undefined }>;

/** Written out: `create` asks the schema about every frame. */
const eventOf = <C extends StreamEvent["case"]>(
  name: C,
  value: Extract<StreamEvent, { case: C }>["value"],
): PredictStreamResponse => ({
  $typeName: "limber.v1.PredictStreamResponse",
  event: { case: name, value } as StreamEvent, // the pair was just checked
});

/**
 * The parts of a prediction up to `most` frames; a frame that cannot be handed on is a failure, and so is none at all. No generator:
 * each that is read through another costs every frame its part.
 */
class SoundParts implements AsyncIterableIterator<PredictAnswerPart> {
  readonly #parts: AsyncIterator<PredictAnswerPart>;
  readonly #most: number;
  #count = 0;
  #over = false;

  constructor(parts: AsyncIterable<PredictAnswerPart>, most: number) {
    this.#parts = parts[Symbol.asyncIterator]();
    this.#most = most;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<PredictAnswerPart>> {
    return this.#over ? Promise.resolve(OVER) : this.#parts.next().then(this.#judge, this.#broken);
  }

  return(): Promise<IteratorResult<PredictAnswerPart>> {
    this.#end();
    return Promise.resolve(OVER);
  }

  readonly #judge = (read: IteratorResult<PredictAnswerPart>): IteratorResult<PredictAnswerPart> => {
    if (this.#over) return OVER;
    const isOver = read.done || (read.value.kind === "frame" && this.#count === this.#most);
    if (isOver) {
      this.#end();
      return OVER;
    }
    const part = read.value;
    try {
      if (part.kind === "summary") assertSound(this.#count === 0 ? AttemptFailure.EMPTY_ANSWER : undefined);
      else assertSound(predict.checkFrame(part.frame, this.#count++));
    } catch (thrown) {
      this.#end();
      throw thrown;
    }
    return read;
  };

  readonly #broken = (thrown: unknown): never => {
    this.#over = true;
    throw thrown;
  };

  #end(): void {
    if (this.#over) return;
    this.#over = true;
    this.#parts.return?.().catch(() => {});
  }
}

const OVER: IteratorReturnResult<undefined> = { done: true, value: undefined };
