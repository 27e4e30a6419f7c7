/** Charges below a micro-dollar: what each is off by counts in the key's next one. */
import fc from "fast-check";
import { expect, it } from "vitest";
import { charge, Remainders } from "../../../src/billing/price.ts";
import { mostMicroOf } from "../../../src/contracts/contract.ts";

it("a thousand calls at a third of a micro-dollar each cost their exact sum", () => {
  const remainders = new Remainders();
  let micro = 0;
  for (let i = 0; i < 1_000; i++) {
    const each = remainders.charge("key_1", 1, 333);
    remainders.keep("key_1", each.restNano);
    micro += each.micro;
  }
  expect(micro).toBe(333);
});

it("remainders are kept per key, and dropped ones are not charged", () => {
  const remainders = new Remainders();
  expect(remainders.charge("key_1", 1, 400)).toEqual({ micro: 0, restNano: 400 });
  remainders.keep("key_1", 400);
  expect(remainders.charge("key_2", 1, 400)).toEqual({ micro: 0, restNano: 400 });
  expect(remainders.charge("key_1", 1, 400)).toEqual({ micro: 1, restNano: -600 });
  // Nothing was charged for it, so that the next one is asked for the same.
  expect(remainders.charge("key_1", 1, 400)).toEqual({ micro: 1, restNano: -600 });
});

it("the first call costs the same as alone, and prices in full micro-dollars are always exact", () => {
  fc.assert(
    fc.property(fc.nat(4_096), fc.nat(5_000_000), (units, nano) => {
      expect(new Remainders().charge("key", units, nano).micro).toBe(charge(units, nano));
    }),
  );
  const remainders = new Remainders();
  remainders.keep("key", 499);
  expect(remainders.charge("key", 3, 2_000)).toEqual({ micro: 6, restNano: 0 });
});

it("the sum of any number of charges is off by less than a micro-dollar, and no charge exceeds its hold", () => {
  const call = fc.record({ units: fc.nat(300), nano: fc.nat(20_000), isMade: fc.boolean() });
  fc.assert(
    fc.property(fc.array(call, { maxLength: 60 }), (calls) => {
      const remainders = new Remainders();
      let nano = 0;
      let micro = 0;
      for (const { units, nano: price, isMade } of calls) {
        const each = remainders.charge("key", units, price);
        expect(each.micro).toBeLessThanOrEqual(mostMicroOf(units, price));
        expect(each.micro * 1_000 + each.restNano).toBe(units * price);
        if (!isMade) continue;
        remainders.keep("key", each.restNano);
        nano += units * price;
        micro += each.micro;
      }
      expect(Math.abs(nano - micro * 1_000)).toBeLessThan(1_000);
    }),
  );
});

it("remainders never raise a charge above the call's maximum", () => {
  const remainders = new Remainders();
  remainders.keep("key", 499);
  expect(remainders.charge("key", 1, 1_400, 1).micro).toBe(1);
  expect(remainders.charge("key", 1, 1_400, 2).micro).toBe(2);
});
