/** Measures rows and tests them against columns: the inner loops of stages 3 and 4. */
import { microOf } from "../../contracts/contract.ts";
import { type Axis, evaluationsOf, type Measured } from "../offering.ts";
import type { Candidates } from "../snapshot/snapshot.ts";
import { type Ask, Reused, unitsAt } from "./intent.ts";

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

/** Success in published evaluations; precision where there are none; then uptime. */
const quality: Measure = ({ health: { uptime, success }, snapshot, intent, alias }, rows, count, into) => {
  const { precisionBits, measured } = snapshot.columns;
  for (let i = 0; i < count; i++) {
    const row = rows[i]!;
    const known =
      measured[row]! > 0 ? successIn(evaluationsOf(snapshot.offerings[row]!, intent.actionSpace, alias)) : undefined;
    into[i] = -((known ?? precisionBits[row]!) + uptime[row]! * success[row]!);
  }
};

/** More than any precision: the lowest positive bound, of 1 success in 50 episodes after 1,000 attempts, is about 0.001. */
const MEASURED = 1e6;

/** The sum of the lower bounds over all scenarios; one without a result adds nothing. Undefined without evaluations. */
const successIn = (evaluations: readonly Measured[]): number | undefined =>
  evaluations.length === 0 ? undefined : evaluations.reduce((sum, { low }) => sum + low, 0) * MEASURED;

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

/** A column's number is at most a limit; with `sign` -1 it is at least the limit's opposite. */
export interface NumberTest {
  readonly kind: "number";
  readonly column: Float64Array;
  readonly sign: 1 | -1;
  readonly limit: number;
}

/** A column's code is marked: that of the provider or the region. */
export interface CodeTest {
  readonly kind: "code";
  readonly column: Uint32Array;
  readonly marks: Uint8Array;
}

/** A column's code is good, which is found out when it is first met; 0 always is. */
interface LazyTest {
  readonly kind: "lazy";
  readonly column: Uint32Array;
  readonly isGood: (code: number) => boolean;
}

/** The code of the model is marked. */
interface ModelTest {
  readonly kind: "model";
  readonly marks: Uint8Array;
}

/** The row is one of these. */
interface RowTest {
  readonly kind: "rows";
  readonly rows: ReadonlySet<number>;
}

/** Of the bits of `traits` those under the mask are as wanted. */
export interface BitTest {
  readonly kind: "bits";
  readonly mask: number;
  readonly wanted: number;
}

/** A figure that depends on the moment is at most a limit. */
export interface MeasuredTest {
  readonly kind: "measured";
  readonly measure: Measure;
  readonly limit: number;
}

/** The whole call costs at most so many whole micro-dollars. */
interface CostTest {
  readonly kind: "cost";
  readonly limit: number;
}

/** What one constraint asks of a row. */
export type Test = NumberTest | CodeTest | LazyTest | ModelTest | RowTest | BitTest | MeasuredTest | CostTest;

/** Whether one row passes one test. */
export function passes(ask: Ask, test: Test, row: number): boolean {
  switch (test.kind) {
    case "number":
      return test.sign * test.column[row]! <= test.limit;
    case "code":
      return test.marks[test.column[row]!] === 1;
    case "lazy":
      return test.isGood(test.column[row]!);
    case "model":
      return test.marks[ask.snapshot.columns.model[row]!] === 1;
    case "rows":
      return test.rows.has(row);
    case "bits":
      return (ask.snapshot.columns.traits[row]! & test.mask) === test.wanted;
    case "cost":
      return measured(costMicro, ask, row) <= test.limit;
    case "measured":
      return measured(test.measure, ask, row) <= test.limit;
  }
}

/** Tests by what they ask, so that each loop sees one sort of column. */
export interface Tests {
  /** Of the kind. */
  readonly codes: readonly CodeTest[];
  readonly lazy: readonly LazyTest[];
  /** All of them in one: they ask for bits of one column. */
  readonly bits: Pick<BitTest, "mask" | "wanted">;
  /** Of the row. */
  readonly models: readonly ModelTest[];
  readonly rows: readonly RowTest[];
  readonly numbers: readonly NumberTest[];
  readonly costs: readonly CostTest[];
  readonly measured: readonly MeasuredTest[];
}

/** Sorts tests by what they ask. No two of them may want the same bit to be on and off. */
export function gathered(tests: readonly Test[]): Tests {
  const codes: CodeTest[] = [];
  const lazy: LazyTest[] = [];
  const bits = { mask: 0, wanted: 0 };
  const models: ModelTest[] = [];
  const rows: RowTest[] = [];
  const numbers: NumberTest[] = [];
  const costs: CostTest[] = [];
  const measured: MeasuredTest[] = [];
  for (const test of tests) {
    if (test.kind === "code") codes.push(test);
    else if (test.kind === "lazy") lazy.push(test);
    else if (test.kind === "model") models.push(test);
    else if (test.kind === "rows") rows.push(test);
    else if (test.kind === "number") numbers.push(test);
    else if (test.kind === "cost") costs.push(test);
    else if (test.kind === "measured") measured.push(test);
    else {
      bits.mask |= test.mask;
      bits.wanted |= test.wanted;
    }
  }
  return { codes, lazy, bits, models, rows, numbers, costs, measured };
}

/** Writes those of the candidates that pass every test to the front of `to`, in order, and returns how many they are. `to` is long enough for all. */
export function sift(ask: Ask, tests: Tests, candidates: Candidates, to: Uint32Array): number {
  const { numbers } = tests;
  let left = keepKinds(ask, tests, candidates, to);
  for (const { marks } of tests.models) left = keepModels(ask, marks, to, left);
  for (const { rows } of tests.rows) left = keepRows(rows, to, left);
  for (let i = 0; i < numbers.length; i += NUMBERS_AT_ONCE) left = keepWithin(numbers, i, to, left);
  for (const { limit } of tests.costs) left = keepAffordable(ask, limit, to, left);
  for (const test of tests.measured) left = keepMeasured(ask, test, to, left);
  for (const test of tests.lazy) left = keepGood(test, to, left);
  return left;
}

const marked = new Reused((length) => new Uint8Array(length));

/** Tests each kind once, on one of its rows. The loops have no branches, because it is unpredictable which rows pass. */
function keepKinds(ask: Ask, { codes, bits }: Tests, candidates: Candidates, to: Uint32Array): number {
  const { rows, kinds, samples } = candidates;
  const passed = marked.of(samples.length);
  markByBits(ask, bits, samples, passed);
  for (let i = 0; i < codes.length; i += CODES_AT_ONCE) markByCodes(codes, i, samples, passed);
  let kept = 0;
  for (let i = 0; i < rows.length; i++) {
    to[kept] = rows[i]!;
    kept += passed[kinds[i]!]!;
  }
  return kept;
}

/** How many tests one loop makes. A loop that lacks some makes its first again, which costs next to nothing. */
const CODES_AT_ONCE = 2;
const NUMBERS_AT_ONCE = 5;

function markByBits(
  { snapshot }: Ask,
  { mask, wanted }: Tests["bits"],
  samples: Uint32Array,
  passed: Uint8Array,
): void {
  const { traits } = snapshot.columns;
  for (let kind = 0; kind < samples.length; kind++) passed[kind] = +((traits[samples[kind]!]! & mask) === wanted);
}

function markByCodes(tests: readonly CodeTest[], at: number, samples: Uint32Array, passed: Uint8Array): void {
  const first = tests[at]!;
  const { column: a, marks: inA } = first;
  const { column: b, marks: inB } = tests[at + 1] ?? first;
  for (let kind = 0; kind < samples.length; kind++) {
    const row = samples[kind]!;
    passed[kind] = passed[kind]! & inA[a[row]!]! & inB[b[row]!]!;
  }
}

/** Last of all, so that few codes are met. */
function keepGood({ column, isGood }: LazyTest, rows: Uint32Array, count: number): number {
  let kept = 0;
  for (let i = 0; i < count; i++) {
    const row = rows[i]!;
    const code = column[row]!;
    if (code === 0 || isGood(code)) rows[kept++] = row;
  }
  return kept;
}

function keepModels({ snapshot }: Ask, marks: Uint8Array, rows: Uint32Array, count: number): number {
  const { model } = snapshot.columns;
  let kept = 0;
  for (let i = 0; i < count; i++) {
    const row = rows[i]!;
    rows[kept] = row;
    kept += marks[model[row]!]!;
  }
  return kept;
}

function keepRows(wanted: ReadonlySet<number>, rows: Uint32Array, count: number): number {
  let kept = 0;
  for (let i = 0; i < count; i++) if (wanted.has(rows[i]!)) rows[kept++] = rows[i]!;
  return kept;
}

function keepWithin(tests: readonly NumberTest[], at: number, rows: Uint32Array, count: number): number {
  const first = tests[at]!;
  const { column: a, sign: signA, limit: limitA } = first;
  const { column: b, sign: signB, limit: limitB } = tests[at + 1] ?? first;
  const { column: c, sign: signC, limit: limitC } = tests[at + 2] ?? first;
  const { column: d, sign: signD, limit: limitD } = tests[at + 3] ?? first;
  const { column: e, sign: signE, limit: limitE } = tests[at + 4] ?? first;
  let kept = 0;
  for (let i = 0; i < count; i++) {
    const row = rows[i]!;
    if (
      signA * a[row]! <= limitA &&
      signB * b[row]! <= limitB &&
      signC * c[row]! <= limitC &&
      signD * d[row]! <= limitD &&
      signE * e[row]! <= limitE
    ) {
      rows[kept++] = row;
    }
  }
  return kept;
}

/** As `costMicro` rounds it, half to even, but without rounding: at the limit itself half a micro-dollar may go either way. */
function keepAffordable(ask: Ask, limitMicro: number, rows: Uint32Array, count: number): number {
  const { priceNano, now, health, snapshot } = ask;
  const { usedAt } = health;
  const { warmMs, wakeMicro } = snapshot.columns;
  const limitNano = limitMicro * 1000 + 499;
  let kept = 0;
  for (let i = 0; i < count; i++) {
    const row = rows[i]!;
    const wake = now - usedAt[row]! > warmMs[row]! ? wakeMicro[row]! : 0;
    const nano = unitsAt(ask, row) * priceNano[row]! + wake * 1000;
    if (nano <= limitNano || (nano === limitNano + 1 && (limitMicro - wake) % 2 === 0)) rows[kept++] = row;
  }
  return kept;
}

const figures = new Reused((length) => new Float64Array(length));

function keepMeasured(ask: Ask, test: MeasuredTest, rows: Uint32Array, count: number): number {
  const measures = figures.of(count);
  test.measure(ask, rows, count, measures);
  let kept = 0;
  for (let i = 0; i < count; i++) if (measures[i]! <= test.limit) rows[kept++] = rows[i]!;
  return kept;
}
