/** The message around what LeRobot's asynchronous inference server answers. */
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { malformed } from "../transport/failures.ts";

/** The bytes inside an Actions message; empty when the server has no actions. Throws an UpstreamFailure. */
export function readActions(message: Buffer): Buffer {
  try {
    const reader = new BinaryReader(message);
    let data: Uint8Array = new Uint8Array();
    while (reader.pos < reader.len) {
      const [field, type] = reader.tag();
      if (field === 1 && type === WireType.LengthDelimited) data = reader.bytes();
      else reader.skip(type, field);
    }
    return Buffer.from(data.buffer, data.byteOffset, data.length);
  } catch (error) {
    throw malformed("a message that the protocol can't have", error);
  }
}
