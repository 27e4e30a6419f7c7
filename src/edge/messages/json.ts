/** REST JSON: the specification's spelling of the schema's messages, in both directions. */
import type { DescMessage, Message } from "@bufbuild/protobuf";
import { encoderOf } from "./json/encode.ts";

export { type Decoder, decoderOf } from "./json/decode.ts";
export { type Encoder, encoderOf } from "./json/encode.ts";
export { type Fault, Faults, MAX_FAULTS } from "./json/faults.ts";
export { writingJson } from "./json/slices.ts";
export { COUNTED_BYTES, countingJson, type Expected, parseBody, parseCounted } from "./json/text.ts";
export { wordsOf } from "./json/words.ts";

/** A quicker way to do what `parseBody` with the decoder, and the encoder with `JSON.stringify`, do. */
export interface QuickJson {
  /** The message of a body of the plainest form; undefined for every other. */
  read(desc: DescMessage, body: Buffer): Message | undefined;
  /** The bytes of a message's REST JSON, in a buffer that the next call may write over. Throws as the encoder does. */
  write(desc: DescMessage, message: Message): Buffer;
}

let quick: QuickJson | undefined;

/** Puts a quicker way in front for the whole process; undefined takes it away. */
export function installJson(installed: QuickJson | undefined): void {
  quick = installed;
}

/** The message that the decoder would make of a body in which it finds no fault; undefined where only the decoder can tell. */
export const readQuickly = (desc: DescMessage, body: Buffer): Message | undefined => quick?.read(desc, body);

/** The REST JSON of a message, in a buffer that the next call may write over. Throws as the encoder does. */
export function writeJson(desc: DescMessage, message: Message): Buffer {
  return quick?.write(desc, message) ?? Buffer.from(JSON.stringify(encoderOf(desc).encode(message)));
}

/** The REST JSON text of a message. */
export function toText(desc: DescMessage, message: Message): string {
  return writeJson(desc, message).toString();
}
