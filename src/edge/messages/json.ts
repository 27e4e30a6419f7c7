/** REST JSON: the specification's spelling of the schema's messages, in both directions. */
import type { DescMessage, Message } from "@bufbuild/protobuf";
import { encoderOf } from "./json/encode.ts";

export { type Decoder, decoderOf } from "./json/decode.ts";
export { type Encoder, encoderOf } from "./json/encode.ts";
export { type Fault, Faults, MAX_FAULTS } from "./json/faults.ts";
export { writingJson } from "./json/slices.ts";
export { COUNTED_BYTES, countingJson, type Expected, parseBody, parseCounted } from "./json/text.ts";
export { wordsOf } from "./json/words.ts";

/** The REST JSON text of a message. Throws as the encoder does. */
export const toText = (desc: DescMessage, message: Message): string => JSON.stringify(encoderOf(desc).encode(message));
