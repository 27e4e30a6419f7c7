import { describe, expect, test } from "vitest";
import { Contract } from "../../../src/contracts/contract.ts";
import { ALIASES, aliasOf, parseModelName, VARIANTS } from "../../../src/routing/offering.ts";

describe("parseModelName", () => {
  test.each([
    ["acme/arm", "acme/arm", undefined],
    ["acme/arm:turbo", "acme/arm", ":turbo"],
    ["service/auto", "service/auto", undefined],
    ["service/auto:vla", "service/auto:vla", undefined],
    ["service/auto:vla:turbo", "service/auto:vla", ":turbo"],
    ["service/auto:floor", "service/auto", ":floor"],
    ["service/auto:vision-3d:nitro", "service/auto:vision-3d", ":nitro"],
    ["acme/arm:turbo:floor", "acme/arm:turbo", ":floor"],
    ["acme/arm:fast", "acme/arm:fast", undefined],
    [":turbo", "", ":turbo"],
  ])("splits %s from the right", (name, base, suffix) => {
    const parsed = parseModelName(name);
    expect([parsed.base, parsed.variant?.suffix]).toEqual([base, suffix]);
  });
});

test("aliases are the ten of the specification, with their filters and sorts", () => {
  expect(ALIASES.map(({ id, filter, sort }) => [id, filter, sort])).toEqual([
    ["service/auto", {}, undefined],
    ["service/fastest", {}, "latency"],
    ["service/cheapest", {}, "price"],
    ["service/ground", { contract: Contract.GROUND }, undefined],
    ["service/auto:embodied", { domain: "embodied" }, undefined],
    ["service/auto:general", { domain: "general" }, undefined],
    ["service/auto:foundation", { family: "foundation" }, undefined],
    ["service/auto:manipulation", { family: "manipulation" }, undefined],
    ["service/auto:vla", { family: "vla" }, undefined],
    ["service/auto:vision-3d", { family: "vision-3d" }, undefined],
  ]);
});

test("aliases do not end like a suffix, so that suffixes can be split from the right", () => {
  for (const { id } of ALIASES) {
    expect(VARIANTS.some(({ suffix }) => id.endsWith(suffix))).toBe(false);
    expect(aliasOf(parseModelName(id).base)?.id).toBe(id);
  }
});
