/** A refusal as the trailers of a gRPC call. */
import type { OutgoingHttpHeaders } from "node:http2";
import { create, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { StatusSchema } from "../../../../gen/google/rpc/status_pb.ts";
import { RpcCode } from "../../../../gen/limber/edge/v1/options_pb.ts";
import { Reason, Refusal } from "../../../errors.ts";
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
