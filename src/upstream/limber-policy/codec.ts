/** How the native wire writes and reads its messages: what another codec has to offer, and the codec by protobuf-es. */
import { fromBinary } from "@bufbuild/protobuf";
import { ActCallSchema } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import type { ActInput, PackedObservations } from "../../contracts/contract.ts";
import type { FrameSet } from "../pictures/frames.ts";
import type { GrpcMessage } from "../transport/grpc.ts";
import type { CallOptions } from "../wire.ts";
import { type HeardAct, type ReadMessage, readAct } from "./decode.ts";
import { actCallOf, actCommonOf, framedAct, told, wholeMs } from "./encode.ts";

/** An act call that only lacks its id on the stream. */
export interface ActMessage {
  /** The framed message that makes the call under this id, whole or in pieces. Throws an UpstreamFailure where it is larger than a message may be. */
  under(callId: number): GrpcMessage;
}

/** The codec of the native wire. */
export interface PolicyCodec {
  /** Fetches the pictures of an act call and writes it. Rejects with what fetching them rejects with. */
  act(
    model: string,
    input: ActInput,
    frames: FrameSet,
    call: Pick<CallOptions, "requestId" | "budgetMs">,
  ): Promise<ActMessage>;
  /**
   * Writes the act calls of a loop, which have all but their observations and time in common. Their frames say what the pictures' bytes say.
   */
  loop(
    model: string,
    input: Omit<ActInput, "observations">,
    requestId: string,
  ): (observations: PackedObservations, budgetMs: number) => ActMessage;
  /** Reads a message of an act stream. Throws an UpstreamFailure where it cannot. */
  readAct(bytes: Buffer): HeardAct;
  readonly readMessage: ReadMessage;
}

/** Reads with protobuf-es. */
export const readMessage: ReadMessage = (schema, bytes) => fromBinary(schema, bytes, { readUnknownFields: false });

/** The codec by protobuf-es. */
export const PROTOBUF_CODEC: PolicyCodec = {
  async act(model, input, frames, call) {
    const message = await actCallOf(model, input, frames, call);
    return { under: (callId) => framedAct(callId, message) };
  },
  loop(model, input, requestId) {
    const common = actCommonOf(model, input, requestId);
    return ({ source, from, to, frames }, budgetMs) => {
      const { observations } = readMessage(ActCallSchema, source.subarray(from, to));
      const message = { ...common, observations: told(observations, frames), budgetMs: wholeMs(budgetMs) };
      return { under: (callId) => framedAct(callId, message) };
    };
  },
  readAct: (bytes) => readAct(bytes, readMessage),
  readMessage,
};
