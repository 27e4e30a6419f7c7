/** Findings are told by kind, so that a rare one isn't drowned by a frequent one. */
import { expect, it } from "vitest";
import { byKind } from "./findings.ts";

it("findings that differ only in names and numbers are one kind, and a rare one is listed separately", () => {
  const many = Array.from({ length: 40 }, (_, i) => `call-3-${i} was never answered: refused with store_unavailable`);
  const one = "call-1-7 was charged twice";
  expect(byKind([...many.slice(0, 9), one, ...many.slice(9)])).toEqual([
    { kind: "a call was never answered: refused with store_unavailable", count: 40, examples: many.slice(0, 5) },
    { kind: "a call was charged twice", count: 1, examples: [one] },
  ]);
});

it("request ids and amounts do not make a kind, and the first of many lines represents it", () => {
  const ids = ["req_01k2abcdefghjkmnpqrstvwxyz", "req_01k3abcdefghjkmnpqrstvwxyz"];
  expect(byKind(ids.map((id, i) => `${id} was charged ${i}.5\n  at ${i}`)).map(({ kind }) => kind)).toEqual([
    "<id> was charged <n>",
  ]);
});
