/** The Open Inference Protocol, version 2, over gRPC: KServe, Triton and others. */

import { oipWire } from "../oip/wire.ts";
import { GRPC_SCHEMES } from "../transport/grpc.ts";
import type { ServerReach } from "../transport/servers.ts";
import type { Wire } from "../wire.ts";
import { grpcTransport } from "./exchange.ts";

/** Opens the wire; connections are made on first use. */
export const oipV2Grpc = (reach: ServerReach): Wire =>
  oipWire("oip-v2-grpc", Object.keys(GRPC_SCHEMES), grpcTransport(reach));
