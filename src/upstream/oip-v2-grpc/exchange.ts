/** The protocol's unary calls over gRPC; none that load, unload or share memory. */

import type { OipTransport } from "../oip/wire.ts";
import { malformed } from "../transport/failures.ts";
import { GRPC_SCHEMES } from "../transport/grpc.ts";
import { type ServerReach, Servers } from "../transport/servers.ts";
import type { CallOptions, UpstreamTarget } from "../wire.ts";
import { readInfer, readMetadata, readReady } from "./decode.ts";
import { encodeInfer, encodeModel, encodeNothing } from "./encode.ts";

type OipMethod = "ServerReady" | "ModelReady" | "ModelMetadata" | "ModelInfer";

/** The protocol over gRPC. */
export function grpcTransport(reach: ServerReach): OipTransport {
  const servers = new Servers(reach, GRPC_SCHEMES, reach.openGrpc);
  const ask = async (target: UpstreamTarget, method: OipMethod, message: Buffer, call: CallOptions): Promise<Buffer> =>
    servers.of(target).unary({ ...call, path: `/inference.GRPCInferenceService/${method}` }, message);
  return {
    async serverReady(target, call) {
      if (!readReady(await ask(target, "ServerReady", encodeNothing(), call)))
        throw malformed("the server is not ready");
    },
    async modelReady(target, model, call) {
      if (!readReady(await ask(target, "ModelReady", encodeModel(model), call)))
        throw malformed("the model is not ready");
    },
    async metadata(target, model, call) {
      return readMetadata(await ask(target, "ModelMetadata", encodeModel(model), call));
    },
    async infer(target, model, request, call) {
      const message = encodeInfer(model, request, call.requestId);
      return readInfer(await ask(target, "ModelInfer", message, call), call.requestId);
    },
    async close() {
      servers.close();
    },
  };
}
