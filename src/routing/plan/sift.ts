/** How rows are tested against columns: the loops of stage 3, several tests at a time. */

import type { Candidates } from "../snapshot/snapshot.ts";
import { type Ask, unitsAt } from "./intent.ts";
import { costMicro, type Measure, measured } from "./measure.ts";

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
export interface LazyTest {
  readonly kind: "lazy";
  readonly column: Uint32Array;
  readonly isGood: (code: number) => boolean;
}

/** The code of the model is marked. */
export interface ModelTest {
  readonly kind: "model";
  readonly marks: Uint8Array;
}

/** The row is one of these. */
export interface RowTest {
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
export interface CostTest {
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

let marked = new Uint8Array(1024);

/** What is asked of kinds is asked of one row of each. No loop has a branch: which row passes is nothing that could be guessed. */
function keepKinds(ask: Ask, { codes, bits }: Tests, candidates: Candidates, to: Uint32Array): number {
  const { rows, kinds, samples } = candidates;
  if (marked.length < samples.length) marked = new Uint8Array(samples.length * 2);
  const passed = marked;
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

let figures = new Float64Array(1024);

function keepMeasured(ask: Ask, test: MeasuredTest, rows: Uint32Array, count: number): number {
  if (figures.length < count) figures = new Float64Array(count * 2);
  test.measure(ask, rows, count, figures);
  let kept = 0;
  for (let i = 0; i < count; i++) if (figures[i]! <= test.limit) rows[kept++] = rows[i]!;
  return kept;
}
