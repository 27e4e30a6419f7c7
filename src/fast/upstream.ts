/** The fast layer of the upstream side: gRPC to model servers, and the messages of the native wire. */
import type { UpstreamPieces } from "../upstream/index.ts";
import { openFastGrpc } from "./http2-client/grpc.ts";
import { FAST_CODEC } from "./policy-codec.ts";

/** What `createUpstream` builds the wires of where the fast layer is on. */
export const FAST_UPSTREAM: UpstreamPieces = { openGrpc: openFastGrpc, policyCodec: FAST_CODEC };
