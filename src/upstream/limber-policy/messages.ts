/** Calls to a server of `limber.policy.v1` as messages of the schema, and its messages as the answers of the contracts. */
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

/** An act call with its pictures. */
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

/** What all act calls of a loop have in common: no observations, and no time. */
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

/** A time as the schema has it: whole milliseconds, at least one. */
export const wholeMs = (budgetMs: number): number => Math.max(1, Math.floor(budgetMs));

/** The framed message that cancels the call with this id. */
export const framedCancel = (callId: number): Buffer =>
  framed(ActRequestSchema, create(ActRequestSchema, { callId, body: { case: "cancel", value: {} } }));

/** A predict call with its pictures. */
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

/** A ground call with its pictures. */
export async function groundRequestOf(
  model: string,
  { instruction, observations }: GroundInput,
  frames: FrameSet,
): Promise<GroundRequest> {
  const [observation] = withPictures(observations, await fetched(frames, picturesIn(observations)));
  return create(GroundRequestSchema, { model, instruction, ...(observation && { observation }) });
}

/** The framed message that asks what a server serves. */
export const framedDescribe = (): Buffer => framed(DescribeRequestSchema, create(DescribeRequestSchema));

/** A message behind gRPC's prefix. Throws an UpstreamFailure where it is larger than a message may be. */
export function framed<D extends DescMessage>(schema: D, message: MessageShape<D>): Buffer {
  const bytes = toBinary(schema, message);
  refuseLarge(bytes.length);
  return frameMessage(bytes);
}

/** Throws an UpstreamFailure where a message is larger than it may be. */
export function refuseLarge(bytes: number): void {
  if (bytes <= MAX_MESSAGE_BYTES) return;
  const text = "the observations exceed the maximum message size";
  throw new UpstreamFailure(AttemptFailure.INPUT_REJECTED, text, undefined, text);
}

/** The observations with their pictures in them, which come in the order of `frameSources`. */
export function withPictures(observations: readonly Observation[], pictures: readonly EncodedFrame[]): Observation[] {
  let next = 0;
  const place = (frames: readonly Frame[]): Frame[] => frames.map((frame) => withPicture(frame, pictures[next++]!));
  return observations.map((each) => ({ ...each, frames: place(each.frames), depth: place(each.depth) }));
}

/** The picture of the goal, which stands behind those of the observations; undefined where there is none. */
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

/** The caller's frame with the picture's bytes in place of its address. */
const withPicture = (frame: Frame, { bytes, format, width, height, sha256 }: EncodedFrame): Frame => ({
  ...frame,
  ...(sha256 !== undefined && { sha256 }),
  url: "",
  data: bytes,
  format: FORMATS[format],
  width,
  height,
});

/** An act call that only lacks its id on the stream. */
export interface ActMessage {
  /** Returns the framed message that makes the call under this id, complete or in pieces. Throws an UpstreamFailure if it is too large. */
  under(callId: number): GrpcMessage;
}

/** One message of an act stream: the call that it is about, and what became of it. */
export interface HeardAct {
  readonly callId: number;
  readonly answer: ActAnswer | UpstreamFailure;
}

/** Reads a message of the schema. Throws where it cannot. */
export type ReadMessage = <D extends DescMessage>(schema: D, bytes: Uint8Array) => MessageShape<D>;

/** Reads a message of an act stream. Throws an UpstreamFailure when it can't be read. */
export function readAct(bytes: Buffer, readMessage: ReadMessage): HeardAct {
  const response = messageIn(ActResponseSchema, bytes, readMessage);
  try {
    return { callId: response.callId, answer: actAnswerOf(response) };
  } catch (thrown) {
    return { callId: response.callId, answer: failureOf(thrown) };
  }
}

/** The chunk of an act's answer; throws an UpstreamFailure when the server says that the call failed. */
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

/** One part of a prediction. Throws an UpstreamFailure where it is none. */
export function predictPartOf({ body }: PredictResponse): PredictAnswerPart {
  if (body.case === "frame") return { kind: "frame", frame: tidied(body.value) };
  if (body.case === undefined) throw malformed("the response contains neither a frame nor a summary");
  return { kind: "summary", gpuSeconds: body.value.gpuSeconds, note: lineOf(body.value.note) };
}

/** The answer of a ground call. */
export function groundAnswerOf({ points, boxes, note, inputTokens, outputTokens }: GroundResponse): GroundAnswer {
  return { points: points.map(labeled), boxes: boxes.map(labeled), note: lineOf(note), inputTokens, outputTokens };
}

/** A server's text in one line that every transport and store can hold: no control characters, no half of a surrogate pair. */
const lineOf = (text: string): string =>
  text
    .replace(/\p{Cc}+/gu, " ")
    .slice(0, MAX_TEXT)
    .toWellFormed();
const MAX_TEXT = 1_000;

const tidied = <T extends { camera: string }>(place: T): T => Object.assign(place, { camera: lineOf(place.camera) });
const labeled = <T extends { camera: string; label: string }>(place: T): T =>
  Object.assign(tidied(place), { label: lineOf(place.label) });

/** Reads a message. Throws an UpstreamFailure where it cannot. */
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
