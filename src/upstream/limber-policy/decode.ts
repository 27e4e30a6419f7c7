/** What a server of `limber.policy.v1` says to the gateway. */
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import {
  type ActResponse,
  ActResponseSchema,
  CallErrorCode,
  DescribeResponseSchema,
  GroundResponseSchema,
  PredictResponseSchema,
  type ServedModel,
} from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { seenAnswer } from "../../codecs/protobuf/loop.ts";
import { readMessage } from "../../codecs/protobuf/read.ts";
import type { ActAnswer, GroundAnswer, PredictAnswerPart } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { failureOf, malformed, ownerText } from "../transport/failures.ts";

/** One message of an act stream: the call that it is about, and what became of it. */
export interface HeardAct {
  readonly callId: number;
  readonly answer: ActAnswer | UpstreamFailure;
}

/** Reads a message of an act stream. Throws an UpstreamFailure when it can't be read. */
export function readAct(bytes: Buffer): HeardAct {
  const seen = seenAnswer(bytes);
  if (seen) return seen;
  const response = read(ActResponseSchema, bytes);
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
  return { steps, dtMs, note: noteOf(note), prediction, gpuSeconds };
}

/** One message of a predict call. Throws an UpstreamFailure when it can't be read. */
export function readPredict(bytes: Uint8Array): PredictAnswerPart {
  const { body } = read(PredictResponseSchema, bytes);
  if (body.case === "frame") return { kind: "frame", frame: body.value };
  if (body.case === undefined) throw malformed("neither a frame nor a summary");
  return { kind: "summary", gpuSeconds: body.value.gpuSeconds, note: noteOf(body.value.note) };
}

/** The answer of a ground call. Throws an UpstreamFailure when it can't be read. */
export function readGround(bytes: Uint8Array): GroundAnswer {
  const { points, boxes, note, inputTokens, outputTokens } = read(GroundResponseSchema, bytes);
  return { points, boxes, note: noteOf(note), inputTokens, outputTokens };
}

/** What a server serves. Throws an UpstreamFailure when it can't be read. */
export const readDescribe = (bytes: Uint8Array): ServedModel[] => read(DescribeResponseSchema, bytes).models;

/** As the contract of a model allows notes: one paragraph. */
const MAX_NOTE = 1_000;
const noteOf = (text: string): string => text.replace(/\p{Cc}+/gu, " ").slice(0, MAX_NOTE);

function read<D extends DescMessage>(schema: D, bytes: Uint8Array): MessageShape<D> {
  try {
    return readMessage(schema, bytes, { readUnknownFields: false });
  } catch (error) {
    throw malformed("a message that the schema can't read", error);
  }
}

const BY_CALL_ERROR: Readonly<Record<number, AttemptFailure>> = {
  [CallErrorCode.INVALID_INPUT]: AttemptFailure.INPUT_REJECTED,
  [CallErrorCode.BUSY]: AttemptFailure.UPSTREAM_BUSY,
};
