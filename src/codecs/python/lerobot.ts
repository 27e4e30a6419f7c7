/**
 * LeRobot's messages without pickles: the length of a JSON text, the text, and arrays as safetensors if there are any. Source:
 * huggingface/lerobot, src/lerobot/async_inference/safe_serialization.py.
 */
import { CodecError } from "../error.ts";
import type { NdArray } from "./ndarray.ts";
import { readSafetensors, writeSafetensors } from "./safetensors.ts";

/** One message. */
export interface LerobotMessage {
  /** The JSON part. A key named like an object's own member is an ordinary key. */
  readonly told: ReadonlyMap<string, unknown>;
  readonly arrays: ReadonlyMap<string, NdArray>;
}

/** Size of the text's length, in bytes. */
const LENGTH = 4;
/** A setup contains motors and cameras, an answer the times of its steps: some kilobytes. */
const MAX_TEXT = 4 << 20;

/** Whether the first bytes are those of such a message. A pickle's first bytes would be a text length of 2 GB. */
export const isLerobotMessage = (bytes: Buffer): boolean => bytes.length > LENGTH && bytes[LENGTH] === BRACE;

const BRACE = 0x7b;

/** Writes one message. Throws CodecError as `writeSafetensors` does. */
export function writeLerobotMessage(
  told: Readonly<Record<string, unknown>>,
  arrays: ReadonlyMap<string, NdArray> = new Map(),
): Buffer {
  const text = Buffer.from(JSON.stringify(told));
  const length = Buffer.alloc(LENGTH);
  length.writeUInt32BE(text.length);
  return Buffer.concat([length, text, ...(arrays.size === 0 ? [] : [writeSafetensors(arrays)])]);
}

/**
 * Reads one message; its arrays are views of `bytes`. Throws CodecError: `truncated`, `too_large` (a text above 4 MiB), `malformed`, and the
 * errors of `readSafetensors`.
 */
export function readLerobotMessage(bytes: Buffer): LerobotMessage {
  if (bytes.length <= LENGTH) throw new CodecError("truncated");
  if (!isLerobotMessage(bytes)) throw new CodecError("malformed");
  const length = bytes.readUInt32BE();
  if (length > MAX_TEXT) throw new CodecError("too_large");
  const end = LENGTH + length;
  if (end > bytes.length) throw new CodecError("truncated");
  const told = mapOf(parsed(bytes.toString("utf8", LENGTH, end)));
  if (told === undefined) throw new CodecError("malformed");
  return { told, arrays: end === bytes.length ? new Map() : readSafetensors(bytes.subarray(end)) };
}

/** A JSON object's own entries; undefined for other values. */
export const mapOf = (value: unknown): Map<string, unknown> | undefined =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? new Map(Object.entries(value)) : undefined;

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new CodecError("malformed");
  }
}
