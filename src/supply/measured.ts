/** Quality of offerings as published evaluations measured it. */
import type { Measured } from "../routing/index.ts";
import { BUILT_IN, digestOf } from "../scenarios/index.ts";
import { normalQuantile, wilson } from "../scenarios/scores.ts";
import type { MeasuredResult } from "../store/jobs/publications.ts";

/** By offering id: the best evaluation in each scenario, by scenario. */
export type MeasuredQuality = ReadonlyMap<string, readonly Measured[]>;

/** The error of all bounds of an offering in one scenario together. */
const ALPHA = 0.05;

/** The current built-in scenarios by digest. Those of packs and earlier versions do not count. */
const COUNTED = new Map(
  BUILT_IN.flatMap((scenario) =>
    scenario.variants.map((variant) => [digestOf(scenario, variant), { scenario, variant }]),
  ),
);

/** The digests of scenarios whose results count. */
export const COUNTED_DIGESTS: readonly string[] = [...COUNTED.keys()];

/**
 * Returns the evaluations that count, from one result per offering, scenario and publisher. The one with the highest lower bound counts, so a
 * publisher cannot lower an offering. The error is divided by the publishers and the attempts of each, so repeating gains nothing.
 */
export function measuredQuality(results: readonly MeasuredResult[]): MeasuredQuality {
  const found = new Map<string, Measured[]>();
  const groups = Map.groupBy(results, ({ offeringId, digest }) => `${offeringId} ${digest}`);
  for (const group of groups.values()) {
    const { offeringId, digest } = group[0]!;
    const known = COUNTED.get(digest);
    if (!known) continue;
    const { scenario, variant } = known;
    const bounds = group.map(({ publicationId, successes, episodes, attempts }) => {
      const z = normalQuantile(1 - ALPHA / group.length / attempts / 2);
      const { low } = wilson(successes, episodes, z);
      return {
        publicationId,
        scenario: scenario.id,
        actionSpace: variant.actionSpace,
        task: scenario.topic,
        successes,
        episodes,
        low,
      };
    });
    const best = bounds.reduce((a, b) => (b.low > a.low ? b : a));
    found.set(offeringId, [...(found.get(offeringId) ?? []), best]);
  }
  return found;
}
