/** Calls to a `limber.policy.v1` server as messages of the schema, and its messages as answers of the contracts. */
import { create, type DescMessage, type MessageShape, toBinary } from "@bufbuild/protobuf";
import {
  type ActCall,
  ActRequestSchema,
  type ActResponse,
  ActResponseSchema,
  CallErrorCode,
  DescribeRequestSchema,
  type GroundRequest,
  GroundRequestSchema,
  type GroundResponse,
  type PredictRequest,
  PredictRequestSchema,
  type PredictResponse,
} from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { type Frame, FrameSchema, type Observation } from "../../../gen/limber/v1/observation_pb.ts";
import { frameMessage } from "../../codecs/grpc.ts";
import {
  type ActAnswer,
  type ActInput,
  AttemptFailure,
  episodeOf,
  type GroundAnswer,
  type GroundInput,
  type PredictAnswerPart,
  type PredictInput,
  UpstreamFailure,
} from "../../contracts/contract.ts";
import { type EncodedFrame, type FrameSet, picturesIn } from "../pictures/frames.ts";
import { FORMATS } from "../pictures/header.ts";
import { failureOf, malformed, ownerText } from "../transport/failures.ts";
import type { GrpcMessage } from "../transport/grpc.ts";
import { MAX_MESSAGE_BYTES } from "../transport/servers.ts";
import type { CallOptions } from "../wire.ts";

/** An act call with its images. */
export async function actCallOf(
  model: string,
  input: ActInput,
  frames: FrameSet,
  { requestId, budgetMs }: Pick<CallOptions, "requestId" | "budgetMs">,
): Promise<ActCall> {
  const pictures = await fetched(frames, frames.cameras.length);
  const goalImage = goalImageOf(input, frames.cameras, pictures);
  return {
    ...actCommonOf(model, input, requestId),
    observations: withPictures(input.observations, pictures),
    budgetMs: wholeMs(budgetMs),
    ...(goalImage !== undefined && { goalImage }),
  };
}

/** The common fields of a loop's act calls: without observations and time. */
export function actCommonOf(model: string, input: Omit<ActInput, "observations">, requestId: string): ActCall {
  const { instruction, seed, temperature, actionSpace, horizon, returnPrediction, inferenceDelay } = input;
  const call: ActCall = {
    $typeName: "limber.policy.v1.ActCall",
    model,
    observations: [],
    instruction,
    actionSpace,
    horizon,
    returnPrediction,
    sessionId: episodeOf(input) ?? "",
    requestId,
    budgetMs: 0,
    prevChunkLeftOver: input.leftOver === undefined ? [] : [...input.leftOver],
  };
  if (seed !== undefined) call.seed = seed;
  if (temperature !== undefined) call.temperature = temperature;
  if (inferenceDelay !== undefined) call.inferenceDelay = inferenceDelay;
  return call;
}

/** A time in the schema's unit: whole milliseconds, at least one. */
export const wholeMs = (budgetMs: number): number => Math.max(1, Math.floor(budgetMs));

/** Returns the framed message that cancels the call with this id. */
export const framedCancel = (callId: number): Buffer =>
  framed(ActRequestSchema, create(ActRequestSchema, { callId, body: { case: "cancel", value: {} } }));

/** A predict call with its images. */
export async function predictRequestOf(model: string, input: PredictInput, frames: FrameSet): Promise<PredictRequest> {
  const { instruction, horizon, actions, actionSpace, seed, fps, resolution } = input;
  const pictures = await fetched(frames, picturesIn(input.observations));
  return create(PredictRequestSchema, {
    model,
    observations: withPictures(input.observations, pictures),
    instruction,
    horizon,
    actions: [...actions],
    actionSpace: actionSpace ?? "",
    resolution: resolution ?? "",
    ...(seed !== undefined && { seed }),
    ...(fps !== undefined && { fps }),
  });
}

/** A ground call with its images. */
export async function groundRequestOf(
  model: string,
  { instruction, observations }: GroundInput,
  frames: FrameSet,
): Promise<GroundRequest> {
  const [observation] = withPictures(observations, await fetched(frames, picturesIn(observations)));
  return create(GroundRequestSchema, { model, instruction, ...(observation && { observation }) });
}

/** Returns the framed Describe request. */
export const framedDescribe = (): Buffer => framed(DescribeRequestSchema, create(DescribeRequestSchema));

/** Returns a message after gRPC's prefix. Throws an UpstreamFailure if it exceeds the maximum message size. */
export function framed<D extends DescMessage>(schema: D, message: MessageShape<D>): Buffer {
  const bytes = toBinary(schema, message);
  refuseLarge(bytes.length);
  return frameMessage(bytes);
}

/** Throws an UpstreamFailure if a message exceeds the maximum size. */
export function refuseLarge(bytes: number): void {
  if (bytes <= MAX_MESSAGE_BYTES) return;
  const text = "the observations exceed the maximum message size";
  throw new UpstreamFailure(AttemptFailure.INPUT_REJECTED, text, undefined, text);
}

/** Returns the observations including their images, which are in the order of `frameSources`. */
export function withPictures(observations: readonly Observation[], pictures: readonly EncodedFrame[]): Observation[] {
  let next = 0;
  const place = (frames: readonly Frame[]): Frame[] => frames.map((frame) => withPicture(frame, pictures[next++]!));
  return observations.map((each) => ({ ...each, frames: place(each.frames), depth: place(each.depth) }));
}

/** The goal's image, which follows those of the observations; undefined without one. */
export function goalImageOf(
  { observations }: Pick<ActInput, "observations">,
  cameras: readonly string[],
  pictures: readonly EncodedFrame[],
): Frame | undefined {
  const count = picturesIn(observations);
  const goal = pictures[count];
  return goal && withPicture(create(FrameSchema, { camera: cameras[count] ?? "" }), goal);
}

async function fetched(frames: FrameSet, count: number): Promise<EncodedFrame[]> {
  const pictures = await Promise.all(Array.from({ length: count }, (_, i) => frames.bytes(i)));
  refuseLarge(pictures.reduce((sum, { bytes }) => sum + bytes.length, 0));
  return pictures;
}

/** The caller's frame with the image's bytes instead of its address. */
const withPicture = (frame: Frame, { bytes, format, width, height, sha256 }: EncodedFrame): Frame => ({
  ...frame,
  ...(sha256 !== undefined && { sha256 }),
  url: "",
  data: bytes,
  format: FORMATS[format],
  width,
  height,
});

/** An act call without its id on the stream. */
export interface ActMessage {
  /** Returns the framed message that makes the call under this id, complete or in pieces. Throws an UpstreamFailure if it is too large. */
  under(callId: number): GrpcMessage;
}

/** One message of an act stream: the call's id and its result. */
export interface HeardAct {
  readonly callId: number;
  readonly answer: ActAnswer | UpstreamFailure;
}

/** Reads a message of the schema. Throws if it cannot. */
export type ReadMessage = <D extends DescMessage>(schema: D, bytes: Uint8Array) => MessageShape<D>;

/** Reads a message of an act stream. Throws an UpstreamFailure if it is unreadable. */
export function readAct(bytes: Buffer, readMessage: ReadMessage): HeardAct {
  const response = messageIn(ActResponseSchema, bytes, readMessage);
  try {
    return { callId: response.callId, answer: actAnswerOf(response) };
  } catch (thrown) {
    return { callId: response.callId, answer: failureOf(thrown) };
  }
}

/** Returns the chunk of an act's answer. Throws an UpstreamFailure if the server reports a failed call. */
export function actAnswerOf({ body }: ActResponse): ActAnswer {
  if (body.case === "error") {
    throw new UpstreamFailure(
      BY_CALL_ERROR[body.value.code] ?? AttemptFailure.UPSTREAM_ERROR,
      ownerText(body.value.message),
    );
  }
  if (body.case === undefined)
    throw new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "the response contains neither a chunk nor an error");
  const { steps, dtMs, note, prediction, gpuSeconds } = body.value;
  return { steps, dtMs, note: lineOf(note), prediction: prediction.map(tidied), gpuSeconds };
}

/** Reads one part of a prediction. Throws an UpstreamFailure for anything else. */
export function predictPartOf({ body }: PredictResponse): PredictAnswerPart {
  if (body.case === "frame") return { kind: "frame", frame: tidied(body.value) };
  if (body.case === undefined) throw malformed("the response contains neither a frame nor a summary");
  return { kind: "summary", gpuSeconds: body.value.gpuSeconds, note: lineOf(body.value.note) };
}

/** Reads the answer of a ground call. */
export function groundAnswerOf({ points, boxes, note, inputTokens, outputTokens }: GroundResponse): GroundAnswer {
  return { points: points.map(labeled), boxes: boxes.map(labeled), note: lineOf(note), inputTokens, outputTokens };
}

/** Returns a server's text in one line that every transport and store accepts: no control characters, no unpaired surrogate. */
const lineOf = (text: string): string =>
  text
    .replace(/\p{Cc}+/gu, " ")
    .slice(0, MAX_TEXT)
    .toWellFormed();
const MAX_TEXT = 1_000;

const tidied = <T extends { camera: string }>(place: T): T => Object.assign(place, { camera: lineOf(place.camera) });
const labeled = <T extends { camera: string; label: string }>(place: T): T =>
  Object.assign(tidied(place), { label: lineOf(place.label) });

/** Reads a message. Throws an UpstreamFailure if it cannot. */
export function messageIn<D extends DescMessage>(
  schema: D,
  bytes: Uint8Array,
  readMessage: ReadMessage,
): MessageShape<D> {
  try {
    return readMessage(schema, bytes);
  } catch (error) {
    throw malformed("the message does not match the schema", error);
  }
}

const BY_CALL_ERROR: Readonly<Record<number, AttemptFailure>> = {
  [CallErrorCode.INVALID_INPUT]: AttemptFailure.INPUT_REJECTED,
  [CallErrorCode.BUSY]: AttemptFailure.UPSTREAM_BUSY,
};
