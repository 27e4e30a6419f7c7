import { expect, test } from "vitest";
import { nearNames } from "../../../../src/routing/plan/intent.ts";

const KNOWN = ["acme/arm", "acme/arm-2", "openpi/pi0", "openpi/pi05", "service/auto"];

test.each([
  ["acme/amr", ["acme/arm"]],
  ["openpi/pi-0", ["openpi/pi0", "openpi/pi05"]],
  ["OpenPI/pi0", ["openpi/pi0", "openpi/pi05"]],
  ["servce/auto", ["service/auto"]],
  ["something/else-entirely", []],
  ["", []],
])("the names near %s are %j, nearest first", (name, near) => {
  expect(nearNames(name, KNOWN)).toEqual(near);
});

test("near names number five at most, and none for an absurdly long name", () => {
  const many = Array.from({ length: 50 }, (_, i) => `acme/model-${i}`);
  expect(nearNames("acme/model-", many)).toHaveLength(5);
  expect(nearNames("a".repeat(256), ["a".repeat(255)])).toEqual([]);
});
