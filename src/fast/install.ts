/** Installs the fast layer, piece by piece, over the interfaces that the plain path declares. */
import { InferenceService } from "../../gen/limber/v1/inference_service_pb.ts";
import type { FastPiece } from "../config.ts";
import { installQuickCheck } from "../edge/messages/validate.ts";
import type { PortOptions } from "../edge/server/port.ts";
import type { UpstreamPieces } from "../upstream/index.ts";
import { type GrpcOptions, grpcStreams } from "./grpc/grpc.ts";
import { fastHttp1 } from "./http1/http1.ts";
import { FAST_CODEC } from "./policy-codec.ts";
import { surelyObeys } from "./validation.ts";

/** The pieces to install, by their names. */
export type FastPieces = ReadonlySet<FastPiece>;

/** Installs what belongs to the whole process, and takes away what is not among the pieces. (`collector` is `main.ts`'s.) */
export function installFast(pieces: FastPieces): void {
  installQuickCheck(pieces.has("validation") ? surelyObeys : undefined);
}

/** The calls of control loops, which `grpc` serves. */
const { act, actStream, predict, predictStream } = InferenceService.method;
const HOT = [act, actStream, predict, predictStream];

/** What belongs to one port: its HTTP/1 in front of Node's, and what serves gRPC. */
export function fastPort(
  pieces: FastPieces,
  deps: Omit<GrpcOptions, "methods">,
): Pick<PortOptions, "http1" | "streams"> {
  return {
    http1: pieces.has("http1") ? fastHttp1 : undefined,
    streams: pieces.has("grpc") ? grpcStreams({ ...deps, methods: HOT }) : undefined,
  };
}

/** What the wires of model servers are built of in place of their plain pieces: the codec of the native wire. */
export const fastUpstream = (pieces: FastPieces): Partial<UpstreamPieces> => ({
  ...(pieces.has("policy-codec") && { policyCodec: FAST_CODEC }),
});
