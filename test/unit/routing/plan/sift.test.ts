import fc from "fast-check";
import { expect, test } from "vitest";
import { declare } from "../../../../src/routing/plan/intent.ts";
import { costMicro, gathered, passes, sift, type Test } from "../../../../src/routing/plan/sift.ts";
import { runs } from "../../../support/runs.ts";
import { offering, planArgs, supplyOf } from "../../../support/supply.ts";

const ROWS = 40;
const ask = declare(
  planArgs(
    supplyOf(
      Array.from({ length: ROWS }, (_, i) =>
        offering(`off_${i}`, {
          model: `acme/arm-${i % 5}`,
          provider: `provider${i % 4}`,
          region: `region${i % 7}`,
          priceNano: { 2: i * 50 },
          retainsFrames: i % 2 === 0,
          parameters: i % 3 === 0 ? ["seed"] : ["fps"],
        }),
      ),
    ),
    { intent: { model: "service/auto" } },
  ),
);

const numbers = fc.array(fc.oneof(fc.integer({ min: -3, max: 3 }), fc.constant(Number.POSITIVE_INFINITY)), {
  minLength: ROWS,
  maxLength: ROWS,
});
const marks = fc
  .array(fc.constantFrom(0, 1, 1), { minLength: 8, maxLength: 8 })
  .map((each): Uint8Array => Uint8Array.from(each));
const { provider, region } = ask.snapshot.columns;
const everything = ask.snapshot.serving(ask.targets[0]!.alias!, ask.serves, false);
const aTest: fc.Arbitrary<Test> = fc.oneof(
  fc
    .tuple(numbers, fc.constantFrom<1 | -1>(1, -1), fc.integer({ min: -3, max: 3 }))
    .map(([column, sign, limit]): Test => ({ kind: "number", column: Float64Array.from(column), sign, limit })),
  fc.tuple(fc.constantFrom(provider, region), marks).map(([column, marks]): Test => ({ kind: "code", column, marks })),
  marks.map((each): Test => ({ kind: "model", marks: each })),
  // No two want one bit on and off.
  fc.integer().map((mask): Test => ({ kind: "bits", mask, wanted: mask & ask.snapshot.columns.traits[0]! })),
  fc.integer({ min: 0, max: ROWS }).map((limit): Test => ({ kind: "cost", limit })),
  fc.integer({ min: 0, max: ROWS }).map((limit): Test => ({ kind: "measured", measure: costMicro, limit })),
);

test("rows pass together exactly if each passes alone, in order, for any number of tests", () => {
  fc.assert(
    fc.property(fc.array(aTest, { maxLength: 12 }), (tests) => {
      const to = new Uint32Array(ROWS);
      const kept = sift(ask, gathered(tests), everything, to);
      const alone = [...everything.rows].filter((row) => tests.every((each) => passes(ask, each, row)));
      expect([...to.subarray(0, kept)]).toEqual(alone);
      expect([...everything.rows]).toEqual([...everything.rows.keys()]);
    }),
    { numRuns: runs(100) },
  );
});
