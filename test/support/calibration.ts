/** How often intervals of simulated tournaments contain the truth, and how often a comparison that may stop at any time errs. */
import { between, seeded } from "../../src/scenarios/chance.ts";
import { Betting, pairOf } from "../../src/scenarios/paired.ts";
import { played } from "./tournaments.ts";

const JUDGING = { metric: "success", alpha: 0.05, pairs: 1, mayStop: false } as const;

/** The shares of tournaments whose 95 % intervals contain the true difference. */
export function coverage(tournaments: number, seeds: number): { success: number; return: number } {
  const random = seeded(tournaments + seeds);
  let [success, returned] = [0, 0];
  for (let i = 0; i < tournaments; i++) {
    const rates = [between(random, 0.05, 0.95), between(random, 0.05, 0.95)] as const;
    const [a, b] = played(rates, seeds, random);
    const pair = pairOf(a!, b!, JUDGING);
    const contains = (mean: number, { low, high }: { low: number; high: number }): boolean =>
      low <= mean && mean <= high;
    if (contains(rates[0] - rates[1], pair.success.ci95)) success += 1;
    if (contains(50 * (rates[0] - rates[1]), pair.return.ci95)) returned += 1;
  }
  return { success: success / tournaments, return: returned / tournaments };
}

/** The share of comparisons of two equally good policies that ever call one better, looked at after each of the seeds. */
export function falseStops(comparisons: number, seeds: number): number {
  const random = seeded(comparisons + seeds);
  let wrong = 0;
  for (let i = 0; i < comparisons; i++) {
    const rate = between(random, 0.05, 0.95);
    const [a, b] = played([rate, rate], seeds, random);
    const watched = new Betting(0.05);
    for (const [seed, { success }] of a!.entries()) watched.add(Number(success) - Number(b![seed]!.success));
    if (watched.knownAfter !== undefined) wrong += 1;
  }
  return wrong / comparisons;
}
