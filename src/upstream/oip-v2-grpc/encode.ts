/**
 * What a server of the protocol is asked over gRPC, written by field number. The numbers are the same in KServe's and Triton's protos.
 * Source: kserve/open-inference-protocol, specification/protocol/open_inference_grpc.proto.
 */
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { frameMessage } from "../../codecs/grpc.ts";
import { rawBytes } from "../oip/tensors.ts";
import type { InferRequest, OipModelName } from "../oip/wire.ts";

/** A message without fields. */
export const encodeNothing = (): Buffer => frameMessage(new Uint8Array());

/** ModelReadyRequest and ModelMetadataRequest, which have the same fields. */
export const encodeModel = ({ name, version }: OipModelName): Buffer =>
  frameMessage(text(text(new BinaryWriter(), 1, name), 2, version).finish());

/** ModelInferRequest, its numbers raw: half floats can't be sent otherwise. */
export function encodeInfer({ name, version }: OipModelName, { inputs, outputs }: InferRequest, id: string): Buffer {
  const writer = text(text(text(new BinaryWriter(), 1, name), 2, version), 3, id);
  for (const tensor of inputs) {
    writer.tag(5, WireType.LengthDelimited).fork();
    text(text(writer, 1, tensor.name), 2, tensor.datatype)
      .tag(3, WireType.LengthDelimited)
      .fork();
    for (const size of tensor.shape) writer.int64(size);
    writer.join().join();
  }
  for (const output of outputs) text(writer.tag(6, WireType.LengthDelimited).fork(), 1, output).join();
  for (const { data } of inputs) {
    writer.tag(7, WireType.LengthDelimited).bytes(data instanceof Uint8Array ? data : rawBytes(data));
  }
  return frameMessage(writer.finish());
}

const text = (writer: BinaryWriter, field: number, value: string): BinaryWriter =>
  value === "" ? writer : writer.tag(field, WireType.LengthDelimited).string(value);
