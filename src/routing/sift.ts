/** How rows are tested against columns: the loops of stage 3, several tests at a time. */
import type { Ask } from "./intent.ts";
import { costMicro, type Measure, measured } from "./measure.ts";

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
export type Test = NumberTest | CodeTest | BitTest | MeasuredTest | CostTest;

/** Whether one row passes one test. */
export function passes(ask: Ask, test: Test, row: number): boolean {
  switch (test.kind) {
    case "number":
      return test.sign * test.column[row]! <= test.limit;
    case "code":
      return test.marks[test.column[row]!] === 1;
    case "bits":
      return (ask.snapshot.columns.traits[row]! & test.mask) === test.wanted;
    case "cost":
      return measured(costMicro, ask, row) <= test.limit;
    case "measured":
      return measured(test.measure, ask, row) <= test.limit;
  }
}

/** Tests by their kind, so that each loop sees one kind of column. */
export interface Tests {
  readonly codes: readonly CodeTest[];
  /** All of them in one: they ask for bits of one column. */
  readonly bits: BitTest | undefined;
  readonly numbers: readonly NumberTest[];
  readonly costs: readonly CostTest[];
  readonly measured: readonly MeasuredTest[];
}

/** Sorts tests by their kind. No two of them may want the same bit to be on and off. */
export function gathered(tests: Iterable<Test>): Tests {
  const codes: CodeTest[] = [];
  let bits: BitTest | undefined;
  const numbers: NumberTest[] = [];
  const costs: CostTest[] = [];
  const measured: MeasuredTest[] = [];
  for (const test of tests) {
    if (test.kind === "code") codes.push(test);
    else if (test.kind === "number") numbers.push(test);
    else if (test.kind === "cost") costs.push(test);
    else if (test.kind === "measured") measured.push(test);
    else if (!bits) bits = test;
    else bits = { kind: "bits", mask: bits.mask | test.mask, wanted: bits.wanted | test.wanted };
  }
  return { codes, bits, numbers, costs, measured };
}

/** Asks nothing of a row. */
const ANY_BITS = { mask: 0, wanted: 0 };

/**
 * Writes those of the first `count` rows that pass every test to the front of `to`, in order, and returns how many they
 * are. `to` holds at least `count` rows.
 */
export function sift(ask: Ask, tests: Tests, from: Uint32Array, count: number, to: Uint32Array): number {
  const { codes, bits, numbers } = tests;
  let rows = from;
  let left = count;
  for (let i = 0; i < codes.length || (i === 0 && bits); i += CODES_AT_ONCE) {
    left = keepMarked(ask, codes, i, (i === 0 && bits) || ANY_BITS, rows, left, to);
    rows = to;
  }
  for (let i = 0; i < numbers.length; i += NUMBERS_AT_ONCE) {
    left = keepWithin(numbers, i, rows, left, to);
    rows = to;
  }
  for (const { limit } of tests.costs) {
    left = keepAffordable(ask, limit, rows, left, to);
    rows = to;
  }
  for (const test of tests.measured) {
    left = keepMeasured(ask, test, rows, left, to);
    rows = to;
  }
  if (rows === from) to.set(from.subarray(0, count));
  return left;
}

/** How many tests one loop makes. A loop that lacks some makes its first again, which costs next to nothing. */
const CODES_AT_ONCE = 2;
const NUMBERS_AT_ONCE = 5;

function keepMarked(
  { snapshot }: Ask,
  tests: readonly CodeTest[],
  at: number,
  { mask, wanted }: Pick<BitTest, "mask" | "wanted">,
  from: Uint32Array,
  count: number,
  to: Uint32Array,
): number {
  const { traits } = snapshot.columns;
  const first = tests[at];
  if (!first) return keepMasked(traits, mask, wanted, from, count, to);
  const { column: a, marks: inA } = first;
  const { column: b, marks: inB } = tests[at + 1] ?? first;
  let kept = 0;
  for (let i = 0; i < count; i++) {
    const row = from[i]!;
    to[kept] = row;
    const wrong = (traits[row]! & mask) ^ wanted;
    // 1 when nothing is wrong, else 0, without a branch that would be guessed badly.
    kept += inA[a[row]!]! & inB[b[row]!]! & (1 + ((wrong | -wrong) >> 31));
  }
  return kept;
}

function keepMasked(
  traits: Uint32Array,
  mask: number,
  wanted: number,
  from: Uint32Array,
  count: number,
  to: Uint32Array,
): number {
  let kept = 0;
  for (let i = 0; i < count; i++) {
    const row = from[i]!;
    to[kept] = row;
    const wrong = (traits[row]! & mask) ^ wanted;
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
  const first = tests[at]!;
  const { column: a, sign: signA, limit: limitA } = first;
  const { column: b, sign: signB, limit: limitB } = tests[at + 1] ?? first;
  const { column: c, sign: signC, limit: limitC } = tests[at + 2] ?? first;
  const { column: d, sign: signD, limit: limitD } = tests[at + 3] ?? first;
  const { column: e, sign: signE, limit: limitE } = tests[at + 4] ?? first;
  let kept = 0;
  for (let i = 0; i < count; i++) {
    const row = from[i]!;
    if (
      signA * a[row]! <= limitA &&
      signB * b[row]! <= limitB &&
      signC * c[row]! <= limitC &&
      signD * d[row]! <= limitD &&
      signE * e[row]! <= limitE
    ) {
      to[kept++] = row;
    }
  }
  return kept;
}

/** As `costMicro` rounds it, half to even, but without rounding: at the limit itself half a micro-dollar may go either way. */
function keepAffordable(ask: Ask, limitMicro: number, from: Uint32Array, count: number, to: Uint32Array): number {
  const { units, priceNano, now, health, snapshot } = ask;
  const { usedAt } = health;
  const { warmMs, wakeMicro } = snapshot.columns;
  const limitNano = limitMicro * 1000 + 499;
  let kept = 0;
  for (let i = 0; i < count; i++) {
    const row = from[i]!;
    const wake = now - usedAt[row]! > warmMs[row]! ? wakeMicro[row]! : 0;
    const nano = units * priceNano[row]! + wake * 1000;
    if (nano <= limitNano || (nano === limitNano + 1 && (limitMicro - wake) % 2 === 0)) to[kept++] = row;
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
