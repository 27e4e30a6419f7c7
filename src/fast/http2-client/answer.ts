/** Where the head and the trailers of an answer may stand, and what is wrong with them (RFC 9113 section 8.1). */
import type { Block } from "../http2-frames/blocks.ts";
import { CODE } from "../http2-frames/frames.ts";
import type { FieldReader } from "../http2-frames/hpack.ts";
import { type HeaderFields, type Objection, readFields } from "./fields.ts";

/** A head, or trailers. */
export interface AnswerPart {
  readonly stream: number;
  /** It ends the stream. */
  readonly ends: boolean;
  readonly fields: HeaderFields;
  /** What is wrong with the fields, of which there are none then. */
  readonly objection: Objection | undefined;
}

/** Reads a block. Throws a Fault, as FieldReader does. */
export function partOf({ stream, ends, bytes }: Block, reader: FieldReader): AnswerPart {
  return { stream, ends, ...readFields(reader, bytes) };
}

/** Whether it is an interim head, before that of the answer. */
export const isInterim = ({ fields }: AnswerPart): boolean => fields[":status"]?.startsWith("1") === true;

/** Why a stream can't have this part, as an error code and in words; undefined when it can. */
export function objectionTo(part: AnswerPart, isAnswered: boolean): { code: number; text: string } | undefined {
  if (part.objection === "too_large") return { code: CODE.calm, text: "too many header fields" };
  if (part.objection === "malformed") return { code: CODE.protocol, text: "header fields that make no sense" };
  const isHead = ":status" in part.fields;
  if (isHead === isAnswered) return { code: CODE.protocol, text: "a head or trailers where they can't be" };
  const isWrongEnd = isInterim(part) ? part.ends : !isHead && !part.ends;
  return isWrongEnd ? { code: CODE.protocol, text: "an end where none can be, or none where it has to" } : undefined;
}
