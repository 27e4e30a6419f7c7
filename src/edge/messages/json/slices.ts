/** REST JSON of answers that may be long, written in slices. */
import { type DescField, type DescMessage, getOption, type Message } from "@bufbuild/protobuf";
import { inline, nullable } from "../../../../gen/limber/edge/v1/options_pb.ts";
import { ActionStepSchema } from "../../../../gen/limber/v1/action_pb.ts";
import type { Sliced } from "../../../slices.ts";
import { encoderOf, getterOf } from "./encode.ts";

/** Letters that are written between two looks at the clock. */
const PIECE = 32 << 10;

/** The REST JSON of a message, to the byte what `JSON.stringify` makes of the encoder's value. It is put down between items of lists of messages. */
export function* writingJson(desc: DescMessage, message: Message): Sliced<Buffer> {
  const written: Written = { pieces: [], text: "" };
  yield* writingMembers(desc, message, written);
  written.pieces.push(Buffer.from(written.text));
  return written.pieces.length === 1 ? written.pieces[0]! : Buffer.concat(written.pieces);
}

interface Written {
  readonly pieces: Buffer[];
  /** What is not among the pieces yet. */
  text: string;
}

function* writingMembers(desc: DescMessage, message: Message, written: Written): Sliced<void> {
  const encoder = encoderOf(desc);
  let separator = "{";
  for (const field of desc.fields) {
    const value = getterOf(field)(message);
    if (value === undefined && !getOption(field, nullable)) continue;
    written.text += `${separator}${JSON.stringify(field.name)}:`;
    separator = ",";
    const items = itemsOf(field);
    if (value === undefined) written.text += "null";
    else if (items) yield* writingItems(items, value as readonly Message[], written);
    else written.text += JSON.stringify(encoder.encodeField(field.localName, value));
  }
  written.text += separator === "{" ? "{}" : "}";
}

function* writingItems(desc: DescMessage, items: readonly Message[], written: Written): Sliced<void> {
  const isDeep = desc.fields.some((field) => itemsOf(field) !== undefined);
  let separator = "[";
  for (const item of items) {
    written.text += separator;
    separator = ",";
    if (isDeep) yield* writingMembers(desc, item, written);
    else written.text += JSON.stringify(encoderOf(desc).encode(item));
    if (written.text.length < PIECE) continue;
    written.pieces.push(Buffer.from(written.text));
    written.text = "";
    yield;
  }
  written.text += separator === "[" ? "[]" : "]";
}

/** The type of a list's messages, where they are written as objects of their fields. */
function itemsOf(field: DescField): DescMessage | undefined {
  if (field.fieldKind !== "list" || field.listKind !== "message") return undefined;
  const { message } = field;
  const hasOwnForm = message.typeName.startsWith("google.protobuf.") || getOption(message, inline);
  return hasOwnForm || message === ActionStepSchema ? undefined : message;
}
