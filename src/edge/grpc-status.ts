/** A refusal as the trailers of a gRPC call. */
import type { OutgoingHttpHeaders } from "node:http2";
import { create, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { StatusSchema } from "../../gen/google/rpc/status_pb.ts";
import { factsOf, type Refusal } from "../refusal.ts";
import { detailsOf } from "./errors.ts";

/** `grpc-status`, `grpc-message` and `grpc-status-details-bin`, as every gRPC client reads them. */
export function grpcTrailersOf(refusal: Refusal, requestId: string): OutgoingHttpHeaders {
  const { rpcCode } = factsOf(refusal.reason);
  const details = detailsOf(refusal, requestId).map(({ desc, value }) => anyPack(desc, create(desc, value)));
  const status = create(StatusSchema, { code: rpcCode, message: refusal.message, details });
  return {
    "grpc-status": String(rpcCode),
    "grpc-message": encodeURIComponent(refusal.message),
    "grpc-status-details-bin": Buffer.from(toBinary(StatusSchema, status)).toString("base64").replace(/=+$/, ""),
  };
}
