import { once } from "node:events";
import * as http2 from "node:http2";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { onTestFinished } from "vitest";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { StatusSchema } from "../../gen/google/rpc/status_pb.ts";
import {
  ActRequestSchema,
  ActResponseSchema,
  PredictStreamRequestSchema,
  PredictStreamResponseSchema,
} from "../../gen/limber/v1/inference_service_pb.ts";
import type { Signal } from "../../src/cancellation.ts";
import { KEY, message, type TestGateway } from "./gateway.ts";

export const AUTH = { authorization: `Bearer ${KEY}` };
export const ACT = "/limber.v1.InferenceService/Act";
export const STREAM = "/limber.v1.InferenceService/PredictStream";
export const REQUEST = toBinary(
  ActRequestSchema,
  create(ActRequestSchema, { model: "o/n", observations: [{ proprio: [1] }] }),
);
export const STREAM_REQUEST = toBinary(
  PredictStreamRequestSchema,
  create(PredictStreamRequestSchema, { predict: { model: "o/n", observations: [{ proprio: [1] }] } }),
);
export const CHUNK = message(ActResponseSchema, { id: "act_1", action: { steps: [{ values: [1, 2] }] } });
export const LARGE = message(ActResponseSchema, {
  action: { steps: Array.from({ length: 256 }, () => ({ values: Array.from({ length: 29 }, () => 1) })) },
});
export const frame = (index: number) =>
  message(PredictStreamResponseSchema, { event: { case: "frame", value: { index } } });

/** One message in gRPC's envelope. */
export function envelope(bytes: Uint8Array, flags = 0): Buffer {
  const head = Buffer.alloc(5);
  head[0] = flags;
  head.writeUInt32BE(bytes.length, 1);
  return Buffer.concat([head, bytes]);
}

export interface Outcome {
  head: http2.IncomingHttpHeaders;
  /** The trailers, or the head where it stands alone. */
  status: http2.IncomingHttpHeaders;
  body: Buffer;
}

export function begin(
  gateway: TestGateway,
  path: string,
  headers: http2.OutgoingHttpHeaders = {},
): http2.ClientHttp2Stream {
  const session = http2.connect(gateway.base);
  onTestFinished(() => session.destroy());
  return session.request({
    ":path": path,
    ":method": "POST",
    "content-type": "application/grpc",
    te: "trailers",
    ...AUTH,
    ...headers,
  });
}

export async function outcomeOf(stream: http2.ClientHttp2Stream): Promise<Outcome> {
  const outcome: Outcome = { head: {}, status: {}, body: Buffer.alloc(0) };
  const chunks: Buffer[] = [];
  stream.on("response", (head) => {
    outcome.head = head;
    if (head["grpc-status"] !== undefined) outcome.status = head;
  });
  stream.on("trailers", (trailers) => {
    outcome.status = trailers;
  });
  stream.on("data", (chunk) => chunks.push(chunk));
  await once(stream, "end");
  stream.close();
  outcome.body = Buffer.concat(chunks);
  return outcome;
}

export async function call(
  gateway: TestGateway,
  path: string,
  body: Uint8Array,
  headers: http2.OutgoingHttpHeaders = {},
): Promise<Outcome> {
  const stream = begin(gateway, path, headers);
  stream.end(body);
  return outcomeOf(stream);
}

export const reasonOf = ({ status }: Outcome): string | undefined => {
  const details = status["grpc-status-details-bin"];
  if (typeof details !== "string") return undefined;
  const { details: list } = fromBinary(StatusSchema, Buffer.from(details, "base64"));
  return list.map((any) => anyUnpack(any, ErrorInfoSchema)).find((info) => info !== undefined)?.reason;
};

export const codeOf = ({ status }: Outcome): number => Number(status["grpc-status"]);

export const aborted = (signal: Signal): Promise<never> =>
  new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
