/** Simulated policies of known strength on equal seeds. */
import { between, type Random } from "../../src/scenarios/chance.ts";
import type { Outcome } from "../../src/scenarios/paired.ts";

/** A seed's difficulty is shared by all policies, so that outcomes are correlated as in a scenario; `rate` is a policy's true success rate. */
export function played(rates: readonly number[], seeds: number, random: Random): Outcome[][] {
  const outcomes: Outcome[][] = rates.map(() => []);
  for (let seed = 0; seed < seeds; seed++) {
    const difficulty = random();
    for (const [i, rate] of rates.entries()) {
      // Half of the seeds judge all policies by the same difficulty; each policy's rate stays what it is.
      const draw = random() < 0.5 ? difficulty : random();
      const success = draw < rate;
      const progress = success ? 1 : between(random, 0, 0.8);
      outcomes[i]!.push({ success, progress, return: -100 * draw ** 3 + 50 * rate });
    }
  }
  return outcomes;
}
