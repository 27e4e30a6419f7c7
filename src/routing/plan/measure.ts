/** What a row is at this moment: its cost, its time, its worth on every axis. Lower is better on all of them. */
import { microOf } from "../../contracts/price.ts";
import type { Axis } from "../aliases.ts";
import { type Ask, unitsAt } from "./intent.ts";

/** Writes the figure of each of the first `count` rows to the same place of `into`. */
export type Measure = (ask: Ask, rows: Uint32Array, count: number, into: Float64Array) => void;

/** What the whole call would cost, in micro-dollars: list price, and the wake-up where it is cold. */
export const costMicro: Measure = (ask, rows, count, into) => {
  const { priceNano, now, health, snapshot } = ask;
  const { usedAt } = health;
  const { warmMs, wakeMicro } = snapshot.columns;
  for (let i = 0; i < count; i++) {
    const row = rows[i]!;
    const list = microOf(unitsAt(ask, row), priceNano[row]!);
    into[i] = now - usedAt[row]! > warmMs[row]! ? list + wakeMicro[row]! : list;
  }
};

/** The same without rounding, which would cost more than all else here: what offerings are ordered by. */
export const cost: Measure = (ask, rows, count, into) => {
  const { priceNano, now, health, snapshot } = ask;
  const { usedAt } = health;
  const { warmMs, wakeMicro } = snapshot.columns;
  for (let i = 0; i < count; i++) {
    const row = rows[i]!;
    const list = (unitsAt(ask, row) / 1000) * priceNano[row]!;
    into[i] = now - usedAt[row]! > warmMs[row]! ? list + wakeMicro[row]! : list;
  }
};

/** How long the call is expected to take, in milliseconds; Infinity when nothing is known. */
export const expectedMs: Measure = ({ now, health, snapshot }, rows, count, into) => {
  const { usedAt, coldMs, p50Ms } = health;
  const { warmMs } = snapshot.columns;
  for (let i = 0; i < count; i++) {
    const row = rows[i]!;
    into[i] = now - usedAt[row]! > warmMs[row]! ? coldMs[row]! : p50Ms[row]!;
  }
};

const throughput: Measure = ({ health: { unitsPerS } }, rows, count, into) => {
  for (let i = 0; i < count; i++) into[i] = -unitsPerS[rows[i]!]!;
};

/** Uptime to the thousandth, worn down by what fails at the moment; then precision. */
const reliability: Measure = ({ health: { uptime, success }, snapshot }, rows, count, into) => {
  const { precisionBits } = snapshot.columns;
  for (let i = 0; i < count; i++) {
    const row = rows[i]!;
    into[i] = -(Math.floor(uptime[row]! * success[row]! * 1000 + 0.5) + precisionBits[row]! / 128);
  }
};

/** Precision; then uptime. */
const quality: Measure = ({ health: { uptime, success }, snapshot }, rows, count, into) => {
  const { precisionBits } = snapshot.columns;
  for (let i = 0; i < count; i++) {
    const row = rows[i]!;
    into[i] = -(precisionBits[row]! + uptime[row]! * success[row]!);
  }
};

/** The axes of `sort`, `objective`, suffixes and preferences. */
export const MEASURES: Readonly<Record<Axis, Measure>> = {
  price: cost,
  latency: expectedMs,
  throughput,
  reliability,
  quality,
};

const oneRow = new Uint32Array(1);
const oneFigure = new Float64Array(1);

/** The figure of one row. */
export function measured(measure: Measure, ask: Ask, row: number): number {
  oneRow[0] = row;
  measure(ask, oneRow, 1, oneFigure);
  return oneFigure[0]!;
}

/** Whether a row would have to be woken. */
export const isCold = ({ now, health, snapshot }: Ask, row: number): boolean =>
  now - health.usedAt[row]! > snapshot.columns.warmMs[row]!;
