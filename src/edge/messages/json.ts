/** REST JSON: the specification's spelling of the schema's messages, in both directions. */
import type { DescMessage, Message } from "@bufbuild/protobuf";
import { writeJson } from "./json/write.ts";

export { type Decoder, decoderOf } from "./json/decode.ts";
export { type Encoder, encoderOf } from "./json/encode.ts";
export { type Fault, Faults, MAX_FAULTS } from "./json/faults.ts";
export { readPlain } from "./json/read.ts";
export { COUNTED_BYTES, countingJson, type Expected, parseBody, parseCounted } from "./json/text.ts";
export { wordsOf } from "./json/words.ts";
export { writeJson, writingJson } from "./json/write.ts";

/** The REST JSON text of a message. */
export function toText(desc: DescMessage, message: Message): string {
  return writeJson(desc, message).toString();
}
