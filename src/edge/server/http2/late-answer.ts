/** What a caller of gRPC hears whose request did not come in time. A gRPC client reads no JSON. */
import { RpcCode } from "../../../../gen/limber/edge/v1/options_pb.ts";
import { packFields } from "../../../codecs/http2/hpack.ts";
import { FAULTS } from "../wire-faults.ts";

/** As trailers, which stand alone. */
export const LATE_TRAILERS = {
  "grpc-status": String(RpcCode.DEADLINE_EXCEEDED),
  "grpc-message": encodeURIComponent(FAULTS.slow.message),
} as const;

/** The same as a packed block, head and trailers in one. */
export const lateAnswer = (type = "application/grpc"): Buffer =>
  packFields([[":status", "200"], ["content-type", type], ...Object.entries(LATE_TRAILERS)]);
