/** Predict: observations and a horizon in, future frames out. Billed per frame. */
import type { PredictRequest } from "../../gen/limber/v1/inference_service_pb.ts";
import { ImageFormat } from "../../gen/limber/v1/observation_pb.ts";
import type { PredictedFrame } from "../../gen/limber/v1/prediction_pb.ts";
import { Reason, refuse } from "../errors.ts";
import {
  AttemptFailure,
  actionSpaceOf,
  Contract,
  chainOf,
  DEFAULT_HORIZON,
  type Intent,
  isFrameMs,
  isGpuSeconds,
  isSide,
  knownActionSpace,
  type Parameter,
  type PredictAnswer,
  type PredictInput,
  refuseConflicts,
  seedOf,
  violation,
} from "./contract.ts";

/** The fields of a predict request that its meaning hangs on; a preview carries them too. */
export type PredictFields = Pick<
  PredictRequest,
  | "model"
  | "models"
  | "observations"
  | "preference"
  | "provider"
  | "seed"
  | "instruction"
  | "goalImage"
  | "actionSpace"
  | "embodiment"
  | "horizon"
  | "temperature"
  | "actions"
  | "fps"
  | "resolution"
  | "numSamples"
>;

/** What the caller wants, with the defaults filled in. Refuses what contradicts itself, and actions of the wrong length. */
export function intentOf(request: PredictFields): Intent {
  refuseConflicts(request.provider);
  refuseUnevenActions(request);
  return {
    contract: Contract.PREDICT,
    model: request.model,
    models: chainOf(request.models, request.provider),
    preference: request.preference,
    provider: request.provider,
    actionSpace: undefined,
    embodiment: request.embodiment || undefined, // the unspecified body is none
    seed: seedOf(request.seed),
    units: request.horizon ?? DEFAULT_HORIZON,
    extent: isOpen(request) ? "wish" : undefined,
    parameters: parametersOf(request),
    given:
      request.observations.length === 0
        ? undefined
        : { observations: request.observations, instruction: request.instruction, goalImage: request.goalImage },
  };
}

/** Refuses `stream: true` where the answer comes whole: the caller waits for frames that would never come one by one. */
export function refuseStream(request: Pick<PredictRequest, "stream">): void {
  if (!request.stream) return;
  throw refuse(
    Reason.STREAM_UNSUPPORTED,
    "this call answers whole; POST /v1/predict/stream sends frames as they come",
    {},
    { param: "stream" },
  );
}

function refuseUnevenActions(request: PredictFields): void {
  const space = request.actionSpace === undefined ? undefined : actionSpaceOf(knownActionSpace(request.actionSpace));
  const dim = space?.dim ?? request.actions[0]?.values.length;
  const uneven = request.actions.findIndex((action) => action.values.length !== dim || dim === 0);
  if (uneven >= 0) {
    const told = `has ${request.actions[uneven]!.values.length} numbers, and ${space?.name ?? "the first action"} has ${dim}`;
    throw violation(`actions.${uneven}`, told, "length");
  }
}

/** A request that says nothing of its length takes what an offering has. */
const isOpen = ({ horizon, actions }: PredictFields): boolean => horizon === undefined && actions.length === 0;

function parametersOf(request: PredictFields): Parameter[] {
  const set: Parameter[] = [];
  if (request.seed !== undefined) set.push("seed");
  if (request.temperature !== undefined) set.push("temperature");
  if (request.goalImage !== undefined) set.push("goal_image");
  if (request.actions.length > 0) set.push("actions");
  if (request.fps !== undefined) set.push("fps");
  if (request.resolution !== undefined) set.push("resolution");
  if (request.numSamples !== undefined) set.push("num_samples");
  return set;
}

/** The model's request; an offering with a smaller maximum receives that as the horizon. */
export function inputOf(request: PredictFields): PredictInput {
  return {
    observations: request.observations,
    instruction: request.instruction ?? "",
    seed: seedOf(request.seed),
    temperature: request.temperature,
    sessionId: request.provider?.sessionId,
    horizon: request.horizon ?? DEFAULT_HORIZON,
    actions: request.actions,
    actionSpace: request.actionSpace,
    fps: request.fps,
    resolution: request.resolution,
  };
}

const STARTS: Readonly<Partial<Record<ImageFormat, readonly number[]>>> = {
  [ImageFormat.PNG]: [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a],
  [ImageFormat.JPEG]: [0xff, 0xd8, 0xff],
  [ImageFormat.WEBP]: [0x52, 0x49, 0x46, 0x46],
};

/** Why one frame cannot be handed on, or undefined when it can. `position` is its place in the stream, from 0. */
export function checkFrame(frame: PredictedFrame, position: number): AttemptFailure | undefined {
  if (frame.data.length === 0) return AttemptFailure.EMPTY_ANSWER;
  if (frame.index !== position || !isFrameMs(frame.tMs)) return AttemptFailure.MALFORMED_ANSWER;
  const start = STARTS[frame.format];
  const readable = start?.every((byte, i) => frame.data[i] === byte) && isSide(frame.width) && isSide(frame.height);
  return readable ? undefined : AttemptFailure.UNREADABLE_FRAME;
}

/** Why a complete response violates the contract; undefined if it does not. `units` is the requested number of frames. */
export function checkAnswer(answer: PredictAnswer, { units }: { units: number }): AttemptFailure | undefined {
  if (answer.frames.length === 0) return AttemptFailure.EMPTY_ANSWER;
  const failure = checkFrames(answer.frames) ?? checkSummary(answer);
  if (failure !== undefined) return failure;
  return answer.frames.length === units ? undefined : AttemptFailure.WRONG_STEP_COUNT;
}

/** Why frames in order cannot be handed on, or undefined when they can. */
export function checkFrames(frames: readonly PredictedFrame[]): AttemptFailure | undefined {
  for (let i = 0; i < frames.length; i++) {
    const failure = checkFrame(frames[i]!, i);
    if (failure !== undefined) return failure;
  }
  return undefined;
}

/** Why the summary of an answer cannot be handed on, or undefined when it can. */
export const checkSummary = ({ gpuSeconds }: Pick<PredictAnswer, "gpuSeconds">): AttemptFailure | undefined =>
  isGpuSeconds(gpuSeconds) ? undefined : AttemptFailure.MALFORMED_ANSWER;

/** The frames of an answer, which is what it is billed on. */
export const unitsOf = (answer: PredictAnswer): number => answer.frames.length;
