/** How rows are tested against columns: the loops of stage 3, several tests at a time. */
import type { Ask } from "./intent.ts";
import { type Measure, measured } from "./measure.ts";

/** A column's number is at most a limit; with `sign` -1 it is at least the limit's opposite. */
export interface NumberTest {
  readonly kind: "number";
  readonly column: Float64Array;
  readonly sign: 1 | -1;
  readonly limit: number;
}

/** A column's code is marked. */
export interface CodeTest {
  readonly kind: "code";
  readonly column: Uint32Array;
  readonly marks: Uint8Array;
}

/** Of a column's bits those under the mask are as wanted. */
export interface BitTest {
  readonly kind: "bits";
  readonly column: Uint32Array;
  readonly mask: number;
  readonly wanted: number;
}

/** A figure that depends on the moment is at most a limit. */
export interface MeasuredTest {
  readonly kind: "measured";
  readonly measure: Measure;
  readonly limit: number;
}

/** What one constraint asks of a row. */
export type Test = NumberTest | CodeTest | BitTest | MeasuredTest;

/** Whether one row passes one test. */
export function passes(ask: Ask, test: Test, row: number): boolean {
  switch (test.kind) {
    case "number":
      return test.sign * test.column[row]! <= test.limit;
    case "code":
      return test.marks[test.column[row]!] === 1;
    case "bits":
      return (test.column[row]! & test.mask) === test.wanted;
    case "measured":
      return measured(test.measure, ask, row) <= test.limit;
  }
}

/** Tests by their kind, so that each loop sees one kind of column. */
export interface Tests {
  readonly codes: readonly CodeTest[];
  readonly bits: readonly BitTest[];
  readonly numbers: readonly NumberTest[];
  readonly measured: readonly MeasuredTest[];
}

/** How many tests one loop makes. A loop that lacks some makes its first again, which costs next to nothing. */
const AT_ONCE = 4;

/**
 * Writes those of the first `count` rows that pass every test to the front of `to`, in order, and returns how many they
 * are. `to` holds at least `count` rows.
 */
export function sift(ask: Ask, tests: Tests, from: Uint32Array, count: number, to: Uint32Array): number {
  let rows = from;
  let left = count;
  for (let i = 0; i < tests.codes.length; i += AT_ONCE) {
    left = keepMarked(tests.codes, i, rows, left, to);
    rows = to;
  }
  for (let i = 0; i < tests.bits.length; i += AT_ONCE) {
    left = keepMasked(tests.bits, i, rows, left, to);
    rows = to;
  }
  for (let i = 0; i < tests.numbers.length; i += AT_ONCE) {
    left = keepWithin(tests.numbers, i, rows, left, to);
    rows = to;
  }
  for (const test of tests.measured) {
    left = keepMeasured(ask, test, rows, left, to);
    rows = to;
  }
  if (rows === from) to.set(from.subarray(0, count));
  return left;
}

function keepMarked(tests: readonly CodeTest[], at: number, from: Uint32Array, count: number, to: Uint32Array): number {
  const { column: a, marks: inA } = tests[at]!;
  const { column: b, marks: inB } = tests[at + 1] ?? tests[at]!;
  const { column: c, marks: inC } = tests[at + 2] ?? tests[at]!;
  const { column: d, marks: inD } = tests[at + 3] ?? tests[at]!;
  let kept = 0;
  for (let i = 0; i < count; i++) {
    const row = from[i]!;
    to[kept] = row;
    kept += inA[a[row]!]! & inB[b[row]!]! & inC[c[row]!]! & inD[d[row]!]!;
  }
  return kept;
}

function keepMasked(tests: readonly BitTest[], at: number, from: Uint32Array, count: number, to: Uint32Array): number {
  const { column: a, mask: maskA, wanted: wantedA } = tests[at]!;
  const { column: b, mask: maskB, wanted: wantedB } = tests[at + 1] ?? tests[at]!;
  const { column: c, mask: maskC, wanted: wantedC } = tests[at + 2] ?? tests[at]!;
  const { column: d, mask: maskD, wanted: wantedD } = tests[at + 3] ?? tests[at]!;
  let kept = 0;
  for (let i = 0; i < count; i++) {
    const row = from[i]!;
    to[kept] = row;
    const wrong =
      ((a[row]! & maskA) ^ wantedA) |
      ((b[row]! & maskB) ^ wantedB) |
      ((c[row]! & maskC) ^ wantedC) |
      ((d[row]! & maskD) ^ wantedD);
    // 1 when nothing is wrong, else 0, without a branch that would be guessed badly.
    kept += 1 + ((wrong | -wrong) >> 31);
  }
  return kept;
}

function keepWithin(
  tests: readonly NumberTest[],
  at: number,
  from: Uint32Array,
  count: number,
  to: Uint32Array,
): number {
  const { column: a, sign: signA, limit: limitA } = tests[at]!;
  const { column: b, sign: signB, limit: limitB } = tests[at + 1] ?? tests[at]!;
  const { column: c, sign: signC, limit: limitC } = tests[at + 2] ?? tests[at]!;
  const { column: d, sign: signD, limit: limitD } = tests[at + 3] ?? tests[at]!;
  let kept = 0;
  for (let i = 0; i < count; i++) {
    const row = from[i]!;
    if (
      signA * a[row]! <= limitA &&
      signB * b[row]! <= limitB &&
      signC * c[row]! <= limitC &&
      signD * d[row]! <= limitD
    ) {
      to[kept++] = row;
    }
  }
  return kept;
}

let figures = new Float64Array(1024);

function keepMeasured(ask: Ask, test: MeasuredTest, from: Uint32Array, count: number, to: Uint32Array): number {
  if (figures.length < count) figures = new Float64Array(count * 2);
  test.measure(ask, from, count, figures);
  let kept = 0;
  for (let i = 0; i < count; i++) if (figures[i]! <= test.limit) to[kept++] = from[i]!;
  return kept;
}
