/** Calls that wait by number: as a Map keeps them, at less cost. */
import fc from "fast-check";
import { expect, it } from "vitest";
import { PendingAnswers } from "../../../../src/upstream/limber-policy/pending.ts";

interface Waiting {
  readonly id: number;
}

it("every call is found once by its number, however long it waits while others come and go", () => {
  const act = fc.record({ calls: fc.integer({ min: 1, max: 700 }), takes: fc.array(fc.nat(4000), { maxLength: 600 }) });
  fc.assert(
    fc.property(fc.array(act, { minLength: 1, maxLength: 8 }), (acts) => {
      const pending = new PendingAnswers<Waiting>();
      const known = new Map<number, Waiting>();
      let id = 0;
      for (const { calls, takes } of acts) {
        for (let i = 0; i < calls; i++) {
          const call = { id: ++id };
          known.set(id, call);
          pending.add(call);
        }
        for (const taken of takes) {
          expect(pending.take(taken)).toBe(known.get(taken));
          known.delete(taken);
        }
        expect(pending.size).toBe(known.size);
      }
      expect(pending.takeAll()).toEqual([...known.values()]);
      expect([pending.size, pending.takeAll()]).toEqual([0, []]);
    }),
    { numRuns: 60 },
  );
});
