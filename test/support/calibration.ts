/** How often intervals of simulated tournaments contain the truth, and how often a comparison that may stop at any time errs. */
import { between, seeded } from "../../src/scenarios/chance.ts";
import { Betting, type Outcome, pairOf, weightedPairOf } from "../../src/scenarios/paired.ts";
import { stratifiedInterval, stratifiedWilson } from "../../src/scenarios/scores.ts";
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

/**
 * The shares of tournaments on suites with these numbers of episodes whose 95 % intervals contain a policy's true overall success and progress,
 * and the true difference; and of those between two equal policies that call one better. Tasks differ in difficulty and weight.
 */
export function suiteCoverage(tournaments: number, episodes: readonly number[]) {
  const random = seeded(tournaments + episodes.length);
  const counts = { rate: 0, progress: 0, difference: 0, wrong: 0 };
  const contains = ({ low, high }: { low: number; high: number }, mean: number): number =>
    Number(low <= mean && mean <= high);
  for (let i = 0; i < tournaments; i++) {
    const weights = episodes.map(() => between(random, 0.5, 2));
    const all = weights.reduce((sum, weight) => sum + weight, 0);
    const tasks = episodes.map((n, at) => {
      const [one, other] = [between(random, 0.05, 0.95), between(random, 0.05, 0.95)];
      const [a, b, twin] = played([one, other, one], n, random);
      return { share: weights[at]! / all, rates: [one, other] as const, a: a!, b: b!, twin: twin! };
    });
    const truth = (read: (rates: readonly [number, number]) => number): number =>
      tasks.reduce((sum, { share, rates }) => sum + share * read(rates), 0);
    const strata = (read: (outcome: Outcome) => number) =>
      tasks.map(({ share, a }) => ({ share, values: a.map(read) }));
    counts.rate += contains(
      stratifiedWilson(strata(({ success }) => Number(success))),
      truth(([rate]) => rate),
    );
    // Failures make 0.4 progress on average.
    counts.progress += contains(
      stratifiedInterval(strata(({ progress }) => progress)),
      truth(([rate]) => rate + 0.4 * (1 - rate)),
    );
    counts.difference += contains(
      weightedPairOf(tasks, JUDGING)!.success.ci95,
      truth(([one, other]) => one - other),
    );
    const twins = tasks.map(({ share, a, twin }) => ({ share, a, b: twin }));
    counts.wrong += Number(weightedPairOf(twins, JUDGING)!.better !== undefined);
  }
  const shareOf = (count: number): number => count / tournaments;
  return {
    rate: shareOf(counts.rate),
    progress: shareOf(counts.progress),
    difference: shareOf(counts.difference),
    wrong: shareOf(counts.wrong),
  };
}
