/** Requests to LeRobot's asynchronous inference server: the messages of its service around what a dialect wrote. */
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { frameMessage } from "../../codecs/grpc.ts";

const PIECE_BYTES = 2 << 20;
const TRANSFER = { begin: 1, middle: 2, end: 3 } as const;

/** A message without fields. */
export const encodeNothing = (): Buffer => frameMessage(new Uint8Array());

/** A setup as a dialect wrote it. */
export const encodeSetup = (setup: Buffer): Buffer =>
  frameMessage(new BinaryWriter().tag(1, WireType.LengthDelimited).bytes(setup).finish());

/** An observation as a dialect wrote it, as the messages of its stream. */
export function encodeObservation(observation: Buffer): Buffer {
  const count = Math.max(1, Math.ceil(observation.length / PIECE_BYTES));
  return Buffer.concat(
    Array.from({ length: count }, (_, i) => {
      const transfer = i === count - 1 ? TRANSFER.end : i === 0 ? TRANSFER.begin : TRANSFER.middle;
      const writer = new BinaryWriter().tag(1, WireType.Varint).int32(transfer);
      writer.tag(2, WireType.LengthDelimited).bytes(observation.subarray(i * PIECE_BYTES, (i + 1) * PIECE_BYTES));
      return frameMessage(writer.finish());
    }),
  );
}
