/** What gRPC says around its messages: heads, trailers, statuses and timeouts. */
import type { OutgoingHttpHeaders } from "node:http2";
import { create, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { StatusSchema } from "../../../../gen/google/rpc/status_pb.ts";
import { RpcCode } from "../../../../gen/limber/edge/v1/options_pb.ts";
import { API_VERSION } from "../../../brand.ts";
import type { CodecError } from "../../../codecs/error.ts";
import { Reason, Refusal, refuse } from "../../../errors.ts";
import { tooLarge } from "../../messages/bounds.ts";
import { connectError, detailsOf } from "../../messages/errors.ts";

/** What the caller wants of the protocol is not spoken here: a body at fault, with the code that gRPC has for it. */
export class NotSpoken extends Refusal {
  constructor(text: string) {
    super(Reason.MALFORMED_BODY, text, {}, {});
  }
}

/** `grpc-status`, `grpc-message` and `grpc-status-details-bin`, as every gRPC client reads them, behind the refusal's own headers. */
export function grpcTrailersOf(refusal: Refusal, requestId: string): OutgoingHttpHeaders {
  const error = connectError(refusal, requestId);
  const code = refusal instanceof NotSpoken ? RpcCode.UNIMPLEMENTED : error.code;
  const message = refusal.message.toWellFormed();
  const details = detailsOf(refusal, requestId).map(({ desc, value }) => anyPack(desc, create(desc, value)));
  const status = toBinary(StatusSchema, create(StatusSchema, { code, message, details }));
  return {
    ...Object.fromEntries(error.metadata),
    "grpc-status": String(code),
    "grpc-message": encodeURIComponent(message),
    "grpc-status-details-bin": Buffer.from(status).toString("base64").replace(/=+$/, ""),
  };
}

/** A message that is no message of its kind. */
export const unreadable = (cause?: unknown): Refusal =>
  refuse(Reason.MALFORMED_BODY, "the message cannot be decoded", {}, { cause });

/** Frames that are too large, or that end in the middle. */
export function refusalOfFrames({ reason }: CodecError, maxBytes: number): Refusal {
  if (reason === "too_large") return tooLarge(maxBytes);
  return refuse(Reason.MALFORMED_BODY, "protocol error: incomplete envelope");
}

/** The head of an answer, names and values in turn; `pairs` are those of its own. */
export const headOf = (pairs: readonly string[]): string[] => [
  ":status",
  "200",
  "content-type",
  "application/grpc+proto",
  "x-api-version",
  API_VERSION,
  ...pairs,
];

/** The trailers of a call that went well. */
export const OK_TRAILERS = { "grpc-status": "0" } as const;

/** Timers hold no more than 31 bits of milliseconds; a longer time is none at all, which is what clients mean by it. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

const UNIT_MS: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1000, m: 1, u: 1e-3, n: 1e-6 };

/** A `grpc-timeout` in milliseconds; undefined where no timer can hold it, and not a number where it is no time. */
export function timeoutOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const [, amount, unit] = /^(\d{1,8})([HMSmun])$/.exec(text) ?? [];
  const timeoutMs = Number(amount) * (UNIT_MS[unit ?? ""] ?? Number.NaN);
  return timeoutMs > MAX_TIMEOUT_MS ? undefined : timeoutMs;
}

/** When a call that began at `startedAt` has to have ended; refuses a time that is none. */
export function deadlineOf(
  timeoutMs: number | undefined,
  startedAt: number,
  text: string | undefined,
): number | undefined {
  if (Number.isNaN(timeoutMs))
    throw refuse(Reason.MALFORMED_BODY, `protocol error: invalid grpc timeout value: ${text}`);
  return timeoutMs === undefined ? undefined : startedAt + timeoutMs;
}

/** The refusal of a call whose deadline passed. */
export const timedOut = (): Refusal => refuse(Reason.DEADLINE_EXCEEDED, "the operation timed out");
