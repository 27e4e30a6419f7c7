/** REST JSON: the specification's spelling of the schema's messages, in both directions. */
import { type DescField, type DescMessage, type Message, ScalarType } from "@bufbuild/protobuf";
import { encoderOf } from "./json/encode.ts";

export { type Decoder, decoderOf } from "./json/decode.ts";
export { type Encoder, encoderOf } from "./json/encode.ts";
export { type Fault, Faults, MAX_FAULTS } from "./json/faults.ts";
export { asSent } from "./json/pictures.ts";
export { writingJson } from "./json/slices.ts";
export { COUNTED_BYTES, countingJson, type Expected, parseBody, parseCounted } from "./json/text.ts";
export { wordsOf } from "./json/words.ts";

/** The REST JSON text of a message. Throws as the encoder does. */
export function toText(desc: DescMessage, message: Message): string {
  const value = encoderOf(desc).encode(message);
  const bytes = bytesIn(desc);
  if (bytes.size === 0) return JSON.stringify(value);
  // JSON escapes no letter of base64, and looking at each of a picture's costs more than all the rest of a frame.
  const members = Object.entries(value as object).map(
    ([name, each]) =>
      `${JSON.stringify(name)}:${bytes.has(name) && each !== null ? `"${each}"` : JSON.stringify(each)}`,
  );
  return `{${members.join(",")}}`;
}

const known = new WeakMap<DescMessage, ReadonlySet<string>>();

/** The names of a message's own fields of bytes. */
function bytesIn(desc: DescMessage): ReadonlySet<string> {
  let names = known.get(desc);
  if (names === undefined) {
    const isBytes = ({ fieldKind, scalar }: DescField): boolean =>
      fieldKind === "scalar" && scalar === ScalarType.BYTES;
    names = new Set(desc.fields.filter(isBytes).map(({ name }) => name));
    known.set(desc, names);
  }
  return names;
}
