/** The messages of a server of `limber.policy.v1`, as the answers of the contracts. */
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import {
  type ActResponse,
  ActResponseSchema,
  CallErrorCode,
  type GroundResponse,
  type PredictResponse,
} from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import type { ActAnswer, GroundAnswer, PredictAnswerPart } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { failureOf, malformed, ownerText } from "../transport/failures.ts";

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
  if (body.case === undefined) throw new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "neither a chunk nor an error");
  const { steps, dtMs, note, prediction, gpuSeconds } = body.value;
  return { steps, dtMs, note: lineOf(note), prediction: prediction.map(tidied), gpuSeconds };
}

/** One part of a prediction. Throws an UpstreamFailure where it is none. */
export function predictPartOf({ body }: PredictResponse): PredictAnswerPart {
  if (body.case === "frame") return { kind: "frame", frame: tidied(body.value) };
  if (body.case === undefined) throw malformed("neither a frame nor a summary");
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
    throw malformed("a message that the schema can't read", error);
  }
}

const BY_CALL_ERROR: Readonly<Record<number, AttemptFailure>> = {
  [CallErrorCode.INVALID_INPUT]: AttemptFailure.INPUT_REJECTED,
  [CallErrorCode.BUSY]: AttemptFailure.UPSTREAM_BUSY,
};
