import { expect, it } from "vitest";
import { BUILT_IN, digestOf, EARLIER } from "../../../src/scenarios/index.ts";
import type { MeasuredResult } from "../../../src/store/jobs/publications.ts";
import { measuredQuality } from "../../../src/supply/measured.ts";

const reach = BUILT_IN.find(({ id }) => id === "arm-reach")!;
const result = (facts: Partial<MeasuredResult>): MeasuredResult => ({
  ...{ offeringId: "off_1", digest: digestOf(reach, reach.variants[0]), publicationId: "pub_1" },
  ...{ successes: 50, episodes: 60, attempts: 1 },
  ...facts,
});
const lowOf = (...results: readonly MeasuredResult[]): number => measuredQuality(results).get("off_1")![0]!.low;

it("a bound falls with the number of attempts, and another publisher cannot lower it by a bad result", () => {
  const once = lowOf(result({}));
  expect(once).toBeCloseTo(0.72, 2);
  expect(lowOf(result({ attempts: 100 }))).toBeLessThan(once);
  const rival = result({ publicationId: "pub_2", successes: 0, attempts: 10_000 });
  expect(lowOf(result({}), rival)).toBeCloseTo(lowOf(result({ attempts: 2 })), 12);
});

it("results of earlier versions and of scenarios that are not built in do not count", () => {
  const earlier = EARLIER.find(({ id }) => id === "arm-reach")!;
  const others = [digestOf(earlier, earlier.variants[0]), "sha256:of-a-pack"];
  expect(measuredQuality(others.map((digest) => result({ digest }))).size).toBe(0);
});
