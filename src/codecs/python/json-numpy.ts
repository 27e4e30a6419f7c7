/**
 * Numpy arrays inside JSON, as OpenVLA's and GR00T's HTTP servers write them: an object with `__numpy__` (base64), `dtype` and `shape`.
 * Source: Crimson-Crow/json-numpy.
 */
import { decodeBase64 } from "../base64.ts";
import { CodecError } from "../error.ts";
import { parseJson } from "../json.ts";
import type { Packable } from "./msgpack.ts";
import { arrayFrom, NdArray } from "./ndarray.ts";

/** A value as read. */
export type JsonNumpy = null | boolean | number | string | NdArray | JsonNumpy[] | Map<string, JsonNumpy>;

const MAX_DEPTH = 32;
const MAX_VALUES = 1_000_000;

/** Writes a value as JSON text. Throws CodecError `unsupported` for bare bytes, integers beyond 2^53 and non-text keys. */
export const encodeJsonNumpy = (value: Packable<NdArray>): string => JSON.stringify(plain(value));

/** Reads JSON text. Throws CodecError: `malformed`, `too_deep`, `too_many_values`, `bad_dtype`, `bad_shape`, `bad_ndarray`. */
export function decodeJsonNumpy(text: string): JsonNumpy {
  const budget = { left: MAX_VALUES };
  return revived(parsed(text), 0, budget);
}

function plain(value: Packable<NdArray>): unknown {
  if (value === null || typeof value === "string" || typeof value === "number" || typeof value === "boolean")
    return value;
  if (value instanceof NdArray) {
    const { data, dtype, shape } = value;
    const base64 = Buffer.from(data.buffer, data.byteOffset, data.length).toString("base64");
    return { __numpy__: base64, dtype, shape };
  }
  if (Array.isArray(value)) return value.map(plain);
  if (value instanceof Map) return Object.fromEntries([...value].map(([key, item]) => [textOf(key), plain(item)]));
  throw new CodecError("unsupported");
}

function textOf(key: unknown): string {
  if (typeof key === "string") return key;
  throw new CodecError("unsupported");
}

function parsed(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    throw new CodecError("malformed");
  }
}

function revived(value: unknown, depth: number, budget: { left: number }): JsonNumpy {
  if (depth > MAX_DEPTH) throw new CodecError("too_deep");
  if (--budget.left < 0) throw new CodecError("too_many_values");
  if (typeof value !== "object" || value === null) return value as null | boolean | number | string; // JSON has no other values
  if (Array.isArray(value)) return value.map((item) => revived(item, depth + 1, budget));
  const entries = Object.entries(value);
  if (Object.hasOwn(value, "__numpy__")) return arrayOf(Object.fromEntries(entries));
  return new Map(entries.map(([key, item]) => [key, revivedUnder(key, item, depth + 1, budget)]));
}

function revivedUnder(key: string, value: unknown, depth: number, budget: { left: number }): JsonNumpy {
  try {
    return revived(value, depth, budget);
  } catch (thrown) {
    if (thrown instanceof CodecError) thrown.under(key);
    throw thrown;
  }
}

function arrayOf({ __numpy__: base64, dtype, shape }: Readonly<Record<string, unknown>>): JsonNumpy {
  if (typeof base64 !== "string") throw new CodecError("bad_ndarray");
  return arrayFrom(bytesIn(base64), dtype, shape);
}

function bytesIn(base64: string): Buffer {
  try {
    return decodeBase64(base64);
  } catch (thrown) {
    if (thrown instanceof CodecError) throw new CodecError("bad_ndarray");
    throw thrown;
  }
}
