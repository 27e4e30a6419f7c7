/** Converts Python clients' values of different types: numbers, lists, numpy arrays, texts, bytes, lists of one. */
import { isUtf8 } from "node:buffer";
import type { Unpacked } from "./msgpack.ts";
import { NdArray } from "./ndarray.ts";

/** Numbers per list: clients send more as an array. */
const MOST_LISTED = 65_536;

/**
 * Returns numbers as an array: a number has no axes, and a list one more than its items. Undefined for other values and for lists of unequal
 * parts.
 */
export function numbersIn(value: Unpacked<NdArray>): NdArray | undefined {
  if (value instanceof NdArray) return value;
  if (typeof value === "number" || typeof value === "bigint") return NdArray.float64([Number(value)], []);
  if (!Array.isArray(value)) return undefined;
  const numbers: number[] = [];
  const shape = listed(value, numbers);
  return shape && NdArray.float64(numbers, shape);
}

/** Appends a list's numbers to `numbers`, and returns its shape. */
function listed(list: readonly Unpacked<NdArray>[], numbers: number[]): number[] | undefined {
  let inner: readonly number[] | undefined;
  for (const item of list) {
    const shape = shapeOf(item, numbers);
    if (shape === undefined || (inner !== undefined && !isEqual(inner, shape))) return undefined;
    inner = shape;
  }
  return [list.length, ...(inner ?? [])];
}

function shapeOf(item: Unpacked<NdArray>, numbers: number[]): readonly number[] | undefined {
  if (Array.isArray(item)) return listed(item, numbers);
  if (item instanceof NdArray) {
    if (numbers.length + item.data.length > MOST_LISTED) return undefined;
    numbers.push(...item.toFloat64());
    return item.shape;
  }
  if (typeof item !== "number" && typeof item !== "bigint") return undefined;
  return numbers.push(Number(item)) > MOST_LISTED ? undefined : [];
}

const isEqual = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((size, i) => size === b[i]);

/** Returns the single text of a value: a text, its bytes, or a nested list of one. Undefined for others. */
export function textIn(value: Unpacked<NdArray> | undefined): string | undefined {
  if (typeof value === "string") return value;
  if (Buffer.isBuffer(value)) return isUtf8(value) ? value.toString("utf8") : undefined;
  return Array.isArray(value) && value.length === 1 ? textIn(value[0]) : undefined;
}
