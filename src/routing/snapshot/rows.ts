/** Lists of rows, made and changed in slices. */
import type { Sliced } from "../../slices.ts";
import type { RowsOfModel } from "./snapshot.ts";

/** How many rows are looked at between two yields. */
const STEPS = 1024;

/** The numbers from 0 on. */
export function* counting(count: number): Sliced<Uint32Array> {
  const numbers = new Uint32Array(count);
  for (let i = 0; i < count; i++) {
    numbers[i] = i;
    if (i % STEPS === 0) yield;
  }
  return numbers;
}

/** By code: the rows that bear it, in their order; undefined where none does. */
export function* groupRows(column: Uint32Array, order: Uint32Array, codes: number): Sliced<RowsOfModel> {
  const ends = new Uint32Array(codes + 1);
  for (let i = 0; i < order.length; i++) {
    ends[column[order[i]!]! + 1]!++;
    if (i % STEPS === 0) yield;
  }
  for (let code = 0; code < codes; code++) {
    ends[code + 1]! += ends[code]!;
    if (code % STEPS === 0) yield;
  }
  const places = ends.slice();
  const rows = new Uint32Array(order.length);
  for (let i = 0; i < order.length; i++) {
    const row = order[i]!;
    rows[places[column[row]!]!++] = row;
    if (i % STEPS === 0) yield;
  }
  return (code) => (ends[code] === ends[code + 1] ? undefined : rows.subarray(ends[code], ends[code + 1]));
}

/** By row: its place in `order`. */
export function* placing(order: Uint32Array, room: number): Sliced<Uint32Array> {
  const place = new Uint32Array(room);
  for (let i = 0; i < order.length; i++) {
    place[order[i]!] = i;
    if (i % STEPS === 0) yield;
  }
  return place;
}

/** A row that comes into lists, ahead of the row that has this place and of all behind it. */
export interface Arrival {
  readonly row: number;
  readonly ahead: number;
}

/**
 * A list in the order of `place`, without the rows that are `gone` and with those that arrive, which come in their order, too. The
 * list itself where it has none of them.
 */
export function* spliced(
  list: Uint32Array,
  place: Uint32Array,
  gone: Uint8Array,
  arrivals: readonly Arrival[],
): Sliced<Uint32Array> {
  let leaving = 0;
  for (let i = 0; i < list.length; i++) {
    leaving += gone[list[i]!]!;
    if (i % STEPS === 0) yield;
  }
  if (leaving + arrivals.length === 0) return list;
  const to = new Uint32Array(list.length - leaving + arrivals.length);
  let [at, next] = [0, 0];
  for (let i = 0; i < list.length; i++) {
    const row = list[i]!;
    while (next < arrivals.length && arrivals[next]!.ahead <= place[row]!) to[at++] = arrivals[next++]!.row;
    if (gone[row] === 0) to[at++] = row;
    if (i % STEPS === 0) yield;
  }
  while (next < arrivals.length) to[at++] = arrivals[next++]!.row;
  return to;
}
