/** Sorting that can be put down: the language's own can't. */
import type { Sliced } from "../../slices.ts";

const RUN = 128;
const STEPS = 1024;

/**
 * The numbers below `count`, ordered by `compare`; those that are equal stay in their order. A merge sort over numbers alone:
 * what is in order already costs one comparison per run.
 */
export function* sorting(count: number, compare: (a: number, b: number) => number): Sliced<Uint32Array> {
  let from = new Uint32Array(count);
  for (let start = 0; start < count; start += RUN) {
    const run = from.subarray(start, start + RUN);
    for (let i = 0; i < run.length; i++) run[i] = start + i;
    run.sort(compare);
    yield;
  }
  let to = new Uint32Array(count);
  for (let width = RUN; width < count; width *= 2) {
    for (let start = 0; start < count; start += 2 * width) yield* merging(from, to, start, width, compare);
    [from, to] = [to, from];
  }
  return from;
}

/** Merges two ordered runs of `width` from `start` on; the first one's stay before equal ones of the second. */
function* merging(
  from: Uint32Array,
  to: Uint32Array,
  start: number,
  width: number,
  compare: (a: number, b: number) => number,
): Sliced<void> {
  const [middle, end] = [Math.min(start + width, from.length), Math.min(start + 2 * width, from.length)];
  if (middle === end || compare(from[middle - 1]!, from[middle]!) <= 0) {
    to.set(from.subarray(start, end), start);
    yield;
    return;
  }
  let left = start;
  let right = middle;
  for (let place = start; place < end; place++) {
    const takeLeft = left < middle && (right >= end || compare(from[left]!, from[right]!) <= 0);
    to[place] = takeLeft ? from[left++]! : from[right++]!;
    if (place % STEPS === 0) yield;
  }
  yield;
}
