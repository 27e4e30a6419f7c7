/** What a server of `limber.policy.v1` says to the gateway. */
import type { IncomingHttpHeaders } from "node:http2";
import { type DescMessage, fromBinary, type MessageShape } from "@bufbuild/protobuf";
import {
  type ActResponse,
  ActResponseSchema,
  CallErrorCode,
  DescribeResponseSchema,
  GroundResponseSchema,
  PredictResponseSchema,
  type ServedModel,
} from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import type { ActAnswer, GroundAnswer, PredictAnswerPart } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { malformed, ownerText } from "../failures.ts";

/** One message of an act stream. Throws an UpstreamFailure when it can't be read. */
export const readAct = (bytes: Uint8Array): ActResponse => read(ActResponseSchema, bytes);

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

/** How a stream ended, by its trailers, or by its headers when they stand alone: undefined for OK. */
export function statusFailure(headers: IncomingHttpHeaders): UpstreamFailure | undefined {
  const status = headers["grpc-status"];
  if (status === "0") return undefined;
  const said = `status ${status ?? headers[":status"]}: ${ownerText(decoded(headers["grpc-message"]))}`;
  if (status !== undefined)
    return new UpstreamFailure(BY_GRPC_STATUS[Number(status)] ?? AttemptFailure.UPSTREAM_ERROR, said);
  return new UpstreamFailure(BY_HTTP_STATUS[Number(headers[":status"])] ?? AttemptFailure.UPSTREAM_ERROR, said);
}

/** As the contract of a model allows notes: one paragraph. */
const MAX_NOTE = 1_000;
const noteOf = (text: string): string => text.replace(/\p{Cc}+/gu, " ").slice(0, MAX_NOTE);

function read<D extends DescMessage>(schema: D, bytes: Uint8Array): MessageShape<D> {
  try {
    return fromBinary(schema, bytes, { readUnknownFields: false });
  } catch (error) {
    throw malformed("a message that the schema can't read", error);
  }
}

/** `grpc-message` is percent-encoded; what isn't stays as it is. */
function decoded(text: string | string[] | undefined): string {
  try {
    return decodeURIComponent(String(text ?? ""));
  } catch {
    return String(text);
  }
}

const BY_CALL_ERROR: Readonly<Record<number, AttemptFailure>> = {
  [CallErrorCode.INVALID_INPUT]: AttemptFailure.INPUT_REJECTED,
  [CallErrorCode.BUSY]: AttemptFailure.UPSTREAM_BUSY,
};

/** gRPC's numbers; all others are errors of the server's own. Source: https://grpc.github.io/grpc/core/md_doc_statuscodes.html */
const BY_GRPC_STATUS: Readonly<Record<number, AttemptFailure>> = {
  1: AttemptFailure.CONNECTION_LOST, // CANCELLED
  3: AttemptFailure.INPUT_REJECTED, // INVALID_ARGUMENT
  4: AttemptFailure.TIMEOUT, // DEADLINE_EXCEEDED
  7: AttemptFailure.UPSTREAM_AUTH, // PERMISSION_DENIED
  8: AttemptFailure.UPSTREAM_BUSY, // RESOURCE_EXHAUSTED
  11: AttemptFailure.INPUT_REJECTED, // OUT_OF_RANGE
  14: AttemptFailure.UNREACHABLE, // UNAVAILABLE
  16: AttemptFailure.UPSTREAM_AUTH, // UNAUTHENTICATED
};

/** What stands between us and the server answers in HTTP's own words. */
const BY_HTTP_STATUS: Readonly<Record<number, AttemptFailure>> = {
  401: AttemptFailure.UPSTREAM_AUTH,
  403: AttemptFailure.UPSTREAM_AUTH,
  413: AttemptFailure.INPUT_REJECTED,
  429: AttemptFailure.UPSTREAM_BUSY,
  502: AttemptFailure.UNREACHABLE,
  503: AttemptFailure.UPSTREAM_BUSY,
  504: AttemptFailure.TIMEOUT,
};
