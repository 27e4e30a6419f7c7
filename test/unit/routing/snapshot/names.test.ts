import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { sorting } from "../../../../src/routing/snapshot/build.ts";
import { Names } from "../../../../src/routing/snapshot/snapshot.ts";
import { atOnce } from "../../../../src/slices.ts";

describe("Names", () => {
  test("number names as a Map would, for any names in any order", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ maxLength: 3 })), fc.array(fc.string({ maxLength: 3 })), (added, asked) => {
        const names = new Names(added.length);
        const model = new Map<string, number>();
        for (const name of added) {
          if (!model.has(name)) model.set(name, model.size);
          expect(names.add(name)).toBe(model.get(name));
        }
        for (const name of [...added, ...asked]) expect(names.of(name)).toBe(model.get(name) ?? -1);
        expect(names.names).toEqual([...model.keys()]);
      }),
    );
  });

  test("report a full table instead of searching forever", () => {
    const names = new Names(1);
    const fill = () => Array.from({ length: 100 }, (_, i) => names.add(`name${i}`));
    expect(fill).toThrow(RangeError);
    expect(names.of("none of them")).toBe(-1);
  });

  test("contain none before any is added", () => {
    expect(new Names(0).of("")).toBe(-1);
  });
});

describe("sorting", () => {
  test("orders as the language's sort does, and is stable", () => {
    const keys = fc.array(fc.integer({ min: 0, max: 20 }), { maxLength: 2000, size: "max" });
    fc.assert(
      fc.property(keys, (all) => {
        const compare = (a: number, b: number): number => all[a]! - all[b]!;
        expect([...atOnce(sorting(all.length, compare))]).toEqual(all.map((_, i) => i).sort(compare));
      }),
      { numRuns: 50 },
    );
  });
});
